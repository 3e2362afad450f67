//! Encryption at rest: what the store inside holds, what is seen through it, and keys that change or are missing.

use std::sync::Arc;
use std::time::Duration;

use windlass::job::{SEALED_TYPE, WorkerId};
use windlass::store::{
    ClaimRequest, Claimed, Keyring, ListQuery, MemoryStore, Part, Rewrite, Save, Sealed, Store, UnderKeys,
};
use windlass::{Client, Context, Failure, NewJob, Payload, Schedule, State, Worker};

const OLD: &str = "old:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const NEW: &str = "new:202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

fn keys(text: &str) -> Keyring {
    Keyring::parse(text).expect("keys")
}

fn sealed(store: &Arc<dyn Store>, text: &str) -> Client {
    Client::with_store(Arc::new(Sealed::new(Arc::clone(store), keys(text))))
}

fn data() -> Payload {
    Payload::json("4242 4242").expect("JSON")
}

fn secret() -> NewJob {
    NewJob::new("charge", data())
}

async fn claim(client: &Client) -> Option<Claimed> {
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), Default::default(), 1);
    client.store().claim(&request).await.expect("claim").pop()
}

fn holds(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

#[tokio::test]
async fn the_store_inside_holds_ciphertext_only() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let client = sealed(&inner, NEW);
    let id = client.enqueue(secret()).await.expect("enqueue").id;
    let claimed = claim(&client).await.expect("a job");
    assert_eq!(claimed.job.spec.payload.decode::<String>().expect("opened"), "4242 4242");
    let save = Save::under(claimed.lease.key()).checkpoint("step 4242 4242").expect("small");
    client.store().save(&[save]).await.expect("save")[0].expect("held");
    let child = client.check_job(secret()).expect("valid");
    let settlement = claimed.lease.complete(Some(Payload::bytes("text/plain", "paid 4242 4242").expect("bytes")));
    client.store().settle(&[settlement.spawn(vec![child]).expect("one")]).await.expect("settle");
    let nightly = Schedule::every("nightly", Duration::from_secs(60), secret()).expect("valid");
    client.put_schedule(&nightly).await.expect("stored");

    for job in inner
        .list(&ListQuery { filter: Default::default(), limit: 10, after: None, ..ListQuery::default() })
        .await
        .expect("jobs")
        .items
    {
        assert!(job.spec.payload.is_sealed() && !holds(job.spec.payload.as_bytes(), "4242"), "{job:?}");
        assert!(job.result.is_none_or(|result| result.is_sealed() && !holds(result.as_bytes(), "4242")));
        assert!(job.checkpoint.is_none_or(|checkpoint| !holds(&checkpoint, "4242")));
    }
    let template = inner.schedules(None, 1).await.expect("schedules").remove(0).spec.job.payload;
    assert!(template.is_sealed() && !holds(template.as_bytes(), "4242"));

    let job = client.job(id).await.expect("the job");
    assert_eq!(job.spec.payload, data());
    let result = job.result.expect("a result");
    assert_eq!((result.content_type(), result.as_bytes().as_ref()), ("text/plain", b"paid 4242 4242".as_slice()));
    assert_eq!(job.checkpoint.as_deref(), Some(b"step 4242 4242".as_slice()));
    assert_eq!(claim(&client).await.expect("the child").job.spec.payload, data());
    let fired = client.trigger_schedule("nightly").await.expect("fired");
    assert_eq!(client.job(fired).await.expect("the job").spec.payload, data());
    let same = client.put_schedule(&nightly).await.expect("put again");
    let kept = inner.schedules(None, 1).await.expect("schedules").remove(0).spec.job.payload;
    assert_eq!(kept, template, "a schedule that is put again is stored as it was");
    assert_eq!(same.spec.job.payload, data());
    let cloned = client.clone_job(id).await.expect("cloned").id;
    assert_eq!(client.job(cloned).await.expect("the copy").spec.payload, data());
}

#[tokio::test]
async fn a_known_key_is_compared_by_what_was_sealed() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let keyed = |text: &str| NewJob::new("charge", Payload::json(text).expect("JSON")).idempotency_key("k");
    let before = sealed(&inner, OLD);
    let first = before.enqueue(keyed("a")).await.expect("enqueue");
    let rotated = sealed(&inner, &format!("{NEW}\n{OLD}"));
    for client in [&before, &rotated] {
        let same = client.enqueue(keyed("a")).await.expect("enqueue");
        assert!(same.existing && same.matches && same.id == first.id);
        let other = client.enqueue(keyed("b")).await.expect("enqueue");
        assert!(other.existing && !other.matches && other.id == first.id);
    }
}

