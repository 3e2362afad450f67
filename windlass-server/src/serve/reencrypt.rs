//! What is stored under an older key, encrypted again in the background while a keyring holds more than one key.
//!
//! A server walks over the store when it starts and every hour after, a few jobs at a time with rests between, and tells
//! by a metric and the log how much is under which key. With one key there is nothing to do and nothing is read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge};
use tokio_util::sync::CancellationToken;
use windlass::store::{Sealed, Store, UnderKeys};

use super::metrics::{REENCRYPTED, STORED_UNDER, STORED_UNOPENED};

/// Jobs or schedules in one step: few enough that large payloads and results fit into memory.
const STEP: usize = 50;
/// Rest between two steps, so that jobs go first.
const REST: Duration = Duration::from_millis(100);
/// Time from the end of a walk to the next one: another process may still write under an older key.
const AGAIN: Duration = Duration::from_secs(3600);
/// After an error of the store.
const LATER: Duration = Duration::from_secs(60);
/// The name in the metric of what is not encrypted.
const PLAIN: &str = "none";

/// Walks again and again until the server stops. A server that may change nothing only counts.
pub(super) async fn run(store: Arc<dyn Store>, read_only: bool, stopping: CancellationToken) {
    let Some(sealed) = Sealed::of(&store).filter(|sealed| sealed.keys().names().count() > 1) else { return };
    let walks = async {
        loop {
            let wait = match walk(sealed, read_only).await {
                Ok(found) => {
                    tell(sealed, &found);
                    AGAIN
                }
                Err(error) => {
                    tracing::warn!(%error, "what is under older keys could not be encrypted again; it is tried later");
                    LATER
                }
            };
            tokio::time::sleep(wait).await;
        }
    };
    tokio::select! {
        () = walks => {}
        () = stopping.cancelled() => {}
    }
}

async fn walk(sealed: &Sealed, read_only: bool) -> windlass::Result<UnderKeys> {
    let mut found = UnderKeys::default();
    loop {
        let after = found.next.take();
        let step = match read_only {
            true => sealed.under_keys(after.as_ref(), STEP).await?,
            false => sealed.reencrypt(after.as_ref(), STEP).await?,
        };
        counter!(REENCRYPTED).increment(step.rewritten);
        found.add(step);
        if found.next.is_none() {
            return Ok(found);
        }
        tokio::time::sleep(REST).await;
    }
}

fn tell(sealed: &Sealed, found: &UnderKeys) {
    let mut by_key: BTreeMap<&str, u64> = sealed.keys().names().map(|name| (name, 0)).collect();
    by_key.extend(found.by_key.iter().map(|(name, count)| (name.as_str(), *count)));
    for (name, count) in &by_key {
        gauge!(STORED_UNDER, "key" => (*name).to_owned()).set(*count as f64);
    }
    gauge!(STORED_UNDER, "key" => PLAIN).set(found.plain as f64);
    gauge!(STORED_UNOPENED).set(found.unopened as f64);
    let current = sealed.keys().names().next().unwrap_or_default();
    let unused: Vec<&str> = sealed.keys().names().skip(1).filter(|name| by_key.get(name) == Some(&0)).collect();
    tracing::info!(
        current,
        rewritten = found.rewritten,
        unopened = found.unopened,
        no_longer_needed = unused.join(" "),
        "everything that is stored was looked at; what was under an older key is encrypted again"
    );
}
