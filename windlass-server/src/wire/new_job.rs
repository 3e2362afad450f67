//! A job as it is submitted, spawned, or kept as the template of a schedule.
//!
//! What a job says of itself stands once, in `options.rs`: [`NewJob`] has these members and refuses others, a stored job has
//! them among its own, and [`Submitted`] is these members alone, between the two. A new option is a member there and a line in
//! each of the three ways of [`Submitted`]: from a checked job, onto one that is to be checked, and back into what a store keeps.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use windlass::job::{
    DependencyKind, DependsOn, Idempotency, JobOptions, JobSpec, OnExisting, RunAt, Scope, Timeouts,
    TraceContext as Trace, Until, WINDOW_DEFAULT,
};
use windlass::{Error, JobId, JobType, Payload, Priority, QueueName, Result, Timestamp};

use super::data::{self, Data};
use super::names;
use super::options::with_options;
use super::retry::Retry;
use super::{Limit, RetentionPatch, Span};

/// Declares what has a job's options for members here, and the ways between them.
macro_rules! new_job {
    ($($(#[$attribute:meta])* pub $member:ident: $kind:ty,)*) => {
        /// A job to be stored. Only `type` is required.
        #[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct NewJob {
            /// Which handler it is for: 1 to 255 of `A-Z a-z 0-9 _ . : / -`.
            #[serde(rename = "type")]
            #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_.:/-]+$", example = "email.send")]
            pub job_type: String,
            /// A name for this job inside the call, for `depends_on` of the others; it is not stored.
            #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
            #[schema(max_length = 255)]
            pub reference: Option<String>,
            /// Its data: any JSON value; `null` unless given.
            #[serde(default, deserialize_with = "data::present", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Value)]
            pub payload: Option<Box<RawValue>>,
            /// Its data when that is no JSON.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub payload_base64: Option<String>,
            /// What `payload_base64` holds; `application/octet-stream` unless named.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(max_length = 255)]
            pub content_type: Option<String>,
            /// Not before this moment of the store's clock.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub run_at: Option<Timestamp>,
            /// Not before this long after submission; instead of `run_at`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub delay: Option<Span>,
            /// Computes the key from what the payload has at these JSON pointers; `[""]` for all of it. In place of
            /// `idempotency_key`; the key holds until the job ends, unless said otherwise.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schema(max_items = 32)]
            pub unique_by: Vec<String>,
            $($(#[$attribute])* pub $member: $kind,)*
        }

        /// What was submitted of a job, with what its policies made of it.
        #[derive(Clone, Debug, Default)]
        pub struct Submitted {
            $(pub(super) $member: $kind,)*
        }

        impl From<Submitted> for NewJob {
            fn from(submitted: Submitted) -> Self {
                NewJob { $($member: submitted.$member,)* ..NewJob::default() }
            }
        }

        impl From<NewJob> for Submitted {
            fn from(job: NewJob) -> Self {
                Submitted { $($member: job.$member,)* }
            }
        }
    };
}

with_options!(new_job);

/// A job that is waited for: one that is stored (`job`), or one of the same call (`ref`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Dependency {
    /// The id of a stored job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    /// The `ref` of a job of the same call.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// What counts as done; `after` unless said.
    #[serde(default = "after")]
    #[schema(value_type = Option<names::DependencyKindName>)]
    pub kind: DependencyKind,
}

fn after() -> DependencyKind {
    DependencyKind::After
}

/// W3C trace context.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceContext {
    /// The `traceparent` header.
    pub traceparent: String,
    /// The `tracestate` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// When the last of several submissions runs; instead of `run_at` and `delay`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Debounce {
    /// How long nothing more must be submitted.
    pub quiet: Span,
    /// How long after the first submission it may run in any case; at least `quiet`.
    pub at_most: Span,
}

impl From<Debounce> for windlass::job::Debounce {
    fn from(debounce: Debounce) -> Self {
        windlass::job::Debounce { quiet: debounce.quiet.0, at_most: debounce.at_most.0 }
    }
}

/// The places of a call's jobs by their `ref`.
#[derive(Debug, Default)]
pub struct Refs(HashMap<String, usize>);

impl Refs {
    /// Collects the refs of a call; refused when two jobs share one.
    pub fn of(jobs: &[NewJob]) -> Result<Self> {
        let mut places = HashMap::new();
        for (place, job) in jobs.iter().enumerate() {
            if let Some(reference) = &job.reference
                && places.insert(reference.clone(), place).is_some()
            {
                return Err(Error::invalid("ref", format!("{reference:.100?} names two jobs")));
            }
        }
        Ok(Refs(places))
    }

    fn resolve(&self, dependency: &Dependency) -> Result<DependsOn> {
        match (dependency.job, &dependency.reference) {
            (Some(id), None) => Ok(DependsOn::Job(id)),
            (None, Some(reference)) => {
                let place = self.0.get(reference).copied();
                let place = place.ok_or_else(|| {
                    Error::invalid("depends_on", format!("no job of this call has the ref {reference:.100?}"))
                })?;
                Ok(DependsOn::Batch(place))
            }
            _ => Err(Error::invalid("depends_on", "each entry names either a job or a ref")),
        }
    }
}

impl NewJob {
    /// The job as the library takes it, not yet checked.
    pub fn into_job(mut self, refs: &Refs) -> Result<windlass::NewJob> {
        let payload = data::join("payload", self.take_data())?.unwrap_or_default();
        self.compute_key(&payload)?;
        let job = windlass::NewJob::new(std::mem::take(&mut self.job_type), payload);
        let job = match (self.run_at, self.delay) {
            (Some(_), Some(_)) => return Err(Error::invalid("run_at", "and delay exclude each other")),
            (Some(at), None) => job.run_at(at),
            (None, Some(delay)) => job.delay(delay.0),
            (None, None) => job,
        };
        Submitted::from(self).onto(job, refs)
    }

    /// Computes the key from the payload, where that is asked for.
    fn compute_key(&mut self, payload: &Payload) -> Result<()> {
        let pointers = std::mem::take(&mut self.unique_by);
        let pointers = match (&self.idempotency_key, pointers.is_empty()) {
            (Some(_), false) => return Err(Error::invalid("unique_by", "and idempotency_key exclude each other")),
            (Some(_), true) => return Ok(()),
            (None, false) => pointers,
            (None, true) if self.debounce.is_some() => vec![String::new()],
            (None, true) => return Ok(()),
        };
        self.idempotency_key = Some(windlass::job::key_of_pointers(payload, &pointers)?);
        if self.idempotency_window.is_none() && self.debounce.is_none() {
            self.idempotency_until.get_or_insert(Until::Ended);
        }
        Ok(())
    }

    fn take_data(&mut self) -> Data {
        let (json, base64, content_type) = (self.payload.take(), self.payload_base64.take(), self.content_type.take());
        Data { json, base64, content_type }
    }

    /// A checked job as a request that makes the same one; places in the batch become refs `0`, `1`, …
    pub fn of_spec(spec: &JobSpec) -> Self {
        let Data { json, base64, content_type } = data::split(&spec.payload);
        let (run_at, delay) = first_run(spec.options.run_at);
        let timeouts = &spec.options.timeouts;
        NewJob {
            job_type: spec.job_type.to_string(),
            payload: json,
            payload_base64: base64,
            content_type,
            run_at,
            delay,
            // The default one is left to the server, which counts it from the first run.
            lifetime: (!timeouts.lifetime_from_run_at).then_some(Limit(timeouts.lifetime)),
            ..NewJob::from(Submitted::of(spec))
        }
    }

    /// Checked jobs of one call as a request, with the refs that their dependencies need.
    pub fn of_specs(specs: &[JobSpec]) -> Vec<Self> {
        let mut jobs: Vec<NewJob> = specs.iter().map(NewJob::of_spec).collect();
        for spec in specs {
            for dependency in &spec.depends_on {
                if let DependsOn::Batch(place) = dependency.on
                    && let Some(job) = jobs.get_mut(place)
                {
                    job.reference = Some(place.to_string());
                }
            }
        }
        jobs
    }
}

/// The first run that was asked for: as a moment, or as a delay.
pub(super) fn first_run(run_at: Option<RunAt>) -> (Option<Timestamp>, Option<Span>) {
    match run_at {
        None => (None, None),
        Some(RunAt::At(at)) => (Some(at), None),
        Some(RunAt::In(delay)) => (None, Some(delay.into())),
    }
}

impl Submitted {
    /// What a checked job says.
    pub fn of(spec: &JobSpec) -> Self {
        let options = &spec.options;
        let idempotency = options.idempotency.as_ref();
        Submitted {
            queue: Some(spec.queue.to_string()),
            priority: Some(spec.priority),
            max_attempts: Some(options.retry.max_attempts),
            retry: Some(Retry::from(&options.retry)),
            execution_timeout: Some(Limit(options.timeouts.execution)),
            visibility_timeout: Some(options.timeouts.visibility.into()),
            lifetime: Some(Limit(options.timeouts.lifetime)),
            retention: RetentionPatch::of(options.retention),
            idempotency_key: idempotency.map(|idempotency| idempotency.key.clone()),
            idempotency_scope: idempotency.map(|idempotency| idempotency.scope),
            idempotency_window: idempotency.map(|idempotency| Limit(idempotency.window)),
            idempotency_until: idempotency.map(|key| key.until).filter(|until| *until != Until::Window),
            on_existing: idempotency.map(|key| key.on_existing).filter(|existing| *existing != OnExisting::Keep),
            debounce: options.debounce().map(|windlass::job::Debounce { quiet, at_most }| Debounce {
                quiet: (*quiet).into(),
                at_most: (*at_most).into(),
            }),
            key: options.key.clone(),
            depends_on: spec.depends_on.iter().map(Dependency::from).collect(),
            own_priority_only: options.own_priority_only,
            tags: options.tags.clone(),
            correlation_id: options.correlation_id.clone(),
            callback_url: options.callback_url.clone(),
            trace_context: options.trace_context.as_ref().map(TraceContext::from),
            cloned_from: options.cloned_from,
        }
    }

    /// The idempotency key with everything about it; refused where something is said about none.
    fn take_idempotency(&mut self) -> Result<Option<Idempotency>> {
        let (scope, window) = (self.idempotency_scope.take(), self.idempotency_window.take());
        let (until, on_existing) = (self.idempotency_until.take(), self.on_existing.take());
        let debounce = self.debounce.take().map(windlass::job::Debounce::from);
        let Some(key) = self.idempotency_key.take() else {
            let is_stray = scope.is_some() || window.is_some() || until.is_some() || on_existing.is_some();
            return match is_stray || debounce.is_some() {
                true => Err(Error::invalid("idempotency_key", "is missing beside what is said about it")),
                false => Ok(None),
            };
        };
        let standard = match debounce {
            Some(_) => (Until::Claimed, OnExisting::Replace),
            None => (Until::Window, OnExisting::Keep),
        };
        let until = until.unwrap_or(standard.0);
        let window_default = (until == Until::Window).then_some(WINDOW_DEFAULT);
        Ok(Some(Idempotency {
            key,
            scope: scope.unwrap_or_default(),
            window: window.map_or(window_default, |limit| limit.0),
            until,
            on_existing: on_existing.unwrap_or(standard.1),
            debounce,
        }))
    }

    /// The job with all of this said, not yet checked.
    fn onto(mut self, mut job: windlass::NewJob, refs: &Refs) -> Result<windlass::NewJob> {
        for dependency in &self.depends_on {
            job = job.depends_on(refs.resolve(dependency)?, dependency.kind);
        }
        let is_window = self.idempotency_until.unwrap_or_default() == Until::Window && self.debounce.is_none();
        let by_policy = is_window && self.idempotency_window.is_none();
        if let Some(idempotency) = self.take_idempotency()? {
            job = job.with_idempotency(idempotency);
            job = if by_policy { job.window_by_policy() } else { job };
        }
        let set = job;
        let set = set_some(set, self.retry.map(Retry::into_policy).transpose()?, windlass::NewJob::retry);
        let set = set_some(set, self.queue, |job, queue| job.queue(queue));
        let set = set_some(set, self.priority, windlass::NewJob::priority);
        let set = set_some(set, self.max_attempts, windlass::NewJob::max_attempts);
        let set = set_some(set, self.execution_timeout, |job, limit| job.execution_timeout(limit.0));
        let set = set_some(set, self.visibility_timeout, |job, span| job.visibility_timeout(span.0));
        let set = set_some(set, self.lifetime, |job, limit| job.lifetime(limit.0));
        let set = set_some(set, self.retention, |job, retention| job.retention(retention.into()));
        let set = set_some(set, self.key, |job, key| job.key(key));
        let set = set_some(set, self.correlation_id, |job, id| job.correlation_id(id));
        let set = set_some(set, self.callback_url, |job, url| job.callback_url(url));
        let set =
            set_some(set, self.trace_context, |job, trace| job.trace_context(trace.traceparent, trace.tracestate));
        let set = set_some(set, self.cloned_from, windlass::NewJob::cloned_from);
        let set = if self.own_priority_only { set.own_priority_only() } else { set };
        Ok(self.tags.into_iter().fold(set, |job, (key, value)| job.tag(key, value)))
    }

    /// What a store kept of a job: it was checked when it came in, perhaps under other limits.
    pub(super) fn stored(mut self, job_type: &str, payload: Payload, run_at: Option<RunAt>) -> Result<JobSpec> {
        let standard = JobOptions::default();
        let idempotency = self.take_idempotency()?;
        let retry = self.retry.map_or(Ok(standard.retry), Retry::into_policy)?;
        let max_attempts = self.max_attempts.unwrap_or(retry.max_attempts);
        let options = JobOptions {
            run_at,
            retry: retry.max_attempts(max_attempts),
            timeouts: Timeouts {
                execution: self.execution_timeout.map_or(standard.timeouts.execution, |limit| limit.0),
                visibility: self.visibility_timeout.map_or(standard.timeouts.visibility, |span| span.0),
                lifetime: self.lifetime.map_or(standard.timeouts.lifetime, |limit| limit.0),
                // Its end is in the record; from where it counted matters only to the store that computes it.
                lifetime_from_run_at: false,
            },
            retention: self.retention.unwrap_or_default().into(),
            idempotency,
            key: self.key,
            own_priority_only: self.own_priority_only,
            tags: self.tags,
            correlation_id: self.correlation_id,
            callback_url: self.callback_url,
            trace_context: self.trace_context.map(Trace::from),
            cloned_from: self.cloned_from,
            submitted_by: None,
        };
        Ok(JobSpec::from_stored(
            JobType::new(job_type)?,
            self.queue.map_or_else(|| Ok(QueueName::default()), QueueName::new)?,
            payload,
            self.priority.unwrap_or_default(),
            self.depends_on.into_iter().map(windlass::job::Dependency::try_from).collect::<Result<_>>()?,
            options,
        ))
    }
}

fn set_some<T>(
    job: windlass::NewJob,
    value: Option<T>,
    set: impl FnOnce(windlass::NewJob, T) -> windlass::NewJob,
) -> windlass::NewJob {
    match value {
        None => job,
        Some(value) => set(job, value),
    }
}

impl From<&windlass::job::Dependency> for Dependency {
    fn from(dependency: &windlass::job::Dependency) -> Self {
        let (job, reference) = match dependency.on {
            DependsOn::Job(id) => (Some(id), None),
            DependsOn::Batch(place) => (None, Some(place.to_string())),
        };
        Dependency { job, reference, kind: dependency.kind }
    }
}

impl From<&Trace> for TraceContext {
    fn from(trace: &Trace) -> Self {
        TraceContext { traceparent: trace.parent.clone(), tracestate: trace.state.clone() }
    }
}

impl From<TraceContext> for Trace {
    fn from(trace: TraceContext) -> Self {
        Trace { parent: trace.traceparent, state: trace.tracestate }
    }
}

impl TryFrom<Dependency> for windlass::job::Dependency {
    type Error = Error;

    fn try_from(dependency: Dependency) -> Result<Self> {
        let on = match (dependency.job, dependency.reference) {
            (Some(id), _) => DependsOn::Job(id),
            (None, reference) => {
                let place = reference.and_then(|place| place.parse().ok());
                DependsOn::Batch(place.ok_or_else(|| Error::invalid("depends_on", "names no job"))?)
            }
        };
        Ok(windlass::job::Dependency { on, kind: dependency.kind })
    }
}
