//! How the process ends: one number for each kind of end, and what to do about it. The only place that decides either.

use std::fmt;
use std::io;

use windlass::Error;

/// The exit codes other than 0, the same for every command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It failed.
    Failed = 1,
    /// What was typed cannot be meant.
    Usage = 2,
    /// There is no such job, queue, schedule, workflow or store.
    NotFound = 3,
    /// The state of things does not allow it.
    Conflict = 4,
    /// The caller may not.
    NotAllowed = 5,
    /// The store or server cannot be reached.
    Unreachable = 6,
    /// A wait ended before what it waited for.
    TimedOut = 7,
    /// A job that was waited for ended badly.
    EndedBadly = 8,
    /// Ctrl-C.
    Interrupted = 130,
}

/// An end that a command decides by itself: how, in words, and what to do.
#[derive(Debug)]
pub(crate) struct End {
    exit: Exit,
    message: String,
    advice: Option<String>,
}

impl End {
    /// Ends with this code and these words.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        End { exit, message: message.into(), advice: None }
    }

    /// Ends because of what was typed.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        End::new(Exit::Usage, message)
    }

    /// Adds what to do about it.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for End {}

/// The exit code of an error; `None` when the reader of our output has gone, which is no error of ours.
pub(crate) fn code(error: &anyhow::Error) -> Option<Exit> {
    for cause in error.chain() {
        if let Some(end) = cause.downcast_ref::<End>() {
            return Some(end.exit);
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            return Some(of(error));
        }
        if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return None;
        }
    }
    Some(Exit::Failed)
}

/// The exit code of an error of the library.
pub(crate) fn of(error: &Error) -> Exit {
    match error {
        Error::StaleLease { .. } | Error::IllegalState { .. } | Error::Conflict(_) => Exit::Conflict,
        Error::NotFound { .. } | Error::DependencyNotFound { .. } => Exit::NotFound,
        Error::InvalidArgument { .. }
        | Error::PayloadTooLarge { .. }
        | Error::DependencyCycle { .. }
        | Error::DependencyLimit { .. } => Exit::Usage,
        Error::Unauthorized(_) => Exit::NotAllowed,
        Error::StoreUnavailable { .. } | Error::SubmissionTimeout { .. } => Exit::Unreachable,
        _ => Exit::Failed,
    }
}

/// The error in words: what was tried, and what came of it. The library's errors name their source themselves.
pub(crate) fn words(error: &anyhow::Error) -> String {
    let mut words = Vec::new();
    for cause in error.chain() {
        words.push(cause.to_string());
        if cause.is::<Error>() || cause.is::<End>() {
            break;
        }
    }
    words.join(": ")
}

/// What to do about an error, where something can be said.
pub(crate) fn advice(error: &anyhow::Error) -> Option<String> {
    for cause in error.chain() {
        if let Some(end) = cause.downcast_ref::<End>() {
            return end.advice.clone();
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            return advice_of(error).map(str::to_owned);
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return advice_of_system(error).map(str::to_owned);
        }
    }
    None
}

