//! Wake-ups between processes, the speaking half: hints of what happened here, by NOTIFY from a connection of its own.
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

use super::listen::{Dial, open};
use crate::store::answer::Wake;

/// Rest between two notifications: so many times as long as the last one took, within these.
const REST_TIMES: u32 = 20;
const REST_MIN: Duration = Duration::from_millis(3);
const REST_MAX: Duration = Duration::from_millis(50);
/// Rest before one that only tells of ends. Whoever waits for one looks for itself within half a second.
const REST_ENDS: Duration = Duration::from_millis(20);
/// Most bytes of a notification; PostgreSQL allows 7999.
const BYTES_MAX: usize = 7000;
/// Most ends told in one notification: as many as fit.
const ENDS_MAX: usize = 180;
/// How long to wait after a connection could not be made.
const AWAY: Duration = Duration::from_millis(100);
/// Stands where the sender's mark would.
const NOBODY: &str = "-";

/// Hints as a notification that every process passes on, the sender's too.
pub(super) fn from_nobody(hints: Vec<Wake>) -> String {
    let mut words = Words::default();
    words.add(hints);
    words.sentence(NOBODY)
}

/// What is to be said next.
#[derive(Debug, Default)]
struct Words {
    urgent: BTreeSet<String>,
    ends: BTreeSet<String>,
}

impl Words {
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

    /// The urgent first, as many as fit.
    fn sentence(&self, own: &str) -> String {
        let mut text = own.to_owned();
        for word in self.urgent.iter().chain(&self.ends) {
            if text.len() + 1 + word.len() > BYTES_MAX {
                break;
            }
            text.push(' ');
            text.push_str(word);
        }
        text
    }
}

/// Takes hints from the store, and wakes whoever [speaks](speak) only when there was nothing to say before.
#[derive(Debug)]
pub(super) struct Mouth {
    words: Arc<Mutex<Words>>,
    wanted: mpsc::Sender<()>,
}

/// What [`speak`] says until the mouth is dropped.
pub(super) struct Speech {
    words: Arc<Mutex<Words>>,
    wanted: mpsc::Receiver<()>,
}

pub(super) fn mouth() -> (Mouth, Speech) {
    let words = Arc::<Mutex<Words>>::default();
    let (send, wanted) = mpsc::channel(1);
    (Mouth { words: Arc::clone(&words), wanted: send }, Speech { words, wanted })
}

impl Mouth {
    pub(super) fn say(&self, hints: Vec<Wake>) {
        if held(&self.words).add(hints) {
            // If it is full, somebody is about to look.
            let _ = self.wanted.try_send(());
        }
    }
}

fn held(words: &Mutex<Words>) -> MutexGuard<'_, Words> {
    words.lock().expect("nobody panics while holding the words")
}

impl Speech {
    /// Waits until there is something to say and the rest is over; `None` when the store has gone.
    async fn next(&mut self, last: Instant, rest: Duration) -> Option<Words> {
        self.wanted.recv().await?;
        loop {
            let rest = if held(&self.words).urgent.is_empty() { rest.max(REST_ENDS) } else { rest };
            match timeout_at(last + rest, self.wanted.recv()).await {
                Ok(Some(())) => {}
                Ok(None) | Err(_) => return Some(std::mem::take(&mut *held(&self.words))),
            }
        }
    }
}

/// Sends hints until the store is dropped. Those that cannot be sent are lost, as they may be.
pub(super) async fn speak(dial: Dial, mut speech: Speech) {
    let mut connection: Option<(Client, JoinHandle<()>)> = None;
    let (mut last, mut rest) = (Instant::now(), Duration::ZERO);
    while let Some(words) = speech.next(last, rest).await {
        if words.is_empty() {
            continue;
        }
        if connection.as_ref().is_none_or(|(client, _)| client.is_closed()) {
            connection = open(&dial).await.ok().map(|(client, _, task)| (client, task));
        }
        let Some((client, _)) = &connection else {
            tokio::time::sleep(AWAY).await;
            continue;
        };
        let begun = Instant::now();
        if notify(client, &dial.channel, &words.sentence(&dial.own)).await.is_err() {
            connection = None;
        }
        last = Instant::now();
        rest = (begun.elapsed() * REST_TIMES).clamp(REST_MIN, REST_MAX);
    }
}

/// Sends words without preparing a statement, which a pooler might not allow.
pub(super) async fn notify(client: &Client, channel: &str, words: &str) -> Result<(), tokio_postgres::Error> {
    let statement = include_str!("sql/notify_aside.sql");
    client.query_typed(statement, &[(&channel, Type::TEXT), (&words, Type::TEXT)]).await.map(|_| ())
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
        let mut words = Words::default();
        words.add((0..500).map(|_| ended()).chain([scheduled(), Wake::CancelAsked(job)]).collect());
        let text = words.sentence(&uuid::Uuid::new_v4().simple().to_string());
        assert!(text.len() <= BYTES_MAX);
        let heard: Vec<_> = text.split(' ').skip(1).filter_map(hint).collect();
        assert_eq!(heard[..2], [Wake::CancelAsked(job), scheduled()]);
        assert_eq!(heard.len(), 2 + ENDS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_hint_goes_at_once_and_later_ones_together_after_the_rest() {
        let (mouth, mut speech) = mouth();
        let began = Instant::now();
        mouth.say(vec![scheduled()]);
        let words = speech.next(began, Duration::ZERO).await.expect("words");
        assert_eq!((words.urgent.len(), began.elapsed()), (1, Duration::ZERO));
        mouth.say(vec![ended()]);
        mouth.say(vec![ended()]);
        let words = speech.next(began, REST_MIN).await.expect("words");
        assert_eq!((words.ends.len(), began.elapsed()), (2, REST_ENDS), "ends alone can wait");
        let last = Instant::now();
        mouth.say(vec![ended()]);
        let late = tokio::spawn(async move { speech.next(last, REST_MIN).await.map(|words| words.ends.len()) });
        tokio::task::yield_now().await;
        mouth.say(vec![scheduled()]);
        assert_eq!(late.await.expect("no panic"), Some(1));
        assert_eq!(last.elapsed(), REST_MIN, "an end goes along with what is urgent");
        drop(mouth);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_last_is_sent_before_the_end() {
        let (mouth, mut speech) = mouth();
        mouth.say(vec![ended()]);
        drop(mouth);
        let words = speech.next(Instant::now(), REST_MIN).await.expect("words");
        assert_eq!(words.ends.len(), 1);
        assert!(speech.next(Instant::now(), REST_MIN).await.is_none());
    }
}
