//! Keys, and the envelope that they seal: an authenticated cipher over bytes and the place these belong to.
//!
//! An envelope is `magic, length of the key's name, name, 24 bytes of nonce, ciphertext and tag`. The first half of the
//! nonce and the key give a key for this one envelope (HKDF-SHA-256); the second half is the nonce of AES-256-GCM under it.
//! So random nonces never come near the limit of that cipher, however many jobs there are. What the envelope is and what
//! it belongs to is authenticated beside it.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};
use ring::{aead, hkdf, hmac};

use crate::error::{Error, Result};

/// What an envelope begins with: no JSON and no UTF-8 text does.
const MAGIC: &[u8; 10] = b"\xf5windlass\x01";
/// Bytes of a key.
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// Longest name of a key.
const NAME_BYTES_MAX: usize = 32;
/// Most keys of a ring: more than anybody keeps, few enough to look through.
const KEYS_MAX: usize = 100;

/// The keys that payloads are encrypted with: the current one, and older ones that only open.
#[derive(Clone)]
pub struct Keyring {
    keys: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    name: String,
    derive: hkdf::Prk,
    synthetic: hmac::Key,
}

/// Why an envelope does not open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Closed {
    /// No key of the ring has this name.
    NoSuchKey(String),
    /// The key is another than the one of this name that sealed it, or the bytes were changed.
    NotAuthentic(String),
    /// The envelope itself cannot be read.
    Broken,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::NoSuchKey(name) => write!(f, "it was encrypted with key {name:?}, which is not in the keyring"),
            Closed::NotAuthentic(name) => {
                write!(f, "it does not open with key {name:?}: that key is another one, or what is stored was changed")
            }
            Closed::Broken => f.write_str("what is stored is no whole envelope"),
        }
    }
}

impl Keyring {
    /// Reads keys as `windlass token key` prints them, `NAME:64 hexadecimal digits`, in lines or with commas between. The
    /// first is the current one; lines that begin with `#` are remarks.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let words = lines.flat_map(|line| line.split([',', ' ', '\t'])).filter(|word| !word.is_empty());
        let keys: Vec<Key> = words.map(Key::parse).collect::<Result<_>>()?;
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(Error::invalid("encryption keys", format!("must be 1 to {KEYS_MAX}, are {}", keys.len())));
        }
        for (place, key) in keys.iter().enumerate() {
            if keys[..place].iter().any(|other| other.name == key.name) {
                return Err(Error::invalid("encryption keys", format!("two have the name {:?}", key.name)));
            }
        }
        Ok(Keyring { keys })
    }

    /// The names of the keys, the current one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.name.as_str())
    }

    /// A new key under this name, as [`parse`](Self::parse) takes it.
    pub fn new_key(name: &str) -> Result<String> {
        check_name(name)?;
        let bytes: [u8; KEY_BYTES] = random()?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{name}:{digits}"))
    }

    /// Seals with the current key. `belongs_to` must be the same when it is opened.
    pub(super) fn seal(&self, plain: &[u8], belongs_to: &[u8]) -> Result<Vec<u8>> {
        Ok(self.keys[0].seal(plain, belongs_to, random()?))
    }

    /// The same, but the same bytes always give the same envelope: for what stores compare.
    pub(super) fn seal_alike(&self, plain: &[u8], belongs_to: &[u8]) -> Vec<u8> {
        let key = &self.keys[0];
        key.seal(plain, belongs_to, key.synthetic_nonce(plain, belongs_to))
    }

    /// Opens an envelope.
    pub(super) fn open(&self, envelope: &[u8], belongs_to: &[u8]) -> Result<Vec<u8>, Closed> {
        let (name, nonce, sealed) = parts(envelope).ok_or(Closed::Broken)?;
        let key = self.keys.iter().find(|key| key.name == name).ok_or_else(|| Closed::NoSuchKey(name.to_owned()))?;
        key.open(nonce, sealed, belongs_to).ok_or_else(|| Closed::NotAuthentic(name.to_owned()))
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Whether these bytes are an envelope.
pub(super) fn is_envelope(bytes: &[u8]) -> bool {
    parts(bytes).is_some()
}

/// The name of the key that sealed an envelope.
pub(super) fn key_name(bytes: &[u8]) -> Option<&str> {
    parts(bytes).map(|(name, ..)| name)
}

/// The name of the key, the nonce and the rest.
fn parts(envelope: &[u8]) -> Option<(&str, &[u8; NONCE_BYTES], &[u8])> {
    let (length, rest) = envelope.strip_prefix(MAGIC)?.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (nonce, sealed) = rest.split_first_chunk()?;
    Some((std::str::from_utf8(name).ok()?, nonce, sealed))
}

fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        let problem = format!("must have a name of 1 to {NAME_BYTES_MAX} of the characters A-Z a-z 0-9 _ . -");
        return Err(Error::invalid("encryption key", problem));
    }
    Ok(())
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::store("encrypt", "the operating system gives no randomness"))?;
    Ok(bytes)
}

