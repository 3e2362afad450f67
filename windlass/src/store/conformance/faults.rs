//! Section 11 of the contract: what failed, grouped (O1), and the filters that name groups and freeze sets (O1, O2).

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, worker};
use super::moves::{in_states, named, queue, requeue};
use crate::job::{Category, Failure, Fingerprint, JobId, Scope, State};
use crate::store::{
    Act, ClaimRequest, FAULT_JOBS_MAX, FaultGroup, FaultQuery, Filter, ListQuery, Order, Settled, Target,
};

chapter! {
    o1_dead_jobs_are_grouped_by_what_they_died_of,
    o1_every_way_to_die_has_a_fault,
    o1_a_group_says_when_and_how_often,
    o1_groups_can_be_narrowed_to_a_queue_or_type,
    o1_groups_go_on_where_a_page_ended,
    o1_a_large_group_is_counted_to_its_cap,
    o1_failures_that_are_tried_again_are_groups_of_their_own,
    o1_a_fault_is_a_filter,
    o1_jobs_are_found_by_worker_key_and_text,
    o1_text_is_found_in_payloads,
    o1_text_is_found_however_it_is_written,
    o1_jobs_are_found_by_their_end,
    o1_ended_jobs_are_listed_last_ended_first,
    o1_waiting_jobs_are_listed_soonest_first,
    o1_next_up_is_the_order_of_claims,
    o1_an_order_needs_the_jobs_that_have_it,
    o2_a_requeue_of_a_group_leaves_the_others,
    o2_a_frozen_set_gains_no_job,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

impl Bench {
    /// All groups, a page of 100 at a time.
    async fn groups(&self, query: FaultQuery) -> Vec<FaultGroup> {
        let (mut groups, mut query) = (Vec::new(), FaultQuery { limit: 100, ..query });
        loop {
            let page = self.store.faults(&query).await.expect("faults");
            groups.extend(page.items);
            query.after = page.next;
            if query.after.is_none() {
                return groups;
            }
        }
    }

    /// The group of a job that died.
    async fn group_of(&self, id: JobId) -> FaultGroup {
        let fault = self.job(id).await.fault().expect("it died of something");
        let groups = self.groups(FaultQuery::default()).await;
        groups.into_iter().find(|group| group.fingerprint == fault).expect("each fault has a group")
    }

    /// A job of a type that fails for good with these words.
    async fn dies(&self, name: &str, in_queue: &str, failure: Failure) -> JobId {
        let id = self.enqueue(named(name).queue(in_queue).max_attempts(1)).await;
        let claimed = self.claim_from(in_queue, 1).await.remove(0);
        assert_eq!(claimed.job.id, id);
        self.apply(claimed.lease.fail(failure, &mut || 0.5)).await;
        id
    }
}

fn by_fault(fingerprint: Option<Fingerprint>) -> Filter {
    Filter { fingerprint, ..Filter::default() }
}

async fn o1_dead_jobs_are_grouped_by_what_they_died_of(bench: Bench) {
    for user in [7, 42, 4711] {
        bench.dies("mail", "default", Failure::temporary(format!("user {user} is unknown"))).await;
        bench.dies("mail", "default", Failure::permanent("bounce", format!("box of {user} is full"))).await;
    }
    let last = bench.dies("post", "default", Failure::temporary("user 8 is unknown")).await;
    for state in [State::Completed, State::Cancelled, State::Retrying] {
        bench.in_state(state).await;
    }
    let mut groups = bench.groups(FaultQuery::default()).await;
    assert!(groups.is_sorted_by_key(|group| group.fingerprint), "in the order of fingerprints");
    groups.sort_by(|one, other| (&one.job_type, &one.code).cmp(&(&other.job_type, &other.code)));
    let told: Vec<_> = groups
        .iter()
        .map(|group| {
            (group.job_type.as_str(), group.code.as_deref(), group.pattern.as_str(), group.count, group.capped)
        })
        .collect();
    let expected = [
        ("mail", None, "user <n> is unknown", 3, false),
        ("mail", Some("bounce"), "box of <n> is full", 3, false),
        ("post", None, "user <n> is unknown", 1, false),
    ];
    assert_eq!(told, expected);
    assert_eq!((groups[1].category, groups[2].category), (Category::Permanent, Category::Temporary));
    assert_eq!(groups[2].sample, [last]);
}

async fn o1_every_way_to_die_has_a_fault(bench: Bench) {
    // A worker's word, an attempt too many, a lost lease, the end of a lifetime, an operator, and a dependency.
    let failed = bench.in_state(State::Failed).await;
    let exhausted = bench.in_state(State::DeadLetter).await;
    let lost = bench.running(job().max_attempts(1)).await.job.id;
    bench.pass(LEASE).await;
    let outlived = bench.enqueue(job().lifetime(SECOND)).await;
    bench.pass(SECOND).await;
    let operated = bench.enqueue(job()).await;
    bench.act(operated, Act::DeadLetter).await;
    let parent = bench.enqueue(job()).await;
    let child = bench.enqueue(job().after([parent])).await;
    bench.act(parent, Act::DeadLetter).await;
    bench.act(failed, Act::DeadLetter).await;
    let codes = [
        (failed, Some("broken"), 1),
        (exhausted, None, 1),
        (lost, Some("lease_expired"), 1),
        (outlived, Some("lifetime"), 1),
        (operated, Some("operator"), 2),
        (child, Some("dependency"), 1),
    ];
    for (id, code, count) in codes {
        let group = bench.group_of(id).await;
        assert_eq!((group.code.as_deref(), group.count), (code, count));
        assert!(bench.ids(&by_fault(Some(group.fingerprint))).await.contains(&id), "{code:?}");
    }
    bench.assert_sound().await;
}

async fn o1_a_group_says_when_and_how_often(bench: Bench) {
    let broken = || Failure::permanent("broken", "it is broken");
    let first = bench.now();
    let mut ids = vec![bench.dies("test", "default", broken()).await];
    bench.advance(3 * HOUR);
    ids.push(bench.dies("test", "other", broken()).await);
    ids.push(bench.dies("test", "default", broken()).await);
    bench.advance(5 * 60 * SECOND);
    ids.push(bench.dies("test", "default", broken()).await);
    let last = bench.now();
    bench.advance(6 * 60 * SECOND);
    let group = bench.group_of(ids[0]).await;
    assert_eq!((group.count, group.recent, group.first_at, group.last_at), (4, 1, first, last));
    assert_eq!(group.trend, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3]);
    assert_eq!(group.sample, [ids[3], ids[2], ids[1]], "the newest three, newest first");
    assert_eq!(group.queues, [queue("default"), queue("other")]);
    bench.advance(24 * HOUR);
    let group = bench.group_of(ids[0]).await;
    assert_eq!((group.count, group.recent, group.trend), (4, 0, [0; 12]), "what is older than a day is in no trend");
}

