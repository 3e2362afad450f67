//! One attempt as a POST: payload out, status code in.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};
use windlass::worker::HandlerResult;
use windlass::{Category, Context, Failure, Payload};

use crate::serve::webhook::{Secret, signatures};
use windlass::worker::webhooks::outgoing;

/// The longest call where the job itself has no limit: its lifetime ends it then.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// How much of a refusal becomes the message.
const MESSAGE_BYTES_MAX: usize = 2048;

/// A URL that runs jobs.
#[derive(Debug)]
pub struct Post {
    http: reqwest::Client,
    url: Url,
    secrets: Vec<Secret>,
}

impl Post {
    /// A URL, and headers to send along.
    pub fn new(url: &str, headers: &[String]) -> anyhow::Result<Self> {
        let url: Url = url.parse().context("--url is no URL")?;
        anyhow::ensure!(matches!(url.scheme(), "http" | "https"), "--url must begin with http:// or https://");
        let mut own = HeaderMap::new();
        for header in headers {
            // The value may be a secret: it is not repeated.
            let (name, value) = header.split_once(':').context("--header is written NAME: VALUE")?;
            let name: HeaderName = name.trim().parse().context("--header has no proper name")?;
            let mut value: HeaderValue = value.trim().parse().context("--header has no proper value")?;
            value.set_sensitive(true);
            own.append(name, value);
        }
        let http = outgoing::client(TIMEOUT_MAX).default_headers(own).build().context("cannot make calls")?;
        Ok(Post { http, url, secrets: Vec::new() })
    }

    /// Signs each call with these, newest first, as webhooks are; none for no signature.
    #[must_use]
    pub fn signed(mut self, secrets: Vec<Secret>) -> Self {
        self.secrets = secrets;
        self
    }

    pub(super) async fn run(&self, payload: Payload, cx: Context<super::Runner>) -> HandlerResult {
        let mut request = self.http.post(self.url.clone()).header(CONTENT_TYPE, payload.content_type());
        for (name, value) in super::described(&payload, &cx) {
            request = request.header(format!("windlass-job-{}", name.replace('_', "-")), value);
        }
        if let Some(trace) = super::trace(&cx) {
            request = request.header("traceparent", trace.parent);
            if let Some(state) = trace.state {
                request = request.header("tracestate", state);
            }
        }
        if !self.secrets.is_empty() {
            // Each attempt is a message of its own: what answered the last one is answered anew.
            let (id, timestamp) = (format!("msg_{}", cx.attempt_id()), jiff::Timestamp::now().as_second());
            let signature = signatures(&self.secrets, &id, timestamp, payload.as_bytes());
            request = request.header("webhook-id", id).header("webhook-timestamp", timestamp.to_string());
            request = request.header("webhook-signature", signature);
        }
        let request = request.timeout(cx.remaining().unwrap_or(TIMEOUT_MAX)).body(payload.as_bytes().clone());
        let limit = cx.client().limits_in_force().payload_bytes();
        tokio::select! {
            biased;
            answered = answer(request, limit) => answered,
            () = cx.cancelled() => Err(Failure::temporary("the call was told to stop").with_code("stopped")),
        }
    }
}

async fn answer(request: reqwest::RequestBuilder, limit: usize) -> HandlerResult {
    let response = request.send().await.map_err(failed)?;
    let (status, after) = (response.status(), outgoing::retry_after(response.headers()));
    let most = if status.is_success() { limit } else { MESSAGE_BYTES_MAX };
    let (body, cut) = outgoing::read(response, most).await.map_err(failed)?;
    judge(status, after, &body, cut)
}

fn failed(error: reqwest::Error) -> Failure {
    if error.is_timeout() {
        return Failure::new(Category::Timeout, Some("http_timeout".to_owned()), "the URL took too long to answer");
    }
    Failure::temporary(format!("the URL cannot be reached: {}", outgoing::words(error))).with_code("http_unreachable")
}

/// What an answer means.
fn judge(status: StatusCode, after: Option<Duration>, body: &[u8], cut: bool) -> HandlerResult {
    if status.is_success() {
        let text = body.trim_ascii();
        let is_result = !cut && !text.is_empty();
        return Ok(is_result.then(|| Payload::json_text(text.to_vec()).ok()).flatten());
    }
    let words = String::from_utf8_lossy(body);
    let words = words.trim();
    let message = if words.is_empty() {
        format!("status {}", status.as_u16())
    } else {
        format!("status {}: {words}", status.as_u16())
    };
    let code = format!("http_{}", status.as_u16());
    let again = matches!(status.as_u16(), 408 | 425 | 429) || !status.is_client_error();
    if !again {
        return Err(Failure::permanent(code, message));
    }
    let failure = Failure::temporary(message).with_code(code);
    Err(match after {
        Some(after) => failure.retry_after(after),
        None => failure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_decide() {
        let judged = |status: u16| judge(StatusCode::from_u16(status).expect("a status"), None, b"why", false);
        for status in [200, 201, 204] {
            assert_eq!(judged(status), Ok(None), "{status}");
        }
        for (status, category) in [
            (408, Category::Temporary),
            (425, Category::Temporary),
            (429, Category::Temporary),
            (500, Category::Temporary),
            (503, Category::Temporary),
            (302, Category::Temporary),
            (400, Category::Permanent),
            (404, Category::Permanent),
            (410, Category::Permanent),
            (422, Category::Permanent),
        ] {
            let failure = judged(status).expect_err("it failed");
            assert_eq!(failure.category(), category, "{status}");
            assert_eq!(failure.message(), format!("status {status}: why"));
        }
        let json = judge(StatusCode::OK, None, b" {\"a\": 1}\n", false).expect("success").expect("a result");
        assert_eq!(json.as_bytes().as_ref(), b"{\"a\": 1}");
    }

    #[test]
    fn headers_are_checked_and_not_repeated() {
        assert!(Post::new("http://127.0.0.1:1/", &["authorization: Bearer x".to_owned()]).is_ok());
        for bad in ["hunter2", "a b: hunter2", "x: hunter2\nz"] {
            let refused = Post::new("http://127.0.0.1:1/", &[bad.to_owned()]).expect_err("bad");
            assert!(!format!("{refused:#}").contains("hunter2"), "{refused:#}");
        }
        assert!(Post::new("ftp://host/", &[]).is_err());
        assert!(!format!("{:?}", Post::new("http://h/", &["authorization: hunter2".to_owned()])).contains("hunter2"));
    }
}
