//! A workflow drawn: as a list in order, for Graphviz, or for Mermaid.

use std::collections::HashMap;

use clap::ValueEnum;
use windlass::job::JobRecord;
use windlass::job::{DependencyKind, DependsOn};
use windlass::store::{Filter, PAGE_MAX};
use windlass::{JobId, State, WorkflowId};

use crate::cli::connect::Session;
use crate::cli::detail::kind;
use crate::cli::output::say;
use crate::cli::rows::workflow_state;
use crate::cli::table::{self, Cell, clean};
use crate::figures::number;
use crate::wire;

/// Most jobs that are drawn; more than one enqueue can hold, and nobody reads further.
const DRAWN_MAX: usize = 10_000;

/// The form of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Form {
    /// A numbered list, in an order that the edges allow
    #[default]
    List,
    /// For Graphviz
    Dot,
    /// For Mermaid
    Mermaid,
}

/// An edge between places of the list: which job waits for which, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edge {
    from: usize,
    to: usize,
    kind: DependencyKind,
}

pub(super) async fn run(session: &Session, id: WorkflowId, form: Form) -> anyhow::Result<()> {
    let workflow = session.client.workflow(id).await?;
    let (jobs, truncated) = jobs_of(session, id).await?;
    let jobs = in_order(jobs);
    let edges = edges(&jobs);
    if !session.out.is_table() {
        return session.out.json(&wire_graph(&jobs, &edges, truncated));
    }
    match form {
        Form::List => {
            let state = workflow_state(workflow.state());
            session.out.line(format!("{}  {state}  {id}", clean(&workflow.name)))?;
            for line in list(&jobs, &edges) {
                session.out.line(line)?;
            }
        }
        Form::Dot => session.out.line(dot(&workflow.name, &jobs, &edges))?,
        Form::Mermaid => session.out.line(mermaid(&jobs, &edges))?,
    }
    if workflow.pruned > 0 {
        say(format!("{} of its jobs have been pruned and are not shown", number(workflow.pruned)));
    }
    Ok(())
}

async fn jobs_of(session: &Session, id: WorkflowId) -> anyhow::Result<(Vec<JobRecord>, bool)> {
    let filter = Filter::new().workflow(id);
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let page = session.client.list(filter.clone(), PAGE_MAX, after).await?;
        jobs.extend(page.items);
        after = page.next;
        if after.is_none() || jobs.len() >= DRAWN_MAX {
            break;
        }
    }
    if after.is_some() {
        say(format!("only the newest {} jobs are shown", number(jobs.len() as u64)));
    }
    // Newest first, as listed; the oldest stand first in a graph.
    jobs.reverse();
    Ok((jobs, after.is_some()))
}

/// What a job waits for inside the workflow.
fn waits_for<'a>(
    job: &'a JobRecord,
    places: &'a HashMap<JobId, usize>,
) -> impl Iterator<Item = (usize, DependencyKind)> + 'a {
    job.spec.depends_on.iter().filter_map(|dependency| match dependency.on {
        DependsOn::Job(id) => places.get(&id).map(|place| (*place, dependency.kind)),
        DependsOn::Batch(_) => None,
    })
}

/// The jobs with dependencies before dependents; among equals as they were submitted.
fn in_order(jobs: Vec<JobRecord>) -> Vec<JobRecord> {
    let places: HashMap<JobId, usize> = jobs.iter().enumerate().map(|(place, job)| (job.id, place)).collect();
    let mut open: Vec<usize> = jobs.iter().map(|job| waits_for(job, &places).count()).collect();
    let mut dependents = vec![Vec::new(); jobs.len()];
    for (place, job) in jobs.iter().enumerate() {
        waits_for(job, &places).for_each(|(on, _)| dependents[on].push(place));
    }
    let mut ready: std::collections::BTreeSet<usize> = (0..jobs.len()).filter(|place| open[*place] == 0).collect();
    let mut order = Vec::with_capacity(jobs.len());
    while let Some(place) = ready.pop_first() {
        order.push(place);
        for dependent in &dependents[place] {
            open[*dependent] -= 1;
            if open[*dependent] == 0 {
                ready.insert(*dependent);
            }
        }
    }
    let mut jobs: Vec<Option<JobRecord>> = jobs.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| jobs[place].take()).collect()
}

fn edges(jobs: &[JobRecord]) -> Vec<Edge> {
    let places: HashMap<JobId, usize> = jobs.iter().enumerate().map(|(place, job)| (job.id, place)).collect();
    let of = |(to, job)| waits_for(job, &places).map(move |(from, kind)| Edge { from, to, kind }).collect::<Vec<_>>();
    jobs.iter().enumerate().flat_map(of).collect()
}

fn wire_graph(jobs: &[JobRecord], edges: &[Edge], truncated: bool) -> wire::Graph {
    let node = |job: &JobRecord| wire::Node {
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
    };
    let edge = |edge: &Edge| wire::Edge { from: jobs[edge.from].id, to: jobs[edge.to].id, kind: edge.kind };
    wire::Graph { nodes: jobs.iter().map(node).collect(), edges: edges.iter().map(edge).collect(), truncated }
}

fn list(jobs: &[JobRecord], edges: &[Edge]) -> Vec<String> {
    let row = |(place, job): (usize, &JobRecord)| {
        let mut waits: Vec<String> = Vec::new();
        for edge in edges.iter().filter(|edge| edge.to == place) {
            waits.push(format!("{} {}", kind(edge.kind), edge.from + 1));
        }
        vec![
            Cell::new((place + 1).to_string()),
            Cell::state(job.state),
            Cell::new(job.id.to_string()),
            Cell::new(job.spec.job_type.as_str()),
            Cell::new(waits.join(", ")),
        ]
    };
    let rows: Vec<_> = jobs.iter().enumerate().map(row).collect();
    table::lines(&["#", "STATE", "ID", "TYPE", "WAITS"], &rows, true)
}

fn colour(state: State) -> &'static str {
    match state {
        State::Completed => "palegreen",
        State::Failed | State::DeadLetter => "salmon",
        State::Running => "lightskyblue",
        State::Retrying => "khaki",
        State::Pending | State::Delayed | State::Scheduled | State::Cancelled => "gainsboro",
    }
}

fn dot(name: &str, jobs: &[JobRecord], edges: &[Edge]) -> String {
    let title = clean(name).replace(['"', '\\'], "'");
    let mut text = format!("digraph \"{title}\" {{\n  node [shape=box, style=filled];\n");
    for (place, job) in jobs.iter().enumerate() {
        let (job_type, state) = (&job.spec.job_type, job.state);
        text.push_str(&format!("  n{place} [label=\"{job_type}\\n{state}\", fillcolor={}];\n", colour(state)));
    }
    for Edge { from, to, kind: how } in edges {
        text.push_str(&format!("  n{from} -> n{to} [label=\"{}\"];\n", kind(*how)));
    }
    text.push('}');
    text
}

fn mermaid(jobs: &[JobRecord], edges: &[Edge]) -> String {
    let mut text = "flowchart TD".to_owned();
    for (place, job) in jobs.iter().enumerate() {
        text.push_str(&format!("\n  n{place}[\"{} {}\"]", job.spec.job_type, job.state));
    }
    for Edge { from, to, kind: how } in edges {
        text.push_str(&format!("\n  n{from} -->|{}| n{to}", kind(*how)));
    }
    text
}
