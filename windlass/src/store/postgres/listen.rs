//! Wake-ups between processes, the hearing half: hints that others [speak](super::speak), by LISTEN on a connection of its
//! own. A hint may be lost; polling must suffice.
//!
//! Modes of the ear: *away* (connecting, with growing waits), *testing* (it has sent itself a word and waits for it) and
//! *hearing*. Behind a transaction pooler the word never comes: then it says so once, and leaves the rest to polling.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use super::Inner;
use super::speak::notify;
use super::tls::Tls;
use crate::job::{JobId, QueueName};
use crate::store::answer::Wake;

/// Longest name of a channel, below what PostgreSQL keeps of one.
const CHANNEL_BYTES_MAX: usize = 60;
/// How long the ear waits for its own word.
const TEST_WAIT: Duration = Duration::from_secs(3);
/// How long the ear rests before it tries again to connect, at first and at most.
const AWAY_MIN: Duration = Duration::from_millis(100);
const AWAY_MAX: Duration = Duration::from_secs(5);

/// How the two connections are made.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) config: Config,
    pub(super) tls: Option<Tls>,
    pub(super) channel: String,
    /// Marks the notifications of this process, which has heard of them already.
    pub(super) own: String,
}

/// The channel of a schema.
pub(super) fn channel(schema: &str) -> String {
    format!("windlass_{schema}").chars().take(CHANNEL_BYTES_MAX).collect()
}

pub(super) fn hint(word: &str) -> Option<Wake> {
    let (kind, rest) = word.split_at_checked(1)?;
    match kind {
        "s" => QueueName::new(rest).ok().map(Wake::Scheduled),
        "c" => rest.parse::<JobId>().ok().map(Wake::CancelAsked),
        "e" => rest.parse::<JobId>().ok().map(Wake::Ended),
        _ => None,
    }
}

pub(super) type Heard = mpsc::UnboundedReceiver<String>;

/// A connection, what it hears, and the task that drives it.
pub(super) async fn open(dial: &Dial) -> Result<(Client, Heard, JoinHandle<()>), tokio_postgres::Error> {
    let (tell, heard) = mpsc::unbounded_channel();
    match &dial.tls {
        None => {
            let (client, connection) = dial.config.connect(NoTls).await?;
            Ok((client, heard, tokio::spawn(drive(connection, tell))))
        }
        Some(tls) => {
            let (client, connection) = dial.config.connect(tls.clone()).await?;
            Ok((client, heard, tokio::spawn(drive(connection, tell))))
        }
    }
}

async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, tell: mpsc::UnboundedSender<String>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(heard) = message {
            // The store has gone when nobody takes it.
            let _ = tell.send(heard.payload().to_owned());
        }
    }
}

/// Listens until the store is dropped, and passes on what other processes say.
pub(super) async fn hear(dial: Dial, store: Weak<Inner>) {
    let mut away = AWAY_MIN;
    while store.strong_count() > 0 {
        match listen(&dial, &store, &mut away).await {
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
    /// Its own word never came.
    Pooled,
    /// The connection broke, or could not be made.
    Cut,
}

/// Whether a word sent to oneself arrives.
pub(super) async fn is_heard(dial: &Dial) -> Result<bool, tokio_postgres::Error> {
    let (client, mut heard, task) = open(dial).await?;
    let answer = test(dial, &client, &mut heard).await;
    task.abort();
    Ok(matches!(answer?, Tested::Heard))
}

enum Tested {
    Heard,
    /// It never came, though the connection stands.
    Silent,
    Cut,
}

/// Listens, sends itself a word and waits for it.
async fn test(dial: &Dial, client: &Client, heard: &mut Heard) -> Result<Tested, tokio_postgres::Error> {
    client.batch_execute(&format!("listen {}", dial.channel)).await?;
    notify(client, &dial.channel, &dial.own).await?;
    let own_word = async {
        while let Some(text) = heard.recv().await {
            if text == dial.own {
                return Tested::Heard;
            }
        }
        Tested::Cut
    };
    Ok(tokio::time::timeout(TEST_WAIT, own_word).await.unwrap_or(Tested::Silent))
}

async fn listen(dial: &Dial, store: &Weak<Inner>, away: &mut Duration) -> Ended {
    let Ok((client, mut heard, task)) = open(dial).await else { return Ended::Cut };
    match test(dial, &client, &mut heard).await {
        Ok(Tested::Heard) => {}
        Ok(Tested::Cut) | Err(_) => return Ended::Cut,
        Ok(Tested::Silent) => return Ended::Pooled,
    }
    *away = AWAY_MIN;
    loop {
        let text = match tokio::time::timeout(Duration::from_secs(1), heard.recv()).await {
            Ok(Some(text)) => text,
            Ok(None) => return Ended::Cut,
            // Only to notice that the store has gone.
            Err(_) if store.strong_count() == 0 => {
                task.abort();
                return Ended::Cut;
            }
            Err(_) => continue,
        };
        let Some(store) = store.upgrade() else { return Ended::Cut };
        pass_on(&store, &dial.own, &text);
    }
}

fn pass_on(store: &Arc<Inner>, own: &str, text: &str) {
    let mut words = text.split(' ');
    if words.next() == Some(own) {
        return;
    }
    for hint in words.filter_map(hint) {
        // Nobody listening is no error.
        let _ = store.wakes.send(hint);
    }
}
