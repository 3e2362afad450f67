//! The model's rules for how attempts and jobs end, and what that does to the jobs that depend on them.

use super::history::{Policy, Say};
use super::keys::firsts;
use super::reference::{Model, ModelEdge, ModelJob, ModelReason, ModelSettled, Name, Plan, seconds};
use crate::job::{Category, DependencyKind, Outcome, ReasonKind, State};
use crate::time::Timestamp;

use std::time::Duration;

/// How an attempt or a job ends.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) state: State,
    /// How the attempt ended, if one was running.
    pub(super) outcome: Outcome,
    pub(super) counted: bool,
    pub(super) lost: bool,
    pub(super) delay: Duration,
    pub(super) failure: Option<(Category, Option<&'static str>)>,
    pub(super) reason: Option<ModelReason>,
}

impl Ending {
    pub(super) fn of(state: State, outcome: Outcome) -> Self {
        Ending { state, outcome, counted: false, lost: false, delay: Duration::ZERO, failure: None, reason: None }
    }

    pub(super) fn because(self, kind: ReasonKind) -> Self {
        Ending { reason: Some(ModelReason { kind, by: None, cause: None }), ..self }
    }

    pub(super) fn by(mut self, by: &str) -> Self {
        if let Some(reason) = &mut self.reason {
            reason.by = Some(by.to_owned());
        }
        self
    }

    pub(super) fn failing(self, category: Category, code: Option<&'static str>) -> Self {
        Ending { failure: Some((category, code)), ..self }
    }
}

fn is_end(state: State) -> bool {
    matches!(state, State::Completed | State::Failed | State::DeadLetter | State::Cancelled)
}

/// The delay after failure number `n`, without jitter.
fn backoff(policy: &Policy, n: u32) -> Duration {
    let initial = u64::from(policy.initial);
    let plain = match policy.growth {
        0 => initial,
        1 => initial.saturating_mul(n.into()),
        multiplier => initial.saturating_mul(u64::from(multiplier).saturating_pow(n - 1)),
    };
    Duration::from_secs(plain.min(policy.max.into()))
}

fn retried(policy: &Policy, category: Category) -> bool {
    match category {
        Category::Temporary => true,
        Category::Timeout => policy.retry_timeout,
        Category::System => policy.retry_system,
        Category::Permanent | Category::Cancelled => false,
    }
}

impl ModelJob {
    /// When the store takes a running job from a holder that has not ended it: ten seconds after its execution timeout.
    pub(super) fn execution_end(&self) -> Option<Timestamp> {
        let (started_at, execution) = self.started_at.zip(self.plan.draft.execution)?;
        Some(started_at.plus(seconds(execution + 10)))
    }

    pub(super) fn ran_too_long(&self) -> bool {
        self.lease.zip(self.execution_end()).is_some_and(|(lease, limit)| lease.expires_at >= limit)
    }
}

impl Model {
    pub(super) fn settle(&mut self, name: Name, held: usize, say: &Say, children: &[Plan]) -> ModelSettled {
        if let Err(stale) = self.fence(name, held) {
            return match self.said_before(name, held, say) {
                true => ModelSettled::AlreadyApplied,
                false => ModelSettled::Stale(stale),
            };
        }
        let firsts = firsts(children);
        if !children.is_empty() {
            // As when their parent has completed, which frees a key that it held until then.
            let running = std::mem::replace(&mut self.jobs[name].state, State::Completed);
            let mut refusals = self.refusals(children, &firsts).err().unwrap_or_default();
            if self.joins_in_a_circle(name, children, &firsts) {
                refusals.push("DependencyCycle");
            }
            self.jobs[name].state = running;
            if !refusals.is_empty() {
                return ModelSettled::Refused(refusals);
            }
        }
        let mut ending = self.ending_of(name, say);
        if let Some((by, _)) = self.jobs[name].cancel.clone()
            && ending.state != State::Completed
        {
            // What would have counted as a failure still does; the job itself is over, and the asker is named.
            let counted = matches!(say, Say::Fail { .. } | Say::DeadLetter);
            let failure = ending.failure.filter(|_| counted);
            ending = Ending::of(State::Cancelled, say.outcome()).because(ReasonKind::Cancelled).by(&by);
            ending = Ending { counted, failure, ..ending };
        }
        self.close(name, &ending);
        if let Say::Complete { result, .. } = say {
            self.jobs[name].result = *result;
            self.spawn(name, children, &firsts);
            self.tell_replaced();
        }
        if is_end(ending.state) {
            self.conclude(name);
        }
        ModelSettled::Applied(ending.state)
    }

