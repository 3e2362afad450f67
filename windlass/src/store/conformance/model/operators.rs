//! The model's rules for what operators and upkeep do.

use std::time::Duration;

use super::endings::Ending;
use super::history::{ActDraft, Kept, QUEUES_KEPT, TYPES_KEPT};
use super::reference::{Model, ModelJob, Name, seconds};
use crate::job::{Category, Outcome, ReasonKind, State};
use crate::time::Timestamp;

/// How long after the end of the last job that needed it an ended job may still be passed over by retention.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// What the model expects of a step of upkeep, retention aside.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct ModelUpkeep {
    pub(super) lifetimes: usize,
    pub(super) expired: usize,
    /// Whether a lifetime or a lease is left that has ended.
    pub(super) left: bool,
}

impl Model {
    /// An operator acts on one job; gives the name of the error it is refused with.
    pub(super) fn act(&mut self, name: Name, act: ActDraft, by: &str, dry_run: bool) -> Result<(), &'static str> {
        if self.jobs[name].gone {
            return Err("NotFound");
        }
        let state = self.jobs[name].state;
        match act {
            ActDraft::Cancel { force } => self.cancel(name, force, by, dry_run),
            ActDraft::DeadLetter => {
                if matches!(state, State::Completed | State::Cancelled | State::DeadLetter) {
                    return Err("IllegalState");
                }
                let ending = Ending::of(State::DeadLetter, Outcome::Revoked).because(ReasonKind::Explicit).by(by);
                let ending = match state {
                    State::Failed => ending,
                    _ => ending.failing(Category::System, Some("operator")),
                };
                if !dry_run {
                    self.end(name, &ending);
                }
                Ok(())
            }
            ActDraft::Requeue { delay, keep_counters, with_dependents } => {
                let run_at = delay.map(|delay| self.now.plus(seconds(delay.into())));
                self.requeue(name, run_at, keep_counters, with_dependents, dry_run)
            }
            ActDraft::Delete => {
                if self.jobs[name].unfinished() {
                    return Err("IllegalState");
                }
                if self.is_needed(name) {
                    return Err("Conflict");
                }
                if !dry_run {
                    self.remove(name);
                }
                Ok(())
            }
            ActDraft::Edit { priority, tag } => {
                if priority.is_some() && (state == State::Running || !self.jobs[name].unfinished()) {
                    return Err("IllegalState");
                }
                if !dry_run {
                    let job = &mut self.jobs[name];
                    let before = job.effective();
                    job.priority = priority.unwrap_or(job.priority);
                    job.tag = tag.or(job.tag);
                    if job.effective() != before {
                        self.followed(name);
                    }
                }
                Ok(())
            }
        }
    }

    fn cancel(&mut self, name: Name, force: bool, by: &str, dry_run: bool) -> Result<(), &'static str> {
        if !self.jobs[name].unfinished() {
            return Err("IllegalState");
        }
        if dry_run {
            return Ok(());
        }
        let running = self.jobs[name].state == State::Running;
        if running && !force {
            let now = self.now;
            self.jobs[name].cancel.get_or_insert_with(|| (by.to_owned(), now));
            self.count("asked to stop");
            return Ok(());
        }
        let ending = Ending::of(State::Cancelled, Outcome::Revoked).because(ReasonKind::Cancelled).by(by);
        let ending = if running { ending.failing(Category::Cancelled, Some("cancelled")) } else { ending };
        self.end(name, &ending);
        Ok(())
    }

    fn requeue(
        &mut self,
        name: Name,
        run_at: Option<Timestamp>,
        keep_counters: bool,
        with_dependents: bool,
        dry_run: bool,
    ) -> Result<(), &'static str> {
        let job = &self.jobs[name];
        if !matches!(job.state, State::Failed | State::DeadLetter) {
            return Err("IllegalState");
        }
        let run_at = run_at.filter(|run_at| *run_at > self.now);
        let deadline = job.plan.draft.lifetime.map(|lifetime| self.now.plus(seconds(lifetime)));
        if run_at.zip(deadline).is_some_and(|(run_at, deadline)| run_at >= deadline) {
            return Err("InvalidArgument");
        }
        if dry_run {
            return Ok(());
        }
        let mut back = vec![name];
        let mut next = 0;
        while with_dependents && next < back.len() {
            for dependent in 0..self.jobs.len() {
                if !back.contains(&dependent) && self.depends_on(dependent, back[next]) && self.died_of(dependent, name)
                {
                    back.push(dependent);
                    self.count("requeued along");
                }
            }
            next += 1;
        }
        // All of them are back before any looks at what it must wait for.
        for job in &back {
            self.come_back(*job, keep_counters);
        }
        for job in &back {
            self.wait_again(*job, run_at.filter(|_| *job == name));
        }
        Ok(())
    }

    fn depends_on(&self, dependent: Name, on: Name) -> bool {
        !self.jobs[dependent].gone && self.jobs[dependent].edges.iter().any(|edge| edge.on == on)
    }

    pub(super) fn died_of(&self, name: Name, cause: Name) -> bool {
        let job = &self.jobs[name];
        matches!(job.state, State::Failed | State::DeadLetter)
            && job.reason.as_ref().is_some_and(|reason| reason.kind == ReasonKind::Dependency)
            && job.reason.as_ref().and_then(|reason| reason.cause) == Some(cause)
    }

    fn come_back(&mut self, name: Name, keep_counters: bool) {
        let now = self.now;
        let job = &mut self.jobs[name];
        job.state = State::Pending;
        job.generation += 1;
        if keep_counters {
            job.failures = job.failures.min(u32::from(job.plan.draft.policy.attempts) - 1);
        } else {
            (job.attempt, job.failures, job.lost) = (0, 0, 0);
        }
        job.deadline = job.plan.draft.lifetime.map(|lifetime| now.plus(seconds(lifetime)));
        job.reason = None;
        job.completed_at = None;
        job.result = None;
        job.updated_at = now;
    }

    fn wait_again(&mut self, name: Name, run_at: Option<Timestamp>) {
        for place in 0..self.jobs[name].edges.len() {
            let on = self.jobs[name].edges[place].on;
            self.jobs[name].edges[place].met = !self.jobs[on].unfinished();
        }
        self.jobs[name].run_at = run_at;
        self.release_if_free(name);
    }

    /// Whether an unfinished job depends on this one.
    pub(super) fn is_needed(&self, name: Name) -> bool {
        self.jobs.iter().any(|job| job.unfinished() && job.edges.iter().any(|edge| edge.on == name))
    }

    pub(super) fn remove(&mut self, name: Name) {
        self.jobs[name].gone = true;
        self.pruned += 1;
        if let Some(workflow) = self.jobs[name].workflow {
            self.workflows[workflow] += 1;
        }
    }

    /// Lifetimes and leases; what retention removes is the store's choice among [`Model::prunable`].
    pub(super) fn upkeep(&mut self, limit: usize) -> ModelUpkeep {
        let mut report = ModelUpkeep::default();
        while report.lifetimes < limit
            && let Some(name) = self.outlived()
        {
            let ending = Ending::of(State::DeadLetter, Outcome::Revoked).because(ReasonKind::Lifetime);
            self.end(name, &ending.failing(Category::Timeout, Some("lifetime")));
            self.count("lifetime ended");
            report.lifetimes += 1;
        }
        while report.expired < limit
            && let Some(name) = self.lapsed()
        {
            let ending = self.ending_of_expiry(name);
            self.end(name, &ending);
            self.count("lease expired");
            report.expired += 1;
        }
        report.left = self.outlived().is_some() || self.lapsed().is_some();
        report
    }

    fn outlived(&self) -> Option<Name> {
        let over = |name: &Name| self.jobs[*name].deadline.is_some_and(|deadline| deadline <= self.now);
        let unfinished = (0..self.jobs.len()).filter(|name| self.jobs[*name].unfinished());
        unfinished.filter(over).min_by_key(|name| (self.jobs[*name].deadline, self.jobs[*name].sequence))
    }

    fn lapsed(&self) -> Option<Name> {
        let end = |name: &Name| self.jobs[*name].lease.map(|lease| lease.expires_at);
        let lapsed = (0..self.jobs.len()).filter(|name| end(name).is_some_and(|end| end <= self.now));
        lapsed.min_by_key(|name| (end(name), self.jobs[*name].sequence))
    }

    /// The jobs that retention may remove now; `kept` holds where nothing was said for the job, its type or its queue.
    pub(super) fn prunable(&self, kept: Option<Duration>) -> Vec<Name> {
        let old = |name: &Name| {
            let job = &self.jobs[*name];
            let kept = job.own_kept().unwrap_or(kept);
            let over = |at: Timestamp| kept.is_some_and(|kept| at.plus(kept) <= self.now);
            !job.gone && !job.unfinished() && job.completed_at.is_some_and(over)
        };
        (0..self.jobs.len()).filter(old).filter(|name| !self.is_needed(*name)).collect()
    }

    /// Whether a job was needed so recently that a store may not have noticed that it no longer is (O4).
    pub(super) fn was_needed_lately(&self, name: Name) -> bool {
        let lately = |at: Timestamp| at.plus(NOTICED_WITHIN) > self.now;
        let needed = |job: &ModelJob| job.edges.iter().any(|edge| edge.on == name);
        self.jobs.iter().any(|job| job.completed_at.is_some_and(lately) && needed(job))
    }
}

impl ModelJob {
    /// How long the job is kept now that it has ended so, if that was said for it, its type or its queue.
    pub(super) fn own_kept(&self) -> Option<Option<Duration>> {
        let place = match self.state {
            State::Completed => 0,
            State::Cancelled => 1,
            State::Failed => 2,
            State::DeadLetter => 3,
            _ => return None,
        };
        let draft = &self.plan.draft;
        let named = |all: &[Kept], number: u8| all.get(usize::from(number)).and_then(|kept| kept.0[place]);
        let said = draft.kept.0[place].or(named(&TYPES_KEPT, draft.job_type)).or(named(&QUEUES_KEPT, draft.queue));
        said.map(|kept| kept.map(|kept| seconds(kept.into())))
    }
}
