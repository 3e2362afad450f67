//! What a job carries in and brings out: JSON, or bytes with a content type. Never interpreted, never logged.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// Longest content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;
/// How deep JSON text may be nested. Common readers stop at 128 (serde_json), and read it inside a page; one job that they
/// cannot read would spoil that page, or a claim with others in it.
pub const JSON_DEPTH_MAX: usize = 100;
const JSON: &str = "application/json";
/// The content type of data that was encrypted before it was stored.
pub const SEALED_TYPE: &str = "application/vnd.windlass.sealed";

/// The data of a job, or the result of one: bytes and what they are. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    content_type: Option<Arc<str>>,
    bytes: Bytes,
}

impl Payload {
    /// A value as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let bytes = serde_json::to_vec(value).map_err(|error| Error::invalid("payload", error.to_string()))?;
        Ok(Payload { content_type: None, bytes: bytes.into() })
    }

    /// Text that is JSON already; refused when it is not, or nested more than [`JSON_DEPTH_MAX`] deep.
    pub fn json_text(text: impl Into<Bytes>) -> Result<Self> {
        let bytes = text.into();
        let depth = depth(&bytes);
        if depth > JSON_DEPTH_MAX {
            let problem = format!("must be nested at most {JSON_DEPTH_MAX} deep, is {depth}");
            return Err(Error::invalid("payload", problem));
        }
        serde_json::from_slice::<&RawValue>(&bytes)
            .map_err(|error| Error::invalid("payload", format!("is not JSON: {error}")))?;
        Ok(Payload { content_type: None, bytes })
    }

    /// Bytes of any content type.
    pub fn bytes(content_type: &str, bytes: impl Into<Bytes>) -> Result<Self> {
        if content_type.eq_ignore_ascii_case(JSON) {
            return Payload::json_text(bytes);
        }
        let printable = content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if content_type.is_empty() || content_type.len() > CONTENT_TYPE_BYTES_MAX || !printable {
            let problem = format!("must have 1 to {CONTENT_TYPE_BYTES_MAX} printable ASCII characters");
            return Err(Error::invalid("content_type", problem));
        }
        Ok(Payload { content_type: Some(Arc::from(content_type)), bytes: bytes.into() })
    }

    /// What a store kept: a content type (`None` for JSON) and bytes that were checked when they came in.
    pub fn from_stored(content_type: Option<&str>, bytes: impl Into<Bytes>) -> Self {
        Payload { content_type: content_type.map(Arc::from), bytes: bytes.into() }
    }

    /// The content type to store: `None` for JSON.
    pub fn stored_content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The content type.
    pub fn content_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or(JSON)
    }

    /// Whether this is JSON.
    pub fn is_json(&self) -> bool {
        self.content_type.is_none()
    }

    /// Whether it was encrypted before it was stored, and has not been opened.
    pub fn is_sealed(&self) -> bool {
        self.content_type.as_deref() == Some(SEALED_TYPE)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads JSON back into a value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        if !self.is_json() {
            return Err(Error::invalid("payload", format!("is {}, not JSON", self.content_type())));
        }
        serde_json::from_slice(&self.bytes).map_err(|error| Error::invalid("payload", error.to_string()))
    }

    pub(crate) fn check_size(&self, what: &'static str, limit: usize) -> Result<()> {
        check_size(what, self.len(), limit)
    }
}

/// How deep arrays and objects stand in each other in JSON text. What stands in strings does not count.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

pub(crate) fn check_size(what: &'static str, size: usize, limit: usize) -> Result<()> {
    if size > limit { Err(Error::PayloadTooLarge { what, size, limit }) } else { Ok(()) }
}

impl Default for Payload {
    /// JSON `null`.
    fn default() -> Self {
        Payload { content_type: None, bytes: Bytes::from_static(b"null") }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({}, {} bytes)", self.content_type(), self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_checked_and_bytes_are_not() {
        assert!(Payload::json_text("{\"a\":1}").is_ok());
        assert_eq!(Payload::json_text("{").expect_err("cut").name(), "InvalidArgument");
        assert_eq!(Payload::bytes("application/json", "nope").expect_err("not json").name(), "InvalidArgument");
        let raw = Payload::bytes("application/octet-stream", vec![0, 255]).expect("bytes");
        assert!(!raw.is_json());
        assert!(raw.decode::<u8>().is_err());
        assert!(Payload::bytes("", "x").is_err());
        assert!(Payload::bytes("a\nb", "x").is_err());
    }

    #[test]
    fn json_text_is_nested_so_deep_and_no_deeper() {
        let nested = |depth: usize| Payload::json_text(format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        assert!(nested(JSON_DEPTH_MAX).is_ok());
        assert!(nested(JSON_DEPTH_MAX + 1).expect_err("too deep").to_string().contains("is 101"));
        assert!(nested(500_000).is_err());
        let flat = format!("[{}]", vec!["{\"a\":[]}"; 1000].join(","));
        assert!(Payload::json_text(flat).is_ok(), "side by side is not deep");
        let text = format!("\"{}\\\"{}\"", "[".repeat(200), "{".repeat(200));
        assert!(Payload::json_text(text).is_ok(), "what stands in a string is not nested");
    }

    #[test]
    fn a_payload_is_not_shown() {
        let payload = Payload::json("secret").expect("json");
        assert_eq!(format!("{payload:?}"), "Payload(application/json, 8 bytes)");
        assert_eq!(payload.decode::<String>().expect("text"), "secret");
    }
}
