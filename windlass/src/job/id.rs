//! Identities: of jobs, attempts, leases, workflows and workers, and the names of types and queues.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};

/// Longest job type, in bytes.
pub const TYPE_BYTES_MAX: usize = 255;
/// Longest queue name, in bytes.
pub const QUEUE_BYTES_MAX: usize = 128;
/// Longest worker name, in bytes; long enough for a host name, a process id and a random part.
pub const WORKER_BYTES_MAX: usize = 255;
/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// From a UUID that a store drew or read.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                $name(uuid)
            }

            /// The UUID itself.
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                let uuid = Uuid::parse_str(text)
                    .map_err(|_| Error::invalid("id", format!("{:?} is not a UUID", shorten(text))))?;
                Ok($name(uuid))
            }
        }
    };
}

uuid_id! {
    /// A job's identity: a UUID v4 drawn by the store, never changed, never used again.
    JobId
}
uuid_id! {
    /// A workflow's identity.
    WorkflowId
}
uuid_id! {
    /// The identity of one attempt; follows from the job and the lease version it ran under.
    AttemptId
}
uuid_id! {
    /// The secret of a lease: its holder may settle the job. Never shown by `Debug`.
    LeaseToken
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({})", self.0)
    }
}

impl fmt::Display for WorkflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for WorkflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkflowId({})", self.0)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttemptId({})", self.0)
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(…)")
    }
}

impl AttemptId {
    /// The attempt that ran `job` under lease version `version`.
    ///
    /// Each claim raises the version by one, so (job, version) names an attempt; spreading the version over the job's
    /// random bits gives a UUID (version 8) that no store has to keep.
    pub fn of(job: JobId, version: u64) -> Self {
        const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        let mixed = job.0.as_u128() ^ u128::from(version).wrapping_mul(SPREAD);
        AttemptId(uuid::Builder::from_custom_bytes(mixed.to_be_bytes()).into_uuid())
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the name's length and alphabet.
            pub fn new(name: impl AsRef<str>) -> Result<Self> {
                let name = name.as_ref();
                check_name($field, name, $max)?;
                Ok($name(Arc::from(name)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(name: String) -> Result<Self> {
                $name::new(name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name_type! {
    /// Which handler a job is for: 1–255 bytes of `[A-Za-z0-9_.:/-]`.
    JobType, "type", TYPE_BYTES_MAX
}
name_type! {
    /// A named lane of jobs: 1–128 bytes of `[A-Za-z0-9_.:/-]`.
    QueueName, "queue", QUEUE_BYTES_MAX
}
name_type! {
    /// Which worker process: a name that is new at every start, so that nothing is ever keyed on a host.
    WorkerId, "worker", WORKER_BYTES_MAX
}

impl Default for QueueName {
    fn default() -> Self {
        QueueName(Arc::from(DEFAULT_QUEUE))
    }
}

fn check_name(field: &'static str, name: &str, max: usize) -> Result<()> {
    if name.is_empty() || name.len() > max {
        return Err(Error::invalid(field, format!("must have 1 to {max} bytes, has {}", name.len())));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte);
    match name.bytes().position(|byte| !allowed(byte)) {
        None => Ok(()),
        Some(at) => Err(Error::invalid(
            field,
            format!("may hold only letters, digits and _ . : / -, but byte {at} of {:?} is another", shorten(name)),
        )),
    }
}

/// The first few characters of a value that is quoted in an error.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_plain() {
        assert!(JobType::new("mail/send:v2_x.y-z").is_ok());
        assert!(JobType::new("a".repeat(255)).is_ok());
        for bad in ["", "two words", "naïve", "nul\0", "quote'"] {
            assert_eq!(JobType::new(bad).expect_err(bad).name(), "InvalidArgument");
        }
        let error = QueueName::new("q".repeat(129)).expect_err("too long").to_string();
        assert_eq!(error, "invalid queue: must have 1 to 128 bytes, has 129");
    }

    #[test]
    fn attempts_of_a_job_have_ids_of_their_own() {
        let job = JobId::from_uuid(Uuid::from_u128(0x1234_5678_9abc_4def_8123_4567_89ab_cdef));
        let ids: std::collections::HashSet<_> = (1..2000).map(|version| AttemptId::of(job, version)).collect();
        assert_eq!(ids.len(), 1999);
        assert_eq!(AttemptId::of(job, 7), AttemptId::of(job, 7));
    }

    #[test]
    fn a_token_is_not_shown() {
        let token = LeaseToken::from_uuid(Uuid::from_u128(0xabcdef));
        assert!(!format!("{token:?}").contains("abcdef"));
    }
}
