use windlass::job::{Scope, WorkerId};
use windlass::store::{MemoryStore, ServedQueue};
use windlass::{Client, JobType, NewJob, Payload, Policies};

use super::*;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

/// A store with a job in `mail` and one in `pay`, and a client of it that is bound to `mail`.
async fn bound(hides: bool) -> (Client, Client, [JobId; 2]) {
    let whole = Client::in_memory();
    let mut ids = Vec::new();
    for name in ["mail", "pay"] {
        let job = NewJob::new("t", Payload::default()).queue(name).callback_url("https://hooks.example/x?key=s3cret");
        ids.push(whole.enqueue(job.idempotency_key(format!("order-7-{name}"))).await.expect("enqueue").id);
    }
    let bounds = Bounds { queues: vec![queue("mail")], types: Vec::new() };
    let seen = Bound { inner: Arc::clone(whole.store()), bounds, hides };
    (Client::with_store(Arc::new(seen)), whole, [ids[0], ids[1]])
}

fn is_unauthorized<T: std::fmt::Debug>(answer: Result<T>) -> bool {
    answer.is_err_and(|error| error.name() == "Unauthorized")
}

#[tokio::test]
async fn m17_a_bound_token_sees_and_touches_no_job_of_another_queue() {
    let (client, whole, [own, other]) = bound(false).await;
    let store = client.store();
    assert!(store.find(&[own, other]).await.expect("found").iter().map(Option::is_some).eq([true, false]));
    for refused in
        [store.attempts(other).await.map(drop), store.logs(other).await.map(drop), store.explain(other).await.map(drop)]
    {
        assert_eq!(refused.expect_err("not there").name(), "NotFound");
    }
    let all = client.list(Filter::default(), 10, None).await.expect("a list");
    assert_eq!(all.items.iter().map(|job| job.id).collect::<Vec<_>>(), [own]);
    let pay = Filter::new().queue(queue("pay"));
    assert!(is_unauthorized(client.list(pay.clone(), 10, None).await));
    assert!(is_unauthorized(store.count(&pay, 10, 10).await));
    assert_eq!(store.count(&Filter::default(), 10, 10).await.expect("a count").count, 1);
    assert_eq!(store.queues().await.expect("queues").len(), 1);
    assert!(is_unauthorized(store.control(&ControlEdit::pause(queue("pay"), true), None).await));
    let cancel =
        |target| Operation { target, act: Act::Cancel { force: false }, by: None, why: String::new(), dry_run: false };
    assert!(store.operate(&cancel(Target::Jobs(vec![other]))).await.is_err());
    let matching = Target::Matching { filter: Filter::default(), limit: 10, after: None };
    assert_eq!(store.operate(&cancel(matching)).await.expect("cancelled").changed, 1);
    assert_eq!(whole.job(other).await.expect("a job").state, windlass::State::Scheduled);
}

#[tokio::test]
async fn m17_a_bound_token_enqueues_and_claims_only_what_it_is_for() {
    let (client, _, _) = bound(false).await;
    assert!(is_unauthorized(client.enqueue(NewJob::new("t", Payload::default()).queue("pay")).await));
    assert!(client.enqueue(NewJob::new("t", Payload::default()).queue("mail")).await.is_ok());
    let worker = WorkerId::new("w").expect("a name");
    let claim = |name| ClaimRequest::new(worker.clone(), queue(name), 10);
    assert!(is_unauthorized(client.store().claim(&claim("pay")).await));
    assert_eq!(client.store().claim(&claim("mail")).await.expect("claimed").len(), 2);
}

#[tokio::test]
async fn a_token_that_is_bound_to_nothing_sees_everything() {
    let (_, whole, [own, _]) = bound(false).await;
    let free = Bound { inner: Arc::clone(whole.store()), bounds: Bounds::default(), hides: false };
    assert!(Store::acts(&free, None, 10).await.is_ok());
    assert!(Store::workflows(&free, &WorkflowQuery::Newest { limit: 10, after: None }).await.is_ok());
    assert_eq!(Store::queues(&free).await.expect("queues").len(), 2);
    assert_eq!(Store::count(&free, &Filter::default(), 10, 10).await.expect("a count").count, 2);
    assert!(Store::attempts(&free, own).await.is_ok() && Store::logs(&free, own).await.is_ok());
    let (bound, _, _) = bound(false).await;
    assert!(is_unauthorized(bound.store().acts(None, 10).await));
    assert!(is_unauthorized(bound.store().workflows(&WorkflowQuery::Newest { limit: 10, after: None }).await));
}

#[tokio::test]
async fn m17_a_token_for_types_claims_no_other() {
    let whole = Client::in_memory();
    for job_type in ["a", "b"] {
        whole.enqueue(NewJob::new(job_type, Payload::default())).await.expect("enqueue");
    }
    let bounds = Bounds { queues: Vec::new(), types: vec![JobType::new("a").expect("a name")] };
    let seen = Bound { inner: Arc::clone(whole.store()), bounds, hides: false };
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 10);
    let claimed = Store::claim(&seen, &request).await.expect("claimed");
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].job.spec.job_type.as_str(), "a");
}

