//! Sessions: how a browser that has shown a token once goes on without it.
//!
//! A session is a cookie that only this server can write: the token's name and a part of its hash, when it was issued and
//! when it ends, under an HMAC. Nothing is kept, so nothing can be full or leak; a token that is taken out of the
//! configuration ends its sessions with it. The token itself never stands in a URL or where scripts can read it.
//!
//! A browser sends cookies with requests that other pages make. So a session counts only for requests that the browser
//! says are the page's own, and never for the work of workers, which have tokens.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderValue, Method, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::Semaphore;

use super::token::Mark;

/// How long a session lasts without being used; a working day and some.
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// How long a wrong token waits for its answer.
pub(super) const WRONG_TOKEN_WAITS: Duration = Duration::from_millis(500);
/// How many wrong tokens wait at a time: sixteen guesses a second, at 256 bits each.
const WRONG_TOKENS: usize = 8;
/// The name of the cookie where it travels under TLS. Browsers take the prefix only from https, for this host alone.
const SECURE_NAME: &str = "__Host-windlass";

/// The shortest secret that is taken: 32 characters of base64 are 192 bits.
const SECRET_BYTES_MIN: usize = 32;

type Sealer = Hmac<Sha256>;

/// A secret that servers of one name share, so that each knows the sessions of the others.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret(String);

impl SessionSecret {
    /// Reads a secret. What it says about a bad one holds nothing of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() < SECRET_BYTES_MIN {
            return Err(format!("must have at least {SECRET_BYTES_MIN} characters, chosen at random"));
        }
        Ok(SessionSecret(text.to_owned()))
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret")
    }
}

/// What sessions are sealed with.
pub(super) struct Sessions {
    key: [u8; 32],
    pub(super) wrong: Semaphore,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

/// A session that holds, as far as it says; whether its token does is for others to say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The token that it stands for.
    pub(super) mark: Mark,
    /// The cookie to send along, once half of the session is over.
    pub(super) renewed: Option<HeaderValue>,
}

impl Sessions {
    /// Sessions under a secret that several servers share, or under a key of this process alone.
    pub(super) fn new(secret: Option<&SessionSecret>) -> anyhow::Result<Self> {
        let key = match secret {
            Some(secret) => {
                let mut mac = Sealer::new_from_slice(secret.0.as_bytes()).expect("HMAC takes keys of any length");
                mac.update(b"windlass session v1");
                mac.finalize().into_bytes().into()
            }
            None => super::random::<32>()?,
        };
        Ok(Sessions { key, wrong: Semaphore::new(WRONG_TOKENS) })
    }

    /// The cookie that begins a session.
    pub(super) fn begin(&self, mark: &Mark, jar: &Jar) -> HeaderValue {
        jar.set(&self.issue(mark, now()))
    }

    /// Whose session a request belongs to, if it has one that counts.
    pub(super) fn of(&self, method: &Method, headers: &HeaderMap) -> Option<Held> {
        if !is_own(method, headers) {
            return None;
        }
        let port = host_port(headers);
        let names = [SECURE_NAME.to_owned(), plain_name(port)];
        let (secure, value) = names.iter().find_map(|name| {
            let value = cookie(headers, name)?;
            Some((name == SECURE_NAME, value))
        })?;
        self.held(value, &Jar { secure, port }, now())
    }

    fn held(&self, value: &str, jar: &Jar, now: u64) -> Option<Held> {
        let (mark, issued, expires) = self.read(value)?;
        if now >= expires || issued > now + LIFE.as_secs() {
            return None;
        }
        let half = issued + (expires - issued) / 2;
        let renewed = (now >= half).then(|| jar.set(&self.issue(&mark, now)));
        Some(Held { mark, renewed })
    }

    fn issue(&self, mark: &Mark, now: u64) -> String {
        let name = URL_SAFE_NO_PAD.encode(&mark.name);
        let hash = URL_SAFE_NO_PAD.encode(mark.hash);
        let stated = format!("{name}.{hash}.{now}.{}", now + LIFE.as_secs());
        let seal = URL_SAFE_NO_PAD.encode(self.seal(&stated).finalize().into_bytes());
        format!("{stated}.{seal}")
    }

    fn read(&self, value: &str) -> Option<(Mark, u64, u64)> {
        let (stated, seal) = value.rsplit_once('.')?;
        // Compares in constant time, and before anything in it is looked at.
        self.seal(stated).verify_slice(&URL_SAFE_NO_PAD.decode(seal).ok()?).ok()?;
        let mut parts = stated.split('.');
        let name = String::from_utf8(URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok()?;
        let hash = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?.try_into().ok()?;
        let (issued, expires) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((Mark { name, hash }, issued, expires))
    }

    fn seal(&self, stated: &str) -> Sealer {
        let mut mac = Sealer::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(stated.as_bytes());
        mac
    }
}

/// Under which name and conditions a cookie is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Jar {
    secure: bool,
    port: u16,
}

