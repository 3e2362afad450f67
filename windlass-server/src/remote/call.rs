//! One request and its answer.

use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass::{Error, Result};

use super::{ANSWER_TIMEOUT, HttpStore};
use crate::wire::Problem;
use windlass::worker::webhooks::outgoing;

/// The largest answer that is read: a claim or a page of large payloads, and room. A server that sends more is none.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The largest refusal that is read.
const PROBLEM_BYTES_MAX: usize = 1 << 20;

/// A request that is being put together.
#[derive(Debug)]
pub(super) struct Call<'a> {
    store: &'a HttpStore,
    attempted: &'static str,
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
    if_match: Option<u64>,
    /// Whether the server may have done something by the time that its answer is lost.
    writes: bool,
}

impl HttpStore {
    /// A request that only looks.
    pub(super) fn get(&self, attempted: &'static str, path: &[&str]) -> Call<'_> {
        self.call(attempted, Method::GET, path, false)
    }

    /// A request that changes something.
    pub(super) fn write(&self, attempted: &'static str, method: Method, path: &[&str]) -> Call<'_> {
        self.call(attempted, method, path, true)
    }

    fn call(&self, attempted: &'static str, method: Method, path: &[&str], writes: bool) -> Call<'_> {
        let mut url = self.inner.base.clone();
        let mut segments = url.path_segments_mut().expect("an http URL has a path");
        segments.pop_if_empty().push("v1");
        for segment in path {
            // A URL cannot hold these as they are; the server takes a leading tilde off any name.
            match *segment {
                "." | ".." => segments.push(&format!("~{segment}")),
                plain => segments.push(plain),
            };
        }
        drop(segments);
        Call { store: self, attempted, method, url, body: None, if_match: None, writes }
    }
}

impl Call<'_> {
    /// Adds a parameter.
    pub(super) fn param(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self.url.query_pairs_mut().append_pair(name, value.as_ref());
        self
    }

    /// Adds a parameter if there is one.
    pub(super) fn maybe(self, name: &str, value: Option<impl AsRef<str>>) -> Self {
        match value {
            None => self,
            Some(value) => self.param(name, value),
        }
    }

    /// Sends this as JSON.
    pub(super) fn json(mut self, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(body).map_err(|error| Error::store(self.attempted, error))?;
        self.body = Some(body);
        Ok(self)
    }

    /// A request with a body that only looks.
    pub(super) fn reading(mut self) -> Self {
        self.writes = false;
        self
    }

    /// Only if it has this version.
    pub(super) fn if_match(mut self, version: Option<u64>) -> Self {
        self.if_match = version;
        self
    }

    /// Sends it and reads the JSON that is answered.
    pub(super) async fn answer<T: DeserializeOwned>(self) -> Result<T> {
        let (attempted, writes) = (self.attempted, self.writes);
        let response = self.send().await?;
        let told = response.content_length().unwrap_or_default();
        let read = match told > ANSWER_BYTES_MAX as u64 {
            true => Ok((Vec::new(), true)),
            false => outgoing::read(response, ANSWER_BYTES_MAX).await,
        };
        let (bytes, cut) = read.map_err(|error| lost(attempted, writes, error))?;
        if cut {
            return Err(Error::store(attempted, "the answer is larger than any that a server gives"));
        }
        crate::wire::read(&bytes).map_err(|error| Error::store(attempted, error))
    }

    /// Sends it; the answer has no body.
    pub(super) async fn done(self) -> Result<()> {
        self.send().await.map(drop)
    }

    async fn send(self) -> Result<Response> {
        let (attempted, writes) = (self.attempted, self.writes);
        let mut request = self.store.request(self.method, self.url).timeout(ANSWER_TIMEOUT);
        if let Some(version) = self.if_match {
            request = request.header("if-match", format!("\"{version}\""));
        }
        if let Some(body) = self.body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| lost(attempted, writes, error))?;
        if response.status().is_success() { Ok(response) } else { Err(refused(attempted, writes, response).await) }
    }
}

impl HttpStore {
    pub(super) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.inner.http.request(method, url);
        match &self.inner.token {
            None => request,
            Some(token) => request.bearer_auth(token),
        }
    }
}

/// The error of a request that got no answer.
///
/// A connection that never came about wrote nothing. Once something was sent, only a request that changes nothing is
/// known to have changed nothing.
pub(super) fn lost(attempted: &str, writes: bool, error: reqwest::Error) -> Error {
    let problem = if error.is_timeout() { "the server did not answer in time" } else { "the server cannot be reached" };
    Error::StoreUnavailable {
        attempted: attempted.to_owned(),
        problem: problem.to_owned(),
        known: error.is_connect() || !writes,
        source: Some(Box::new(error.without_url())),
    }
}

/// The error that an answer stands for.
pub(super) async fn refused(attempted: &str, writes: bool, response: Response) -> Error {
    let status = response.status().as_u16();
    let (body, _) = outgoing::read(response, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => problem.into_error(attempted),
        // Not from Windlass: a proxy, or another server altogether.
        Err(_) if status >= 500 || status == 429 => Error::StoreUnavailable {
            attempted: attempted.to_owned(),
            problem: format!("the server answered {status}"),
            known: !writes || status == 429,
            source: None,
        },
        Err(_) if status == 401 || status == 403 => Error::Unauthorized(format!("the server answered {status}")),
        Err(_) => Error::store(attempted, format!("the server answered {status}; is it a Windlass server?")),
    }
}
