//! A worker of a program's own delivers webhooks, without a server (N7).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use windlass::worker::webhooks::{Allowed, Secret, Webhooks, signatures};
use windlass::workflow::Webhook;
use windlass::{Context, Job, State, Worker};

use crate::support::{Number, SOON, memory, until};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Takes one request, answers it with 204, and gives its head and its body.
async fn one_request(listener: &TcpListener) -> (String, String) {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).await.expect("a request");
        text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = header(head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.expect("answered");
            return (head.to_owned(), body.to_owned());
        }
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().filter_map(|line| line.split_once(": ")).find(|(found, _)| *found == name).map(|(_, value)| value)
}

#[tokio::test]
async fn n7_a_worker_in_a_program_delivers_signed_webhooks() {
    let setup = memory().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let secret = Secret::parse(SECRET).expect("a secret");
    let allowed = Allowed::parse(&["127.0.0.1".to_owned()]).expect("an address");
    let webhooks = Webhooks { allowed, allow_http: true, ..Webhooks::from(secret.clone()) };
    let worker = Worker::new(&setup.client).with_state(7).queue("default", 1).webhooks(webhooks);
    let running = worker.handle(async |_: Number, cx: Context<u8>| Ok(*cx.state)).start().await.expect("start");
    let id = setup.client.enqueue(Number(1)).callback_url(url).await.expect("enqueue").id;
    let (head, body) = tokio::time::timeout(SOON, one_request(&listener)).await.expect("it is told");
    assert!(head.starts_with("POST /hook "), "{head}");
    let told: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((&told["data"]["id"], &told["data"]["result"]), (&id.to_string().into(), &7.into()));
    let of = |name| header(&head, name).unwrap_or_else(|| panic!("no {name} in {head}"));
    let at = of("webhook-timestamp").parse().expect("seconds");
    assert_eq!(of("webhook-signature"), signatures(&[secret], of("webhook-id"), at, body.as_bytes()));
    running.stop().await;
}

#[tokio::test]
async fn n7_a_private_target_is_refused_unless_it_is_allowed() {
    let setup = memory().await;
    let secret = Secret::parse(SECRET).expect("a secret");
    let worker = setup.worker(1).webhooks(secret).handle(async |_: Number, _: Context| Ok(()));
    let running = worker.start().await.expect("start");
    setup.client.enqueue(Number(1)).callback_url("https://127.0.0.1:1/").await.expect("enqueue");
    until("it is refused", || async { !setup.client.dead(1, None).await.expect("dead").items.is_empty() }).await;
    let failed = setup.client.dead(1, None).await.expect("dead").items.remove(0);
    assert_eq!((failed.spec.job_type.as_str(), failed.state), (Webhook::TYPE, State::Failed));
    assert_eq!(failed.failure.expect("a failure").code.as_deref(), Some("webhook_refused"));
    running.stop().await;
}

#[tokio::test]
async fn a_worker_without_a_secret_does_not_start() {
    let setup = memory().await;
    let refused = setup.worker(1).webhooks(Vec::new()).start().await.expect_err("nothing to sign with");
    assert!(refused.to_string().contains("secret"), "{refused}");
}
