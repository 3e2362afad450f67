//! Wake-ups between processes, the receiving half: hints that other processes [send](super::notify), by LISTEN on a
//! connection of its own. A hint may be lost; polling must suffice.
//!
//! Modes of the listener: *away* (connecting, with growing waits), *testing* (it has sent itself a notification and waits for
//! it) and *listening*, in which it tests itself again every half minute. Silence means that the server is away. Only where
//! two connections turn out to share server processes there is a transaction pooler, behind which no notification ever
//! arrives: then the listener warns once, and leaves the rest to polling.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Client;

use super::hosts::{Connected, Hosts, Unreachable};
use super::notify::notify;
use super::{Inner, pooler};
use crate::job::{JobId, QueueName, WorkerId};
use crate::store::answer::Wake;

/// Longest name of a channel, below what PostgreSQL keeps of one.
const CHANNEL_BYTES_MAX: usize = 60;
/// How long the listener waits for its own notification.
const TEST_WAIT: Duration = Duration::from_secs(3);
/// How often a listener tests itself: a server that hangs is silent, as is one to which nobody says anything.
const TEST_EVERY: Duration = Duration::from_secs(30);
/// How often a listener looks whether the store has gone, or a test is due.
const TICK: Duration = Duration::from_secs(1);
/// How long the listener waits before it connects again, at first and at most.
const AWAY_MIN: Duration = Duration::from_millis(100);
const AWAY_MAX: Duration = Duration::from_secs(5);

/// How the two connections are made.
#[derive(Clone)]
pub(super) struct ListenerConfig {
    pub(super) hosts: Arc<Hosts>,
    pub(super) channel: String,
    /// Marks the notifications of this process, which has passed their hints on already.
    pub(super) sender: String,
}

/// The channel of a schema.
pub(super) fn channel(schema: &str) -> String {
    format!("windlass_{schema}").chars().take(CHANNEL_BYTES_MAX).collect()
}

/// The hint that a part of a notification stands for.
pub(super) fn hint(text: &str) -> Option<Wake> {
    let (kind, rest) = text.split_at_checked(1)?;
    match kind {
        "s" => QueueName::new(rest).ok().map(Wake::Scheduled),
        "p" => QueueName::new(rest).ok().map(Wake::Paused),
        "c" => rest.parse::<JobId>().ok().map(Wake::CancelAsked),
        "w" => WorkerId::new(rest).ok().map(Wake::Told),
        "e" => rest.parse::<JobId>().ok().map(Wake::Ended),
        _ => None,
    }
}

/// How many notifications wait to be passed on; of more the oldest are lost, as hints may be. Each has at most 8,000 bytes.
pub(super) const NOTIFICATIONS_KEPT: usize = 1024;

pub(super) type Notifications = broadcast::Receiver<String>;

/// A connection to the primary, the notifications it receives, and the task that drives it.
pub(super) async fn open(config: &ListenerConfig) -> Result<(Client, Notifications, JoinHandle<()>), Unreachable> {
    let Connected { client, notifications, task, .. } = config.hosts.connect().await?;
    Ok((client, notifications, task))
}

/// Listens until the store is dropped, and passes on the hints of other processes.
pub(super) async fn listen(config: ListenerConfig, store: Weak<Inner>) {
    let mut away = AWAY_MIN;
    while store.strong_count() > 0 {
        match listen_until_cut(&config, &store, &mut away).await {
            Ended::Pooled => {
                tracing::warn!(
                    "notifications do not arrive: the connection seems to go through a transaction pooler; \
                     jobs are found by polling"
                );
                return;
            }
            Ended::Cut => {
                tokio::time::sleep(away).await;
                away = (away * 2).min(AWAY_MAX);
            }
        }
    }
}

enum Ended {
    /// A transaction pooler is between.
    Pooled,
    /// The connection broke, or could not be made.
    Cut,
}

/// Whether a notification arrives that the listener sends to itself.
pub(super) async fn notifications_arrive(config: &ListenerConfig) -> Result<bool, Unreachable> {
    let (client, mut heard, task) = open(config).await?;
    let answer = test(config, &client, &mut heard).await;
    task.abort();
    Ok(matches!(answer?, Tested::Heard))
}

enum Tested {
    Heard,
    /// It never came, though the connection stands.
    Silent,
    Cut,
}

