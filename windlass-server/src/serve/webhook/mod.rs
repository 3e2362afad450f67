//! Webhooks: the jobs that tell a callback URL how another job ended (rule N7), as in Standard Webhooks.
//!
//! They are jobs like any other, stored by the transaction that ended the job they tell of. Here is their handler:
//! look the job up, check the target (`target.rs`, `address.rs`), sign (`sign.rs`), POST, and let the answer decide.

mod address;
mod sign;
mod target;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde_json::json;
use serde_json::value::RawValue;
use windlass::workflow::Webhook;
use windlass::{Client, Context, Failure, Job, JobRecord, Payload, Worker};

pub use self::address::Allowed;
pub use self::sign::Secret;
pub use self::target::{Lookup, SystemLookup};

use self::address::Refused;
use self::sign::signatures;
use self::target::Checked;
use super::config::Webhooks;
use super::metrics;
use crate::outgoing;

/// Larger results are left out: receivers may cut at 20 kB, and they can fetch the job.
const RESULT_BYTES_MAX: usize = 16 * 1024;
/// How much of an answer is read, and thrown away.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Delivers webhooks.
#[derive(Debug)]
pub struct Deliverer {
    http: reqwest::Client,
    settings: Webhooks,
    allowed: Arc<Allowed>,
}

impl Deliverer {
    /// With these settings, looking names up with `lookup`.
    pub fn new(settings: Webhooks, lookup: Arc<dyn Lookup>) -> anyhow::Result<Self> {
        let allowed = Arc::new(settings.allowed.clone());
        let http = outgoing::client(settings.timeout)
            .https_only(!settings.allow_http)
            // A kept connection would be used without a new look at where its name leads.
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(Checked { lookup, allowed: Arc::clone(&allowed) }))
            .build()
            .context("cannot make calls for webhooks")?;
        Ok(Deliverer { http, settings, allowed })
    }

    /// A worker that delivers the webhooks of a store.
    pub fn worker(self, client: &Client) -> Worker<Deliverer> {
        let slots = self.settings.concurrency;
        Worker::new(client).with_state(self).queue(Webhook::QUEUE, slots).handle(deliver)
    }

    async fn send(&self, url: &str, id: &str, body: Vec<u8>) -> Result<reqwest::Response, Failure> {
        let url = target::check(url, &self.allowed, self.settings.allow_http).map_err(refused)?;
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

async fn deliver(job: Webhook, cx: Context<Deliverer>) -> Result<(), Failure> {
    let ended = cx.client().store().find(&[job.job_id]).await?.pop().flatten();
    let Some(ended) = ended else {
        return Err(Failure::permanent("job_not_found", "the job to tell of is not there any more"));
    };
    // Somebody may have taken the URL away since.
    let Some(url) = ended.spec.options.callback_url.clone() else { return Ok(()) };
    let id = format!("msg_{}", cx.id());
    let body = body(&ended)?;
    let told = match cx.state.send(&url, &id, body).await {
        Ok(answer) => judge(answer).await,
        Err(failure) => Err(failure),
    };
    metrics::delivery(match &told {
        Ok(()) => "delivered",
        Err(failure) if failure.code() == Some("webhook_refused") => "refused",
        Err(failure) if failure.category() == windlass::Category::Permanent => "gone",
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

/// What is told: the job's id, type, state, and its result or failure.
fn body(job: &JobRecord) -> Result<Vec<u8>, Failure> {
    let mut data = json!({
        "id": job.id.to_string(),
        "type": job.spec.job_type.as_str(),
        "queue": job.spec.queue.as_str(),
        "state": job.state.as_str(),
        "attempt": job.attempt,
        "created_at": job.created_at,
        "completed_at": job.completed_at,
        "correlation_id": job.spec.options.correlation_id,
        "workflow_id": job.workflow_id.map(|id| id.to_string()),
    });
    let object = data.as_object_mut().expect("it was written as an object");
    match (&job.result, &job.failure) {
        (Some(result), _) if result.len() > RESULT_BYTES_MAX => {
            object.insert("result_bytes".to_owned(), json!(result.len()));
        }
        (Some(result), _) => {
            object.insert("result".to_owned(), result_value(result)?);
        }
        (None, Some(failure)) if job.state != windlass::State::Completed => {
            let message: String = failure.message.chars().take(1000).collect();
            let failure = json!({ "category": failure.category, "code": failure.code, "message": message });
            object.insert("failure".to_owned(), failure);
        }
        (None, _) => {}
    }
    let event = json!({ "type": format!("job.{}", job.state.as_str()), "timestamp": job.completed_at, "data": data });
    Ok(serde_json::to_vec(&event)?)
}

fn result_value(result: &Payload) -> Result<serde_json::Value, Failure> {
    if result.is_json() {
        let raw: &RawValue = serde_json::from_slice(result.as_bytes())?;
        return Ok(serde_json::to_value(raw)?);
    }
    Ok(json!({ "content_type": result.content_type(), "base64": STANDARD.encode(result.as_bytes()) }))
}

/// How long a worker of webhooks waits for deliveries under way when it stops.
pub(super) fn grace(settings: &Webhooks, most: Duration) -> Duration {
    (settings.timeout + Duration::from_secs(1)).min(most)
}
