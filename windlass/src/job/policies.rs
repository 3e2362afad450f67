//! Whose settings win: the job's own, then its type's, its queue's, the system's (rule R3).

use std::collections::HashMap;
use std::time::Duration;

use super::id::{JobType, QueueName};
use super::options::{Timeouts, WINDOW_DEFAULT};
use super::retention::RetentionPatch;
use super::retry::RetryPolicy;

/// Settings that someone made; what is `None` is left to the next in line.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PolicyPatch {
    /// The whole retry policy.
    pub retry: Option<RetryPolicy>,
    /// Only the number of attempts; wins over the policy's own.
    pub max_attempts: Option<u32>,
    /// The execution timeout; `Some(None)` for no limit.
    pub execution: Option<Option<Duration>>,
    /// The visibility timeout.
    pub visibility: Option<Duration>,
    /// The lifetime; `Some(None)` for no limit.
    pub lifetime: Option<Option<Duration>>,
    /// How long an idempotency key holds; `Some(None)` for ever.
    pub window: Option<Option<Duration>>,
    /// How long jobs are kept after their end.
    pub retention: RetentionPatch,
}

/// The settings of the system, of queues and of types.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Policies {
    system: PolicyPatch,
    queues: HashMap<QueueName, PolicyPatch>,
    types: HashMap<JobType, PolicyPatch>,
}

impl Policies {
    /// Sets what holds where nothing nearer says otherwise.
    #[must_use]
    pub fn system(mut self, patch: PolicyPatch) -> Self {
        self.system = patch;
        self
    }

    /// Sets what holds for the jobs of a queue.
    #[must_use]
    pub fn queue(mut self, queue: QueueName, patch: PolicyPatch) -> Self {
        self.queues.insert(queue, patch);
        self
    }

    /// Sets what holds for the jobs of a type.
    #[must_use]
    pub fn job_type(mut self, job_type: JobType, patch: PolicyPatch) -> Self {
        self.types.insert(job_type, patch);
        self
    }

    /// What holds where nothing nearer says otherwise.
    pub fn of_system(&self) -> &PolicyPatch {
        &self.system
    }

    /// What holds for the jobs of each queue that has settings, in no order.
    pub fn of_queues(&self) -> impl Iterator<Item = (&QueueName, &PolicyPatch)> {
        self.queues.iter()
    }

    /// What holds for the jobs of each type that has settings, in no order.
    pub fn of_types(&self) -> impl Iterator<Item = (&JobType, &PolicyPatch)> {
        self.types.iter()
    }

    /// Whose settings are asked, the nearest first.
    fn line<'a>(
        &'a self,
        own: &'a PolicyPatch,
        job_type: &JobType,
        queue: &QueueName,
    ) -> impl Iterator<Item = &'a PolicyPatch> {
        [Some(own), self.types.get(job_type), self.queues.get(queue), Some(&self.system)].into_iter().flatten()
    }

    /// How long the idempotency key of such a job holds; `None` for ever.
    pub fn window(&self, own: &PolicyPatch, job_type: &JobType, queue: &QueueName) -> Option<Duration> {
        self.line(own, job_type, queue).find_map(|patch| patch.window).unwrap_or(Some(WINDOW_DEFAULT))
    }

    /// How long such a job is kept after its end, as far as anybody says: each end by the nearest that names it.
    pub fn retention(&self, own: &PolicyPatch, job_type: &JobType, queue: &QueueName) -> RetentionPatch {
        self.line(own, job_type, queue).fold(RetentionPatch::default(), |kept, patch| kept.or(patch.retention))
    }

    /// The policy and timeouts in force for a job with these settings of its own.
    pub fn resolve(&self, own: &PolicyPatch, job_type: &JobType, queue: &QueueName) -> (RetryPolicy, Timeouts) {
        let line = || self.line(own, job_type, queue);
        let mut retry = line().find_map(|patch| patch.retry.clone()).unwrap_or_default();
        if let Some(attempts) = attempts_in_force(line()) {
            retry.max_attempts = attempts;
        }
        let standard = Timeouts::default();
        let lifetime = line().find_map(|patch| patch.lifetime);
        let timeouts = Timeouts {
            execution: line().find_map(|patch| patch.execution).unwrap_or(standard.execution),
            visibility: line().find_map(|patch| patch.visibility).unwrap_or(standard.visibility),
            lifetime: lifetime.unwrap_or(standard.lifetime),
            // Nobody named it, so it need not keep a job from a first run that somebody did name.
            lifetime_from_run_at: lifetime.is_none(),
        };
        (retry, timeouts)
    }
}

