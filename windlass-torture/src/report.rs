//! What a run comes to: its numbers, whether they are enough, and what was wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use windlass::job::Outcome;

use super::check::{Violation, counts};
use super::dump::Dump;
use super::faults::Kind;
use super::history::{Answer, Event, Lease, Line};

/// How many jobs for each second a run must have had to count.
pub const JOBS_PER_SECOND_MIN: f64 = 20.0;
/// How far before a promotion a process must have been heard of, and be left alone, in microseconds.
const LOOKED_BACK: u64 = 8_000_000;
/// How many lines of a history are shown.
const LINES_SHOWN: usize = 60;

/// What a run must have done, or it proves nothing.
#[derive(Clone, Debug, Default)]
pub struct Least {
    /// Jobs.
    pub jobs: usize,
    /// Faults of each kind.
    pub faults: BTreeMap<&'static str, usize>,
    /// Calls whose outcome was not known.
    pub unknown_outcomes: usize,
    /// Promotions of a standby.
    pub promotions: usize,
}

/// The numbers of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What everything but the timing follows from.
    pub seed: u64,
    /// `memory`, `sqlite` or `postgres`.
    pub store: String,
    /// How long faults were injected.
    pub seconds: f64,
    /// How long it then took until every job had ended.
    pub drain_seconds: f64,
    /// Jobs in the store at the end.
    pub jobs: usize,
    /// Handlers that began.
    pub runs: usize,
    /// Faults injected, by kind.
    pub faults: BTreeMap<String, usize>,
    /// Faults of all kinds.
    pub faults_total: usize,
    /// Attempts that were lost with their lease and taken back.
    pub reclaims: usize,
    /// Settlements that the store refused because their lease did not hold.
    pub stale_refused: usize,
    /// Calls that failed without saying whether they had been written.
    pub unknown_outcomes: usize,
    /// From a worker's death by SIGKILL until its jobs could be claimed again, for 99 in 100 of them.
    pub recovery_p99_seconds: Option<f64>,
    /// How many jobs that is measured on.
    pub recoveries: usize,
    /// Promotions of a standby.
    pub promotions: usize,
    /// From a promotion until a process's next call gets through, for 99 in 100 of them.
    pub back_p99_seconds: Option<f64>,
    /// The longest of these times.
    pub back_max_seconds: Option<f64>,
    /// Jobs that a worker had claimed and not begun when it was killed: most of them claimed ahead of free slots.
    pub killed_before_begun: usize,
    /// Violations, by invariant.
    pub violations: BTreeMap<&'static str, usize>,
    /// Whether the run did enough to prove something.
    pub valid: bool,
    /// Where it did too little.
    pub too_little: Vec<String>,
}

impl Report {
    /// Counts what the histories and the store hold.
    pub fn new(seed: u64, store: &str, lines: &[Line], dump: &Dump, violations: &[Violation], least: &Least) -> Self {
        let mut faults: BTreeMap<String, usize> = BTreeMap::new();
        let (mut runs, mut stale_refused, mut unknown_outcomes) = (0, 0, 0);
        for line in lines {
            match &line.event {
                Event::Fault { kind, .. } => *faults.entry(kind.clone()).or_default() += 1,
                Event::RunStarted(_) => runs += 1,
                Event::Settled { answers, .. } => {
                    stale_refused += answers.iter().filter(|answer| matches!(answer, Answer::Stale(_))).count();
                }
                Event::Failed { known: false, .. } => unknown_outcomes += 1,
                _ => {}
            }
        }
        let lost = |job: &super::dump::JobEnd| {
            job.attempts.iter().filter(|attempt| attempt.outcome == Some(Outcome::Lost)).count()
        };
        let recoveries = recoveries(lines, dump);
        let backs = backs(lines);
        let mut report = Report {
            seed,
            store: store.to_owned(),
            seconds: 0.0,
            drain_seconds: 0.0,
            jobs: dump.jobs.len(),
            runs,
            faults_total: faults.values().sum(),
            faults,
            reclaims: dump.jobs.iter().map(lost).sum(),
            stale_refused,
            unknown_outcomes,
            recovery_p99_seconds: quantile(&recoveries, 0.99).map(|time| time.as_secs_f64()),
            recoveries: recoveries.len(),
            promotions: lines.iter().filter(|line| line.event == Event::Promoted).count(),
            back_p99_seconds: quantile(&backs, 0.99).map(|time| time.as_secs_f64()),
            back_max_seconds: backs.last().map(Duration::as_secs_f64),
            killed_before_begun: killed_before_begun(lines),
            violations: counts(violations),
            valid: true,
            too_little: Vec::new(),
        };
        report.hold_against(least);
        report
    }

