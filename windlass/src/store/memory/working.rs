//! The way into the rules over several jobs and back: what they need is put into a working set, and what they changed is
//! written down. Everything is at hand, so this is also the shortest example of the two.

use super::tables::Tables;
use crate::error::Error;
use crate::job::State;
use crate::store::answer::Wake;
use crate::store::new_job_id;
use crate::store::rules::{Changes, Missing, Run, ScheduleWrite, Stop, WorkingSet};
use crate::time::Timestamp;
use crate::workflow::Identity;

impl Tables {
    /// Runs a rule and writes down what it changed; an error has changed nothing.
    pub(super) fn run<T>(
        &mut self,
        now: Timestamp,
        rule: impl FnMut(&mut WorkingSet) -> Result<T, Stop>,
    ) -> Result<T, Error> {
        let mut set = WorkingSet::new(now);
        set.hold_leases(self.fence);
        let mut run = Run::new(rule);
        loop {
            match run.step(&mut set) {
                Ok(answer) => {
                    self.write(set.finish(), now);
                    return Ok(answer);
                }
                Err(Stop::Missing(missing)) => self.load(&mut set, missing, now),
                Err(Stop::Refused(error)) => return Err(error),
            }
        }
    }

    fn load(&mut self, set: &mut WorkingSet, missing: Missing, now: Timestamp) {
        match missing {
            Missing::Jobs(ids) => ids.into_iter().for_each(|id| self.load_job(set, id)),
            Missing::Dependents(ids) => {
                for id in ids {
                    for (edge, open) in self.edges.dependents(id) {
                        set.put_edge(edge, open);
                        self.load_job(set, edge.child);
                    }
                    set.know_dependents(id);
                }
            }
            Missing::Dependencies(ids) => {
                for id in ids {
                    for (edge, open) in self.edges.dependencies(id) {
                        set.put_edge(edge, open);
                        self.load_job(set, edge.parent);
                    }
                    set.know_dependencies(id);
                }
            }
            Missing::Keys(keys) => {
                for key in keys {
                    let held = self.held(&key, now);
                    set.put_key(key, held);
                }
            }
            Missing::Attempt(key, outcome) => {
                let was_closed = self.by_id(key.job).is_some_and(|stored| {
                    let mut closed = stored.closed.iter();
                    closed.any(|(token, attempt)| *token == key.token && attempt.outcome == Some(outcome))
                });
                set.put_attempt(key, outcome, was_closed);
            }
            Missing::Identities(count) => {
                for _ in 0..count {
                    set.put_identity(Identity { sequence: self.draw_sequence(), id: new_job_id() });
                }
            }
        }
    }

    fn load_job(&self, set: &mut WorkingSet, id: crate::job::JobId) {
        match self.by_id(id) {
            Some(stored) => set.put(stored.entry.clone()),
            None => set.put_absent(id),
        }
    }

    fn write(&mut self, changes: Changes, now: Timestamp) {
        changes.new.into_iter().for_each(|entry| self.add(entry));
        for kept in changes.keys {
            let look_at = kept.look_at(now);
            self.keep_key(kept, look_at);
        }
        for change in changes.changed {
            if change.before.job.state == State::Running && change.after.job.state != State::Running {
                self.hint_freed(&change.after.job.spec.queue);
            }
            self.update(change.after.sequence, |entry| *entry = change.after);
        }
        self.hold_gates(changes.holds);
        for change in changes.edges {
            self.edges.set(change.edge, change.open);
        }
        for closed in changes.attempts {
            let sequence = self.ids[&closed.job];
            self.count_attempt(sequence, closed.attempt.outcome);
            self.stored_mut(sequence).close(closed.token, closed.attempt);
        }
        for (id, kind) in changes.events {
            // A job that was removed has no more to tell.
            if let Some(job) = self.by_id(id).map(|stored| stored.entry.job.clone()) {
                self.event(&job, kind);
            }
        }
        for entry in changes.removed {
            self.remove(entry.sequence);
        }
        for act in changes.acts {
            self.record_act(act);
        }
        for write in changes.schedules {
            let _ = match write {
                ScheduleWrite::Put(schedule) => self.schedules.insert(schedule.spec.name.clone(), schedule),
                ScheduleWrite::Delete(name) => self.schedules.remove(&name),
            };
        }
        changes.wakes.into_iter().for_each(|wake: Wake| self.hint(wake));
    }
}
