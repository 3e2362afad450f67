//! Rows that cannot be read: what is wrong with them, and what becomes of the job.
//!
//! A store reads a job as far as it can, and notes here what it could not read. Such a job shows in every list, is never
//! handed to a handler, and is dead-lettered by the claim that meets it, so that one damaged row stops one job and not its
//! queue. Its row is left as it is: mended by hand and requeued, the job runs.

use std::fmt;

use super::failure::{CODE_DAMAGED, Failure};

/// Longest description of what cannot be read, in bytes. Words of parsers may quote what they read.
const WORDS_BYTES_MAX: usize = 200;

/// What could not be read of a stored job, gathered while it is read.
#[derive(Default, Debug)]
pub struct Damage(Option<String>);

impl Damage {
    /// The value, or its default and a note of why it cannot be read.
    pub fn or_default<T: Default, E: fmt::Display>(&mut self, what: &str, read: Result<T, E>) -> T {
        read.unwrap_or_else(|problem| {
            self.note(what, problem);
            T::default()
        })
    }

    /// Notes that something cannot be read.
    pub fn note(&mut self, what: &str, problem: impl fmt::Display) {
        let mut words = format!("its {what} cannot be read: {problem}");
        words.truncate(words.floor_char_boundary(WORDS_BYTES_MAX));
        match &mut self.0 {
            None => self.0 = Some(words),
            Some(before) => {
                before.push_str("; ");
                before.push_str(&words);
            }
        }
    }

    /// Whether nothing was noted.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What was noted; `None` of a job that could be read.
    pub fn into_words(self) -> Option<String> {
        self.0
    }
}

/// What the claim says that sets such a job aside.
pub(super) fn failure(words: &str) -> Failure {
    let message = format!(
        "the stored job is damaged, and was set aside without being run: {words}. Its row is left as it was; \
         `windlass store check` lists all of them"
    );
    Failure::dead_letter(CODE_DAMAGED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_kept_and_the_rest_is_noted() {
        let mut damage = Damage::default();
        assert_eq!(damage.or_default("number", "7".parse::<u8>()), 7);
        assert_eq!(damage.or_default("age", "x".parse::<u8>()), 0);
        damage.note("name", "é".repeat(500));
        let words = damage.into_words().expect("noted");
        assert!(words.starts_with("its age cannot be read: invalid digit"), "{words}");
        assert!(words.len() < 300, "{}", words.len());
        assert_eq!(Damage::default().into_words(), None);
        let failure = failure("its options cannot be read");
        assert_eq!((failure.code(), failure.dead_letter), (Some(CODE_DAMAGED), true));
    }
}
