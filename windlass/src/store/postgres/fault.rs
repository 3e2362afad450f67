//! What the server or the network says, as one of the library's errors.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::hosts::Unreachable;
use super::pool::PoolError;
use crate::error::Error;
use crate::store::moving::Closed;

/// The code of the refusals of a store that was moved, or that a move fills.
const CLOSED: &str = "WL001";

/// How often a transaction that loses against others is tried.
const TRIES_MAX: u64 = 20;

/// Anything that stops a call.
#[derive(Debug)]
pub(super) enum Fault {
    /// No connection could be had, so nothing was written.
    Pool(PoolError),
    /// The server or the connection failed.
    Database(tokio_postgres::Error),
    /// The user's own driver failed: the server's code if it has one, and its message.
    #[cfg_attr(
        not(any(feature = "sqlx-0_8", feature = "sqlx-0_9")),
        allow(dead_code, reason = "only adapters of other drivers make it")
    )]
    Users { code: Option<String>, problem: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The server did not answer in time, or its answer is not certain.
    Unanswered { problem: String },
    /// The library's own answer.
    Refused(Error),
    /// Another transaction changed what this one had read; everything must be looked at again.
    Overtaken,
    /// Nobody has noticed yet that the store was away: that is recorded first, then everything is looked at again.
    Away,
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        Fault::Pool(error)
    }
}

impl From<Unreachable> for Fault {
    fn from(error: Unreachable) -> Self {
        Fault::Pool(PoolError::Backend(error))
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Fault::Database(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Refused(error)
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Fault::Refused(Error::store("read a stored record", error))
    }
}

/// Makes a call, again after a short wait while its transaction loses against another; its last fault becomes the library's
/// error for a call that `attempted` this.
pub(super) async fn retrying<T, F, R>(attempted: &str, call: F) -> Result<T, Error>
where
    F: Fn() -> R,
    R: Future<Output = Result<T, Fault>>,
{
    for tries in 1.. {
        match call().await {
            Err(fault) if tries < TRIES_MAX && fault.is_lost_race() => {
                let wait = Duration::from_micros(fastrand::u64(200..2000) * tries);
                tokio::time::sleep(wait).await;
            }
            answer => return answer.map_err(|fault| fault.into_error(attempted)),
        }
    }
    unreachable!("the last try is answered")
}

impl Fault {
    /// Whether the server undid the transaction because of another one.
    fn is_lost_race(&self) -> bool {
        let code = match self {
            Fault::Overtaken | Fault::Away => return true,
            Fault::Database(error) => error.code().map(SqlState::code),
            // On a connection of the application's pool. In the user's own transaction nothing is tried again: only the user
            // can begin it anew.
            Fault::Users { code, .. } => code.as_deref(),
            Fault::Pool(_) | Fault::Refused(_) | Fault::Unanswered { .. } => return false,
        };
        let races = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        code.is_some_and(|code| races.iter().any(|race| race.code() == code))
    }

    /// Whether others held for too long what a statement waited for.
    pub(super) fn is_lock_timeout(&self) -> bool {
        match self {
            Fault::Database(error) => error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE),
            Fault::Pool(_)
            | Fault::Refused(_)
            | Fault::Unanswered { .. }
            | Fault::Users { .. }
            | Fault::Overtaken
            | Fault::Away => false,
        }
    }

    /// Whether it is certain that nothing was written.
    pub(super) fn is_certain(&self) -> bool {
        match self {
            Fault::Pool(_) | Fault::Refused(_) | Fault::Overtaken | Fault::Away => true,
            Fault::Unanswered { .. } | Fault::Users { .. } => false,
            Fault::Database(error) => {
                error.code().is_some_and(|code| !matches!(classify(code.code()), Class::Unavailable { known: false }))
            }
        }
    }

    /// The library's error for a call that attempted this.
    pub(super) fn into_error(self, attempted: &str) -> Error {
        match self {
            Fault::Refused(error) => error,
            Fault::Overtaken | Fault::Away => {
                unavailable(attempted, true, "others were quicker every time".to_owned(), "too many tries")
            }
            Fault::Pool(PoolError::Backend(error)) => unavailable(attempted, true, error.to_string(), error),
            Fault::Unanswered { problem } => {
                Error::StoreUnavailable { attempted: attempted.to_owned(), problem, known: false, source: None }
            }
            Fault::Pool(error) => unavailable(attempted, true, "no connection became free in time".to_owned(), error),
            Fault::Database(error) if error.code().is_some_and(|code| code.code() == CLOSED) => {
                Closed::from_stored(&problem(&error)).into_error(attempted)
            }
            Fault::Database(error) => match error.code() {
                // The server never answered, so it may have committed.
                None => unavailable(attempted, false, problem(&error), error),
                Some(code) => match classify(code.code()) {
                    Class::Unavailable { known } => unavailable(attempted, known, problem(&error), error),
                    // The driver's error says only "db error" of itself.
                    Class::Broken => Error::store(attempted, problem(&error)),
                },
            },
            Fault::Users { code: Some(code), problem, .. } if code == CLOSED => {
                Closed::from_stored(&problem).into_error(attempted)
            }
            Fault::Users { code, problem, source } => {
                match code.map_or(Class::Unavailable { known: false }, |code| classify(&code)) {
                    Class::Unavailable { known } => unavailable(attempted, known, problem, source),
                    Class::Broken => Error::store(attempted, problem),
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
        // Closed by a move, cancelled by a timeout, ended between two statements of a transaction, lost against another, a read-only server,
        // out of resources.
        "57014" | "25P03" | "40001" | "40P01" | "25006" | "55P03" | CLOSED => Class::Unavailable { known: true },
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
pub(super) fn problem(error: &tokio_postgres::Error) -> String {
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
