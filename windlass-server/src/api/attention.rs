//! What needs somebody: a pure function over what the store says now and what it said in the last minutes.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::Timestamp;
use windlass::schedule::ScheduleRecord;
use windlass::store::{PAGE_MAX, QueueRecord, WorkerRecord};

use super::ApiState;
use super::error::Refusal;
use super::extract::Query;
use super::me::About;
use super::roles::{Role, needs};
use super::series::{Reading, ready};

/// How long ready jobs may stand without a worker: a worker that restarts is back by then.
const UNSERVED_AFTER: Duration = Duration::from_secs(30);
/// How long a job may be ready before it is looked at whether the queue falls behind.
const SLOW_AFTER: Duration = Duration::from_secs(60);
/// Over which time a backlog must have grown.
const GROWS_OVER: Duration = Duration::from_secs(300);
/// How late a schedule may be: upkeep goes on about once a second, and a restart takes a while.
const LATE_AFTER: Duration = Duration::from_secs(60);
/// The queue of the webhooks.
const WEBHOOKS: &str = "windlass.webhooks";

/// How much it presses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Severity {
    /// Jobs do not run.
    Bad,
    /// Jobs run later than they might, or somebody wanted it so.
    Warning,
}

/// What it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AttentionKind {
    NoWorker,
    FallingBehind,
    PausedWithWork,
    Late,
    Unsent,
}

/// Something that needs somebody.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct AttentionItem {
    kind: AttentionKind,
    severity: Severity,
    /// For people.
    text: String,
    /// The queue that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// The schedule that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    /// Since when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
}

/// What needs somebody, worst first.
#[derive(Debug, Serialize, ToSchema)]
struct Attention {
    items: Vec<AttentionItem>,
}

/// What is looked at.
struct Seen {
    now: Timestamp,
    queues: Vec<QueueRecord>,
    workers: Vec<WorkerRecord>,
    schedules: Vec<ScheduleRecord>,
    readings: Vec<Reading>,
    sends_webhooks: bool,
}

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(attention)))
}

/// What needs somebody
///
/// Ready jobs that nobody serves, queues that fall behind, paused queues with work in them, schedules that are late,
/// webhooks that nobody sends. Worst first; none is good.
#[utoipa::path(
    get,
    path = "/v1/attention",
    tag = "store",
    responses((status = 200, description = "Worst first; none is good.", body = Attention))
)]
async fn attention(
    State(state): State<ApiState>,
    about: Option<Extension<std::sync::Arc<About>>>,
    query: Query,
) -> Result<Json<Attention>, Refusal> {
    query.done()?;
    let store = state.store();
    let now = store.now().await?;
    let seen = Seen {
        now,
        queues: store.queues().await?,
        workers: store.workers().await?,
        schedules: store.schedules(None, PAGE_MAX).await?,
        readings: state.recorder.since(now.minus(GROWS_OVER)),
        sends_webhooks: about.is_none_or(|Extension(about)| about.webhooks),
    };
    Ok(Json(Attention { items: found_in(&seen) }))
}

fn found_in(seen: &Seen) -> Vec<AttentionItem> {
    let mut items: Vec<_> = seen.queues.iter().filter_map(|queue| of_queue(seen, queue)).collect();
    items.extend(seen.schedules.iter().filter_map(|schedule| of_schedule(seen, schedule)));
    items.sort_by_key(|item| item.severity);
    items
}

fn of_queue(seen: &Seen, queue: &QueueRecord) -> Option<AttentionItem> {
    let count = ready(queue);
    let since = queue.oldest_scheduled;
    if count == 0 {
        return None;
    }
    let name = queue.name.as_str();
    let jobs = if count == 1 { "1 job is".to_owned() } else { format!("{count} jobs are") };
    let item = |kind, severity, text: String| {
        Some(AttentionItem { kind, severity, text, queue: Some(name.to_owned()), schedule: None, since })
    };
    if queue.paused {
        let text = format!("{jobs} ready in {name}, which is paused");
        return item(AttentionKind::PausedWithWork, Severity::Warning, text);
    }
    let waited = since.map_or(Duration::ZERO, |since| seen.now.since(since));
    let serves =
        |worker: &WorkerRecord| worker.queues.iter().any(|served| served.queue == queue.name && served.slots > 0);
    if waited >= UNSERVED_AFTER && !seen.workers.iter().any(serves) {
        if name == WEBHOOKS && !seen.sends_webhooks {
            let text = format!("{jobs} waiting to be sent as webhooks, and there is no secret to sign them with");
            return item(AttentionKind::Unsent, Severity::Bad, text);
        }
        return item(
            AttentionKind::NoWorker,
            Severity::Bad,
            format!("{jobs} ready in {name}, and no worker serves it"),
        );
    }
    if waited >= SLOW_AFTER && grew(seen, name, count) {
        return item(
            AttentionKind::FallingBehind,
            Severity::Warning,
            format!("{name} falls behind: {jobs} ready, and ever more"),
        );
    }
    None
}

/// Whether a queue's backlog is larger than it was at the beginning of the time that is looked at, by at least a tenth.
fn grew(seen: &Seen, name: &str, count: u64) -> bool {
    let Some(first) = seen.readings.first() else { return false };
    let was = first.ready.iter().find(|(queue, _)| queue == name).map_or(0, |(_, ready)| *ready);
    count > was + was / 10 && seen.now.since(first.at) >= GROWS_OVER / 2
}

