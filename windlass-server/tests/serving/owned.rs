//! Commands that settle and remove jobs by themselves work on no store but their own.

use windlass::job::WorkerId;
use windlass::store::{ClaimRequest, Filter};
use windlass::{Client, NewJob, Payload, QueueName, Schedule, State};

use crate::support::{Place, Process, http, until, windlass};

/// A store with one job waiting and one completed.
async fn used(place: &Place) -> Client {
    let client = place.client().await;
    for _ in 0..2 {
        client.enqueue(NewJob::new("t", Payload::default())).await.expect("enqueue");
    }
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 1);
    let claimed = client.store().claim(&request).await.expect("claim").pop().expect("a job");
    client.store().settle(&[claimed.lease.complete(None)]).await.expect("settle");
    client
}

async fn count(client: &Client, state: State) -> u64 {
    let filter = Filter::new().states([state]);
    client.count(&filter, 1000).await.expect("count")
}

/// H1: a user who has `WINDLASS_STORE` set for the real store and tries the demonstration keeps the history.
#[tokio::test(flavor = "multi_thread")]
async fn h1_the_demonstration_touches_no_store_that_others_used() {
    let place = Place::new();
    let client = used(&place).await;
    let ways: [&dyn Fn(&mut std::process::Command); 2] = [
        &|command| {
            command.env("WINDLASS_STORE", place.store());
        },
        &|command| {
            command.args(["--store", &place.store()]);
        },
    ];
    for way in ways {
        for words in [&["run", "--demo", "--listen", "127.0.0.1:0"][..], &["demo-worker", "--seed", "1"]] {
            let mut command = windlass();
            command.args(words);
            way(&mut command);
            let mut demo = Process::start(command);
            assert_eq!(demo.wait().code(), Some(4), "{words:?}: {}", demo.err());
            let said = demo.err();
            assert!(said.contains("will not touch") && said.contains("windlass-demo.db"), "{said}");
        }
    }
    assert_eq!((count(&client, State::Scheduled).await, count(&client, State::Completed).await), (1, 1));
    assert_eq!(client.store().queues().await.expect("queues").len(), 1, "nothing was put there");
    assert!(client.store().schedules(None, 10).await.expect("schedules").is_empty());
}

/// H1: a store of its own is marked, and found again by the mark.
#[test]
fn h1_the_demonstration_takes_its_own_store_again() {
    let place = Place::new();
    for _ in 0..2 {
        let mut demo = place.start(&["run", "--demo", "--listen", "127.0.0.1:0"]);
        let base = demo.started()["listen"].as_str().expect("an address").to_owned();
        let (_, queues) = http(&base, "GET /v1/queues", "", "");
        assert!(!queues.contains("windlass."), "the mark shows in no list: {queues}");
        until("jobs complete", || http(&base, "GET /v1/jobs?state=completed&limit=1", "", "").1.contains("\"id\""));
        demo.signal("INT");
        assert_eq!(demo.wait().code(), Some(0), "{}", demo.err());
    }
}

/// H1, H2: a store without jobs, but with somebody's schedule or paused queue, is somebody's.
#[tokio::test(flavor = "multi_thread")]
async fn h1_h2_a_store_with_a_schedule_or_a_paused_queue_is_in_use() {
    for paused in [true, false] {
        let place = Place::new();
        let client = place.client().await;
        if paused {
            client.pause("mail").await.expect("pause");
        } else {
            let nightly = Schedule::every("n", std::time::Duration::from_secs(9), NewJob::new("t", Payload::default()));
            client.put_schedule(&nightly.expect("valid")).await.expect("stored");
        }
        for words in [&["run", "--demo"][..], &["bench", "enqueue", "--seconds", "1"]] {
            let mut refused = place.start(words);
            assert_eq!(refused.wait().code(), Some(4), "{words:?}: {}", refused.err());
        }
    }
}

/// H2: no job that bench did not make is settled, whatever is measured; its own store it takes again.
#[tokio::test(flavor = "multi_thread")]
async fn h2_bench_touches_no_store_that_others_used() {
    let place = Place::new();
    let client = used(&place).await;
    for op in ["enqueue", "cycle", "e2e", "churn", "pickup", "drain", "work", "idle", "hold"] {
        let mut bench = place.start(&["bench", op, "--seconds", "1"]);
        assert_eq!(bench.wait().code(), Some(4), "{op}: {}", bench.err());
        assert!(bench.err().contains("will not touch"), "{op}: {}", bench.err());
    }
    assert_eq!((count(&client, State::Scheduled).await, count(&client, State::Completed).await), (1, 1));

    let own = Place::new();
    for _ in 0..2 {
        let mut bench = own.start(&["bench", "enqueue", "--seconds", "1", "--batch", "10"]);
        assert_eq!(bench.wait().code(), Some(0), "{}", bench.err());
    }
}

/// H2: what fills a store to be looked at takes no store that somebody set up, though no job came yet.
#[tokio::test(flavor = "multi_thread")]
async fn h2_filling_touches_no_store_that_others_set_up() {
    let place = Place::new();
    let client = place.client().await;
    let nightly =
        Schedule::every("nightly", std::time::Duration::from_secs(3600), NewJob::new("t", Payload::default()));
    client.put_schedule(&nightly.expect("valid")).await.expect("stored");
    let mut fill = place.start(&["demo-fill", "--jobs", "1000"]);
    assert_eq!(fill.wait().code(), Some(4), "{}", fill.err());
    assert!(fill.err().contains("will not touch"), "{}", fill.err());
    assert_eq!(client.totals().await.expect("totals").accepted, 0);
}

/// H2: through a server as well, and a job that somebody put into a measured store is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn h2_bench_through_a_server_leaves_others_jobs_alone() {
    let place = Place::new();
    let mut server = place.start(&["run", "--listen", "127.0.0.1:0"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let mut first = place.start(&["bench", "enqueue", "--seconds", "1", "--store", &base]);
    assert_eq!(first.wait().code(), Some(0), "{}", first.err());
    let client = place.client().await;
    let id = client.enqueue(NewJob::new("t", Payload::default())).await.expect("enqueue").id;
    let mut second = place.start(&["bench", "e2e", "--seconds", "1", "--store", &base]);
    assert_eq!(second.wait().code(), Some(0), "{}", second.err());
    assert_eq!(client.job(id).await.expect("a job").attempt, 0);

    let other = Place::new();
    used(&other).await;
    let mut server = other.start(&["run", "--listen", "127.0.0.1:0"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let mut refused = other.start(&["bench", "cycle", "--seconds", "1", "--store", &base]);
    assert_eq!(refused.wait().code(), Some(4), "{}", refused.err());
}

/// H1, H2: a file of another program stays as it is.
#[test]
fn h1_h2_a_file_of_another_program_is_left_as_it_is() {
    let place = Place::new();
    let other = rusqlite::Connection::open(place.path("jobs.db")).expect("a file");
    other.execute_batch("create table customers (name text)").expect("a table");
    drop(other);
    let before = std::fs::read(place.path("jobs.db")).expect("a file");
    for words in [&["run", "--demo"][..], &["bench", "enqueue", "--seconds", "1"]] {
        let mut refused = place.start(words);
        assert_ne!(refused.wait().code(), Some(0), "{words:?}");
        assert_eq!(std::fs::read(place.path("jobs.db")).expect("a file"), before, "{words:?}");
    }
}
