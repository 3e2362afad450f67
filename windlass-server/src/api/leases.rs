//! A lease holder's calls: claim, extend, save, settle. The store fences each by its token.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{CALL_MAX, ClaimRequest, Claimed, Save as StoredSave, Settled as StoredSettled, Store, Wake};
use windlass::{
    Error, JobId, JobOptions, JobRecord, JobSpec, JobType, Lease, LeaseKey, Payload, Priority, QueueName, Settlement,
    TIMEOUT_MAX, Timestamp,
};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Body, check_count, check_duration};
use crate::wire::{
    Claim, ClaimAnswer, Extend, ExtendAnswer, Extended, Job, Save, Saved, Saves, SavesAnswer, Settle, SettleAnswer,
    SettleOutcome, Settled, Span,
};

/// Longest wait of a claim.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a waiting claim trusts hints before it looks for itself: a job that falls due sends none.
const POLL: Duration = Duration::from_millis(500);

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(claim))
        .routes(routes!(extend))
        .routes(routes!(save))
        .routes(routes!(saves))
        .routes(routes!(settle))
}

/// Take runnable jobs under a lease
///
/// With `wait` the answer comes when there is a job or the time is over. Each job's `lease` holds the token that every
/// further call names. A caller that hangs up while it waits has claimed nothing.
#[utoipa::path(
    post,
    path = "/v1/claims",
    tag = "leases",
    request_body = Claim,
    responses((status = 200, description = "The claimed jobs; empty when there is none.", body = ClaimAnswer))
)]
async fn claim(State(state): State<ApiState>, Body(claim): Body<Claim>) -> Result<Json<ClaimAnswer>, Refusal> {
    let request = ClaimRequest::try_from(&claim)?;
    check_lease(claim.lease)?;
    let wait = claim.wait.unwrap_or_default().0;
    check_duration("wait", wait, WAIT_MAX)?;
    let mut wakes = state.store().wakes();
    let until = tokio::time::Instant::now() + wait;
    loop {
        let claimed = claim_for_caller(&state, request.clone()).await?;
        let now = tokio::time::Instant::now();
        if !claimed.is_empty() || now >= until || state.stopping.is_cancelled() {
            return Ok(Json(ClaimAnswer { jobs: claimed.iter().map(Job::from).collect() }));
        }
        tokio::select! {
            () = hint(&mut wakes, &request) => {}
            () = tokio::time::sleep_until((now + POLL).min(until)) => {}
            () = state.stopping.cancelled() => {}
        }
    }
}

/// Claims in a task of its own, which gives the jobs back if the caller has hung up meanwhile: otherwise each would
/// cost an attempt when its lease expires.
async fn claim_for_caller(state: &ApiState, request: ClaimRequest) -> Result<Vec<Claimed>, Error> {
    let store = Arc::clone(state.store());
    let (answer, claimed) = oneshot::channel();
    tokio::spawn(async move {
        let claimed = store.claim(&request).await;
        if let Err(Ok(unwanted)) = answer.send(claimed) {
            release(store.as_ref(), unwanted).await;
        }
    });
    claimed.await.unwrap_or_else(|_| Err(Error::store("claim jobs", "the claim panicked")))
}

async fn release(store: &dyn Store, claimed: Vec<Claimed>) {
    if claimed.is_empty() {
        return;
    }
    let settlements: Vec<Settlement> = claimed.into_iter().map(|claimed| claimed.lease.release()).collect();
    if let Err(error) = store.settle(&settlements).await {
        tracing::warn!(error = %error, "jobs that a caller left behind wait for their leases to expire");
    }
}