async fn o1_groups_can_be_narrowed_to_a_queue_or_type(bench: Bench) {
    for (name, in_queue) in [("a", "one"), ("a", "two"), ("b", "two")] {
        bench.dies(name, in_queue, Failure::permanent("broken", "words")).await;
    }
    let narrowed = async |name: Option<&str>, in_queue: Option<&str>| {
        let query = FaultQuery {
            queue: in_queue.map(queue),
            job_type: name.map(super::moves::job_type),
            ..FaultQuery::default()
        };
        let groups = bench.groups(query).await;
        let mut told: Vec<_> = groups.iter().map(|group| (group.job_type.to_string(), group.count)).collect();
        told.sort();
        told
    };
    assert_eq!(narrowed(None, None).await, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    assert_eq!(narrowed(None, Some("two")).await, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!(narrowed(Some("a"), None).await, [("a".to_owned(), 2)]);
    assert_eq!(narrowed(Some("b"), Some("one")).await, []);
    assert_eq!(narrowed(None, Some("nowhere")).await, []);
}

async fn o1_groups_go_on_where_a_page_ended(bench: Bench) {
    for code in ["a", "b", "c", "d", "e"] {
        bench.dies("test", "default", Failure::permanent(code, "words")).await;
    }
    let all = bench.groups(FaultQuery::default()).await;
    let (mut query, mut seen) = (FaultQuery { limit: 2, ..FaultQuery::default() }, Vec::new());
    loop {
        let page = bench.store.faults(&query).await.expect("faults");
        assert!(page.items.len() <= 2);
        seen.extend(page.items);
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!((seen.len(), &seen), (5, &all));
    let stray = FaultQuery { after: Some(crate::store::Cursor("stray".to_owned())), limit: 2, ..FaultQuery::default() };
    let refused = bench.store.faults(&stray).await.expect_err("no cursor of this list");
    assert!(matches!(refused, crate::Error::InvalidArgument { .. }), "{refused:?}");
}

async fn o1_failures_that_are_tried_again_are_groups_of_their_own(bench: Bench) {
    let fails = async |name: &str, in_queue: &str, failure: Failure| {
        let id = bench.enqueue(named(name).queue(in_queue)).await;
        let claimed = bench.claim_from(in_queue, 1).await.remove(0);
        assert_eq!(claimed.job.id, id);
        bench.apply(claimed.lease.fail(failure, &mut || 0.5)).await;
        id
    };
    for number in 0..3 {
        fails("a", "one", Failure::temporary(format!("host {number} is away"))).await;
    }
    let other = fails("b", "two", Failure::temporary("no room").with_code("full")).await;
    // Neither dead jobs nor those that only wait are among them.
    bench.dies("a", "one", Failure::permanent("broken", "words")).await;
    bench.enqueue(named("a").queue("one").delay(HOUR)).await;
    let retrying = FaultQuery { retrying: true, ..FaultQuery::default() };
    let told = async |query: FaultQuery| {
        let groups = bench.groups(query).await;
        let mut told: Vec<_> = groups.into_iter().map(|group| (group.pattern, group.count, group.capped)).collect();
        told.sort();
        told
    };
    let (away, full) = (("host <n> is away".to_owned(), 3, false), ("no room".to_owned(), 1, false));
    assert_eq!(told(retrying.clone()).await, [away.clone(), full.clone()]);
    assert_eq!(told(FaultQuery { queue: Some(queue("two")), ..retrying.clone() }).await, [full]);
    assert_eq!(bench.groups(FaultQuery::default()).await.len(), 1);
    let one = FaultQuery { limit: 1, ..retrying.clone() };
    let first = bench.store.faults(&one).await.expect("faults");
    let second = bench.store.faults(&FaultQuery { after: first.next.clone(), ..one }).await.expect("faults");
    assert_eq!((first.items.len(), first.next.is_some(), second.items.len(), second.next), (1, true, 1, None));
    // Due again, they are tried again no more: they are ready.
    bench.advance(HOUR * 2);
    assert_eq!(told(retrying).await, []);
    assert_eq!(bench.job(other).await.state, State::Scheduled);
}

async fn o1_a_large_group_is_counted_to_its_cap(bench: Bench) {
    let jobs = FAULT_JOBS_MAX + 1;
    bench.insert(vec![job().max_attempts(1); jobs]).await;
    let request = ClaimRequest { lease_time: Some(LEASE), ..ClaimRequest::new(worker("w1"), queue("default"), jobs) };
    let claimed = bench.store.claim(&request).await.expect("claim");
    let settlements: Vec<_> = claimed
        .into_iter()
        .map(|claimed| claimed.lease.fail(Failure::permanent("broken", "words"), &mut || 0.5))
        .collect();
    let settled = bench.store.settle(&settlements[1..]).await.expect("settle");
    assert!(settled.iter().all(|settled| matches!(settled, Settled::Applied(State::Failed))));
    let groups = bench.groups(FaultQuery::default()).await;
    assert_eq!((groups.len(), groups[0].count, groups[0].capped), (1, FAULT_JOBS_MAX as u64, false));
    bench.store.settle(&settlements[..1]).await.expect("settle");
    let groups = bench.groups(FaultQuery::default()).await;
    assert_eq!((groups.len(), groups[0].count, groups[0].capped), (1, FAULT_JOBS_MAX as u64, true));
}

async fn o1_a_fault_is_a_filter(bench: Bench) {
    let one = bench.dies("test", "default", Failure::permanent("one", "words")).await;
    let other = bench.dies("test", "default", Failure::permanent("other", "words")).await;
    let again = bench.dies("test", "default", Failure::dead_letter("one", "words")).await;
    let fault = bench.job(one).await.fault();
    assert_ne!(fault, bench.job(other).await.fault());
    assert_eq!(bench.ids(&by_fault(fault)).await, [again, one], "newest first");
    assert_eq!(bench.count(&by_fault(fault), 100).await, 2);
    let dead = Filter { states: vec![State::DeadLetter], ..by_fault(fault) };
    assert_eq!(bench.ids(&dead).await, [again]);
    let running = Filter { states: vec![State::Running], ..by_fault(fault) };
    assert!(bench.ids(&running).await.is_empty());
    let nothing = Fingerprint::from_number(1);
    assert!(bench.ids(&by_fault(nothing)).await.is_empty());
}

async fn o1_jobs_are_found_by_worker_key_and_text(bench: Bench) {
    let keyed = bench.enqueue(named("a").idempotency_key("order 1")).await;
    let global = bench.enqueue(named("b").idempotency("order 1", Scope::Global, HOUR)).await;
    bench.enqueue(named("a").idempotency_key("order 2").tag("Customer", "Ada Lovelace")).await;
    let key = |key: &str| Filter { key: Some(key.to_owned()), ..Filter::default() };
    assert_eq!(bench.ids(&key("order 1")).await, [global, keyed], "in every scope");
    assert_eq!(bench.count(&key("order 1"), 100).await, 2);
    assert!(bench.ids(&key("order")).await.is_empty(), "the whole key");
    let claimed = bench.claim(2).await;
    let on = |name: &str| Filter { worker: Some(worker(name)), ..Filter::default() };
    assert_eq!(bench.ids(&on("w1")).await, [global, keyed]);
    assert!(bench.ids(&on("w2")).await.is_empty());
    for claimed in claimed {
        bench.apply(claimed.lease.fail(Failure::permanent("gone", "The Tower is gone"), &mut || 0.5)).await;
    }
    assert!(bench.ids(&on("w1")).await.is_empty(), "of running jobs only");
    let text = |text: &str| Filter { text: Some(text.to_owned()), ..Filter::default() };
    assert_eq!(bench.ids(&text("tower")).await, [global, keyed], "in the failure");
    assert_eq!(bench.ids(&text("ada love")).await.len(), 1, "in a tag");
    bench.pass(2 * HOUR).await;
    assert_eq!(bench.ids(&key("order 1")).await, [keyed], "a key whose window is over stands for nothing");
}

async fn o1_text_is_found_in_payloads(bench: Bench) {
    let paid = bench.enqueue(super::bench::job().queue("pay")).await;
    let full = crate::job::NewJob::new("pay", super::moves::text("Invoice 7: 12 EUR"));
    let invoice = bench.enqueue(full).await;
    let text = Filter { text: Some("invoice 7".to_owned()), ..Filter::default() };
    assert_eq!(bench.ids(&text).await, [invoice], "not {paid}");
}

async fn o1_text_is_found_however_it_is_written(bench: Bench) {
    let said = r#"Die "Straße" \ 7 – ÄÖ"#;
    let payload = bench
        .enqueue(crate::job::NewJob::new(
            "t",
            crate::job::Payload::bytes("text/plain", said.as_bytes().to_vec()).expect("a payload"),
        ))
        .await;
    let tagged = bench.enqueue(super::bench::job().tag("place", said)).await;
    let failed = bench.enqueue(super::bench::job().max_attempts(1)).await;
    let other = bench.enqueue(super::bench::job().tag("place", "Strasse")).await;
    for claimed in bench.claim(4).await {
        if claimed.job.id == failed {
            bench.apply(claimed.lease.fail(Failure::permanent("gone", said), &mut || 0.5)).await;
        } else {
            bench.complete(claimed.lease).await;
        }
    }
    for wanted in ["straße", r#""Straße""#, r"\ 7", "7 – Ä", "– ÄÖ", said, r#"DIE ""#] {
        let filter = Filter { text: Some(wanted.to_owned()), ..Filter::default() };
        assert_eq!(bench.ids(&filter).await, [failed, tagged, payload], "{wanted:?}");
        assert_eq!(bench.count(&filter, 100).await, 3, "{wanted:?}");
    }
    for wanted in ["äö", r"\n", r#"\""#, r"303\237", "\u{0}", "%", "_"] {
        let filter = Filter { text: Some(wanted.to_owned()), ..Filter::default() };
        assert!(bench.ids(&filter).await.is_empty(), "{wanted:?}");
    }
    let filter = Filter { text: Some("rasse".to_owned()), ..Filter::default() };
    assert_eq!(bench.ids(&filter).await, [other]);
}

async fn o1_jobs_are_found_by_their_end(bench: Bench) {
    let early = bench.in_state(State::Completed).await;
    bench.advance(SECOND);
    let (late, at) = (bench.in_state(State::Completed).await, bench.now());
    bench.in_state(State::Scheduled).await;
    let since = |at| Filter { ended_from: Some(at), ..Filter::default() };
    assert_eq!(bench.ids(&since(at)).await, [late]);
    assert_eq!(bench.ids(&since(at.minus(SECOND))).await, [late, early]);
    assert!(bench.ids(&since(at.plus(SECOND))).await.is_empty());
}

impl Bench {
    /// All jobs of an order, two at a time.
    async fn in_order(&self, order: Order, filter: Filter) -> Vec<JobId> {
        let mut query = ListQuery { order, ..ListQuery::new(filter, 2) };
        let mut ids = Vec::new();
        loop {
            let page = self.store.list(&query).await.expect("list");
            assert!(page.items.len() <= 2);
            ids.extend(page.items.iter().map(|job| job.id));
            query.after = page.next;
            if query.after.is_none() {
                return ids;
            }
        }
    }
}

async fn o1_ended_jobs_are_listed_last_ended_first(bench: Bench) {
    let jobs: Vec<JobId> = bench.insert(vec![job(); 5]).await.iter().map(|job| job.id).collect();
    let mut claimed: Vec<_> = bench.claim(5).await.into_iter().map(Some).collect();
    for place in [3, 0, 4, 1, 2] {
        bench.advance(SECOND);
        let claimed = claimed[place].take().expect("each ends once");
        assert_eq!(claimed.job.id, jobs[place]);
        bench.complete(claimed.lease).await;
    }
    bench.in_state(State::Failed).await;
    let expected: Vec<JobId> = [2, 1, 4, 0, 3].map(|place| jobs[place]).to_vec();
    assert_eq!(bench.in_order(Order::Ended, in_states(&[State::Completed])).await, expected);
    let other = Filter { queue: Some(queue("other")), ..in_states(&[State::Completed]) };
    assert!(bench.in_order(Order::Ended, other).await.is_empty());
}

async fn o1_waiting_jobs_are_listed_soonest_first(bench: Bench) {
    let mut delayed = Vec::new();
    for (hours, name) in [(5, "a"), (1, "b"), (3, "a"), (2, "b")] {
        delayed.push(bench.enqueue(named(name).delay(hours * HOUR)).await);
    }
    bench.in_state(State::Scheduled).await;
    let filter = in_states(&[State::Delayed]);
    assert_eq!(bench.in_order(Order::Due, filter.clone()).await, [delayed[1], delayed[3], delayed[2], delayed[0]]);
    bench.advance(2 * HOUR);
    assert_eq!(bench.in_order(Order::Due, filter).await, [delayed[2], delayed[0]], "what is due waits no more");
}

async fn o1_next_up_is_the_order_of_claims(bench: Bench) {
    use crate::job::Priority;
    for (name, priority) in
        [("a", Priority::Normal), ("b", Priority::High), ("a", Priority::Low), ("b", Priority::Normal)]
    {
        bench.enqueue(named(name).priority(priority)).await;
        bench.advance(SECOND);
        bench.enqueue(named(name).priority(priority).delay(SECOND)).await;
    }
    bench.advance(3 * SECOND);
    let urgent = bench.enqueue(named("c").priority(Priority::Critical)).await;
    bench.enqueue(named("a").queue("elsewhere")).await;
    let filter = Filter { queue: Some(queue("default")), ..in_states(&[State::Scheduled]) };
    let shown = bench.in_order(Order::Claim, filter).await;
    assert_eq!((shown.len(), shown[0]), (9, urgent));
    assert_eq!(bench.claim_ids(100).await, shown);
}

async fn o1_an_order_needs_the_jobs_that_have_it(bench: Bench) {
    let in_queue = |filter: Filter| Filter { queue: Some(queue("default")), ..filter };
    for (order, filter) in [
        (Order::Ended, Filter::default()),
        (Order::Ended, in_states(&[State::Scheduled])),
        (Order::Ended, in_states(&[State::Failed, State::DeadLetter])),
        (Order::Due, Filter::default()),
        (Order::Due, in_states(&[State::Delayed, State::Scheduled])),
        (Order::Claim, in_states(&[State::Scheduled])),
        (Order::Claim, in_queue(in_states(&[State::Running]))),
    ] {
        let query = ListQuery { order, ..ListQuery::new(filter, 2) };
        let refused = bench.store.list(&query).await.expect_err("not in this order");
        assert!(matches!(refused, crate::Error::InvalidArgument { .. }), "{refused:?}");
    }
}

async fn o2_a_requeue_of_a_group_leaves_the_others(bench: Bench) {
    let one = bench.dies("test", "default", Failure::permanent("one", "words")).await;
    let other = bench.dies("test", "default", Failure::permanent("other", "words")).await;
    let fault = bench.job(one).await.fault();
    assert_eq!(bench.act_on(by_fault(fault), 10, requeue()).await, 1);
    assert_eq!((bench.state(one).await, bench.state(other).await), (State::Scheduled, State::Failed));
    let groups = bench.groups(FaultQuery::default()).await;
    assert_eq!(groups.iter().map(|group| group.code.as_deref()).collect::<Vec<_>>(), [Some("other")]);
    assert!(bench.ids(&by_fault(fault)).await.is_empty());
}

async fn o2_a_frozen_set_gains_no_job(bench: Bench) {
    let shown = [bench.in_state(State::Failed).await, bench.in_state(State::Failed).await];
    let back = bench.in_state(State::Failed).await;
    bench.advance(SECOND);
    let frozen = Filter { changed_before: Some(bench.now()), ..in_states(&[State::Failed]) };
    let target = Target::Matching { filter: frozen.clone(), limit: 100, after: None };
    assert_eq!(bench.operate(target, requeue(), true).await.changed, 3);
    // One more dies, and one that was shown leaves and comes back.
    let late = bench.in_state(State::Failed).await;
    bench.act(back, requeue()).await;
    let claimed = bench.take(back).await;
    bench.apply(claimed.lease.fail(Failure::permanent("broken", "again"), &mut || 0.5)).await;
    assert_eq!(bench.count(&frozen, 100).await, 2);
    assert_eq!(bench.act_on(frozen, 1, requeue()).await, 2);
    for id in shown {
        assert_eq!(bench.state(id).await, State::Scheduled);
    }
    assert_eq!((bench.state(late).await, bench.state(back).await), (State::Failed, State::Failed));
}
