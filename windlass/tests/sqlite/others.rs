//! What a process hears of another one's work on the same file: two stores, each with a writing thread of its own.

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use windlass::JobId;
use windlass::store::{Cursor, JobEventKind, PAGE_MAX, SqliteStore, Store, Wake};
use windlass::workflow::Submission;

use crate::{SOON, claim, enqueue, folder, plain, spec};

/// Waits for the hint that a job has ended.
async fn hear_end(wakes: &mut Receiver<Wake>, id: JobId) {
    let heard = async {
        loop {
            match wakes.recv().await {
                Ok(Wake::Ended(ended)) if ended == id => return,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => panic!("the store has gone"),
            }
        }
    };
    tokio::time::timeout(SOON, heard).await.expect("its end is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_elsewhere_is_told_also_after_a_commit_of_ones_own() {
    let (_folder, path) = folder();
    let (here, there) = (SqliteStore::open(&path).expect("open"), SqliteStore::open(&path).expect("open again"));
    for _ in 0..5 {
        let id = enqueue(&there, plain()).await.expect("stored");
        let leases = claim(&there, 10).await.into_iter().map(|claimed| claimed.lease.complete(None));
        there.settle(&leases.collect::<Vec<_>>()).await.expect("settled");
        // Nobody has listened here, so nobody has looked.
        let mut wakes = here.wakes();
        enqueue(&here, plain()).await.expect("stored");
        hear_end(&mut wakes, id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_end_of_more_than_a_page_is_told() {
    let (_folder, path) = folder();
    let (here, there) = (SqliteStore::open(&path).expect("open"), SqliteStore::open(&path).expect("open again"));
    let jobs = PAGE_MAX + PAGE_MAX / 2;
    there.insert(Submission::new(vec![spec(plain()); jobs]).expect("a batch")).await.expect("stored");
    let mut wakes = here.wakes();
    let first = enqueue(&there, plain()).await.expect("stored");
    let leases: Vec<_> =
        claim(&there, jobs + 1).await.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
    assert_eq!(leases.len(), jobs + 1);
    there.settle(&leases).await.expect("settled");
    let (mut after, mut last) = (Some(Cursor("0".to_owned())), first);
    loop {
        let page = there.events(after.as_ref(), PAGE_MAX).await.expect("events");
        let newest = page.items.iter().rfind(|event| matches!(event.kind, JobEventKind::Ended(_)));
        last = newest.map_or(last, |event| event.job);
        if page.items.len() < PAGE_MAX {
            break;
        }
        after = page.next;
    }
    hear_end(&mut wakes, last).await;
}