#[tokio::test]
async fn keys_are_rotated_while_jobs_wait() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let plain = Client::with_store(Arc::clone(&inner));
    let open = plain.enqueue(secret()).await.expect("enqueue").id;
    let old = sealed(&inner, OLD).enqueue(secret()).await.expect("enqueue").id;
    let rotated = sealed(&inner, &format!("{NEW}\n{OLD}"));
    let new = rotated.enqueue(secret()).await.expect("enqueue").id;
    for id in [open, old, new] {
        let claimed = claim(&rotated).await.expect("a job");
        assert_eq!((claimed.job.id, &claimed.job.spec.payload), (id, &data()));
        rotated.store().settle(&[claimed.lease.complete(Some(Payload::default()))]).await.expect("settle");
        let kept = inner.find(&[id]).await.expect("find").remove(0).expect("the job").result.expect("a result");
        assert!(holds(kept.as_bytes(), "new"), "what is written from now on has the new key");
    }
}

#[tokio::test]
async fn a_missing_or_wrong_key_leaves_the_job_untouched_and_stops_no_other() {
    let wrong = NEW.replace("new:", "old:");
    for keyring in [NEW, wrong.as_str()] {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let theirs = sealed(&inner, OLD).enqueue(secret()).await.expect("enqueue").id;
        let client = sealed(&inner, keyring);
        let own = client.enqueue(secret()).await.expect("enqueue").id;
        let before = inner.find(&[theirs]).await.expect("find").remove(0).expect("the job");
        assert!(claim(&client).await.is_none(), "what does not open is not handed out");
        assert_eq!(claim(&client).await.expect("the next one").job.id, own);
        let after = inner.find(&[theirs]).await.expect("find").remove(0).expect("the job");
        assert_eq!((after.state, after.failures, after.failure), (State::Delayed, 0, None));
        assert_eq!(after.spec.payload, before.spec.payload);
        let shown = client.job(theirs).await.expect("it can be looked at");
        assert!(shown.spec.payload.is_sealed());
        let refused = shown.spec.payload.decode::<String>().expect_err("sealed").to_string();
        assert!(refused.contains(SEALED_TYPE), "{refused}");
    }
}

/// A worker that was started without any key.
#[tokio::test(start_paused = true)]
async fn a_worker_without_keys_gives_encrypted_jobs_back() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let id = sealed(&inner, NEW).enqueue(secret()).await.expect("enqueue").id;
    let plain = Client::with_store(Arc::clone(&inner));
    let own = plain.enqueue(secret()).await.expect("enqueue").id;
    let handler = |_: Payload, _: Context| async { Ok::<_, Failure>(None) };
    let running = Worker::new(&plain).queue("default", 1).handle_any(handler).start().await.expect("start");
    assert_eq!(plain.wait(own).await.expect("it ends").state, State::Completed);
    let job = plain.job(id).await.expect("the job");
    assert_eq!((job.state, job.failures), (State::Delayed, 0), "it waits for a worker that can read it");
    running.stop().await;
}

/// A store of each kind, and what it lives in.
async fn stores() -> Vec<(Arc<dyn Store>, Option<tempfile::TempDir>)> {
    let mut stores: Vec<(Arc<dyn Store>, Option<tempfile::TempDir>)> = vec![(Arc::new(MemoryStore::new()), None)];
    #[cfg(feature = "sqlite")]
    {
        let folder = tempfile::TempDir::new().expect("a folder");
        let store = windlass::store::SqliteStore::open(folder.path().join("jobs.db")).expect("open");
        stores.push((Arc::new(store), Some(folder)));
    }
    #[cfg(feature = "postgres")]
    {
        use windlass::store::{PostgresOptions, PostgresStore};
        let url = std::env::var("WINDLASS_TEST_POSTGRES");
        let url = url.expect("WINDLASS_TEST_POSTGRES must name a PostgreSQL database; scripts/test starts one");
        let schema = format!("sealed_{}", uuid::Uuid::new_v4().simple());
        let options = PostgresOptions::new(&url).and_then(|options| options.schema(schema)).expect("valid options");
        stores.push((Arc::new(PostgresStore::with(options).await.expect("a store")), None));
    }
    stores
}

/// The whole walk in steps of two; what it found last.
async fn walk(client: &Client, rewrites: bool) -> UnderKeys {
    let sealed = Sealed::of(client.store()).expect("it encrypts");
    let mut all = UnderKeys::default();
    loop {
        let after = all.next.take();
        all.add(match rewrites {
            true => sealed.reencrypt(after.as_ref(), 2).await.expect("a step"),
            false => sealed.under_keys(after.as_ref(), 2).await.expect("a step"),
        });
        if all.next.is_none() {
            return all;
        }
    }
}

