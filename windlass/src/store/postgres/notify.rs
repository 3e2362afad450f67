//! Wake-ups between processes, the sending half: hints of what happened here, by NOTIFY from a connection of its own.
//!
//! NOTIFY inside a transaction takes a lock of the whole database until the commit is on disk, which costs writers three
//! quarters of their rate. So hints are sent after the commit, at once as long as sending takes at most a fifth of the
//! time, and otherwise together: the busier the server is, the longer a notification takes, and the longer the next one
//! rests. That a job has ended is less urgent than that one may be claimed: telling of an end rests a few milliseconds
//! after the notification before it, and goes along with what is urgent.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;

use super::listen::{ListenerConfig, open};
use crate::job::JobId;
use crate::store::answer::Wake;

/// How long the notifier rests for each notification: this many times as long as it took.
const REST_TIMES: u32 = 4;
/// How much rest may be owed before the next one waits, so that single ones never do; and how long one waits at most.
const OWED_MAX: Duration = Duration::from_millis(40);
const REST_MAX: Duration = Duration::from_millis(10);
/// Rest before a notification that only tells of ends: less than a caller that waits for one notices.
const REST_ENDS: Duration = Duration::from_millis(2);
/// Most bytes of a notification; PostgreSQL allows 7999.
const BYTES_MAX: usize = 7000;
/// Most ends that wait to be told, in as many notifications as they need. Of more the oldest are left out: callers that wait
/// for them look for themselves within half a second, and half a second of a fast server is what fits.
const ENDS_MAX: usize = 20_000;
/// The length of a hint that a job has ended: a letter and 32 digits.
const END_BYTES: usize = 33;
/// How long to wait after a connection could not be made.
const AWAY: Duration = Duration::from_millis(100);
/// Stands where the sender's mark would, in a notification that every process passes on.
const NO_SENDER: &str = "-";

/// Hints as a notification that every process passes on, the sender's too.
pub(super) fn encode_unsigned(hints: Vec<Wake>) -> String {
    let mut pending = PendingHints::default();
    pending.add(hints);
    // A transaction of the user's sends one: what does not fit is found by polling.
    pending.encode(NO_SENDER).swap_remove(0)
}

/// The hints of the next notification.
#[derive(Debug, Default)]
struct PendingHints {
    urgent: BTreeSet<String>,
    /// In the order in which they were heard of. Written out only when they are sent: most hints are these.
    ends: VecDeque<JobId>,
}

impl PendingHints {
    /// Takes in hints; says whether there were none of their urgency before.
    fn add(&mut self, hints: Vec<Wake>) -> bool {
        let (no_urgent, none) = (self.urgent.is_empty(), self.is_empty());
        for hint in hints {
            let urgent = match hint {
                Wake::Scheduled(queue) => format!("s{queue}"),
                Wake::Paused(queue) => format!("p{queue}"),
                Wake::CancelAsked(job) => format!("c{job}"),
                Wake::Told(worker) => format!("w{worker}"),
                Wake::Ended(job) => {
                    if self.ends.len() >= ENDS_MAX {
                        self.ends.pop_front();
                    }
                    self.ends.push_back(job);
                    continue;
                }
            };
            self.urgent.insert(urgent);
        }
        no_urgent != self.urgent.is_empty() || none != self.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.ends.is_empty()
    }

    /// The texts of notifications, the urgent hints first.
    fn encode(&self, own: &str) -> Vec<String> {
        let mut texts = vec![own.to_owned()];
        for hint in &self.urgent {
            let text = with_room(&mut texts, own, hint.len());
            text.push(' ');
            text.push_str(hint);
        }
        for job in &self.ends {
            let text = with_room(&mut texts, own, END_BYTES);
            write!(text, " e{}", job.as_uuid().simple()).expect("a string takes any text");
        }
        texts
    }
}

/// The last text if a hint of this length fits into it, or else a new one.
fn with_room<'t>(texts: &'t mut Vec<String>, own: &str, bytes: usize) -> &'t mut String {
    if texts.last().is_none_or(|text| text.len() + 1 + bytes > BYTES_MAX) {
        texts.push(own.to_owned());
    }
    texts.last_mut().expect("there is one")
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

/// When the next notification may go out.
struct Rest {
    /// When the last one was sent.
    last: Instant,
    /// Until when all rest that is owed has passed.
    owed_until: Instant,
}

impl Rest {
    fn new() -> Self {
        let now = Instant::now();
        Rest { last: now, owed_until: now }
    }

    /// Notes a notification that took this long.
    fn sent(&mut self, took: Duration) {
        self.last = Instant::now();
        let owed_until = self.owed_until.max(self.last) + took * REST_TIMES;
        // No more is owed than is ever waited for: a slow minute must not slow down the next one.
        self.owed_until = owed_until.min(self.last + OWED_MAX + REST_MAX);
    }

    /// When the next one may go out.
    fn over_at(&self, urgent: bool) -> Instant {
        let owed = self.owed_until.saturating_duration_since(self.last).saturating_sub(OWED_MAX);
        self.last + if urgent { owed } else { owed.max(REST_ENDS) }
    }
}

impl NotifyTask {
    /// Waits until there are hints and the rest is over; `None` when the store has gone.
    async fn next(&mut self, rest: &Rest) -> Option<PendingHints> {
        self.wanted.recv().await?;
        loop {
            let over_at = rest.over_at(!locked(&self.hints).urgent.is_empty());
            if over_at <= Instant::now() {
                // Without a timer, which would take up to a millisecond.
                return Some(std::mem::take(&mut *locked(&self.hints)));
            }
            match timeout_at(over_at, self.wanted.recv()).await {
                Ok(Some(())) => {}
                Ok(None) | Err(_) => return Some(std::mem::take(&mut *locked(&self.hints))),
            }
        }
    }
}

