//! A job as it is submitted, spawned, or kept as the template of a schedule.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use windlass::{
    Backoff, Category, DependencyKind, DependsOn, Error, Jitter, JobId, JobSpec, Lost, Priority, Result, RetryPolicy,
    RunAt, Scope, Timestamp, TraceContext as Trace, WINDOW_DEFAULT,
};

use super::data::{self, Data};
use super::names;
use super::{Limit, Span};

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
    /// Its lane; `default` unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub queue: Option<String>,
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
    /// How urgent it is; `normal` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::PriorityName>)]
    pub priority: Option<Priority>,
    /// Not before this moment of the store's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub run_at: Option<Timestamp>,
    /// Not before this long after submission; instead of `run_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Counted executions, the first included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub max_attempts: Option<u32>,
    /// When a failed attempt is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Longest run of one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout: Option<Limit>,
    /// The lease time of a claim that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<Span>,
    /// From submission to a terminal state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Limit>,
    /// The same key in the window is the same job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// Among which jobs the key is unique; those of the same type unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::ScopeName>)]
    pub idempotency_scope: Option<Scope>,
    /// How long the key holds; 24 h unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_window: Option<Limit>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub depends_on: Vec<Dependency>,
    /// Whether it does not take over the priority of more urgent dependencies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_priority_only: bool,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// For following one piece of work through several systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub correlation_id: Option<String>,
    /// Told by a signed POST when the job becomes terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2048)]
    pub callback_url: Option<String>,
    /// The W3C trace that the job continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_context: Option<TraceContext>,
    /// The job that this one is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub cloned_from: Option<JobId>,
}

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

/// A retry policy. What is left out is the preset's.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// What the rest is based on; `standard` unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// How the delay grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// The growth of `exponential` from one failure to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub multiplier: Option<f64>,
    /// The first delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Span>,
    /// No delay is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Span>,
    /// How the delay is spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKind>,
    /// The fraction of `proportional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub jitter_fraction: Option<f64>,
    /// The categories that are retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<names::CategoryName>>)]
    pub retry_on: Option<Vec<Category>>,
    /// What a lost attempt costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::LostName>)]
    pub lost: Option<Lost>,
    /// Whether a job whose lease expired waits its backoff before it may be claimed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_backoff: Option<bool>,
    /// Whether an attempt that shutdown interrupted counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts_count: Option<bool>,
}

/// A ready-made retry policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Exponential from 1 s, doubling, at most 1 h, ± 10 %, 3 attempts.
    Standard,
    /// Exponential from 500 ms, doubling, at most 30 s, full jitter, 4 attempts.
    Responsive,
}

/// How the delay grows with the number of failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Always `initial`.
    Constant,
    /// `initial × n`.
    Linear,
    /// `initial × multiplier^(n−1)`.
    Exponential,
}

/// How the delay is spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JitterKind {
    /// Exactly the computed delay.
    None,
    /// The delay, plus or minus up to `jitter_fraction` of it.
    Proportional,
    /// Anything from zero to the delay.
    Full,
    /// A random walk from `initial`.
    Decorrelated,
}

impl Retry {
    /// The policy; its attempts are the preset's.
    pub fn into_policy(self) -> Result<RetryPolicy> {
        let mut policy = match self.preset {
            None | Some(Preset::Standard) => RetryPolicy::standard(),
            Some(Preset::Responsive) => RetryPolicy::responsive(),
        };
        match (self.strategy, self.multiplier) {
            (None | Some(Strategy::Exponential), Some(multiplier)) => {
                policy.strategy = Backoff::Exponential { multiplier };
            }
            (Some(Strategy::Exponential), None) => policy.strategy = Backoff::Exponential { multiplier: 2.0 },
            (Some(_), Some(_)) => return Err(Error::invalid("multiplier", "stands only beside exponential")),
            (Some(Strategy::Constant), None) => policy.strategy = Backoff::Constant,
            (Some(Strategy::Linear), None) => policy.strategy = Backoff::Linear,
            (None, None) => {}
        }
        match (self.jitter, self.jitter_fraction) {
            (None | Some(JitterKind::Proportional), Some(fraction)) => policy.jitter = Jitter::Proportional(fraction),
            (Some(JitterKind::Proportional), None) => policy.jitter = Jitter::Proportional(0.1),
            (Some(_), Some(_)) => return Err(Error::invalid("jitter_fraction", "stands only beside proportional")),
            (Some(JitterKind::None), None) => policy.jitter = Jitter::None,
            (Some(JitterKind::Full), None) => policy.jitter = Jitter::Full,
            (Some(JitterKind::Decorrelated), None) => policy.jitter = Jitter::Decorrelated,
            (None, None) => {}
        }
        policy.initial = self.initial.map_or(policy.initial, |span| span.0);
        policy.max = self.max.map_or(policy.max, |span| span.0);
        policy.retry_on = self.retry_on.unwrap_or(policy.retry_on);
        policy.lost = self.lost.unwrap_or(policy.lost);
        policy.lost_backoff = self.lost_backoff.unwrap_or(policy.lost_backoff);
        policy.interrupts_count = self.interrupts_count.unwrap_or(policy.interrupts_count);
        Ok(policy)
    }
}

