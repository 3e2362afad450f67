//! Jobs of which one is enough: how long a key holds, what becomes of the job that has it, and keys from payloads
//! (section U of the contract).
//!
//! Everything is decided at submission, from the job that the key stands for. No later transition looks at a key, so a
//! retry or a requeue never meets a conflict.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::options::{Idempotency, Scope, TIMEOUT_MAX};
use super::payload::Payload;
use super::state::State;
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// Most pointers that a key may be computed from.
pub const POINTERS_MAX: usize = 32;
/// Whole numbers up to here are the same in every language, however they are written.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// Up to when an idempotency key stands for its job, if its window is not over before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// For its window, whatever becomes of the job (rule I3).
    #[default]
    Window,
    /// Until the job is claimed for the first time, or ends before that (rule U1).
    Claimed,
    /// Until the job ends (rule U1).
    Ended,
}

impl Until {
    /// All three.
    pub const ALL: [Until; 3] = [Until::Window, Until::Claimed, Until::Ended];

    /// Its number, as stores keep it.
    pub const fn number(self) -> u8 {
        match self {
            Until::Window => 0,
            Until::Claimed => 1,
            Until::Ended => 2,
        }
    }

    /// What a number stands for.
    pub fn from_number(number: u8) -> Option<Until> {
        Until::ALL.into_iter().find(|until| until.number() == number)
    }

    /// Whether the key no longer stands for its job: the job's state and whether it was ever claimed, `None` for a job
    /// that is gone.
    pub fn is_over(self, job: Option<(State, bool)>) -> bool {
        match self {
            Until::Window => false,
            Until::Claimed => job.is_none_or(|(state, was_claimed)| was_claimed || state.is_terminal()),
            Until::Ended => job.is_none_or(|(state, _)| state.is_terminal()),
        }
    }

    /// Whether that can never change: an ended job may be requeued, and its key then stands for it again.
    pub fn is_over_for_good(self, job: Option<(State, bool)>) -> bool {
        match self {
            Until::Window => false,
            Until::Claimed => job.is_none_or(|(_, was_claimed)| was_claimed),
            Until::Ended => job.is_none(),
        }
    }
}

/// What a submission does to the job that its key stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExisting {
    /// The existing job stays, and nothing is stored (rule I2).
    #[default]
    Keep,
    /// An existing job of the same type and queue that was never claimed is cancelled, and the new one is stored in the
    /// same transaction; any other stays (rule U3).
    Replace,
}

impl OnExisting {
    /// Both.
    pub const ALL: [OnExisting; 2] = [OnExisting::Keep, OnExisting::Replace];
}

/// One run for many submissions: once they have been quiet for a time, and at the latest so long after the first (rule U4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Debounce {
    /// How long nothing more must be submitted.
    #[serde(with = "super::micros")]
    pub quiet: Duration,
    /// How long after the first submission the job may run in any case.
    #[serde(with = "super::micros")]
    pub at_most: Duration,
}

impl Debounce {
    pub(super) fn check(&self) -> Result<()> {
        if self.quiet.is_zero() || self.at_most > TIMEOUT_MAX {
            return Err(Error::invalid("debounce", "must be more than zero and at most ten years"));
        }
        if self.at_most < self.quiet {
            let problem = format!("at_most is {:?}, shorter than quiet, which is {:?}", self.at_most, self.quiet);
            return Err(Error::invalid("debounce", problem));
        }
        Ok(())
    }

    /// When a job submitted at `now` may run, if the first submission was at `first`.
    pub fn run_at(&self, first: Timestamp, now: Timestamp) -> Timestamp {
        now.plus(self.quiet).min(first.plus(self.at_most))
    }
}

impl Idempotency {
    /// When the key stops to stand for a job submitted at `now`, if `first` was the first submission of those that
    /// replaced each other; `None` where only the job decides, or nothing.
    pub fn expires_at(&self, first: Timestamp, now: Timestamp) -> Option<Timestamp> {
        match &self.debounce {
            // What is submitted after that moment begins anew: otherwise a job that waits for a free worker would be
            // replaced over and over, and lose its place each time.
            Some(debounce) => Some(first.plus(debounce.at_most)),
            None => self.window.map(|window| now.plus(window)),
        }
    }
}

