//! What a client may say about a job, and the check that makes a [`NewJob`] a [`JobSpec`].
//!
//! Everything is checked here, once, before a store is touched. A [`JobSpec`] cannot be made any other way, so a store
//! never sees a field out of bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Priority;
use super::dependency::{DEPENDENCIES_MAX, Dependency, DependencyKind, DependsOn};
use super::id::{JobId, JobType, QueueName, shorten};
use super::payload::Payload;
use super::policies::{Policies, PolicyPatch};
use super::retry::RetryPolicy;
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// Payload limit unless configured otherwise.
pub const PAYLOAD_BYTES_DEFAULT: usize = 1 << 20;
/// The payload limit cannot be configured higher: rows beyond this hurt every store.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// Largest checkpoint.
pub const CHECKPOINT_BYTES_MAX: usize = 1 << 20;
/// Most jobs in one enqueue call.
pub const BATCH_MAX: usize = 10_000;
/// Longest idempotency key, in characters.
pub const KEY_CHARS_MAX: usize = 256;
/// Longest correlation id, in characters.
pub const CORRELATION_CHARS_MAX: usize = 256;
/// Most tags on a job.
pub const TAGS_MAX: usize = 32;
/// Longest tag key, in characters.
pub const TAG_KEY_CHARS_MAX: usize = 64;
/// Longest tag value, in characters.
pub const TAG_VALUE_CHARS_MAX: usize = 256;
/// Longest callback URL, in bytes; what browsers and proxies agree on.
pub const URL_BYTES_MAX: usize = 2048;
/// Longest W3C trace context, in bytes: a traceparent of 55 and a tracestate of 512.
pub const TRACE_BYTES_MAX: usize = 1024;
/// Longest execution timeout, visibility timeout or lifetime: ten years. `none` is the way to say for ever.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Limits that a deployment may set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    payload_bytes: usize,
}

impl Limits {
    /// Sets the payload limit, up to 16 MiB.
    pub fn with_payload_bytes(payload_bytes: usize) -> Result<Self> {
        if payload_bytes > PAYLOAD_BYTES_MAX {
            let problem = format!("must be at most {PAYLOAD_BYTES_MAX}, is {payload_bytes}");
            return Err(Error::invalid("payload limit", problem));
        }
        Ok(Limits { payload_bytes })
    }

    /// The largest payload or result, in bytes.
    pub const fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits { payload_bytes: PAYLOAD_BYTES_DEFAULT }
    }
}

/// When a job may run for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAt {
    /// Not before this moment of the store's clock.
    At(Timestamp),
    /// Not before this long after submission, added by the store (rule L8).
    #[serde(with = "super::micros")]
    In(Duration),
}

/// The time limits of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Timeouts {
    /// Longest run of one attempt; `None` for no limit but the lifetime.
    #[serde(with = "super::micros_option")]
    pub execution: Option<Duration>,
    /// The lease time of a claim that names none.
    #[serde(with = "super::micros")]
    pub visibility: Duration,
    /// From submission to a terminal state; `None` for no limit.
    #[serde(with = "super::micros_option")]
    pub lifetime: Option<Duration>,
}

impl Default for Timeouts {
    /// 30 minutes, 5 minutes, 7 days.
    fn default() -> Self {
        Timeouts {
            execution: Some(Duration::from_secs(30 * 60)),
            visibility: Duration::from_secs(5 * 60),
            lifetime: Some(Duration::from_secs(7 * 24 * 3600)),
        }
    }
}

impl Timeouts {
    fn check(&self) -> Result<()> {
        let named = [
            ("execution timeout", self.execution),
            ("visibility timeout", Some(self.visibility)),
            ("lifetime", self.lifetime),
        ];
        for (field, value) in named {
            if value.is_some_and(|value| value.is_zero() || value > TIMEOUT_MAX) {
                return Err(Error::invalid(field, "must be more than zero and at most ten years"));
            }
        }
        Ok(())
    }
}

/// Among which jobs an idempotency key is unique.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Jobs of the same type.
    #[default]
    Type,
    /// Jobs of the same queue.
    Queue,
    /// All jobs.
    Global,
}

/// An idempotency key, its scope and how long it holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Idempotency {
    /// The key, at most 256 characters.
    pub key: String,
    /// Among which jobs it is unique.
    #[serde(default)]
    pub scope: Scope,
    /// How long from the first submission; `None` for ever.
    #[serde(with = "super::micros_option")]
    pub window: Option<Duration>,
}