impl Jar {
    /// The jar for a page that was loaded over TLS, or over plain HTTP on this very machine; `None` for plain HTTP over
    /// a network, where anybody on the way could read the cookie.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let port = host_port(headers);
        if text(headers, header::ORIGIN)?.starts_with("https://") {
            return Some(Jar { secure: true, port });
        }
        is_loopback(headers).then_some(Jar { secure: false, port })
    }

    fn set(&self, value: &str) -> HeaderValue {
        self.cookie(value, LIFE.as_secs())
    }

    /// The cookies that end a session under either name.
    pub(super) fn clear(headers: &HeaderMap) -> [HeaderValue; 2] {
        let port = host_port(headers);
        [Jar { secure: true, port }.cookie("", 0), Jar { secure: false, port }.cookie("", 0)]
    }

    fn cookie(&self, value: &str, seconds: u64) -> HeaderValue {
        let (name, secure) =
            if self.secure { (SECURE_NAME.to_owned(), "; Secure") } else { (plain_name(self.port), "") };
        let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::from_str(&text).expect("a cookie is base64 and dots")
    }
}

/// Whether a request comes from the page itself, as far as the browser says.
///
/// What changes something must be marked as the page's own. What only looks must not be marked as another page's: a
/// foreign page cannot read the answer, but it could learn from how long it took.
pub(super) fn is_own(method: &Method, headers: &HeaderMap) -> bool {
    let looks = matches!(*method, Method::GET | Method::HEAD);
    match text(headers, header::HeaderName::from_static("sec-fetch-site")) {
        Some("same-origin") => true,
        Some("same-site" | "cross-site") => false,
        Some(_) => looks,
        None => looks || origin_is_host(headers),
    }
}

/// Whether `Origin` is there and names the host that is asked. Origins that the configuration allows are not enough.
fn origin_is_host(headers: &HeaderMap) -> bool {
    let origin = text(headers, header::ORIGIN).unwrap_or_default();
    let own = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    own.zip(text(headers, header::HOST)).is_some_and(|(own, host)| own.eq_ignore_ascii_case(host))
}

/// Cookies do not know ports: two servers on one machine would end each other's sessions under one name.
fn plain_name(port: u16) -> String {
    format!("windlass-{port}")
}

fn host_port(headers: &HeaderMap) -> u16 {
    let host = text(headers, header::HOST).unwrap_or_default();
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    after.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80)
}

