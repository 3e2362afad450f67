//! Wake-ups between processes, the sending half: hints of what happened here, by NOTIFY from a connection of its own.
//!
//! NOTIFY inside a transaction takes a lock of the whole database until the commit is on disk, which costs writers three
//! quarters of their rate. So hints are sent after the commit, at once if nothing was sent just before, and otherwise
//! together: the busier the server is, the longer is the rest between two notifications. That a job has ended is less
//! urgent than that one may be claimed, and waits longer; at 40,000 ends a second, telling of them as often as of new jobs
//! took a fifth of the rate.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::listen::{ListenerConfig, open};
use crate::store::answer::Wake;

/// Rest between two notifications: this many times as long as the last one took, within these bounds.
const REST_TIMES: u32 = 20;
const REST_MIN: Duration = Duration::from_millis(3);
const REST_MAX: Duration = Duration::from_millis(50);
/// Rest before a notification that only tells of ends. A caller that waits for an end looks for itself within half a second.
const REST_ENDS: Duration = Duration::from_millis(20);
/// Most bytes of a notification; PostgreSQL allows 7999.
const BYTES_MAX: usize = 7000;
/// Most ends told in one notification: as many as fit.
const ENDS_MAX: usize = 180;
/// How long to wait after a connection could not be made.
const AWAY: Duration = Duration::from_millis(100);
/// Stands where the sender's mark would, in a notification that every process passes on.
const NO_SENDER: &str = "-";

/// Hints as a notification that every process passes on, the sender's too.
pub(super) fn encode_unsigned(hints: Vec<Wake>) -> String {
    let mut pending = PendingHints::default();
    pending.add(hints);
    pending.encode(NO_SENDER)
}

/// The hints of the next notification.
#[derive(Debug, Default)]
struct PendingHints {
    urgent: BTreeSet<String>,
    ends: BTreeSet<String>,
}

impl PendingHints {
    /// Takes in hints; says whether there were none of their urgency before.
    fn add(&mut self, hints: Vec<Wake>) -> bool {
        let (no_urgent, none) = (self.urgent.is_empty(), self.is_empty());
        for hint in hints {
            match hint {
                Wake::Scheduled(queue) => self.urgent.insert(format!("s{queue}")),
                Wake::CancelAsked(job) => self.urgent.insert(format!("c{job}")),
                Wake::Ended(_) if self.ends.len() >= ENDS_MAX => false,
                Wake::Ended(job) => self.ends.insert(format!("e{job}")),
            };
        }
        no_urgent != self.urgent.is_empty() || none != self.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.ends.is_empty()
    }

    /// The text of a notification: the urgent hints first, as many as fit.
    fn encode(&self, own: &str) -> String {
        let mut text = own.to_owned();
        for hint in self.urgent.iter().chain(&self.ends) {
            if text.len() + 1 + hint.len() > BYTES_MAX {
                break;
            }
            text.push(' ');
            text.push_str(hint);
        }
        text
    }
}

/// Takes hints from the store, and wakes the [task](run) that sends them only when there were none before.
#[derive(Debug)]
pub(super) struct Notifier {
    hints: Arc<Mutex<PendingHints>>,
    wanted: mpsc::Sender<()>,
}

/// The hints that [`run`] sends until the notifier is dropped.
pub(super) struct NotifyTask {
    hints: Arc<Mutex<PendingHints>>,
    wanted: mpsc::Receiver<()>,
}

pub(super) fn channel() -> (Notifier, NotifyTask) {
    let hints = Arc::<Mutex<PendingHints>>::default();
    let (send, wanted) = mpsc::channel(1);
    (Notifier { hints: Arc::clone(&hints), wanted: send }, NotifyTask { hints, wanted })
}

impl Notifier {
    pub(super) fn send(&self, hints: Vec<Wake>) {
        if locked(&self.hints).add(hints) {
            // If it is full, the task is about to look.
            let _ = self.wanted.try_send(());
        }
    }
}

fn locked(hints: &Mutex<PendingHints>) -> MutexGuard<'_, PendingHints> {
    hints.lock().expect("no panic while the hints are locked")
}