impl Key {
    fn parse(word: &str) -> Result<Self> {
        // Nothing of the word is repeated: it may be the key itself.
        let bad = |problem: &str| Error::invalid("encryption key", problem.to_owned());
        let (name, digits) = word.split_once(':').ok_or_else(|| bad("must be NAME:64 hexadecimal digits"))?;
        check_name(name)?;
        let mut bytes = [0; KEY_BYTES];
        if digits.len() != 2 * KEY_BYTES || !digits.is_ascii() {
            return Err(bad("must have 64 hexadecimal digits behind its name"));
        }
        for (place, byte) in bytes.iter_mut().enumerate() {
            let pair = &digits[2 * place..2 * place + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad("must have 64 hexadecimal digits behind its name"))?;
        }
        if bytes.iter().all(|byte| *byte == bytes[0]) {
            return Err(bad("is the same byte 32 times; make one with `windlass token key`"));
        }
        Ok(Key::new(name, &bytes))
    }

    fn new(name: &str, bytes: &[u8; KEY_BYTES]) -> Self {
        let derive = hkdf::Salt::new(hkdf::HKDF_SHA256, b"windlass payload encryption").extract(bytes);
        let synthetic = derive.expand(&[b"synthetic nonce"], hmac::HMAC_SHA256).expect("32 bytes are not too many");
        Key { name: name.to_owned(), synthetic: hmac::Key::from(synthetic), derive }
    }

    /// The cipher of one envelope, and its nonce.
    fn cipher(&self, nonce: &[u8; NONCE_BYTES]) -> (aead::LessSafeKey, aead::Nonce) {
        let (first, second) = nonce.split_at(NONCE_BYTES / 2);
        let info = [b"envelope".as_slice(), first];
        let key = self.derive.expand(&info, &aead::AES_256_GCM).expect("32 bytes are not too many");
        let nonce = aead::Nonce::try_assume_unique_for_key(second).expect("it has 12 bytes");
        (aead::LessSafeKey::new(aead::UnboundKey::from(key)), nonce)
    }

    /// What is authenticated beside the bytes themselves.
    fn beside(&self, belongs_to: &[u8]) -> Vec<u8> {
        [self.header().as_slice(), belongs_to].concat()
    }

    fn header(&self) -> Vec<u8> {
        let length = u8::try_from(self.name.len()).expect("names are short");
        [MAGIC.as_slice(), &[length], self.name.as_bytes()].concat()
    }

    /// A nonce that follows from what is sealed: nobody without the key can tell anything by it but that two are the same.
    fn synthetic_nonce(&self, plain: &[u8], belongs_to: &[u8]) -> [u8; NONCE_BYTES] {
        let mut context = hmac::Context::with_key(&self.synthetic);
        context.update(&(belongs_to.len() as u64).to_be_bytes());
        context.update(belongs_to);
        context.update(plain);
        *context.sign().as_ref().first_chunk().expect("it has 32 bytes")
    }

    fn seal(&self, plain: &[u8], belongs_to: &[u8], nonce: [u8; NONCE_BYTES]) -> Vec<u8> {
        let (cipher, gcm_nonce) = self.cipher(&nonce);
        let mut envelope = self.header();
        envelope.reserve(NONCE_BYTES + plain.len() + aead::AES_256_GCM.tag_len());
        envelope.extend_from_slice(&nonce);
        let mut sealed = plain.to_vec();
        let beside = aead::Aad::from(self.beside(belongs_to));
        cipher.seal_in_place_append_tag(gcm_nonce, beside, &mut sealed).expect("payloads are far below 64 GiB");
        envelope.append(&mut sealed);
        envelope
    }

