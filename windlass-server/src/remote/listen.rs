//! The server's hints, passed on to the tasks that wait for wakes.

use std::sync::Weak;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::{Method, Response};
use tokio::sync::broadcast;
use windlass::Result;
use windlass::store::Wake;

use super::call::{lost, refused};
use super::{HttpStore, Inner};
use crate::wire::Hint;

/// How long after a stream ended the next is tried.
const AGAIN: Duration = Duration::from_secs(1);
/// The server sends something every 15 s; after this long without, the stream is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Longest event that is read; a hint is a few hundred bytes.
const EVENT_BYTES_MAX: usize = 64 * 1024;
const ATTEMPTED: &str = "listen for hints";

impl HttpStore {
    /// Listens for the server's hints from now on; returns once the server has said that it sends them.
    ///
    /// Without it [`wakes`](windlass::store::Store::wakes) begins to listen by itself when it is first called.
    pub async fn listen(&self) -> Result<()> {
        let stream = self.open().await?;
        self.follow(Some(stream));
        Ok(())
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Wake> {
        self.follow(None);
        self.inner.wakes.subscribe()
    }

    /// Starts the task that passes hints on, unless it runs. Outside of a runtime there is none: polling must suffice.
    fn follow(&self, stream: Option<Response>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut listener = self.inner.listener.lock().expect("nothing panics while it holds the listener");
        if stream.is_none() && listener.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let inner = std::sync::Arc::downgrade(&self.inner);
        let task = runtime.spawn(pass_on(inner, stream)).abort_handle();
        if let Some(before) = listener.replace(task) {
            before.abort();
        }
    }

    /// Opens the stream; the server's first bytes say that it listens.
    async fn open(&self) -> Result<Response> {
        let url = self.inner.base.join("v1/wakes").expect("a plain path can be joined");
        let request = self.request(Method::GET, url).header("accept", "text/event-stream");
        let mut response = request.send().await.map_err(|error| lost(ATTEMPTED, false, error))?;
        if !response.status().is_success() {
            return Err(refused(ATTEMPTED, false, response).await);
        }
        response.chunk().await.map_err(|error| lost(ATTEMPTED, false, error))?;
        Ok(response)
    }
}

/// Passes hints on for as long as somebody has the store.
async fn pass_on(inner: Weak<Inner>, mut stream: Option<Response>) {
    loop {
        let opened = match stream.take() {
            Some(stream) => Ok(stream),
            None => {
                let Some(inner) = inner.upgrade() else { return };
                HttpStore { inner, asks_for_upkeep: false }.open().await
            }
        };
        if let Ok(response) = opened {
            read(&inner, response).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Reads one stream to its end.
async fn read(inner: &Weak<Inner>, response: Response) {
    let mut chunks = response.bytes_stream();
    let mut buffer = Vec::new();
    while let Ok(Some(Ok(chunk))) = tokio::time::timeout(SILENCE_MAX, chunks.next()).await {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let Some(wake) = hint(&line) else { continue };
            let Some(inner) = inner.upgrade() else { return };
            // Nobody listening is no error.
            let _ = inner.wakes.send(wake);
        }
        if buffer.len() > EVENT_BYTES_MAX {
            return;
        }
    }
}

/// The hint in a line of the stream, if it is one.
fn hint(line: &[u8]) -> Option<Wake> {
    let data = line.strip_prefix(b"data:")?;
    let hint: Hint = serde_json::from_slice(data).ok()?;
    Wake::try_from(hint).ok()
}
