//! Data of users in JSON: the value itself where the bytes are JSON, base64 where they are not.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use windlass::{Error, Payload, Result};

/// Reads JSON. That it is UTF-8 is checked at once for all of it, which takes a fraction of checking each text in it.
pub fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> serde_json::Result<T> {
    match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        // Says where.
        Err(_) => serde_json::from_slice(bytes),
    }
}

/// The content type of bytes that come without one.
const OCTETS: &str = "application/octet-stream";
const JSON: &str = "application/json";

/// A payload in its three members: the JSON value, or base64 and a content type.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) json: Option<Box<RawValue>>,
    pub(super) base64: Option<String>,
    pub(super) content_type: Option<String>,
}

/// Takes a payload apart. JSON with white space around it goes as base64, so that it comes back byte for byte.
pub(super) fn split(payload: &Payload) -> Data {
    if payload.is_json()
        && let Some(json) = json_of(payload.as_bytes())
    {
        return Data { json: Some(json), ..Data::default() };
    }
    let content_type = Some(payload.content_type().to_owned());
    Data { base64: Some(STANDARD.encode(payload.as_bytes())), content_type, json: None }
}

/// Puts a payload together; `None` when there is none.
pub(super) fn join(field: &'static str, data: Data) -> Result<Option<Payload>> {
    let Data { json, base64, content_type } = data;
    match (json, base64) {
        (None, None) if content_type.is_some() => Err(Error::invalid("content_type", "stands only beside base64")),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Error::invalid(field, "is given twice, as JSON and as base64")),
        (Some(json), None) => {
            if content_type.is_some_and(|content_type| !content_type.eq_ignore_ascii_case(JSON)) {
                return Err(Error::invalid("content_type", "stands only beside base64"));
            }
            Payload::json_text(Box::<str>::from(json).into_string()).map(Some).map_err(|error| about(field, error))
        }
        (None, Some(text)) => {
            let bytes = decode(field, &text)?;
            let payload = Payload::bytes(content_type.as_deref().unwrap_or(OCTETS), bytes);
            payload.map(Some).map_err(|error| about(field, error))
        }
    }
}

/// Puts together what a server read from its store. Bytes that were checked when they came in and are damaged now are
/// taken as they are: only the handler of this one job has to cope with them, and not the client that reads a page with it.
pub(super) fn restore(field: &'static str, data: Data) -> Result<Option<Payload>> {
    match data {
        // The reader of the answer has seen that it is JSON.
        Data { json: Some(json), base64: None, content_type: None } => {
            Ok(Some(Payload::from_stored(None, Box::<str>::from(json).into_string())))
        }
        Data { json: None, base64: Some(text), content_type: Some(content_type) } if content_type == JSON => {
            Ok(Some(Payload::from_stored(None, decode(field, &text)?)))
        }
        data => join(field, data),
    }
}

/// Bytes without a content type: JSON where they are.
pub(super) fn split_bytes(bytes: &Bytes) -> (Option<Box<RawValue>>, Option<String>) {
    match json_of(bytes) {
        Some(json) => (Some(json), None),
        None => (None, Some(STANDARD.encode(bytes))),
    }
}

/// The opposite of [`split_bytes`].
pub(super) fn join_bytes(
    field: &'static str,
    json: Option<Box<RawValue>>,
    base64: Option<String>,
) -> Result<Option<Bytes>> {
    match (json, base64) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Error::invalid(field, "is given twice, as JSON and as base64")),
        (Some(json), None) => {
            let payload = Payload::json_text(Box::<str>::from(json).into_string());
            payload.map(|payload| Some(payload.as_bytes().clone())).map_err(|error| about(field, error))
        }
        (None, Some(text)) => decode(field, &text).map(Some),
    }
}

/// What is wrong with a payload, said of the member that it stands in.
fn about(field: &'static str, error: Error) -> Error {
    match error {
        Error::InvalidArgument { field: "payload", problem } => Error::InvalidArgument { field, problem },
        other => other,
    }
}

fn decode(field: &'static str, text: &str) -> Result<Bytes> {
    let bytes = STANDARD.decode(text).map_err(|_| Error::invalid(field, "is not base64"))?;
    Ok(bytes.into())
}

/// The bytes as a JSON value, if they are exactly one.
fn json_of(bytes: &Bytes) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let plain = |byte: Option<&u8>| byte.is_some_and(|byte| !byte.is_ascii_whitespace());
    if !plain(bytes.first()) || !plain(bytes.last()) {
        return None;
    }
    RawValue::from_string(text.to_owned()).ok()
}

/// Reads a member that may be `null`: said, and null, is not the same as left out.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The same for members that may be cleared: `null` is `Some(None)`.
pub(super) fn cleared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

/// Reads labels. A key that is given twice is refused: which of the two was meant is not for us to say.
pub(super) fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Labels;

    impl<'de> Visitor<'de> for Labels {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object whose members are texts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut labels = BTreeMap::new();
            while let Some((key, value)) = map.next_entry::<String, String>()? {
                if labels.contains_key(&key) {
                    return Err(A::Error::custom(format!("the key {key:.64?} is given twice")));
                }
                labels.insert(key, value);
            }
            Ok(labels)
        }
    }

    deserializer.deserialize_map(Labels)
}

/// The same where they may be left out or be `null`.
pub(super) fn maybe_labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    #[derive(Deserialize)]
    struct Given(#[serde(deserialize_with = "labels")] BTreeMap<String, String>);

    Ok(Option::<Given>::deserialize(deserializer)?.map(|Given(labels)| labels))
}
