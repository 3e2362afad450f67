//! How the keys of controlled queues stand, for metrics, `windlass queues` and `windlass top`.

use std::collections::BTreeMap;

use windlass::QueueName;
use windlass::flow::KeyState;
use windlass::store::{KeyQuery, PAGE_MAX, QueueRecord, Store};

/// At most this many keys of a queue are looked at: each look reads them all.
const KEYS_MAX: usize = 10 * PAGE_MAX;
/// At most this many halted keys are named.
const NAMED_MAX: usize = 5;

/// The states of a key, in the order in which they are told.
pub const KEY_STATES: [&str; 6] = ["open", "full", "rate", "held", "ordered", "halted"];

/// How the keys of a controlled queue stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyCounts {
    /// The queue.
    pub queue: QueueName,
    /// Keys in each state; of all, or of the first ten thousand by name.
    pub states: BTreeMap<&'static str, usize>,
    /// Some of the halted ones.
    pub halted: Vec<String>,
}

impl KeyCounts {
    /// Looks at the keys of all queues whose control tells keys apart.
    pub async fn look(store: &dyn Store, queues: &[QueueRecord]) -> windlass::Result<Vec<KeyCounts>> {
        let mut found = Vec::new();
        let keyed =
            queues.iter().filter(|queue| queue.control.as_ref().is_some_and(|record| record.control.has_strands()));
        for queue in keyed {
            found.push(KeyCounts::of(store, &queue.name).await?);
        }
        Ok(found)
    }

    async fn of(store: &dyn Store, queue: &QueueName) -> windlass::Result<KeyCounts> {
        let mut counts =
            KeyCounts { queue: queue.clone(), states: KEY_STATES.map(|state| (state, 0)).into(), halted: Vec::new() };
        let mut query = KeyQuery { limit: PAGE_MAX, ..KeyQuery::new(queue.clone()) };
        let mut looked = 0;
        loop {
            let page = store.keys(&query).await?;
            for key in &page.items {
                *counts.states.entry(key.state.as_str()).or_default() += 1;
                if matches!(key.state, KeyState::Halted { .. }) && counts.halted.len() < NAMED_MAX {
                    counts.halted.push(key.key.clone());
                }
            }
            looked += page.items.len();
            match page.next.filter(|_| looked < KEYS_MAX) {
                Some(next) => query.after = Some(next),
                None => return Ok(counts),
            }
        }
    }

    /// Keys of which nothing may start now.
    pub fn blocked(&self) -> usize {
        self.states.iter().filter(|(state, _)| **state != "open").map(|(_, count)| count).sum()
    }

    /// In words, where there is something to tell: `queue mail: 3 keys are blocked, 1 of them halted (acme)`.
    pub fn words(&self) -> Option<String> {
        let (blocked, halted) = (self.blocked(), self.states.get("halted").copied().unwrap_or_default());
        let keys = |count: usize| if count == 1 { "1 key is".to_owned() } else { format!("{count} keys are") };
        match (blocked, halted) {
            (0, _) => None,
            (_, 0) => Some(format!("queue {}: {} blocked", self.queue, keys(blocked))),
            _ => {
                let names = self.halted.join(", ");
                Some(format!("queue {}: {} blocked, {halted} of them halted ({names})", self.queue, keys(blocked)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass::flow::{AfterFailure, Control};
    use windlass::job::WorkerId;
    use windlass::store::ClaimRequest;
    use windlass::{Client, Failure, NewJob, Payload};

    use super::*;

    #[tokio::test]
    async fn blocked_and_halted_keys_are_counted_and_named() {
        let client = Client::in_memory();
        client
            .queue("mail")
            .expect("a name")
            .control(Control::new().ordered(AfterFailure::Halt))
            .await
            .expect("controlled");
        let job = |key: &str| NewJob::new("t", Payload::default()).queue("mail").key(key);
        client.enqueue_all(["acme", "acme", "beta", "beta"].map(job)).await.expect("enqueued");
        let worker = WorkerId::new("w").expect("a name");
        let request = ClaimRequest::new(worker, QueueName::new("mail").expect("a name"), 9);
        let claimed = client.store().claim(&request).await.expect("claim").jobs;
        assert_eq!(claimed.len(), 2, "one of each key");
        let mut leases = claimed.into_iter().map(|one| one.lease);
        let failed = leases.next().expect("acme's").fail(Failure::permanent("broken", "broken"), &mut || 0.5);
        client.store().settle(&[failed]).await.expect("settled");
        let queues = client.store().queues().await.expect("queues");
        let counts = KeyCounts::look(client.store().as_ref(), &queues).await.expect("keys");
        assert_eq!(counts.len(), 1);
        let told: Vec<_> = KEY_STATES.map(|state| counts[0].states[state]).into();
        assert_eq!(told, [0, 0, 0, 0, 1, 1]);
        let words = counts[0].words().expect("something to tell");
        assert_eq!(words, "queue mail: 2 keys are blocked, 1 of them halted (acme)");
    }
}