fn of_schedule(seen: &Seen, schedule: &ScheduleRecord) -> Option<AttentionItem> {
    let due = schedule.next_at?;
    if schedule.paused || seen.now.since(due) < LATE_AFTER || due >= seen.now {
        return None;
    }
    let name = &schedule.spec.name;
    Some(AttentionItem {
        kind: AttentionKind::Late,
        severity: Severity::Bad,
        text: format!("{name} should have fired and has not"),
        queue: None,
        schedule: Some(name.clone()),
        since: Some(due),
    })
}

#[cfg(test)]
mod tests {
    use windlass::job::{Limits, WorkerId};
    use windlass::schedule::ScheduleSpec;
    use windlass::store::{ServedQueue, Totals};
    use windlass::{NewJob, Payload, Policies, QueueName, State as JobState};

    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_000_000);

    fn seen() -> Seen {
        Seen {
            now: NOW,
            queues: Vec::new(),
            workers: Vec::new(),
            schedules: Vec::new(),
            readings: Vec::new(),
            sends_webhooks: false,
        }
    }

    fn queue(name: &str, count: u64, waited: u64) -> QueueRecord {
        let mut states = [0; 9];
        states[JobState::Scheduled as usize] = count;
        QueueRecord {
            name: QueueName::new(name).expect("a name"),
            paused: false,
            states,
            oldest_scheduled: (count > 0).then(|| NOW.minus(Duration::from_secs(waited))),
        }
    }

    fn worker(name: &str) -> WorkerRecord {
        WorkerRecord {
            id: WorkerId::new("host/1").expect("an id"),
            host: "host".to_owned(),
            queues: vec![ServedQueue { queue: QueueName::new(name).expect("a name"), slots: 1, busy: 0 }],
            types: None,
            started_at: NOW,
            seen_at: NOW,
        }
    }

    fn kinds(seen: &Seen) -> Vec<AttentionKind> {
        found_in(seen).iter().map(|item| item.kind).collect()
    }

    #[test]
    fn ready_jobs_without_a_worker_need_one_after_a_while() {
        let mut seen = Seen { queues: vec![queue("mail", 3, 31)], ..seen() };
        assert_eq!(kinds(&seen), [AttentionKind::NoWorker]);
        assert_eq!(found_in(&seen)[0].text, "3 jobs are ready in mail, and no worker serves it");
        seen.workers = vec![worker("other")];
        assert_eq!(kinds(&seen), [AttentionKind::NoWorker]);
        seen.workers = vec![worker("mail")];
        assert_eq!(kinds(&seen), []);
        let fresh = Seen { queues: vec![queue("mail", 3, 29)], ..self::seen() };
        assert_eq!(kinds(&fresh), []);
        assert_eq!(kinds(&Seen { queues: vec![queue("mail", 0, 0)], ..self::seen() }), []);
    }

    #[test]
    fn a_paused_queue_with_work_is_told_as_such() {
        let paused = QueueRecord { paused: true, ..queue("mail", 1, 500) };
        assert_eq!(kinds(&Seen { queues: vec![paused], ..seen() }), [AttentionKind::PausedWithWork]);
        let idle = QueueRecord { paused: true, ..queue("mail", 0, 0) };
        assert_eq!(kinds(&Seen { queues: vec![idle], ..seen() }), []);
    }

    #[test]
    fn a_queue_falls_behind_when_its_backlog_grows() {
        let before = |count| Reading {
            at: NOW.minus(GROWS_OVER),
            totals: Totals::default(),
            ready: vec![("mail".to_owned(), count)],
        };
        let with =
            |readings| Seen { queues: vec![queue("mail", 100, 61)], workers: vec![worker("mail")], readings, ..seen() };
        assert_eq!(kinds(&with(vec![before(50)])), [AttentionKind::FallingBehind]);
        assert_eq!(kinds(&with(vec![before(95)])), [], "about the same");
        assert_eq!(kinds(&with(Vec::new())), [], "nothing is known of before");
    }

    #[test]
    fn webhooks_without_a_secret_are_unsent() {
        let seen = Seen { queues: vec![queue(WEBHOOKS, 2, 40)], ..seen() };
        assert_eq!(kinds(&seen), [AttentionKind::Unsent]);
        assert_eq!(kinds(&Seen { sends_webhooks: true, ..seen }), [AttentionKind::NoWorker]);
    }

    #[test]
    fn a_schedule_that_should_have_fired_is_late() {
        let job = NewJob::new("digest", Payload::json(&1).expect("JSON"));
        let job = job.check(&Limits::default(), &Policies::default()).expect("valid");
        let spec = ScheduleSpec::every("nightly", Duration::from_secs(3600), job);
        let mut schedule = ScheduleRecord::create(spec, NOW.minus(Duration::from_secs(7200))).expect("valid");
        schedule.next_at = Some(NOW.minus(Duration::from_secs(61)));
        let late = |schedule: &ScheduleRecord| kinds(&Seen { schedules: vec![schedule.clone()], ..seen() });
        assert_eq!(late(&schedule), [AttentionKind::Late]);
        let paused = ScheduleRecord { paused: true, ..schedule.clone() };
        assert_eq!(late(&paused), []);
        schedule.next_at = Some(NOW.minus(Duration::from_secs(59)));
        assert_eq!(late(&schedule), []);
        schedule.next_at = Some(NOW.plus(Duration::from_secs(600)));
        assert_eq!(late(&schedule), []);
    }

    #[test]
    fn the_worst_comes_first() {
        let paused = QueueRecord { paused: true, ..queue("aside", 1, 500) };
        let seen = Seen { queues: vec![paused, queue("mail", 3, 31)], ..seen() };
        assert_eq!(kinds(&seen), [AttentionKind::NoWorker, AttentionKind::PausedWithWork]);
    }
}