    /// What a holder's word comes to when nobody asked the job to stop.
    fn ending_of(&mut self, name: Name, say: &Say) -> Ending {
        let job = &self.jobs[name];
        let policy = job.plan.draft.policy;
        let n = job.failures + 1;
        let last = n >= u32::from(policy.attempts);
        let ending = |state| Ending::of(state, say.outcome());
        match say {
            Say::Complete { .. } => ending(State::Completed),
            Say::Snooze(after) => Ending { delay: seconds((*after).into()), ..ending(State::Delayed) },
            Say::Cancel => ending(State::Cancelled).because(ReasonKind::Cancelled),
            Say::Release => ending(State::Scheduled),
            Say::Interrupt if !policy.interrupts_count => ending(State::Scheduled),
            Say::Interrupt => {
                let ending = match last {
                    true => ending(State::DeadLetter).because(ReasonKind::Exhausted),
                    false => ending(State::Scheduled),
                };
                Ending { counted: true, ..ending.failing(Category::System, Some("interrupted")) }
            }
            Say::DeadLetter => {
                let ending = ending(State::DeadLetter).because(ReasonKind::Explicit);
                Ending { counted: true, ..ending.failing(Category::Permanent, Some("dead")) }
            }
            Say::Fail { category, retry_after } => {
                let ending = match category {
                    Category::Cancelled => ending(State::Cancelled).because(ReasonKind::Cancelled),
                    category if !retried(&policy, *category) => ending(State::Failed).because(ReasonKind::Permanent),
                    _ if last => {
                        self.count("exhausted");
                        ending(State::DeadLetter).because(ReasonKind::Exhausted)
                    }
                    _ => {
                        let asked = retry_after.map(|after| seconds(after.into()));
                        let delay = asked.unwrap_or_else(|| backoff(&policy, n));
                        Ending { delay, ..ending(State::Retrying) }
                    }
                };
                Ending { counted: true, ..ending.failing(*category, Some("broke")) }
            }
        }
    }

    /// What becomes of a job whose holder neither ended it within its execution timeout nor let it go.
    fn ending_of_execution_timeout(&mut self, name: Name) -> Ending {
        self.count("execution timeout");
        let job = &self.jobs[name];
        let policy = job.plan.draft.policy;
        let n = job.failures + 1;
        let ending = |state| Ending::of(state, Outcome::Revoked);
        let ending = if let Some((by, _)) = &job.cancel {
            ending(State::Cancelled).because(ReasonKind::Cancelled).by(by)
        } else if !policy.retry_timeout {
            ending(State::Failed).because(ReasonKind::Permanent)
        } else if n >= u32::from(policy.attempts) {
            self.count("exhausted");
            ending(State::DeadLetter).because(ReasonKind::Exhausted)
        } else {
            Ending { delay: backoff(&policy, n), ..ending(State::Retrying) }
        };
        Ending { counted: true, ..ending.failing(Category::Timeout, Some("execution_timeout")) }
    }

    /// What an expired lease comes to.
    pub(super) fn ending_of_expiry(&mut self, name: Name) -> Ending {
        let job = &self.jobs[name];
        if job.ran_too_long() {
            return self.ending_of_execution_timeout(name);
        }
        let policy = job.plan.draft.policy;
        let free = policy.lost_free && job.lost < 10;
        let n = job.failures + 1;
        let ending = |state| Ending::of(state, Outcome::Lost);
        let ending = if let Some((by, _)) = &job.cancel {
            ending(State::Cancelled).because(ReasonKind::Cancelled).by(by)
        } else if !free && !policy.retry_system {
            ending(State::Failed).because(ReasonKind::Permanent)
        } else if !free && n >= u32::from(policy.attempts) {
            self.count("exhausted");
            ending(State::DeadLetter).because(ReasonKind::Exhausted)
        } else if policy.lost_backoff {
            Ending { delay: backoff(&policy, n), ..ending(State::Retrying) }
        } else {
            ending(State::Scheduled)
        };
        Ending { counted: !free, lost: true, ..ending.failing(Category::System, Some("lease_expired")) }
    }

    /// Ends an attempt or a job, and what depends on it.
    pub(super) fn end(&mut self, name: Name, ending: &Ending) {
        let ended_before = is_end(self.jobs[name].state);
        self.close(name, ending);
        if ended_before {
            // FAILED, now DEAD_LETTER: who waited for its end is not told again, but the event says where it is now.
            self.events.push((name, Some(ending.state)));
            self.count("ended twice");
        } else if is_end(ending.state) {
            self.conclude(name);
        }
    }