/// How long an idempotency key holds unless said otherwise.
pub const WINDOW_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// What is kept of a job beside its type, queue, payload, priority and dependencies.
///
/// Written compactly: what has its default value is left out, so that a plain job's options are `{}`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobOptions {
    /// When it may first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<RunAt>,
    /// The retry policy in force, copied at submission.
    #[serde(skip_serializing_if = "is_default")]
    pub retry: RetryPolicy,
    /// The timeouts in force, copied at submission.
    #[serde(skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
    /// Its idempotency key, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    /// Whether it does not take over the priority of more urgent dependencies.
    #[serde(skip_serializing_if = "is_default")]
    pub own_priority_only: bool,
    /// Labels; may be changed at any time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// For following one piece of work through several systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Told when the job becomes terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// The W3C trace that the job continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_context: Option<TraceContext>,
    /// The job that this one was cloned from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloned_from: Option<JobId>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// W3C trace context, carried to the handler untouched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceContext {
    /// The `traceparent` header.
    pub parent: String,
    /// The `tracestate` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A job as a client describes it, not yet checked. Built by the methods named after the fields.
#[derive(Clone, Debug)]
pub struct NewJob {
    job_type: String,
    queue: Option<String>,
    payload: Payload,
    priority: Priority,
    depends_on: Vec<Dependency>,
    patch: PolicyPatch,
    idempotency: Option<Idempotency>,
    options: JobOptions,
}

/// A checked job, ready to be stored.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct JobSpec {
    /// Which handler it is for.
    pub job_type: JobType,
    /// Its lane.
    pub queue: QueueName,
    /// Its data.
    pub payload: Payload,
    /// Its own priority.
    pub priority: Priority,
    /// What it waits for; ids only, once it is stored.
    pub depends_on: Vec<Dependency>,
    /// Everything else.
    pub options: JobOptions,
}

impl JobSpec {
    /// Puts together what a store kept of a checked job.
    pub fn from_stored(
        job_type: JobType,
        queue: QueueName,
        payload: Payload,
        priority: Priority,
        depends_on: Vec<Dependency>,
        options: JobOptions,
    ) -> Self {
        JobSpec { job_type, queue, payload, priority, depends_on, options }
    }

    /// When a job submitted at `now` may first run: `None` for at once.
    ///
    /// Refused when that lies beyond its lifetime.
    pub fn first_run(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        let at = match self.options.run_at {
            None => return Ok(None),
            Some(RunAt::At(at)) => at,
            Some(RunAt::In(delay)) => now.plus(delay),
        };
        if self.deadline(now).is_some_and(|deadline| at >= deadline) {
            return Err(Error::invalid("run_at", format!("{at} lies beyond the job's lifetime")));
        }
        Ok(Some(at).filter(|at| *at > now))
    }

    /// When the lifetime of a job ends that begins at `from`.
    pub fn deadline(&self, from: Timestamp) -> Option<Timestamp> {
        self.options.timeouts.lifetime.map(|lifetime| from.plus(lifetime))
    }

    /// The text under which its idempotency key is unique, with the scope in front.
    pub fn idempotency_scope(&self) -> Option<String> {
        let idempotency = self.options.idempotency.as_ref()?;
        Some(match idempotency.scope {
            Scope::Type => format!("t:{}", self.job_type),
            Scope::Queue => format!("q:{}", self.queue),
            Scope::Global => "g:".to_owned(),
        })
    }
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
            idempotency: None,
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

    /// The same key among jobs of this type, within 24 hours, is the same job.
    #[must_use]
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.idempotency(key, Scope::Type, WINDOW_DEFAULT)
    }

    /// An idempotency key with its scope and window; a window of `None` is for ever.
    #[must_use]
    pub fn idempotency(mut self, key: impl Into<String>, scope: Scope, window: impl Into<Option<Duration>>) -> Self {
        self.idempotency = Some(Idempotency { key: key.into(), scope, window: window.into() });
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

    /// Checks every field and settles the policy in force (rule R3): the only way to a [`JobSpec`].
    pub fn check(self, limits: &Limits, policies: &Policies) -> Result<JobSpec> {
        let job_type = JobType::new(&self.job_type)?;
        let queue = match &self.queue {
            None => QueueName::default(),
            Some(queue) => QueueName::new(queue)?,
        };
        self.payload.check_size("payload", limits.payload_bytes)?;
        let mut options = self.options;
        (options.retry, options.timeouts) = policies.resolve(&self.patch, &job_type, &queue);
        options.retry.check()?;
        options.timeouts.check()?;
        options.idempotency = self.idempotency;
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
        };
        if let Some(RunAt::In(_)) = spec.options.run_at {
            // A delay can be held against the lifetime here; a moment only by the store, which knows the time.
            spec.first_run(Timestamp::EPOCH)?;
        }
        Ok(spec)
    }
}

