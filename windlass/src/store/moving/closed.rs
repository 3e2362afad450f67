//! That a store takes no writes because it was moved, or because a move fills it.

use std::fmt;

use crate::error::Error;

/// What the words for a store that was moved begin with.
const MOVED: &str = "this store was moved to ";
/// And those for one that a move fills.
const FILLED: &str = "this store is being filled by a move from ";

/// Why a store takes no writes; an [`Error::StoreUnavailable`] says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed(String);

impl Closed {
    /// It was moved to this place, whose URL has no password.
    pub fn moved_to(url: &str) -> Self {
        Closed(format!("{MOVED}{url}"))
    }

    /// A move from this place fills it.
    pub fn filled_from(url: &str) -> Self {
        Closed(format!("{FILLED}{url}"))
    }

    /// Reads what a store kept.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn from_stored(words: &str) -> Self {
        Closed(words.to_owned())
    }

    /// What a store keeps, and people read.
    pub fn words(&self) -> &str {
        &self.0
    }

    /// Where it was moved to.
    pub fn destination(&self) -> Option<&str> {
        self.0.strip_prefix(MOVED)
    }

    /// The error of a call that attempted this; it has written nothing.
    pub fn into_error(self, attempted: &str) -> Error {
        let problem = self.0.clone();
        Error::StoreUnavailable { attempted: attempted.to_owned(), problem, known: true, source: Some(Box::new(self)) }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Closed {}

/// Why the store took no write, if it is closed. Told by the words, which survive where calls share an answer and over HTTP.
pub fn closed(error: &Error) -> Option<Closed> {
    match error {
        Error::StoreUnavailable { problem, .. } if problem.starts_with(MOVED) || problem.starts_with(FILLED) => {
            Some(Closed(problem.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_where_the_store_went() {
        let error = Closed::moved_to("postgres://ada@host/db").into_error("enqueue a job");
        assert_eq!(closed(&error).as_ref().and_then(Closed::destination), Some("postgres://ada@host/db"));
        assert!(error.outcome_is_known() && error.is_transient());
        assert!(error.to_string().contains("this store was moved to postgres://ada@host/db"), "{error}");
        let error = Closed::filled_from("sqlite:jobs.db").into_error("enqueue a job");
        assert_eq!(closed(&error).as_ref().map(Closed::destination), Some(None));
        assert_eq!(closed(&Error::store("look", "no")), None);
    }
}
