//! Section 11 of the contract: inspecting (O1), and the feed of what happened.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job};
use super::moves::{CANCEL, checked, in_states, job_type, named, queue, text};
use crate::job::{ATTEMPTS_KEPT, AttemptId, Edit, Failure, JobId, Outcome, Payload, Priority, RetryPolicy, State};
use crate::schedule::ScheduleSpec;
use crate::store::{Act, Cursor, Filter, JobEventKind, ListQuery, ScheduleEdit};

chapter! {
    o1_a_job_is_read_back_as_it_was_submitted,
    o1_jobs_are_listed_newest_first,
    o1_every_filter_holds,
    o1_filters_hold_together,
    o1_lists_by_tag_and_correlation_follow_edits_and_removals,
    o1_a_list_sees_states_as_the_clock_has_them,
    o1_a_cursor_neither_repeats_nor_misses_while_data_changes,
    o1_a_filtered_cursor_does_not_miss_what_stayed,
    o1_counts_stop_at_their_cap,
    o1_counts_look_at_no_more_rows_than_they_may,
    o1_lists_look_at_no_more_jobs_than_they_may,
    o1_attempts_are_told_one_by_one,
    o1_the_newest_100_attempts_are_kept,
    o1_the_dead_letter_queue_shows_what_failed,
    o1_totals_and_queues_agree,
    o1_events_tell_what_was_enqueued_and_ended,
    o1_events_go_on_where_a_page_ended,
}

const SECOND: Duration = Duration::from_secs(1);

async fn o1_a_job_is_read_back_as_it_was_submitted(bench: Bench) {
    let bytes = Payload::bytes("application/octet-stream", vec![0, 255, 10]).expect("bytes");
    let new = crate::job::NewJob::new("mail/send:v2", bytes)
        .queue("mail.out")
        .priority(Priority::High)
        .delay(90 * SECOND)
        .retry(RetryPolicy::responsive())
        .execution_timeout(None)
        .visibility_timeout(7 * SECOND)
        .lifetime(3600 * SECOND)
        .idempotency_key("key \u{1F600} 'quoted'")
        .tag("team", "\u{FC}ber")
        .correlation_id("order-42")
        .callback_url("https://example.com/done?x=1")
        .trace_context("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("a=b".to_owned()));
    let spec = checked(new.clone());
    let id = bench.enqueue(new).await;
    let job = bench.job(id).await;
    assert_eq!(*job.spec, spec);
    assert_eq!((job.state, job.attempt, job.failures, job.generation), (State::Delayed, 0, 0, 0));
    assert_eq!((job.created_at, job.updated_at), (bench.now(), bench.now()));
    assert_eq!(job.run_at, Some(bench.now().plus(90 * SECOND)));
    assert_eq!(job.deadline, Some(bench.now().plus(3600 * SECOND)));
    let found = bench.store.find(&[crate::store::new_job_id(), id]).await.expect("find");
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true], "in order, none for the unknown");
}

async fn o1_jobs_are_listed_newest_first(bench: Bench) {
    let mut newest = Vec::new();
    for batch in 0..4 {
        // Within one moment the order of submission decides.
        let ids = bench.insert(vec![job(); 2]).await;
        newest.splice(0..0, ids.iter().rev().map(|job| job.id));
        if batch % 2 == 1 {
            bench.advance(SECOND);
        }
    }
    assert_eq!(bench.ids(&Filter::default()).await, newest);
    let page = ListQuery { filter: Filter::default(), limit: 8, after: None, ..ListQuery::default() };
    assert_eq!(bench.store.list(&page).await.expect("list").items.len(), 8);
}

