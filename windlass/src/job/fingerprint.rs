//! What makes two failures the same fault: a number over the type, the category and the code or, where there is no code,
//! over the message without what differs from job to job.
//!
//! The number is stored with jobs that ended badly, so the same failure must give the same number in every release:
//! a change to what it is computed from raises [`VERSION`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::failure::{Category, Failure, FailureRecord};
use super::id::JobType;
use super::record::JobRecord;
use super::state::State;
use crate::error::{Error, Result};

/// Which way of computing made a number: it goes into the number, so that two ways never agree by chance.
const VERSION: u8 = 1;
/// How much of a message's pattern counts; what follows is detail.
const PATTERN_CHARS_MAX: usize = 200;
/// From this length on a run of hexadecimal digits with a number in it is one value and not a word.
const HEX_CHARS_MIN: usize = 8;

/// Which fault a failure is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fault of a failure of a job of this type.
    pub fn of(job_type: &JobType, category: Category, code: Option<&str>, message: &str) -> Self {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let (kind, said) = match code {
            Some(code) => ("code", code.to_owned()),
            None => ("message", pattern(message)),
        };
        let parts = [job_type.as_str(), category.as_str(), kind, &said];
        let bytes = [VERSION].into_iter().chain(parts.into_iter().flat_map(|part| part.bytes().chain([0])));
        let hash = bytes.fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
        // FNV leaves the upper bits of short texts alike; this spreads them. The sign bit stays free for SQL.
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        Fingerprint((hash ^ (hash >> 33)) & (u64::MAX >> 1))
    }

    /// The number as a store keeps it; never negative.
    pub fn number(self) -> i64 {
        i64::try_from(self.0).expect("the sign bit is free")
    }

    /// The fingerprint that a store kept as this number; `None` for a negative one.
    pub fn from_number(number: i64) -> Option<Self> {
        u64::try_from(number).ok().map(Fingerprint)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|number| plain && *number <= u64::MAX >> 1);
        number.map(Fingerprint).ok_or_else(|| Error::invalid("fingerprint", "must be one that /v1/errors shows"))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Failure {
    /// Which fault it is of, for a job of this type.
    pub fn fingerprint(&self, job_type: &JobType) -> Fingerprint {
        Fingerprint::of(job_type, self.category, self.code.as_deref(), &self.message)
    }
}

impl FailureRecord {
    /// Which fault it is of, for a job of this type.
    pub fn fingerprint(&self, job_type: &JobType) -> Fingerprint {
        Fingerprint::of(job_type, self.category, self.code.as_deref(), &self.message)
    }

    /// Its message without what differs from job to job, as faults are shown.
    pub fn pattern(&self) -> String {
        pattern(&self.message)
    }
}

impl JobRecord {
    /// The fault that a job in FAILED or DEAD_LETTER died of.
    pub fn fault(&self) -> Option<Fingerprint> {
        let dead = matches!(self.state, State::Failed | State::DeadLetter);
        self.failure.as_ref().filter(|_| dead).map(|failure| failure.fingerprint(&self.spec.job_type))
    }
}

/// A message with numbers, hexadecimal runs, UUIDs, quoted text and paths replaced; its first 200 characters.
pub(crate) fn pattern(message: &str) -> String {
    let mut shown = String::new();
    let mut rest = message;
    while let Some(first) = rest.chars().next().filter(|_| shown.len() <= 8 * PATTERN_CHARS_MAX) {
        let after_letter = message[..message.len() - rest.len()].chars().next_back().is_some_and(char::is_alphanumeric);
        let taken = match quoted(rest).filter(|_| !after_letter) {
            Some(length) => {
                shown.push_str("<text>");
                length
            }
            None if ends_word(first) => {
                // Line breaks and runs of blanks say nothing.
                match first.is_whitespace() {
                    true if shown.ends_with(' ') => {}
                    true => shown.push(' '),
                    false => shown.push(first),
                }
                first.len_utf8()
            }
            None => {
                let length = word_length(rest);
                word(&rest[..length], &mut shown);
                length
            }
        };
        rest = &rest[taken..];
    }
    shown.trim().chars().take(PATTERN_CHARS_MAX).collect()
}