fn counts(found: &UnderKeys) -> Vec<(&str, u64)> {
    found.by_key.iter().map(|(key, count)| (key.as_str(), *count)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_an_older_key_is_encrypted_again_and_the_key_can_go() {
    for (inner, _folder) in stores().await {
        let kind = inner.kind();
        let plain = Client::with_store(Arc::clone(&inner));
        let open = plain.enqueue(secret()).await.expect("enqueue").id;
        let before = sealed(&inner, OLD);
        let keyed = before.enqueue(secret().idempotency_key("k")).await.expect("enqueue").id;
        let nightly = Schedule::every("nightly", Duration::from_secs(60), secret()).expect("valid");
        before.put_schedule(&nightly).await.expect("stored");
        let next_at = inner.schedules(None, 1).await.expect("schedules")[0].next_at;
        let ended = claim(&before).await.expect("a job");
        assert_eq!(ended.job.id, open);
        before.store().settle(&[ended.lease.complete(Some(data()))]).await.expect("settle");
        let running = claim(&before).await.expect("a job");
        let save = Save::under(running.lease.key()).checkpoint("step 4242 4242").expect("small");
        before.store().save(&[save]).await.expect("save")[0].expect("held");

        let both = sealed(&inner, &format!("{NEW}\n{OLD}"));
        let found = walk(&both, false).await;
        assert_eq!((counts(&found), found.plain, found.rewritten), (vec![("old", 4)], 1, 0), "{kind}");
        let found = walk(&both, true).await;
        assert_eq!((counts(&found), found.plain, found.rewritten), (vec![("new", 5)], 0, 5), "{kind}");
        let found = walk(&both, true).await;
        assert_eq!((counts(&found), found.rewritten, found.unopened), (vec![("new", 5)], 0, 0), "{kind}");

        // All of it opens without the old key, and what runs goes on.
        let after = sealed(&inner, NEW);
        let job = after.job(open).await.expect("the job");
        assert_eq!((job.spec.payload.clone(), job.result), (data(), Some(data())), "{kind}");
        let job = after.job(keyed).await.expect("the job");
        assert_eq!(
            (job.spec.payload.clone(), job.checkpoint.as_deref()),
            (data(), Some(b"step 4242 4242".as_slice())),
            "{kind}"
        );
        let same = after.enqueue(secret().idempotency_key("k")).await.expect("enqueue");
        assert!(same.existing && same.matches && same.id == keyed, "{kind}");
        let settled = after.store().settle(&[running.lease.complete(None)]).await.expect("settle");
        assert!(matches!(settled[0], windlass::store::Settled::Applied(State::Completed)), "{kind}");
        let schedule = inner.schedules(None, 1).await.expect("schedules").remove(0);
        assert_eq!(schedule.next_at, next_at, "{kind}: its next slot stays");
        let fired = after.trigger_schedule("nightly").await.expect("fired");
        assert_eq!(after.job(fired).await.expect("the job").spec.payload, data(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_meanwhile_or_does_not_open_is_not_written_over() {
    for (inner, _folder) in stores().await {
        let kind = inner.kind();
        let id = sealed(&inner, OLD).enqueue(secret()).await.expect("enqueue").id;
        let stored = inner.find(&[id]).await.expect("find").remove(0).expect("the job").spec.payload.clone();
        let stranger = sealed(&inner, NEW);
        let found = walk(&stranger, true).await;
        assert_eq!((counts(&found), found.rewritten, found.unopened), (vec![("old", 1)], 0, 1), "{kind}");
        let rewrite = |job, old: &Payload| Rewrite { job, part: Part::Payload, old: old.clone(), new: data() };
        let unknown = windlass::store::new_job_id();
        let asked = [rewrite(id, &data()), rewrite(unknown, &stored)];
        assert_eq!(inner.rewrite(&asked).await.expect("an answer"), [false, false], "{kind}");
        let kept = inner.find(&[id]).await.expect("find").remove(0).expect("the job").spec.payload.clone();
        assert_eq!(kept, stored, "{kind}");
        assert_eq!(inner.rewrite(&[rewrite(id, &stored)]).await.expect("an answer"), [true], "{kind}");
    }
}

#[cfg(feature = "sqlite")]
mod in_a_file {
    use super::*;

    /// The file, its log and a copy of it hold nothing that was put into jobs.
    #[tokio::test]
    async fn neither_the_file_nor_a_transaction_of_the_users_leaves_plain_text() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("jobs.db");
        let store: Arc<dyn Store> = Arc::new(windlass::store::SqliteStore::open(&path).expect("open"));
        let client = sealed(&store, NEW);
        client.enqueue(secret()).await.expect("enqueue");
        let mut database = rusqlite::Connection::open(&path).expect("open");
        let tx = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).expect("begin");
        let id = client.enqueue(secret()).in_tx(&tx).expect("enqueue").id;
        tx.commit().expect("commit");
        let claimed = claim(&client).await.expect("a job");
        client.store().settle(&[claimed.lease.complete(Some(data()))]).await.expect("settle");
        assert_eq!(client.job(id).await.expect("the job").spec.payload, data());
        for entry in std::fs::read_dir(folder.path()).expect("a folder") {
            let path = entry.expect("a file").path();
            assert!(!holds(&std::fs::read(&path).expect("readable"), "4242"), "{path:?} holds a payload");
        }
    }
}
