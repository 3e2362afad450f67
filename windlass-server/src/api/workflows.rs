//! Workflows: look at them, cancel them, send their dead jobs back.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::job::{BATCH_MAX, DependsOn, RequeueOptions};
use windlass::store::{Act, CALL_MAX, Filter, ListQuery, PAGE_MAX};
use windlass::{JobRecord, State as JobState, WorkflowId};

use super::ApiState;
use super::acting::{Acting, ByParams};
use super::bounded::{self, Shown};
use super::error::Refusal;
use super::extract::{Body, Caller, Id, MaybeBody, Query, check_count};
use super::jobs::PageParams;
use super::roles::{Role, needs};
use crate::wire::{Changed, Edge, FoundWorkflows, Graph, JobPage, Node, Why, Workflow, WorkflowIds, WorkflowPage};

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
#[utoipa::path(
    get,
    path = "/v1/workflows",
    tag = "workflows",
    params(PageParams),
    responses((status = 200, description = "A page of workflows.", body = WorkflowPage))
)]
async fn list(State(state): State<ApiState>, mut query: Query) -> Result<Json<WorkflowPage>, Refusal> {
    let (limit, cursor) = (query.limit()?, query.cursor()?);
    query.done()?;
    let page = state.store().workflows(cursor.as_ref(), limit).await?;
    let items = page.items.iter().map(Into::into).collect();
    Ok(Json(WorkflowPage { items, next_cursor: page.next.map(|cursor| cursor.0) }))
}

/// Get workflows by id
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
    let found = state.store().find_workflows(&asked.ids).await?;
    Ok(Json(FoundWorkflows { items: found.iter().map(|found| found.as_ref().map(Workflow::from)).collect() }))
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
    let filter = Filter { workflow: Some(id), ..Filter::default() };
    let asked = ListQuery { filter, limit: query.limit()?, after: query.cursor()? };
    query.done()?;
    state.client().workflow(id).await?;
    let page = bounded::page(&state, asked).await?;
    bounded::page_answer(&state, Shown::to(&caller), page).await
}

/// The jobs of a workflow and what waits for what
///
/// At most the newest 10,000 jobs, as many as one workflow may begin with.
#[utoipa::path(
    get,
    path = "/v1/workflows/{id}/graph",
    tag = "workflows",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, description = "The graph.", body = Graph))
)]
async fn graph(State(state): State<ApiState>, Id(id): Id<WorkflowId>) -> Result<Json<Graph>, Refusal> {
    state.client().workflow(id).await?;
    let filter = Filter { workflow: Some(id), ..Filter::default() };
    let mut graph = Graph { nodes: Vec::new(), edges: Vec::new(), truncated: false };
    let mut after = None;
    loop {
        let page = bounded::page(&state, ListQuery { filter: filter.clone(), limit: PAGE_MAX, after }).await?;
        page.items.iter().for_each(|job| draw(&mut graph, job));
        after = page.next;
        graph.truncated = after.is_some() && graph.nodes.len() >= BATCH_MAX;
        if after.is_none() || graph.truncated {
            graph.nodes.reverse();
            return Ok(Json(graph));
        }
    }
}

fn draw(graph: &mut Graph, job: &JobRecord) {
    graph.nodes.push(Node {
        id: job.id,
        job_type: job.spec.job_type.to_string(),
        queue: job.spec.queue.to_string(),
        state: job.state,
        spawned_by: job.spawned_by,
    });
    for dependency in &job.spec.depends_on {
        if let DependsOn::Job(from) = dependency.on {
            graph.edges.push(Edge { from, to: job.id, kind: dependency.kind });
        }
    }
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
    let filter = Filter { workflow: Some(id), states, ..Filter::default() };
    acting.on_all(filter, act, why.reason).await
}
