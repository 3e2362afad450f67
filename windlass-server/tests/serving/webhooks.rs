//! Webhooks, from the end of a job to a receiver that checks the signature.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass::job::WorkerId;
use windlass::store::{ClaimRequest, Filter};
use windlass::workflow::Webhook;
use windlass::{Client, Context, Failure, Job, JobRecord, JobType, NewJob, Payload, QueueName, State, Worker};
use windlass_server::serve::config::Webhooks;
use windlass_server::serve::webhook::{Allowed, Deliverer, Lookup, Secret, SystemLookup};

use crate::support::SOON;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD: &str = "whsec_T0xET0xET0xET0xET0xET0xET0xET0xE";

fn settings(allow: &[&str]) -> Webhooks {
    let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
    Webhooks {
        secrets: [SECRET, OLD].map(|secret| Secret::parse(secret).expect("a secret")).to_vec(),
        allowed: Allowed::parse(&allow).expect("valid"),
        allow_http: true,
        timeout: Duration::from_secs(5),
        concurrency: 4,
    }
}

type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// A receiver that answers with these status codes in turn, the last one for ever.
async fn receiver(codes: &'static [u16]) -> (String, Seen) {
    let seen = Seen::default();
    let into = Arc::clone(&seen);
    let answer = move |headers: HeaderMap, body: String| async move {
        let mut seen = into.lock().expect("lock");
        let code = codes.get(seen.len()).or(codes.last()).expect("a code");
        seen.push((headers, body));
        let mut answered = HeaderMap::new();
        if *code == 503 {
            answered.insert("retry-after", "1".parse().expect("a value"));
        }
        if *code == 302 {
            answered.insert("location", "/elsewhere".parse().expect("a value"));
        }
        (StatusCode::from_u16(*code).expect("a status"), answered)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let app = Router::new().route("/hook", post(answer.clone())).route("/elsewhere", axum::routing::any(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, seen)
}

/// Ends a job that wants to be told of, and delivers until the webhook's job has left the given state.
async fn deliver(
    url: &str,
    fails: bool,
    settings: Webhooks,
    lookup: impl Lookup,
    wanted: State,
) -> (JobRecord, JobRecord) {
    let client = Client::in_memory();
    let new = NewJob::new("t", Payload::json(&1).expect("JSON")).callback_url(url).correlation_id("order-1");
    let job = client.enqueue(new).await.expect("enqueue").id;
    let handler = move |_, _: Context| async move {
        if fails {
            Err(Failure::permanent("no_such_user", "nobody"))
        } else {
            Ok(Payload::json("done")?.decode::<String>()?)
        }
    };
    Worker::new(&client).queue("default", 1).handle_raw("t", handler).drain().await.expect("it ran");
    let deliverer = Deliverer::new(settings, Arc::new(lookup)).expect("a client");
    let running = deliverer.worker(&client).start().await.expect("start");
    let filter = Filter::new().job_type(JobType::new(Webhook::TYPE).expect("a name"));
    let told = tokio::time::timeout(SOON, async {
        loop {
            let page = client.list(filter.clone(), 10, None).await.expect("a list");
            assert_eq!(page.items.len(), 1, "one webhook for one end");
            if page.items[0].state == wanted {
                return page.items[0].clone();
            }
            assert!(!page.items[0].state.is_terminal(), "{:?}", page.items[0].failure);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let webhook = told.await.expect("the webhook ends");
    running.stop().await;
    (client.job(job).await.expect("a job"), webhook)
}

/// An HMAC-SHA256 of its own, from the definition (RFC 2104), to hold the other against.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let padded = |with: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::digest([padded(0x36), message.to_vec()].concat());
    Sha256::digest([padded(0x5c), inner.to_vec()].concat()).to_vec()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().expect("text")
}

#[tokio::test]
async fn n7_the_end_of_a_job_is_told_and_signed_with_every_secret() {
    let (url, seen) = receiver(&[204]).await;
    let (job, webhook) = deliver(&url, false, settings(&["127.0.0.1"]), SystemLookup, State::Completed).await;
    let seen = seen.lock().expect("lock");
    let [(headers, body)] = &seen[..] else { panic!("{} deliveries", seen.len()) };
    let told: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(told["type"], "job.completed");
    assert_eq!(told["data"]["id"], job.id.to_string());
    assert_eq!(
        (&told["data"]["type"], &told["data"]["state"], &told["data"]["result"]),
        (&"t".into(), &"completed".into(), &"done".into())
    );
    assert_eq!(told["data"]["correlation_id"], "order-1");
    assert_eq!(text(headers, "content-type"), "application/json");
    let (id, timestamp) = (text(headers, "webhook-id"), text(headers, "webhook-timestamp"));
    assert_eq!(id, format!("msg_{}", webhook.id));
    let message = format!("{id}.{timestamp}.{body}");
    let expected: Vec<String> = [SECRET, OLD]
        .map(|secret| STANDARD.decode(&secret["whsec_".len()..]).expect("base64"))
        .map(|key| format!("v1,{}", STANDARD.encode(hmac(&key, message.as_bytes()))))
        .to_vec();
    assert_eq!(text(headers, "webhook-signature"), expected.join(" "));
}

#[tokio::test]
async fn n7_a_failure_is_told_and_retried_under_the_same_id() {
    let (url, seen) = receiver(&[503, 503, 200]).await;
    let (_, webhook) = deliver(&url, true, settings(&["127.0.0.0/8"]), SystemLookup, State::Completed).await;
    let seen = seen.lock().expect("lock");
    assert_eq!((seen.len(), webhook.attempt), (3, 3), "Retry-After of a second, not a backoff of five");
    let ids: std::collections::BTreeSet<_> = seen.iter().map(|(headers, _)| text(headers, "webhook-id")).collect();
    assert_eq!(ids.len(), 1);
    let told: Value = serde_json::from_str(&seen[0].1).expect("JSON");
    assert_eq!((&told["type"], &told["data"]["failure"]["code"]), (&"job.failed".into(), &"no_such_user".into()));
}

#[tokio::test]
async fn n7_gone_is_for_good_and_redirects_are_not_followed() {
    let (url, seen) = receiver(&[410]).await;
    let (_, webhook) = deliver(&url, false, settings(&["127.0.0.1"]), SystemLookup, State::Failed).await;
    assert_eq!(webhook.failure.expect("a failure").code.as_deref(), Some("webhook_gone"));
    assert_eq!(seen.lock().expect("lock").len(), 1);
    let (url, seen) = receiver(&[302]).await;
    let (_, webhook) = deliver(&url, false, settings(&["127.0.0.1"]), SystemLookup, State::Retrying).await;
    assert_eq!(webhook.failure.expect("a failure").code.as_deref(), Some("webhook_302"));
    assert_eq!(seen.lock().expect("lock").len(), 1);
}

#[tokio::test]
async fn x7_what_is_not_allowed_is_never_called() {
    let (url, seen) = receiver(&[200]).await;
    let (_, webhook) = deliver(&url, false, settings(&[]), SystemLookup, State::Failed).await;
    let failure = webhook.failure.expect("a failure");
    assert_eq!(failure.code.as_deref(), Some("webhook_refused"));
    let by_name = url.replace("127.0.0.1", "localhost");
    let (_, webhook) = deliver(&by_name, false, settings(&[]), SystemLookup, State::Failed).await;
    assert_eq!(webhook.failure.expect("a failure").code.as_deref(), Some("webhook_refused"));
    let mut strict = settings(&["127.0.0.1"]);
    strict.allow_http = false;
    let (_, webhook) = deliver(&url, false, strict, SystemLookup, State::Failed).await;
    assert_eq!(webhook.failure.expect("a failure").code.as_deref(), Some("webhook_refused"));
    assert_eq!(seen.lock().expect("lock").len(), 0);
}

/// A resolver that answers with a public address the first time and with our own the second.
#[derive(Clone, Default)]
struct Rebinding(Arc<Mutex<usize>>);

#[async_trait]
impl Lookup for Rebinding {
    async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let mut asked = self.0.lock().expect("lock");
        *asked += 1;
        // 240.0.0.0/4 leads nowhere, and 8.8.8.8 must not be bothered: the first answer is one that is allowed.
        Ok(vec![if *asked == 1 { IpAddr::from([127, 9, 9, 9]) } else { IpAddr::from([127, 0, 0, 1]) }])
    }
}

#[tokio::test]
async fn x7_each_attempt_looks_the_name_up_again_and_connects_to_what_was_checked() {
    let (url, seen) = receiver(&[200]).await;
    let named = url.replace("127.0.0.1", "rebinding.example");
    let lookup = Rebinding::default();
    // Only the first answer is allowed. Nobody listens there, so the first attempt fails; the second answer is refused.
    let (_, webhook) = deliver(&named, false, settings(&["127.9.9.9"]), lookup.clone(), State::Failed).await;
    assert_eq!(webhook.failure.expect("a failure").code.as_deref(), Some("webhook_refused"));
    assert_eq!((webhook.attempt, *lookup.0.lock().expect("lock")), (2, 2));
    assert_eq!(seen.lock().expect("lock").len(), 0, "our own address was never called");
}

/// Ends a job with this result, and gives what its receiver was sent.
async fn told_of(result: &str) -> String {
    let (url, seen) = receiver(&[200]).await;
    let client = Client::in_memory();
    let job = NewJob::new("t", Payload::default()).callback_url(url);
    client.enqueue(job).await.expect("enqueue");
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 1);
    let claimed = client.store().claim(&request).await.expect("claim").remove(0);
    let result = Payload::json_text(result.to_owned()).expect("what a store keeps");
    client.store().settle(&[claimed.lease.complete(Some(result))]).await.expect("settle");
    let deliverer = Deliverer::new(settings(&["127.0.0.1"]), Arc::new(SystemLookup)).expect("a client");
    let running = deliverer.worker(&client).start().await.expect("start");
    let delivered = tokio::time::timeout(SOON, async {
        while seen.lock().expect("lock").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    delivered.await.expect("it was told");
    running.stop().await;
    let seen = seen.lock().expect("lock");
    seen[0].1.clone()
}

/// M7: what a receiver gets is what the store keeps, byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn m7_results_are_told_as_they_were_written() {
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    for result in [
        "{\"n\":123456789012345678901234567890}",
        "1.10",
        "{\"a\":1,\"a\":2}",
        "{ \"b\" : 1,\"a\":[ ] }",
        "1e999",
        "\"\\ud800\"",
        &deep,
    ] {
        let body = told_of(result).await;
        assert!(body.contains(&format!("\"result\":{result}")), "{result}: {body}");
    }
}

/// M9: receivers that hang hold their own share of the slots; the others are told at once.
#[tokio::test(flavor = "multi_thread")]
async fn m9_a_slow_receiver_delays_only_its_own() {
    let hanging = tokio::net::TcpListener::bind("127.0.0.2:0").await.expect("a port");
    let slow = format!("http://{}/hook", hanging.local_addr().expect("an address"));
    let (good, seen) = receiver(&[200]).await;
    let client = Client::in_memory();
    let jobs = (0..24).map(|_| slow.clone()).chain([good]);
    client.enqueue_all(jobs.map(|url| NewJob::new("t", Payload::default()).callback_url(url))).await.expect("enqueue");
    Worker::new(&client)
        .queue("default", 1)
        .handle_raw("t", async |_, _: Context| Ok(()))
        .drain()
        .await
        .expect("they ran");
    let mut settings = settings(&["127.0.0.0/8"]);
    settings.concurrency = 8;
    settings.timeout = Duration::from_secs(20);
    let deliverer = Deliverer::new(settings, Arc::new(SystemLookup)).expect("a client");
    let begun = std::time::Instant::now();
    let running = deliverer.worker(&client).grace(Duration::from_secs(1)).start().await.expect("start");
    while seen.lock().expect("lock").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(15), "the good one waits for the slow ones");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.stop().await;
}

/// L15: a producer does not learn where an internal name leads.
#[tokio::test(flavor = "multi_thread")]
async fn l15_a_refused_webhook_does_not_name_the_address() {
    struct Internal;
    #[async_trait]
    impl Lookup for Internal {
        async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(vec![IpAddr::from([10, 9, 8, 7])])
        }
    }
    let (_, webhook) = deliver("https://name.internal/", false, settings(&[]), Internal, State::Failed).await;
    let failure = webhook.failure.expect("a failure");
    assert_eq!(failure.code.as_deref(), Some("webhook_refused"));
    assert!(!failure.message.contains("10.9.8.7"), "{}", failure.message);
}

/// M8: of a job that has not ended nothing is told.
#[tokio::test]
async fn a_job_that_was_sent_back_is_told_of_when_it_ends_again() {
    let (url, seen) = receiver(&[200]).await;
    let client = Client::in_memory();
    let new = NewJob::new("t", Payload::default()).callback_url(&url);
    let job = client.enqueue(new).await.expect("enqueue").id;
    let fails = |_, _: Context| async { Err::<(), _>(Failure::permanent("no", "no")) };
    Worker::new(&client).queue("default", 1).handle_raw("t", fails).drain().await.expect("it ran");
    client.requeue(job).await.expect("sent back");
    let deliverer = Deliverer::new(settings(&["127.0.0.1/32"]), Arc::new(SystemLookup)).expect("a client");
    deliverer.worker(&client).drain().await.expect("delivered");
    assert!(seen.lock().expect("lock").is_empty());
    Worker::new(&client).queue("default", 1).handle_raw("t", fails).drain().await.expect("it ran");
    let deliverer = Deliverer::new(settings(&["127.0.0.1/32"]), Arc::new(SystemLookup)).expect("a client");
    deliverer.worker(&client).drain().await.expect("delivered");
    assert_eq!(seen.lock().expect("lock").len(), 1);
}
