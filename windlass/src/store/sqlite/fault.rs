//! What can go wrong inside a transaction, and what callers are told of it.

use rusqlite::ErrorCode;

use crate::error::Error;
use crate::store::moving::Closed;

/// Why a step of a transaction did not happen.
#[derive(Debug)]
pub(super) enum Fault {
    /// The rules refuse it. Nothing of this call has been written, so others in the same transaction go on.
    Refused(Error),
    /// SQLite failed; the transaction must be undone.
    Sql(rusqlite::Error),
    /// The file holds something that Windlass did not write.
    Broken(String),
    /// The file was moved away or deleted while it was open; nothing was written.
    Gone,
    /// The store takes no writes, because of a move.
    Closed(Closed),
}

/// The answer of a step inside a transaction.
pub(super) type Answer<T> = Result<T, Fault>;

impl std::fmt::Display for Fault {
    /// Words for what cannot be read of a row.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Refused(error) => error.fmt(f),
            Fault::Sql(error) => error.fmt(f),
            Fault::Broken(what) => f.write_str(what),
            Fault::Gone => f.write_str("the file is gone"),
            Fault::Closed(closed) => closed.fmt(f),
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Fault::Sql(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Refused(error)
    }
}

impl Fault {
    pub(super) fn broken(what: impl Into<String>) -> Self {
        Fault::Broken(what.into())
    }

    /// Whether only this call failed, and not the transaction around it.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Fault::Refused(_))
    }

    /// Whether it meets every call alike, so that none is worth trying alone.
    pub(super) fn is_everybodys(&self) -> bool {
        matches!(self, Fault::Gone | Fault::Closed(_))
    }

    /// What a caller is told. `known`: whether it is certain that nothing was written.
    pub(super) fn into_error(self, attempted: &str, known: bool) -> Error {
        match self {
            Fault::Refused(error) => error,
            Fault::Broken(what) => Error::store(attempted, what),
            Fault::Gone => Error::StoreUnavailable {
                attempted: attempted.to_owned(),
                problem: "the file was moved or deleted while it was open; put it back or start anew".to_owned(),
                known: true,
                source: None,
            },
            Fault::Closed(closed) => closed.into_error(attempted),
            Fault::Sql(error) => into_error(error, attempted, known),
        }
    }
}

/// The library's error for one of SQLite's: faults that can pass are [`Error::StoreUnavailable`], others are not.
pub(super) fn into_error(error: rusqlite::Error, attempted: &str, known: bool) -> Error {
    let problem = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "the file is locked by another program",
        Some(ErrorCode::DiskFull) => "the disk is full, or the file has reached its size limit",
        Some(ErrorCode::ReadOnly) => "the file cannot be written to",
        Some(ErrorCode::SystemIoFailure) => "the disk failed",
        Some(ErrorCode::CannotOpen) => "the file cannot be opened",
        Some(ErrorCode::OutOfMemory) => "memory ran out",
        _ => return Error::store(attempted, error),
    };
    let (attempted, problem) = (attempted.to_owned(), problem.to_owned());
    Error::StoreUnavailable { attempted, problem, known, source: Some(Box::new(error)) }
}

/// Whether another program holds the file, so that the same will work in a moment.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
