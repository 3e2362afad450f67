//! What happened to one job, in order: a pure function over its record, its attempts and the acts that name it.

use windlass::job::{ATTEMPTS_KEPT, AttemptRecord, Outcome, RunAt};
use windlass::store::{ActRecord, PAGE_MAX, Store};
use windlass::{Error, JobId, JobRecord, Result, State, Timestamp};

use crate::wire::{Failure, Happened, History};

/// How many pages of acts are looked at: all that a store keeps.
const ACT_PAGES: usize = 10;

/// Reads what happened to a job.
pub(crate) async fn read(store: &dyn Store, id: JobId) -> Result<History> {
    let job = store.find(&[id]).await?.pop().flatten().ok_or_else(|| Error::no_such_job(id))?;
    let attempts = store.attempts(id).await?;
    let (acts, all_acts) = acts_on(store, &job).await?;
    let complete = all_acts && attempts.len() < ATTEMPTS_KEPT;
    Ok(History { items: told(&job, &attempts, &acts), complete })
}

/// The acts that name a job, newest first, and whether all since its submission were looked at. A caller that may not see acts gets
/// none.
async fn acts_on(store: &dyn Store, job: &JobRecord) -> Result<(Vec<ActRecord>, bool)> {
    let (name, mut found, mut after) = (job.id.to_string(), Vec::new(), None);
    for _ in 0..ACT_PAGES {
        let page = match store.acts(after.as_ref(), PAGE_MAX).await {
            Ok(page) => page,
            Err(Error::Unauthorized(_)) => return Ok((found, false)),
            Err(error) => return Err(error),
        };
        let before = page.items.last().is_some_and(|act| act.at < job.created_at);
        found.extend(page.items.into_iter().filter(|act| act.target == name || act.target == format!("job {name}")));
        after = page.next;
        if before || after.is_none() {
            return Ok((found, true));
        }
    }
    Ok((found, false))
}

fn told(job: &JobRecord, attempts: &[AttemptRecord], acts: &[ActRecord]) -> Vec<Happened> {
    let mut items = vec![Happened::new(job.created_at, "submitted", first_state(job))];
    for attempt in attempts {
        started(job, attempt, &mut items);
    }
    items.extend(acts.iter().map(|act| Happened {
        by: act.by.clone(),
        reason: act.why.clone().filter(|why| !why.is_empty()),
        ..Happened::new(act.at, &act.act, None)
    }));
    let last_start = attempts.last().map_or(job.created_at, |attempt| attempt.started_at);
    if let Some(at) = job.scheduled_at.filter(|at| *at > job.created_at && (*at > last_start || attempts.is_empty())) {
        items.push(Happened::new(at, "ready", Some(State::Scheduled)));
    }
    if let Some(at) = job.completed_at
        && !attempts.iter().any(|attempt| attempt.ended_at == Some(at))
    {
        let reason = job.reason.as_ref();
        items.push(Happened {
            by: reason.and_then(|reason| reason.by.clone()),
            reason: reason.and_then(|reason| reason.message.clone()),
            failure: job.failure.as_ref().map(Failure::from),
            ..Happened::new(at, "ended", Some(job.state))
        });
    }
    // Stable: what has the same moment stays in the order in which it must have been.
    items.sort_by_key(|item| item.at);
    if let Some(last) = items.iter_mut().rev().find(|item| item.state.is_some()) {
        last.state = Some(job.state);
    }
    items
}

/// Where a job stood when it was submitted.
fn first_state(job: &JobRecord) -> Option<State> {
    let ahead = match job.spec.options.run_at {
        Some(RunAt::At(at)) => at > job.created_at,
        Some(RunAt::In(delay)) => !delay.is_zero(),
        None => false,
    };
    Some(match (job.spec.depends_on.is_empty(), ahead) {
        (false, _) => State::Pending,
        (true, true) => State::Delayed,
        (true, false) => State::Scheduled,
    })
}

