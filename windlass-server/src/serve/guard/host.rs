//! Whether a request means this server and comes from its own pages.
//!
//! A page of another site can make a browser send requests here. It cannot choose `Host` and `Origin`: a name that
//! somebody pointed at this address (DNS rebinding) shows in the first, a foreign page in the second.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, header};

/// A name under which the server may be addressed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host(String);

impl Host {
    /// A host name, without scheme and port.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if text.is_empty() || text.len() > 253 || !text.chars().all(plain) {
            return Err(format!("{text:?} is no host name; write jobs.example.com"));
        }
        Ok(Host(text.trim_end_matches('.').to_ascii_lowercase()))
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a request is not for us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Foreign {
    /// `Host` is missing, doubled or malformed.
    BadHost,
    /// `Host` names somebody else.
    OtherHost,
    /// `Origin` names somebody else.
    OtherOrigin,
    /// A page of another site had it sent, without saying so in `Origin`.
    OtherSite,
}

/// Checks `Host` and `Origin`.
pub(super) fn check(headers: &HeaderMap, hosts: &[Host], origins: &[String]) -> Result<(), Foreign> {
    let mut given = headers.get_all(header::HOST).iter();
    let host = match (given.next().map(|host| host.to_str()), given.next()) {
        (Some(Ok(host)), None) => host,
        _ => return Err(Foreign::BadHost),
    };
    let (name, _) = split(host).ok_or(Foreign::BadHost)?;
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    // An address cannot be rebound: only names are looked up.
    let is_address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    if !is_address && name != "localhost" && !hosts.iter().any(|host| host.0 == name) {
        return Err(Foreign::OtherHost);
    }
    check_origin(headers, host, origins)
}

/// Whether a request comes from a page of one of the other origins that may call; which one.
pub(super) fn known_origin(headers: &HeaderMap, origins: &[String]) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let text = origin.to_str().ok()?;
    origins.iter().any(|known| known.eq_ignore_ascii_case(text)).then(|| origin.clone())
}

/// Refuses what a page of another site had a browser fetch: images, scripts and frames carry no `Origin`.
pub(super) fn check_site(headers: &HeaderMap) -> Result<(), Foreign> {
    // A browser says so itself, and no page can make it say anything else.
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let says_origin = headers.contains_key(header::ORIGIN);
    match site {
        Some(b"cross-site" | b"same-site") if !says_origin => Err(Foreign::OtherSite),
        _ => Ok(()),
    }
}

fn check_origin(headers: &HeaderMap, host: &str, origins: &[String]) -> Result<(), Foreign> {
    let mut given = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = given.next() else { return Ok(()) };
    let origin = origin.to_str().map_err(|_| Foreign::OtherOrigin)?;
    let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let is_own = own.is_some_and(|own| own.eq_ignore_ascii_case(host));
    let known = is_own || origins.iter().any(|known| known.eq_ignore_ascii_case(origin));
    if known && given.next().is_none() { Ok(()) } else { Err(Foreign::OtherOrigin) }
}

/// A host and its port, where it has one.
fn split(host: &str) -> Option<(&str, Option<u16>)> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')?;
            (&host[..end + 2], &rest[end + 1..])
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    if name.is_empty() || name.contains(['@', '/', '\\', ' ']) {
        return None;
    }
    match port.strip_prefix(':') {
        None if port.is_empty() => Some((name, None)),
        None => None,
        Some(port) => port.parse().ok().map(|port| (name, Some(port))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().expect("a header value"));
        }
        headers
    }

    #[test]
    fn x5_only_known_hosts_are_answered() {
        let known = [Host::parse("Jobs.Example.com").expect("a host")];
        for (host, expected) in [
            ("127.0.0.1:7654", Ok(())),
            ("127.0.0.1", Ok(())),
            ("[::1]:7654", Ok(())),
            ("192.0.2.7:80", Ok(())),
            ("localhost:7654", Ok(())),
            ("LOCALHOST.", Ok(())),
            ("jobs.example.com", Ok(())),
            ("JOBS.example.com.:443", Ok(())),
            ("evil.example", Err(Foreign::OtherHost)),
            ("evil.example:7654", Err(Foreign::OtherHost)),
            ("localhost.evil.example", Err(Foreign::OtherHost)),
            ("127.0.0.1.evil.example", Err(Foreign::OtherHost)),
            ("127.0.0.1.nip.io:7654", Err(Foreign::OtherHost)),
            ("xjobs.example.com", Err(Foreign::OtherHost)),
            ("", Err(Foreign::BadHost)),
            (":80", Err(Foreign::BadHost)),
            ("localhost:port", Err(Foreign::BadHost)),
            ("localhost@evil.example", Err(Foreign::BadHost)),
            ("[::1", Err(Foreign::BadHost)),
        ] {
            assert_eq!(check(&headers(&[("host", host)]), &known, &[]), expected, "{host}");
        }
        assert_eq!(check(&headers(&[]), &known, &[]), Err(Foreign::BadHost));
        let twice = headers(&[("host", "localhost"), ("host", "localhost")]);
        assert_eq!(check(&twice, &known, &[]), Err(Foreign::BadHost));
    }

    #[test]
    fn x4_only_our_own_pages_may_call() {
        let known = ["https://console.example.com".to_owned()];
        for (origin, ours) in [
            ("http://localhost:7654", true),
            ("https://localhost:7654", true),
            ("https://console.example.com", true),
            ("http://localhost:7655", false),
            ("http://localhost", false),
            ("http://evil.example", false),
            ("http://localhost:7654.evil.example", false),
            ("null", false),
            ("", false),
            ("https://console.example.com.evil.example", false),
        ] {
            let answer = check(&headers(&[("host", "localhost:7654"), ("origin", origin)]), &[], &known);
            assert_eq!(answer.is_ok(), ours, "{origin}");
        }
        let twice =
            headers(&[("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")]);
        assert_eq!(check(&twice, &[], &[]), Err(Foreign::OtherOrigin));
    }

    #[test]
    fn l12_what_another_sites_page_has_fetched_is_refused() {
        for (given, fine) in [
            (vec![], true),
            (vec![("sec-fetch-site", "same-origin")], true),
            (vec![("sec-fetch-site", "none")], true),
            (vec![("sec-fetch-site", "cross-site")], false),
            (vec![("sec-fetch-site", "same-site")], false),
            // What an origin may is decided by its name.
            (vec![("sec-fetch-site", "cross-site"), ("origin", "https://console.example.com")], true),
        ] {
            assert_eq!(check_site(&headers(&given)).is_ok(), fine, "{given:?}");
        }
    }

    #[test]
    fn hosts_in_the_configuration_are_names() {
        for bad in ["", "a b", "https://x", "x:80", "x/y", "*"] {
            assert!(Host::parse(bad).is_err(), "{bad}");
        }
    }
}
