//! The library speaks: one event for each settled attempt, and for the life of a worker.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing_subscriber::layer::SubscriberExt;
use windlass::{Context, Failure, Job, Worker};

use crate::support::{Number, memory};

/// Lines of a subscriber, to be looked at.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        (lines, guard)
    }

    /// The one line that holds all of these words.
    #[track_caller]
    fn one(&self, words: &[&str]) -> String {
        let text = String::from_utf8(self.0.lock().expect("lock").clone()).expect("text");
        let found: Vec<&str> = text.lines().filter(|line| words.iter().all(|word| line.contains(word))).collect();
        assert_eq!(found.len(), 1, "{words:?} in\n{text}");
        found[0].to_owned()
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    lines: Vec<Line>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Line {
    price: u32,
}

impl Job for Order {
    const TYPE: &'static str = "order";
    const QUEUE: &'static str = "orders";
}

#[tokio::test]
async fn each_settled_attempt_is_one_event_at_its_level() {
    let (lines, _guard) = Lines::listen();
    let setup = memory().await;
    let handler = async |job: Number, _: Context| match job.0 {
        0 => Ok(()),
        1 => Err(Failure::temporary("the mail server is away").with_code("smtp").retry_after(Duration::from_secs(7))),
        2 => Err(Failure::permanent("bounced", "no such address")),
        3 => Err(Failure::dead_letter("cursed", "never again")),
        _ => Err(Failure::snooze(Duration::from_secs(9))),
    };
    let worker = setup.worker(1).handle(handler);
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(setup.number(number).await.to_string());
    }
    worker.drain().await.expect("drain");
    lines.one(&[&ids[0], "DEBUG", "windlass::job", "a job completed"]);
    lines.one(&[
        &ids[1],
        "WARN",
        "smtp",
        "failure=\"the mail server is away\"",
        "attempt=1",
        "retry_in=7s",
        "queue=default",
    ]);
    lines.one(&[&ids[2], "ERROR", "FAILED", "bounced", "no such address"]);
    lines.one(&[&ids[3], "ERROR", "DEAD_LETTER", "cursed"]);
    lines.one(&[&ids[4], "INFO", "snoozed", "9s"]);
}

#[tokio::test]
async fn a_payload_that_does_not_decode_names_the_field_and_no_value() {
    let (lines, _guard) = Lines::listen();
    let setup = memory().await;
    let worker = Worker::new(&setup.client).queue("orders", 1).handle(async |_: Order, _: Context| Ok(()));
    for (payload, problem) in [
        (serde_json::json!({"lines": [{"price": 1}, {"price": "secret"}]}), "lines[1].price: expected u32"),
        (serde_json::json!({"lines": [{}]}), "lines[0]: missing field `price`"),
        (serde_json::json!({}), "missing field `lines`"),
    ] {
        let payload = windlass::Payload::json(&payload).expect("json");
        let job = windlass::NewJob::new("order", payload).queue("orders");
        let id = setup.client.enqueue(job).await.expect("enqueue").id;
        worker.drain().await.expect("drain");
        let failure = setup.client.job(id).await.expect("the job").failure.expect("a failure");
        assert!(failure.message.contains(problem), "{}", failure.message);
        assert!(!failure.message.contains("secret"), "{}", failure.message);
        lines.one(&[&id.to_string(), "ERROR", "invalid_payload", problem]);
    }
}

#[tokio::test]
async fn a_worker_tells_of_its_start_its_stop_and_a_queue_that_it_does_not_serve() {
    let (lines, _guard) = Lines::listen();
    let setup = memory().await;
    let running = setup.worker(1).handle(async |_: Order, _: Context| Ok(())).start().await.expect("start");
    let id = running.id().to_string();
    running.stop().await;
    lines.one(&[&id, "INFO", "the worker starts", "default", "order"]);
    lines.one(&["WARN", "order", "queue=\"orders\"", "does not serve"]);
    lines.one(&[&id, "INFO", "the worker has stopped", "settled=0"]);
}
