//! Tokens: random, known to the server only by their SHA-256, compared without telling how far they agree.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::api::roles::Role;

/// What a token begins with, so that scanners for leaked secrets can find it.
const PREFIX: &str = "windlass_";
/// Bytes of randomness in a token.
const RANDOM_BYTES: usize = 32;
/// The longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 256;

/// A token that the server knows.
#[derive(Clone)]
pub struct Token {
    name: String,
    role: Role,
    hash: [u8; 32],
}

impl Token {
    /// A token by its SHA-256, in hexadecimal.
    pub fn new(name: impl Into<String>, role: Role, sha256: &str) -> Result<Self, String> {
        let mut hash = [0; 32];
        let digits = sha256.as_bytes();
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        if digits.len() != 64 || digits.iter().any(|digit| value(*digit).is_none()) {
            return Err("sha256 must be 64 hexadecimal digits, as `windlass token new` prints them".to_owned());
        }
        for (place, pair) in digits.chunks_exact(2).enumerate() {
            hash[place] = value(pair[0]).unwrap_or(0) << 4 | value(pair[1]).unwrap_or(0);
        }
        Ok(Token { name: name.into(), role, hash })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?}, {})", self.name, self.role)
    }
}

/// Whom a token makes known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The token's name; `None` where no token is asked for.
    pub name: Option<String>,
    /// What it may do.
    pub role: Role,
}

/// The tokens that the server knows.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// These, all active at once.
    pub fn new(tokens: Vec<Token>) -> Self {
        Tokens(tokens)
    }

    /// Whether there are none: then nobody is asked for one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who presents this token, if it is known.
    ///
    /// Every known token is compared, and each comparison takes the same time however far it agrees.
    pub fn known(&self, presented: &str) -> Option<Known> {
        if presented.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let hash: [u8; 32] = Sha256::digest(presented.as_bytes()).into();
        let (mut found, mut place) = (Choice::from(0), 0u32);
        for (number, token) in (0u32..).zip(&self.0) {
            let same = token.hash.ct_eq(&hash);
            place.conditional_assign(&number, same);
            found |= same;
        }
        let token = self.0.get(place as usize).filter(|_| bool::from(found))?;
        Some(Known { name: Some(token.name.clone()), role: token.role })
    }
}

/// A new token and its SHA-256 in hexadecimal: the first for its owner, the second for the configuration.
pub fn new_token() -> anyhow::Result<(String, String)> {
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<RANDOM_BYTES>()?));
    let hash = sha256_hex(&token);
    Ok((token, hash))
}

/// Random bytes from the operating system.
pub fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let provider = rustls::crypto::ring::default_provider();
    let filled = provider.secure_random.fill(&mut bytes);
    filled.map_err(|_| anyhow::anyhow!("the operating system gives no randomness"))?;
    Ok(bytes)
}

fn sha256_hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_known_by_its_hash_only() {
        let (token, hash) = new_token().expect("randomness");
        assert!(token.len() >= PREFIX.len() + 43, "256 bits: {}", token.len());
        let (other, _) = new_token().expect("randomness");
        assert_ne!(token, other);
        let tokens = Tokens::new(vec![
            Token::new("old", Role::Read, &"00".repeat(32)).expect("valid"),
            Token::new("ci", Role::Produce, &hash.to_uppercase()).expect("valid"),
        ]);
        assert_eq!(tokens.known(&token), Some(Known { name: Some("ci".to_owned()), role: Role::Produce }));
        assert_eq!(tokens.known(&other), None);
        assert_eq!(tokens.known(&hash), None);
        assert_eq!(tokens.known(""), None);
        assert_eq!(tokens.known(&token.repeat(9)), None);
        assert!(!format!("{tokens:?}").contains(&hash));
    }

    #[test]
    fn no_token_is_known_where_there_is_none() {
        assert_eq!(Tokens::default().known(""), None);
    }

    #[test]
    fn the_hash_is_sha_256() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
