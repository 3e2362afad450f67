//! Signatures as in the Standard Webhooks specification: HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Error, Result};

const PREFIX: &str = "whsec_";

/// A secret shared with the receivers of webhooks: `whsec_` and base64 of 24 to 64 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Reads a secret. What it says about a bad one holds nothing of it.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = |problem: &str| Error::invalid("webhook secret", problem);
        let encoded = text.trim().strip_prefix(PREFIX).ok_or_else(|| refused("begins with whsec_"))?;
        let bytes = STANDARD.decode(encoded).map_err(|_| refused("after whsec_ comes base64"))?;
        Secret::from_bytes(&bytes)
    }

    /// A secret of these 24 to 64 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        match (24..=64).contains(&bytes.len()) {
            true => Ok(Secret(bytes.to_vec())),
            false => Err(Error::invalid("webhook secret", "has 24 to 64 bytes")),
        }
    }

    /// How it is written; a reader of this can sign.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The value of `webhook-signature`: one signature for each secret, so that receivers can change over at their leisure.
pub fn signatures(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures: Vec<_> = secrets.iter().map(|secret| secret.sign(id, timestamp, body)).collect();
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own test suites; also computed with Python's `hmac`.
    #[test]
    fn x6_the_signature_is_the_specifications() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let body = br#"{"test": 2432232314}"#;
        let signed = signatures(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn during_rotation_each_secret_signs() {
        let secrets = [[1; 24], [2; 24]].map(|bytes| Secret(bytes.to_vec()));
        let both = signatures(&secrets, "msg", 1, b"body");
        assert_eq!(both, format!("{} {}", secrets[0].sign("msg", 1, b"body"), secrets[1].sign("msg", 1, b"body")));
    }

    #[test]
    fn only_secrets_of_the_right_form_are_taken() {
        let secret = Secret::from_bytes(&[7; 32]).expect("a secret");
        assert_eq!(Secret::parse(&secret.reveal()).expect("as it is written"), secret);
        let of = |bytes: usize| format!("{PREFIX}{}", STANDARD.encode(vec![7; bytes]));
        for (text, good) in [(of(23), false), (of(24), true), (of(64), true), (of(65), false)] {
            assert_eq!(Secret::parse(&text).is_ok(), good, "{text}");
        }
        assert!(Secret::parse("whsec_!!").is_err());
        assert!(Secret::parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_err());
    }
}
