//! Webhooks: the jobs that tell a callback URL how another job ended (rule N7), as in Standard Webhooks.
//!
//! They are jobs like any other, stored by the transaction that ended the job they tell of. Here is their handler:
//! look the job up, check the target (`target.rs`, `address.rs`), sign (`sign.rs`), POST, and let the answer decide.
//! [`Worker::webhooks`] lets a worker deliver them; `windlass run` does with `webhooks.secrets` in its configuration.

mod address;
pub mod outgoing;
mod sign;
mod target;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

pub use self::address::Allowed;
pub use self::sign::{Secret, signatures};
pub use self::target::{Lookup, SystemLookup};

use self::address::Refused;
use self::target::Checked;
use super::builder::Worker;
use super::context::Context;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::job::{Category, Failure, Job, JobRecord, Payload, State};
use crate::observe;
use crate::time::Timestamp;
use crate::workflow::Webhook;

/// Larger results are left out: receivers may cut at 20 kB, and they can fetch the job.
const RESULT_BYTES_MAX: usize = 16 * 1024;
/// How much of an answer is read, and thrown away.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Longest time for one delivery: the webhook job's own execution timeout is 30 s, and ours must come first to say what
/// happened.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(25);

/// How webhooks are delivered.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// What they are signed with, newest first.
    pub secrets: Vec<Secret>,
    /// Private targets that are allowed all the same.
    pub allowed: Allowed,
    /// Whether plain `http` is allowed.
    pub allow_http: bool,
    /// How long one delivery may take, at most [`TIMEOUT_MAX`].
    pub timeout: Duration,
    /// How many are under way at once.
    pub concurrency: usize,
}

impl Webhooks {
    /// To public addresses over `https`, signed with these secrets, for 15 s at most and 16 at once.
    pub fn new(secrets: impl Into<Vec<Secret>>) -> Self {
        Webhooks {
            secrets: secrets.into(),
            allowed: Allowed::default(),
            allow_http: false,
            timeout: Duration::from_secs(15),
            concurrency: 16,
        }
    }
}

impl From<Secret> for Webhooks {
    fn from(secret: Secret) -> Self {
        Webhooks::new([secret])
    }
}

impl From<Vec<Secret>> for Webhooks {
    fn from(secrets: Vec<Secret>) -> Self {
        Webhooks::new(secrets)
    }
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Delivers the webhooks of the store too, signed with these secrets (feature `webhooks`).
    ///
    /// A job with a `callback_url` is told of by a job in the queue `windlass.webhooks`, which this serves. Private, loopback
    /// and link-local targets are refused unless [`Webhooks::allowed`] names them, and redirects are not followed.
    ///
    /// ```no_run
    /// # async fn example(client: windlass::Client) -> windlass::Result<()> {
    /// use windlass::Worker;
    /// use windlass::worker::webhooks::Secret;
    ///
    /// let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
    /// Worker::new(&client).queue("default", 8).webhooks(secret).run().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn webhooks(self, webhooks: impl Into<Webhooks>) -> Self {
        match Deliverer::new(webhooks.into(), Arc::new(SystemLookup)) {
            Ok(deliverer) => self.deliver_webhooks(deliverer),
            Err(error) => self.with_problem("webhooks", error.to_string()),
        }
    }

    /// Delivers the webhooks of the store with a deliverer of your own.
    pub fn deliver_webhooks(self, deliverer: Deliverer) -> Self {
        let deliverer = Arc::new(deliverer);
        let slots = deliverer.settings.concurrency;
        self.queue(Webhook::QUEUE, slots)
            .handle(move |job: Webhook, cx: Context<S>| deliver(Arc::clone(&deliverer), job, cx))
    }
}

/// Delivers webhooks.
#[derive(Debug)]
pub struct Deliverer {
    http: reqwest::Client,
    settings: Webhooks,
    allowed: Arc<Allowed>,
    hosts: Hosts,
}

