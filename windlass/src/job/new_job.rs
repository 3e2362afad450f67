//! A job that is being described, and the check that makes it a [`JobSpec`].
//!
//! Everything is checked here, once, before a store is touched. A [`JobSpec`] cannot be made any other way, so a store
//! never sees a field out of bounds.

use std::time::Duration;

use super::Priority;
use super::dependency::{DEPENDENCIES_MAX, Dependency, DependencyKind, DependsOn};
use super::id::{JobId, JobType, QueueName};
use super::options::{
    Idempotency, JobOptions, Limits, RunAt, SYSTEM_PREFIX, Scope, TraceContext, WINDOW_DEFAULT, check_options,
};
use super::payload::Payload;
use super::policies::{Policies, PolicyPatch};
use super::retention::RetentionPatch;
use super::retry::RetryPolicy;
use super::spec::JobSpec;
use super::unique::{Debounce, Unique};
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// A job as a client describes it, not yet checked. Built by the methods named after the fields.
#[derive(Clone, Debug)]
pub struct NewJob {
    job_type: String,
    queue: Option<String>,
    payload: Payload,
    priority: Priority,
    depends_on: Vec<Dependency>,
    patch: PolicyPatch,
    unique: Option<Unique>,
    debounce: Option<Debounce>,
    throttle: Option<Duration>,
    /// Whether nobody named a window for its key.
    window_by_policy: bool,
    options: JobOptions,
}

impl NewJob {
    /// A job of this type with this payload.
    pub fn new(job_type: impl Into<String>, payload: Payload) -> Self {
        NewJob {
            job_type: job_type.into(),
            queue: None,
            payload,
            priority: Priority::Normal,
            depends_on: Vec::new(),
            patch: PolicyPatch::default(),
            unique: None,
            debounce: None,
            throttle: None,
            window_by_policy: false,
            options: JobOptions::default(),
        }
    }

    /// The lane it goes to; `default` unless named.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// How urgent it is.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Not before this moment of the store's clock.
    #[must_use]
    pub fn run_at(mut self, at: Timestamp) -> Self {
        self.options.run_at = Some(RunAt::At(at));
        self
    }

