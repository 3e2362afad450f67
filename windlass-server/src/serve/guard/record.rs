//! A record of who came in and who did not, in the log: by address and by the token's name, never by the token.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::access::Unknown;
use crate::sparing::Sparing;

/// A token that comes from the same address again is told again after so long.
const AGAIN: Duration = Duration::from_secs(3600);
/// Pairs of token and address that are remembered; beyond, all are forgotten and told again.
const PAIRS_MAX: usize = 10_000;

/// What has been told.
#[derive(Debug)]
pub(super) struct Record {
    seen: Mutex<HashMap<(String, IpAddr), Instant>>,
    refused: Sparing,
}

impl Record {
    pub(super) fn new() -> Self {
        // A guesser makes many: one line a second says enough, with how many there were.
        Record { seen: Mutex::default(), refused: Sparing::new(Duration::from_secs(1)) }
    }

    /// A token came in; told when it had not been seen from there for a while.
    pub(super) fn granted(&self, token: &str, from: IpAddr) {
        if self.is_new(token, from, Instant::now()) {
            tracing::info!(token, %from, "a token signed in");
        }
    }

    /// Somebody was refused.
    pub(super) fn refused(&self, why: &Unknown, from: IpAddr, resource: &'static str) {
        let (reason, token) = match why {
            // A request without a token is answered so; it is how every browser begins.
            Unknown::None => return,
            Unknown::Wrong => ("unknown token", None),
            Unknown::Over(name) => ("expired token", Some(name.as_str())),
        };
        self.refused.say(|left_out| tracing::warn!(%from, reason, token, resource, left_out, "a sign-in was refused"));
    }

    /// A known token may not do what it asked for.
    pub(super) fn forbidden(&self, token: &str, from: IpAddr, needed: &str, resource: &'static str) {
        self.refused.say(|left_out| {
            tracing::warn!(%from, reason = "role", token, needed, resource, left_out, "a call was refused");
        });
    }

    /// Somebody signed in to the page. Each is told: it is rare, and a person's.
    pub(super) fn session_begun(&self, token: &str, from: IpAddr) {
        tracing::info!(token, %from, "a session began");
    }

    fn is_new(&self, token: &str, from: IpAddr, now: Instant) -> bool {
        let mut seen = self.seen.lock().expect("nothing panics while it holds this lock");
        let key = (token.to_owned(), from);
        if seen.get(&key).is_some_and(|at| now.saturating_duration_since(*at) < AGAIN) {
            return false;
        }
        if seen.len() >= PAIRS_MAX {
            seen.clear();
        }
        seen.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l10_a_token_is_told_once_an_hour_from_each_address() {
        let record = Record::new();
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([192, 0, 2, 7]));
        let begun = Instant::now();
        assert!(record.is_new("ci", here, begun));
        assert!(!record.is_new("ci", here, begun + Duration::from_secs(60)));
        assert!(record.is_new("ci", there, begun) && record.is_new("ada", here, begun));
        assert!(record.is_new("ci", here, begun + AGAIN));
    }
}