fn started(job: &JobRecord, attempt: &AttemptRecord, items: &mut Vec<Happened>) {
    let about = |at: Timestamp, what: &str, state| Happened {
        attempt: Some(attempt.number),
        worker: Some(attempt.worker.to_string()),
        lease_version: Some(attempt.lease_version),
        ..Happened::new(at, what, state)
    };
    items.push(about(attempt.started_at, "started", Some(State::Running)));
    let Some((at, outcome)) = attempt.ended_at.zip(attempt.outcome) else { return };
    let state = match outcome {
        Outcome::Completed => Some(State::Completed),
        Outcome::Failed => Some(after_failure(job, attempt)),
        Outcome::DeadLettered => Some(State::DeadLetter),
        Outcome::Snoozed => Some(State::Delayed),
        Outcome::Cancelled => Some(State::Cancelled),
        Outcome::Released | Outcome::Interrupted | Outcome::Lost | Outcome::Revoked => Some(State::Scheduled),
        _ => None,
    };
    let failure = attempt.failure.as_ref().map(Failure::from);
    items.push(Happened { failure, ..about(at, outcome.as_str(), state) });
}

/// Where a failed attempt left its job, by the policy of the job.
fn after_failure(job: &JobRecord, attempt: &AttemptRecord) -> State {
    let policy = &job.spec.options.retry;
    match &attempt.failure {
        Some(failure) if !policy.retries(failure.category) => State::Failed,
        _ if attempt.number >= policy.max_attempts => State::DeadLetter,
        _ => State::Retrying,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use windlass::job::WorkerId;
    use windlass::store::{Act, ClaimRequest, MemoryStore};
    use windlass::{Client, Failure as Said, ManualClock, NewJob, Payload, QueueName};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_life_is_told_in_order_with_who_and_why() {
        let clock = ManualClock::default();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(clock.clone()));
        let client = Client::with_store(Arc::clone(&store));
        let job = NewJob::new("t", Payload::default()).delay(SECOND).max_attempts(2);
        let id = client.enqueue(job).await.expect("stored").id;
        for _ in 0..2 {
            clock.advance(3600 * SECOND);
            let worker = WorkerId::new("w").expect("a name");
            let request = ClaimRequest::new(worker, QueueName::default(), 1);
            let claimed = store.claim(&request).await.expect("claimed").remove(0);
            clock.advance(SECOND);
            let settlement = claimed.lease.fail(Said::temporary("it broke"), &mut || 0.5);
            store.settle(&[settlement]).await.expect("settled");
        }
        clock.advance(SECOND);
        client.act(Act::Requeue(Default::default())).by("ada").because("mended").on(id).await.expect("requeued");
        clock.advance(SECOND);
        client.act(Act::Cancel { force: false }).by("bob").because("no need").on(id).await.expect("cancelled");
        let history = read(&*store, id).await.expect("a history");
        let told: Vec<_> = history.items.iter().map(|item| (item.what.as_str(), item.state)).collect();
        let expected = [
            ("submitted", Some(State::Delayed)),
            ("started", Some(State::Running)),
            ("failed", Some(State::Retrying)),
            ("started", Some(State::Running)),
            ("failed", Some(State::DeadLetter)),
            ("requeue", None),
            ("ready", Some(State::Scheduled)),
            ("cancel", None),
            ("ended", Some(State::Cancelled)),
        ];
        assert_eq!(told, expected);
        assert!(history.complete);
        let requeue = &history.items[5];
        assert_eq!((requeue.by.as_deref(), requeue.reason.as_deref()), (Some("ada"), Some("mended")));
        assert_eq!(history.items[2].failure.as_ref().map(|failure| failure.message.as_str()), Some("it broke"));
        assert_eq!(history.items[1].worker.as_deref(), Some("w"));
        assert!(read(&*store, windlass::store::new_job_id()).await.is_err());
    }
}
