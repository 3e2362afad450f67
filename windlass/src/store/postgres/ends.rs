//! What happens to a job, and what its end does to the jobs that depend on it, all in one transaction (W4, X3).

use std::future::Future;
use std::pin::Pin;

use super::fault::Fault;
use super::plan::Origin;
use super::rows;
use super::unit::{Unit, kind_of};
use crate::job::{JobId, Outcome, State, Verdict};
use crate::store::answer::Wake;
use crate::workflow::graph::{self, Edge};
use crate::workflow::{Submission, webhook_of};

impl Unit<'_> {
    /// Applies a decision and everything that follows from it.
    pub(super) async fn end(&mut self, seq: i64, verdict: &Verdict, outcome: Outcome) -> Result<State, Fault> {
        let ended_before = self.entry(seq).job.state.is_terminal();
        let state = self.apply(seq, verdict, outcome)?;
        // A FAILED job that an operator dead-letters has ended before, and the world has been told.
        if state.is_terminal() && !ended_before {
            self.conclude(seq).await?;
        }
        Ok(state)
    }

    /// Applies a decision to one job; [`conclude`](Self::conclude) must follow if it is then terminal.
    pub(super) fn apply(&mut self, seq: i64, verdict: &Verdict, outcome: Outcome) -> Result<State, Fault> {
        let now = self.now;
        let entry = self.change(seq);
        let token = entry.token.filter(|_| entry.job.state == State::Running);
        let closed = entry.job.apply(verdict, outcome, now).map_err(|_| rows::corrupt("a job in another state"))?;
        let state = entry.job.state;
        if let Some((token, attempt)) = token.zip(closed) {
            self.closed.push((seq, token, attempt));
        }
        self.hint_scheduled(seq);
        Ok(state)
    }

    /// Tells whoever waits that a job can be claimed.
    pub(super) fn hint_scheduled(&mut self, seq: i64) {
        let job = &self.entry(seq).job;
        if job.state == State::Scheduled {
            let hint = Wake::Scheduled(job.spec.queue.clone());
            if self.hints.last() != Some(&hint) {
                self.hints.push(hint);
            }
        }
    }

    /// Tells the world that a job has ended: its webhook, and the jobs that wait for it, on through the graph.
    ///
    /// Boxed, since a webhook is a job that is inserted, and what is inserted may end at once.
    pub(super) fn conclude(&mut self, seq: i64) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + '_>> {
        Box::pin(async move {
            let mut ended = vec![seq];
            while let Some(seq) = ended.pop() {
                let entry = self.entry(seq);
                let (job, lane) = (&entry.job, entry.lane);
                let (id, state, cause) = (job.id, job.state, job.root_cause());
                let webhook = webhook_of(job);
                self.events.push((lane, i16::from(state.number()), seq));
                self.hints.push(Wake::Ended(id));
                self.load_dependents(&[seq]).await?;
                if let Some(spec) = webhook {
                    self.insert_from(&Submission::new(vec![spec])?, &Origin::default()).await?;
                }
                for dependent in self.dependent_seqs(seq) {
                    if self.tell(dependent, seq, state, cause)? {
                        ended.push(dependent);
                    }
                }
            }
            Ok(())
        })
    }

    /// Tells a dependent that a job it waits for has ended; says whether it died of that.
    fn tell(&mut self, dependent: i64, on: i64, end: State, cause: JobId) -> Result<bool, Fault> {
        let edges = self.dependents(on);
        let told: Vec<_> = edges.into_iter().filter(|(edge, open)| edge.1 == dependent && *open).collect();
        let pending = self.entry(dependent).job.state == State::Pending;
        let mut death = None;
        for (edge, _) in told {
            self.set_edge(edge, false);
            if !pending {
                continue;
            }
            match graph::edge(kind_of(edge.2)?, end, cause) {
                Edge::Met => {
                    let waits = &mut self.change(dependent).waits;
                    waits.all = waits.all.saturating_sub(1);
                }
                Edge::AnyMet => self.change(dependent).waits.any = false,
                Edge::Dies(verdict) => death = Some(verdict),
            }
        }
        if let Some(verdict) = death {
            self.apply(dependent, &verdict, Outcome::Revoked)?;
            return Ok(true);
        }
        if pending && self.entry(dependent).waits.is_over() {
            let now = self.now;
            let met = self.change(dependent).job.dependencies_met(now);
            met.map_err(|_| rows::corrupt("a job in another state"))?;
            self.hint_scheduled(dependent);
        }
        Ok(false)
    }
}
