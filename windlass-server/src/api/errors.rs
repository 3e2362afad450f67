//! What failed, and whether it is one thing or many: groups of jobs by the fault that they died of, or are being tried with.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{FAULTS_MAX, FaultGroup, FaultQuery, Filter, ListQuery, Order, PAGE_MAX};
use windlass::{Error, JobRecord, JobType, QueueName, State as JobState};

use super::ApiState;
use super::bounded;
use super::error::Refusal;
use super::extract::Query;
use super::roles::{Role, needs};
use crate::wire::{ErrorGroup, ErrorPage};

/// How many RETRYING jobs are grouped as they are read: there is no index of what they failed with.
const RETRYING_MAX: usize = 10_000;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(errors)))
}

/// Groups of failed jobs
///
/// Jobs in FAILED and DEAD_LETTER by what they died of, in the order of their fingerprints. Of each group the newest 1,000 jobs
/// are looked at: `count` is exact unless `capped`. With `state=retrying` the groups are of jobs that failed and will be tried
/// again, of which at most 10,000 are looked at; `looked` says how many were.
#[utoipa::path(
    get,
    path = "/v1/errors",
    tag = "jobs",
    params(
        ("state" = Option<String>, Query, description = "`dead`, or `retrying`; `dead` unless said."),
        ("queue" = Option<String>, Query, description = "Only jobs in this queue."),
        ("type" = Option<String>, Query, description = "Only jobs of this type."),
        ("limit" = Option<u32>, Query, description = "How many groups at most; 100 unless said.", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the last page."),
    ),
    responses((status = 200, description = "A page of groups.", body = ErrorPage))
)]
async fn errors(State(state): State<ApiState>, mut query: Query) -> Result<Json<ErrorPage>, Refusal> {
    let of = query.text("state")?;
    let asked = FaultQuery {
        queue: query.text("queue")?.map(QueueName::new).transpose()?,
        job_type: query.text("type")?.map(JobType::new).transpose()?,
        limit: usize::try_from(query.number("limit", 1..=FAULTS_MAX as u64, FAULTS_MAX as u64)?).unwrap_or(FAULTS_MAX),
        after: query.cursor()?,
    };
    query.done()?;
    match of.as_deref() {
        None | Some("dead") => {
            let _turn = state.bounds.turn().await?;
            let page = state.store().faults(&asked).await?;
            let items = page.items.iter().map(ErrorGroup::from).collect();
            let next_cursor = page.next.map(|cursor| cursor.0);
            Ok(Json(ErrorPage { items, next_cursor, looked: None, capped: false }))
        }
        Some("retrying") => Ok(Json(retrying(&state, &asked).await?)),
        Some(_) => Err(Error::invalid("state", "must be dead or retrying").into()),
    }
}

/// Groups of RETRYING jobs, the soonest to be tried first.
async fn retrying(state: &ApiState, asked: &FaultQuery) -> Result<ErrorPage, Refusal> {
    let mut filter = Filter::new().states([JobState::Retrying]);
    (filter.queue, filter.job_type) = (asked.queue.clone(), asked.job_type.clone());
    let mut jobs: Vec<JobRecord> = Vec::new();
    let (mut after, mut looked) = (None, 0);
    loop {
        let query = ListQuery { filter: filter.clone(), limit: PAGE_MAX, after, order: Order::Due };
        let page = bounded::page(state, query).await?;
        looked += page.items.len();
        // The store has looked at as many jobs as a call may, most of which only wait for their moment: enough for one answer.
        let stopped = page.items.len() < PAGE_MAX;
        // A group needs the failure, not the data.
        jobs.extend(page.items.into_iter().map(bounded::without_data));
        after = page.next;
        if after.is_none() || stopped || jobs.len() >= RETRYING_MAX {
            break;
        }
    }
    let failed = jobs.iter().filter_map(|job| {
        let failure = job.failure.as_ref()?;
        Some((failure.fingerprint(&job.spec.job_type), failure.at, job))
    });
    let page = FaultGroup::page(failed, asked, state.store().now().await?)?;
    Ok(ErrorPage {
        items: page.items.iter().map(ErrorGroup::from).collect(),
        next_cursor: page.next.map(|cursor| cursor.0),
        looked: Some(looked as u64),
        capped: after.is_some(),
    })
}
