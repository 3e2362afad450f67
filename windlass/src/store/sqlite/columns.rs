//! How single values are written into columns and read back.

use rusqlite::{Row as SqlRow, RowIndex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::fault::{Answer, Fault};
use crate::job::{Dependency, DependencyKind, DependsOn, JobId, Outcome, Priority, State};
use crate::time::Timestamp;

impl From<rusqlite::types::FromSqlError> for Fault {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        Fault::Broken(error.to_string())
    }
}

/// Numbers the columns that a statement selects, in their order. Looking a column up by its name costs as much as reading it,
/// so statements that are run for each job are read by number; a test compares the names with the statements'.
macro_rules! columns {
    ($(#[$about:meta])* $list:ident from $first:expr => $($column:ident),* $(,)?) => {
        $(#[$about])*
        #[allow(non_camel_case_types, reason = "columns are named as in SQL")]
        #[derive(Clone, Copy)]
        pub(super) enum $list {
            $($column,)*
        }

        impl $list {
            #[allow(dead_code, reason = "the names of the last columns are only compared")]
            pub(super) const NAMES: &[&str] = &[$(stringify!($column)),*];

            pub(super) const fn number(self) -> usize {
                $first + self as usize
            }
        }
    };
}
pub(super) use columns;

/// Bytes of a lease token in a file.
pub(super) const TOKEN_BYTES: usize = 16;

pub(super) fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// A lease version as SQLite counts.
pub(super) fn stored_version(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

pub(super) fn read_version(version: i64) -> u64 {
    u64::try_from(version).unwrap_or_default()
}

pub(super) fn uuid(row: &SqlRow<'_>, column: impl RowIndex) -> Answer<Uuid> {
    let bytes = row.get_ref(column)?.as_blob()?;
    Uuid::from_slice(bytes).map_err(|error| Fault::broken(error.to_string()))
}

pub(super) fn optional_uuid(row: &SqlRow<'_>, column: impl RowIndex) -> Answer<Option<Uuid>> {
    match row.get_ref(column)?.as_blob_or_null()? {
        None => Ok(None),
        Some(bytes) => Uuid::from_slice(bytes).map(Some).map_err(|error| Fault::broken(error.to_string())),
    }
}

/// A value kept as JSON; null for none.
pub(super) fn json<T: DeserializeOwned>(row: &SqlRow<'_>, column: impl RowIndex) -> Answer<Option<T>> {
    // A value of another type is damage like any other, and no fault of SQLite's.
    match row.get_ref(column)?.as_str_or_null().map_err(|error| Fault::broken(error.to_string()))? {
        None => Ok(None),
        Some(text) => parse(text).map(Some),
    }
}

/// The same; none for one that cannot be read, which `check` finds: a list is told without it.
pub(super) fn readable<T: DeserializeOwned>(row: &SqlRow<'_>, column: impl RowIndex) -> Answer<Option<T>> {
    match json(row, column) {
        Err(Fault::Broken(_)) => Ok(None),
        read => read,
    }
}

pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Answer<T> {
    serde_json::from_str(text).map_err(|error| Fault::broken(error.to_string()))
}

pub(super) fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records have only text keys, and JSON has a form for all they hold")
}

pub(super) fn priority(number: i64) -> Answer<Priority> {
    let known = u8::try_from(number).ok().and_then(Priority::from_number);
    known.ok_or_else(|| Fault::broken(format!("{number} is no priority")))
}

pub(super) fn state(number: u8) -> Answer<State> {
    State::from_number(number).ok_or_else(|| Fault::broken(format!("{number} is no state")))
}

pub(super) fn outcome_of(number: u8) -> Answer<Outcome> {
    Outcome::from_number(number).ok_or_else(|| Fault::broken(format!("{number} is no outcome")))
}

const KINDS: [DependencyKind; 5] = [
    DependencyKind::After,
    DependencyKind::AfterAny,
    DependencyKind::AfterAll,
    DependencyKind::FanInSuccess,
    DependencyKind::FanInDone,
];

/// The number a dependency's kind is kept as.
pub(super) fn kind_number(kind: DependencyKind) -> u8 {
    match kind {
        DependencyKind::After => 0,
        DependencyKind::AfterAny => 1,
        DependencyKind::AfterAll => 2,
        DependencyKind::FanInSuccess => 3,
        DependencyKind::FanInDone => 4,
    }
}

pub(super) fn kind_of(number: u8) -> Answer<DependencyKind> {
    let known = KINDS.get(usize::from(number)).copied();
    known.ok_or_else(|| Fault::broken(format!("{number} is no kind of dependency")))
}

/// Dependencies as they are kept on the job: for each its kind and the job's id; `None` for none.
pub(super) fn dependencies(depends_on: &[Dependency]) -> Option<Vec<u8>> {
    if depends_on.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(17 * depends_on.len());
    for dependency in depends_on {
        let DependsOn::Job(id) = dependency.on else { unreachable!("places were resolved") };
        bytes.push(kind_number(dependency.kind));
        bytes.extend_from_slice(id.as_uuid().as_bytes());
    }
    Some(bytes)
}

pub(super) fn read_dependencies(bytes: &[u8]) -> Answer<Vec<Dependency>> {
    let (entries, rest) = bytes.as_chunks::<17>();
    if !rest.is_empty() {
        return Err(Fault::broken("dependencies of a job are cut off"));
    }
    let read = |entry: &[u8; 17]| {
        let [kind, id @ ..] = *entry;
        Ok(Dependency { on: DependsOn::Job(JobId::from_uuid(Uuid::from_bytes(id))), kind: kind_of(kind)? })
    };
    entries.iter().map(read).collect()
}

/// SCHEDULED, DELAYED and RETRYING jobs wait in one table.
pub(super) fn kind_state(kind: i64) -> Answer<State> {
    match kind {
        0 => Ok(State::Scheduled),
        1 => Ok(State::Delayed),
        2 => Ok(State::Retrying),
        other => Err(Fault::broken(format!("no job waits with kind {other}"))),
    }
}