#[tokio::test]
async fn m17_the_systems_queues_are_claimed_by_those_who_name_them() {
    let (store, worker) = (Arc::new(MemoryStore::new()), WorkerId::new("w").expect("a name"));
    let request = ClaimRequest::new(worker, queue("windlass.webhooks"), 1);
    let free = Bound { inner: store.clone(), bounds: Bounds::default(), hides: false };
    assert!(is_unauthorized(Store::claim(&free, &request).await));
    let bounds = Bounds { queues: vec![queue("windlass.webhooks")], types: Vec::new() };
    assert!(Store::claim(&Bound { inner: store, bounds, hides: false }, &request).await.is_ok());
}

/// A client that is bound to the type `a`.
fn for_type_a(whole: &Client) -> Bound {
    let bounds = Bounds { queues: Vec::new(), types: vec![JobType::new("a").expect("a name")] };
    Bound { inner: Arc::clone(whole.store()), bounds, hides: false }
}

#[tokio::test]
async fn m17_a_key_reaches_no_job_that_the_token_is_not_for() {
    let (client, whole, [_, other]) = bound(false).await;
    let keyed = |scope| NewJob::new("t", Payload::default()).queue("mail").idempotency("order-7-pay", scope, None);
    for scope in [Scope::Type, Scope::Global] {
        assert!(is_unauthorized(client.enqueue(keyed(scope)).await), "{scope:?}");
        assert_eq!(whole.job(other).await.expect("a job").state, windlass::State::Scheduled);
    }
    assert!(!client.enqueue(keyed(Scope::Queue)).await.expect("its own").existing);
    let of_type = for_type_a(&whole);
    let job = |scope| NewJob::new("a", Payload::default()).idempotency("k", scope, None);
    let of_type = Client::with_store(Arc::new(of_type));
    assert!(is_unauthorized(of_type.enqueue(job(Scope::Queue)).await));
    assert!(of_type.enqueue(job(Scope::Type)).await.is_ok());
}

#[tokio::test]
async fn m17_a_bound_token_learns_nothing_of_the_workers_of_others() {
    let (client, whole, _) = bound(false).await;
    let report = |name: &str, queues: &[&str]| WorkerReport {
        id: WorkerId::new(name).expect("a name"),
        host: "host".to_owned(),
        queues: queues.iter().map(|name| ServedQueue { queue: queue(name), slots: 1, busy: 0 }).collect(),
        types: None,
    };
    whole.store().announce(&report("both", &["mail", "pay"])).await.expect("announced");
    whole.store().announce(&report("other", &["pay"])).await.expect("announced");
    let seen = client.store().workers().await.expect("workers");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].queues.iter().map(|served| served.queue.as_str()).collect::<Vec<_>>(), ["mail"]);
    assert!(is_unauthorized(client.store().announce(&report("liar", &["pay"])).await));
    assert!(client.store().announce(&report("own", &["mail"])).await.is_ok());
    let of_type = for_type_a(&whole);
    Store::announce(&of_type, &report("typed", &["pay"])).await.expect("announced");
    let typed =
        whole.store().workers().await.expect("workers").into_iter().find(|worker| worker.id.as_str() == "typed");
    assert_eq!(typed.and_then(|worker| worker.types).map(|types| types.len()), Some(1), "it serves no other type");
}

#[tokio::test]
async fn m17_a_bound_token_stops_no_worker_that_serves_others() {
    let (client, whole, _) = bound(false).await;
    for (name, queues) in [("own", &["mail"][..]), ("both", &["mail", "pay"]), ("other", &["pay"])] {
        let queues = queues.iter().map(|name| ServedQueue { queue: queue(name), slots: 1, busy: 0 }).collect();
        let id = WorkerId::new(name).expect("a name");
        let report = WorkerReport { id, host: "host".to_owned(), queues, types: None };
        whole.store().announce(&report).await.expect("announced");
    }
    assert!(client.drain_worker("own").await.expect("its own").draining);
    assert!(is_unauthorized(client.drain_worker("both").await));
    let not_there = client.drain_worker("other").await.expect_err("it must not learn of it");
    assert_eq!(
        not_there.to_string(),
        client.drain_worker("nobody").await.expect_err("nobody").to_string().replace("nobody", "other")
    );
    let draining = whole.workers().await.expect("workers").into_iter().filter(|worker| worker.draining);
    assert_eq!(draining.map(|worker| worker.id.to_string()).collect::<Vec<_>>(), ["own"]);
}

#[tokio::test]
async fn m17_a_bound_token_is_woken_for_its_own_queues() {
    let (client, whole, _) = bound(false).await;
    let mut wakes = client.store().wakes();
    let report = WorkerReport {
        id: WorkerId::new("other").expect("a name"),
        host: "host".to_owned(),
        queues: vec![ServedQueue { queue: queue("pay"), slots: 1, busy: 0 }],
        types: None,
    };
    whole.store().announce(&report).await.expect("announced");
    whole.drain_worker("other").await.expect("it lives");
    for name in ["pay", "mail"] {
        whole.enqueue(NewJob::new("t", Payload::default()).queue(name)).await.expect("enqueue");
    }
    assert_eq!(wakes.recv().await.expect("a wake"), Wake::Scheduled(queue("mail")));
}

