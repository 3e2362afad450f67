//! How an attempt can go wrong: a category that decides what happens next, a code, and words for people.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Longest message kept, in bytes; longer ones are cut.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Longest code kept, in bytes; longer ones are cut.
pub const CODE_BYTES_MAX: usize = 255;
/// Longest chain of causes kept; it bounds the row, and nobody reads further.
pub const CAUSES_MAX: usize = 16;

/// Code of a panic.
pub const CODE_PANIC: &str = "panic";
/// Code of a lease that expired under its holder.
pub const CODE_LEASE_EXPIRED: &str = "lease_expired";
/// Code of a job whose lifetime ended.
pub const CODE_LIFETIME: &str = "lifetime";
/// Code of a job that ended because a dependency did.
pub const CODE_DEPENDENCY: &str = "dependency";
/// Code of a payload that its handler cannot read.
pub const CODE_INVALID_PAYLOAD: &str = "invalid_payload";
/// Code of an attempt that ran longer than its execution timeout.
pub const CODE_EXECUTION_TIMEOUT: &str = "execution_timeout";
/// Code of an attempt that was cancelled.
pub const CODE_CANCELLED: &str = "cancelled";
/// Code of an attempt that shutdown interrupted, where `interrupts = count`.
pub const CODE_INTERRUPTED: &str = "interrupted";
/// Code of a job whose row cannot be read.
pub const CODE_DAMAGED: &str = "damaged";
/// Code of a job that an operator dead-lettered.
pub const CODE_OPERATOR: &str = "operator";

/// What kind of failure it was; every failure has exactly one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[non_exhaustive]
pub enum Category {
    /// Transient: worth trying again.
    Temporary = 0,
    /// Will not get better by trying again.
    Permanent = 1,
    /// Ran longer than allowed.
    Timeout = 2,
    /// Was cancelled while running.
    Cancelled = 3,
    /// The process or the system failed, not the work: a panic, a lost lease.
    System = 4,
}

impl Category {
    /// All five.
    pub const ALL: &[Category] =
        &[Category::Temporary, Category::Permanent, Category::Timeout, Category::Cancelled, Category::System];

    /// Lower case, as in SQL, JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Category::Temporary => "temporary",
            Category::Permanent => "permanent",
            Category::Timeout => "timeout",
            Category::Cancelled => "cancelled",
            Category::System => "system",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a handler says that it failed.
///
/// Any error becomes a temporary failure by `?`, with its chain of causes: every error type that can be sent between threads,
/// `anyhow::Error`, `eyre::Report`, boxed errors and text. It is not an error type itself, so that the conversion can exist.
/// [`OrFailure`] says that an error is permanent.
///
/// ```
/// use windlass::{Failure, OrFailure};
///
/// fn parse(text: &str) -> Result<u32, Failure> {
///     let number = text.parse::<u32>().or_permanent("no_number")?; // FAILED at once
///     let saved: anyhow::Result<u32> = Ok(number);
///     Ok(saved?) // an error here: tried again
/// }
/// assert_eq!(parse("x").unwrap_err().code(), Some("no_number"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub(crate) category: Category,
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) dead_letter: bool,
    pub(crate) snooze: bool,
    pub(crate) hold: Option<Hold>,
}

/// Asks that nothing more of a gate starts for a time (rule K8): what a service says with 429 and `Retry-After`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Which gate of the job.
    pub scope: HoldScope,
    /// For how long, from the settlement on.
    pub time: Duration,
}

/// Which of a job's gates is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldScope {
    /// Its queue's.
    Queue,
    /// That of its type in the queue.
    Type,
    /// That of its key in the queue; a job without one holds nothing.
    Key,
}

impl Failure {
    /// A transient failure: tried again after the backoff.
    pub fn temporary(message: impl fmt::Display) -> Self {
        Failure::new(Category::Temporary, None, message)
    }

    /// A transient failure from any error: error types, `anyhow::Error`, `eyre::Report`, `Box<dyn Error + Send + Sync>`, text.
    ///
    /// The same as `?`, for where there is no conversion: `f().map_err(Failure::any)`, or `f().or_retry()` with [`OrFailure`].
    pub fn any(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let error = error.into();
        Failure::temporary(&error).with_causes(causes_of(&*error))
    }

    /// A failure that trying again cannot mend: the job ends FAILED.
    pub fn permanent(code: impl Into<String>, message: impl fmt::Display) -> Self {
        Failure::new(Category::Permanent, Some(code.into()), message)
    }

    /// Straight to DEAD_LETTER, whatever attempts are left.
    pub fn dead_letter(code: impl Into<String>, message: impl fmt::Display) -> Self {
        Failure { dead_letter: true, ..Failure::permanent(code, message) }
    }

    /// Not a failure: the job runs again after this long, and nothing is counted.
    ///
    /// Returned as an error so that `return Err(Failure::snooze(..))` leaves a handler from any depth.
    pub fn snooze(delay: Duration) -> Self {
        Failure { snooze: true, retry_after: Some(delay), ..Failure::temporary("snoozed") }
    }