    /// Writes an ending on the job alone.
    pub(super) fn close(&mut self, name: Name, ending: &Ending) {
        let now = self.now;
        let job = &mut self.jobs[name];
        if job.lease.take().is_some()
            && let Some(attempt) = job.attempts.last_mut()
        {
            attempt.ended_at = Some(now);
            attempt.outcome = Some(ending.outcome);
            attempt.failure = ending.failure;
        }
        job.failures += u32::from(ending.counted);
        job.lost += u32::from(ending.lost);
        job.updated_at = now;
        if let Some((category, code)) = ending.failure {
            job.failure = Some((category, code, now));
        }
        match ending.state {
            State::Scheduled => job.becomes_scheduled(now),
            State::Completed => {
                job.failure = None;
                job.ends(State::Completed, None, now);
            }
            state if is_end(state) => job.ends(state, ending.reason.clone(), now),
            state => {
                job.state = state;
                job.run_at = Some(now.plus(ending.delay));
            }
        }
        self.tick(now);
    }

    /// Tells everybody that a job has ended.
    pub(super) fn conclude(&mut self, name: Name) {
        self.events.push((name, Some(self.jobs[name].state)));
        self.count(match self.jobs[name].state {
            State::Completed => "ended: completed",
            State::Failed => "ended: failed",
            State::DeadLetter => "ended: dead_letter",
            _ => "ended: cancelled",
        });
        if self.jobs[name].plan.draft.callback {
            self.add_webhook(name);
        }
        for dependent in 0..self.jobs.len() {
            if !self.jobs[dependent].gone {
                self.hear(dependent, name);
            }
        }
    }

    /// A job hears that one it may depend on has ended.
    fn hear(&mut self, name: Name, ended: Name) {
        let news = |edge: &&mut ModelEdge| edge.on == ended && !edge.met;
        let mut heard = Vec::new();
        for edge in self.jobs[name].edges.iter_mut().filter(news) {
            edge.met = true;
            heard.push(*edge);
        }
        if self.jobs[name].state != State::Pending || heard.is_empty() {
            return;
        }
        match heard.iter().any(|edge| self.is_fatal(edge)) {
            true => self.die_of(name, ended),
            false => self.release_if_free(name),
        }
    }

    /// Whether the end of this dependency kills.
    fn is_fatal(&self, edge: &ModelEdge) -> bool {
        let needs_success = matches!(edge.kind, DependencyKind::After | DependencyKind::FanInSuccess);
        needs_success && self.jobs[edge.on].state != State::Completed
    }

    fn die_of(&mut self, name: Name, ended: Name) {
        let state = self.jobs[ended].state;
        let reason = self.jobs[ended].reason.as_ref().filter(|reason| reason.kind == ReasonKind::Dependency);
        let cause = reason.and_then(|reason| reason.cause).unwrap_or(ended);
        let category = if state == State::Cancelled { Category::Cancelled } else { Category::Permanent };
        let mut ending = Ending::of(state, Outcome::Revoked).because(ReasonKind::Dependency);
        ending.reason.as_mut().expect("it was set a line ago").cause = Some(cause);
        self.count("died of a dependency");
        self.end(name, &ending.failing(category, Some("dependency")));
    }

    /// Whether a job still waits for another one.
    pub(super) fn waits(&self, name: Name) -> bool {
        let edges = &self.jobs[name].edges;
        let is_any = |edge: &&ModelEdge| edge.kind == DependencyKind::AfterAny;
        let all_open = edges.iter().filter(|edge| !is_any(edge)).any(|edge| !edge.met);
        let any_open = edges.iter().any(|edge| is_any(&edge)) && edges.iter().filter(is_any).all(|edge| !edge.met);
        all_open || any_open
    }

    pub(super) fn release_if_free(&mut self, name: Name) {
        let now = self.now;
        if self.jobs[name].state != State::Pending || self.waits(name) {
            return;
        }
        let job = &mut self.jobs[name];
        job.updated_at = now;
        if job.run_at.is_some_and(|run_at| run_at > now) {
            job.state = State::Delayed;
        } else {
            job.becomes_scheduled(now);
        }
    }

    /// A new job looks at its dependencies: those that have ended count at once, in the order they were named.
    pub(super) fn look_at_ended_dependencies(&mut self, name: Name) {
        let mut fatal = None;
        for place in 0..self.jobs[name].edges.len() {
            let edge = self.jobs[name].edges[place];
            if !self.jobs[edge.on].unfinished() {
                self.jobs[name].edges[place].met = true;
                fatal = fatal.or(Some(edge.on).filter(|_| self.is_fatal(&edge)));
            }
        }
        match fatal {
            Some(ended) => self.die_of(name, ended),
            None => self.release_if_free(name),
        }
    }

