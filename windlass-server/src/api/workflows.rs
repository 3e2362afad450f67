//! Workflows: look at them, cancel them, send their dead jobs back.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::job::{BATCH_MAX, DependsOn, RequeueOptions};
use windlass::store::{Act, CALL_MAX, Filter, ListQuery, PAGE_MAX, WorkflowQuery};
use windlass::workflow::{WorkflowRecord, WorkflowState};
use windlass::{Error, JobId, JobRecord, State as JobState, WorkflowId};

use super::ApiState;
use super::acting::{Acting, ByParams};
use super::bounded::{self, Shown};
use super::error::Refusal;
use super::extract::{Body, Caller, Id, MaybeBody, Query, check_count};
use super::jobs::PageParams;
use super::roles::{Role, needs};
use crate::wire::{Changed, Edge, FoundWorkflows, Graph, JobPage, Node, Why, Workflow, WorkflowIds, WorkflowPage};

/// Most edges of a graph: a job may wait for a thousand others, and more cannot be drawn.
const EDGES_MAX: usize = 100_000;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Read, routes!(list)))
        .routes(needs(Role::Read, routes!(find)))
        .routes(needs(Role::Read, routes!(get)))
        .routes(needs(Role::Read, routes!(jobs)))
        .routes(needs(Role::Read, routes!(graph)))
        .routes(needs(Role::Operate, routes!(cancel)))
        .routes(needs(Role::Operate, routes!(requeue)))
}

/// Workflows, newest first
///
/// With a condition, a call looks at 1,000 of them: the page may be short, even empty, and still have a next one.
#[utoipa::path(
    get,
    path = "/v1/workflows",
    tag = "workflows",
    params(
        PageParams,
        ("name" = Option<String>, Query, description = "With this in its name."),
        ("state" = Option<String>, Query, description = "How it stands as a whole; several with commas between."),
    ),
    responses((status = 200, description = "A page of workflows.", body = WorkflowPage))
)]
async fn list(State(state): State<ApiState>, mut query: Query) -> Result<Json<WorkflowPage>, Refusal> {
    let (limit, mut after) = (query.limit()?, query.cursor()?);
    let (name, states) = (query.text("name")?, query.text("state")?);
    query.done()?;
    let states = states.map(|names| states_of(&names)).transpose()?;
    let matches = |workflow: &WorkflowRecord| {
        name.as_ref().is_none_or(|name| workflow.name.contains(name.as_str()))
            && states.as_ref().is_none_or(|states| states.contains(&workflow.state()))
    };
    let (mut items, mut looked) = (Vec::new(), 0);
    // Never more than are still wanted, so that the cursor is that of the last workflow of the page.
    loop {
        let query = WorkflowQuery::Newest { limit: limit - items.len(), after };
        let page = state.store().workflows(&query).await?;
        looked += page.items.len();
        items.extend(page.items.iter().filter(|workflow| matches(workflow)).map(Workflow::from));
        after = page.next;
        if after.is_none() || items.len() >= limit || looked >= PAGE_MAX {
            return Ok(Json(WorkflowPage { items, next_cursor: after.map(|cursor| cursor.0) }));
        }
    }
}

fn states_of(names: &str) -> Result<Vec<WorkflowState>, Error> {
    let read = |name: &str| {
        let text = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name);
        let known = WorkflowState::deserialize(text);
        known.map_err(|_| Error::invalid("state", "must be states that workflows have"))
    };
    names.split(',').map(read).collect()
}

/// Get workflows by id
///
/// An id that is given twice is answered once.
#[utoipa::path(
    post,
    path = "/v1/workflows/find",
    tag = "workflows",
    request_body = WorkflowIds,
    responses(
        (status = 200, description = "The workflows, in order; `null` for one that does not exist.", body = FoundWorkflows)
    )
)]
async fn find(State(state): State<ApiState>, Body(asked): Body<WorkflowIds>) -> Result<Json<FoundWorkflows>, Refusal> {
    check_count("ids", asked.ids.len(), CALL_MAX)?;
    let mut seen = HashSet::with_capacity(asked.ids.len());
    let ids: Vec<WorkflowId> = asked.ids.into_iter().filter(|id| seen.insert(*id)).collect();
    let _turn = state.bounds.turn().await?;
    let found = state.store().workflows(&WorkflowQuery::Ids(ids.clone())).await?.items;
    let found: HashMap<WorkflowId, &WorkflowRecord> = found.iter().map(|workflow| (workflow.id, workflow)).collect();
    let items = ids.iter().map(|id| found.get(id).map(|workflow| Workflow::from(*workflow))).collect();
    Ok(Json(FoundWorkflows { items }))
}

/// Get a workflow
#[utoipa::path(
    get,
    path = "/v1/workflows/{id}",
    tag = "workflows",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, description = "The workflow.", body = Workflow))
)]
async fn get(State(state): State<ApiState>, Id(id): Id<WorkflowId>) -> Result<Json<Workflow>, Refusal> {
    Ok(Json(Workflow::from(&state.client().workflow(id).await?)))
}