impl From<&RetryPolicy> for Retry {
    fn from(policy: &RetryPolicy) -> Self {
        let (strategy, multiplier) = match policy.strategy {
            Backoff::Constant => (Strategy::Constant, None),
            Backoff::Linear => (Strategy::Linear, None),
            Backoff::Exponential { multiplier } => (Strategy::Exponential, Some(multiplier)),
        };
        let (jitter, jitter_fraction) = match policy.jitter {
            Jitter::None => (JitterKind::None, None),
            Jitter::Proportional(fraction) => (JitterKind::Proportional, Some(fraction)),
            Jitter::Full => (JitterKind::Full, None),
            Jitter::Decorrelated => (JitterKind::Decorrelated, None),
        };
        Retry {
            preset: None,
            strategy: Some(strategy),
            multiplier,
            initial: Some(policy.initial.into()),
            max: Some(policy.max.into()),
            jitter: Some(jitter),
            jitter_fraction,
            retry_on: Some(policy.retry_on.clone()),
            lost: Some(policy.lost),
            lost_backoff: Some(policy.lost_backoff),
            interrupts_count: Some(policy.interrupts_count),
        }
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
    pub fn into_job(self, refs: &Refs) -> Result<windlass::NewJob> {
        let NewJob { payload: json, payload_base64: base64, content_type, .. } = self;
        let payload = data::join("payload", Data { json, base64, content_type })?.unwrap_or_default();
        let mut job = windlass::NewJob::new(self.job_type, payload);
        for dependency in &self.depends_on {
            job = job.depends_on(refs.resolve(dependency)?, dependency.kind);
        }
        job = match (self.run_at, self.delay) {
            (Some(_), Some(_)) => return Err(Error::invalid("run_at", "and delay exclude each other")),
            (Some(at), None) => job.run_at(at),
            (None, Some(delay)) => job.delay(delay.0),
            (None, None) => job,
        };
        job = match self.idempotency_key {
            Some(key) => {
                let window = self.idempotency_window.map_or(Some(WINDOW_DEFAULT), |limit| limit.0);
                job.idempotency(key, self.idempotency_scope.unwrap_or_default(), window)
            }
            None if self.idempotency_scope.is_some() || self.idempotency_window.is_some() => {
                return Err(Error::invalid("idempotency_key", "is missing beside its scope or window"));
            }
            None => job,
        };
        let set = job;
        let set = set_some(set, self.retry.map(Retry::into_policy).transpose()?, windlass::NewJob::retry);
        let set = set_some(set, self.queue, |job, queue| job.queue(queue));
        let set = set_some(set, self.priority, windlass::NewJob::priority);
        let set = set_some(set, self.max_attempts, windlass::NewJob::max_attempts);
        let set = set_some(set, self.execution_timeout, |job, limit| job.execution_timeout(limit.0));
        let set = set_some(set, self.visibility_timeout, |job, span| job.visibility_timeout(span.0));
        let set = set_some(set, self.lifetime, |job, limit| job.lifetime(limit.0));
        let set = set_some(set, self.correlation_id, |job, id| job.correlation_id(id));
        let set = set_some(set, self.callback_url, |job, url| job.callback_url(url));
        let set =
            set_some(set, self.trace_context, |job, trace| job.trace_context(trace.traceparent, trace.tracestate));
        let set = set_some(set, self.cloned_from, windlass::NewJob::cloned_from);
        let set = if self.own_priority_only { set.own_priority_only() } else { set };
        Ok(self.tags.into_iter().fold(set, |job, (key, value)| job.tag(key, value)))
    }

    /// A checked job as a request that makes the same one; places in the batch become refs `0`, `1`, …
    pub fn of_spec(spec: &JobSpec) -> Self {
        let options = &spec.options;
        let Data { json, base64, content_type } = data::split(&spec.payload);
        let (run_at, delay) = match options.run_at {
            None => (None, None),
            Some(RunAt::At(at)) => (Some(at), None),
            Some(RunAt::In(delay)) => (None, Some(delay.into())),
        };
        let idempotency = options.idempotency.as_ref();
        NewJob {
            job_type: spec.job_type.to_string(),
            reference: None,
            queue: Some(spec.queue.to_string()),
            payload: json,
            payload_base64: base64,
            content_type,
            priority: Some(spec.priority),
            run_at,
            delay,
            max_attempts: Some(options.retry.max_attempts),
            retry: Some(Retry::from(&options.retry)),
            execution_timeout: Some(Limit(options.timeouts.execution)),
            visibility_timeout: Some(options.timeouts.visibility.into()),
            lifetime: Some(Limit(options.timeouts.lifetime)),
            idempotency_key: idempotency.map(|idempotency| idempotency.key.clone()),
            idempotency_scope: idempotency.map(|idempotency| idempotency.scope),
            idempotency_window: idempotency.map(|idempotency| Limit(idempotency.window)),
            depends_on: spec.depends_on.iter().map(Dependency::from).collect(),
            own_priority_only: options.own_priority_only,
            tags: options.tags.clone(),
            correlation_id: options.correlation_id.clone(),
            callback_url: options.callback_url.clone(),
            trace_context: options.trace_context.as_ref().map(TraceContext::from),
            cloned_from: options.cloned_from,
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

impl From<&windlass::Dependency> for Dependency {
    fn from(dependency: &windlass::Dependency) -> Self {
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
