//! What the server or the network says, as one of the library's errors.

use std::time::Duration;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::error::Error;

/// How often a transaction that lost against another is tried again.
const TRIES_MAX: u32 = 20;

/// Anything that stops a call.
#[derive(Debug)]
pub(super) enum Fault {
    /// No connection could be had, so nothing was written.
    Pool(PoolError),
    /// The server or the connection failed.
    Database(tokio_postgres::Error),
    /// The user's own driver failed: the server's code if it has one, and words.
    #[cfg_attr(
        not(any(feature = "sqlx-0_8", feature = "sqlx-0_9")),
        allow(dead_code, reason = "only adapters of other drivers make it")
    )]
    Users { code: Option<String>, problem: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The library's own answer.
    Said(Error),
    /// Somebody else was quicker; everything must be looked at again.
    Overtaken,
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        Fault::Pool(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Fault::Database(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Said(error)
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Fault::Said(Error::store("read a stored record", error))
    }
}

/// Counts the tries of one call.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// Waits a little if the call is worth another try.
    pub(super) async fn again(&mut self, fault: &Fault) -> bool {
        self.0 += 1;
        if self.0 >= TRIES_MAX || !fault.is_lost_race() {
            return false;
        }
        let wait = Duration::from_micros(fastrand::u64(200..2000) * u64::from(self.0));
        tokio::time::sleep(wait).await;
        true
    }
}

impl Fault {
    /// Whether the server undid the transaction because of another one.
    fn is_lost_race(&self) -> bool {
        let error = match self {
            Fault::Overtaken => return true,
            Fault::Database(error) => error,
            // Only the user can begin their transaction anew.
            Fault::Pool(_) | Fault::Said(_) | Fault::Users { .. } => return false,
        };
        let races = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
        error.code().is_some_and(|code| races.contains(&code))
    }

    /// The library's error for a call that attempted this.
    pub(super) fn into_error(self, attempted: &str) -> Error {
        match self {
            Fault::Said(error) => error,
            Fault::Overtaken => {
                unavailable(attempted, true, "others were quicker every time".to_owned(), "too many tries")
            }
            Fault::Pool(PoolError::Backend(error)) => unavailable(attempted, true, problem(&error), error),
            Fault::Pool(error) => unavailable(attempted, true, "no connection became free in time".to_owned(), error),
            Fault::Database(error) => match error.code() {
                // The server never answered, so it may have committed.
                None => unavailable(attempted, false, problem(&error), error),
                Some(code) => match classify(code.code()) {
                    Class::Unavailable { known } => unavailable(attempted, known, problem(&error), error),
                    Class::Broken => Error::store(attempted, error),
                },
            },
            Fault::Users { code, problem, source } => {
                match code.map_or(Class::Unavailable { known: false }, |code| classify(&code)) {
                    Class::Unavailable { known } => unavailable(attempted, known, problem, source),
                    Class::Broken => Error::store(attempted, source),
                }
            }
        }
    }
}

enum Class {
    Unavailable { known: bool },
    Broken,
}

fn classify(code: &str) -> Class {
    match code {
        // Asked to go while it worked: whether the commit came first is not known.
        "57P01" | "57P02" | "57P03" | "57P05" => Class::Unavailable { known: false },
        // Cancelled by a timeout, ended between two statements of a transaction, lost against another, a read-only server,
        // out of resources.
        "57014" | "25P03" | "40001" | "40P01" | "25006" | "55P03" => Class::Unavailable { known: true },
        code if code.starts_with("53") => Class::Unavailable { known: true },
        code if code.starts_with("08") || code.starts_with("58") || code.starts_with("XX") => {
            Class::Unavailable { known: false }
        }
        _ => Class::Broken,
    }
}

fn unavailable(
    attempted: &str,
    known: bool,
    problem: String,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::StoreUnavailable { attempted: attempted.to_owned(), problem, known, source: Some(source.into()) }
}

/// What the server said, without the values it may quote in its details.
fn problem(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d6_a_transaction_that_the_server_gave_up_on_wrote_nothing() {
        let class = classify("25P03");
        assert!(matches!(class, Class::Unavailable { known: true }));
    }
}
