//! Flow control that goes along with a move.

use std::time::Duration;

use windlass::flow::{AfterFailure, Change, Control, ControlEdit, GateName, KeyState, Limit, Rate};
use windlass::store::{KeyQuery, Store};
use windlass::{Failure, JobType, QueueName};

use super::places::{Kind, PAIRS, Places, batch, claim, job, moved, open};

async fn control(store: &dyn Store, queue: &str, change: Change) {
    let edit = ControlEdit::new(QueueName::new(queue).expect("a name"), change);
    store.control(&edit, None).await.expect("controlled");
}

/// How each key of a queue stands, by name: what waits, at the door or sorted, and what runs of it.
async fn keys(store: &dyn Store, queue: &str) -> Vec<(String, u64, u32, bool, KeyState)> {
    let keys = store.keys(&KeyQuery::new(QueueName::new(queue).expect("a name"))).await.expect("keys").items;
    keys.into_iter().map(|key| (key.key, key.waiting, key.running, key.own_limit, key.state)).collect()
}

fn keys_of(claimed: &[windlass::store::Claimed]) -> Vec<String> {
    let mut keys: Vec<String> = claimed.iter().filter_map(|one| one.job.spec.options.key.clone()).collect();
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_rates_holds_turns_and_halted_keys_go_along() {
    for (from, to) in PAIRS {
        goes_along(from, to).await;
    }
}

async fn goes_along(from: Kind, to: Kind) {
    let places = Places::new();
    let (from_url, to_url) = (places.fresh(from), places.fresh(to));
    let source = open(&from_url).await;
    let put = |control| Change::Put { control, version: None, from_code: false };
    control(&*source, "mail", put(Control::new().running(3).each_key(Limit::running(1)).fair())).await;
    control(&*source, "mail", Change::PutKey { key: "acme".to_owned(), limit: Limit::running(2).weight(3) }).await;
    let hold = |gate| Change::Hold { gate, time: Some(Duration::from_secs(3600)) };
    control(&*source, "mail", hold(GateName::Key("held".to_owned()))).await;
    control(&*source, "accounts", put(Control::new().ordered(AfterFailure::Halt))).await;
    // One start an hour of the queue, of a type, and of each key; and a queue that is held.
    let (hourly, of_test) = (Rate::per_hour(1), JobType::new("test").expect("a name"));
    control(&*source, "rated", put(Control::new().rate(hourly))).await;
    control(&*source, "typed", put(Control::new().of_type(of_test, Limit::rated(hourly)))).await;
    control(&*source, "keyed", put(Control::new().each_key(Limit::rated(hourly)))).await;
    control(&*source, "closed", put(Control::new().running(9))).await;
    control(&*source, "closed", hold(GateName::Queue)).await;
    control(&*source, "turns", put(Control::new().fair())).await;
    for key in ["acme", "acme", "acme", "beta", "beta", "held"] {
        source.insert(batch(vec![job("mail").key(key)])).await.expect("insert");
        source.insert(batch(vec![job("accounts").key(key)])).await.expect("insert");
    }
    for queue in ["rated", "typed", "keyed", "closed"] {
        source.insert(batch(vec![job(queue).key("a"), job(queue).key("a")])).await.expect("insert");
    }
    for queue in ["rated", "typed", "keyed"] {
        assert_eq!(claim(&*source, queue, 10).await.len(), 1, "{queue}: one an hour");
    }
    // The key a is behind b by a turn, though its jobs are younger.
    for key in ["b", "a", "", ""] {
        let jobs = if key.is_empty() { 0 } else { 6 };
        for _ in 0..jobs {
            source.insert(batch(vec![job("turns").key(key)])).await.expect("insert");
        }
        let served = claim(&*source, "turns", 1).await;
        assert_eq!(keys_of(&served), [if key == "a" { "a" } else { "b" }]);
        for claimed in served {
            source.settle(&[claimed.lease.complete(None)]).await.expect("settled");
        }
    }
    let running = claim(&*source, "mail", 10).await;
    assert_eq!(running.len(), 3, "two of acme, one of beta");
    let first = claim(&*source, "accounts", 1).await.remove(0);
    let failed = first.lease.fail(Failure::permanent("broken", "it broke"), &mut || 0.5);
    source.settle(&[failed]).await.expect("settled");
    // What the end of a lease left behind is taken in, so that keys stand as the next claim sees them.
    assert!(claim(&*source, "mail", 10).await.is_empty());
    let before = (keys(&*source, "mail").await, keys(&*source, "accounts").await.remove(0));

    moved(&from_url, &to_url).await;
    let target = open(&to_url).await;

    assert_eq!((keys(&*target, "mail").await, keys(&*target, "accounts").await.remove(0)), before, "{from:?} {to:?}");
    assert!(claim(&*target, "mail", 10).await.is_empty(), "as many run as may");
    assert_eq!((keys(&*target, "mail").await, keys(&*target, "accounts").await.remove(0)), before, "{from:?} {to:?}");
    for queue in ["rated", "typed", "keyed", "closed"] {
        assert!(claim(&*target, queue, 10).await.is_empty(), "{queue} from {from:?} to {to:?}");
    }
    assert_eq!(keys_of(&claim(&*target, "turns", 1).await), ["a"], "its turn, from {from:?} to {to:?}");
    for claimed in running {
        target.settle(&[claimed.lease.complete(None)]).await.expect("settled");
    }
    assert_eq!(keys_of(&claim(&*target, "mail", 10).await), ["acme", "beta"], "and not what is held");
    assert_eq!(keys_of(&claim(&*target, "accounts", 10).await), ["beta", "held"], "acme is halted");
    assert_eq!(target.check().await.expect("check"), Vec::<String>::new());
}