/// Sends hints until the store is dropped. Those that cannot be sent are lost, as they may be.
pub(super) async fn run(config: ListenerConfig, mut task: NotifyTask) {
    let mut connection: Option<(Client, JoinHandle<()>)> = None;
    let mut rest = Rest::new();
    while let Some(hints) = task.next(&rest).await {
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
        rest.sent(begun.elapsed());
    }
}

/// Sends notifications from a connection of its own, without waiting for the disk: until its commit is there, no other client
/// of the database can notify, and a hint may be lost. As plain text, which the server need not plan, and which a pooler allows.
pub(super) async fn notify(client: &Client, channel: &str, hints: &[String]) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&notification(channel, hints)).await
}

fn notification(channel: &str, hints: &[String]) -> String {
    let mut text = "begin; set local synchronous_commit = off; ".to_owned();
    for hint in hints {
        write!(text, "notify {channel}, '{}'; ", hint.replace('\'', "''")).expect("a string takes any text");
    }
    text + "commit"
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
        let ends: Vec<Wake> = (0..ENDS_MAX + 500).map(|_| ended()).collect();
        hints.add(ends.iter().cloned().chain([scheduled(), Wake::CancelAsked(job)]).collect());
        let texts = hints.encode(&uuid::Uuid::new_v4().simple().to_string());
        assert!(texts.iter().all(|text| text.len() <= BYTES_MAX));
        let heard: Vec<_> = texts.iter().flat_map(|text| text.split(' ').skip(1)).filter_map(hint).collect();
        assert_eq!(heard[..2], [Wake::CancelAsked(job), scheduled()]);
        assert_eq!(heard[2..], ends[500..], "the newest of a burst are told, the last one included");
    }

    #[test]
    fn a_notification_is_one_transaction_that_says_nothing_else() {
        let hints = ["one sa".to_owned(), "it's".to_owned()];
        let text = notification("windlass_w", &hints);
        let said = "notify windlass_w, 'one sa'; notify windlass_w, 'it''s'";
        assert_eq!(text, format!("begin; set local synchronous_commit = off; {said}; commit"));
    }

    const QUICK: Duration = Duration::from_micros(200);

    /// Sends one hint as soon as it may; gives how long that was.
    async fn send(notifier: &Notifier, task: &mut NotifyTask, rest: &mut Rest, hint: Wake, took: Duration) -> Duration {
        let began = Instant::now();
        notifier.send(vec![hint]);
        task.next(rest).await.expect("hints");
        rest.sent(took);
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn single_hints_go_at_once_also_when_the_server_is_slow() {
        let (notifier, mut task) = channel();
        let mut rest = Rest::new();
        for _ in 0..100 {
            let waited = send(&notifier, &mut task, &mut rest, scheduled(), Duration::from_millis(5)).await;
            assert_eq!(waited, Duration::ZERO);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_a_second_go_at_once_while_sending_is_quick() {
        let (notifier, mut task) = channel();
        let mut rest = Rest::new();
        for _ in 0..5_000 {
            assert_eq!(send(&notifier, &mut task, &mut rest, scheduled(), QUICK).await, Duration::ZERO);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_pause_they_rest_four_times_as_long_as_they_take() {
        let (notifier, mut task) = channel();
        let mut rest = Rest::new();
        let mut waited = Vec::new();
        for _ in 0..100 {
            waited.push(send(&notifier, &mut task, &mut rest, scheduled(), Duration::from_millis(1)).await);
        }
        assert_eq!(waited[..10], [Duration::ZERO; 10], "a burst goes at once");
        // A paused clock goes in whole milliseconds.
        assert!(waited[20..].iter().all(|wait| (4..=5).contains(&wait.as_millis())), "{waited:?}");
        let slow = Duration::from_secs(3);
        send(&notifier, &mut task, &mut rest, scheduled(), slow).await;
        let waited = send(&notifier, &mut task, &mut rest, scheduled(), slow).await;
        assert!(waited <= REST_MAX + Duration::from_millis(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn ends_go_at_once_after_a_pause_and_otherwise_together() {
        let (notifier, mut task) = channel();
        let mut rest = Rest::new();
        tokio::time::sleep(REST_ENDS).await;
        assert_eq!(send(&notifier, &mut task, &mut rest, ended(), QUICK).await, Duration::ZERO);
        let last = Instant::now();
        notifier.send(vec![ended()]);
        notifier.send(vec![ended()]);
        let hints = task.next(&rest).await.expect("hints");
        assert_eq!((hints.ends.len(), last.elapsed()), (2, REST_ENDS), "ends alone can wait");
        rest.sent(QUICK);
        let last = Instant::now();
        notifier.send(vec![ended()]);
        let late = tokio::spawn(async move { task.next(&rest).await.map(|hints| hints.ends.len()) });
        tokio::task::yield_now().await;
        notifier.send(vec![scheduled()]);
        assert_eq!(late.await.expect("no panic"), Some(1));
        assert!(last.elapsed() < REST_ENDS, "an end goes along with what is urgent");
        drop(notifier);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_last_is_sent_before_the_end() {
        let (notifier, mut task) = channel();
        let rest = Rest::new();
        notifier.send(vec![ended()]);
        drop(notifier);
        let hints = task.next(&rest).await.expect("hints");
        assert_eq!(hints.ends.len(), 1);
        assert!(task.next(&rest).await.is_none());
    }
}
