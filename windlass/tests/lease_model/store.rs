//! The smallest store: it checks the token and the time, applies what the library decided, and remembers how closed
//! attempts ended. Every decision comes from the library; [`Rules`] can bend the answers to see whether that is noticed.

use windlass::job::{CancelVerdict, Event, Lease, Outcome, ReasonKind, RequeueOptions, Settlement, Stale, Verdict};
use windlass::{Failure, State};

use super::key::{Fixed, JobKey, LEASE, NOW, TICK, moment, token};

/// Tokens that can be known to anybody at once: a lease and a letter of each of two workers, and the store's own.
pub(crate) const TOKENS: usize = 5;

/// Whether the store keeps the contract, or which rule it breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rules {
    /// All are kept.
    Kept,
    /// Lost attempts are not counted as failures (against R2).
    LostNotCounted,
    /// The job is given up one failure too late (against R2).
    ExhaustedLate,
    /// A write under an expired lease is accepted while nobody has reclaimed the job (against L3).
    ExpiredAccepted,
    /// Every writer is taken for the holder (against L2).
    TokenIgnored,
    /// How attempts ended is not remembered (against L4).
    RepeatsForgotten,
    /// Upkeep applies a decision made from an older reading without checking that it is still about the same lease.
    OldReadingApplied,
}

/// What a handler says at the end of its attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Said {
    Complete,
    FailTemporarily,
    FailForGood,
    DeadLetter,
    Snooze,
    Cancel,
    Release,
    Interrupt,
}

impl Said {
    pub(crate) const ALL: [Said; 8] = [
        Said::Complete,
        Said::FailTemporarily,
        Said::FailForGood,
        Said::DeadLetter,
        Said::Snooze,
        Said::Cancel,
        Said::Release,
        Said::Interrupt,
    ];

    /// Whether it neither counts nor ends the job, so that a handler could go on saying it for ever.
    pub(crate) fn is_free(self) -> bool {
        matches!(self, Said::Snooze | Said::Release | Said::Interrupt)
    }

    fn of(self, lease: Lease) -> Settlement {
        match self {
            Said::Complete => lease.complete(None),
            Said::FailTemporarily => lease.fail(Failure::temporary("again"), &mut || 0.5),
            Said::FailForGood => lease.fail(Failure::permanent("no", "never"), &mut || 0.5),
            Said::DeadLetter => lease.fail(Failure::dead_letter("no", "give up"), &mut || 0.5),
            Said::Snooze => lease.snooze(TICK),
            Said::Cancel => lease.cancel(),
            Said::Release => lease.release(),
            Said::Interrupt => lease.interrupt(),
        }
    }
}

/// What a store answers to a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Answer {
    Applied,
    AlreadyApplied,
    Stale(Stale),
}

/// What upkeep read when it found the lease expired.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Reading {
    version: u8,
    failures: u8,
    cancel_asked: bool,
}

/// The store: one job, the token it is leased under, and how attempts ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Store {
    pub(crate) job: JobKey,
    /// The token of the current lease.
    pub(crate) token: Option<u8>,
    /// How the attempt under each token ended, where somebody may still ask.
    closed: [Option<Outcome>; TOKENS],
}

/// A store at work: what is kept, and the library's code that decides about it.
pub(crate) struct Desk<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) fixed: &'a Fixed,
    pub(crate) rules: Rules,
}

impl Store {
    pub(crate) fn new(fixed: &Fixed) -> Self {
        Store { job: fixed.submitted(), token: None, closed: [None; TOKENS] }
    }

    /// Forgets how attempts ended whose token nobody has any more: it cannot make a difference, and saves states.
    pub(crate) fn forget_all_but(&mut self, known: &[bool; TOKENS]) {
        for (closed, known) in self.closed.iter_mut().zip(known) {
            *closed = closed.filter(|_| *known);
        }
    }

    /// Renumbers the tokens of closed attempts.
    pub(crate) fn rename_closed(&mut self, mut name: impl FnMut(u8) -> u8) {
        let closed = std::mem::take(&mut self.closed);
        for (token, outcome) in (0u8..).zip(closed).filter(|(_, outcome)| outcome.is_some()) {
            self.closed[usize::from(name(token))] = outcome;
        }
    }

    /// Whether the lease has expired and nobody has noticed.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.job.lease == Some(0)
    }

    /// Upkeep looks for an expired lease.
    pub(crate) fn read_lapsed(&self) -> Option<Reading> {
        let JobKey { lease_version: version, failures, cancel_asked, .. } = self.job;
        self.has_lapsed().then_some(Reading { version, failures, cancel_asked })
    }
}

