//! Looks for contradictions: everything the indexes say must follow from the jobs, and the jobs from the rules.

use super::tables::Tables;
use crate::job::{JobId, State};
use crate::store::rules::Entry;
use crate::time::Timestamp;

impl Tables {
    pub(super) fn contradictions(&self, now: Timestamp) -> Vec<String> {
        let mut found = Vec::new();
        for entry in self.jobs.values().map(|stored| &stored.entry) {
            let problems = self.problems(entry, now);
            found.extend(problems.into_iter().map(|problem| format!("job {}: {problem}", entry.job.id)));
        }
        let sizes = [
            ("ids", self.ids.len(), self.jobs.len()),
            ("ended", self.ended.len() + self.ended_own.len(), self.in_state(State::is_terminal)),
            ("prunes", self.prunes.len(), self.ended_own.len()),
            ("leases", self.leases.len(), self.in_state(|state| state == State::Running)),
            ("due", self.due.len(), self.in_state(|state| matches!(state, State::Delayed | State::Retrying))),
            (
                "lanes",
                self.queues.values().flat_map(|queue| queue.lanes.values()).map(|lane| lane.len()).sum(),
                self.in_state(|state| state == State::Scheduled),
            ),
        ];
        for (index, has, wants) in sizes {
            if has != wants {
                found.push(format!("index {index} has {has} entries for {wants} jobs"));
            }
        }
        for (name, control) in self.queues.iter().filter_map(|(name, queue)| Some((name, queue.control.as_ref()?))) {
            let of = |state: State| {
                self.jobs
                    .values()
                    .filter(|stored| stored.entry.job.spec.queue == *name && stored.entry.job.state == state)
                    .count()
            };
            let running = control.queue.running;
            let waiting: usize = control.keys.values().map(super::strands::Keyed::waiting).sum();
            if (running as usize, waiting) != (of(State::Running), of(State::Scheduled)) {
                found.push(format!(
                    "the gates of queue {name} count {running} running and {waiting} waiting jobs, but there are others"
                ));
            }
        }
        for state in State::ALL {
            let counted: u64 = self.queues.values().map(|queue| queue.states[usize::from(state.number())]).sum();
            if counted != self.in_state(|is| is == state) as u64 {
                found.push(format!("the queues count {counted} jobs as {state}, but there are others"));
            }
        }
        if self.accepted != self.jobs.len() as u64 + self.pruned {
            found.push(format!("{} accepted, but {} here and {} pruned", self.accepted, self.jobs.len(), self.pruned));
        }
        found
    }

    fn in_state(&self, wanted: impl Fn(State) -> bool) -> usize {
        self.jobs.values().filter(|stored| wanted(stored.entry.job.state)).count()
    }

    fn problems(&self, entry: &Entry, now: Timestamp) -> Vec<&'static str> {
        let job = &entry.job;
        let ended = job.state.is_terminal();
        let mut queue = self.queues.get(&job.spec.queue).into_iter();
        let in_lane = queue.any(|queue| {
            let lane = queue.lanes.get(&job.spec.job_type);
            lane.is_some_and(|lane| lane.contains(&job.claim_order(entry.sequence)))
        });
        let rules = [
            (self.ids.get(&job.id) == Some(&entry.sequence), "its id leads elsewhere"),
            ((job.state == State::Scheduled) == in_lane, "its lane and its state disagree"),
            ((job.state == State::Running) == job.lease.is_some(), "its lease and its state disagree"),
            (entry.token.is_some() == job.lease.is_some(), "it has a lease without a token, or the reverse"),
            (ended == job.completed_at.is_some(), "its end and its state disagree"),
            (job.reason.is_some() == (ended && job.state != State::Completed), "its reason and its state disagree"),
            (
                (job.state == State::Pending) != entry.waits.is_over() || ended,
                "it waits for nothing, or runs too early",
            ),
            (job.failures <= job.spec.options.retry.max_attempts, "it failed more often than it may"),
            (job.lease.as_ref().is_none_or(|lease| lease.version == job.lease_version), "its lease is not its newest"),
            (job.run_at.is_none_or(|at| at > now || job.state == State::Pending), "it is due but not scheduled"),
            (job.cancel.is_none() || job.state == State::Running, "it was asked to stop but does not run"),
            (self.waits_for_the_living(job.id), "it waits for a job that has ended"),
        ];
        rules.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem).collect()
    }

    fn waits_for_the_living(&self, id: JobId) -> bool {
        let mut open = self.edges.dependencies(id).filter(|(_, open)| *open);
        open.all(|(edge, _)| self.by_id(edge.parent).is_some_and(|stored| !stored.entry.job.state.is_terminal()))
    }
}