/// A job of which one is enough: what makes two submissions the same, and for how long.
///
/// ```
/// use std::time::Duration;
/// use windlass::{NewJob, Payload};
/// use windlass::job::Unique;
///
/// # fn main() -> windlass::Result<()> {
/// let payload = Payload::json(&serde_json::json!({"user": 7, "at": "12:00"}))?;
/// // While one waits for a worker, a second with the same payload is the same job.
/// let report = NewJob::new("report", payload.clone()).unique(Unique::payload().until_claimed());
/// // One for each user that has not ended; what else is in the payload makes no difference.
/// let sync = NewJob::new("sync", payload).unique(Unique::pointers(["/user"]).until_ended());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unique {
    by: By,
    scope: Scope,
    window: Option<Duration>,
    until: Until,
    on_existing: OnExisting,
    debounce: Option<Debounce>,
}

/// What makes two submissions the same.
#[derive(Clone, PartialEq, Eq, Debug)]
enum By {
    Key(String),
    Payload,
    Pointers(Vec<String>),
}

impl Unique {
    fn by(by: By) -> Self {
        let (window, until, on_existing) = (None, Until::Ended, OnExisting::Keep);
        Unique { by, scope: Scope::Type, window, until, on_existing, debounce: None }
    }

    /// Submissions with this key are the same.
    pub fn key(key: impl Into<String>) -> Self {
        Unique::by(By::Key(key.into()))
    }

    /// Submissions with the same payload are the same: equal as JSON, whatever the order of members and the white space.
    pub fn payload() -> Self {
        Unique::by(By::Payload)
    }

    /// Submissions are the same if their payloads are equal at these places, JSON pointers such as `/user/id`.
    pub fn pointers<P: Into<String>>(pointers: impl IntoIterator<Item = P>) -> Self {
        Unique::by(By::Pointers(pointers.into_iter().map(Into::into).collect()))
    }

    /// Among which jobs; those of the same type unless said.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Until the job is claimed for the first time: one waits, and one may run before it.
    #[must_use]
    pub fn until_claimed(mut self) -> Self {
        self.until = Until::Claimed;
        self
    }

    /// Until the job ends, in whatever state; so unless said.
    #[must_use]
    pub fn until_ended(mut self) -> Self {
        self.until = Until::Ended;
        self
    }

    /// For this long from the first submission, whatever becomes of the job (rule U5); `None` for ever.
    #[must_use]
    pub fn within(mut self, window: impl Into<Option<Duration>>) -> Self {
        (self.window, self.until) = (window.into(), Until::Window);
        self
    }

    /// A new submission takes the place of a job of the same type and queue that was never claimed.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.on_existing = OnExisting::Replace;
        self
    }

    /// Only the last of many submissions runs.
    pub(super) fn debounced(mut self, debounce: Debounce) -> Self {
        (self.debounce, self.window) = (Some(debounce), None);
        (self.until, self.on_existing) = (Until::Claimed, OnExisting::Replace);
        self
    }

    /// The key with everything about it, for a job with this payload.
    pub(super) fn idempotency(self, payload: &Payload) -> Result<Idempotency> {
        let key = match self.by {
            By::Key(key) => key,
            By::Payload => key_of_payload(payload)?,
            By::Pointers(pointers) => key_of_pointers(payload, &pointers)?,
        };
        Ok(Idempotency {
            key,
            scope: self.scope,
            window: self.window,
            until: self.until,
            on_existing: self.on_existing,
            debounce: self.debounce,
        })
    }
}

