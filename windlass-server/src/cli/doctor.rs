//! `windlass doctor`: looks for what usually is wrong, and says what to do about it.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use owo_colors::OwoColorize;
use serde::Serialize;
use windlass::Job;
use windlass::clock::{Clock, SystemClock};
use windlass::schedule::ScheduleRecord;
use windlass::store::{Filter, ListQuery, QueueRecord, Sealed, UnderKeys, WorkerRecord};
use windlass::workflow::Webhook;
use windlass::{State, Timestamp};

use super::connect::{self, Place, Reach, Session};
use super::exit::{End, Exit};
use super::output::OutputArgs;
use super::rows::count;
use super::store::{REENCRYPT_STEP, file_sizes, schema_version, size};
use super::table::{clean, jobs, span};
use crate::api::UNDELIVERED;
use crate::figures::number;
use crate::serve::attention::{AttentionKind, Seen, Severity};
use crate::serve::config::open_secrets;

/// Clocks further apart than this confuse people who compare logs; windlass itself goes by the store's alone.
const CLOCK_APART: Duration = Duration::from_secs(2);
/// A slower answer than this slows every worker down.
const SLOW: Duration = Duration::from_millis(250);
/// Upkeep runs about once a second.
const UPKEEP_LATE: Duration = Duration::from_secs(10);
/// A schedule that is later than this does not fire by itself.
const FIRING_LATE: Duration = Duration::from_secs(60);
/// A job that could have started this long ago is waiting for something.
const WAITING_LONG: Duration = Duration::from_secs(300);
/// A log that is longer than this is not being copied back.
const LOG_BYTES_LONG: u64 = 256 << 20;
/// Less free space than this runs out before somebody looks.
const FREE_BYTES_LOW: u64 = 1 << 30;
/// How many running jobs and schedules are looked at.
const LOOKED_AT: usize = 1000;

/// What `windlass doctor` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Changes nothing. Exit code 1 if something is wrong.\nExample:\n  windlass doctor --store sqlite:jobs.db"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputArgs,
}

/// How a thing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Health {
    Good,
    Watch,
    Bad,
}

/// What was looked at, how it was found, and what to do.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    health: Health,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Finding { what, health: Health::Good, found: found.into(), advice: None }
    }

    fn of(health: Health, what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { what, health, found: found.into(), advice: Some(advice.into()) }
    }
}

#[derive(Debug, Serialize)]
struct Findings {
    items: Vec<Finding>,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    let mut findings = Vec::new();
    reachable(&session, &mut findings).await?;
    findings.extend(schema(&session.place));
    leases(&session, &mut findings).await?;
    let (queues, workers) = (session.client.queues().await?, session.client.workers().await?);
    findings.push(living(&workers));
    served(&queues, &workers, session.out.now, &mut findings);
    findings.extend(callbacks(&session, &workers).await?);
    schedules(&session, &mut findings).await?;
    dead(&queues, &mut findings);
    attention(&session, &mut findings).await?;
    findings.extend(disk(&session.place));
    findings.extend(rights(reach.config().as_deref(), &session.place));
    findings.extend(pooler(&session.place).await?);
    findings.extend(durable(&session).await?);
    findings.extend(encrypted(&session).await?);
    print(&session, findings)
}

/// Whether others may read what is secret: the configuration, or the file with every payload.
fn rights(config: Option<&Path>, place: &Place) -> Vec<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let mut findings = Vec::new();
    if let Some((path, what)) = config.and_then(|path| Some((path, open_secrets(path)?))) {
        let found = format!("others may read {}, which holds {what}", path.display());
        findings.push(Finding::of(Health::Watch, "rights", found, format!("chmod 600 {}", path.display())));
    }
    if let Some(file) = place.file()
        && file.metadata().is_ok_and(|about| about.permissions().mode() & 0o004 != 0)
    {
        let found = format!("everybody on this machine may read {}, and every payload in it", file.display());
        findings.push(Finding::of(Health::Watch, "rights", found, format!("chmod 600 {}*", file.display())));
    }
    findings
}

