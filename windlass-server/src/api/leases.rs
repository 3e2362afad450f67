//! A lease holder's calls: claim, extend, save, settle. The store fences each by its token.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::job::{LeaseKey, Settlement, TIMEOUT_MAX};
use windlass::store::{CALL_MAX, ClaimRequest, Claimed, Save as StoredSave, Settled as StoredSettled, Store, Wake};
use windlass::{Error, JobId};

use super::ApiState;
use super::bounded::{self, ANSWER_BYTES_MAX};
use super::error::Refusal;
use super::extract::{Body, check_count, check_duration};
use super::roles::{Role, needs};
use crate::wire::{
    Claim, ClaimAnswer, Extend, ExtendAnswer, Extended, Job, Save, Saved, Saves, SavesAnswer, Settle, SettleAnswer,
    Settled, Span,
};

/// Longest wait of a claim.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a waiting claim trusts hints before it looks for itself: a job that falls due sends none.
const POLL: Duration = Duration::from_millis(500);

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Work, routes!(claim)))
        .routes(needs(Role::Work, routes!(extend)))
        .routes(needs(Role::Work, routes!(save)))
        .routes(needs(Role::Work, routes!(saves)))
        .routes(needs(Role::Work, routes!(settle)))
}

/// Take runnable jobs under a lease
///
/// With `wait` the answer comes when there is a job or the time is over; `waited` says how long that was. Each job's
/// `lease` holds the token that every further call names. A caller that hangs up while it waits has claimed nothing. An
/// answer that holds 16 MiB of payloads and checkpoints is cut there and says so: no job is leased that is not in it.
#[utoipa::path(
    post,
    path = "/v1/claims",
    tag = "leases",
    request_body = Claim,
    responses((status = 200, description = "The claimed jobs; empty when there is none.", body = ClaimAnswer))
)]
async fn claim(State(state): State<ApiState>, Body(claim): Body<Claim>) -> Result<Response, Refusal> {
    let begun = tokio::time::Instant::now();
    let request = ClaimRequest::try_from(&claim)?;
    check_lease(claim.lease)?;
    let wait = claim.wait.unwrap_or_default().0;
    check_duration("wait", wait, WAIT_MAX)?;
    let mut wakes = state.store().wakes();
    let until = begun + wait;
    loop {
        // Taken before the claim, so that a lease that is counted from here never seems to last longer than it does.
        let waited = begun.elapsed();
        let granted = claim_for_caller(&state, request.clone()).await?;
        let now = tokio::time::Instant::now();
        if !granted.jobs.is_empty() || now >= until || state.stopping.is_cancelled() {
            return granted.answer(&state, waited).await;
        }
        tokio::select! {
            () = hint(&mut wakes, &request) => {}
            () = tokio::time::sleep_until((now + granted.again_in.map_or(POLL, |again_in| again_in.min(POLL))).min(until)) => {}
            () = state.stopping.cancelled() => {}
        }
    }
}

/// What a claim brought.
#[derive(Debug)]
struct Granted {
    jobs: Vec<Claimed>,
    /// After how long time alone will open a gate.
    again_in: Option<Duration>,
    /// Whether more was wanted than an answer holds.
    cut: bool,
}

impl Granted {
    async fn answer(mut self, state: &ApiState, waited: Duration) -> Result<Response, Refusal> {
        #[derive(Serialize)]
        struct Rest {
            waited: Span,
            #[serde(skip_serializing_if = "Option::is_none")]
            again_in: Option<Span>,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            cut: bool,
        }
        let sizes = self.jobs.iter().map(|claimed| bounded::bytes_of(&claimed.job));
        let room = state.bounds.room_for_claim(sizes).await;
        let room = match room {
            Ok((count, room)) => {
                let unanswered = self.jobs.split_off(count);
                self.cut |= !unanswered.is_empty();
                release(state.store().as_ref(), unanswered).await;
                room
            }
            Err(refusal) => {
                release(state.store().as_ref(), self.jobs).await;
                return Err(refusal);
            }
        };
        // Whole milliseconds, and none too many.
        let waited = Duration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        let rest = Rest { waited: waited.into(), again_in: self.again_in.map(Span::from), cut: self.cut };
        Ok(bounded::answer("jobs", self.jobs, |claimed| Some(Job::from(claimed)), &rest, room))
    }
}

/// Claims in a task of its own, which gives the jobs back if the caller has hung up meanwhile: otherwise each would
/// cost an attempt when its lease expires.
async fn claim_for_caller(state: &ApiState, request: ClaimRequest) -> Result<Granted, Error> {
    let store = Arc::clone(state.store());
    let step = state.bounds.claim_step.get(state.client().limits_in_force());
    let (answer, granted) = oneshot::channel();
    tokio::spawn(async move {
        let granted = claim_in_steps(store.as_ref(), request, step).await;
        if let Err(Ok(unwanted)) = answer.send(granted) {
            release(store.as_ref(), unwanted.jobs).await;
        }
    });
    let granted = granted.await.unwrap_or_else(|_| Err(Error::store("claim jobs", "the claim panicked")))?;
    state.bounds.claim_step.note(granted.jobs.iter().map(|claimed| bounded::bytes_of(&claimed.job)));
    Ok(granted)
}

/// Claims a few jobs at a time until there are enough, no more, or as many bytes as an answer holds.
async fn claim_in_steps(store: &dyn Store, mut request: ClaimRequest, step: usize) -> Result<Granted, Error> {
    let wanted = request.limit;
    let mut granted = Granted { jobs: Vec::new(), again_in: None, cut: false };
    let mut bytes = 0;
    loop {
        request.limit = step.min(wanted - granted.jobs.len());
        let claimed = match store.claim(&request).await {
            Ok(claimed) => claimed,
            Err(error) if granted.jobs.is_empty() => return Err(error),
            Err(error) => {
                // What is leased by now must be answered.
                tracing::warn!(error = %error, "a claim is cut short");
                return Ok(Granted { cut: true, ..granted });
            }
        };
        let all = claimed.len() < request.limit;
        bytes += claimed.iter().map(|claimed| bounded::bytes_of(&claimed.job)).sum::<usize>();
        granted.again_in = claimed.again_in;
        for one in claimed.iter() {
            let queue = request.queues.iter_mut().find(|(queue, max)| *queue == one.job.spec.queue && *max > 0);
            queue.into_iter().for_each(|(_, max)| *max -= 1);
        }
        request.queues.retain(|(_, max)| *max > 0);
        granted.jobs.extend(claimed);
        if all || granted.jobs.len() >= wanted || request.queues.is_empty() {
            return Ok(granted);
        }
        if bytes >= ANSWER_BYTES_MAX {
            return Ok(Granted { cut: true, ..granted });
        }
    }
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
    let mut reports = Vec::with_capacity(settle.settlements.len());
    // An entry that says nothing sensible keeps its place in the answer.
    let mut refused = Vec::with_capacity(settle.settlements.len());
    for settlement in settle.settlements {
        let id = settlement.id;
        match settlement.report(state.client()) {
            Ok(report) => {
                reports.push(report);
                refused.push((id, None));
            }
            Err(error) => refused.push((id, Some(StoredSettled::Refused(error)))),
        }
    }
    let mut settled = state.client().settle(reports).await?.into_iter();
    let answer = |(id, refused): (JobId, Option<StoredSettled>)| {
        let said = refused.or_else(|| settled.next()).expect("a store answers for each settlement");
        Settled::of(id, &said)
    };
    Ok(Json(SettleAnswer { settled: refused.into_iter().map(answer).collect() }))
}