/// Listens, sends itself a notification and waits for it.
async fn test(
    config: &ListenerConfig,
    client: &Client,
    heard: &mut Notifications,
) -> Result<Tested, tokio_postgres::Error> {
    let own_notification = async {
        client.batch_execute(&format!("listen {}", config.channel)).await?;
        notify(client, &config.channel, std::slice::from_ref(&config.sender)).await?;
        loop {
            match heard.recv().await {
                Ok(text) if text == config.sender => return Ok(Tested::Heard),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Ok(Tested::Cut),
            }
        }
    };
    timeout(TEST_WAIT, own_notification).await.unwrap_or(Ok(Tested::Silent))
}

async fn listen_until_cut(config: &ListenerConfig, store: &Weak<Inner>, away: &mut Duration) -> Ended {
    let Ok((client, mut heard, task)) = open(config).await else { return Ended::Cut };
    let ended = match test(config, &client, &mut heard).await {
        Ok(Tested::Heard) => {
            *away = AWAY_MIN;
            pass_on_until_cut(config, store, &client, &mut heard).await;
            Ended::Cut
        }
        Ok(Tested::Silent) if pooler::is_between(config).await.unwrap_or(false) => Ended::Pooled,
        Ok(_) | Err(_) => Ended::Cut,
    };
    task.abort();
    ended
}

/// Passes on hints until the connection breaks or falls silent, or the store has gone.
async fn pass_on_until_cut(config: &ListenerConfig, store: &Weak<Inner>, client: &Client, heard: &mut Notifications) {
    let mut test_at = Instant::now() + TEST_EVERY;
    let mut asked = false;
    while store.strong_count() > 0 {
        match timeout_at(test_at.min(Instant::now() + TICK), heard.recv()).await {
            Ok(Err(RecvError::Closed)) => return,
            Ok(Err(RecvError::Lagged(lost))) => {
                tracing::debug!(lost, "more notifications came than could be passed on; jobs are found by polling");
            }
            Ok(Ok(text)) => {
                let Some(store) = store.upgrade() else { return };
                if text == config.sender {
                    (test_at, asked) = (Instant::now() + TEST_EVERY, false);
                }
                pass_on(&store, &config.sender, &text);
            }
            Err(_) if Instant::now() < test_at => {}
            // Its own notification has not come in time.
            Err(_) if asked => return,
            Err(_) => {
                let said =
                    timeout(TEST_WAIT, notify(client, &config.channel, std::slice::from_ref(&config.sender))).await;
                if !matches!(said, Ok(Ok(()))) {
                    return;
                }
                (test_at, asked) = (Instant::now() + TEST_WAIT, true);
            }
        }
    }
}

/// The hints in the text of a notification; none in one of this process.
#[doc(hidden)]
pub fn wakes_in(text: &str, own: &str) -> Vec<Wake> {
    let mut parts = text.split(' ');
    if parts.next() == Some(own) {
        return Vec::new();
    }
    parts.filter_map(hint).collect()
}

fn pass_on(store: &Arc<Inner>, own: &str, text: &str) {
    for hint in wakes_in(text, own) {
        // It is no error if nothing in this process waits for hints.
        let _ = store.wakes.send(hint);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    #[test]
    fn l21_a_flood_of_notifications_is_bounded() {
        let (tell, mut heard) = broadcast::channel(NOTIFICATIONS_KEPT);
        for number in 0..10_000 {
            let _ = tell.send(format!("sender s{number}"));
        }
        assert_eq!(tell.len(), NOTIFICATIONS_KEPT);
        assert!(matches!(heard.try_recv(), Err(TryRecvError::Lagged(_))), "the oldest are lost");
        assert_eq!(heard.try_recv().expect("the next one"), "sender s8976");
    }

    #[test]
    fn words_that_mean_nothing_are_passed_over() {
        for words in ["", "x", "s", "sa b", "c", "cnot-an-id", "é", "\u{0}"] {
            assert_eq!(hint(words), None, "{words:?}");
        }
        assert_eq!(hint("smail"), Some(Wake::Scheduled(QueueName::new("mail").expect("a name"))));
        assert_eq!(hint("wbox.4711"), Some(Wake::Told(WorkerId::new("box.4711").expect("a name"))));
    }
}