fn advice_of(error: &Error) -> Option<&'static str> {
    match error {
        Error::NotFound { what: "job", .. } => {
            Some("look for it with `windlass jobs list`; ended jobs are pruned after their retention")
        }
        Error::NotFound { what: "schedule", .. } => Some("`windlass schedules list` shows the names there are"),
        Error::NotFound { what: "control of queue", .. } => {
            Some("`windlass queues control QUEUE --running N` brings a queue under control")
        }
        Error::NotFound { what: "workflow", .. } => Some("`windlass workflows list` shows the ids there are"),
        Error::DependencyNotFound { .. } => Some("enqueue the job it depends on first, or leave the dependency out"),
        Error::IllegalState { .. } => Some("`windlass jobs explain ID` says where the job stands and what it allows"),
        Error::PayloadTooLarge { .. } => Some("keep the data elsewhere and put a reference to it into the payload"),
        Error::Unauthorized(_) => Some("set WINDLASS_TOKEN to a token whose role allows this"),
        Error::StoreUnavailable { problem, .. } if problem.contains("answered 429") => {
            Some("the server is busy: try again in a moment, with fewer calls at once")
        }
        error if windlass::store::moving::closed(error).is_some_and(|closed| closed.destination().is_some()) => {
            Some("name that store with --store or WINDLASS_STORE; its password is not kept here")
        }
        Error::StoreUnavailable { .. } => {
            Some("see that the server or database runs and that its address is right; `windlass doctor` looks closer")
        }
        Error::SubmissionTimeout { .. } => {
            Some("repeat it with the same --key: if it was stored, nothing is stored twice")
        }
        Error::StaleLease { .. } => Some("another worker may own the job now; look at it before doing anything"),
        Error::DependencyCycle { .. } => Some("leave out one of the dependencies that close the circle"),
        Error::DependencyLimit { .. } => Some("split it: a job may depend on one that gathers others"),
        Error::Conflict(problem) if problem.ends_with("is not controlled: set its control first") => {
            Some("`windlass queues control QUEUE --running N` brings a queue under control")
        }
        Error::Conflict(_) => Some("it exists already: choose another name or version"),
        Error::Store { .. } => Some("retrying will not help; `windlass doctor` and `windlass store check` look closer"),
        // They say themselves what would be right.
        _ => None,
    }
}

fn advice_of_system(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::NotFound => Some("see that the path is right, as seen from the current folder"),
        io::ErrorKind::PermissionDenied => Some("see who may read and write it, or use another"),
        io::ErrorKind::AddrInUse => Some("name another address with --listen, or stop what holds this one"),
        io::ErrorKind::AddrNotAvailable => Some("name an address of this machine with --listen"),
        io::ErrorKind::IsADirectory => Some("name a file, not a folder"),
        io::ErrorKind::StorageFull => Some("make room on the disk"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_found_behind_its_context() {
        let error = anyhow::Error::new(Error::not_found("schedule", "x")).context("cannot pause");
        assert_eq!(code(&error), Some(Exit::NotFound));
        assert_eq!(words(&error), "cannot pause: schedule \"x\" does not exist");
        assert!(advice(&error).expect("advice").contains("schedules list"));
    }

    #[test]
    fn the_source_of_a_store_error_is_said_once() {
        let error = anyhow::Error::new(Error::store("open", "the file is no database")).context("cannot look");
        assert_eq!(words(&error), "cannot look: cannot open: the file is no database");
        assert_eq!(code(&error), Some(Exit::Failed));
    }

    #[test]
    fn every_error_says_what_to_do() {
        let job: windlass::JobId = "00000000-0000-4000-8000-000000000000".parse().expect("an id");
        let after = std::time::Duration::from_secs(1);
        let errors = [
            Error::StaleLease { job, stale: windlass::job::Stale::Expired },
            Error::not_found("job", "x"),
            Error::not_found("schedule", "x"),
            Error::not_found("workflow", "x"),
            Error::PayloadTooLarge { what: "payload", size: 2, limit: 1 },
            Error::DependencyNotFound { job },
            Error::DependencyCycle { through: "a".to_owned() },
            Error::DependencyLimit { what: "depth", size: 2, limit: 1 },
            Error::IllegalState { job, state: windlass::State::Completed, wanted: "cancel" },
            Error::Conflict("it is there".to_owned()),
            Error::Unauthorized("no".to_owned()),
            Error::StoreUnavailable {
                attempted: "look".to_owned(),
                problem: "no".to_owned(),
                known: true,
                source: None,
            },
            Error::SubmissionTimeout { after },
            Error::store("look", "no"),
        ];
        for error in errors {
            let error = anyhow::Error::new(error);
            assert!(advice(&error).is_some(), "{error}");
        }
        let missing = anyhow::Error::new(io::Error::from(io::ErrorKind::NotFound)).context("cannot open x");
        assert!(advice(&missing).is_some());
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let gone = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(code(&gone), None);
        assert_eq!(code(&anyhow::anyhow!("anything")), Some(Exit::Failed));
        assert_eq!(code(&anyhow::Error::new(End::usage("no"))), Some(Exit::Usage));
    }
}
