//! What failed, and whether it is one thing or many: groups of jobs by the fault that they died of, or are being tried with.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::job::Fingerprint;
use windlass::store::{Cursor, FAULTS_MAX, FaultQuery};
use windlass::{Error, JobType, QueueName};

use super::ApiState;
use super::error::Refusal;
use super::extract::Query;
use super::roles::{Role, needs};
use crate::wire::{ErrorGroup, ErrorPage};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(errors)))
}

/// Groups of failed jobs
///
/// Jobs in FAILED and DEAD_LETTER by what they died of, in the order of their fingerprints. Of each group the newest 1,000 jobs
/// are looked at: `count` is exact unless `capped`. With `state=retrying` the groups are of jobs that failed and will be tried
/// again, as far as they are among the 10,000 waiting jobs that are due soonest; `looked` says how many of them these groups hold.
#[utoipa::path(
    get,
    path = "/v1/errors",
    tag = "jobs",
    params(
        ("state" = Option<String>, Query, description = "`dead`, or `retrying`; `dead` unless said."),
        ("queue" = Option<String>, Query, description = "Only jobs in this queue."),
        ("type" = Option<String>, Query, description = "Only jobs of this type."),
        ("fingerprint" = Option<String>, Query, description = "Only this group."),
        ("limit" = Option<u32>, Query, description = "How many groups at most; 100 unless said.", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the last page."),
    ),
    responses((status = 200, description = "A page of groups.", body = ErrorPage))
)]
async fn errors(State(state): State<ApiState>, mut query: Query) -> Result<Json<ErrorPage>, Refusal> {
    let retrying = match query.text("state")?.as_deref() {
        None | Some("dead") => false,
        Some("retrying") => true,
        Some(_) => return Err(Error::invalid("state", "must be dead or retrying").into()),
    };
    let mut asked = FaultQuery {
        retrying,
        queue: query.text("queue")?.map(QueueName::new).transpose()?,
        job_type: query.text("type")?.map(JobType::new).transpose()?,
        limit: usize::try_from(query.number("limit", 1..=FAULTS_MAX as u64, FAULTS_MAX as u64)?).unwrap_or(FAULTS_MAX),
        after: query.cursor()?,
    };
    let only = query.text("fingerprint")?.map(|text| text.parse::<Fingerprint>()).transpose()?;
    query.done()?;
    if let Some(only) = only {
        // Groups come in the order of their fingerprints: it is the first after the one before.
        asked.limit = 1;
        asked.after = Fingerprint::from_number(only.number() - 1).map(|before| Cursor(before.to_string()));
    }
    let _turn = state.bounds.turn().await?;
    let mut page = state.store().faults(&asked).await?;
    if let Some(only) = only {
        page.items.retain(|group| group.fingerprint == only);
        page.next = None;
    }
    Ok(Json(ErrorPage {
        looked: retrying.then(|| page.items.iter().map(|group| group.count).sum()),
        capped: retrying && page.items.iter().any(|group| group.capped),
        items: page.items.iter().map(ErrorGroup::from).collect(),
        next_cursor: page.next.map(|cursor| cursor.0),
    }))
}
