//! Whether the process lives, and whether it can do its work.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use tokio_util::sync::CancellationToken;
use windlass::store::Store;

/// A store that takes longer to tell the time is not ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers `/healthz` and `/readyz`.
#[derive(Debug)]
pub struct Health {
    store: Arc<dyn Store>,
    stopping: CancellationToken,
}

impl Health {
    /// Of a server on this store.
    pub fn new(store: Arc<dyn Store>, stopping: CancellationToken) -> Self {
        Health { store, stopping }
    }

    /// The process lives; that is all it takes to say so.
    pub(super) fn live(&self) -> Response<Body> {
        text(StatusCode::OK, "ok\n")
    }

    /// The store answers, and the server is not stopping.
    pub(super) async fn ready(&self) -> Response<Body> {
        if self.stopping.is_cancelled() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        match tokio::time::timeout(PATIENCE, self.store.now()).await {
            Ok(Ok(_)) => text(StatusCode::OK, "ready\n"),
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready: the store does not answer");
                text(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n")
            }
            Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "the store is slow to answer\n"),
        }
    }
}

fn text(status: StatusCode, words: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(words));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
