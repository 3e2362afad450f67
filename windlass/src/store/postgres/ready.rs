//! Whether the store can be written to now.
//!
//! A primary that waits for its standby answers every question and confirms no commit, so only a write can tell. One such
//! write is under way at a time: a server process that waits for its standby does not notice that nobody waits for it, and a
//! new one for every question would use up the server's connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::Inner;
use super::fault::retrying;
use super::link::SLOW_MAX;
use super::turns::Caller;
use crate::error::{Error, Result};

/// Writes that wait longer than this are as good as none.
const WRITE_WAIT: Duration = Duration::from_secs(5);
const ATTEMPTED: &str = "see whether the store can be written to";

type Outcome = watch::Receiver<Option<std::result::Result<(), String>>>;

/// The write that is under way, and since when.
#[derive(Debug, Default)]
pub(super) struct WriteProbe(Mutex<Option<(Instant, Outcome)>>);

impl Inner {
    pub(super) async fn ready(self: &Arc<Self>) -> Result<()> {
        let (since, mut outcome) = self.write_under_way();
        let answer = match timeout_at(since + WRITE_WAIT, outcome.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => answer.clone().unwrap_or(Ok(())),
            Ok(Err(_)) => Err("the store is shutting down".to_owned()),
            Err(_) => Err(format!(
                "a write has waited for {:?} on {}: it may be cut off, or wait for a standby that is away",
                WRITE_WAIT,
                self.hosts.describe()
            )),
        };
        answer.map_err(|problem| Error::StoreUnavailable {
            attempted: ATTEMPTED.to_owned(),
            problem,
            known: true,
            source: None,
        })
    }

    /// The write that is under way, or a new one.
    fn write_under_way(self: &Arc<Self>) -> (Instant, Outcome) {
        let mut probe = self.probe.0.lock().expect("no panic while the probe is locked");
        if let Some((since, outcome)) = &*probe
            && outcome.borrow().is_none()
            && outcome.has_changed().is_ok()
        {
            return (*since, outcome.clone());
        }
        let (tell, outcome) = watch::channel(None);
        let store = Arc::clone(self);
        tokio::spawn(async move {
            let written = retrying(ATTEMPTED, || store.write_nothing()).await;
            let _ = tell.send(Some(written.map_err(|error| error.to_string())));
        });
        let begun = (Instant::now(), outcome);
        *probe = Some(begun.clone());
        begun
    }

    /// Commits something that nobody reads.
    async fn write_nothing(&self) -> std::result::Result<(), super::fault::Fault> {
        let link = self.link_for(Caller::Worker, SLOW_MAX).await?;
        let rows = link.query(include_str!("sql/is_writable.sql"), &[]).await?;
        if !rows[0].get::<_, bool>("is_writable") {
            let problem = format!("{} is a standby, or told to be only read", self.hosts.describe());
            return Err(Error::StoreUnavailable {
                attempted: ATTEMPTED.to_owned(),
                problem,
                known: true,
                source: None,
            }
            .into());
        }
        link.query(include_str!("sql/write_nothing.sql"), &[]).await.map(|_| ())
    }
}