    /// Not before this long after submission.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.run_at = Some(RunAt::In(delay));
        self
    }

    /// Counted executions, the first included.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.patch.max_attempts = Some(attempts);
        self
    }

    /// Executions after the first: `max_attempts(retries + 1)`.
    #[must_use]
    pub fn max_retries(self, retries: u32) -> Self {
        self.max_attempts(retries.saturating_add(1))
    }

    /// The whole retry policy, attempts included.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.patch.retry = Some(policy);
        self
    }

    /// Longest run of one attempt; `None` for no limit but the lifetime.
    #[must_use]
    pub fn execution_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.patch.execution = Some(timeout.into());
        self
    }

    /// The lease time of a claim that names none.
    #[must_use]
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.patch.visibility = Some(timeout);
        self
    }

    /// From submission to a terminal state; `None` for no limit.
    #[must_use]
    pub fn lifetime(mut self, lifetime: impl Into<Option<Duration>>) -> Self {
        self.patch.lifetime = Some(lifetime.into());
        self
    }

    /// How long it is kept after its end, in place of the store's own retention: `RetentionPatch::all(…)`, or by how it ends.
    #[must_use]
    pub fn retention(mut self, retention: RetentionPatch) -> Self {
        self.patch.retention = retention;
        self
    }

    /// The same key among jobs of this type is the same job, within 24 hours unless [`Policies`] say otherwise.
    #[must_use]
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.idempotency(key, Scope::Type, WINDOW_DEFAULT).window_by_policy()
    }

    /// Leaves the window of its idempotency key to [`Policies`], in place of the one that it was given.
    #[must_use]
    pub fn window_by_policy(mut self) -> Self {
        self.window_by_policy = true;
        self
    }

    /// An idempotency key with its scope and window; a window of `None` is for ever.
    #[must_use]
    pub fn idempotency(self, key: impl Into<String>, scope: Scope, window: impl Into<Option<Duration>>) -> Self {
        self.with_idempotency(Idempotency::new(key, scope, window))
    }

    /// Of jobs like this one is enough: says what makes two of them the same, and for how long (rules U1 to U5). In place
    /// of an idempotency key.
    #[must_use]
    pub fn unique(mut self, unique: Unique) -> Self {
        self.unique = Some(unique);
        self
    }

    /// Runs once for many submissions: when none has come for the time `quiet`, and at the latest `at_most` after the
    /// first (rule U4). Each submission replaces the one before it, until the job is claimed.
    ///
    /// The same are submissions with the same payload, or as [`unique`](Self::unique) says, before or after.
    #[must_use]
    pub fn debounce(mut self, quiet: Duration, at_most: Duration) -> Self {
        self.debounce = Some(Debounce { quiet, at_most });
        self
    }

    /// Runs at most once in each period: the first submission wins, and the others find its job (rule U5).
    ///
    /// The same are submissions with the same payload, or as [`unique`](Self::unique) says, before or after.
    #[must_use]
    pub fn throttle(mut self, period: Duration) -> Self {
        self.throttle = Some(period);
        self
    }

    /// An idempotency key with everything about it, in place of any other.
    #[must_use]
    pub fn with_idempotency(mut self, idempotency: Idempotency) -> Self {
        self.unique = None;
        self.window_by_policy = false;
        self.options.idempotency = Some(idempotency);
        self
    }

    /// Whom it counts under in a controlled queue: a tenant, an account; up to 128 characters. Limits, rates, turns and order
    /// of keys are set for the queue. Not the idempotency key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.options.key = Some(key.into());
        self
    }

    /// Waits for another job.
    #[must_use]
    pub fn depends_on(mut self, on: DependsOn, kind: DependencyKind) -> Self {
        self.depends_on.push(Dependency { on, kind });
        self
    }

    /// Runs after all these jobs completed.
    #[must_use]
    pub fn after(self, jobs: impl IntoIterator<Item = JobId>) -> Self {
        self.depends_on_each(jobs, DependencyKind::After)
    }

    /// Runs after the first of these jobs ended, however.
    #[must_use]
    pub fn after_any(self, jobs: impl IntoIterator<Item = JobId>) -> Self {
        self.depends_on_each(jobs, DependencyKind::AfterAny)
    }

    /// Runs after all these jobs ended, however.
    #[must_use]
    pub fn after_all(self, jobs: impl IntoIterator<Item = JobId>) -> Self {
        self.depends_on_each(jobs, DependencyKind::AfterAll)
    }

    fn depends_on_each(mut self, jobs: impl IntoIterator<Item = JobId>, kind: DependencyKind) -> Self {
        self.depends_on.extend(jobs.into_iter().map(|job| Dependency { on: DependsOn::Job(job), kind }));
        self
    }

    /// Keeps its own priority even if it depends on more urgent jobs.
    #[must_use]
    pub fn own_priority_only(mut self) -> Self {
        self.options.own_priority_only = true;
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.tags.insert(key.into(), value.into());
        self
    }

    /// For following one piece of work through several systems.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.options.correlation_id = Some(id.into());
        self
    }

    /// Told by a signed POST when the job becomes terminal.
    #[must_use]
    pub fn callback_url(mut self, url: impl Into<String>) -> Self {
        self.options.callback_url = Some(url.into());
        self
    }

    /// The W3C trace that the job continues.
    #[must_use]
    pub fn trace_context(mut self, parent: impl Into<String>, state: Option<String>) -> Self {
        self.options.trace_context = Some(TraceContext { parent: parent.into(), state });
        self
    }

    /// Marks the job as a copy of another.
    #[must_use]
    pub fn cloned_from(mut self, original: JobId) -> Self {
        self.options.cloned_from = Some(original);
        self
    }

    /// The idempotency key in force, with everything about it.
    fn resolve_idempotency(&self) -> Result<Option<Idempotency>> {
        let unique = match (&self.unique, &self.options.idempotency) {
            (None, key) if self.debounce.is_none() && self.throttle.is_none() => return Ok(key.clone()),
            (Some(unique), _) => unique.clone(),
            (None, Some(key)) => Unique::key(key.key.clone()).scope(key.scope),
            (None, None) => Unique::payload(),
        };
        let unique = match (self.debounce, self.throttle) {
            (Some(_), Some(_)) => return Err(Error::invalid("debounce", "and throttle exclude each other")),
            (Some(debounce), None) => unique.debounced(debounce),
            (None, Some(period)) => unique.within(period),
            (None, None) => unique,
        };
        unique.idempotency(&self.payload).map(Some)
    }

    /// Checks every field and settles the policy in force (rule R3): the only way to a [`JobSpec`].
    pub fn check(self, limits: &Limits, policies: &Policies) -> Result<JobSpec> {
        let job_type = JobType::new(&self.job_type)?;
        let queue = match &self.queue {
            None => QueueName::default(),
            Some(queue) => QueueName::new(queue)?,
        };
        for (field, name) in [("type", job_type.as_str()), ("queue", queue.as_str())] {
            if name.starts_with(SYSTEM_PREFIX) {
                return Err(Error::invalid(field, format!("names that begin with {SYSTEM_PREFIX} are the system's")));
            }
        }
        self.payload.check_size("payload", limits.payload_bytes())?;
        let mut idempotency = self.resolve_idempotency()?;
        let by_policy = self.window_by_policy && self.unique.is_none() && self.debounce.is_none();
        if let Some(idempotency) = idempotency.as_mut().filter(|_| by_policy && self.throttle.is_none()) {
            idempotency.window = policies.window(&self.patch, &job_type, &queue);
        }
        let mut options = self.options;
        options.idempotency = idempotency;
        (options.retry, options.timeouts) = policies.resolve(&self.patch, &job_type, &queue);
        options.retention = policies.retention(&self.patch, &job_type, &queue);
        // Most jobs may run at once, and their options are the default ones.
        options.timeouts.lifetime_from_run_at &= options.run_at.is_some() || options.debounce().is_some();
        options.retry.check()?;
        options.timeouts.check()?;
        options.retention.check()?;
        check_options(&options)?;
        let count = self.depends_on.len();
        if count > DEPENDENCIES_MAX {
            let limit = DEPENDENCIES_MAX;
            return Err(Error::DependencyLimit { what: "dependency count", size: count, limit });
        }
        let spec = JobSpec {
            job_type,
            queue,
            payload: self.payload,
            priority: self.priority,
            depends_on: self.depends_on,
            options,
            damage: None,
        };
        if let Some(RunAt::In(_)) = spec.options.run_at {
            // A delay can be held against the lifetime here; a moment only by the store, which knows the time.
            spec.first_run(Timestamp::EPOCH)?;
        }
        if let Some(Debounce { quiet, .. }) = spec.options.debounce() {
            spec.debounced(Timestamp::EPOCH.plus(*quiet)).first_run(Timestamp::EPOCH)?;
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::*;

    fn check(job: NewJob) -> Result<JobSpec> {
        job.check(&Limits::default(), &Policies::default())
    }

    fn job() -> NewJob {
        NewJob::new("mail", Payload::default())
    }

    #[test]
    fn a_plain_job_has_the_defaults_of_the_contract() {
        let spec = check(job()).expect("valid");
        assert_eq!(spec.queue.as_str(), "default");
        assert_eq!(spec.priority, Priority::Normal);
        assert_eq!(spec.options.retry, RetryPolicy::standard());
        assert_eq!(spec.options.timeouts.execution, Some(Duration::from_secs(1800)));
        assert_eq!(serde_json::to_string(&spec.options).expect("json"), "{}");
    }

    #[test]
    fn j1_each_field_is_bounded() {
        let long = |n: usize| "é".repeat(n);
        let many_tags = (0..33).fold(job(), |job, n| job.tag(n.to_string(), ""));
        let bad: Vec<(&str, NewJob)> = vec![
            ("type", NewJob::new("", Payload::default())),
            ("queue", job().queue("a b")),
            ("max_attempts", job().max_attempts(0)),
            ("max_attempts", job().max_retries(100)),
            ("execution timeout", job().execution_timeout(Duration::ZERO)),
            ("visibility timeout", job().visibility_timeout(Duration::MAX)),
            ("lifetime", job().lifetime(Duration::ZERO)),
            // Without a lifetime of its own the default one would count from the first run.
            ("delay", job().delay(Duration::from_secs(8 * 24 * 3600)).lifetime(Duration::from_secs(7 * 24 * 3600))),
            ("delay", job().delay(Duration::MAX)),
            ("idempotency_key", job().idempotency_key(long(257))),
            ("idempotency_key", job().idempotency_key("")),
            ("type", NewJob::new("windlass.webhook", Payload::default())),
            ("queue", job().queue("windlass.webhooks")),
            ("idempotency window", job().idempotency("k", Scope::Type, Duration::ZERO)),
            ("key", job().key("")),
            ("key", job().key(long(129))),
            ("key", job().key("a\0b")),
            ("tags", many_tags),
            ("tags", job().tag(long(65), "")),
            ("tags", job().tag("k", long(257))),
            ("correlation_id", job().correlation_id(long(257))),
            ("correlation_id", job().correlation_id("a\0b")),
            ("callback_url", job().callback_url("ftp://host/")),
            ("callback_url", job().callback_url("https:///path")),
            ("callback_url", job().callback_url("https://user:secret@host/")),
            ("trace_context", job().trace_context(long(600), None)),
        ];
        for (field, job) in bad {
            match check(job) {
                Err(Error::InvalidArgument { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{field}: {other:?}"),
            }
        }
    }

    #[test]
    fn j1_values_at_the_limit_are_accepted() {
        let tags = (0..32).fold(job(), |job, n| job.tag(format!("{n:064}"), "é".repeat(256)));
        let full = tags
            .idempotency_key("é".repeat(256))
            .key("é".repeat(128))
            .correlation_id("é".repeat(256))
            .max_attempts(100)
            .callback_url("https://example.com:8443/hook?x=1");
        assert!(check(full).is_ok());
        let payload = Payload::bytes("x/y", vec![0; PAYLOAD_BYTES_DEFAULT]).expect("bytes");
        assert!(check(NewJob::new("mail", payload)).is_ok());
        let payload = Payload::bytes("x/y", vec![0; PAYLOAD_BYTES_DEFAULT + 1]).expect("bytes");
        assert_eq!(check(NewJob::new("mail", payload)).expect_err("too large").name(), "PayloadTooLarge");
    }

    #[test]
    fn run_at_beyond_the_lifetime_is_refused() {
        let now = Timestamp::from_seconds(1000);
        let week = Duration::from_secs(7 * 86_400);
        let beyond = Timestamp::from_seconds(1000 + 7 * 86_400);
        // Named: from now on only a lifetime that somebody named can be too short.
        let spec = check(job().run_at(beyond).lifetime(week)).expect("checked by the store");
        let refused = spec.first_run(now).expect_err("beyond it").to_string();
        assert!(
            refused.contains("1970-01-08T00:16:40.000000Z lies beyond the job's lifetime, which ends at 1970"),
            "{refused}"
        );
        let refused = check(job().delay(2 * week).lifetime(week)).expect_err("beyond it").to_string();
        assert_eq!(refused, "invalid delay: 14d lies beyond the job's lifetime of 7d: name a longer lifetime, or none");
        let spec = check(job().run_at(Timestamp::from_seconds(10))).expect("valid");
        assert_eq!(spec.first_run(now).expect("valid"), None);
    }

    #[test]
    fn t4_the_default_lifetime_counts_from_a_first_run_that_lies_ahead() {
        let (now, week) = (Timestamp::from_seconds(1000), Duration::from_secs(7 * 86_400));
        let later = now.plus(2 * week);
        for spec in [check(job().run_at(later)), check(job().delay(2 * week))] {
            let spec = spec.expect("valid");
            assert_eq!(spec.first_run(now).expect("valid"), Some(later));
            assert_eq!(spec.deadline(now), Some(later.plus(week)));
            assert_eq!(spec.deadline_with(now, None), Some(now.plus(week)), "after a requeue without a time");
        }
        for spec in [check(job()), check(job().run_at(Timestamp::EPOCH))] {
            assert_eq!(spec.expect("valid").deadline(now), Some(now.plus(week)));
        }
        let named = check(job().delay(week).lifetime(2 * week)).expect("valid");
        assert_eq!(named.deadline(now), Some(now.plus(2 * week)), "one that was named counts from submission");
        assert_eq!(check(job().lifetime(None).delay(week)).expect("valid").deadline(now), None);
    }

    #[test]
    fn options_read_back_what_they_wrote() {
        let spec = check(job().delay(Duration::from_secs(5)).idempotency_key("k").tag("a", "b").max_attempts(7))
            .expect("valid");
        let text = serde_json::to_string(&spec.options).expect("json");
        assert_eq!(serde_json::from_str::<JobOptions>(&text).expect("options"), spec.options);
    }
}