fn print(session: &Session, findings: Vec<Finding>) -> anyhow::Result<()> {
    let bad = findings.iter().filter(|finding| finding.health == Health::Bad).count();
    match session.out.is_table() {
        false => session.out.json(&Findings { items: findings })?,
        true => {
            for Finding { what, health, found, advice } in &findings {
                let mark = match health {
                    Health::Good => "ok   ".green().to_string(),
                    Health::Watch => "watch".yellow().to_string(),
                    Health::Bad => "BAD  ".red().to_string(),
                };
                session.out.line(format!("{mark}  {what:<10}  {found}"))?;
                if let Some(advice) = advice {
                    session.out.line(format!("       {:<10}  → {advice}", ""))?;
                }
            }
        }
    }
    match bad {
        0 => Ok(()),
        1 => Err(End::new(Exit::Failed, "one thing is wrong").into()),
        bad => Err(End::new(Exit::Failed, format!("{bad} things are wrong")).into()),
    }
}

/// Whether the store answers, how fast, and whether its clock agrees with ours.
async fn reachable(session: &Session, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    let began = Instant::now();
    let there = session.store().now().await?;
    let took = began.elapsed();
    let here = SystemClock::default().now();
    let found = format!("the {} store answers in {:.1} ms", session.store().kind(), took.as_secs_f64() * 1000.0);
    findings.push(match took > SLOW {
        false => Finding::good("reach", found),
        true => Finding::of(Health::Watch, "reach", found, "look at the network and at the load of the database"),
    });
    let apart = there.since(here).max(here.since(there)).saturating_sub(took);
    let found = format!("the store's clock and this machine's are {} apart", span(apart));
    findings.push(match apart > CLOCK_APART {
        false => Finding::good("clock", found),
        true => Finding::of(
            Health::Watch,
            "clock",
            found,
            "windlass goes by the store's clock alone, but times in logs will not agree: set the clocks by NTP",
        ),
    });
    Ok(())
}

/// A store that could be opened has the tables that this program knows.
fn schema(place: &Place) -> Option<Finding> {
    let version = schema_version(place)?;
    Some(Finding::good("schema", format!("the tables have version {version}, which this program knows")))
}

/// Running jobs whose lease is over and that nobody takes back.
async fn leases(session: &Session, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    let filter = Filter::new().states([State::Running]);
    let running =
        session.store().list(&ListQuery { filter, limit: LOOKED_AT, after: None, ..ListQuery::default() }).await?;
    let now = session.store().now().await?;
    let over = |at: Timestamp| now.since(at) > UPKEEP_LATE;
    let stuck: Vec<_> =
        running.items.iter().filter(|job| job.lease.as_ref().is_some_and(|lease| over(lease.expires_at))).collect();
    let looked = if running.next.is_some() { "of the newest 1,000 running jobs" } else { "of the running jobs" };
    findings.push(match stuck.first() {
        None => Finding::good("leases", format!("none {looked} has a lease that ended long ago")),
        Some(first) => Finding::of(
            Health::Bad,
            "leases",
            format!("{} {looked} have leases that ended long ago, such as {}", number(stuck.len() as u64), first.id),
            "nobody runs upkeep: start `windlass run` or a worker; they take the jobs back within a second",
        ),
    });
    Ok(())
}

fn living(workers: &[WorkerRecord]) -> Finding {
    let busy: u32 = workers.iter().flat_map(|worker| &worker.queues).map(|served| served.busy).sum();
    let slots: u32 = workers.iter().flat_map(|worker| &worker.queues).map(|served| served.slots).sum();
    match workers.len() {
        0 => Finding::of(
            Health::Watch,
            "workers",
            "no worker was heard of in the last 30 seconds",
            "start one: `windlass worker --queue QUEUE --exec CMD`, or your own program",
        ),
        n => Finding::good("workers", format!("{n} live, {busy} of {slots} slots busy")),
    }
}

