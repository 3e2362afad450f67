//! Settlements: plain ones in one statement, those with consequences one by one in a transaction of the slow path.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use super::fault::Fault;
use super::link::Link;
use super::plan::{Origin, Plan};
use super::unit::{Unit, kind_number, kind_of};
use super::{Inner, rows, tokens};
use crate::error::Error;
use crate::job::{DependencyKind, JobId, LeaseKey, Outcome, Settlement, Stale, State, Verdict};
use crate::store::answer::{InsertedJob, Settled, Wake};
use crate::workflow::Submission;
use crate::workflow::graph::{self, Edge};

impl Inner {
    /// Writes what has no consequences; gives the answers, `None` for the rest.
    async fn settle_plain(&self, settlements: &[Settlement]) -> Result<Vec<Option<Settled>>, Fault> {
        let link = self.link().await?;
        let (answers, hints) = self.settle_on(&link, settlements).await?;
        drop(link);
        self.hint(hints);
        Ok(answers)
    }

    /// The same on any connection, with the hints for after the commit.
    pub(super) async fn settle_on(
        &self,
        link: &Link<'_>,
        settlements: &[Settlement],
    ) -> Result<(Vec<Option<Settled>>, Vec<Wake>), Fault> {
        let keys: Vec<LeaseKey> = settlements.iter().map(Settlement::key).collect();
        let columns = Columns::of(settlements, &self.leased(link, &keys).await?);
        let mut answers: Vec<Option<Settled>> = settlements.iter().map(|_| None).collect();
        let mut hints = Vec::new();
        if columns.seqs.is_empty() {
            return Ok((answers, hints));
        }
        let time = self.given_time();
        if columns.are_completions() {
            let rows = link.query(include_str!("sql/complete.sql"), &columns.with_results(&time)).await?;
            for seq in rows.iter().flat_map(|row| row.get::<_, Vec<i64>>(1)) {
                let Some(place) = columns.place(seq) else { continue };
                answers[place] = Some(Settled::Applied(State::Completed));
                hints.push(Wake::Ended(keys[place].job));
            }
            return Ok((answers, hints));
        }
        let rows = link.query(include_str!("sql/settle.sql"), &columns.with_kinds(&time)).await?;
        for row in &rows {
            let (seq, next, lane): (i64, i16, i32) = (row.get(0), row.get(1), row.get(2));
            let next = u8::try_from(next).ok().and_then(State::from_number);
            let next = next.ok_or_else(|| rows::corrupt("a state that is none"))?;
            let Some(place) = columns.place(seq) else { continue };
            answers[place] = Some(Settled::Applied(next));
            if next.is_terminal() {
                hints.push(Wake::Ended(keys[place].job));
            } else if let Some((queue, _)) = self.lanes.name(lane) {
                hints.push(Wake::Scheduled(queue));
            }
        }
        Ok((answers, hints))
    }
}

/// The settlements that one statement can write, a column for each field.
#[derive(Default)]
struct Columns<'s> {
    /// Sorted: everybody locks leases in one order.
    seqs: Vec<i64>,
    /// Which settlement each is.
    places: Vec<usize>,
    tokens: Vec<Uuid>,
    /// Nothing at all where nobody gave a result.
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
}

/// What settlements may have in common.
#[derive(PartialEq)]
struct Kind<'s> {
    outcome: Outcome,
    next: State,
    verdict: &'s Verdict,
    result_type: Option<&'s str>,
}

impl<'s> Columns<'s> {
    /// Takes where the job of each settlement is, and whether its token fits.
    fn of(settlements: &'s [Settlement], leased: &[(i64, bool)]) -> Self {
        let mut columns = Columns::default();
        let mut sorted: Vec<(i64, usize)> = leased.iter().enumerate().map(|(place, (seq, _))| (*seq, place)).collect();
        sorted.sort_unstable();
        let has_results = settlements.iter().any(|settlement| settlement.result().is_some());
        for (number, (seq, place)) in sorted.iter().enumerate() {
            let settlement = &settlements[*place];
            let verdict: &Verdict = settlement.verdict(false);
            let Ok(next) = State::Running.after(verdict.event) else { continue };
            // What is said twice of one job is settled in the order in which it is said.
            let is_same = |other: Option<&(i64, usize)>| other.is_some_and(|(other, _)| other == seq);
            let repeated = is_same(sorted.get(number + 1)) || number > 0 && is_same(sorted.get(number - 1));
            if !leased[*place].1 || repeated || !settlement.children().is_empty() {
                continue;
            }
            let result = settlement.result().filter(|_| next == State::Completed);
            let result_type = result.and_then(|result| result.stored_content_type());
            columns.seqs.push(*seq);
            columns.places.push(*place);
            columns.tokens.push(tokens::stored(settlement.key().token));
            if has_results {
                columns.results.push(result.map(|result| result.as_bytes().as_ref()));
                columns.result_types.push(result_type);
            }
            let kind = columns.kind(Kind { outcome: settlement.outcome(), next, verdict, result_type });
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
        self.delays.push(verdict.delay.map(rows::micros));
        self.counted.push(i32::from(verdict.counted));
        self.failures.push(verdict.failure.as_ref().map(rows::failure_text));
        self.reasons.push(verdict.reason.as_ref().map(rows::json));
        self.kind_result_types.push(kind.result_type);
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

    fn with_results<'p>(&'p self, time: &'p Option<i64>) -> [super::link::Parameter<'p>; 5] {
        [time, &self.seqs, &self.tokens, &self.results, &self.result_types]
    }

    fn with_kinds<'p>(&'p self, time: &'p Option<i64>) -> [super::link::Parameter<'p>; 12] {
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
        ]
    }
}