fn is_loopback(headers: &HeaderMap) -> bool {
    let host = text(headers, header::HOST).unwrap_or_default();
    let name = host.strip_suffix(&format!(":{}", host_port(headers))).unwrap_or(host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(given, _)| *given == name).map(|(_, value)| value)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::{Token, Tokens, new_token};
    use super::*;
    use crate::api::roles::Role;

    const JAR: Jar = Jar { secure: false, port: 7654 };
    const HOUR: u64 = 3600;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().expect("a header value"));
        }
        headers
    }

    fn tokens(name: &str) -> (Tokens, Mark) {
        let (token, hash) = new_token().expect("randomness");
        let tokens = Tokens::new(vec![Token::new(name, Role::Operate, &hash).expect("valid")]).expect("one");
        let mark = tokens.find(&token).expect("it is known").1.mark();
        (tokens, mark)
    }

    #[test]
    fn a_session_holds_until_it_expires_and_is_renewed_in_its_second_half() {
        let (sessions, (_, mark)) = (Sessions::new(None).expect("a key"), tokens("ada; Löve"));
        let value = sessions.issue(&mark, 1000);
        let held = |now| sessions.held(&value, &JAR, now);
        let first = held(1000).expect("it holds");
        assert_eq!(first.mark, mark);
        assert_eq!(first.renewed, None);
        assert_eq!(held(1000 + 6 * HOUR - 1).expect("it holds").renewed, None);
        let renewed = held(1000 + 6 * HOUR).expect("it holds").renewed.expect("a new cookie");
        let renewed = renewed.to_str().expect("text").split_once('=').expect("a pair").1.to_owned();
        let renewed = renewed.split(';').next().expect("a value");
        assert!(sessions.held(renewed, &JAR, 1000 + 17 * HOUR).is_some());
        assert!(held(1000 + 12 * HOUR - 1).is_some());
        assert_eq!(held(1000 + 12 * HOUR), None);
    }

    #[test]
    fn a_session_that_this_server_did_not_write_is_none() {
        let (sessions, (_, mark)) = (Sessions::new(None).expect("a key"), tokens("ada"));
        let value = sessions.issue(&mark, 1000);
        for place in 0..value.len() {
            let mut forged = value.clone().into_bytes();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).expect("ASCII");
            // The last digit of base64 holds bits that do not count.
            assert!(sessions.held(&forged, &JAR, 1000).is_none() || place + 1 == value.len(), "{forged}");
        }
        for bad in ["", ".", "....", "a.b.c.d.e", &value[..value.len() - 4]] {
            assert_eq!(sessions.held(bad, &JAR, 1000), None, "{bad}");
        }
        let other_process = Sessions::new(None).expect("a key");
        assert_eq!(other_process.held(&value, &JAR, 1000), None);
    }

    #[test]
    fn servers_that_share_a_secret_know_each_others_sessions() {
        let (_, mark) = tokens("ada");
        let secret = SessionSecret::parse("a secret of more than thirty-two bytes").expect("long enough");
        let sessions = || Sessions::new(Some(&secret)).expect("a key");
        assert!(sessions().held(&sessions().issue(&mark, 1000), &JAR, 1000).is_some());
        let other = SessionSecret::parse("another secret of thirty-two bytes and more").expect("long enough");
        let other = Sessions::new(Some(&other)).expect("a key");
        assert!(SessionSecret::parse("short").is_err());
        assert!(!format!("{secret:?}").contains("thirty"));
        assert_eq!(other.held(&sessions().issue(&mark, 1000), &JAR, 1000), None);
    }

    #[test]
    fn a_session_ends_with_its_token() {
        let (own, mark) = tokens("ada");
        assert_eq!(own.marked(&mark).expect("it is known").1.name(), "ada");
        let (replaced, _) = tokens("ada");
        assert!(replaced.marked(&mark).is_none(), "the same name, another token");
        assert!(Tokens::default().marked(&mark).is_none());
    }

    #[test]
    fn a_session_counts_only_for_the_pages_own_requests() {
        let host = ("host", "jobs.example.com");
        for (method, given, own) in [
            ("POST", vec![("sec-fetch-site", "same-origin")], true),
            ("POST", vec![("sec-fetch-site", "same-site")], false),
            ("POST", vec![("sec-fetch-site", "cross-site")], false),
            ("POST", vec![("sec-fetch-site", "none")], false),
            ("POST", vec![("sec-fetch-site", "cross-site"), ("origin", "https://jobs.example.com")], false),
            ("DELETE", vec![("origin", "https://jobs.example.com")], true),
            ("DELETE", vec![("origin", "https://console.example.com")], false),
            ("DELETE", vec![("origin", "null")], false),
            ("DELETE", vec![], false),
            ("GET", vec![], true),
            ("GET", vec![("sec-fetch-site", "none")], true),
            ("GET", vec![("sec-fetch-site", "same-origin")], true),
            ("GET", vec![("sec-fetch-site", "same-site")], false),
            ("GET", vec![("sec-fetch-site", "cross-site")], false),
        ] {
            let mut all = vec![host];
            all.extend(given);
            let parsed: Method = method.parse().expect("a method");
            assert_eq!(is_own(&parsed, &headers(&all)), own, "{method} {all:?}");
        }
    }

    #[test]
    fn a_cookie_travels_under_tls_or_not_at_all() {
        for (host, origin, name) in [
            ("jobs.example.com", "https://jobs.example.com", Some("__Host-windlass=")),
            ("127.0.0.1:7654", "http://127.0.0.1:7654", Some("windlass-7654=")),
            ("[::1]:7654", "http://[::1]:7654", Some("windlass-7654=")),
            ("localhost", "http://localhost", Some("windlass-80=")),
            ("10.0.0.7:7654", "http://10.0.0.7:7654", None),
            ("jobs.example.com", "http://jobs.example.com", None),
        ] {
            let jar = Jar::of(&headers(&[("host", host), ("origin", origin)]));
            let cookie = jar.map(|jar| jar.set("v").to_str().expect("text").to_owned());
            assert_eq!(cookie.as_deref().map(|cookie| cookie.starts_with(name.unwrap_or("-"))), name.map(|_| true));
            if let Some(cookie) = cookie {
                assert!(
                    cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Path=/;")
                );
                assert_eq!(cookie.contains("Secure"), origin.starts_with("https"));
            }
        }
        assert_eq!(Jar::of(&headers(&[("host", "127.0.0.1:7654")])), None, "no Origin, no page");
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let given = headers(&[("cookie", "a=1; windlass-7654=x.y"), ("cookie", "windlass-80=z")]);
        assert_eq!(cookie(&given, "windlass-7654"), Some("x.y"));
        assert_eq!(cookie(&given, "windlass-80"), Some("z"));
        assert_eq!(cookie(&given, "windlass-8"), None);
    }
}
