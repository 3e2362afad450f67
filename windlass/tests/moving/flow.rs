//! Flow control that goes along with a move.

use std::time::Duration;

use windlass::flow::{AfterFailure, Change, Control, ControlEdit, GateName, KeyState, Limit};
use windlass::store::{KeyQuery, Store};
use windlass::{Failure, QueueName};

use super::places::{Kind, Places, batch, claim, job, moved, open};

async fn control(store: &dyn Store, queue: &str, change: Change) {
    let edit = ControlEdit::new(QueueName::new(queue).expect("a name"), change);
    store.control(&edit, None).await.expect("controlled");
}

/// How each key of a queue stands, by name. What waits is not told: after a move it has yet to be sorted.
async fn keys(store: &dyn Store, queue: &str) -> Vec<(String, u32, bool, KeyState)> {
    let keys = store.keys(&KeyQuery::new(QueueName::new(queue).expect("a name"))).await.expect("keys").items;
    keys.into_iter().map(|key| (key.key, key.running, key.own_limit, key.state)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_holds_and_halted_keys_go_along_from_file_to_file() {
    let places = Places::new();
    let (from_url, to_url) = (places.fresh(Kind::Sqlite), places.fresh(Kind::Sqlite));
    let source = open(&from_url).await;
    let put = |control| Change::Put { control, version: None, from_code: false };
    control(&*source, "mail", put(Control::new().running(3).each_key(Limit::running(1)).fair())).await;
    control(&*source, "mail", Change::PutKey { key: "acme".to_owned(), limit: Limit::running(2).weight(3) }).await;
    let hold = Change::Hold { gate: GateName::Key("held".to_owned()), time: Some(Duration::from_secs(3600)) };
    control(&*source, "mail", hold).await;
    control(&*source, "accounts", put(Control::new().ordered(AfterFailure::Halt))).await;
    for key in ["acme", "acme", "acme", "beta", "beta", "held"] {
        source.insert(batch(vec![job("mail").key(key)])).await.expect("insert");
        source.insert(batch(vec![job("accounts").key(key)])).await.expect("insert");
    }
    let running = claim(&*source, "mail", 10).await;
    assert_eq!(running.len(), 3, "two of acme, one of beta");
    let first = claim(&*source, "accounts", 1).await.remove(0);
    let failed = first.lease.fail(Failure::permanent("broken", "it broke"), &mut || 0.5);
    source.settle(&[failed]).await.expect("settled");
    let before = (keys(&*source, "mail").await, keys(&*source, "accounts").await.remove(0));

    moved(&from_url, &to_url).await;
    let target = open(&to_url).await;

    assert!(claim(&*target, "mail", 10).await.is_empty(), "as many run as may");
    assert_eq!((keys(&*target, "mail").await, keys(&*target, "accounts").await.remove(0)), before);
    for claimed in running {
        target.settle(&[claimed.lease.complete(None)]).await.expect("settled");
    }
    let next = claim(&*target, "mail", 10).await;
    let mut next: Vec<String> = next.iter().filter_map(|one| one.job.spec.options.key.clone()).collect();
    next.sort();
    assert_eq!(next, ["acme", "beta"], "and not what is held");
    let next = claim(&*target, "accounts", 10).await;
    let mut next: Vec<String> = next.iter().filter_map(|one| one.job.spec.options.key.clone()).collect();
    next.sort();
    assert_eq!(next, ["beta", "held"], "acme is halted");
    assert_eq!(target.check().await.expect("check"), Vec::<String>::new());
}
