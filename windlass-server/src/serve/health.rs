//! Whether the process lives, and whether it can do its work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use windlass::store::Store;

/// A store that takes longer is not ready. Longer than the store itself waits for a write, so that it can say what is wrong.
const PATIENCE: Duration = Duration::from_secs(6);

/// The store is tried no more often, however often somebody asks: asking needs no token, and a try is a write.
const FRESH: Duration = Duration::from_secs(1);

/// Answers `/healthz` and `/readyz`.
#[derive(Debug)]
pub struct Health {
    store: Arc<dyn Store>,
    stopping: CancellationToken,
    /// Whether it may be told where the store is: not where tokens are asked for, because these answers need none.
    tells_place: bool,
    /// When the store was last tried, and what is wrong with it.
    tried: Mutex<Option<(Instant, Option<String>)>>,
}

impl Health {
    /// Of a server on this store.
    pub fn new(store: Arc<dyn Store>, stopping: CancellationToken) -> Self {
        Health { store, stopping, tells_place: false, tried: Mutex::new(None) }
    }

    /// Tells everybody where the store is.
    #[must_use]
    pub fn tell_place(mut self, tells: bool) -> Self {
        self.tells_place = tells;
        self
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
            None => text(StatusCode::OK, self.with_place("ready")),
            Some(problem) => text(StatusCode::SERVICE_UNAVAILABLE, problem),
        }
    }

    /// Words with the host and timeline that the store is on, where it can move.
    fn with_place(&self, words: &str) -> String {
        match self.store.place().filter(|_| self.tells_place) {
            Some(place) => format!("{words} ({place})\n"),
            None => format!("{words}\n"),
        }
    }

    async fn problem(&self) -> Option<String> {
        let mut tried = self.tried.lock().await;
        if let Some((at, problem)) = &*tried
            && at.elapsed() < FRESH
        {
            return problem.clone();
        }
        let problem = match tokio::time::timeout(PATIENCE, self.store.ready()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready: the store cannot be written to");
                Some(self.with_place("the store cannot be written to"))
            }
            Err(_) => Some(self.with_place("the store is slow to answer")),
        };
        *tried = Some((Instant::now(), problem.clone()));
        problem
    }
}

fn text(status: StatusCode, words: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::from(words.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use windlass::store::{Layer, MemoryStore};

    use super::*;

    /// A store that can be in several places.
    #[derive(Debug)]
    struct Placed(Arc<dyn Store>);

    #[async_trait]
    impl Layer for Placed {
        fn inner(&self) -> &Arc<dyn Store> {
            &self.0
        }

        fn place(&self) -> Option<String> {
            Some("db.internal:5432, timeline 3".to_owned())
        }
    }

    #[tokio::test]
    async fn where_the_store_is_is_not_told_where_tokens_are_asked_for() {
        for (tells, words) in [(false, "ready\n"), (true, "ready (db.internal:5432, timeline 3)\n")] {
            let store: Arc<dyn Store> = Arc::new(Placed(Arc::new(MemoryStore::new())));
            let health = Health::new(store, CancellationToken::new()).tell_place(tells);
            let body = axum::body::to_bytes(health.ready().await.into_body(), 1000).await.expect("a body");
            assert_eq!(body, words);
        }
    }
}