async fn o1_every_filter_holds(bench: Bench) {
    let start = bench.now();
    let create = ScheduleSpec::every("nightly", 60 * SECOND, checked(named("fired")));
    bench.store.edit_schedule(&ScheduleEdit::Create(create), None).await.expect("edit_schedule");
    let flow = bench.submit_workflow("flow", vec![named("step")]).await;
    let tagged = bench.enqueue(named("tagged").tag("team", "a").tag("tier", "b")).await;
    let correlated = bench.enqueue(named("correlated").correlation_id("order-42")).await;
    let elsewhere = bench.enqueue(named("elsewhere").queue("mail")).await;
    let failed = bench.enqueue(named("failed")).await;
    bench.end(failed, State::Failed).await;
    bench.pass(60 * SECOND).await;
    let fired = bench.only("fired").await.id;
    let late = bench.enqueue(named("late")).await;
    bench.end(late, State::Completed).await;
    let any = Filter::default;
    let tags = |pairs: &[(&str, &str)]| {
        let tags: BTreeMap<_, _> = pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Filter { tags, ..any() }
    };
    let step = flow.jobs[0].id;
    let early = vec![failed, elsewhere, correlated, tagged, step];
    let expected: Vec<(&str, Filter, Vec<JobId>)> = vec![
        ("states", in_states(&[State::Failed, State::Completed]), vec![late, failed]),
        ("queue", Filter { queue: Some(queue("mail")), ..any() }, vec![elsewhere]),
        ("type", Filter { job_type: Some(job_type("tagged")), ..any() }, vec![tagged]),
        ("tag", tags(&[("team", "a")]), vec![tagged]),
        ("tags", tags(&[("team", "a"), ("tier", "b")]), vec![tagged]),
        ("no tag", tags(&[("team", "a"), ("tier", "c")]), vec![]),
        ("workflow", Filter { workflow: flow.workflow, ..any() }, vec![step]),
        ("no workflow", Filter { workflow: Some(crate::store::new_workflow_id()), ..any() }, vec![]),
        ("schedule", Filter { schedule: Some("nightly".into()), ..any() }, vec![fired]),
        ("correlation", Filter { correlation_id: Some("order-42".into()), ..any() }, vec![correlated]),
        ("code", Filter { code: Some("broken".into()), ..any() }, vec![failed]),
        ("from", Filter { created_from: Some(bench.now()), ..any() }, vec![late, fired]),
        ("before", Filter { created_before: Some(bench.now()), ..any() }, early),
        ("ended", Filter { ended_before: Some(bench.now()), ..any() }, vec![failed]),
        ("ended in time", Filter { ended_before: Some(start), ..any() }, vec![]),
    ];
    for (name, filter, ids) in expected {
        assert_eq!(bench.ids(&filter).await, ids, "filter by {name}");
        assert_eq!(bench.count(&filter, 100).await, ids.len() as u64, "count by {name}");
    }
}

/// What stores keep for finding jobs by tag and correlation id must follow the jobs.
async fn o1_lists_by_tag_and_correlation_follow_edits_and_removals(bench: Bench) {
    let tag = |value: &str| BTreeMap::from([("team".to_owned(), value.to_owned())]);
    let tagged = |value: &str| Filter { tags: tag(value), ..Filter::default() };
    let correlated = |id: &str| Filter { correlation_id: Some(id.to_owned()), ..Filter::default() };
    let plain = bench.insert(vec![job(); 3]).await;
    let first = bench.enqueue(named("first").tag("team", "a").correlation_id("one")).await;
    let second = bench.enqueue(named("second").tag("team", "a").correlation_id("two")).await;
    assert_eq!(bench.ids(&tagged("a")).await, [second, first]);

    let edit = Edit { tags: Some(tag("b")), correlation_id: Some(Some("one".to_owned())), ..Edit::default() };
    for id in [second, plain[0].id] {
        bench.act(id, Act::Edit(edit.clone())).await;
    }
    assert_eq!(bench.ids(&tagged("a")).await, [first]);
    assert_eq!(bench.ids(&tagged("b")).await, [second, plain[0].id]);
    assert_eq!(bench.ids(&correlated("one")).await, [second, first, plain[0].id]);
    assert!(bench.ids(&correlated("two")).await.is_empty());
    let clear = Edit { tags: Some(BTreeMap::new()), correlation_id: Some(None), ..Edit::default() };
    bench.act(plain[0].id, Act::Edit(clear)).await;
    assert_eq!(bench.ids(&tagged("b")).await, [second]);

    bench.end(first, State::Failed).await;
    bench.act(first, Act::Delete).await;
    assert!(bench.ids(&tagged("a")).await.is_empty());
    assert_eq!(bench.ids(&correlated("one")).await, [second]);
    bench.end(second, State::Completed).await;
    bench.pass(48 * 3600 * SECOND).await;
    assert!(bench.find(second).await.is_none() && bench.ids(&correlated("one")).await.is_empty());
    bench.assert_sound().await;
}

