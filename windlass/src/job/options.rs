//! What a client may say about a job beside its type and payload: options, their limits, and the checks of each.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::{JobId, shorten};
use super::retention::RetentionPatch;
use super::retry::RetryPolicy;
use super::unique::{Debounce, OnExisting, Until};
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
/// Longest key for flow control, in characters.
pub const FLOW_KEY_CHARS_MAX: usize = 128;
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
/// Longest name of a submitter, in characters; as long as that of a token.
pub const SUBMITTER_CHARS_MAX: usize = 100;
/// Longest W3C trace context, in bytes: a traceparent of 55 and a tracestate of 512.
pub const TRACE_BYTES_MAX: usize = 1024;
/// Longest execution timeout, visibility timeout or lifetime: ten years. `none` is the way to say for ever.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// How long after the execution timeout a store still lets a holder settle: the worker's own notice of 5 s to the handler,
/// and as much again for the settlement (rule T1b).
pub const EXECUTION_NOTICE: Duration = Duration::from_secs(10);

/// How SQL stores write that no execution timeout bounds a lease: far beyond any moment, and small enough to add one to it.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
const LEASE_MAX_NONE: i64 = 1 << 62;

/// What the names of types and queues begin with whose jobs only Windlass itself makes: a job of theirs made by somebody
/// else would be believed.
pub const SYSTEM_PREFIX: &str = "windlass.";

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
    /// Whether the lifetime counts from the first run where that lies ahead: so does the default one, which nobody named
    /// (rule T4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lifetime_from_run_at: bool,
}

impl Default for Timeouts {
    /// 30 minutes, 5 minutes, 7 days.
    fn default() -> Self {
        Timeouts {
            execution: Some(Duration::from_secs(30 * 60)),
            visibility: Duration::from_secs(5 * 60),
            lifetime: Some(Duration::from_secs(7 * 24 * 3600)),
            lifetime_from_run_at: false,
        }
    }
}

impl Timeouts {
    /// How long one attempt may hold its lease, however often it is extended (rule T1b); `None` for no limit but the lifetime.
    pub fn lease_max(&self) -> Option<Duration> {
        self.execution.map(|execution| execution.saturating_add(EXECUTION_NOTICE))
    }