    /// A failure of any category.
    pub fn new(category: Category, code: Option<String>, message: impl fmt::Display) -> Self {
        Failure {
            category,
            code: code.map(|code| cut(code, CODE_BYTES_MAX)),
            message: cut(message.to_string(), MESSAGE_BYTES_MAX),
            causes: Vec::new(),
            retry_after: None,
            dead_letter: false,
            snooze: false,
            hold: None,
        }
    }

    /// Tries again after this long instead of the computed backoff.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Starts nothing more of the job's queue, type or key for this long, where its queue is controlled (rule K8); at most 31
    /// days. For what the handler knows for certain, such as an answer 429 with `Retry-After`.
    #[must_use]
    pub fn hold(mut self, scope: HoldScope, time: Duration) -> Self {
        self.hold = Some(Hold { scope, time });
        self
    }

    /// Names a code, for filters and alerts.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(cut(code.into(), CODE_BYTES_MAX));
        self
    }

    /// Adds what caused it, outermost first.
    #[must_use]
    pub fn with_causes<C: fmt::Display>(mut self, causes: impl IntoIterator<Item = C>) -> Self {
        let texts = causes.into_iter().take(CAUSES_MAX);
        self.causes = texts.map(|cause| cut(cause.to_string(), MESSAGE_BYTES_MAX)).collect();
        self
    }

    /// Its category.
    pub fn category(&self) -> Category {
        self.category
    }

    /// Its code, if it has one.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Its message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What is kept of it, with the time it happened.
    pub fn recorded(&self, at: Timestamp) -> FailureRecord {
        FailureRecord {
            category: self.category,
            code: self.code.clone(),
            message: self.message.clone(),
            causes: self.causes.clone(),
            at,
        }
    }
}

// Wider than the errors of the standard library: anyhow's and eyre's are none of them, and half of all code returns those.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::any(error)
    }
}

/// What caused an error, outermost first.
fn causes_of(error: &dyn std::error::Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next.filter(|_| causes.len() < CAUSES_MAX) {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes
}

/// Says of a result what its error means for the job: try again, or not.
///
/// For every error that converts into a boxed one, `anyhow::Error` and `eyre::Report` included.
pub trait OrFailure<T> {
    /// An error is a temporary failure: tried again after the backoff.
    fn or_retry(self) -> Result<T, Failure>;

    /// An error is a permanent failure with this code: the job ends FAILED.
    fn or_permanent(self, code: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> OrFailure<T> for Result<T, E> {
    fn or_retry(self) -> Result<T, Failure> {
        self.map_err(Failure::any)
    }

    fn or_permanent(self, code: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure { category: Category::Permanent, ..Failure::any(error).with_code(code) })
    }
}

/// A failure as it is kept on the job and on the attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailureRecord {
    /// What kind it was.
    pub category: Category,
    /// A code for filters and alerts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Words for people, at most 8 KiB.
    pub message: String,
    /// What caused it, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// When it was recorded, by the store's clock.
    pub at: Timestamp,
}

impl FailureRecord {
    /// A failure without code and causes; set what differs.
    pub fn new(category: Category, message: impl Into<String>, at: Timestamp) -> Self {
        FailureRecord { category, code: None, message: message.into(), causes: Vec::new(), at }
    }
}

/// At most `max` bytes of `text`, on a character boundary, without NUL (which no SQL text can hold).
pub(crate) fn cut(mut text: String, max: usize) -> String {
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}");
    }
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_failure_with_its_causes() {
        use anyhow::Context as _;
        let broken = || Err::<(), _>(std::io::Error::other("disk gone")).context("cannot save");
        let failure = Failure::any(broken().expect_err("an error"));
        assert_eq!((failure.category(), failure.message()), (Category::Temporary, "cannot save"));
        assert_eq!(failure.causes, ["disk gone"]);
        assert_eq!(broken().or_retry().expect_err("a failure"), failure);
        let failure = broken().or_permanent("disk").expect_err("a failure");
        assert_eq!((failure.category(), failure.code()), (Category::Permanent, Some("disk")));
        assert_eq!(failure.causes, ["disk gone"]);
        let handler = || -> Result<(), Failure> { Ok(broken()?) };
        assert_eq!(handler().expect_err("by the question mark"), Failure::any(broken().expect_err("an error")));
        let boxed: Result<(), Box<dyn std::error::Error + Send + Sync>> = Err("words".into());
        assert_eq!(boxed.or_retry().expect_err("a failure").message(), "words");
    }

    #[test]
    fn f1_messages_are_cut_at_8_kib_on_a_character() {
        let failure = Failure::temporary("é".repeat(5000));
        assert_eq!(failure.message.len(), MESSAGE_BYTES_MAX);
        assert_eq!(Failure::temporary("a".to_owned() + &"é".repeat(5000)).message.len(), MESSAGE_BYTES_MAX - 1);
        assert_eq!(Failure::temporary("a\0b").message, "a\u{fffd}b");
    }

    #[test]
    fn any_error_is_temporary_and_keeps_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::fmt::Error);
        let failure = Failure::from(Outer(std::fmt::Error));
        assert_eq!(failure.category(), Category::Temporary);
        assert_eq!(failure.causes.len(), 1);
    }
}
