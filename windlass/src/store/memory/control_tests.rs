//! A claim looks at what it serves, and not at what waits: counted in strands and jobs, not in time.

use std::time::Duration;

use super::MemoryStore;
use crate::flow::{Change, Control, ControlEdit, Limit};
use crate::job::{Limits, NewJob, Payload, Policies, QueueName, WorkerId};
use crate::store::Store;
use crate::store::request::ClaimRequest;
use crate::workflow::Submission;

const KEYS: usize = 100_000;
const BLOCKED: usize = 100_000;
const WANTED: usize = 100;

async fn add(store: &MemoryStore, keys: impl Iterator<Item = String>) {
    let spec = |key: String| {
        NewJob::new("test", Payload::default()).key(key).check(&Limits::default(), &Policies::default()).expect("valid")
    };
    let specs: Vec<_> = keys.map(spec).collect();
    for chunk in specs.chunks(1000) {
        store.insert(Submission::new(chunk.to_vec()).expect("a batch")).await.expect("inserted");
    }
}

#[tokio::test]
async fn a_claim_looks_at_what_it_takes_and_not_at_what_waits() {
    let (store, queue) = (MemoryStore::new(), QueueName::default());
    let control = Control::new().each_key(Limit::running(1)).fair();
    let put = Change::Put { control, version: None, from_code: false };
    store.control(&ControlEdit::new(queue.clone(), put), None).await.expect("controlled");
    let request = ClaimRequest {
        queues: vec![(queue.clone(), WANTED)],
        types: None,
        limit: WANTED,
        lease_time: Some(Duration::from_secs(60)),
        worker: WorkerId::new("test").expect("a name"),
    };
    add(&store, (0..BLOCKED).map(|_| "blocked".to_owned())).await;
    assert_eq!(store.claim(&request).await.expect("claim").len(), 1, "one of the key runs, and it is full");
    add(&store, (0..KEYS).map(|number| format!("k{number}"))).await;
    add(&store, ["blocked".to_owned()].into_iter()).await;
    // The keys are new to the first claim, which puts them in their order.
    assert_eq!(store.claim(&request).await.expect("claim").len(), WANTED);
    for _ in 0..3 {
        let (strands, jobs) = store.read(|tables, now| {
            let known = tables.controlled(&queue).expect("controlled");
            tables.looked_at(known, None, WANTED, now)
        });
        assert!(strands <= WANTED + 1, "{strands} strands were looked at");
        assert!(jobs <= 3 * WANTED, "{jobs} jobs were looked at");
        let claimed = store.claim(&request).await.expect("claim").jobs;
        assert_eq!(claimed.len(), WANTED);
        let ends: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
        store.settle(&ends).await.expect("settled");
        // What ended is looked at once more, and then forgotten.
        store.claim(&ClaimRequest { limit: 1, ..request.clone() }).await.expect("claim");
    }
}