    fn hold_against(&mut self, least: &Least) {
        let mut asked = vec![
            ("jobs".to_owned(), self.jobs, least.jobs),
            ("reclaims".to_owned(), self.reclaims, 1),
            ("stale_refused".to_owned(), self.stale_refused, 1),
            ("unknown_outcomes".to_owned(), self.unknown_outcomes, least.unknown_outcomes),
            ("promotions".to_owned(), self.promotions, least.promotions),
        ];
        for (kind, least) in &least.faults {
            asked.push((format!("faults.{kind}"), self.faults.get(*kind).copied().unwrap_or_default(), *least));
        }
        for (what, is, least) in asked {
            if is < least {
                self.too_little.push(format!("{what}: {is}, at least {least}"));
            }
        }
        self.valid = self.too_little.is_empty();
    }

    /// How many violations there are in all.
    pub fn violations_total(&self) -> usize {
        self.violations.values().sum()
    }
}

/// How long the jobs of each killed worker waited until their leases were taken back and anybody could claim them.
fn recoveries(lines: &[Line], dump: &Dump) -> Vec<Duration> {
    let Some(offset) = store_clock(lines) else { return Vec::new() };
    let mut held: HashMap<&str, HashSet<Lease>> = HashMap::new();
    let mut orphans: HashMap<Lease, i64> = HashMap::new();
    for line in lines {
        match &line.event {
            Event::Claimed(grants) => held.entry(&line.by).or_default().extend(grants.iter().map(|grant| grant.lease)),
            // Whether it was taken is not known yet, so it is not counted either way.
            Event::SettleSent(asked) => {
                let mine = held.entry(&line.by).or_default();
                asked.asked.iter().for_each(|sent| {
                    mine.remove(&sent.lease);
                });
            }
            Event::Fault { kind, target: Some(target) } if kind == Kind::Kill.as_str() => {
                let killed = i64::try_from(line.at).unwrap_or_default() + offset;
                orphans.extend(held.remove(target.as_str()).into_iter().flatten().map(|lease| (lease, killed)));
            }
            _ => {}
        }
    }
    let mut waits = Vec::new();
    for job in &dump.jobs {
        for attempt in job.attempts.iter().filter(|attempt| attempt.outcome == Some(Outcome::Lost)) {
            let lease = Lease { job: job.id, version: attempt.version };
            if let (Some(killed), Some(ended)) = (orphans.get(&lease), attempt.ended) {
                waits.push(Duration::from_micros(u64::try_from(ended - killed).unwrap_or_default()));
            }
        }
    }
    waits.sort_unstable();
    waits
}