fn check_options(options: &JobOptions) -> Result<()> {
    if let Some(idempotency) = &options.idempotency {
        if idempotency.key.is_empty() {
            return Err(Error::invalid("idempotency_key", "must not be empty"));
        }
        check_chars("idempotency_key", &idempotency.key, KEY_CHARS_MAX)?;
        if idempotency.window.is_some_and(|window| window.is_zero() || window > TIMEOUT_MAX) {
            return Err(Error::invalid("idempotency window", "must be more than zero and at most ten years"));
        }
    }
    check_tags(&options.tags)?;
    if let Some(id) = &options.correlation_id {
        check_chars("correlation_id", id, CORRELATION_CHARS_MAX)?;
    }
    if let Some(url) = &options.callback_url {
        check_url(url)?;
    }
    if let Some(trace) = &options.trace_context {
        let size = trace.parent.len() + trace.state.as_ref().map_or(0, String::len);
        if size > TRACE_BYTES_MAX {
            return Err(Error::invalid(
                "trace_context",
                format!("must have at most {TRACE_BYTES_MAX} bytes, has {size}"),
            ));
        }
        check_text("trace_context", &trace.parent)?;
        check_text("trace_context", trace.state.as_deref().unwrap_or(""))?;
    }
    Ok(())
}

/// Checks a job's tags: at submission, and when they are replaced.
pub fn check_tags(tags: &BTreeMap<String, String>) -> Result<()> {
    if tags.len() > TAGS_MAX {
        return Err(Error::invalid("tags", format!("must have at most {TAGS_MAX} entries, has {}", tags.len())));
    }
    for (key, value) in tags {
        if key.is_empty() {
            return Err(Error::invalid("tags", "a key must not be empty"));
        }
        check_chars("tags", key, TAG_KEY_CHARS_MAX)?;
        check_chars("tags", value, TAG_VALUE_CHARS_MAX)?;
    }
    Ok(())
}

/// Checks that text has at most `max` characters and no NUL.
pub(crate) fn check_chars(field: &'static str, text: &str, max: usize) -> Result<()> {
    // No text has more characters than bytes, so the usual short one is not counted.
    let chars = if text.len() <= max { 0 } else { text.chars().count() };
    if chars > max {
        return Err(Error::invalid(field, format!("must have at most {max} characters, has {chars}")));
    }
    check_text(field, text)
}

fn check_text(field: &'static str, text: &str) -> Result<()> {
    if text.contains('\0') { Err(Error::invalid(field, "must not hold the character NUL")) } else { Ok(()) }
}

/// Checks that a callback URL is an `http` or `https` URL with a host. Where it may lead is checked on delivery.
pub fn check_url(url: &str) -> Result<()> {
    let bad = |problem: &str| Err(Error::invalid("callback_url", format!("{problem}: {:?}", shorten(url))));
    if url.len() > URL_BYTES_MAX {
        return Err(Error::invalid(
            "callback_url",
            format!("must have at most {URL_BYTES_MAX} bytes, has {}", url.len()),
        ));
    }
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else {
        return bad("must begin with http:// or https://");
    };
    if !url.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) {
        return bad("must hold no white space, control or non-ASCII characters");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    if authority.contains('@') {
        return Err(Error::invalid("callback_url", "must not carry a user name or password"));
    }
    if authority.is_empty() || authority.starts_with(':') { bad("must name a host") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("run_at", job().delay(Duration::from_secs(8 * 24 * 3600))),
            ("idempotency_key", job().idempotency_key(long(257))),
            ("idempotency_key", job().idempotency_key("")),
            ("idempotency window", job().idempotency("k", Scope::Type, Duration::ZERO)),
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
        let spec = check(job().run_at(Timestamp::from_seconds(1000 + 7 * 86_400))).expect("checked by the store");
        assert!(spec.first_run(now).is_err());
        let spec = check(job().run_at(Timestamp::from_seconds(10))).expect("valid");
        assert_eq!(spec.first_run(now).expect("valid"), None);
    }

    #[test]
    fn options_read_back_what_they_wrote() {
        let spec = check(job().delay(Duration::from_secs(5)).idempotency_key("k").tag("a", "b").max_attempts(7))
            .expect("valid");
        let text = serde_json::to_string(&spec.options).expect("json");
        assert_eq!(serde_json::from_str::<JobOptions>(&text).expect("options"), spec.options);
    }
}