async fn o1_filters_hold_together(bench: Bench) {
    let wanted = bench.enqueue(named("a").queue("mail").tag("team", "x")).await;
    bench.enqueue(named("a").queue("mail")).await;
    bench.enqueue(named("a").tag("team", "x")).await;
    bench.enqueue(named("b").queue("mail").tag("team", "x")).await;
    let filter = Filter {
        queue: Some(queue("mail")),
        job_type: Some(job_type("a")),
        tags: BTreeMap::from([("team".to_owned(), "x".to_owned())]),
        ..in_states(&[State::Scheduled])
    };
    assert_eq!(bench.ids(&filter).await, [wanted]);
    bench.end(wanted, State::Completed).await;
    assert!(bench.ids(&filter).await.is_empty());
}

async fn o1_a_list_sees_states_as_the_clock_has_them(bench: Bench) {
    let delayed = bench.enqueue(job().delay(SECOND)).await;
    assert_eq!(bench.ids(&in_states(&[State::Delayed])).await, [delayed]);
    bench.advance(SECOND);
    assert!(bench.ids(&in_states(&[State::Delayed])).await.is_empty());
    let listed = bench.list(&in_states(&[State::Scheduled])).await;
    assert_eq!((listed.len(), listed[0].state, listed[0].scheduled_at), (1, State::Scheduled, Some(bench.now())));
    assert_eq!(bench.count(&in_states(&[State::Scheduled]), 10).await, 1);
    assert_eq!(bench.totals().await.states, [0, 0, 1, 0, 0, 0, 0, 0, 0]);
}

/// Reads the next page of a list; says whether there is more.
async fn turn(bench: &Bench, query: &mut ListQuery, seen: &mut Vec<JobId>) -> bool {
    let page = bench.store.list(query).await.expect("list");
    seen.extend(page.items.iter().map(|job| job.id));
    query.after = page.next;
    query.after.is_some()
}

async fn o1_a_cursor_neither_repeats_nor_misses_while_data_changes(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job(); 20]).await.iter().map(|job| job.id).collect();
    bench.act(ids[4], CANCEL).await;
    let mut query = ListQuery { filter: Filter::default(), limit: 3, after: None, ..ListQuery::default() };
    let mut seen = Vec::new();
    while turn(&bench, &mut query, &mut seen).await {
        // New jobs come in, others are claimed and end, one is deleted before it was read.
        bench.insert(vec![job(); 2]).await;
        if let Some(claimed) = bench.claim(1).await.pop() {
            bench.complete(claimed.lease).await;
        }
        if bench.find(ids[4]).await.is_some() {
            bench.act(ids[4], Act::Delete).await;
        }
    }
    let distinct: HashSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len(), "a row was told twice");
    let missed: Vec<_> = ids.iter().filter(|id| **id != ids[4] && !distinct.contains(id)).collect();
    assert!(missed.is_empty(), "missed {missed:?}");
}

async fn o1_a_filtered_cursor_does_not_miss_what_stayed(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job(); 20]).await.iter().map(|job| job.id).collect();
    let mut query = ListQuery { filter: in_states(&[State::Scheduled]), limit: 3, after: None, ..ListQuery::default() };
    let mut seen = Vec::new();
    while turn(&bench, &mut query, &mut seen).await {
        // Those already read and those still to come leave the list one by one.
        bench.claim(1).await;
        let newest = bench.ids(&in_states(&[State::Scheduled])).await[0];
        bench.act(newest, CANCEL).await;
    }
    let distinct: HashSet<_> = seen.iter().copied().collect();
    assert_eq!(distinct.len(), seen.len(), "a row was told twice");
    for id in &ids {
        let stayed = bench.state(*id).await == State::Scheduled;
        assert!(!stayed || distinct.contains(id), "a job that stayed SCHEDULED was missed");
    }
}

async fn o1_counts_stop_at_their_cap(bench: Bench) {
    bench.insert(vec![job(); 12]).await;
    bench.insert(vec![job().tag("a", "needle"); 5]).await;
    // Text has no index: what is looked for is looked for in every job.
    let tagged = Filter { text: Some("needle".to_owned()), ..Filter::default() };
    for (filter, cap, count) in [
        (Filter::default(), 100, 17),
        (Filter::default(), 17, 17),
        (Filter::default(), 10, 10),
        (tagged.clone(), 100, 5),
        (tagged, 3, 3),
        (in_states(&[State::Completed]), 3, 0),
    ] {
        assert_eq!(bench.count(&filter, cap).await, count);
    }
}

