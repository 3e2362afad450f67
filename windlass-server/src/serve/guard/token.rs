//! Tokens: random, known to the server only by their SHA-256, compared without telling how far they agree.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::api::roles::Role;
use crate::serve::bound::Bounds;

/// What a token begins with, so that scanners for leaked secrets can find it.
const PREFIX: &str = "windlass_";
/// Bytes of randomness in a token.
const RANDOM_BYTES: usize = 32;
/// Bytes of a token's hash that tell it from a later one of the same name.
const MARK_BYTES: usize = 8;
/// The longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 256;

/// A token that the server knows.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    name: String,
    role: Role,
    hash: [u8; 32],
    bounds: Bounds,
    expires: Option<Timestamp>,
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
        Ok(Token { name: name.into(), role, hash, bounds: Bounds::default(), expires: None })
    }

    /// Binds it to queues and types.
    #[must_use]
    pub fn bound(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Ends it at this moment of the machine's clock.
    #[must_use]
    pub fn expires(mut self, at: Option<Timestamp>) -> Self {
        self.expires = at;
        self
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it may do.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What it is bound to.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// When it ends, if ever.
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Whether it has ended.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// What a session keeps of it.
    pub(super) fn mark(&self) -> Mark {
        Mark { name: self.name.clone(), hash: self.start_of_hash() }
    }

    fn start_of_hash(&self) -> [u8; MARK_BYTES] {
        *self.hash.first_chunk().expect("a hash is longer")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?}, {})", self.name, self.role)
    }
}

/// Which token a session stands for: enough to find it again, too little to sign in with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) name: String,
    /// The first bytes of the token's hash.
    pub(super) hash: [u8; MARK_BYTES],
}

/// The tokens that the server knows.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// These, all active at once; two with one hash would be one token with two roles.
    pub fn new(tokens: Vec<Token>) -> Result<Self, String> {
        for (place, token) in tokens.iter().enumerate() {
            if let Some(twin) = tokens[..place].iter().find(|twin| twin.hash == token.hash) {
                return Err(format!("{:?} and {:?} have the same sha256: they are one token", twin.name, token.name));
            }
        }
        Ok(Tokens(tokens))
    }

    /// Whether there are none: then nobody is asked for one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.iter()
    }

    /// Which of them a session stands for, as long as it is known.
    pub(super) fn marked(&self, mark: &Mark) -> Option<(usize, &Token)> {
        self.0.iter().enumerate().find(|(_, token)| token.name == mark.name && token.start_of_hash() == mark.hash)
    }

    /// Which of them this is, if it is known.
    ///
    /// Every known token is compared, and each comparison takes the same time however far it agrees.
    pub fn find(&self, presented: &str) -> Option<(usize, &Token)> {
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
        let place = place as usize;
        self.0.get(place).filter(|_| bool::from(found)).map(|token| (place, token))
    }
}

/// The SHA-256 of nothing, and of words that everybody tries first.
const GUESSED: [&str; 12] = [
    "", "password", "secret", "token", "admin", "test", "changeme", "windlass", "123456", "root", "letmein", "hunter2",
];

/// Whether this is the hash of a word that anybody would guess.
pub fn is_guessed(sha256: &str) -> bool {
    GUESSED.iter().any(|word| sha256_hex(word).eq_ignore_ascii_case(sha256))
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
        let tokens = tokens.expect("two tokens");
        let known = |presented: &str| tokens.find(presented).map(|(place, token)| (place, token.name(), token.role()));
        assert_eq!(known(&token), Some((1, "ci", Role::Produce)));
        assert_eq!(known(&other), None);
        assert_eq!(known(&hash), None);
        assert_eq!(known(""), None);
        assert_eq!(known(&token.repeat(9)), None);
        assert!(!format!("{tokens:?}").contains(&hash));
    }

    #[test]
    fn no_token_is_known_where_there_is_none() {
        assert!(Tokens::default().find("").is_none());
    }

    #[test]
    fn l13_two_tokens_with_one_hash_are_refused() {
        let token = |name, byte: &str| Token::new(name, Role::Read, &byte.repeat(32)).expect("valid");
        assert!(Tokens::new(vec![token("a", "aa"), token("b", "AA")]).is_err());
        // While one is replaced, the old and the new one go by one name.
        assert!(Tokens::new(vec![token("a", "aa"), token("a", "bb")]).is_ok());
    }

    #[test]
    fn l13_the_hash_of_a_word_that_anybody_guesses_is_known() {
        assert!(is_guessed(&sha256_hex("password").to_uppercase()));
        assert!(!is_guessed(&new_token().expect("randomness").1));
    }

    #[test]
    fn m17_a_token_ends_at_its_moment() {
        let at: Timestamp = "2026-06-01T00:00:00Z".parse().expect("a time");
        let token = Token::new("a", Role::Read, &"aa".repeat(32)).expect("valid").expires(Some(at));
        let second = jiff::SignedDuration::from_secs(1);
        assert!(!token.is_over(at - second) && token.is_over(at) && token.is_over(at + second));
    }

    #[test]
    fn the_hash_is_sha_256() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
