//! Whether the process lives, and whether it can do its work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use windlass::store::Store;

/// A store that takes longer is not ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// The store is tried no more often, however often somebody asks: asking needs no token, and a try is a write.
const FRESH: Duration = Duration::from_secs(1);

/// Answers `/healthz` and `/readyz`.
#[derive(Debug)]
pub struct Health {
    store: Arc<dyn Store>,
    stopping: CancellationToken,
    /// When the store was last tried, and what is wrong with it.
    tried: Mutex<Option<(Instant, Option<&'static str>)>>,
}

impl Health {
    /// Of a server on this store.
    pub fn new(store: Arc<dyn Store>, stopping: CancellationToken) -> Self {
        Health { store, stopping, tried: Mutex::new(None) }
    }

    /// The process lives; that is all it takes to say so.
    pub(super) fn live(&self) -> Response<Body> {
        text(StatusCode::OK, "ok\n")
    }

    /// The store can be written to, and the server is not stopping.
    pub(super) async fn ready(&self) -> Response<Body> {
        if self.stopping.is_cancelled() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        match self.problem().await {
            None => text(StatusCode::OK, "ready\n"),
            Some(problem) => text(StatusCode::SERVICE_UNAVAILABLE, problem),
        }
    }

    async fn problem(&self) -> Option<&'static str> {
        let mut tried = self.tried.lock().await;
        if let Some((at, problem)) = *tried
            && at.elapsed() < FRESH
        {
            return problem;
        }
        let problem = match tokio::time::timeout(PATIENCE, self.store.ready()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready: the store cannot be written to");
                Some("the store cannot be written to\n")
            }
            Err(_) => Some("the store is slow to answer\n"),
        };
        *tried = Some((Instant::now(), problem));
        problem
    }
}

fn text(status: StatusCode, words: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(words));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
