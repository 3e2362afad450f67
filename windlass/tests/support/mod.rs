//! What the end-to-end tests share: a client on each kind of store, with a clock that stands still.
//!
//! A case is an async function of a [`Setup`]; `on_every_store!` makes a test of it for each store.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use windlass::store::MemoryStore;
use windlass::{Client, ManualClock};

/// Long enough for anything that happens at once, short enough to notice that it does not.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A fresh store's client, and the clock of the store.
pub(crate) struct Setup {
    pub(crate) client: Client,
    pub(crate) clock: ManualClock,
}

/// A fresh store in memory.
pub(crate) async fn memory() -> Setup {
    let clock = ManualClock::default();
    Setup { client: Client::with_store(Arc::new(MemoryStore::with_clock(clock.clone()))), clock }
}

/// Makes a test of each case, on each store.
#[macro_export]
macro_rules! on_every_store {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case($crate::support::memory().await).await;
                }
            )*
        }
    };
}

/// Waits until something is so; fails when it does not become so soon.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let waited = tokio::time::timeout(SOON, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"));
}
