//! The page: files that come with the binary, answered to every caller, without a token.
//!
//! They hold no data: what the page shows it asks of the API, under the roles of the person who looks. The files are built by
//! `windlass-server/page/build.mjs`, committed, and listed in `assets.rs`, which the build prints. Only exact names are
//! answered; the paths of the page's own screens answer the entry, and everything else is left to the API.

mod assets;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
use std::sync::{LazyLock, Mutex};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use sha2::{Digest, Sha256};

/// One file of the page.
struct Asset {
    /// Its name under `/page/`, which holds a hash of its content.
    name: &'static str,
    bytes: &'static [u8],
}

/// The first part of every path that a screen has.
const SCREENS: [&str; 12] = [
    "",
    "jobs",
    "errors",
    "queues",
    "workflows",
    "schedules",
    "workers",
    "acts",
    "operations",
    "enqueue",
    "server",
    "sign-in",
];
/// Where the entry names the prefix under which it is served.
const BASE_MARK: &str = "{base}";
/// The page runs its own files alone and talks to its own server alone. No script may write markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    worker-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";
/// Files smaller than this are not worth compressing.
const COMPRESSED_FROM_BYTES: usize = 1024;

/// The answer to a request for a file or a screen of the page; `None` for what is not the page's.
pub(crate) fn answer(method: &Method, path: &str, headers: &HeaderMap, base: &str) -> Option<Response<Body>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    if let Some(name) = path.strip_prefix("/page/") {
        let bytes = file(name)?;
        return Some(answer_file(name, bytes, headers));
    }
    let first = path.strip_prefix('/')?.split('/').next().unwrap_or_default();
    SCREENS.contains(&first).then(|| answer_entry(headers, base))
}

fn answer_file(name: &str, bytes: Cow<'static, [u8]>, headers: &HeaderMap) -> Response<Body> {
    let mut response = sent(name, bytes, headers);
    // A name stands for its content for ever.
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response
}

fn answer_entry(headers: &HeaderMap, base: &str) -> Response<Body> {
    let text = String::from_utf8_lossy(&entry()).replace(BASE_MARK, base);
    let hash: String = Sha256::digest(text.as_bytes()).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{hash}\"");
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        sent("index.html", Cow::Owned(text.into_bytes()), headers)
    };
    let answered = response.headers_mut();
    answered.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answered.insert(header::ETAG, HeaderValue::from_str(&tag).expect("a tag is hexadecimal digits"));
    answered.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// The bytes with their type, compressed for clients that accept it.
fn sent(name: &str, bytes: Cow<'static, [u8]>, headers: &HeaderMap) -> Response<Body> {
    let takes_gzip = headers.get_all(header::ACCEPT_ENCODING).iter().any(|value| {
        value.to_str().is_ok_and(|text| text.split(',').any(|one| matches!(one.trim(), "gzip" | "gzip;q=1.0")))
    });
    let compresses = takes_gzip && bytes.len() >= COMPRESSED_FROM_BYTES;
    let body = if compresses { Body::from(compressed(name, &bytes)) } else { Body::from(bytes.into_owned()) };
    let mut response = Response::new(body);
    let answered = response.headers_mut();
    answered.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    answered.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if compresses {
        answered.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Each file is compressed once. The entry is small and its prefix may differ, so it is compressed each time.
fn compressed(name: &str, bytes: &[u8]) -> Vec<u8> {
    static DONE: LazyLock<Mutex<HashMap<String, Vec<u8>>>> = LazyLock::new(Mutex::default);
    let keeps = name != "index.html" && assets::ASSETS.iter().any(|asset| asset.name == name);
    if keeps && let Some(done) = DONE.lock().expect("nothing panics while it holds the files").get(name) {
        return done.clone();
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory does not fail");
    if keeps {
        let mut done = DONE.lock().expect("nothing panics while it holds the files");
        done.insert(name.to_owned(), written.clone());
    }
    written
}

/// A file by its name. A debug build looks at the folder first, so that a new build of the page needs no new binary.
fn file(name: &str) -> Option<Cow<'static, [u8]>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
        return None;
    }
    if let Some(bytes) = on_disk(name) {
        return Some(Cow::Owned(bytes));
    }
    let found = assets::ASSETS.iter().find(|asset| asset.name == name)?;
    Some(Cow::Borrowed(found.bytes))
}

fn entry() -> Cow<'static, [u8]> {
    on_disk("index.html").map_or(Cow::Borrowed(assets::ENTRY), Cow::Owned)
}

fn on_disk(name: &str) -> Option<Vec<u8>> {
    if !cfg!(debug_assertions) {
        return None;
    }
    std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page/dist").join(name)).ok()
}

#[cfg(test)]
mod tests;
