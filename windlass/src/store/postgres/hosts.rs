//! Which host of the URL is the primary, and connections to it.
//!
//! PostgreSQL and its manager replicate and elect; this module only follows. A connection is used once the server behind
//! it has said who it is: whether it can be written to, its timeline (each promotion begins a higher one), its system
//! identifier and when it was started. The writable host with the highest timeline is the primary, and a lower timeline
//! than one that was seen is refused for good: that server was replaced, whether it knows or not.
//!
//! Watching costs nothing while all is well. Only when a call has waited for two seconds, or no connection could be made,
//! the other hosts are asked. A newer primary raises the generation, and the connections to older ones end at once, with
//! every call on them: so a primary that is stopped, gone, or alive beside its successor delays nobody for long.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{broadcast, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage};

use super::config::Reach;
use super::fault::problem;
use super::listen::{NOTIFICATIONS_KEPT, Notifications};
use super::tls::Tls;

/// How long the host of the last connection is asked alone.
const ALONE: Duration = Duration::from_millis(300);
/// How long the other hosts may still answer once a primary has: of two that can be written to, the newer one counts.
const LATE: Duration = Duration::from_millis(300);
/// The function of the server that warns when a wait for its standby was cancelled.
const REPLICATION_WAIT: &str = "SyncRepWaitForLSN";

/// Why there is no connection: words for people, and what the driver said if it said anything.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub(super) struct Unreachable {
    problem: String,
    source: Option<tokio_postgres::Error>,
}

impl Unreachable {
    pub(super) fn said(problem: impl Into<String>) -> Self {
        Unreachable { problem: problem.into(), source: None }
    }
}

impl From<tokio_postgres::Error> for Unreachable {
    fn from(error: tokio_postgres::Error) -> Self {
        Unreachable { problem: problem(&error), source: Some(error) }
    }
}

/// Who a server is. What a service does not tell is not compared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Identity {
    pub(super) timeline: Option<u32>,
    pub(super) system: Option<String>,
    pub(super) started: Option<String>,
}

impl Identity {
    /// Whether both may be servers of one cluster.
    fn is_kin(&self, other: &Identity) -> bool {
        self.system.is_none() || other.system.is_none() || self.system == other.system
    }

    /// Whether this one was replaced by the other.
    fn is_older_than(&self, other: &Identity) -> bool {
        self.is_kin(other) && self.timeline.zip(other.timeline).is_some_and(|(own, others)| own < others)
    }
}

/// A connection that has said who it is, and the task that drives it.
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) task: JoinHandle<()>,
    pub(super) notifications: Notifications,
    /// Set when the server gave up waiting for its standby: what it called a success may be lost.
    pub(super) unsure: Arc<AtomicBool>,
    /// The generation that the connection belongs to.
    pub(super) generation: u64,
    /// The number of servers that the process has known by then: with the next one, nothing is certain that it remembers.
    pub(super) epoch: u64,
    own_generation: Arc<AtomicU64>,
    place: usize,
    writable: bool,
    identity: Identity,
}

struct Host {
    name: String,
    config: Config,
}

/// The host of the last connection, and the newest server that was seen.
#[derive(Debug, Default)]
struct Known {
    place: Option<usize>,
    identity: Option<Identity>,
    epoch: u64,
}

/// The hosts of a URL.
pub(super) struct Hosts {
    hosts: Vec<Host>,
    tls: Option<Tls>,
    wanted: TargetSessionAttrs,
    /// How long a host may take in all: address, TCP, TLS, start-up, the first question.
    limit: Duration,
    known: Mutex<Known>,
    generation: watch::Sender<u64>,
    looking: AtomicBool,
}