impl Deliverer {
    /// With these settings, looking names up with `lookup`.
    pub fn new(settings: Webhooks, lookup: Arc<dyn Lookup>) -> Result<Self> {
        if settings.secrets.is_empty() {
            return Err(Error::invalid("webhooks", "need a secret to sign them with"));
        }
        if settings.timeout.is_zero() || settings.timeout > TIMEOUT_MAX {
            return Err(Error::invalid("webhooks.timeout", "must be more than zero and at most 25s"));
        }
        let allowed = Arc::new(settings.allowed.clone());
        let http = outgoing::client(settings.timeout)
            .https_only(!settings.allow_http)
            // A kept connection would be used without a new look at where its name leads.
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(Checked { lookup, allowed: Arc::clone(&allowed) }))
            .build()
            .map_err(|error| Error::store("make calls for webhooks", error))?;
        let hosts = Hosts::new(settings.concurrency);
        Ok(Deliverer { http, settings, allowed, hosts })
    }

    /// A worker that delivers the webhooks of a store.
    pub fn worker(self, client: &Client) -> Worker {
        Worker::new(client).deliver_webhooks(self)
    }

    async fn send(&self, url: &str, id: &str, body: Vec<u8>) -> Result<reqwest::Response, Failure> {
        let url = target::check(url, &self.allowed, self.settings.allow_http).map_err(refused)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        // A receiver that hangs may hold its own share of the slots and no more; nothing is counted for waiting.
        let Some(_place) = self.hosts.place(&host) else {
            let wait = Duration::from_millis(fastrand::u64(HOST_WAITS));
            return Err(Failure::snooze(wait).with_code(PUT_OFF));
        };
        // A receiver refuses what is too old or too new, so this is the machine's time, and each attempt's own.
        let timestamp = jiff::Timestamp::now().as_second();
        let signature = signatures(&self.settings.secrets, id, timestamp, &body);
        let request = self
            .http
            .post(url)
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp.to_string())
            .header("webhook-signature", signature)
            .body(body);
        request.send().await.map_err(|error| {
            if let Some(target) = refused_inside(&error) {
                return refused(target);
            }
            let code = if error.is_timeout() { "webhook_timeout" } else { "webhook_unreachable" };
            Failure::temporary(format!("the callback URL cannot be reached: {}", outgoing::words(error)))
                .with_code(code)
        })
    }
}

async fn deliver<S>(deliverer: Arc<Deliverer>, job: Webhook, cx: Context<S>) -> Result<(), Failure> {
    let ended = cx.client().store().find(&[job.job_id]).await?.pop().flatten();
    let Some(ended) = ended else {
        return Err(Failure::permanent("job_not_found", "the job to tell of is not there any more"));
    };
    // Sent back since: its next end is told by a job of its own, and of an unfinished job there is nothing to tell.
    if !ended.state.is_terminal() {
        return Ok(());
    }
    // Somebody may have taken the URL away since.
    let Some(url) = ended.spec.options.callback_url.clone() else { return Ok(()) };
    let id = format!("msg_{}", cx.id());
    let body = body(&ended)?;
    let told = match deliverer.send(&url, &id, body).await {
        Ok(answer) => judge(answer).await,
        Err(failure) => Err(failure),
    };
    observe::delivery(match &told {
        Ok(()) => "delivered",
        Err(failure) if failure.code() == Some(PUT_OFF) => "put off",
        Err(failure) if failure.code() == Some("webhook_refused") => "refused",
        Err(failure) if failure.category() == Category::Permanent => "gone",
        Err(_) => "retried",
    });
    told
}

/// What an answer means.
async fn judge(answer: reqwest::Response) -> Result<(), Failure> {
    let (status, after) = (answer.status(), outgoing::retry_after(answer.headers()));
    // Read, so that the receiver is not cut off while it speaks; what it says does not matter.
    let _ = outgoing::read(answer, ANSWER_BYTES_MAX).await;
    if status.is_success() {
        return Ok(());
    }
    if status == StatusCode::GONE {
        return Err(Failure::permanent("webhook_gone", "the callback URL is gone for good (410)"));
    }
    let failure = Failure::temporary(format!("the callback URL answered {}", status.as_u16()));
    let failure = failure.with_code(format!("webhook_{}", status.as_u16()));
    Err(after.map_or(failure.clone(), |after| failure.retry_after(after)))
}

