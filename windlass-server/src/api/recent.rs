//! Numbers that were read a moment ago, for callers who say how old they may be: however many tabs are open, the store is asked as often
//! as for one of them.
//!
//! Whoever does not say so is always answered from the store, and what they read is there for the others, too. So somebody who has just
//! acted and looks anew sees what came of it, and nobody sees something older afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use windlass::store::{Observation, QueueRecord};

use super::error::Refusal;
use super::extract::Query;
use crate::serve::attention::AttentionItem;

/// How old an answer may be made at most: people look at it.
const AGE_MAX: Duration = Duration::from_secs(60);

/// What `max_age` is.
pub(super) const MAX_AGE: &str =
    "How old the answer may be, such as `1s`; without it the store is asked. Those who poll share an answer so.";

/// How old the answer may be that is asked for.
pub(super) fn max_age(query: &mut Query) -> Result<Duration, Refusal> {
    Ok(query.duration("max_age", AGE_MAX, Duration::ZERO)?)
}

/// What was last read of one kind, and when that reading began.
#[derive(Debug)]
pub(super) struct Last<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for Last<T> {
    fn default() -> Self {
        Last(Mutex::new(None))
    }
}

impl<T> Last<T> {
    /// What was read at most so long ago, or else what is read now. Those who may be given something older wait for a reading that is
    /// under way for one of them.
    pub(super) async fn get<E>(&self, age: Duration, read: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
        if age.is_zero() {
            let begun = Instant::now();
            let value = Arc::new(read.await?);
            self.put(begun, Arc::clone(&value)).await;
            return Ok(value);
        }
        let mut last = self.0.lock().await;
        if let Some((_, value)) = last.as_ref().filter(|(at, _)| at.elapsed() < age) {
            return Ok(Arc::clone(value));
        }
        let begun = Instant::now();
        let value = Arc::new(read.await?);
        *last = Some((begun, Arc::clone(&value)));
        Ok(value)
    }

    /// Keeps what somebody read from this moment on, unless something newer is there.
    pub(super) async fn put(&self, begun: Instant, value: Arc<T>) {
        let mut last = self.0.lock().await;
        if last.as_ref().is_none_or(|(at, _)| *at <= begun) {
            *last = Some((begun, value));
        }
    }

    /// Forgets what was read before this moment: something has changed since.
    pub(super) async fn forget(&self, before: Instant) {
        let mut last = self.0.lock().await;
        if last.as_ref().is_some_and(|(at, _)| *at < before) {
            *last = None;
        }
    }
}

/// What tabs ask for again and again.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pub(super) lanes: Last<Observation>,
    pub(super) queues: Last<Vec<QueueRecord>>,
    pub(super) attention: Last<Vec<AttentionItem>>,
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn those_who_may_be_given_something_older_share_a_reading() {
        let (last, read) = (Last::default(), AtomicU32::new(0));
        let ask = async |age: Duration| {
            let reading = async {
                tokio::time::sleep(SECOND / 10).await;
                Ok::<_, Infallible>(read.fetch_add(1, Ordering::SeqCst) + 1)
            };
            last.get(age, reading).await.map(|value| *value).expect("it cannot fail")
        };
        // Ten at once are one; so is who comes within the age that it says, reckoned from when the reading began.
        let all = futures_util::future::join_all((0..10).map(|_| ask(SECOND))).await;
        assert_eq!(all, [1; 10]);
        tokio::time::advance(SECOND * 8 / 10).await;
        assert_eq!(ask(SECOND).await, 1);
        tokio::time::advance(SECOND / 10).await;
        assert_eq!(ask(SECOND).await, 2);
        // Who says nothing is answered from the store, and then nobody sees something older.
        assert_eq!(ask(Duration::ZERO).await, 3);
        assert_eq!(ask(SECOND).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_that_began_earlier_replaces_no_newer_one() {
        let last = Last::default();
        let early = Instant::now();
        tokio::time::advance(SECOND).await;
        last.put(Instant::now(), Arc::new("new")).await;
        last.put(early, Arc::new("old")).await;
        let kept = last.get(SECOND, async { Err::<&str, _>("it is not read") }).await;
        assert_eq!(kept.as_deref(), Ok(&"new"));
        last.forget(early).await;
        assert_eq!(last.get(SECOND, async { Ok::<_, Infallible>("newest") }).await.as_deref(), Ok(&"new"));
        tokio::time::advance(SECOND / 10).await;
        last.forget(Instant::now()).await;
        assert_eq!(last.get(SECOND, async { Ok::<_, Infallible>("newest") }).await.as_deref(), Ok(&"newest"));
    }
}