/// Queues whose jobs could start but do not.
fn served(queues: &[QueueRecord], workers: &[WorkerRecord], now: Timestamp, findings: &mut Vec<Finding>) {
    let before = findings.len();
    for queue in queues.iter().filter(|queue| count(&queue.states, State::Scheduled) > 0) {
        let (name, waiting) = (&queue.name, jobs(count(&queue.states, State::Scheduled)));
        let is_served = workers.iter().any(|worker| worker.queues.iter().any(|served| served.queue == *name));
        let oldest = queue.oldest_scheduled.unwrap_or(now);
        let since = span(now.since(oldest));
        if queue.paused {
            let found = format!("queue {name} is paused with {waiting} ready, the oldest for {since}");
            findings.push(Finding::of(
                Health::Watch,
                "queues",
                found,
                format!("`windlass queues resume {name}` when it may go on"),
            ));
        } else if !is_served {
            let found = format!("queue {name} has {waiting} ready and no worker, the oldest for {since}");
            let advice = match name.as_str() {
                Webhook::QUEUE => UNDELIVERED.to_owned(),
                _ => format!("start a worker that serves {name}"),
            };
            findings.push(Finding::of(Health::Bad, "queues", found, advice));
        } else if now.since(oldest) > WAITING_LONG {
            let found = format!("queue {name} has {waiting} ready, the oldest for {since}");
            let advice = format!(
                "`windlass jobs list --queue {name} --state scheduled`, then explain one; add workers if all are busy"
            );
            findings.push(Finding::of(Health::Watch, "queues", found, advice));
        }
    }
    if findings.len() == before {
        findings.push(Finding::good("queues", "every queue with ready jobs is served"));
    }
}

/// Unfinished jobs with a callback, where no worker delivers webhooks.
async fn callbacks(session: &Session, workers: &[WorkerRecord]) -> anyhow::Result<Option<Finding>> {
    if workers.iter().any(|worker| worker.queues.iter().any(|served| served.queue.as_str() == Webhook::QUEUE)) {
        return Ok(None);
    }
    let filter = Filter::new().states(State::ALL.into_iter().filter(|state| !state.is_terminal()));
    let newest =
        session.store().list(&ListQuery { filter, limit: LOOKED_AT, after: None, ..ListQuery::default() }).await?;
    let asking: Vec<_> = newest.items.iter().filter(|job| job.spec.options.callback_url.is_some()).collect();
    let looked = if newest.next.is_some() { "of the newest 1,000 unfinished jobs" } else { "of the unfinished jobs" };
    Ok(asking.first().map(|first| {
        let found = format!("asked for by {} {looked}, such as {}", number(asking.len() as u64), first.id);
        Finding::of(Health::Watch, "callbacks", found, UNDELIVERED)
    }))
}

/// Schedules that should have fired long ago.
async fn schedules(session: &Session, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    let first = session.client.schedules(None, LOOKED_AT).await?;
    if first.is_empty() {
        return Ok(());
    }
    let now = session.out.now;
    let late = |schedule: &ScheduleRecord| schedule.next_at.is_some_and(|at| now.since(at) > FIRING_LATE);
    let overdue: Vec<_> = first.iter().filter(|schedule| !schedule.paused && late(schedule)).collect();
    findings.push(match overdue.first() {
        None => Finding::good("schedules", "none is overdue"),
        Some(one) => Finding::of(
            Health::Bad,
            "schedules",
            format!("{} of them should have fired, such as {}", number(overdue.len() as u64), one.spec.name),
            "nobody runs upkeep: start `windlass run` or a worker; what a schedule missed fires as it says",
        ),
    });
    Ok(())
}

/// What needs somebody and is not looked at by itself above.
async fn attention(session: &Session, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    let known = [AttentionKind::NoWorker, AttentionKind::PausedWithWork, AttentionKind::Late, AttentionKind::Unsent];
    for item in Seen::look(&**session.store()).await?.attention() {
        if known.contains(&item.kind) {
            continue;
        }
        let health = match item.severity {
            Severity::Bad => Health::Bad,
            Severity::Warning => Health::Watch,
        };
        let advice = item.act.map_or_else(|| format!("look at {} on the page", item.link), |act| format!("`{act}`"));
        findings.push(Finding::of(health, "attention", item.text, advice));
    }
    Ok(())
}

fn dead(queues: &[QueueRecord], findings: &mut Vec<Finding>) {
    let dead: u64 =
        queues.iter().map(|queue| count(&queue.states, State::Failed) + count(&queue.states, State::DeadLetter)).sum();
    findings.push(match dead {
        0 => Finding::good("dead", "the dead-letter queue is empty"),
        dead => Finding::of(
            Health::Watch,
            "dead",
            format!("{} in the dead-letter queue", jobs(dead)),
            "`windlass dlq list` shows why; `windlass dlq requeue --code CODE` sends them back once that is fixed",
        ),
    });
}

