//! Flow control: what ran and started in controlled queues, held against what they had been told (rules K2 to K4, K7, K9, K13).
//!
//! When attempts began and ended is what the store wrote down. A limit counts from the moment at which it had been heard, and the
//! one before it until then.

use std::collections::BTreeMap;

use windlass::{JobId, State};

use super::{Found, Invariant};
use crate::dump::{AttemptEnd, Dump, JobEnd};
use crate::history::{Controlled, Event, Line};

/// Everything that concerns gates.
pub(super) fn gates(lines: &[Line], dump: &Dump, found: &mut Found) {
    let mut told: BTreeMap<&str, Vec<&Controlled>> = BTreeMap::new();
    for line in lines {
        if let Event::Controlled(controlled) = &line.event {
            told.entry(&controlled.queue).or_default().push(controlled);
        }
    }
    let enqueued = enqueued(lines);
    for (queue, told) in told {
        let jobs: Vec<&JobEnd> = dump.jobs.iter().filter(|job| job.queue == queue).collect();
        let mut keys: BTreeMap<&str, Vec<&JobEnd>> = BTreeMap::new();
        for job in &jobs {
            if let Some(key) = &job.flow_key {
                keys.entry(key).or_default().push(job);
            }
        }
        over_limit(queue, &jobs, &told, |told| told.running, found);
        for (key, jobs) in &keys {
            let name = format!("key {key} of {queue}");
            over_limit(&name, jobs, &told, |told| told.each_key, found);
            if let Some(rate) = told.first().and_then(|told| told.rate) {
                over_rate(&name, jobs, rate, found);
            }
            if told.iter().all(|told| told.ordered) {
                out_of_order(&name, jobs, &enqueued, found);
            }
        }
        for job in jobs.iter().filter(|job| job.state == State::Scheduled) {
            found.note(Invariant::Starved, job.id, format!("waits in {queue} after everything came to rest"));
        }
    }
    for leak in &dump.leaks {
        found.note(Invariant::Leaked, None, leak.clone());
    }
}

/// Between which moments of the machine's clock each job was enqueued, as far as the answer was heard.
fn enqueued(lines: &[Line]) -> BTreeMap<JobId, (u64, u64)> {
    let mut sent: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    let mut enqueued = BTreeMap::new();
    for line in lines {
        match &line.event {
            Event::EnqueueSent { call, .. } => drop(sent.insert((&line.by, *call), line.at)),
            Event::Enqueued { call, jobs } => {
                let Some(sent) = sent.get(&(line.by.as_str(), *call)) else { continue };
                enqueued.extend(jobs.iter().filter(|(_, was_there)| !was_there).map(|(id, _)| (*id, (*sent, line.at))));
            }
            _ => {}
        }
    }
    enqueued
}

fn attempts<'a>(jobs: &'a [&JobEnd]) -> impl Iterator<Item = (&'a JobEnd, &'a AttemptEnd)> {
    jobs.iter().flat_map(|job| job.attempts.iter().map(move |attempt| (*job, attempt)))
}

/// The highest limit that may have been in force at a moment; `None` where there may have been none.
fn highest(told: &[&Controlled], limit: impl Fn(&Controlled) -> Option<u32>, at: i64) -> Option<u32> {
    let mut in_force: Option<u32> = None;
    let mut known = false;
    for said in told {
        if said.at <= at {
            (in_force, known) = (limit(said), true);
        } else if said.since <= at {
            // It may or may not have been heard by then.
            in_force = in_force.zip(limit(said)).map(|(one, other)| one.max(other));
        }
    }
    in_force.filter(|_| known)
}