    /// [`lease_max`](Self::lease_max) in microseconds, as SQL stores keep it beside a job: nothing for the standard execution
    /// timeout, which their statements know, and a moment that never comes where there is no limit.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn stored_lease_max(&self) -> Option<i64> {
        let max = self.lease_max();
        let micros = |max: Duration| i64::try_from(max.as_micros()).unwrap_or(LEASE_MAX_NONE);
        (max != Timeouts::default().lease_max()).then(|| max.map_or(LEASE_MAX_NONE, micros))
    }

    /// Reads what [`stored_lease_max`](Self::stored_lease_max) wrote.
    #[cfg(feature = "sqlite")]
    pub(crate) fn read_lease_max(stored: Option<i64>) -> Option<Duration> {
        match stored {
            None => Timeouts::default().lease_max(),
            Some(LEASE_MAX_NONE) => None,
            Some(micros) => Some(Duration::from_micros(u64::try_from(micros).unwrap_or_default())),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
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

impl Scope {
    /// All three.
    pub const ALL: [Scope; 3] = [Scope::Type, Scope::Queue, Scope::Global];
}

/// An idempotency key, its scope and how long it holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Idempotency {
    /// The key, at most 256 characters.
    pub key: String,
    /// Among which jobs it is unique.
    #[serde(default)]
    pub scope: Scope,
    /// How long from the first submission; `None` for ever, or for as long as `until` says.
    #[serde(with = "super::micros_option")]
    pub window: Option<Duration>,
    /// Up to when it stands for the job, if the window is not over before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub until: Until,
    /// What a submission does to the job that the key stands for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_existing: OnExisting,
    /// When the last of several submissions runs; then each replaces the one before it, and the key has no window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce: Option<Debounce>,
}

impl Idempotency {
    /// A key that holds for a window, whatever becomes of its job; a window of `None` is for ever.
    pub fn new(key: impl Into<String>, scope: Scope, window: impl Into<Option<Duration>>) -> Self {
        let (until, on_existing) = (Until::Window, OnExisting::Keep);
        Idempotency { key: key.into(), scope, window: window.into(), until, on_existing, debounce: None }
    }

    /// Refuses a key, window or debounce out of bounds.
    pub(crate) fn check(&self) -> Result<()> {
        if self.key.is_empty() {
            return Err(Error::invalid("idempotency_key", "must not be empty"));
        }
        check_chars("idempotency_key", &self.key, KEY_CHARS_MAX)?;
        if self.window.is_some_and(|window| window.is_zero() || window > TIMEOUT_MAX) {
            return Err(Error::invalid("idempotency window", "must be more than zero and at most ten years"));
        }
        match &self.debounce {
            None => Ok(()),
            Some(_)
                if self.window.is_some() || (self.until, self.on_existing) != (Until::Claimed, OnExisting::Replace) =>
            {
                let problem = "a debounced key holds until its job is claimed, and each submission replaces the last";
                Err(Error::invalid("debounce", problem))
            }
            Some(debounce) => debounce.check(),
        }
    }
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
    /// How long it is kept after its end, as far as that was said, copied at submission.
    #[serde(skip_serializing_if = "is_default")]
    pub retention: RetentionPatch,
    /// Its idempotency key, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    /// Whom it counts under in a controlled queue: a tenant, an account (rule K6). Not the idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
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
    /// Who submitted it, where that is known: the name of a client, or of the token that a server was shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
}

impl JobOptions {
    /// Who submitted the job whose options are stored as this text; `None` too where it cannot be read.
    pub fn submitter_in(text: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Submitter {
            submitted_by: Option<String>,
        }

        // Most stored options do not hold it, and need not be parsed.
        if !text.contains("\"submitted_by\"") {
            return None;
        }
        serde_json::from_str::<Submitter>(text).ok()?.submitted_by
    }

    /// The key of the job whose options are stored as this text; `None` too where it cannot be read.
    pub fn key_in(text: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Key {
            key: Option<String>,
        }

        serde_json::from_str::<Key>(text).ok()?.key
    }
}

impl JobOptions {
    /// By what people look for the job, for a store that keeps an index of it: the names of its marks, and their values.
    pub fn marks(&self) -> impl Iterator<Item = (String, &str)> {
        marks(&self.tags, self.correlation_id.as_deref())
    }

    /// Whether there is anything in [`marks`](Self::marks).
    pub fn is_marked(&self) -> bool {
        self.correlation_id.is_some() || !self.tags.is_empty()
    }
}

/// The marks of a correlation id and of tags. The correlation id comes first: fewer jobs share it.
pub(crate) fn marks<'a>(
    tags: &'a BTreeMap<String, String>,
    correlation_id: Option<&'a str>,
) -> impl Iterator<Item = (String, &'a str)> {
    let correlation = correlation_id.map(|id| ("c".to_owned(), id));
    correlation.into_iter().chain(tags.iter().map(|(key, value)| (format!("t:{key}"), value.as_str())))
}

impl JobOptions {
    /// How it is debounced, if it is.
    pub fn debounce(&self) -> Option<&Debounce> {
        self.idempotency.as_ref()?.debounce.as_ref()
    }
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
/// Checks every option that is not a policy or a timeout.
pub(super) fn check_options(options: &JobOptions) -> Result<()> {
    if let Some(RunAt::In(delay)) = options.run_at
        && delay > TIMEOUT_MAX
    {
        return Err(Error::invalid("delay", "must be at most ten years"));
    }
    if options.run_at.is_some() && options.debounce().is_some() {
        return Err(Error::invalid("run_at", "and delay are what debounce decides"));
    }
    options.idempotency.as_ref().map_or(Ok(()), Idempotency::check)?;
    if let Some(key) = &options.key {
        if key.is_empty() {
            return Err(Error::invalid("key", "must not be empty"));
        }
        check_chars("key", key, FLOW_KEY_CHARS_MAX)?;
    }
    check_tags(&options.tags)?;
    if let Some(id) = &options.correlation_id {
        check_chars("correlation_id", id, CORRELATION_CHARS_MAX)?;
    }
    if let Some(url) = &options.callback_url {
        check_url(url)?;
    }
    if let Some(name) = &options.submitted_by {
        check_chars("submitted_by", name, SUBMITTER_CHARS_MAX)?;
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

    #[test]
    fn the_submitter_is_read_out_of_stored_options() {
        let options = JobOptions { submitted_by: Some("ci \"1\"".to_owned()), ..JobOptions::default() };
        let text = serde_json::to_string(&options).expect("JSON");
        assert_eq!(JobOptions::submitter_in(&text).as_deref(), Some("ci \"1\""));
        for text in ["{}", "", "{\"submitted_by\"", "{\"tags\":{\"submitted_by\":\"x\"}}"] {
            assert_eq!(JobOptions::submitter_in(text), None, "{text}");
        }
    }
}