/// How long after each promotion the next call of each process got through: of those that had calls before and after it, and
/// that nothing was done to meanwhile.
fn backs(lines: &[Line]) -> Vec<Duration> {
    let gets_through = |event: &Event| {
        matches!(
            event,
            Event::Enqueued { .. }
                | Event::Claimed(_)
                | Event::Settled { .. }
                | Event::Extended { .. }
                | Event::Saved { .. }
        )
    };
    let mut backs = Vec::new();
    for (place, promotion) in lines.iter().enumerate().filter(|(_, line)| line.event == Event::Promoted) {
        // A process that was stopped before may not go on for a few seconds.
        let disturbed_from = promotion.at.saturating_sub(LOOKED_BACK);
        let before = lines[..place].iter().rev().take_while(|line| line.at >= disturbed_from);
        let mut waiting: HashSet<&str> = HashSet::new();
        let mut disturbed: HashSet<&str> = HashSet::new();
        for line in before {
            match &line.event {
                Event::Fault { target: Some(target), .. } => {
                    disturbed.insert(target);
                }
                event if gets_through(event) => {
                    waiting.insert(&line.by);
                }
                _ => {}
            }
        }
        waiting.retain(|process| !disturbed.contains(process));
        for line in &lines[place..] {
            match &line.event {
                Event::Fault { target: Some(target), .. } => {
                    waiting.remove(target.as_str());
                }
                Event::Started { .. } | Event::Stopped => {
                    waiting.remove(line.by.as_str());
                }
                event if gets_through(event) && waiting.remove(line.by.as_str()) => {
                    backs.push(Duration::from_micros(line.at - promotion.at));
                }
                _ => {}
            }
            if waiting.is_empty() {
                break;
            }
        }
    }
    backs.sort_unstable();
    backs
}

/// How many leases killed workers held whose handlers had not begun, and that were not given back.
fn killed_before_begun(lines: &[Line]) -> usize {
    let mut held: HashMap<&str, HashSet<Lease>> = HashMap::new();
    let mut found = 0;
    for line in lines {
        match &line.event {
            Event::Claimed(grants) => held.entry(&line.by).or_default().extend(grants.iter().map(|grant| grant.lease)),
            Event::RunStarted(lease) => {
                held.entry(&line.by).or_default().remove(lease);
            }
            Event::SettleSent(asked) => {
                let mine = held.entry(&line.by).or_default();
                asked.asked.iter().for_each(|sent| {
                    mine.remove(&sent.lease);
                });
            }
            Event::Fault { kind, target: Some(target) } if kind == Kind::Kill.as_str() => {
                found += held.remove(target.as_str()).map_or(0, |leases| leases.len());
            }
            _ => {}
        }
    }
    found
}

/// By how much the store's clock is ahead of the machine's monotonic one: the median of all calls that show both.
fn store_clock(lines: &[Line]) -> Option<i64> {
    let mut offsets: Vec<i64> = Vec::new();
    for line in lines {
        let before = match &line.event {
            Event::ExtendSent(asked) | Event::SaveSent(asked) => asked.before,
            Event::SettleSent(asked) => asked.before,
            _ => None,
        };
        offsets.extend(before.map(|before| before - i64::try_from(line.at).unwrap_or_default()));
    }
    offsets.sort_unstable();
    offsets.get(offsets.len() / 2).copied()
}

fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let place = (sorted.len().checked_sub(1)? as f64 * share).ceil() as usize;
    sorted.get(place).copied()
}