/// The nearest `max_attempts`, unless a whole policy is nearer.
fn attempts_in_force<'a>(line: impl Iterator<Item = &'a PolicyPatch>) -> Option<u32> {
    for patch in line {
        if patch.max_attempts.is_some() || patch.retry.is_some() {
            return patch.max_attempts;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(n: u32) -> PolicyPatch {
        PolicyPatch { max_attempts: Some(n), ..PolicyPatch::default() }
    }

    #[test]
    fn r3_the_nearest_setting_wins() {
        let mail = JobType::new("mail").expect("name");
        let bulk = QueueName::new("bulk").expect("name");
        let other = QueueName::default();
        let policies = Policies::default().system(attempts(9));
        let resolved = |policies: &Policies, own: &PolicyPatch, queue: &QueueName| {
            policies.resolve(own, &mail, queue).0.max_attempts
        };
        assert_eq!(resolved(&policies, &PolicyPatch::default(), &bulk), 9);
        let policies = policies.queue(bulk.clone(), attempts(8));
        assert_eq!(resolved(&policies, &PolicyPatch::default(), &bulk), 8);
        assert_eq!(resolved(&policies, &PolicyPatch::default(), &other), 9);
        let policies = policies.job_type(mail.clone(), attempts(7));
        assert_eq!(resolved(&policies, &PolicyPatch::default(), &bulk), 7);
        assert_eq!(resolved(&policies, &attempts(6), &bulk), 6);
    }

    #[test]
    fn a_whole_policy_brings_its_own_attempts() {
        let own = PolicyPatch { retry: Some(RetryPolicy::responsive()), ..PolicyPatch::default() };
        let policies = Policies::default().system(attempts(9));
        let mail = JobType::new("mail").expect("name");
        assert_eq!(policies.resolve(&own, &mail, &QueueName::default()).0.max_attempts, 4);
    }

    #[test]
    fn i1_the_window_of_a_key_is_the_nearest_that_was_named() {
        let hour = Duration::from_secs(3600);
        let [mail, other] = ["mail", "other"].map(|name| JobType::new(name).expect("name"));
        let queue = QueueName::default();
        let window = |window| PolicyPatch { window: Some(window), ..PolicyPatch::default() };
        let policies = Policies::default().system(window(Some(hour))).job_type(mail.clone(), window(None));
        let own = PolicyPatch::default();
        assert_eq!(policies.window(&own, &mail, &queue), None, "for ever");
        assert_eq!(policies.window(&own, &other, &queue), Some(hour));
        assert_eq!(policies.window(&window(Some(2 * hour)), &mail, &queue), Some(2 * hour));
        assert_eq!(Policies::default().window(&own, &mail, &queue), Some(WINDOW_DEFAULT));
    }

    #[test]
    fn o4_each_end_is_kept_as_the_nearest_says_that_names_it() {
        let day = Duration::from_secs(86_400);
        let [mail, other] = ["mail", "other"].map(|name| JobType::new(name).expect("name"));
        let queue = QueueName::default();
        let kept = |retention| PolicyPatch { retention, ..PolicyPatch::default() };
        let completed = |kept| RetentionPatch { completed: Some(kept), ..RetentionPatch::default() };
        let policies = Policies::default()
            .system(kept(RetentionPatch::all(day)))
            .queue(queue.clone(), kept(completed(Some(2 * day))))
            .job_type(mail.clone(), kept(completed(None)));
        let of_mail = policies.retention(&PolicyPatch::default(), &mail, &queue);
        assert_eq!((of_mail.completed, of_mail.failed), (Some(None), Some(Some(day))));
        assert_eq!(policies.retention(&PolicyPatch::default(), &other, &queue).completed, Some(Some(2 * day)));
        assert_eq!(policies.retention(&kept(completed(Some(day))), &mail, &queue).completed, Some(Some(day)));
        assert!(Policies::default().retention(&PolicyPatch::default(), &mail, &queue).is_silent());
    }

    #[test]
    fn no_limit_is_a_setting_too() {
        let own = PolicyPatch { lifetime: Some(None), ..PolicyPatch::default() };
        let mail = JobType::new("mail").expect("name");
        assert_eq!(Policies::default().resolve(&own, &mail, &QueueName::default()).1.lifetime, None);
    }
}