    fn open(&self, nonce: &[u8; NONCE_BYTES], sealed: &[u8], belongs_to: &[u8]) -> Option<Vec<u8>> {
        let (cipher, gcm_nonce) = self.cipher(nonce);
        let mut bytes = sealed.to_vec();
        let beside = aead::Aad::from(self.beside(belongs_to));
        let length = cipher.open_in_place(gcm_nonce, beside, &mut bytes).ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "a:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const SECOND: &str = "b:202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

    fn ring(text: &str) -> Keyring {
        Keyring::parse(text).expect("keys")
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Made with another implementation: `cryptography` for Python, by the description at the top of this file.
    #[test]
    fn envelopes_are_what_another_implementation_makes() {
        let ring = ring(FIRST);
        let nonce: [u8; NONCE_BYTES] = std::array::from_fn(|place| 0x40 + place as u8);
        let envelope = ring.keys[0].seal(b"{\"card\":4242}", b"payload mail.send", nonce);
        assert_eq!(hex(&envelope), VECTOR);
        assert_eq!(hex(&ring.seal_alike(b"{\"card\":4242}", b"payload mail.send")), VECTOR_ALIKE);
        assert_eq!(ring.open(&envelope, b"payload mail.send").expect("opens"), b"{\"card\":4242}");
    }

    const VECTOR: &str = "f577696e646c617373010161404142434445464748494a4b4c4d4e4f5051525354555657c3b9db7105d993f8b7ea60c261083242f23516e739b591b7403202f765";
    const VECTOR_ALIKE: &str = "f577696e646c617373010161eeed50f8f6f3938afd90b8a27a0b6a7adaace044376496714189df8044725782a141808ba11ae36b5891653238050d7b8f219153ab";

    #[test]
    fn only_the_right_key_opens_only_what_was_not_changed_and_only_where_it_belongs() {
        let (first, second) = (ring(FIRST), ring(SECOND));
        let envelope = first.seal(b"secret", b"here").expect("sealed");
        assert_eq!(first.open(&envelope, b"here").expect("opens"), b"secret");
        assert_eq!(first.open(&envelope, b"there"), Err(Closed::NotAuthentic("a".to_owned())));
        assert_eq!(second.open(&envelope, b"here"), Err(Closed::NoSuchKey("a".to_owned())));
        let wrong = ring(&SECOND.replace("b:", "a:"));
        assert_eq!(wrong.open(&envelope, b"here"), Err(Closed::NotAuthentic("a".to_owned())));
        for place in 0..envelope.len() {
            let mut changed = envelope.clone();
            changed[place] ^= 1;
            assert!(first.open(&changed, b"here").is_err(), "byte {place} may be changed");
        }
        for length in 0..envelope.len() {
            assert!(first.open(&envelope[..length], b"here").is_err(), "{length} bytes open");
        }
    }

    #[test]
    fn older_keys_open_and_the_first_one_seals() {
        let old = ring(FIRST).seal(b"x", b"").expect("sealed");
        let both = ring(&format!("# the new one\n{SECOND}\n# from before\n{FIRST}"));
        assert_eq!(both.open(&old, b"").expect("opens"), b"x");
        let new = both.seal(b"x", b"").expect("sealed");
        assert_eq!(ring(SECOND).open(&new, b"").expect("opens"), b"x");
        assert_eq!(both.names().collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn the_same_bytes_look_different_unless_they_must_not() {
        let ring = ring(FIRST);
        assert_ne!(ring.seal(b"x", b"").expect("sealed"), ring.seal(b"x", b"").expect("sealed"));
        assert_eq!(ring.seal_alike(b"x", b"t"), ring.seal_alike(b"x", b"t"));
        assert_ne!(ring.seal_alike(b"x", b"t")[12..36], ring.seal_alike(b"x", b"u")[12..36]);
        assert_ne!(ring.seal_alike(b"x", b"t")[12..36], ring.seal_alike(b"y", b"t")[12..36]);
        assert!(is_envelope(&ring.seal_alike(b"", b"")) && !is_envelope(b"{}") && !is_envelope(b""));
    }

    #[test]
    fn keys_that_are_no_good_are_refused_and_not_repeated() {
        let digits = &FIRST[2..];
        let same = "ab".repeat(32);
        for bad in [
            "",
            digits,
            &format!("a:{}", &digits[2..]),
            &format!("a:{}", digits.replace('0', "x")),
            &format!("a b:{digits}"),
            &format!("{}:{digits}", "n".repeat(33)),
            &format!("a:{same}"),
            &format!("{FIRST},{FIRST}"),
            &format!("a:é{}", &digits[2..]),
        ] {
            let refused = Keyring::parse(bad).expect_err(bad).to_string();
            assert!(!refused.contains("0a0b0c"), "{refused}");
        }
        assert!(!format!("{:?}", ring(FIRST)).contains("0a0b0c"));
        assert!(Keyring::parse(&Keyring::new_key("2026-1").expect("a key")).is_ok());
        assert!(Keyring::new_key("a:b").is_err());
    }
}
