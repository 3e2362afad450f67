//! A store of your own, held to the contract by the public conformance suite (feature `conformance`).
//!
//! In a real crate this is a test: `windlass` is a dev-dependency with the feature, and `Mine::fresh` opens your store.

use std::sync::Arc;

use async_trait::async_trait;
use windlass::ManualClock;
use windlass::store::conformance::{Subject, cases};
use windlass::store::{MemoryStore, Store};

/// Says how to make an empty store that goes by this clock. Yours implements `windlass::store::Store`.
#[derive(Debug)]
struct Mine;

#[async_trait]
impl Subject for Mine {
    fn name(&self) -> &'static str {
        "mine"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        Arc::new(MemoryStore::with_clock(clock))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // Every case is an async function that panics with the rule it finds broken. Here only those about leases are run;
    // a real test makes one test of each (see tests/conformance.rs, which does so with libtest-mimic).
    let about_leases: Vec<_> = cases().into_iter().filter(|case| case.rule().starts_with('L')).collect();
    let count = about_leases.len();
    for case in about_leases {
        case.run(&Mine).await;
    }
    assert!(count > 10, "the suite has more to say than {count} cases");
    println!("the store \"{}\" keeps the rules about leases", Mine.name());
}