/// The size of a SQLite store, its log, and the room that is left.
fn disk(place: &Place) -> Vec<Finding> {
    let (Some(bytes), log) = file_sizes(place) else { return Vec::new() };
    let mut findings = vec![Finding::good("disk", format!("the file has {}", size(bytes)))];
    if let Some(log) = log.filter(|log| *log > LOG_BYTES_LONG) {
        let advice =
            "a program holds an old read open, or none that writes has run since: close readers, start a worker";
        findings.push(Finding::of(Health::Watch, "disk", format!("its log has {}", size(log)), advice));
    }
    let free = place.file().and_then(|path| free_bytes(&path));
    if let Some(free) = free {
        let found = format!("{} are free where it lies", size(free));
        findings.push(match free < FREE_BYTES_LOW {
            false => Finding::good("disk", found),
            true => Finding::of(
                Health::Bad,
                "disk",
                found,
                "make room, or `windlass store prune`: a full disk stops every enqueue",
            ),
        });
    }
    findings
}

/// Free bytes of the file system, as `df` says; unknown where there is no `df`.
fn free_bytes(path: &Path) -> Option<u64> {
    let told = std::process::Command::new("df").arg("-Pk").arg("--").arg(path).output().ok()?;
    let text = String::from_utf8(told.stdout).ok()?;
    let kibibytes: u64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// What endangers commits that the server has confirmed, and which server that is.
async fn durable(session: &Session) -> anyhow::Result<Vec<Finding>> {
    let Some(place) = session.store().place() else { return Ok(Vec::new()) };
    let told = session.store().durability().await?;
    if told.warnings.is_empty() {
        let words = match told.replicated {
            Some(true) => "each commit is on a synchronous standby too",
            _ => "commits are on the disk of one server",
        };
        return Ok(vec![Finding::good("durable", format!("{place}: {words}"))]);
    }
    let advice = "docs/scale.md says what to set, and what each setting promises";
    let warnings = told.warnings.into_iter();
    Ok(warnings.map(|warning| Finding::of(Health::Watch, "durable", format!("{place}: {warning}"), advice)).collect())
}

/// How much of the newest jobs, and of all schedules up to as many, is not under the current key.
async fn encrypted(session: &Session) -> anyhow::Result<Option<Finding>> {
    let Some(sealed) = Sealed::of(session.store()) else { return Ok(None) };
    let mut found = UnderKeys::default();
    for _ in 0..LOOKED_AT / REENCRYPT_STEP {
        let after = found.next.take();
        found.add(sealed.under_keys(after.as_ref(), REENCRYPT_STEP).await?);
        if found.next.is_none() {
            break;
        }
    }
    let current = sealed.keys().names().next().unwrap_or_default();
    let older: Vec<String> = found
        .by_key
        .iter()
        .filter(|(name, _)| *name != current)
        .map(|(name, count)| format!("{} under {}", number(*count), clean(&format!("{name:?}"))))
        .chain((found.plain > 0).then(|| format!("{} not encrypted", number(found.plain))))
        .collect();
    let looked = match found.next {
        None => format!("of {} stored payloads, results, checkpoints and templates", number(found.looked_at())),
        Some(_) => format!("of the newest {} payloads, results, checkpoints and templates", number(found.looked_at())),
    };
    let whole = "`windlass store reencrypt` encrypts the rest again; with --dry-run it counts everything";
    Ok(Some(match (found.unopened, older.is_empty()) {
        (0, true) => Finding::good("encryption", format!("all {looked} are under {current:?}")),
        (0, false) => Finding::of(Health::Watch, "encryption", format!("{looked}, {}", older.join(", ")), whole),
        (closed, _) => {
            let found = format!("{} {looked} do not open with the keys that are set", number(closed));
            Finding::of(Health::Bad, "encryption", found, "add the key that is missing; nothing was changed")
        }
    }))
}

/// Whether a PostgreSQL store is reached through a pooler that swallows notifications.
async fn pooler(place: &Place) -> anyhow::Result<Option<Finding>> {
    let Some(url) = place.store_url().filter(|url| url.starts_with("postgres")) else { return Ok(None) };
    let heard = connect::open_postgres(url).await?.hears_notifications().await?;
    Ok(Some(match heard {
        true => Finding::good("pooler", "notifications arrive: jobs start within milliseconds"),
        false => Finding::of(
            Health::Watch,
            "pooler",
            "notifications do not arrive: the connection seems to go through a transaction pooler",
            "jobs are found by polling, which is safe but slower; connect directly, or in session mode, to start them at once",
        ),
    }))
}