impl Desk<'_> {
    /// A claim; the caller drew a token that nobody else knows.
    pub(crate) fn claim(&mut self, new: u8) {
        let mut record = self.fixed.record(&self.store.job);
        record.claim(&self.fixed.worker, Some(LEASE), NOW).expect("only SCHEDULED jobs are claimed");
        self.store.job = JobKey::of(&record);
        self.store.token = Some(new);
    }

    /// Whether a write under this token is allowed (L2, L3).
    fn check(&self, number: u8) -> Result<(), Stale> {
        let job = &self.store.job;
        let matches = self.store.token == Some(number) || self.rules == Rules::TokenIgnored;
        match Stale::check(job.state == State::Running, job.lease.map(moment), NOW, matches) {
            Err(Stale::Expired) if self.rules == Rules::ExpiredAccepted && matches => Ok(()),
            checked => checked,
        }
    }

    /// A heartbeat (L5).
    pub(crate) fn extend(&mut self, number: u8) -> Result<(), Stale> {
        self.check(number)?;
        let mut record = self.fixed.record(&self.store.job);
        record.extend(Some(LEASE), NOW);
        self.store.job = JobKey::of(&record);
        Ok(())
    }

    /// A settlement, decided by a holder who saw `failures` at its claim.
    pub(crate) fn settle(&mut self, number: u8, failures: u8, said: Said) -> Answer {
        let claimed = self.fixed.record(&JobKey { failures, ..self.store.job });
        let settlement = said.of(Lease::granted(&claimed, token(number)));
        assert_eq!(settlement.key().token, token(number), "a settlement carries the token of its lease");
        if self.store.closed[usize::from(number)] == Some(settlement.outcome()) {
            return Answer::AlreadyApplied;
        }
        if let Err(stale) = self.check(number) {
            return Answer::Stale(stale);
        }
        let verdict = settlement.verdict(self.store.job.cancel_asked).clone();
        self.apply(verdict, settlement.outcome());
        Answer::Applied
    }

    /// Upkeep ends an expired lease, deciding on the job as it is now: what a store does that holds a lock.
    pub(crate) fn reclaim(&mut self) {
        let (verdict, outcome) = Verdict::of_expiry(&self.fixed.record(&self.store.job), &mut || 0.5);
        self.apply(verdict, outcome);
    }

    /// Upkeep ends an expired lease, having decided on the job as it was read: what a store does that holds no lock.
    ///
    /// The statement that writes names what the decision rests on. Gives whether it found it so.
    pub(crate) fn reclaim_as_read(&mut self, reading: Reading) -> bool {
        let same = self.store.read_lapsed() == Some(reading);
        let lapsed = self.store.has_lapsed() && self.rules == Rules::OldReadingApplied;
        if same || lapsed {
            let Reading { version: lease_version, failures, cancel_asked } = reading;
            let read = JobKey { lease_version, failures, cancel_asked, ..self.store.job };
            let (verdict, outcome) = Verdict::of_expiry(&self.fixed.record(&read), &mut || 0.5);
            self.apply(verdict, outcome);
        }
        same || lapsed
    }

    /// Somebody cancels.
    pub(crate) fn cancel(&mut self, force: bool) {
        let record = self.fixed.record(&self.store.job);
        match Verdict::of_cancel(&record, force, Some("operator"), "").expect("only jobs that have not ended") {
            CancelVerdict::Now(verdict) => self.apply(verdict, Outcome::Revoked),
            CancelVerdict::Ask => self.store.job.cancel_asked = true,
        }
    }

    /// The lifetime is over.
    pub(crate) fn end_lifetime(&mut self) {
        self.apply(Verdict::of_lifetime(), Outcome::Revoked);
    }

    /// `run_at` was reached.
    pub(crate) fn fall_due(&mut self) {
        let mut record = self.fixed.record(&self.store.job);
        record.fall_due().expect("only waiting jobs fall due");
        self.store.job = JobKey::of(&record);
    }

    /// An operator sends the dead job back.
    pub(crate) fn requeue(&mut self) {
        let mut record = self.fixed.record(&self.store.job);
        record.requeue(&RequeueOptions::default(), false, NOW).expect("only dead jobs are requeued");
        self.store.job = JobKey::of(&record);
    }

    fn apply(&mut self, verdict: Verdict, outcome: Outcome) {
        let verdict = self.bent(verdict);
        let mut record = self.fixed.record(&self.store.job);
        let attempt = record.apply(&verdict, outcome, NOW).expect("the library decides only what it allows");
        let token = self.store.token.take();
        assert_eq!(attempt.is_some(), token.is_some(), "an attempt is closed exactly when a lease ends");
        if let (Some(attempt), Some(token)) = (attempt, token)
            && self.rules != Rules::RepeatsForgotten
        {
            self.store.closed[usize::from(token)] = attempt.outcome;
        }
        self.store.job = JobKey::of(&record);
    }

    /// The library's decision, or what a store makes of it that breaks a rule.
    fn bent(&self, verdict: Verdict) -> Verdict {
        let last = u32::from(self.store.job.failures) + 1 == self.fixed.spec.options.retry.max_attempts;
        let exhausted = verdict.reason.as_ref().is_some_and(|reason| reason.kind == ReasonKind::Exhausted);
        match self.rules {
            Rules::LostNotCounted if verdict.lost => Verdict { counted: false, ..verdict },
            Rules::ExhaustedLate if exhausted && last => {
                let event = if verdict.lost { Event::LeaseLost } else { Event::Retried };
                Verdict { event, reason: None, delay: Some(TICK), ..verdict }
            }
            _ => verdict,
        }
    }
}
