//! Wake-ups between processes: hints sent and heard by LISTEN/NOTIFY, on connections of their own.
//!
//! NOTIFY inside a transaction takes a lock of the whole database until the commit is on disk, which costs writers three
//! quarters of their rate. So hints are sent after the commit, from one connection, and throttled: at most one
//! notification every [`THROTTLE`], holding all that came meanwhile. A hint may be lost; polling must suffice.
//!
//! Modes of the ear: *away* (connecting, with growing waits), *testing* (it has sent itself a word and waits for it) and
//! *hearing*. Behind a transaction pooler the word never comes: then it says so once, and leaves the rest to polling.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use super::Inner;
use super::tls::Tls;
use crate::job::{JobId, QueueName};
use crate::store::answer::Wake;

/// Shortest time between two notifications of one process.
const THROTTLE: Duration = Duration::from_millis(3);
/// Most bytes of a notification; PostgreSQL allows 7999.
const BYTES_MAX: usize = 7000;
/// Most ends told in one notification; whoever waits for one looks for itself soon.
const ENDS_MAX: usize = 100;
/// Stands where the sender's mark would.
const NOBODY: &str = "-";
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

/// Hints as a notification that every process passes on, the sender's too.
pub(super) fn from_nobody(hints: Vec<Wake>) -> String {
    let mut words = BTreeSet::new();
    add(&mut words, hints);
    sentence(NOBODY, &words)
}

/// Sends hints until the store is dropped. Those that cannot be sent are lost, as they may be.
pub(super) async fn speak(dial: Dial, mut hints: mpsc::UnboundedReceiver<Vec<Wake>>) {
    let mut mouth: Option<(Client, JoinHandle<()>)> = None;
    while let Some(first) = hints.recv().await {
        let mut words = BTreeSet::new();
        add(&mut words, first);
        tokio::time::sleep(THROTTLE).await;
        while let Ok(more) = hints.try_recv() {
            add(&mut words, more);
        }
        if mouth.as_ref().is_none_or(|(client, _)| client.is_closed()) {
            mouth = connect(&dial).await;
        }
        let Some((client, _)) = &mouth else {
            tokio::time::sleep(AWAY_MIN).await;
            continue;
        };
        let sentence = sentence(&dial.own, &words);
        if notify(client, &dial.channel, &sentence).await.is_err() {
            mouth = None;
        }
    }
}

/// Sends words without preparing a statement, which a pooler might not allow.
async fn notify(client: &Client, channel: &str, words: &str) -> Result<(), tokio_postgres::Error> {
    let statement = include_str!("sql/notify_aside.sql");
    client.query_typed(statement, &[(&channel, Type::TEXT), (&words, Type::TEXT)]).await.map(|_| ())
}

fn add(words: &mut BTreeSet<String>, hints: Vec<Wake>) {
    for hint in hints {
        match hint {
            Wake::Scheduled(queue) => words.insert(format!("s{queue}")),
            Wake::CancelAsked(job) => words.insert(format!("c{job}")),
            Wake::Ended(_) if words.len() >= ENDS_MAX => false,
            Wake::Ended(job) => words.insert(format!("e{job}")),
        };
    }
}

/// Words with the urgent first, as many as fit.
fn sentence(own: &str, words: &BTreeSet<String>) -> String {
    let mut text = own.to_owned();
    let (ends, urgent): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with('e'));
    for word in urgent.into_iter().chain(ends) {
        if text.len() + 1 + word.len() > BYTES_MAX {
            break;
        }
        text.push(' ');
        text.push_str(word);
    }
    text
}

fn hint(word: &str) -> Option<Wake> {
    let (kind, rest) = word.split_at_checked(1)?;
    match kind {
        "s" => QueueName::new(rest).ok().map(Wake::Scheduled),
        "c" => rest.parse::<JobId>().ok().map(Wake::CancelAsked),
        "e" => rest.parse::<JobId>().ok().map(Wake::Ended),
        _ => None,
    }
}

async fn connect(dial: &Dial) -> Option<(Client, JoinHandle<()>)> {
    let (client, _, task) = open(dial).await.ok()?;
    Some((client, task))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_back_and_the_urgent_go_first() {
        let job = crate::store::new_job_id();
        let queue = QueueName::new("mail").expect("a name");
        let mut words = BTreeSet::new();
        let ends: Vec<_> = (0..500).map(|_| Wake::Ended(crate::store::new_job_id())).collect();
        add(&mut words, ends);
        add(&mut words, vec![Wake::Scheduled(queue.clone()), Wake::CancelAsked(job)]);
        let text = sentence("me", &words);
        assert!(text.len() <= BYTES_MAX);
        let heard: Vec<_> = text.split(' ').skip(1).filter_map(hint).collect();
        assert_eq!(heard[..2], [Wake::CancelAsked(job), Wake::Scheduled(queue)]);
        assert_eq!(heard.len(), 2 + ENDS_MAX);
    }
}