/// How long the word is that begins here; an address of the web goes on through its query.
fn word_length(text: &str) -> usize {
    let length = text.find(ends_word).unwrap_or(text.len());
    if !text[..length].contains("://") {
        return length;
    }
    let ends_address = |character: char| ends_word(character) && character != '=';
    text.find(ends_address).unwrap_or(text.len())
}

fn ends_word(character: char) -> bool {
    character.is_whitespace() || ",;()[]{}<>=\"'`“”„«»|".contains(character)
}

/// How long the quoted text is that begins here, its quotes included.
fn quoted(text: &str) -> Option<usize> {
    let open = text.chars().next()?;
    let close = match open {
        '"' | '\'' | '`' => open,
        '“' | '„' => '”',
        '«' => '»',
        _ => return None,
    };
    let inside = &text[open.len_utf8()..];
    let end = inside.match_indices(close).map(|(at, _)| at).find(|at| {
        // The apostrophe in "don't" ends nothing.
        let next = inside[at + close.len_utf8()..].chars().next();
        close != '\'' || next.is_none_or(|next| !next.is_alphanumeric())
    })?;
    Some(open.len_utf8() + end + close.len_utf8())
}

/// Adds a word without what differs from job to job.
fn word(word: &str, shown: &mut String) {
    let bare = word.trim_end_matches(['.', ':', '!', '?']);
    let tail = &word[bare.len()..];
    if is_path(bare) {
        shown.push_str("<path>");
    } else if is_uuid(bare) {
        shown.push_str("<id>");
    } else {
        let mut rest = bare;
        while let Some(first) = rest.chars().next() {
            let of = |character: char| character.is_alphanumeric() == first.is_alphanumeric();
            let length = rest.find(|character| !of(character)).unwrap_or(rest.len());
            match first.is_alphanumeric() {
                true => letters(&rest[..length], shown),
                false => shown.push_str(&rest[..length]),
            }
            rest = &rest[length..];
        }
    }
    shown.push_str(tail);
}

/// Adds a run of letters and digits.
fn letters(run: &str, shown: &mut String) {
    let bare = run.strip_prefix("0x").unwrap_or(run);
    let is_hex = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
    let has_digit = bare.bytes().any(|byte| byte.is_ascii_digit());
    let is_number = bare.bytes().all(|byte| byte.is_ascii_digit());
    if is_hex && (bare.len() < run.len() || has_digit && !is_number && bare.len() >= HEX_CHARS_MIN) {
        shown.push_str("<hex>");
        return;
    }
    let mut digits = false;
    for character in run.chars() {
        if !character.is_ascii_digit() {
            shown.push(character);
        } else if !digits {
            number(shown);
        }
        digits = character.is_ascii_digit();
    }
}

/// Adds a number; one that goes on after a point or the like is the same number.
fn number(shown: &mut String) {
    const NUMBER: &str = "<n>";
    let joined = ['.', ':', ',', '-'].into_iter().any(|sign| {
        shown.strip_suffix(sign).is_some_and(|before| before.ends_with(NUMBER) && before.len() >= NUMBER.len())
    });
    match joined {
        true => drop(shown.pop()),
        false => shown.push_str(NUMBER),
    }
}

fn is_path(word: &str) -> bool {
    let begins =
        ["/", "./", "../", "~/", "\\\\"].iter().any(|begin| word.starts_with(begin) && word.len() > begin.len());
    let drive = word.as_bytes().get(1..3) == Some(b":\\");
    begins || drive || word.contains("://") || word.matches('/').count() >= 2
}