/// The jobs of a workflow, newest first
#[utoipa::path(
    get,
    path = "/v1/workflows/{id}/jobs",
    tag = "workflows",
    params(("id" = String, Path, format = "uuid"), PageParams),
    responses((status = 200, description = "A page of jobs.", body = JobPage))
)]
async fn jobs(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<WorkflowId>,
    mut query: Query,
) -> Result<Response, Refusal> {
    let filter = Filter::new().workflow(id);
    let asked = ListQuery { filter, limit: query.limit()?, after: query.cursor()?, ..ListQuery::default() };
    query.done()?;
    state.client().workflow(id).await?;
    bounded::page_answer(&state, Shown::to(&caller), asked).await
}

/// The jobs of a workflow and what waits for what
///
/// At most the newest 10,000 jobs, as many as one workflow may begin with, and as many of them as have 100,000 edges together. With `fold`, a graph of more jobs than that has like
/// siblings as one node: jobs of one type, queue and state that wait for the same jobs and are waited for by the same.
#[utoipa::path(
    get,
    path = "/v1/workflows/{id}/graph",
    tag = "workflows",
    params(
        ("id" = String, Path, format = "uuid"),
        ("fold" = Option<u32>, Query, description = "From how many jobs on like siblings are folded.", minimum = 1, maximum = 10000),
    ),
    responses((status = 200, description = "The graph.", body = Graph))
)]
async fn graph(
    State(state): State<ApiState>,
    Id(id): Id<WorkflowId>,
    mut query: Query,
) -> Result<Json<Graph>, Refusal> {
    let most = BATCH_MAX as u64;
    let fold = query.number("fold", 1..=most, most)?;
    query.done()?;
    state.client().workflow(id).await?;
    let filter = Filter::new().workflow(id);
    let mut graph = Graph { nodes: Vec::new(), edges: Vec::new(), truncated: false };
    let mut after = None;
    loop {
        let page =
            bounded::page(&state, ListQuery { filter: filter.clone(), limit: PAGE_MAX, after, ..ListQuery::default() })
                .await?;
        after = page.next;
        draw_page(&mut graph, &page.items, after.is_some());
        if after.is_none() || graph.truncated {
            graph.nodes.reverse();
            if graph.nodes.len() as u64 > fold {
                fold_siblings(&mut graph);
            }
            return Ok(Json(graph));
        }
    }
}

/// Draws the jobs of a page as far as there is room, and notes whether some are left out.
fn draw_page(graph: &mut Graph, jobs: &[JobRecord], more: bool) {
    let drawn = jobs.iter().take_while(|job| draw(graph, job)).count();
    let full = graph.edges.len() >= EDGES_MAX || graph.nodes.len() >= BATCH_MAX;
    graph.truncated = drawn < jobs.len() || (more && full);
}

/// Draws a job, unless its edges are too many; whether it did.
fn draw(graph: &mut Graph, job: &JobRecord) -> bool {
    if graph.edges.len() + job.spec.depends_on.len() > EDGES_MAX {
        return false;
    }
    graph.nodes.push(Node {
        id: job.id,
        job_type: job.spec.job_type.to_string(),
        queue: job.spec.queue.to_string(),
        state: job.state,
        spawned_by: job.spawned_by,
        attempt: job.attempt,
        created_at: job.created_at,
        scheduled_at: job.scheduled_at,
        started_at: job.started_at,
        ended_at: job.completed_at,
        folded: Vec::new(),
    });
    for dependency in &job.spec.depends_on {
        if let DependsOn::Job(from) = dependency.on {
            graph.edges.push(Edge { from, to: job.id, kind: dependency.kind });
        }
    }
    true
}

/// Makes one node of jobs that differ in nothing that a graph shows.
fn fold_siblings(graph: &mut Graph) {
    let mut around: HashMap<JobId, (Vec<JobId>, Vec<JobId>)> = HashMap::new();
    for edge in &graph.edges {
        around.entry(edge.to).or_default().0.push(edge.from);
        around.entry(edge.from).or_default().1.push(edge.to);
    }
    let mut first: HashMap<_, usize> = HashMap::new();
    let mut kept: Vec<Node> = Vec::new();
    let mut gone = HashSet::new();
    for node in std::mem::take(&mut graph.nodes) {
        let (mut from, mut to) = around.remove(&node.id).unwrap_or_default();
        from.sort_unstable();
        to.sort_unstable();
        let like = (node.job_type.clone(), node.queue.clone(), node.state, node.spawned_by, from, to);
        match first.entry(like) {
            Entry::Occupied(place) => {
                gone.insert(node.id);
                kept[*place.get()].folded.push(node.id);
            }
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(node);
            }
        }
    }
    graph.nodes = kept;
    graph.edges.retain(|edge| !gone.contains(&edge.from) && !gone.contains(&edge.to));
}