impl Unit<'_> {
    /// Settles one after the other, with everything that follows.
    pub(super) async fn settle(&mut self, settlements: &[&Settlement]) -> Result<Vec<Settled>, Fault> {
        let jobs = settlements.iter().map(|settlement| settlement.key().job);
        self.load(jobs.clone()).await?;
        let seqs: Vec<i64> = jobs.filter_map(|job| self.seq_of(job)).collect();
        self.load_dependents(&seqs).await?;
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            answers.push(self.settle_one(settlement).await?);
        }
        Ok(answers)
    }

    /// The job that a lease holds, or why it does not (L2, L3).
    fn fence(&self, key: &LeaseKey) -> Result<i64, Stale> {
        let entry = self.by_id(key.job).ok_or(Stale::NotRunning)?;
        let job = &entry.job;
        let expires_at = job.lease.as_ref().map(|lease| lease.expires_at);
        Stale::check(job.state == State::Running, expires_at, self.now, entry.token == Some(key.token))?;
        Ok(entry.seq)
    }

    async fn settle_one(&mut self, settlement: &Settlement) -> Result<Settled, Fault> {
        let seq = match self.fence(&settlement.key()) {
            Ok(seq) => seq,
            Err(_) if self.was_applied(settlement).await? => return Ok(Settled::AlreadyApplied),
            Err(stale) => return Ok(Settled::Stale(stale)),
        };
        let children = match self.check_children(seq, settlement).await {
            Ok(children) => children,
            Err(Fault::Said(error)) => return Ok(Settled::Refused(error)),
            Err(fault) => return Err(fault),
        };
        let cancel_asked = self.entry(seq).job.cancel.is_some();
        let state = self.apply(seq, settlement.verdict(cancel_asked), settlement.outcome())?;
        if state == State::Completed {
            self.change(seq).job.result = settlement.result().cloned();
        }
        if let Some(children) = children {
            self.spawn(seq, &children).await?;
        }
        if state.is_terminal() {
            self.conclude(seq).await?;
        }
        Ok(Settled::Applied(state))
    }

    /// Whether this very settlement was written before (L4).
    async fn was_applied(&mut self, settlement: &Settlement) -> Result<bool, Fault> {
        let key = settlement.key();
        let outcome = settlement.outcome();
        let Some(entry) = self.by_id(key.job) else { return Ok(false) };
        let seq = entry.seq;
        if entry.job.state == State::Completed && entry.token == Some(key.token) {
            return Ok(outcome == Outcome::Completed);
        }
        // Those that this very transaction closed are not in the table yet.
        let closed = |(of, token, attempt): &(i64, _, crate::job::AttemptRecord)| {
            *of == seq && *token == key.token && attempt.outcome == Some(outcome)
        };
        if self.closed.iter().any(closed) {
            return Ok(true);
        }
        let parameters: [super::link::Parameter<'_>; 2] = [&seq, &i16::from(outcome.number())];
        let rows = self.link.query(include_str!("sql/attempt_same.sql"), &parameters).await?;
        Ok(rows.iter().any(|row| tokens::of(seq, row.get(0)) == key.token))
    }

    /// Refuses children that cannot be stored, before anything is written.
    async fn check_children(&mut self, parent: i64, settlement: &Settlement) -> Result<Option<Submission>, Fault> {
        if settlement.children().is_empty() {
            return Ok(None);
        }
        let children = Submission::new(settlement.children().to_vec())?;
        let plans = self.plan(&children).await?;
        // A job that has ended waits for nobody, even if it ended with a dependency open.
        let joins = self.fan_ins(parent)?.into_iter().map(|(seq, _)| &self.entry(seq).job);
        let joins: HashSet<JobId> = joins.filter(|job| !job.state.is_terminal()).map(|job| job.id).collect();
        if !joins.is_empty() {
            // What new children wait for among themselves leads to the same jobs in the end.
            let starts: Vec<JobId> = plans.iter().flat_map(Plan::reaches).collect();
            let waits = self.open_ancestors(&starts).await?;
            let waits_for = |id: JobId| waits.get(&id).cloned().unwrap_or_default();
            if let Some(join) = graph::reaches(starts, &joins, waits_for) {
                return Err(Error::DependencyCycle { through: join.to_string() }.into());
            }
        }
        Ok(Some(children))
    }

    /// What these jobs wait for, and what those wait for, and so on.
    async fn open_ancestors(&mut self, starts: &[JobId]) -> Result<HashMap<JobId, Vec<JobId>>, Fault> {
        let mut waits: HashMap<JobId, Vec<JobId>> = HashMap::new();
        let mut wave: Vec<JobId> = starts.to_vec();
        while !wave.is_empty() {
            self.load(wave.iter().copied()).await?;
            let unfinished =
                wave.iter().filter_map(|id| self.by_id(*id)).filter(|entry| !entry.job.state.is_terminal());
            let seqs: Vec<i64> = unfinished.map(|entry| entry.seq).collect();
            self.load_dependencies(&seqs).await?;
            let open = |unit: &Self, seq: i64| -> Vec<i64> {
                unit.dependencies(seq).into_iter().filter(|(_, open)| *open).map(|(edge, _)| edge.0).collect()
            };
            let parents: Vec<i64> = seqs.iter().flat_map(|seq| open(self, *seq)).collect();
            self.load_seqs(parents).await?;
            let mut next = Vec::new();
            for seq in seqs {
                let on = open(self, seq).into_iter().filter_map(|parent| self.get(parent));
                let on: Vec<JobId> = on.map(|entry| entry.job.id).collect();
                next.extend(on.iter().copied().filter(|id| !waits.contains_key(id)));
                waits.insert(self.entry(seq).job.id, on);
            }
            wave = next;
        }
        Ok(waits)
    }

    /// The jobs that wait for this one and all it spawns.
    fn fan_ins(&self, parent: i64) -> Result<Vec<(i64, DependencyKind)>, Fault> {
        let mut joins = Vec::new();
        for ((_, child, kind), open) in self.dependents(parent) {
            let kind = kind_of(kind)?;
            // One that has ended gains nothing to wait for, or it could come back by requeue to wait for itself.
            let waits = self.get(child).is_some_and(|entry| entry.job.state == State::Pending);
            if open && graph::is_fan_in(kind) && waits {
                joins.push((child, kind));
            }
        }
        Ok(joins)
    }

    /// Stores the children of a completed job, and lets its FAN_INs wait for them too.
    async fn spawn(&mut self, parent: i64, children: &Submission) -> Result<(), Fault> {
        let joins = self.fan_ins(parent)?;
        let job = &self.entry(parent).job;
        let origin = Origin { workflow: job.workflow_id, spawned_by: Some(job.id), firing: None };
        // Planned anew: by now their parent has completed.
        let spawned = self.insert_from(children, &origin).await?;
        for (join, kind) in joins {
            self.gain(join, kind, &spawned).await?;
        }
        Ok(())
    }

    async fn gain(&mut self, join: i64, kind: DependencyKind, children: &[InsertedJob]) -> Result<(), Fault> {
        self.load_dependencies(&[join]).await?;
        for child in children {
            let Some(child) = self.seq_of(child.id) else { continue };
            let edge = (child, join, kind_number(kind));
            if self.edge(edge).is_some() || self.entry(join).job.state != State::Pending {
                continue;
            }
            let (state, cause) = (self.entry(child).job.state, self.entry(child).job.root_cause());
            self.set_edge(edge, !state.is_terminal());
            if !state.is_terminal() {
                self.change(join).waits.all += 1;
                self.change(child).slow = true;
            } else if let Edge::Dies(verdict) = graph::edge(kind, state, cause) {
                self.end(join, &verdict, Outcome::Revoked).await?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Settles what it can with one statement, and the rest on the slow path.
    pub(super) async fn settle(self: &Arc<Self>, settlements: &[Settlement]) -> Result<Vec<Settled>, Fault> {
        let mut tries = super::Tries::default();
        let mut answers = loop {
            match self.settle_plain(settlements).await {
                Err(fault) if tries.again(&fault).await => {}
                answer => break answer?,
            }
        };
        let rest: Vec<usize> = (0..answers.len()).filter(|place| answers[*place].is_none()).collect();
        if !rest.is_empty() {
            let slow: Vec<&Settlement> = rest.iter().map(|place| &settlements[*place]).collect();
            for (place, answer) in rest.into_iter().zip(self.settle_slowly(&slow).await?) {
                answers[place] = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Settles on the slow path, and tries again when the transaction lost against another.
    pub(super) async fn settle_slowly(self: &Arc<Self>, settlements: &[&Settlement]) -> Result<Vec<Settled>, Fault> {
        super::in_unit!(self, unit, unit.settle(settlements).await)
    }
}