impl Hosts {
    pub(super) fn new(reach: &Reach) -> Self {
        let count = reach.config.get_hosts().len().max(reach.config.get_hostaddrs().len()).max(1);
        Hosts {
            hosts: (0..count).map(|place| reach.host(place)).map(|(name, config)| Host { name, config }).collect(),
            tls: reach.tls.clone(),
            wanted: reach.wanted,
            limit: reach.connect_limit,
            known: Mutex::default(),
            generation: watch::Sender::new(0),
            looking: AtomicBool::new(false),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while the hosts are locked")
    }

    /// Whether the URL names more than one.
    pub(super) fn are_several(&self) -> bool {
        self.hosts.len() > 1
    }

    pub(super) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// The host of the last connection and its timeline, for people.
    pub(super) fn describe(&self) -> String {
        let host = self.name().unwrap_or_else(|| "no host".to_owned());
        match self.timeline() {
            Some(timeline) => format!("{host}, timeline {timeline}"),
            None => host,
        }
    }

    /// The host of the last connection, if there was one.
    pub(super) fn name(&self) -> Option<String> {
        self.known().place.map(|place| self.hosts[place].name.clone())
    }

    /// The timeline of the newest server that was seen, where it tells.
    pub(super) fn timeline(&self) -> Option<u32> {
        self.known().identity.as_ref().and_then(|identity| identity.timeline)
    }

    /// A connection to the primary.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Connected, Unreachable> {
        let remembered = self.known().place.filter(|_| self.hosts.len() > 1);
        let mut problems: Vec<Unreachable> = Vec::new();
        let mut asked: JoinSet<Result<Connected, Unreachable>> = JoinSet::new();
        let mut rest: Vec<usize> = (0..self.hosts.len()).collect();
        if let Some(first) = remembered {
            rest.retain(|place| *place != first);
            self.ask_beside(&mut asked, first);
            if let Ok(Some(Ok(answer))) = timeout(ALONE, asked.join_next()).await {
                match answer.and_then(|found| self.accept(found)) {
                    Ok(found) => return Ok(found),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        for place in rest {
            self.ask_beside(&mut asked, place);
        }
        let best = self.newest(&mut asked, &mut problems).await;
        match best.map(|found| self.accept(found)) {
            Some(Ok(found)) => return Ok(found),
            Some(Err(problem)) => problems.push(problem),
            None => {}
        }
        Err(together(problems))
    }

    /// Looks for a newer primary in the background, unless that is under way: for a call that waits for its answer.
    pub(super) fn look(self: &Arc<Self>) {
        if self.hosts.len() < 2 || self.looking.swap(true, Ordering::SeqCst) {
            return;
        }
        let hosts = Arc::clone(self);
        tokio::spawn(async move {
            let current = hosts.known().place;
            let mut asked = JoinSet::new();
            for place in (0..hosts.hosts.len()).filter(|place| Some(*place) != current) {
                hosts.ask_beside(&mut asked, place);
            }
            // What is wrong with the others is no matter while the current one may still answer.
            if let Some(found) = hosts.newest(&mut asked, &mut Vec::new()).await
                && hosts.is_newer(&found.identity)
            {
                let _ = hosts.accept(found);
            }
            hosts.looking.store(false, Ordering::SeqCst);
        });
    }

    /// Notes that the server of a connection can no longer be written to: the next connection asks all hosts.
    pub(super) fn demoted(&self, generation: u64) {
        if generation == self.generation() {
            self.known().place = None;
        }
    }

    fn is_newer(&self, identity: &Identity) -> bool {
        self.known().identity.as_ref().is_none_or(|known| known.is_older_than(identity))
    }

    fn ask_beside(self: &Arc<Self>, asked: &mut JoinSet<Result<Connected, Unreachable>>, place: usize) {
        let hosts = Arc::clone(self);
        asked.spawn(async move { hosts.ask(place).await });
    }

    /// The best of those that answer: one that will do, and of several the one with the highest timeline.
    async fn newest(
        &self,
        asked: &mut JoinSet<Result<Connected, Unreachable>>,
        problems: &mut Vec<Unreachable>,
    ) -> Option<Connected> {
        let mut best: Option<Connected> = None;
        let mut until: Option<Instant> = None;
        loop {
            let next = match until {
                None => asked.join_next().await,
                Some(until) => timeout_at(until, asked.join_next()).await.unwrap_or(None),
            };
            let answer = match next {
                None => return best,
                Some(Ok(answer)) => answer.and_then(|found| self.suits(found)),
                Some(Err(_)) => continue,
            };
            match answer {
                Ok(found) => {
                    until.get_or_insert_with(|| Instant::now() + LATE);
                    if best.as_ref().is_none_or(|best| best.identity.is_older_than(&found.identity)) {
                        best = Some(found);
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
    }

    /// Refuses a server that is not of the kind that is wanted, or older than one that was seen.
    fn suits(&self, found: Connected) -> Result<Connected, Unreachable> {
        let name = &self.hosts[found.place].name;
        let fits = match self.wanted {
            TargetSessionAttrs::ReadWrite => found.writable,
            TargetSessionAttrs::ReadOnly => !found.writable,
            _ => true,
        };
        if !fits {
            let kind = if found.writable { "can be written to" } else { "is a standby, or told to be only read" };
            return Err(Unreachable::said(format!("{name} {kind}")));
        }
        if let Some(known) = &self.known().identity
            && found.writable
            && found.identity.is_older_than(known)
        {
            let (own, newer) = (found.identity.timeline.unwrap_or_default(), known.timeline.unwrap_or_default());
            return Err(Unreachable::said(format!(
                "{name} is at timeline {own}, and a newer primary at timeline {newer} was seen (after restoring a backup, \
                 start this program again)"
            )));
        }
        Ok(found)
    }

    /// Takes a connection for one to the primary; a server that is newer than the last raises the generation.
    fn accept(&self, found: Connected) -> Result<Connected, Unreachable> {
        let mut found = self.suits(found)?;
        let mut known = self.known();
        let replaced = known.identity.as_ref().filter(|_| found.writable).filter(|last| {
            let moved = self.hosts.len() > 1 && known.place.is_some_and(|place| place != found.place);
            last.is_older_than(&found.identity) || !last.is_kin(&found.identity) || moved
        });
        if replaced.is_some() {
            let name = &self.hosts[found.place].name;
            tracing::warn!(host = %name, timeline = found.identity.timeline, "the store has another primary");
            self.generation.send_modify(|generation| *generation += 1);
        }
        if found.writable || known.identity.is_none() {
            let changed = known.identity.as_ref() != Some(&found.identity);
            known.epoch += u64::from(changed);
            known.identity = Some(found.identity.clone());
        }
        found.epoch = known.epoch;
        known.place = Some(found.place);
        found.generation = *self.generation.borrow();
        found.own_generation.store(found.generation, Ordering::SeqCst);
        Ok(found)
    }

    /// Connects to one host and asks who it is, within the limit.
    async fn ask(&self, place: usize) -> Result<Connected, Unreachable> {
        let Host { name, .. } = &self.hosts[place];
        match timeout(self.limit, self.open(place)).await {
            Ok(Err(error)) if self.hosts.len() > 1 => {
                Err(Unreachable { problem: format!("{name}: {}", error.problem), source: error.source })
            }
            Ok(answer) => answer,
            Err(_) => Err(Unreachable::said(format!("{name} does not answer within {:?}", self.limit))),
        }
    }

    async fn open(&self, place: usize) -> Result<Connected, Unreachable> {
        let config = &self.hosts[place].config;
        let (tell, notifications) = broadcast::channel(NOTIFICATIONS_KEPT);
        let heard = Heard {
            tell,
            unsure: Arc::default(),
            newest: self.generation.subscribe(),
            // No generation is older until the connection has one.
            own: Arc::new(AtomicU64::new(u64::MAX)),
        };
        let (unsure, own_generation) = (Arc::clone(&heard.unsure), Arc::clone(&heard.own));
        let (client, task) = match &self.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                (client, tokio::spawn(drive(connection, heard)))
            }
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                (client, tokio::spawn(drive(connection, heard)))
            }
        };
        let (writable, identity) = identify(&client).await?;
        Ok(Connected {
            client,
            task,
            notifications,
            unsure,
            generation: 0,
            epoch: 0,
            own_generation,
            place,
            writable,
            identity,
        })
    }
}

/// One problem as it is, several in one sentence.
fn together(mut problems: Vec<Unreachable>) -> Unreachable {
    if problems.len() == 1 {
        return problems.remove(0);
    }
    let all: Vec<&str> = problems.iter().map(|problem| problem.problem.as_str()).collect();
    let problem = format!("none of the hosts is the primary: {}", all.join("; "));
    let source = problems.into_iter().find_map(|problem| problem.source);
    Unreachable { problem, source }
}

/// Where what a connection hears goes, and what ends it.
struct Heard {
    tell: broadcast::Sender<String>,
    unsure: Arc<AtomicBool>,
    newest: watch::Receiver<u64>,
    own: Arc<AtomicU64>,
}

/// Drives a connection until it ends or belongs to an older primary.
async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, heard: Heard)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let Heard { tell, unsure, mut newest, own } = heard;
    let replaced = newest.wait_for(|newest| *newest > own.load(Ordering::SeqCst));
    let mut replaced = std::pin::pin!(replaced);
    let mut watched = true;
    loop {
        let message = tokio::select! {
            biased;
            message = std::future::poll_fn(|cx| connection.poll_message(cx)) => message,
            newer = &mut replaced, if watched => match newer {
                Ok(_) => return,
                // The store has gone; the connection ends with its client.
                Err(_) => {
                    watched = false;
                    continue;
                }
            },
        };
        match message {
            Some(Ok(AsyncMessage::Notification(heard))) => {
                // The store has gone when nothing receives it.
                let _ = tell.send(heard.payload().to_owned());
            }
            Some(Ok(AsyncMessage::Notice(notice))) if notice.routine() == Some(REPLICATION_WAIT) => {
                unsure.store(true, Ordering::SeqCst);
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}

/// Asks a server whether it can be written to and who it is, without preparing anything.
async fn identify(client: &Client) -> Result<(bool, Identity), Unreachable> {
    let answer = match client.simple_query(include_str!("sql/get_identity.sql")).await {
        // A service may lack some of it, or keep it from us.
        Err(error) if error.code().is_some() => client.simple_query(include_str!("sql/is_writable.sql")).await?,
        answer => answer?,
    };
    let row = answer.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(|| Unreachable::said("the server does not say who it is"))?;
    let text = |name: &str| row.try_get(name).ok().flatten();
    let identity = Identity {
        timeline: text("timeline").and_then(|timeline| u32::from_str_radix(timeline, 16).ok()),
        system: text("system").map(str::to_owned),
        started: text("started").map(str::to_owned),
    };
    Ok((text("is_writable") == Some("t"), identity))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::PostgresOptions;
    use super::*;

    /// What a server that is none says of itself; `None` to accept connections and say nothing.
    #[derive(Clone, Copy)]
    struct Says {
        writable: bool,
        timeline: u32,
    }

    /// A server that only answers who it is.
    struct Fake {
        port: u16,
        says: Arc<Mutex<Option<Says>>>,
    }

    impl Fake {
        async fn start(says: Option<Says>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let says = Arc::new(Mutex::new(says));
            let shared = Arc::clone(&says);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&shared)));
                }
            });
            Fake { port, says }
        }