async fn o1_counts_look_at_no_more_rows_than_they_may(bench: Bench) {
    bench.insert(vec![job(); 40]).await;
    bench.insert(vec![job().tag("a", "needle"); 5]).await;
    // Text has no index: its rows are looked at one by one.
    let tagged = Filter { text: Some("needle".to_owned()), ..Filter::default() };
    let late = Filter { created_from: Some(bench.now()), states: vec![State::Scheduled], ..Filter::default() };
    for filter in [&tagged, &late] {
        let few = bench.store.count(filter, 100, 10).await.expect("count");
        assert!(few.capped && few.looked <= 10 && few.count <= 10, "{few:?}");
        let all = bench.store.count(filter, 100, 1000).await.expect("count");
        assert_eq!((all.capped, all.count), (false, bench.count(filter, 100).await), "{all:?}");
    }
    // The tagged ones come last, so that no look at ten rows sees one.
    assert_eq!(bench.store.count(&tagged, 100, 10).await.expect("count").count, 0);
    let capped = bench.store.count(&tagged, 3, 1000).await.expect("count");
    assert_eq!((capped.capped, capped.count), (true, 3));
}

async fn o1_lists_look_at_no_more_jobs_than_they_may(bench: Bench) {
    let needles: Vec<_> = bench.insert(vec![job().tag("a", "needle"); 5]).await.iter().map(|job| job.id).collect();
    bench.insert(vec![job(); 40]).await;
    let filter = Filter { text: Some("needle".to_owned()), ..Filter::default() };
    let mut query = ListQuery { looked_max: 10, ..ListQuery::new(filter, 3) };
    let (mut seen, mut looked, mut pages) = (Vec::new(), 0, 0);
    loop {
        let page = bench.store.list(&query).await.expect("list");
        assert!(page.looked <= 10 && page.items.len() <= 3, "{} jobs, {} looked at", page.items.len(), page.looked);
        seen.extend(page.items.iter().map(|job| job.id));
        (looked, pages) = (looked + page.looked, pages + 1);
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
        assert!(page.items.len() == 3 || page.looked == 10, "a short page that could have looked on");
    }
    assert_eq!(seen, needles.into_iter().rev().collect::<Vec<_>>());
    assert!(looked <= 50 && pages >= 5, "{looked} looked at on {pages} pages");
    // Nothing is looked at in vain where everything matches.
    let all = bench.store.list(&ListQuery::new(Filter::default(), 7)).await.expect("list");
    assert_eq!((all.items.len(), all.looked), (7, 7));
}

async fn o1_attempts_are_told_one_by_one(bench: Bench) {
    let first = bench.running(job()).await;
    let id = first.job.id;
    bench.advance(SECOND);
    bench.fail(first.lease).await;
    bench.advance(2 * SECOND);
    bench.claim_one().await;
    bench.pass(LEASE).await;
    let third = bench.claim_one().await;
    let attempts = bench.attempts(id).await;
    let told: Vec<_> = attempts.iter().map(|one| (one.number, one.outcome)).collect();
    assert_eq!(told, [(1, Some(Outcome::Failed)), (2, Some(Outcome::Lost)), (3, None)]);
    assert_eq!(attempts[0].ended_at.map(|end| end.since(attempts[0].started_at)), Some(SECOND));
    assert_eq!(attempts[0].failure.as_ref().map(|failure| failure.message.as_str()), Some("it broke"));
    assert_eq!((attempts[0].previous, attempts[2].previous), (None, Some(attempts[1].id)));
    assert_eq!((attempts[2].id, attempts[2].ended_at), (third.lease.attempt_id(), None));
    assert_eq!((attempts[2].worker.as_str(), attempts[2].started_at), ("w1", bench.now()));
}