fn refused(refused: Refused) -> Failure {
    if let Some(address) = refused.address {
        // For the operator alone: a producer must not learn where internal names lead.
        tracing::warn!(%address, "a callback URL is not allowed: its host is not on the public internet");
    }
    Failure::permanent("webhook_refused", format!("the callback URL is not allowed: {refused}"))
}

/// The refusal of our own resolver inside an error of the HTTP client.
fn refused_inside(error: &reqwest::Error) -> Option<Refused> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<Refused>() {
            return Some(refused.clone());
        }
        cause = error.source();
    }
    None
}

/// What is told.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(rename = "type")]
    event: String,
    timestamp: Option<Timestamp>,
    data: About<'a>,
}

/// The job's id, type, state, and its result or failure.
#[derive(Serialize)]
struct About<'a> {
    id: String,
    #[serde(rename = "type")]
    job_type: &'a str,
    queue: &'a str,
    state: &'static str,
    attempt: u32,
    created_at: Timestamp,
    completed_at: Option<Timestamp>,
    correlation_id: Option<&'a str>,
    workflow_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Outcome<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<serde_json::Value>,
}

/// A result: JSON byte for byte as the store keeps it, other bytes as base64.
#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a> {
    Json(&'a RawValue),
    Bytes { content_type: &'a str, base64: String },
}

impl<'a> Outcome<'a> {
    fn of(result: &'a Payload) -> Self {
        // Read as a value, a number could lose digits, an object could lose keys, and some could not be told at all.
        match serde_json::from_slice(result.as_bytes()).ok().filter(|_| result.is_json()) {
            Some(json) => Outcome::Json(json),
            None => Outcome::Bytes { content_type: result.content_type(), base64: STANDARD.encode(result.as_bytes()) },
        }
    }
}

fn body(job: &JobRecord) -> Result<Vec<u8>, Failure> {
    let result = job.result.as_ref();
    let failure = job.failure.as_ref().filter(|_| result.is_none() && job.state != State::Completed);
    let data = About {
        id: job.id.to_string(),
        job_type: job.spec.job_type.as_str(),
        queue: job.spec.queue.as_str(),
        state: job.state.as_str(),
        attempt: job.attempt,
        created_at: job.created_at,
        completed_at: job.completed_at,
        correlation_id: job.spec.options.correlation_id.as_deref(),
        workflow_id: job.workflow_id.map(|id| id.to_string()),
        result: result.filter(|result| result.len() <= RESULT_BYTES_MAX).map(Outcome::of),
        result_bytes: result.map(Payload::len).filter(|bytes| *bytes > RESULT_BYTES_MAX),
        failure: failure.map(|failure| {
            let message: String = failure.message.chars().take(1000).collect();
            json!({ "category": failure.category, "code": failure.code, "message": message })
        }),
    };
    let event = Told { event: format!("job.{}", job.state.as_str()), timestamp: job.completed_at, data };
    Ok(serde_json::to_vec(&event)?)
}

/// How many deliveries are under way to each host.
#[derive(Debug)]
struct Hosts {
    most: usize,
    under_way: Mutex<HashMap<String, usize>>,
}

/// The part of the slots that one host may hold: a quarter.
const HOST_SHARE: usize = 4;
/// The code of a delivery that waits for its host's share.
const PUT_OFF: &str = "webhook_put_off";
/// How many milliseconds it waits.
const HOST_WAITS: std::ops::Range<u64> = 1000..4000;

impl Hosts {
    fn new(slots: usize) -> Self {
        Hosts { most: slots.div_ceil(HOST_SHARE), under_way: Mutex::default() }
    }

    /// A place for a delivery to this host, until it is dropped.
    fn place(&self, host: &str) -> Option<HostPlace<'_>> {
        let mut under_way = self.under_way.lock().expect("nothing panics while it holds this lock");
        let count = under_way.entry(host.to_owned()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(HostPlace { hosts: self, host: host.to_owned() })
    }
}

struct HostPlace<'a> {
    hosts: &'a Hosts,
    host: String,
}

impl Drop for HostPlace<'_> {
    fn drop(&mut self) {
        let mut under_way = self.hosts.under_way.lock().expect("nothing panics while it holds this lock");
        if let Some(count) = under_way.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.host);
            }
        }
    }
}
