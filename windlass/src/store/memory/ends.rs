//! What happens to a job, and what its end does to the jobs that depend on it, all in one transaction (W4, X3).

use super::insert::Origin;
use super::tables::{Sequence, Tables};
use crate::job::{DependencyKind, JobId, Outcome, State, Verdict};
use crate::store::answer::{JobEventKind, Wake};
use crate::time::Timestamp;
use crate::workflow::graph::{self, Edge};
use crate::workflow::{Submission, webhook_of};

impl Tables {
    /// Applies a decision and everything that follows from it.
    pub(super) fn end(&mut self, sequence: Sequence, verdict: &Verdict, outcome: Outcome, now: Timestamp) -> State {
        let ended_before = self.entry(sequence).job.state.is_terminal();
        let state = self.apply(sequence, verdict, outcome, now);
        if ended_before {
            // A FAILED job that an operator dead-letters: who waited for its end has been told.
            self.event(sequence, JobEventKind::Ended(state));
        } else if state.is_terminal() {
            self.conclude(sequence, now);
        }
        state
    }

    /// Applies a decision to one job; [`conclude`](Self::conclude) must follow if it is then terminal.
    pub(super) fn apply(&mut self, sequence: Sequence, verdict: &Verdict, outcome: Outcome, now: Timestamp) -> State {
        self.update(sequence, |entry| {
            let token = entry.token.take();
            let closed = entry.job.apply(verdict, outcome, now).expect("the core decides for the state it was shown");
            if let Some((token, attempt)) = token.zip(closed) {
                entry.close(token, attempt);
            }
            entry.job.state
        })
    }

    /// Tells the world that a job has ended: its webhook, and the jobs that wait for it, on through the graph.
    pub(super) fn conclude(&mut self, sequence: Sequence, now: Timestamp) {
        let mut ended = vec![sequence];
        while let Some(sequence) = ended.pop() {
            let job = &self.entry(sequence).job;
            let (id, state, cause) = (job.id, job.state, job.root_cause());
            let webhook = webhook_of(job);
            self.event(sequence, JobEventKind::Ended(state));
            self.hint(Wake::Ended(id));
            if let Some(spec) = webhook {
                let submission = Submission::new(vec![spec]).expect("one job is a batch");
                self.insert_from(&submission, &Origin::default(), now).expect("the job it depends on exists");
            }
            let dependents = self.entry(sequence).dependents.clone();
            for dependent in dependents {
                if self.jobs.contains_key(&dependent) && self.tell(dependent, id, state, cause, now) {
                    ended.push(dependent);
                }
            }
        }
    }

    /// Tells a dependent that a job it waits for has ended; says whether it died of that.
    fn tell(&mut self, dependent: Sequence, on: JobId, end: State, cause: JobId, now: Timestamp) -> bool {
        let entry = self.entry_mut(dependent);
        let (told, open): (Vec<_>, Vec<_>) = entry.open.iter().partition(|(parent, _)| *parent == on);
        entry.open = open;
        if entry.job.state != State::Pending {
            return false;
        }
        let mut death = None;
        for (_, kind) in told {
            match graph::edge(kind, end, cause) {
                Edge::Met => entry.waits.all -= 1,
                Edge::AnyMet => entry.waits.any = false,
                Edge::Dies(verdict) => death = Some(verdict),
            }
        }
        if let Some(verdict) = death {
            self.apply(dependent, &verdict, Outcome::Revoked, now);
            return true;
        }
        if entry.waits.is_over() {
            self.update(dependent, |entry| entry.job.dependencies_met(now)).expect("it is PENDING");
        }
        false
    }

    /// Those of these dependencies whose job exists and has not ended.
    pub(super) fn unfinished(&self, edges: &[(JobId, DependencyKind)]) -> Vec<(JobId, DependencyKind)> {
        let open = edges.iter().filter(|(on, _)| self.by_id(*on).is_some_and(|entry| !entry.job.state.is_terminal()));
        open.copied().collect()
    }

    /// An unfinished job that depends on this one, which must therefore be kept (O4).
    pub(super) fn needed_by(&self, sequence: Sequence) -> Option<JobId> {
        let dependents = self.entry(sequence).dependents.iter();
        let jobs = dependents.filter_map(|dependent| self.jobs.get(dependent).map(|entry| &entry.job));
        jobs.filter(|job| !job.state.is_terminal()).map(|job| job.id).next()
    }
}
