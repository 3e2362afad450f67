//! What is known when an answer is lost: on the way from a caller to the server, and from the server to its store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use windlass::job::Limits;
use windlass::store::Store;
use windlass::workflow::Submission;
use windlass::{Client, Error, NewJob, Payload, Policies};
use windlass_server::api::{self, ApiState};
use windlass_server::remote::HttpStore;

use crate::support::Server;

/// What a broken server does with a request.
#[derive(Clone, Copy, Debug)]
enum Broken {
    /// Nothing listens.
    Gone,
    /// It reads and hangs up.
    HangsUp,
    /// It reads and says nothing.
    Silent,
}

/// A store behind a server that is broken in this way.
async fn behind(broken: Broken) -> HttpStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    if !matches!(broken, Broken::Gone) {
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                if matches!(broken, Broken::Silent) {
                    kept.push(stream);
                }
            }
        });
    }
    HttpStore::connect(&url, None).expect("a URL")
}

fn submission() -> Submission {
    let job = NewJob::new("t", Payload::default()).check(&Limits::default(), &Policies::default());
    Submission::new(vec![job.expect("valid")]).expect("valid")
}

#[tokio::test]
async fn a_write_that_was_sent_is_unknown_and_one_that_was_not_is_known() {
    for (broken, known) in [(Broken::Gone, true), (Broken::HangsUp, false)] {
        let store = behind(broken).await;
        let lost = store.insert(submission()).await.expect_err("lost");
        assert!(matches!(lost, Error::StoreUnavailable { .. }), "{lost}");
        assert!(lost.is_transient());
        assert_eq!(lost.outcome_is_known(), known, "{broken:?}");
        // Reading changes nothing, whatever became of it.
        assert!(store.observe(None).await.expect_err("lost").outcome_is_known());
    }
}

/// A server whose store is behind another that is broken.
async fn over(broken: Broken) -> Server {
    let client = Client::with_store(Arc::new(behind(broken).await)).submission_timeout(Duration::from_millis(200));
    Server { router: api::router(ApiState::new(client)), ..Server::new() }
}

#[tokio::test]
async fn a_server_tells_what_is_known_of_its_store() {
    let cases = [
        (Broken::Gone, 503, "store-unavailable", "not_written"),
        (Broken::HangsUp, 503, "store-unavailable", "unknown"),
        (Broken::Silent, 504, "submission-timeout", "unknown"),
    ];
    for (broken, status, slug, outcome) in cases {
        let server = over(broken).await;
        let answer = server.post("/v1/jobs", json!({ "type": "t", "payload": "secret" })).await;
        assert_eq!(answer.problem(), (status, slug.into(), None), "{broken:?}");
        assert_eq!(answer.json()["outcome"], json!(outcome), "{broken:?}");
        assert_eq!(answer.header("retry-after"), if status == 503 { "1" } else { "" });
        let address = server.listen().await;
        let store = HttpStore::connect(&format!("http://{address}"), None).expect("a URL");
        let error = store.insert(submission()).await.expect_err("the store is gone");
        assert_eq!(error.outcome_is_known(), outcome == "not_written", "{broken:?}: {error}");
        assert!(error.is_transient(), "{error}");
    }
}

#[tokio::test]
async fn another_server_is_not_taken_for_this_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let other = axum::Router::new().fallback(async || (axum::http::StatusCode::NOT_FOUND, "<h1>nothing here</h1>"));
    tokio::spawn(async move { axum::serve(listener, other).await });
    let error = HttpStore::connect(&url, None).expect("a URL").observe(None).await.expect_err("not Windlass");
    assert!(error.to_string().contains("is it a Windlass server?"), "{error}");
}
