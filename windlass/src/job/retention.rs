//! How long a job is kept after its end, where that was said for the job, its type, its queue or all of them (rule O4).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::TIMEOUT_MAX;
use super::state::State;
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// How SQL stores write that a job is kept for ever: far beyond any moment, and small enough to add one to it.
#[cfg(feature = "postgres")]
const KEPT_FOR_EVER: i64 = 1 << 62;

/// How long jobs are kept after their end, by how they ended: `Some(None)` until they are deleted.
///
/// What is `None` is left to the next in line: the job's type, its queue, the system, and at last the retention that upkeep
/// is told for the whole store. What is said here wins over that one, be it longer or shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RetentionPatch {
    /// COMPLETED jobs.
    #[serde(skip_serializing_if = "Option::is_none", with = "named")]
    pub completed: Option<Option<Duration>>,
    /// CANCELLED jobs.
    #[serde(skip_serializing_if = "Option::is_none", with = "named")]
    pub cancelled: Option<Option<Duration>>,
    /// FAILED jobs.
    #[serde(skip_serializing_if = "Option::is_none", with = "named")]
    pub failed: Option<Option<Duration>>,
    /// DEAD_LETTER jobs.
    #[serde(skip_serializing_if = "Option::is_none", with = "named")]
    pub dead_letter: Option<Option<Duration>>,
}

impl RetentionPatch {
    /// Keeps jobs this long, however they end; `None` until they are deleted.
    pub fn all(kept: impl Into<Option<Duration>>) -> Self {
        let kept = Some(kept.into());
        RetentionPatch { completed: kept, cancelled: kept, failed: kept, dead_letter: kept }
    }

    /// What is said for jobs that end in `state`.
    pub fn of(&self, state: State) -> Option<Option<Duration>> {
        match state {
            State::Completed => self.completed,
            State::Cancelled => self.cancelled,
            State::Failed => self.failed,
            State::DeadLetter => self.dead_letter,
            State::Pending | State::Delayed | State::Scheduled | State::Running | State::Retrying => None,
        }
    }

    /// This, and for what it leaves open the next in line.
    #[must_use]
    pub fn or(self, next: RetentionPatch) -> Self {
        RetentionPatch {
            completed: self.completed.or(next.completed),
            cancelled: self.cancelled.or(next.cancelled),
            failed: self.failed.or(next.failed),
            dead_letter: self.dead_letter.or(next.dead_letter),
        }
    }

    /// Whether it says nothing, so that the store's own retention holds for every end.
    pub fn is_silent(&self) -> bool {
        *self == RetentionPatch::default()
    }

    /// When a job that ended so may be removed: `None` when the store's own retention decides, and the last moment of all
    /// for one that is kept until it is deleted.
    pub fn prune_at(&self, state: State, ended: Timestamp) -> Option<Timestamp> {
        self.of(state).map(|kept| kept.map_or(Timestamp::MAX, |kept| ended.plus(kept)))
    }

    /// How long it keeps jobs, in microseconds, by terminal state from COMPLETED on: so a statement that ends a job finds it
    /// by the state's number. Nothing for most jobs, which say nothing.
    #[cfg(feature = "postgres")]
    pub(crate) fn stored(&self) -> Option<[Option<i64>; 4]> {
        let micros = |kept: Duration| i64::try_from(kept.as_micros()).unwrap_or(KEPT_FOR_EVER);
        let kept = |state: State| self.of(state).map(|kept| kept.map_or(KEPT_FOR_EVER, micros));
        let ends = [State::Completed, State::Failed, State::DeadLetter, State::Cancelled];
        (!self.is_silent()).then(|| ends.map(kept))
    }

    pub(super) fn check(&self) -> Result<()> {
        let named = [self.completed, self.cancelled, self.failed, self.dead_letter];
        match named.into_iter().flatten().flatten().any(|kept| kept > TIMEOUT_MAX) {
            true => Err(Error::invalid("retention", "must be at most ten years")),
            false => Ok(()),
        }
    }
}

/// Durations that were named, as whole microseconds, null for no end; what was not named is left out.
mod named {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::super::micros_option;

    // `serialize_with` hands a reference, whatever is in it.
    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(named: &Option<Option<Duration>>, serializer: S) -> Result<S::Ok, S::Error> {
        micros_option::serialize(&named.flatten(), serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<Duration>>, D::Error> {
        micros_option::deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn o4_what_is_left_open_is_the_next_ones() {
        let own = RetentionPatch { completed: Some(None), ..RetentionPatch::default() };
        let kept = own.or(RetentionPatch::all(DAY));
        assert_eq!((kept.of(State::Completed), kept.of(State::Failed)), (Some(None), Some(Some(DAY))));
        assert_eq!(kept.of(State::Running), None);
    }

    #[test]
    fn o4_own_retention_gives_the_moment() {
        let ended = Timestamp::from_seconds(1000);
        let own = RetentionPatch { completed: Some(Some(DAY)), failed: Some(None), ..RetentionPatch::default() };
        assert_eq!(own.prune_at(State::Completed, ended), Some(ended.plus(DAY)));
        assert_eq!(own.prune_at(State::Failed, ended), Some(Timestamp::MAX), "until it is deleted");
        assert_eq!(own.prune_at(State::Cancelled, ended), None, "the store's own");
    }

    #[test]
    fn it_is_written_compactly_and_read_back() {
        let own = RetentionPatch { completed: Some(Some(DAY)), failed: Some(None), ..RetentionPatch::default() };
        let text = serde_json::to_string(&own).expect("JSON");
        assert_eq!(text, r#"{"completed":86400000000,"failed":null}"#);
        assert_eq!(serde_json::from_str::<RetentionPatch>(&text).expect("it reads its own"), own);
    }
}