/// The lines of the histories that name the job of the first violation.
pub fn evidence(lines: &[Line], violations: &[Violation]) -> Vec<String> {
    let Some(job) = violations.iter().find_map(|violation| violation.job) else { return Vec::new() };
    let job = job.to_string();
    let texts = lines.iter().filter_map(|line| serde_json::to_string(line).ok());
    texts.filter(|text| text.contains(&job)).take(LINES_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use windlass::{JobId, State};

    use super::super::check::check;
    use super::super::dump::{AttemptEnd, JobEnd};
    use super::super::history::{Asked, Grant, Sent};
    use super::*;

    fn job(number: u128) -> JobId {
        JobId::from_uuid(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn a_run_that_did_too_little_is_not_valid() {
        let faults = BTreeMap::from([("kill", 3)]);
        let least = Least { jobs: 10, faults, unknown_outcomes: 1, promotions: 3 };
        let report = Report::new(7, "memory", &[], &Dump::default(), &[], &least);
        assert!(!report.valid);
        assert_eq!(report.violations_total(), 0);
        let asked = ["jobs", "reclaims", "stale_refused", "unknown_outcomes", "promotions", "faults.kill"];
        assert_eq!(report.too_little.len(), asked.len(), "{:?}", report.too_little);
        for (what, told) in asked.iter().zip(&report.too_little) {
            assert!(told.starts_with(what), "{told}");
        }
    }

    #[test]
    fn the_evidence_is_what_was_seen_of_the_first_offending_job() {
        let lease = |number| Lease { job: job(number), version: 1 };
        let line = |at, number| Line { at, by: "a".to_owned(), event: Event::RunStarted(lease(number)) };
        let lines = [line(1, 1), line(2, 2), line(3, 1)];
        let jobs = vec![JobEnd::new(job(2), State::Cancelled), JobEnd::new(job(1), State::Pending)];
        let violations = check(&lines, &Dump { jobs, accepted: 2, counted: 2, ..Dump::default() });
        assert_eq!(violations.len(), 1, "{violations:?}");
        let shown = evidence(&lines, &violations);
        assert_eq!(shown.len(), 2);
        assert!(shown.iter().all(|text| text.contains(&job(1).to_string())));
    }

    #[test]
    fn a_process_is_back_with_its_first_call_after_a_promotion() {
        let write = |at, by: &str, event| Line { at, by: by.to_owned(), event };
        let enqueued = || Event::Enqueued { call: 1, jobs: Vec::new() };
        let stall = Event::Fault { kind: "stall".to_owned(), target: Some("stalled".to_owned()) };
        let lines = [
            write(1_000_000, "producer", enqueued()),
            write(1_000_000, "stalled", enqueued()),
            write(2_000_000, "torture", stall),
            write(3_000_000, "torture", Event::Promoted),
            write(3_100_000, "new", enqueued()),
            write(3_500_000, "producer", enqueued()),
            write(3_900_000, "producer", enqueued()),
            write(9_000_000, "stalled", enqueued()),
        ];
        assert_eq!(backs(&lines), [Duration::from_millis(500)]);
    }

    #[test]
    fn a_killed_worker_loses_what_it_had_claimed_and_not_begun() {
        let lease = |number| Lease { job: job(number), version: 1 };
        let grant = |number| Grant { lease: lease(number), started: 1, expires: 9 };
        let write = |event| Line { at: 1, by: "a".to_owned(), event };
        let sent = Sent { lease: lease(2), outcome: Outcome::Completed };
        let kill = |who: &str| write(Event::Fault { kind: "kill".to_owned(), target: Some(who.to_owned()) });
        let lines = [
            write(Event::Claimed(vec![grant(1), grant(2), grant(3), grant(4)])),
            write(Event::RunStarted(lease(1))),
            write(Event::SettleSent(Asked { call: 1, before: None, asked: vec![sent] })),
            kill("b"),
            kill("a"),
            kill("a"),
        ];
        assert_eq!(killed_before_begun(&lines), 2);
    }

    #[test]
    fn recovery_lasts_from_the_kill_until_the_lease_is_taken_back() {
        let lease = Lease { job: job(1), version: 1 };
        let other = Lease { job: job(2), version: 1 };
        let write = |at, by: &str, event| Line { at, by: by.to_owned(), event };
        let kill = Event::Fault { kind: "kill".to_owned(), target: Some("a".to_owned()) };
        let lines = [
            write(1000, "a", Event::Claimed(vec![Grant { lease, started: 501_000, expires: 502_000 }])),
            // The store's clock is half a second ahead.
            write(1500, "b", Event::ExtendSent(Asked { call: 1, before: Some(501_500), asked: vec![other] })),
            write(2000, "torture", kill),
        ];
        let lost = AttemptEnd {
            version: 1,
            generation: 0,
            started: 501_000,
            ended: Some(509_000),
            outcome: Some(Outcome::Lost),
        };
        let end = JobEnd { attempts: vec![lost], ..JobEnd::new(job(1), State::DeadLetter) };
        let dump = Dump { jobs: vec![end], accepted: 1, counted: 1, ..Dump::default() };
        assert_eq!(recoveries(&lines, &dump), [Duration::from_micros(7000)]);
    }
}