/// K2: whenever a job starts, no more run than the gate admits. More may run on after a limit was lowered.
fn over_limit(
    gate: &str,
    jobs: &[&JobEnd],
    told: &[&Controlled],
    limit: impl Fn(&Controlled) -> Option<u32> + Copy,
    found: &mut Found,
) {
    let mut spans: Vec<(i64, i64)> =
        attempts(jobs).map(|(_, attempt)| (attempt.started, attempt.ended.unwrap_or(i64::MAX))).collect();
    spans.sort_unstable();
    for (job, attempt) in attempts(jobs) {
        let at = attempt.started;
        let Some(most) = highest(told, limit, at) else { continue };
        let running = spans.iter().take_while(|(start, _)| *start <= at).filter(|(_, end)| *end > at).count();
        if running > most as usize {
            found.note(Invariant::OverLimit, job.id, format!("{gate} runs {running} of {most} when it starts at {at}"));
        }
    }
}

/// K7: in any interval of length t at most burst + t × count ÷ per starts.
fn over_rate(gate: &str, jobs: &[&JobEnd], (count, per, burst): (u32, i64, u32), found: &mut Found) {
    let mut starts: Vec<(i64, &JobEnd)> = attempts(jobs).map(|(job, attempt)| (attempt.started, job)).collect();
    starts.sort_unstable_by_key(|(at, _)| *at);
    // The first of an interval with too many starts is at most as many places back as the last that was too early.
    for (last, (to, job)) in starts.iter().enumerate() {
        for (first, (from, _)) in starts[..=last].iter().enumerate().rev() {
            let (began, time) = ((last - first + 1) as i128, i128::from(to - from));
            if began * i128::from(per) > i128::from(burst) * i128::from(per) + time * i128::from(count) {
                found.note(Invariant::OverRate, job.id, format!("{gate} had {began} starts from {from} to {to}"));
                return;
            }
        }
    }
}