impl NotifyTask {
    /// Waits until there are hints and the rest is over; `None` when the store has gone.
    async fn next(&mut self, last: Instant, rest: Duration) -> Option<PendingHints> {
        self.wanted.recv().await?;
        loop {
            let rest = if locked(&self.hints).urgent.is_empty() { rest.max(REST_ENDS) } else { rest };
            match timeout_at(last + rest, self.wanted.recv()).await {
                Ok(Some(())) => {}
                Ok(None) | Err(_) => return Some(std::mem::take(&mut *locked(&self.hints))),
            }
        }
    }
}

/// Sends hints until the store is dropped. Those that cannot be sent are lost, as they may be.
pub(super) async fn run(config: ListenerConfig, mut task: NotifyTask) {
    let mut connection: Option<(Client, JoinHandle<()>)> = None;
    let (mut last, mut rest) = (Instant::now(), Duration::ZERO);
    while let Some(hints) = task.next(last, rest).await {
        if hints.is_empty() {
            continue;
        }
        if connection.as_ref().is_none_or(|(client, _)| client.is_closed()) {
            connection = open(&config).await.ok().map(|(client, _, task)| (client, task));
        }
        let Some((client, _)) = &connection else {
            tokio::time::sleep(AWAY).await;
            continue;
        };
        let begun = Instant::now();
        if notify(client, &config.channel, &hints.encode(&config.sender)).await.is_err() {
            connection = None;
        }
        last = Instant::now();
        rest = (begun.elapsed() * REST_TIMES).clamp(REST_MIN, REST_MAX);
    }
}

/// Sends a notification without preparing a statement, which a pooler might not allow.
pub(super) async fn notify(client: &Client, channel: &str, hints: &str) -> Result<(), tokio_postgres::Error> {
    let statement = include_str!("sql/notify_aside.sql");
    client.query_typed(statement, &[(&channel, Type::TEXT), (&hints, Type::TEXT)]).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::super::listen::hint;
    use super::*;
    use crate::job::QueueName;

    fn ended() -> Wake {
        Wake::Ended(crate::store::new_job_id())
    }

    fn scheduled() -> Wake {
        Wake::Scheduled(QueueName::new("mail").expect("a name"))
    }

    #[test]
    fn hints_are_read_back_and_the_urgent_go_first() {
        let job = crate::store::new_job_id();
        let mut hints = PendingHints::default();
        hints.add((0..500).map(|_| ended()).chain([scheduled(), Wake::CancelAsked(job)]).collect());
        let text = hints.encode(&uuid::Uuid::new_v4().simple().to_string());
        assert!(text.len() <= BYTES_MAX);
        let heard: Vec<_> = text.split(' ').skip(1).filter_map(hint).collect();
        assert_eq!(heard[..2], [Wake::CancelAsked(job), scheduled()]);
        assert_eq!(heard.len(), 2 + ENDS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_hint_goes_at_once_and_later_ones_together_after_the_rest() {
        let (notifier, mut task) = channel();
        let began = Instant::now();
        notifier.send(vec![scheduled()]);
        let hints = task.next(began, Duration::ZERO).await.expect("hints");
        assert_eq!((hints.urgent.len(), began.elapsed()), (1, Duration::ZERO));
        notifier.send(vec![ended()]);
        notifier.send(vec![ended()]);
        let hints = task.next(began, REST_MIN).await.expect("hints");
        assert_eq!((hints.ends.len(), began.elapsed()), (2, REST_ENDS), "ends alone can wait");
        let last = Instant::now();
        notifier.send(vec![ended()]);
        let late = tokio::spawn(async move { task.next(last, REST_MIN).await.map(|hints| hints.ends.len()) });
        tokio::task::yield_now().await;
        notifier.send(vec![scheduled()]);
        assert_eq!(late.await.expect("no panic"), Some(1));
        assert_eq!(last.elapsed(), REST_MIN, "an end goes along with what is urgent");
        drop(notifier);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_last_is_sent_before_the_end() {
        let (notifier, mut task) = channel();
        notifier.send(vec![ended()]);
        drop(notifier);
        let hints = task.next(Instant::now(), REST_MIN).await.expect("hints");
        assert_eq!(hints.ends.len(), 1);
        assert!(task.next(Instant::now(), REST_MIN).await.is_none());
    }
}