/// The key of a payload: `sha256:` and the hash of its canonical JSON, as 64 hexadecimal digits (rule U2).
///
/// Canonical: no white space; members of an object by name, in the order of their bytes in UTF-8, the last of two with
/// one name; strings with no escapes but those that JSON demands; whole numbers as their digits, also where they are
/// written with a fraction or an exponent and lie within ±(2^53 − 1); other numbers as `5e-1` or `1.25e1`, with the fewest
/// digits that read back as the same double.
pub fn key_of_payload(payload: &Payload) -> Result<String> {
    let mut text = String::with_capacity(payload.len());
    canonical(json(payload)?, &mut text)?;
    Ok(hashed(&text))
}

/// The key of what a payload has at these JSON pointers: the hash of the canonical object whose members are the pointers,
/// without those that lead nowhere. The one pointer `""` is the whole payload.
pub fn key_of_pointers(payload: &Payload, pointers: &[String]) -> Result<String> {
    let bad = |problem: String| Err(Error::invalid("unique", problem));
    if pointers.is_empty() || pointers.len() > POINTERS_MAX {
        return bad(format!("must have 1 to {POINTERS_MAX} pointers, has {}", pointers.len()));
    }
    if let Some(pointer) = pointers.iter().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
        return bad(format!("a pointer begins with a slash, {:?} does not", super::id::shorten(pointer)));
    }
    if pointers == [""] {
        return key_of_payload(payload);
    }
    let payload = json(payload)?;
    let mut members: BTreeMap<&str, String> = BTreeMap::new();
    for pointer in pointers {
        if let Some(value) = at(payload, pointer)? {
            canonical(value, members.entry(pointer).or_default())?;
        }
    }
    let mut text = String::from("{");
    for (place, (pointer, value)) in members.iter().enumerate() {
        text.push_str(if place == 0 { "" } else { "," });
        text.push_str(&string(pointer));
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    Ok(hashed(&text))
}

fn json(payload: &Payload) -> Result<&RawValue> {
    if !payload.is_json() {
        let problem = format!("a key can be computed from a JSON payload only, not from {}", payload.content_type());
        return Err(Error::invalid("unique", problem));
    }
    serde_json::from_slice(payload.as_bytes()).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> Error {
    Error::invalid("payload", error.to_string())
}

/// What stands at a pointer.
fn at<'j>(json: &'j RawValue, pointer: &str) -> Result<Option<&'j RawValue>> {
    let mut found = json;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let below = match found.get().as_bytes().first() {
            Some(b'{') => members(found)?.get(step.as_str()).copied(),
            Some(b'[') => {
                let is_place = step == "0" || !step.starts_with(['0', '+']);
                let place = step.parse().ok().filter(|_| is_place);
                place.map(|place: usize| elements(found).map(|all| all.get(place).copied())).transpose()?.flatten()
            }
            _ => None,
        };
        match below {
            Some(below) => found = below,
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

fn members(object: &RawValue) -> Result<BTreeMap<std::borrow::Cow<'_, str>, &RawValue>> {
    serde_json::from_str(object.get()).map_err(unreadable)
}

fn elements(array: &RawValue) -> Result<Vec<&RawValue>> {
    serde_json::from_str(array.get()).map_err(unreadable)
}

/// Writes a JSON value so that equal values are equal texts.
fn canonical(json: &RawValue, text: &mut String) -> Result<()> {
    match json.get().as_bytes().first() {
        Some(b'{') => {
            text.push('{');
            for (place, (name, value)) in members(json)?.into_iter().enumerate() {
                text.push_str(if place == 0 { "" } else { "," });
                text.push_str(&string(&name));
                text.push(':');
                canonical(value, text)?;
            }
            text.push('}');
        }
        Some(b'[') => {
            text.push('[');
            for (place, value) in elements(json)?.into_iter().enumerate() {
                text.push_str(if place == 0 { "" } else { "," });
                canonical(value, text)?;
            }
            text.push(']');
        }
        Some(b'"') => text.push_str(&string(&serde_json::from_str::<String>(json.get()).map_err(unreadable)?)),
        Some(b'-' | b'0'..=b'9') => text.push_str(&number(json.get())),
        _ => text.push_str(json.get()),
    }
    Ok(())
}

fn string(text: &str) -> String {
    serde_json::to_string(text).expect("text is JSON")
}