#[tokio::test]
async fn m17_a_token_for_types_sees_no_numbers_of_others() {
    let whole = Client::in_memory();
    for (name, job_type) in [("mail", "a"), ("mail", "b"), ("pay", "b")] {
        whole.enqueue(NewJob::new(job_type, Payload::default()).queue(name)).await.expect("enqueue");
    }
    let seen = for_type_a(&whole);
    let queues = Store::queues(&seen).await.expect("queues");
    assert_eq!(queues.iter().map(|queue| queue.states.iter().sum::<u64>()).collect::<Vec<_>>(), [1]);
    assert!(is_unauthorized(Store::keys(&seen, &KeyQuery::new(queue("mail"))).await));
    assert!(is_unauthorized(Store::controlled(&seen, &queue("mail")).await));
}

#[tokio::test]
async fn m17_a_bound_token_does_nothing_to_the_whole_store() {
    let (client, _, [own, _]) = bound(false).await;
    let store = client.store();
    assert!(is_unauthorized(store.upkeep(&Upkeep::default()).await));
    assert!(is_unauthorized(store.check().await));
    let options = windlass::job::RequeueOptions { with_dependents: true, ..Default::default() };
    let (target, act) = (Target::Jobs(vec![own]), Act::Requeue(options));
    let requeue = Operation { target, act, by: None, why: String::new(), dry_run: true };
    assert!(is_unauthorized(store.operate(&requeue).await));
    let policies = Policies::default().queue(queue("pay"), Default::default()).queue(queue("mail"), Default::default());
    let bounds = Bounds { queues: vec![queue("mail")], types: Vec::new() };
    assert_eq!(bounds.policies(&policies).of_queues().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["mail"]);
}

#[tokio::test]
async fn l2_words_of_handlers_and_of_acts_are_hidden_too() {
    let (_, whole, [own, _]) = bound(false).await;
    let free = Bound { inner: Arc::clone(whole.store()), bounds: Bounds::default(), hides: true };
    let filter = Filter::new().key("order-7-mail");
    let matching = Target::Matching { filter, limit: 10, after: None };
    let (act, why) = (Act::Cancel { force: false }, "card 4111".to_owned());
    whole.store().operate(&Operation { target: matching, act, by: None, why, dry_run: false }).await.expect("done");
    let seen = Client::with_store(Arc::new(free));
    let told = format!(
        "{:?} {:?} {:?}",
        seen.job(own).await.expect("a job"),
        seen.store().explain(own).await.expect("explained"),
        seen.store().acts(None, 10).await.expect("acts")
    );
    assert!(told.contains("Cancelled") && told.contains(HIDDEN), "{told}");
    assert!(!told.contains("4111") && !told.contains("order-7"), "{told}");
}

#[tokio::test]
async fn l2_what_may_hold_pieces_of_a_payload_is_hidden_too() {
    let (client, whole, [own, _]) = bound(true).await;
    let worker = WorkerId::new("w").expect("a name");
    let claimed = whole.store().claim(&ClaimRequest::new(worker, queue("mail"), 1)).await.expect("claimed").remove(0);
    let progress = windlass::job::Progress::new(0.5, "card 4111").expect("progress");
    let save = windlass::store::Save::under(claimed.lease.key()).progress(progress).log(["card 4111".to_owned()]);
    whole.store().save(&[save]).await.expect("saved")[0].as_ref().expect("fenced");
    let failure = windlass::Failure::permanent("declined", "card 4111 was declined");
    whole.store().settle(&[claimed.lease.fail(failure, &mut || 0.5)]).await.expect("settled");
    let seen = client.job(own).await.expect("a job");
    assert_eq!(seen.failure.as_ref().and_then(|failure| failure.code.as_deref()), Some("declined"));
    assert_eq!(seen.spec.options.callback_url.as_deref(), Some("https://hooks.example/"));
    let told = format!("{seen:?} {:?}", client.store().attempts(own).await.expect("attempts"));
    assert!(!told.contains("4111") && !told.contains("s3cret") && !told.contains("order-7"), "{told}");
    assert!(is_unauthorized(client.store().logs(own).await));
}

#[tokio::test]
async fn l2_the_callback_of_a_schedule_is_hidden_too() {
    let (client, whole, _) = bound(true).await;
    let job = NewJob::new("t", Payload::default()).queue("mail").callback_url("https://hooks.example/x?key=s3cret");
    let hourly = windlass::Schedule::every("hourly", std::time::Duration::from_secs(3600), job).expect("valid");
    whole.put_schedule(&hourly).await.expect("stored");
    let free = Bound { inner: Arc::clone(whole.store()), bounds: Bounds::default(), hides: true };
    for seen in [client.store().schedules(None, 10).await, Store::schedules(&free, None, 10).await] {
        let seen = seen.expect("schedules");
        assert_eq!(seen[0].spec.job.options.callback_url.as_deref(), Some("https://hooks.example/"));
    }
}