    // FAN_OUT and FAN_IN.

    /// The jobs that wait for `parent` and all it spawns.
    fn joins(&self, parent: Name) -> Vec<(Name, DependencyKind)> {
        let mut joins = Vec::new();
        // A job that no longer waits gains nothing to wait for, or it could come back to wait for itself.
        let waiting = |job: &super::reference::ModelJob| !job.gone && job.state == State::Pending;
        for (name, job) in self.jobs.iter().enumerate().filter(|(_, job)| waiting(job)) {
            let fan_in = |kind| matches!(kind, DependencyKind::FanInSuccess | DependencyKind::FanInDone);
            let open = job.edges.iter().filter(|edge| edge.on == parent && !edge.met && fan_in(edge.kind));
            joins.extend(open.map(|edge| (name, edge.kind)));
        }
        joins
    }

    /// Whether a child would wait for a job that is to wait for the child.
    fn joins_in_a_circle(&self, parent: Name, children: &[Plan], firsts: &[usize]) -> bool {
        let joins = self.joins(parent);
        let mut reached: Vec<Name> = Vec::new();
        let own = children.iter().enumerate().filter(|(place, _)| firsts[*place] == *place);
        for (_, child) in own {
            match self.known(child) {
                Some(existing) => reached.push(existing),
                None => reached.extend(child.links.iter().filter_map(|(link, _)| link.job())),
            }
        }
        let mut next = 0;
        while let Some(name) = reached.get(next).copied() {
            next += 1;
            if !self.jobs[name].unfinished() {
                continue;
            }
            if joins.iter().any(|(join, _)| *join == name) {
                return true;
            }
            let open = self.jobs[name].edges.iter().filter(|edge| !edge.met).map(|edge| edge.on);
            let new: Vec<Name> = open.filter(|on| !reached.contains(on)).collect();
            reached.extend(new);
        }
        false
    }

    // Priorities.

    /// Lets those that wait for a job have the priority that it has now.
    pub(super) fn followed(&mut self, name: Name) {
        for heir in 0..self.jobs.len() {
            let job = &self.jobs[heir];
            let waits = !job.gone && job.state == State::Pending && job.edges.iter().any(|edge| edge.on == name);
            if !waits || job.plan.draft.own_priority_only {
                continue;
            }
            let before = job.effective();
            let on = job.edges.iter().map(|edge| &self.jobs[edge.on]).filter(|on| !on.gone);
            self.jobs[heir].inherited = on.map(|on| on.effective()).min();
            if self.jobs[heir].effective() != before {
                self.count("followed a priority");
                self.followed(heir);
            }
        }
    }

    /// Lets a job that waits for one more be as urgent as that one.
    fn inherit(&mut self, join: Name, child: Name) {
        if self.jobs[join].plan.draft.own_priority_only {
            return;
        }
        let (before, from) = (self.jobs[join].effective(), self.jobs[child].effective());
        let inherited = &mut self.jobs[join].inherited;
        *inherited = Some(inherited.map_or(from, |old| old.min(from)));
        if self.jobs[join].effective() != before {
            self.followed(join);
        }
    }

    /// Stores the children of a completed job; a job that waits for all it spawns now waits for them too.
    fn spawn(&mut self, parent: Name, children: &[Plan], firsts: &[usize]) {
        if children.is_empty() {
            return;
        }
        let joins = self.joins(parent);
        self.count("spawned");
        let stored = self.store(children, firsts, self.jobs[parent].workflow, Some(parent));
        let children: Vec<Name> = stored.iter().map(|child| child.job).collect();
        let children: Vec<Name> = children.into_iter().filter(|child| !self.jobs[*child].gone).collect();
        for (join, kind) in joins {
            for child in children.iter().copied() {
                let job = &mut self.jobs[join];
                let known = job.edges.iter().any(|edge| edge.on == child && edge.kind == kind);
                if known || job.state != State::Pending {
                    continue;
                }
                job.edges.push(ModelEdge { on: child, kind, met: false });
                self.count("gained a dependency");
                self.inherit(join, child);
                if !self.jobs[child].unfinished() {
                    self.hear(join, child);
                }
            }
        }
    }
}

impl super::reference::ModelJob {
    fn ends(&mut self, state: State, reason: Option<ModelReason>, now: Timestamp) {
        self.state = state;
        self.completed_at = Some(now);
        self.run_at = None;
        self.cancel = None;
        self.reason = reason;
    }
}