        fn say(&self, says: Option<Says>) {
            *self.says.lock().expect("no panic") = says;
        }
    }

    const fn primary(timeline: u32) -> Option<Says> {
        Some(Says { writable: true, timeline })
    }

    const STANDBY: Option<Says> = Some(Says { writable: false, timeline: 0 });

    /// A message of the protocol: its kind, and its length before its body.
    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        [&[kind], length.as_slice(), body].concat()
    }

    fn row(says: Says) -> Vec<u8> {
        let writable = if says.writable { "t" } else { "f" };
        let timeline = says.writable.then(|| format!("{:08X}", says.timeline));
        let columns =
            [("is_writable", Some(writable.to_owned())), ("timeline", timeline), ("system", Some("7".into()))];
        let count = u16::try_from(columns.len()).expect("few").to_be_bytes();
        let (mut names, mut values) = (count.to_vec(), count.to_vec());
        for (name, value) in columns {
            names.extend([name.as_bytes(), &[0], &[0; 6], &25u32.to_be_bytes(), &[255; 6], &[0; 2]].concat());
            match value {
                None => values.extend((-1i32).to_be_bytes()),
                Some(value) => {
                    values.extend(u32::try_from(value.len()).expect("short").to_be_bytes());
                    values.extend(value.as_bytes());
                }
            }
        }
        [message(b'T', &names), message(b'D', &values), message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat()
    }

    async fn serve(mut stream: TcpStream, says: Arc<Mutex<Option<Says>>>) -> std::io::Result<()> {
        let start = stream.read_u32().await?;
        stream.read_exact(&mut vec![0; start as usize - 4]).await?;
        let welcome = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
        let said = |says: &Mutex<Option<Says>>| *says.lock().expect("no panic");
        if said(&says).is_some() {
            stream.write_all(&welcome).await?;
        }
        loop {
            let kind = stream.read_u8().await?;
            let length = stream.read_u32().await?;
            stream.read_exact(&mut vec![0; length as usize - 4]).await?;
            if let (b'Q', Some(says)) = (kind, said(&says)) {
                stream.write_all(&row(says)).await?;
            }
        }
    }

    fn hosts(fakes: &[&Fake], more: &str) -> Arc<Hosts> {
        let list: Vec<String> = fakes.iter().map(|fake| format!("127.0.0.1:{}", fake.port)).collect();
        let url = format!("postgres://u@{}/db?sslmode=disable{more}", list.join(","));
        Arc::new(Hosts::new(&PostgresOptions::new(&url).expect("valid").reach))
    }

    #[tokio::test]
    async fn a_host_that_says_nothing_delays_nobody() {
        let (silent, good) = (Fake::start(None).await, Fake::start(primary(1)).await);
        let hosts = hosts(&[&silent, &good], "");
        let begun = Instant::now();
        assert_eq!(hosts.connect().await.expect("the other").place, 1);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(hosts.describe(), format!("127.0.0.1:{}, timeline 1", good.port));
    }

    #[tokio::test]
    async fn a_lone_host_that_says_nothing_is_given_up_in_time() {
        let silent = Fake::start(None).await;
        let begun = Instant::now();
        let refused = hosts(&[&silent], "").connect().await.err().expect("no connection").to_string();
        assert!(refused.contains("does not answer within 3s"), "{refused}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn the_writable_host_with_the_highest_timeline_is_the_primary() {
        let (old, standby, new) =
            (Fake::start(primary(9)).await, Fake::start(STANDBY).await, Fake::start(primary(16)).await);
        assert_eq!(hosts(&[&old, &standby, &new], "").connect().await.expect("a primary").place, 2);
        old.say(STANDBY);
        new.say(STANDBY);
        let refused = hosts(&[&old, &standby], "").connect().await.err().expect("none").to_string();
        assert_eq!(refused.matches("is a standby").count(), 2, "{refused}");
        let any = hosts(&[&old, &standby], "&target_session_attrs=any");
        assert!(any.connect().await.is_ok(), "where any will do");
    }

    #[tokio::test]
    async fn an_older_primary_is_refused_once_a_newer_one_was_seen() {
        let (old, new) = (Fake::start(primary(1)).await, Fake::start(primary(2)).await);
        let hosts = hosts(&[&old, &new], "");
        assert_eq!(hosts.connect().await.expect("the newer").place, 1);
        new.say(STANDBY);
        let refused = hosts.connect().await.err().expect("the older will not do").to_string();
        assert!(refused.contains("timeline 1") && refused.contains("timeline 2"), "{refused}");
    }

    #[tokio::test]
    async fn a_newer_primary_ends_the_connections_to_the_one_before() {
        let (old, new) = (Fake::start(primary(1)).await, Fake::start(STANDBY).await);
        let hosts = hosts(&[&old, &new], "");
        let mut before = hosts.connect().await.expect("the first primary");
        hosts.look();
        while hosts.looking.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!before.client.is_closed(), "no newer one is there");
        // The old one lives on, and answers no more.
        new.say(primary(2));
        old.say(None);
        let waiting = before.client.simple_query("select 1");
        hosts.look();
        let ended = timeout(Duration::from_secs(2), waiting).await.expect("the call ends");
        assert!(ended.is_err());
        timeout(Duration::from_secs(2), &mut before.task).await.expect("the connection ends").expect("no panic");
        assert_eq!((hosts.generation(), hosts.connect().await.expect("the new one").place), (1, 1));
    }
}