fn is_uuid(word: &str) -> bool {
    let lengths: Vec<usize> = word.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && word.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(job_type: &str, category: Category, code: Option<&str>, message: &str) -> String {
        Fingerprint::of(&JobType::new(job_type).expect("a type"), category, code, message).to_string()
    }

    #[test]
    fn what_differs_from_job_to_job_is_replaced() {
        let table = [
            ("connection refused", "connection refused"),
            ("timeout after 30 s", "timeout after <n> s"),
            ("timeout after 30s, attempt 2", "timeout after <n>s, attempt <n>"),
            ("no user 0f8fad5b-d9cb-469f-a165-70867728950e.", "no user <id>."),
            ("digest 9f86d081884c7d65 differs", "digest <hex> differs"),
            ("at address 0xdeadBEEF", "at address <hex>"),
            ("cannot deface a facade", "cannot deface a facade"),
            ("no such file: /var/lib/x.db", "no such file: <path>"),
            ("cannot open C:\\data\\in.csv!", "cannot open <path>!"),
            ("GET https://example.org/a?b=1: 503", "GET <path>: <n>"),
            ("and/or", "and/or"),
            ("unknown column \"name\" in 'orders'", "unknown column <text> in <text>"),
            ("it doesn't know `x` and won't", "it doesn't know <text> and won't"),
            ("“a” is not «b»", "<text> is not <text>"),
            ("an open \"quote", "an open \"quote"),
            ("10.0.0.1:5432 is gone", "<n> is gone"),
            ("took 1,234.5 ms", "took <n> ms"),
            ("at 2026-11-17T21:54:00Z", "at <n>T<n>Z"),
            ("line\n\n  two", "line two"),
            ("id=42;name=x", "id=<n>;name=x"),
            ("sha256 of 12345678", "sha<n> of <n>"),
            ("", ""),
            ("Straße 7", "Straße <n>"),
        ];
        for (message, expected) in table {
            assert_eq!(pattern(message), expected, "{message}");
        }
    }

    #[test]
    fn the_numbers_of_a_release_stay() {
        // Written down when version 1 was made: a change here changes what stored jobs are grouped by.
        let table = [
            (of("mail", Category::Permanent, Some("bounce"), "no such user 1"), "71b1eca6005c73a8"),
            (of("mail", Category::Temporary, None, "timeout after 30 s"), "414cdf5ddef7e55b"),
            (of("x", Category::System, None, ""), "6381fdbcd32da1c7"),
        ];
        for (is, was) in table {
            assert_eq!(is, was);
        }
    }

    #[test]
    fn the_same_fault_is_the_same_number_and_no_other() {
        let one = of("mail", Category::Temporary, None, "user 7 is unknown");
        assert_eq!(one, of("mail", Category::Temporary, None, "user 4711 is unknown"));
        assert_ne!(one, of("post", Category::Temporary, None, "user 7 is unknown"));
        assert_ne!(one, of("mail", Category::Permanent, None, "user 7 is unknown"));
        assert_ne!(one, of("mail", Category::Temporary, None, "user 7 is gone"));
        // A code decides alone, and no message can pretend to be one.
        let coded = of("mail", Category::Temporary, Some("unknown"), "user 7 is unknown");
        assert_eq!(coded, of("mail", Category::Temporary, Some("unknown"), "anything"));
        assert_ne!(coded, of("mail", Category::Temporary, None, "unknown"));
    }

    #[test]
    fn long_messages_count_by_their_beginning() {
        let long = "word ".repeat(2000);
        assert_eq!(pattern(&long).chars().count(), PATTERN_CHARS_MAX);
        let (one, other) = (format!("{long} a"), format!("{long} b"));
        assert_eq!(of("t", Category::System, None, &one), of("t", Category::System, None, &other));
        assert!(pattern(&"\"".repeat(9000)).chars().count() <= PATTERN_CHARS_MAX);
    }

    #[test]
    fn a_fingerprint_is_read_back_as_it_was_written() {
        let text = of("mail", Category::Temporary, None, "x");
        let read: Fingerprint = text.parse().expect("a fingerprint");
        assert_eq!(read.to_string(), text);
        assert_eq!(Fingerprint::from_number(read.number()), Some(read));
        assert_eq!(Fingerprint::from_number(-1), None);
        for wrong in ["", "0", "x123456789abcdef", "ffffffffffffffff", "+123456789abcdef", "0123456789abcdef0"] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