/// Cancel every unfinished job of a workflow
#[utoipa::path(
    post,
    path = "/v1/workflows/{id}/cancel",
    tag = "workflows",
    params(("id" = String, Path, format = "uuid"), ByParams),
    request_body(content = Option<Why>),
    responses((status = 200, description = "How many were cancelled or asked to stop.", body = Changed))
)]
async fn cancel(
    acting: Acting,
    Id(id): Id<WorkflowId>,
    MaybeBody(why): MaybeBody<Why>,
) -> Result<Json<Changed>, Refusal> {
    act(&acting, id, Act::Cancel { force: false }, Vec::new(), why).await
}

/// Send the dead jobs of a workflow back, those that died of a dependency included
#[utoipa::path(
    post,
    path = "/v1/workflows/{id}/requeue",
    tag = "workflows",
    params(("id" = String, Path, format = "uuid"), ByParams),
    request_body(content = Option<Why>),
    responses((status = 200, description = "How many were sent back.", body = Changed))
)]
async fn requeue(
    acting: Acting,
    Id(id): Id<WorkflowId>,
    MaybeBody(why): MaybeBody<Why>,
) -> Result<Json<Changed>, Refusal> {
    let options = RequeueOptions { with_dependents: true, ..RequeueOptions::default() };
    let dead = vec![JobState::Failed, JobState::DeadLetter];
    act(&acting, id, Act::Requeue(options), dead, why).await
}

async fn act(
    acting: &Acting,
    id: WorkflowId,
    act: Act,
    states: Vec<JobState>,
    why: Why,
) -> Result<Json<Changed>, Refusal> {
    acting.state().client().workflow(id).await?;
    let filter = Filter::new().workflow(id).states(states);
    acting.on_all(filter, act, why.reason).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass::job::{DependencyKind, Limits};
    use windlass::{JobId, NewJob, Payload, Policies, Timestamp};

    use super::*;

    fn node(number: u128, job_type: &str) -> Node {
        Node {
            id: JobId::from_uuid(uuid::Uuid::from_u128(number)),
            job_type: job_type.to_owned(),
            queue: "q".to_owned(),
            state: JobState::Completed,
            spawned_by: None,
            attempt: 1,
            created_at: Timestamp::EPOCH,
            scheduled_at: None,
            started_at: None,
            ended_at: None,
            folded: Vec::new(),
        }
    }

    /// A job that waits for a thousand others, as many as one may.
    fn gathering() -> JobRecord {
        let first: Vec<_> = (0..1000).map(|_| windlass::store::new_job_id()).collect();
        let job = NewJob::new("gather", Payload::json(&()).expect("JSON")).after(first);
        let spec = job.check(&Limits::default(), &Policies::default()).expect("valid");
        JobRecord::submitted(windlass::store::new_job_id(), Arc::new(spec), Timestamp::EPOCH)
    }

    #[test]
    fn h3_a_graph_with_too_many_edges_is_cut_and_says_so() {
        let mut graph = Graph { nodes: Vec::new(), edges: Vec::new(), truncated: false };
        let jobs = vec![gathering(); 60];
        draw_page(&mut graph, &jobs, true);
        assert_eq!((graph.nodes.len(), graph.edges.len(), graph.truncated), (60, 60_000, false));
        draw_page(&mut graph, &jobs, false);
        assert_eq!((graph.nodes.len(), graph.edges.len(), graph.truncated), (100, 100_000, true));
        let mut whole = Graph { nodes: Vec::new(), edges: Vec::new(), truncated: false };
        draw_page(&mut whole, &vec![gathering(); 100], false);
        assert!(!whole.truncated, "as many as there may be, and none is left out");
        draw_page(&mut whole, &[], true);
        assert!(whole.truncated, "more are to come, and there is no room");
    }

    #[test]
    fn like_siblings_are_folded_and_nothing_else() {
        // One splits into three alike and one that is not, and all of them are gathered.
        let nodes = vec![
            node(1, "split"),
            node(2, "part"),
            node(3, "part"),
            node(4, "part"),
            node(5, "odd"),
            node(6, "gather"),
        ];
        let edge =
            |from: usize, to: usize| Edge { from: nodes[from].id, to: nodes[to].id, kind: DependencyKind::AfterAll };
        let edges = (1..5).flat_map(|part| [edge(0, part), edge(part, 5)]).collect();
        let mut graph = Graph { nodes: nodes.clone(), edges, truncated: false };
        fold_siblings(&mut graph);
        let told: Vec<_> = graph.nodes.iter().map(|node| (node.job_type.as_str(), node.folded.len())).collect();
        assert_eq!(told, [("split", 0), ("part", 2), ("odd", 0), ("gather", 0)]);
        assert_eq!(graph.edges.len(), 4);
    }
}