async fn o1_the_newest_100_attempts_are_kept(bench: Bench) {
    let id = bench.enqueue(job()).await;
    let total = ATTEMPTS_KEPT as u64 + 5;
    for _ in 0..total {
        let claimed = bench.claim_one().await;
        bench.apply(claimed.lease.release()).await;
    }
    let attempts = bench.attempts(id).await;
    assert_eq!(attempts.len(), ATTEMPTS_KEPT);
    assert_eq!((attempts[0].number, attempts[0].previous), (6, Some(AttemptId::of(id, 5))), "the oldest went");
    assert_eq!(attempts.last().map(|last| last.lease_version), Some(total));
}

async fn o1_the_dead_letter_queue_shows_what_failed(bench: Bench) {
    let failed = bench.enqueue(named("failed")).await;
    bench.end(failed, State::Failed).await;
    let claimed = bench.running(named("dead")).await;
    let failure = Failure::dead_letter("hopeless", "the address is unknown");
    bench.apply(claimed.lease.fail(failure, &mut || 0.5)).await;
    bench.in_state(State::Completed).await;
    bench.in_state(State::Cancelled).await;
    let dead = bench.list(&in_states(&[State::Failed, State::DeadLetter])).await;
    let told: Vec<_> = dead.iter().map(|job| (job.id, job.failure.as_ref().expect("a failure"))).collect();
    assert_eq!(told.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [claimed.job.id, failed]);
    assert_eq!((told[0].1.code.as_deref(), told[0].1.message.as_str()), (Some("hopeless"), "the address is unknown"));
    assert_eq!(told[0].1.at, bench.now());
}

async fn o1_totals_and_queues_agree(bench: Bench) {
    bench.one_of_each().await;
    bench.enqueue(job().queue("other")).await;
    let totals = bench.totals().await;
    let queues = bench.store.queues().await.expect("queues");
    for state in State::ALL {
        let place = usize::from(state.number());
        let sum: u64 = queues.iter().map(|queue| queue.states[place]).sum();
        assert_eq!(totals.states[place], sum, "{state}");
        assert_eq!(bench.count(&in_states(&[state]), 100).await, sum, "{state}");
    }
    assert_eq!(totals.accepted, 11, "PENDING takes two");
    bench.assert_sound().await;
}

async fn o1_events_tell_what_was_enqueued_and_ended(bench: Bench) {
    bench.enqueue(named("before")).await;
    let start = bench.store.events(None, 10).await.expect("events");
    assert!(start.items.is_empty(), "without a cursor the feed begins now");
    let cursor = start.next.expect("a cursor for the present");
    bench.advance(SECOND);
    let id = bench.enqueue(named("told").queue("mail")).await;
    let claimed = bench.take(id).await;
    bench.fail(claimed.lease).await;
    bench.advance(2 * SECOND);
    let claimed = bench.take(id).await;
    bench.apply(claimed.lease.complete(Some(text("done")))).await;
    let events = bench.store.events(Some(&cursor), 10).await.expect("events").items;
    let told: Vec<_> = events.iter().map(|event| (event.job, event.kind, event.at)).collect();
    let enqueued = (id, JobEventKind::Enqueued, bench.now().minus(2 * SECOND));
    assert_eq!(told, [enqueued, (id, JobEventKind::Ended(State::Completed), bench.now())]);
    assert!(events.iter().all(|event| event.queue == queue("mail") && event.job_type == job_type("told")));
}

async fn o1_events_go_on_where_a_page_ended(bench: Bench) {
    let mut cursor = bench.store.events(None, 10).await.expect("events").next.expect("a cursor");
    let ids: Vec<_> = bench.insert(vec![job(); 7]).await.iter().map(|job| job.id).collect();
    let mut told = Vec::new();
    while told.len() < 7 {
        let page = bench.store.events(Some(&cursor), 3).await.expect("events");
        assert!(!page.items.is_empty() && page.items.len() <= 3);
        told.extend(page.items.iter().map(|event| event.job));
        cursor = page.items.last().expect("an event").cursor.clone();
    }
    assert_eq!(told, ids);
    let end = bench.store.events(Some(&cursor), 3).await.expect("events");
    assert!(end.items.is_empty(), "nothing is told twice");
    let cursor: Cursor = end.next.unwrap_or(cursor);
    let late = bench.enqueue(job()).await;
    let page = bench.store.events(Some(&cursor), 3).await.expect("events");
    assert_eq!(page.items.iter().map(|event| event.job).collect::<Vec<_>>(), [late]);
}