/// A number as its digits, where it is whole. Longer ones than a double can hold are ids, and must not become the same.
fn number(text: &str) -> String {
    let is_whole = !text.contains(['.', 'e', 'E']);
    match text.parse::<f64>() {
        Ok(zero) if zero == 0.0 => "0".to_owned(),
        Ok(value) if !is_whole && value.fract() == 0.0 && value.abs() <= EXACT_MAX => format!("{value:.0}"),
        Ok(value) if !is_whole && value.is_finite() => format!("{value:e}"),
        _ => text.to_owned(),
    }
}

fn hashed(text: &str) -> String {
    let mut key = String::from("sha256:");
    for byte in Sha256::digest(text.as_bytes()) {
        write!(key, "{byte:02x}").expect("text can be written");
    }
    key
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn key(text: &str) -> String {
        key_of_payload(&Payload::json_text(text.to_owned()).expect("JSON")).expect("a key")
    }

    fn at_pointers(text: &str, pointers: &[&str]) -> Result<String> {
        let pointers: Vec<String> = pointers.iter().map(|pointer| (*pointer).to_owned()).collect();
        key_of_pointers(&Payload::json_text(text.to_owned()).expect("JSON"), &pointers)
    }

    #[test]
    fn u1_a_key_is_over_once_its_job_is_where_it_holds_to() {
        let claimed = |state| Some((state, true));
        let fresh = |state| Some((state, false));
        for state in State::ALL {
            assert!(!Until::Window.is_over(claimed(state)));
            assert_eq!(Until::Ended.is_over(claimed(state)), state.is_terminal(), "{state}");
            assert!(Until::Claimed.is_over(claimed(state)), "{state}: it was claimed before it came there");
            assert_eq!(Until::Claimed.is_over(fresh(state)), state.is_terminal(), "{state}");
            let for_good =
                Until::ALL.map(|until| (until.is_over_for_good(claimed(state)), until.is_over_for_good(fresh(state))));
            assert_eq!(for_good, [(false, false), (true, false), (false, false)], "{state}: it may be requeued");
        }
        assert_eq!(Until::ALL.map(|until| until.is_over(None)), [false, true, true]);
        assert_eq!(Until::ALL.map(|until| until.is_over_for_good(None)), [false, true, true]);
        assert_eq!(Until::ALL.map(|until| Until::from_number(until.number())), Until::ALL.map(Some));
    }

    #[test]
    fn u2_equal_payloads_have_one_key() {
        let same = [
            (r#"{"a":1,"b":[true,null]}"#, " { \"b\" : [ true , null ] ,\n\t\"a\" : 1 } "),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#""\u00e9\/""#, r#""é/""#),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("-0.0", "0"),
            ("0.10", "1E-1"),
        ];
        for (one, other) in same {
            assert_eq!(key(one), key(other), "{one} and {other}");
        }
        let different = ["{}", "[]", "null", "0", "\"0\"", "false", "[1,2]", "[2,1]", "{\"a\":null}", "\"\"", "0.1"];
        let long = ["9007199254740993", "9007199254740992", "18446744073709551617", "18446744073709551616", "1e400"];
        let keys: std::collections::BTreeSet<String> = different.iter().chain(&long).map(|text| key(text)).collect();
        assert_eq!(keys.len(), different.len() + long.len());
    }

    #[test]
    fn u2_a_key_can_be_computed_in_any_language() {
        // printf '%s' '{"a":[1,"é"],"b":5e-1}' | sha256sum
        let by_hand = "sha256:4eaf5ddca0e1e4e83c08e1ab7beeae3153bb483a17271078990282d1852fac02";
        assert_eq!(key(r#"{ "b": 0.5, "a": [1, "\u00e9"] }"#), by_hand);
    }

    #[test]
    fn u2_pointers_pick_what_matters() {
        let one = r#"{"user":{"id":7,"a/b":1},"at":1,"list":[5,6]}"#;
        let other = r#"{"at":2,"list":[5,7],"user":{"a/b":1,"id":7.0}}"#;
        let same =
            |pointers: &[&str]| at_pointers(one, pointers).expect("key") == at_pointers(other, pointers).expect("key");
        assert!(same(&["/user"]) && same(&["/user/id", "/list/0"]) && same(&["/user/a~1b"]) && same(&["/nowhere"]));
        assert!(!same(&["/user", "/at"]) && !same(&["/list/1"]) && !same(&[""]));
        let keys = [["/user/id"], ["/at"], ["/nowhere"]].map(|pointers| at_pointers(one, &pointers).expect("key"));
        assert!(keys[0] != keys[1] && keys[1] != keys[2], "which pointer it is counts, too");
        assert_ne!(at_pointers("{\"a\":null}", &["/a"]).expect("key"), at_pointers("{}", &["/a"]).expect("key"));
        for (pointers, problem) in
            [(vec![], "1 to 32"), (vec!["user"], "begins with a slash"), (vec!["/a"; 33], "has 33")]
        {
            let refused = at_pointers(one, &pointers).expect_err("out of bounds").to_string();
            assert!(refused.contains(problem), "{refused}");
        }
        let bytes = Payload::bytes("text/plain", "x").expect("bytes");
        assert_eq!(key_of_payload(&bytes).expect_err("no JSON").name(), "InvalidArgument");
    }

    #[test]
    fn u4_a_debounced_job_runs_after_quiet_and_at_most_so_long_after_the_first() {
        let debounce = Debounce { quiet: Duration::from_secs(5), at_most: Duration::from_secs(12) };
        let at = Timestamp::from_seconds;
        assert_eq!(
            [100, 104, 107, 111].map(|now| debounce.run_at(at(100), at(now))),
            [at(105), at(109), at(112), at(112)]
        );
        assert!(debounce.check().is_ok());
        for (quiet, at_most) in [(0, 5), (5, 4), (5, u64::MAX / 2)] {
            let (quiet, at_most) = (Duration::from_secs(quiet), Duration::from_secs(at_most));
            assert!(Debounce { quiet, at_most }.check().is_err());
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = "[a-cé\"\\\\/\u{0}\n😀]{0,4}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e12..1e12f64).prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, move |below| {
            prop_oneof![
                vec(below.clone(), 0..4).prop_map(Value::from),
                btree_map(text, below, 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// The value as text, with members from behind and white space everywhere, strings escaped where they need not be.
    fn written_differently(value: &Value, text: &mut String) {
        let escaped = |text: &str| {
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
            format!("\"{}\"", units.collect::<String>())
        };
        match value {
            Value::Array(elements) => {
                text.push_str(" [\n");
                for (place, element) in elements.iter().enumerate() {
                    text.push_str(if place == 0 { "" } else { "\t, " });
                    written_differently(element, text);
                }
                text.push_str(" ] ");
            }
            Value::Object(members) => {
                text.push_str("{ ");
                let backwards: Vec<_> = members.iter().collect();
                for (place, (name, value)) in backwards.into_iter().rev().enumerate() {
                    text.push_str(if place == 0 { "" } else { " ,\r\n" });
                    text.push_str(&escaped(name));
                    text.push_str(" : ");
                    written_differently(value, text);
                }
                text.push('}');
            }
            Value::String(words) => text.push_str(&escaped(words)),
            other => write!(text, " {other} ").expect("text can be written"),
        }
    }

    proptest! {
        #[test]
        fn u2_the_key_does_not_depend_on_order_or_white_space(value in values()) {
            let mut other = String::new();
            written_differently(&value, &mut other);
            prop_assert_eq!(key(&value.to_string()), key(&other), "{} and {}", value, other);
        }

        #[test]
        fn u2_different_values_have_different_keys(one in values(), other in values()) {
            prop_assume!(one != other);
            // A whole number may be written with a fraction, and is then the same.
            let whole = |value: &Value| value.as_f64().is_some_and(|number| number.fract() == 0.0);
            prop_assume!(!whole(&one) || !whole(&other));
            prop_assert_ne!(key(&one.to_string()), key(&other.to_string()));
        }
    }
}
