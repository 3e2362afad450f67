//! Lists and counts look at no more rows than they must, and the record of acts keeps no more than it may.

use windlass::flow::ControlEdit;
use windlass::job::{Limits, WorkerId};
use windlass::store::{ClaimRequest, Filter, ListQuery, PostgresStore, Store};
use windlass::workflow::Submission;
use windlass::{JobId, NewJob, Payload, Policies, QueueName, State};

use crate::{admin, new_schema, open, options, url};

fn job() -> NewJob {
    NewJob::new("test", Payload::default())
}

fn batch(jobs: Vec<NewJob>) -> Submission {
    let checked = jobs.into_iter().map(|job| job.check(&Limits::default(), &Policies::default()).expect("a valid job"));
    Submission::new(checked.collect()).expect("a valid batch")
}

async fn enqueue(store: &PostgresStore, job: NewJob) -> JobId {
    store.insert(batch(vec![job])).await.expect("insert").jobs[0].id
}

/// Among many jobs without it, a tag is found by an index and not by looking at them all.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_by_tag_or_correlation_looks_only_at_jobs_that_have_it() {
    let store = open(options(&url(), &new_schema())).await;
    store.insert(batch(vec![job(); 2_000])).await.expect("insert");
    let rare = enqueue(&store, job().tag("team", "rare").correlation_id("order-7")).await;
    let by_tag = Filter::new().tag("team", "rare");
    let by_id = Filter::new().correlation_id("order-7");
    for filter in [by_tag, by_id] {
        let counted = store.count(&filter, 100, 1_000).await.expect("count");
        assert_eq!((counted.count, counted.looked, counted.capped), (1, 1, false), "{filter:?}");
        let query = ListQuery { filter, limit: 10, ..ListQuery::default() };
        let page = store.list(&query).await.expect("list");
        assert_eq!(page.items.iter().map(|job| job.id).collect::<Vec<_>>(), [rare]);
        assert_eq!(page.next, None, "nothing is left to be looked at");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_running_jobs_looks_only_at_those_that_run() {
    let store = open(options(&url(), &new_schema())).await;
    let running = enqueue(&store, job()).await;
    let worker = WorkerId::new("w").expect("a name");
    let claimed = store.claim(&ClaimRequest::new(worker.clone(), QueueName::default(), 1)).await.expect("claim");
    assert_eq!(claimed.jobs.len(), 1);
    store.insert(batch(vec![job(); 2_000])).await.expect("insert");
    let filter = Filter::new().worker(worker).states([State::Running]);
    let counted = store.count(&filter, 100, 1_000).await.expect("count");
    assert_eq!((counted.count, counted.looked, counted.capped), (1, 1, false));
    let page = store.list(&ListQuery { filter, limit: 10, ..ListQuery::default() }).await.expect("list");
    assert_eq!(page.items.iter().map(|job| job.id).collect::<Vec<_>>(), [running]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_acts_the_newest_ten_thousand_are_kept() {
    let schema = new_schema();
    let store = open(options(&url(), &schema)).await;
    let old = format!("insert into {schema}.act (record) select '{{}}' from generate_series(1, 10500)");
    admin(&url()).await.batch_execute(&old).await.expect("old acts");
    store.control(&ControlEdit::pause(QueueName::default(), true), Some("ada")).await.expect("paused");
    let count =
        admin(&url()).await.query_one(&format!("select count(*) from {schema}.act"), &[]).await.expect("a count");
    assert_eq!(count.get::<_, i64>(0), 10_000);
    let newest = store.acts(None, 1).await.expect("acts").items;
    assert_eq!(newest[0].by.as_deref(), Some("ada"), "what was done last is there");
}

/// M10: producers choose the names of queues; however many there are, lists and metrics answer at once.
#[tokio::test(flavor = "multi_thread")]
async fn m10_two_thousand_queues_are_counted_at_once() {
    let store = open(options(&url(), &new_schema())).await;
    store.insert(batch((0..2000).map(|number| job().queue(format!("q{number:04}"))).collect())).await.expect("insert");
    let begun = std::time::Instant::now();
    let queues = store.queues().await.expect("queues");
    assert_eq!(queues.iter().map(|queue| queue.count(State::Scheduled)).sum::<u64>(), 2000);
    assert!(queues.is_sorted_by(|one, next| one.name.as_str() < next.name.as_str()), "by name");
    // With a product of lists in it, it took more than the thirty seconds for which a call waits.
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}
