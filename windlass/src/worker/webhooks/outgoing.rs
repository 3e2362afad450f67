//! What every outgoing HTTP call shares: a client that follows nobody, bounded reading, and `Retry-After`.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{ClientBuilder, Response};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much room is made for an answer because it says that it is so long, before it has come.
const BELIEVED_MAX: usize = 1 << 20;

/// A client that follows no redirect and takes no proxy from the environment, for calls of at most `timeout`.
pub fn client(timeout: Duration) -> ClientBuilder {
    // One provider for the process; the first caller has installed the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .timeout(timeout)
}

/// Reads an answer's body up to `most` bytes; says whether there was more.
pub async fn read(mut response: Response, most: usize) -> reqwest::Result<(Vec<u8>, bool)> {
    let told = response.content_length().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
    let mut body = Vec::with_capacity(told.min(most).min(BELIEVED_MAX));
    while let Some(chunk) = response.chunk().await? {
        let room = most - body.len();
        if chunk.len() > room {
            body.extend_from_slice(&chunk[..room]);
            return Ok((body, true));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((body, false))
}

/// How long an answer asks to wait: seconds, or until a date.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let wait = at.duration_since(jiff::Timestamp::now());
    Some(Duration::try_from(wait).unwrap_or(Duration::ZERO))
}

/// An error in words, with its causes and without the URL, which may hold a secret.
pub fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().expect("a header value"));
        retry_after(&headers)
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("0"), Some(Duration::ZERO));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let far = after("Fri, 01 Jan 2100 00:00:00 GMT").expect("a date");
        assert!(far > Duration::from_secs(365 * 86_400));
        assert_eq!(after("soon"), None);
        assert_eq!(after("-5"), None);
    }
}