/// Waits for a hint that one of the queues may have a job.
async fn hint(wakes: &mut Receiver<Wake>, request: &ClaimRequest) {
    loop {
        match wakes.recv().await {
            Ok(Wake::Scheduled(queue)) if request.queues.iter().any(|(wanted, _)| *wanted == queue) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn check_lease(lease: Option<Span>) -> Result<(), Error> {
    match lease {
        Some(Span(time)) if time.is_zero() || time > TIMEOUT_MAX => {
            Err(Error::invalid("lease", "must be more than zero and at most ten years"))
        }
        _ => Ok(()),
    }
}

/// Heartbeats for many leases
///
/// Each answer says whether the lease holds, for how long, and whether somebody asked the job to stop.
#[utoipa::path(
    post,
    path = "/v1/leases/extend",
    tag = "leases",
    request_body = Extend,
    responses((status = 200, description = "One answer for each lease, in order.", body = ExtendAnswer))
)]
async fn extend(State(state): State<ApiState>, Body(extend): Body<Extend>) -> Result<Json<ExtendAnswer>, Refusal> {
    check_count("leases", extend.leases.len(), CALL_MAX)?;
    check_lease(extend.lease)?;
    let keys: Vec<LeaseKey> = extend.leases.iter().map(|lease| LeaseKey::from(*lease)).collect();
    let answers = state.store().extend(&keys, extend.lease.map(|span| span.0)).await?;
    let leases = keys.iter().zip(&answers).map(|(key, answer)| Extended::of(key.job, answer)).collect();
    Ok(Json(ExtendAnswer { leases }))
}

/// Keep a checkpoint, progress or log lines of a running attempt
#[utoipa::path(
    post,
    path = "/v1/leases/save",
    tag = "leases",
    request_body = Save,
    responses((status = 204, description = "It was saved."))
)]
async fn save(State(state): State<ApiState>, Body(save): Body<Save>) -> Result<StatusCode, Refusal> {
    let job = save.id;
    let saved = state.store().save(&[StoredSave::try_from(save)?]).await?;
    match saved.into_iter().next() {
        Some(Err(stale)) => Err(Error::StaleLease { job, stale }.into()),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

/// Keep something of several running attempts
#[utoipa::path(
    post,
    path = "/v1/leases/saves",
    tag = "leases",
    request_body = Saves,
    responses((status = 200, description = "One answer for each save, in order.", body = SavesAnswer))
)]
async fn saves(State(state): State<ApiState>, Body(saves): Body<Saves>) -> Result<Json<SavesAnswer>, Refusal> {
    check_count("saves", saves.saves.len(), CALL_MAX)?;
    let stored: Result<Vec<StoredSave>, Error> = saves.saves.into_iter().map(StoredSave::try_from).collect();
    let stored = stored?;
    let answers = state.store().save(&stored).await?;
    let saved = stored.iter().zip(answers).map(|(save, answer)| Saved { id: save.key().job, stale: answer.err() });
    Ok(Json(SavesAnswer { saved: saved.collect() }))
}

/// End attempts
///
/// Each settlement is applied, already applied, stale, or refused; one bad entry does not fail the others. The same
/// settlement may be sent again when its answer was lost.
#[utoipa::path(
    post,
    path = "/v1/leases/settle",
    tag = "leases",
    request_body = Settle,
    responses((status = 200, description = "One answer for each settlement, in order.", body = SettleAnswer))
)]
async fn settle(State(state): State<ApiState>, Body(settle): Body<Settle>) -> Result<Json<SettleAnswer>, Refusal> {
    check_count("settlements", settle.settlements.len(), CALL_MAX)?;
    let records = records(&state, &settle).await?;
    let mut decided = Vec::with_capacity(settle.settlements.len());
    // An entry that cannot be decided keeps its place in the answer and is not sent to the store.
    let mut answers: Vec<(JobId, Option<StoredSettled>)> = Vec::with_capacity(settle.settlements.len());
    for (settlement, record) in settle.settlements.into_iter().zip(records) {
        let id = settlement.id;
        let lease = Lease::granted(&record, settlement.token);
        match settlement.decide(lease, state.client(), &mut random) {
            Ok(settlement) => {
                decided.push(settlement);
                answers.push((id, None));
            }
            Err(error) => answers.push((id, Some(StoredSettled::Refused(error)))),
        }
    }
    let mut settled = if decided.is_empty() { Vec::new() } else { state.store().settle(&decided).await? }.into_iter();
    let answer = |(id, refused): (JobId, Option<StoredSettled>)| {
        let said = refused.or_else(|| settled.next()).expect("a store answers for each settlement");
        Settled::of(id, &said)
    };
    Ok(Json(SettleAnswer { settled: answers.into_iter().map(answer).collect() }))
}

/// The jobs whose policy decides what a settlement means; a stand-in for all others, which spares reading them.
async fn records(state: &ApiState, settle: &Settle) -> Result<Vec<JobRecord>, Error> {
    let needs = |outcome| matches!(outcome, SettleOutcome::Failed | SettleOutcome::Interrupted);
    let needed: Vec<JobId> =
        settle.settlements.iter().filter(|one| needs(one.outcome)).map(|settlement| settlement.id).collect();
    let mut found = if needed.is_empty() { Vec::new() } else { state.store().find(&needed).await? }.into_iter();
    let mut record = |one: &crate::wire::Settlement| {
        let known = if needs(one.outcome) { found.next().flatten() } else { None };
        known.unwrap_or_else(|| JobRecord::submitted(one.id, Arc::clone(&STAND_IN), Timestamp::EPOCH))
    };
    Ok(settle.settlements.iter().map(&mut record).collect())
}

/// What a job that is not looked up, or is gone, is taken for: the store decides whether the lease holds.
static STAND_IN: LazyLock<Arc<JobSpec>> = LazyLock::new(|| {
    Arc::new(JobSpec::from_stored(
        JobType::new("windlass.unknown").expect("the name is plain"),
        QueueName::default(),
        Payload::default(),
        Priority::Normal,
        Vec::new(),
        JobOptions::default(),
    ))
});

/// A number from 0 up to, not including, 1: the 53 random bits that a UUID ends with.
fn random() -> f64 {
    const BITS: u32 = 53;
    let bits = uuid::Uuid::new_v4().as_u128() & ((1 << BITS) - 1);
    bits as f64 / (1_u64 << BITS) as f64
}
