//! Settlements: plain ones in one statement, those with consequences one by one in a transaction of the slow path.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;

use super::fault::{Fault, retrying};
use super::lanes::Lane;
use super::link::{Link, Parameter};
use super::tokens;
use super::transaction::Transaction;
use super::turns::Caller;
use super::{Inner, job_rows};
use crate::error::Error;
use crate::job::{Fingerprint, JobId, LeaseKey, Outcome, Settlement, State, Verdict};
use crate::store::answer::{Settled, Wake};
use crate::store::rules::{self, Missing};

impl Inner {
    /// Settles what it can with one statement, and the rest on the slow path.
    pub(super) async fn settle(self: &Arc<Self>, settlements: &[Settlement]) -> Result<Vec<Settled>, Error> {
        const ATTEMPTED: &str = "settle jobs";
        let wrote = AtomicBool::new(false);
        let told = |error| if wrote.load(Ordering::Relaxed) { partly_written(error) } else { error };
        let mut answers = retrying(ATTEMPTED, || self.settle_plain(settlements, &wrote)).await.map_err(told)?;
        let rest: Vec<usize> = (0..answers.len()).filter(|place| answers[*place].is_none()).collect();
        if !rest.is_empty() {
            let slow: Vec<&Settlement> = rest.iter().map(|place| &settlements[*place]).collect();
            let settled = retrying(ATTEMPTED, || async {
                let mut tx = self.transaction(Caller::Worker).await?;
                let answers = tx.settle(&slow).await;
                tx.finish(answers).await
            });
            for (place, answer) in rest.into_iter().zip(settled.await.map_err(told)?) {
                answers[place] = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Writes what has no consequences; gives the answers, `None` for the rest. Notes when something was written, whatever comes
    /// after it.
    async fn settle_plain(
        &self,
        settlements: &[Settlement],
        wrote: &AtomicBool,
    ) -> Result<Vec<Option<Settled>>, Fault> {
        let link = self.link(Caller::Worker).await?;
        let (answers, hints) = self.settle_on(&link, settlements, wrote).await?;
        drop(link);
        self.hint(hints);
        Ok(answers)
    }

    /// The same on any connection, with the hints for after the commit.
    pub(super) async fn settle_on(
        &self,
        link: &Link<'_>,
        settlements: &[Settlement],
        wrote: &AtomicBool,
    ) -> Result<(Vec<Option<Settled>>, Vec<Wake>), Fault> {
        let keys: Vec<LeaseKey> = settlements.iter().map(Settlement::key).collect();
        let leased = self.leased(&keys);
        let mut settling = Settling { keys, answers: settlements.iter().map(|_| None).collect(), hints: Vec::new() };
        let stored: Vec<Uuid> = settlements.iter().map(|one| self.tokens().stored(one.key().token)).collect();
        let plain = SettleColumns::of(settlements, &leased, &stored, false);
        if !plain.seqs.is_empty() {
            self.settle_columns(link, &plain, &mut settling).await?;
            wrote.fetch_or(settling.answers.iter().any(Option::is_some), Ordering::Relaxed);
        }
        // Those that were claimed through gates leave notes.
        if stored.iter().any(|stored| tokens::is_controlled(*stored)) {
            let noted = SettleColumns::of(settlements, &leased, &stored, true);
            if !noted.seqs.is_empty() {
                self.settle_columns(link, &noted, &mut settling).await?;
                wrote.fetch_or(settling.answers.iter().any(Option::is_some), Ordering::Relaxed);
            }
        }
        Ok((settling.answers, settling.hints))
    }

    async fn settle_columns(
        &self,
        link: &Link<'_>,
        columns: &SettleColumns<'_>,
        settling: &mut Settling,
    ) -> Result<(), Fault> {
        let Settling { keys, answers, hints } = settling;
        let time = self.given_time();
        if columns.are_completions() {
            let statement = match columns.noted {
                false => include_str!("sql/complete.sql"),
                true => include_str!("sql/complete_noted.sql"),
            };
            let rows = link.query(statement, &columns.with_results(&time)).await?;
            for row in &rows {
                for seq in row.get::<_, Vec<i64>>("seqs") {
                    let Some(place) = columns.place(seq) else { continue };
                    answers[place] = Some(Settled::Applied(State::Completed));
                    hints.push(Wake::Ended(keys[place].job));
                }
                if columns.noted {
                    self.hint_freed(row.get("lane"), hints);
                }
            }
            return Ok(());
        }
        let statement = match columns.noted {
            false => include_str!("sql/settle.sql"),
            true => include_str!("sql/settle_noted.sql"),
        };
        let rows = link.query(statement, &columns.with_kinds(&time)).await?;
        for row in &rows {
            let (seq, next, lane): (i64, i16, i32) = (row.get("seq"), row.get("next"), row.get("lane"));
            let next = u8::try_from(next).ok().and_then(State::from_number);
            let next = next.ok_or_else(|| job_rows::corrupt("a state that is none"))?;
            let Some(place) = columns.place(seq) else { continue };
            answers[place] = Some(Settled::Applied(next));
            if next.is_terminal() {
                hints.push(Wake::Ended(keys[place].job));
                if columns.noted {
                    self.hint_freed(lane, hints);
                }
            } else if let Some((queue, _)) = self.lanes.name(lane) {
                hints.push(Wake::Scheduled(queue));
            }
        }
        Ok(())
    }

    /// Hints that a slot of a controlled queue came free: once, whatever the number of slots.
    pub(super) fn hint_freed(&self, lane: Lane, hints: &mut Vec<Wake>) {
        if let Some((queue, _)) = self.lanes.name(lane) {
            let hint = Wake::Scheduled(queue);
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
    }
}

/// The error of a call of which a part was written before the rest failed: that nothing was written is no longer true.
fn partly_written(error: Error) -> Error {
    match error {
        Error::StoreUnavailable { attempted, problem, source, .. } => {
            Error::StoreUnavailable { attempted, problem, known: false, source }
        }
        other => other,
    }
}

/// Settlements on their way: the leases, the answers so far, and the hints.
struct Settling {
    keys: Vec<LeaseKey>,
    answers: Vec<Option<Settled>>,
    hints: Vec<Wake>,
}

/// The settlements that one statement can write, a column for each field.
#[derive(Default)]
struct SettleColumns<'s> {
    /// Whether these are of leases that were claimed through gates.
    noted: bool,
    /// Sorted: all transactions lock leases in one order.
    seqs: Vec<i64>,
    /// Which settlement each is.
    places: Vec<usize>,
    tokens: Vec<Uuid>,
    /// Empty where no settlement has a result.
    results: Vec<Option<&'s [u8]>>,
    result_types: Vec<Option<&'s str>>,
    kinds: Vec<i32>,
    known: Vec<Kind<'s>>,
    outcomes: Vec<i16>,
    next: Vec<i16>,
    delays: Vec<Option<i64>>,
    counted: Vec<i32>,
    failures: Vec<Option<String>>,
    reasons: Vec<Option<String>>,
    kind_result_types: Vec<Option<&'s str>>,
    faults: Vec<Option<i64>>,
}

/// What settlements may have in common.
#[derive(PartialEq)]
struct Kind<'s> {
    outcome: Outcome,
    next: State,
    verdict: &'s Verdict,
    result_type: Option<&'s str>,
    fault: Option<Fingerprint>,
}

impl<'s> SettleColumns<'s> {
    /// Takes where the job of each settlement is, whether its token fits, and what is stored of the token; only those whose ends
    /// are `noted`, or the others.
    fn of(settlements: &'s [Settlement], leased: &[(i64, bool)], stored: &[Uuid], noted: bool) -> Self {
        let mut columns = SettleColumns { noted, ..SettleColumns::default() };
        let mut sorted: Vec<(i64, usize)> = leased.iter().enumerate().map(|(place, (seq, _))| (*seq, place)).collect();
        sorted.sort_unstable();
        let has_results = settlements.iter().any(|settlement| settlement.result().is_some());
        for (number, (seq, place)) in sorted.iter().enumerate() {
            let settlement = &settlements[*place];
            let verdict: &Verdict = settlement.verdict(false);
            let Ok(next) = State::Running.after(verdict.event) else { continue };
            // Two settlements of one job are settled on the slow path, in the order of the call.
            let is_same = |other: Option<&(i64, usize)>| other.is_some_and(|(other, _)| other == seq);
            let repeated = is_same(sorted.get(number + 1)) || number > 0 && is_same(sorted.get(number - 1));
            if !leased[*place].1 || repeated || !settlement.children().is_empty() {
                continue;
            }
            let stored = stored[*place];
            // A hold is noted on the slow path; plain queues have nothing to hold.
            if tokens::is_controlled(stored) != noted || noted && settlement.held().is_some() {
                continue;
            }
            let result = settlement.result().filter(|_| next == State::Completed);
            let result_type = result.and_then(|result| result.stored_content_type());
            columns.seqs.push(*seq);
            columns.places.push(*place);
            columns.tokens.push(stored);
            if has_results {
                columns.results.push(result.map(|result| result.as_bytes().as_ref()));
                columns.result_types.push(result_type);
            }
            let kind = columns.kind(Kind {
                outcome: settlement.outcome(),
                next,
                verdict,
                result_type,
                fault: settlement.fault(),
            });
            columns.kinds.push(kind);
        }
        columns
    }

    /// The number of a kind, from 1 as in SQL: that of the last job or another of the last few, or a new one.
    fn kind(&mut self, kind: Kind<'s>) -> i32 {
        const LOOKED_AT: usize = 8;
        let number = |place: usize| i32::try_from(place + 1).unwrap_or(i32::MAX);
        if let Some(back) = self.known.iter().rev().take(LOOKED_AT).position(|known| *known == kind) {
            return number(self.known.len() - 1 - back);
        }
        let verdict = kind.verdict;
        self.outcomes.push(i16::from(kind.outcome.number()));
        self.next.push(i16::from(kind.next.number()));
        self.delays.push(verdict.delay.map(job_rows::micros));
        self.counted.push(i32::from(verdict.counted));
        self.failures.push(verdict.failure.as_ref().map(job_rows::failure_text));
        self.reasons.push(verdict.reason.as_ref().map(job_rows::json));
        self.kind_result_types.push(kind.result_type);
        self.faults.push(kind.fault.map(Fingerprint::number));
        self.known.push(kind);
        number(self.known.len() - 1)
    }

    /// Whether all of them have succeeded.
    fn are_completions(&self) -> bool {
        self.known.iter().all(|kind| kind.next == State::Completed && kind.outcome == Outcome::Completed)
    }

    /// Which settlement is of this job.
    fn place(&self, seq: i64) -> Option<usize> {
        self.seqs.binary_search(&seq).ok().map(|number| self.places[number])
    }

    fn with_results<'p>(&'p self, time: &'p Option<i64>) -> [Parameter<'p>; 5] {
        [time, &self.seqs, &self.tokens, &self.results, &self.result_types]
    }

    fn with_kinds<'p>(&'p self, time: &'p Option<i64>) -> [Parameter<'p>; 13] {
        [
            time,
            &self.seqs,
            &self.tokens,
            &self.results,
            &self.kinds,
            &self.outcomes,
            &self.next,
            &self.delays,
            &self.counted,
            &self.failures,
            &self.reasons,
            &self.kind_result_types,
            &self.faults,
        ]
    }
}

impl Transaction<'_> {
    /// Settles one after the other, with everything that follows.
    pub(super) async fn settle(&mut self, settlements: &[&Settlement]) -> Result<Vec<Settled>, Fault> {
        let jobs: Vec<JobId> = settlements.iter().map(|settlement| settlement.key().job).collect();
        let mut working = self.working();
        // All at once: the rules would ask for one after the other.
        self.load(&mut working, Missing::Jobs(jobs.clone())).await?;
        self.load(&mut working, Missing::Dependents(jobs)).await?;
        if working.set.has_lapsed_lease() {
            let fence = self.read_fence().await?;
            working.set.hold_leases(fence);
        }
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            answers.push(self.run(&mut working, |set| rules::settle(set, settlement)).await?);
        }
        self.flush(working).await?;
        Ok(answers)
    }
}