/// K13: between the first start of a job and its end no other of its key starts, and none starts before an older one.
///
/// Of two jobs that were enqueued at the same time either may be there first, whichever was begun first.
fn out_of_order(gate: &str, jobs: &[&JobEnd], enqueued: &BTreeMap<JobId, (u64, u64)>, found: &mut Found) {
    // One that was requeued has two lives, of which only the last end is known.
    let mut lives: Vec<(i64, i64, &JobEnd)> = Vec::new();
    for job in jobs.iter().filter(|job| job.generation == 0) {
        if let Some(began) = job.attempts.iter().map(|attempt| attempt.started).min() {
            lives.push((began, job.completed.unwrap_or(i64::MAX), job));
        }
    }
    lives.sort_unstable_by_key(|(began, _, _)| *began);
    for (place, (began, ended, job)) in lives.iter().enumerate() {
        for (other_began, _, other) in lives[place + 1..].iter().take_while(|(other, _, _)| other < ended) {
            let what = format!("{gate}: started at {other_began}, while {} had begun at {began} and not ended", job.id);
            found.note(Invariant::OutOfOrder, other.id, what);
        }
    }
    let is_plain = |job: &JobEnd| job.delay.is_none() && job.depends_on.is_empty();
    for (began, _, older) in lives.iter().filter(|(_, _, job)| is_plain(job)) {
        for (other_began, _, other) in lives.iter().filter(|(_, _, job)| is_plain(job)) {
            let was_there =
                enqueued.get(&older.id).zip(enqueued.get(&other.id)).is_some_and(|(older, other)| older.1 < other.0);
            if was_there && other_began < began {
                let what = format!("{gate}: started at {other_began}, before {}, which is older", older.id);
                found.note(Invariant::OutOfOrder, other.id, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn told(since: i64, running: u32) -> Line {
        let (each_key, rate) = (Some(1), Some((2, SECOND, 1)));
        let controlled = Controlled {
            queue: "q".to_owned(),
            since,
            at: since + 10,
            running: Some(running),
            each_key,
            rate,
            ordered: true,
        };
        Line { at: 0, by: "r".to_owned(), event: Event::Controlled(controlled) }
    }

    fn job(number: u128, key: &str, spans: &[(i64, i64)]) -> JobEnd {
        let attempt = |(started, ended): &(i64, i64)| AttemptEnd {
            version: 1,
            generation: 0,
            started: *started,
            ended: Some(*ended),
            outcome: None,
        };
        JobEnd {
            queue: "q".to_owned(),
            flow_key: Some(key.to_owned()),
            created: i64::try_from(number).expect("small"),
            completed: spans.last().map(|(_, ended)| *ended),
            attempts: spans.iter().map(attempt).collect(),
            ..JobEnd::new(JobId::from_uuid(uuid::Uuid::from_u128(number)), State::Completed)
        }
    }

    fn found(lines: &[Line], jobs: Vec<JobEnd>, leaks: &[&str]) -> Vec<Invariant> {
        let mut found = Found::default();
        let leaks = leaks.iter().map(|leak| (*leak).to_owned()).collect();
        gates(lines, &Dump { jobs, leaks, ..Dump::default() }, &mut found);
        found.0.into_iter().map(|one| one.invariant).collect()
    }

    #[test]
    fn what_keeps_to_its_gates_is_found_clean() {
        let jobs =
            vec![job(1, "a", &[(100, 2 * SECOND)]), job(2, "b", &[(100, 200)]), job(3, "b", &[(SECOND, 2 * SECOND)])];
        assert_eq!(found(&[told(0, 2)], jobs, &[]), []);
    }

    #[test]
    fn one_too_many_is_found_and_one_from_before_a_lowered_limit_is_not() {
        let jobs = || vec![job(1, "a", &[(100, 900)]), job(2, "b", &[(200, 800)])];
        assert_eq!(found(&[told(0, 1)], jobs(), &[]), [Invariant::OverLimit]);
        assert_eq!(found(&[told(0, 2), told(300, 1)], jobs(), &[]), [], "it ran before");
        assert_eq!(found(&[told(0, 2), told(195, 1)], jobs(), &[]), [], "it may not have been heard");
        assert_eq!(found(&[told(0, 2), told(150, 1)], jobs(), &[]), [Invariant::OverLimit]);
    }

    #[test]
    fn starts_beyond_the_rate_are_found() {
        let jobs = vec![job(1, "a", &[(100, 200)]), job(2, "a", &[(300, 400)])];
        assert_eq!(found(&[told(0, 9)], jobs, &[]), [Invariant::OverRate]);
    }

    #[test]
    fn a_start_inside_anothers_life_or_before_an_older_one_is_found() {
        let retried = job(1, "a", &[(100, 200), (2 * SECOND, 3 * SECOND)]);
        let jobs = vec![retried, job(2, "a", &[(SECOND, SECOND + 10)])];
        assert_eq!(found(&[told(0, 9)], jobs, &[]), [Invariant::OutOfOrder]);
        let jobs = || vec![job(1, "a", &[(2 * SECOND, 3 * SECOND)]), job(2, "a", &[(SECOND, SECOND + 10)])];
        let [first, answer] = enqueued_by("p", 1, (10, 20));
        let [second, last] = enqueued_by("q", 2, (30, 40));
        assert_eq!(
            found(&[told(0, 9), first.clone(), answer.clone(), second, last], jobs(), &[]),
            [Invariant::OutOfOrder]
        );
        let [second, last] = enqueued_by("q", 2, (15, 40));
        assert_eq!(found(&[told(0, 9), first, second, answer, last], jobs(), &[]), [], "enqueued at the same time");
    }

    fn enqueued_by(by: &str, number: u128, (sent, answered): (u64, u64)) -> [Line; 2] {
        let line = |at, event| Line { at, by: by.to_owned(), event };
        let jobs = vec![(JobId::from_uuid(uuid::Uuid::from_u128(number)), false)];
        [
            line(sent, Event::EnqueueSent { call: 1, batch: None, keys: Vec::new(), types: Vec::new() }),
            line(answered, Event::Enqueued { call: 1, jobs }),
        ]
    }

    #[test]
    fn leaks_and_what_waits_at_rest_are_found() {
        let waits = JobEnd { state: State::Scheduled, completed: None, ..job(1, "a", &[]) };
        assert_eq!(found(&[told(0, 9)], vec![waits], &["q counts 1"]), [Invariant::Starved, Invariant::Leaked]);
    }
}
