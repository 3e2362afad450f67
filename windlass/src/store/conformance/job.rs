//! Section 2 of the contract: what a job is made of. Bytes and names that bite are in `hostile`.

use std::collections::{BTreeMap, HashSet};

use super::Bench;
use super::bench::{LEASE, job, no_jitter, worker};
use super::stage::{Answer, HOUR, MICRO, answer, secs, snapshot, take_as};
use crate::error::Error;
use crate::job::{
    AttemptId, Backoff, Category, Jitter, JobId, Limits, Lost, NewJob, Outcome, Payload, Policies, Priority, Progress,
    RequeueOptions, RetryPolicy, Scope, Stale, State,
};
use crate::store::{Act, Edit, Save};

chapter! {
    j_ids_are_random_uuids_and_all_different,
    j_a_fresh_job_has_the_system_fields_of_its_state,
    j_every_attempt_is_kept_with_who_when_and_how,
    j_the_newest_100_attempts_are_kept,
    j1_a_run_at_beyond_the_lifetime_is_refused_whole,
    j1_a_run_at_in_the_past_means_now,
    j2_a_batch_with_one_bad_entry_leaves_nothing_behind,
    j2_a_batch_answers_in_its_own_order,
    j3_what_may_be_edited_is_edited_and_nothing_else,
    j3_tags_can_be_edited_in_every_state,
    j3_an_edit_out_of_bounds_changes_nothing,
    j3_updated_at_moves_with_state_changes_only,
    j3_payload_type_and_dependencies_survive_a_whole_life,
    j4_every_option_reads_back_as_submitted,
    j4_the_policy_on_the_job_decides_when_upkeep_takes_it_back,
}

async fn j_ids_are_random_uuids_and_all_different(bench: Bench) {
    let mut ids = HashSet::new();
    for _ in 0..4 {
        for one in bench.insert(vec![job(); 50]).await {
            assert_eq!(one.id.as_uuid().get_version_num(), 4, "{}", one.id);
            assert!(ids.insert(one.id), "{} was given twice", one.id);
        }
    }
    assert_eq!(ids.len(), 200);
}

async fn j_a_fresh_job_has_the_system_fields_of_its_state(bench: Bench) {
    let now = bench.now();
    let scheduled = bench.enqueue(job().lifetime(HOUR)).await;
    let delayed = bench.enqueue(job().delay(secs(5)).lifetime(None)).await;
    let pending = bench.enqueue(job().after([delayed])).await;
    for id in [scheduled, delayed, pending] {
        let job = bench.job(id).await;
        assert_eq!((job.attempt, job.failures, job.lost, job.generation, job.lease_version), (0, 0, 0, 0, 0));
        assert_eq!((job.created_at, job.updated_at), (now, now));
        assert_eq!((job.started_at, job.completed_at, &job.lease, &job.cancel), (None, None, &None, &None));
        assert_eq!((&job.failure, &job.result, &job.progress, &job.checkpoint), (&None, &None, &None, &None));
        assert_eq!((job.workflow_id, &job.firing, job.spawned_by, &job.reason), (None, &None, None, &None));
        assert!(bench.attempts(id).await.is_empty());
        assert!(bench.store.logs(id).await.expect("logs").is_empty());
    }
    let job = bench.job(scheduled).await;
    assert_eq!((job.scheduled_at, job.run_at, job.position), (Some(now), None, now));
    assert_eq!(job.deadline, Some(now.plus(HOUR)));
    let job = bench.job(delayed).await;
    assert_eq!((job.scheduled_at, job.run_at, job.deadline), (None, Some(now.plus(secs(5))), None));
    let job = bench.job(pending).await;
    assert_eq!((job.scheduled_at, job.run_at), (None, None));
    assert_eq!(job.deadline, Some(now.plus(secs(7 * 24 * 3600))));
}

async fn j_every_attempt_is_kept_with_who_when_and_how(bench: Bench) {
    let id = bench.enqueue(job().retry(no_jitter(5))).await;
    let start = bench.now();
    take_as(&bench, "lost-one", Some(LEASE)).await;
    bench.pass(LEASE).await;
    let failed = take_as(&bench, "failed-one", Some(LEASE)).await;
    bench.advance(secs(2));
    bench.fail(failed.lease).await;
    bench.advance(secs(10));
    let completed = take_as(&bench, "good-one", Some(LEASE)).await;
    let open = bench.attempts(id).await;
    assert_eq!((open.len(), open[2].ended_at, open[2].outcome), (3, None, None), "the running one is shown");
    bench.advance(secs(1));
    bench.complete(completed.lease).await;

    let attempts = bench.attempts(id).await;
    let expected = [
        ("lost-one", 0, 30, Outcome::Lost, Some(Category::System)),
        ("failed-one", 30, 32, Outcome::Failed, Some(Category::Temporary)),
        ("good-one", 42, 43, Outcome::Completed, None),
    ];
    assert_eq!(attempts.len(), expected.len());
    for (n, (attempt, (who, from, to, outcome, category))) in (1..).zip(attempts.iter().zip(expected)) {
        assert_eq!((attempt.id, attempt.number, attempt.generation), (AttemptId::of(id, n), n as u32, 0));
        assert_eq!(attempt.previous, (n > 1).then(|| AttemptId::of(id, n - 1)));
        assert_eq!((attempt.lease_version, &attempt.worker), (n, &worker(who)));
        assert_eq!((attempt.started_at, attempt.ended_at), (start.plus(secs(from)), Some(start.plus(secs(to)))));
        assert_eq!(attempt.outcome, Some(outcome));
        assert_eq!(attempt.failure.as_ref().map(|failure| failure.category), category);
    }
    bench.assert_sound().await;
}

async fn j_the_newest_100_attempts_are_kept(bench: Bench) {
    let id = bench.enqueue(job()).await;
    let mut said = Vec::new();
    for _ in 0..105 {
        said.push(bench.claim_one().await.lease.release());
        assert_eq!(answer(&bench, &said[said.len() - 1]).await, Answer::Applied(State::Scheduled));
    }
    let versions: Vec<_> = bench.attempts(id).await.iter().map(|attempt| attempt.lease_version).collect();
    assert_eq!(versions, (6..=105).collect::<Vec<u64>>());
    let job = bench.job(id).await;
    assert_eq!((job.attempt, job.failures, job.lease_version), (105, 0, 105));
    assert_eq!(answer(&bench, &said[5]).await, Answer::AlreadyApplied, "the oldest that is kept");
    assert_eq!(answer(&bench, &said[4]).await, Answer::Stale(Stale::NotRunning), "the newest that is not");
    bench.assert_sound().await;
}

async fn j1_a_run_at_beyond_the_lifetime_is_refused_whole(bench: Bench) {
    let end = bench.now().plus(HOUR);
    let short = || job().lifetime(HOUR);
    let refused = bench.try_insert(vec![short(), short().run_at(end), short()]).await;
    match refused {
        Err(Error::InvalidArgument { field: "run_at", .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.store.totals().await.expect("totals").accepted, 0);
    let last_moment = bench.now().plus(HOUR - MICRO);
    let id = bench.enqueue(short().run_at(last_moment)).await;
    assert_eq!(bench.job(id).await.run_at, Some(last_moment));
    bench.assert_sound().await;
}

async fn j1_a_run_at_in_the_past_means_now(bench: Bench) {
    for at in [bench.now(), bench.now().minus(HOUR), crate::Timestamp::EPOCH] {
        let id = bench.enqueue(job().run_at(at)).await;
        let job = bench.job(id).await;
        assert_eq!((job.state, job.run_at, job.position), (State::Scheduled, None, bench.now()));
        assert_eq!(job.scheduled_at, Some(bench.now()));
    }
    assert_eq!(bench.claim(9).await.len(), 3);
}

async fn j2_a_batch_with_one_bad_entry_leaves_nothing_behind(bench: Bench) {
    let nobody = JobId::from_uuid(uuid::Uuid::from_u128(7));
    let before = bench.store.totals().await.expect("totals");
    let good = || job().idempotency_key("once").tag("a", "b").queue("lane");
    let bad = [job().after([nobody]), job().run_at(crate::Timestamp::MAX)];
    for bad in bad {
        for batch in [vec![bad.clone(), good()], vec![good(), job(), bad.clone()]] {
            assert!(bench.try_insert(batch).await.is_err());
            assert_eq!(bench.store.totals().await.expect("totals"), before);
            assert!(bench.claim_from("lane", 9).await.is_empty());
            assert!(bench.claim(9).await.is_empty());
        }
    }
    assert!(!bench.insert(vec![good()]).await[0].existing, "the key was not taken by what was refused");
    bench.assert_sound().await;
}

async fn j2_a_batch_answers_in_its_own_order(bench: Bench) {
    let jobs: Vec<_> = (0..100).map(|n| NewJob::new(format!("type{n}"), Payload::json(&n).expect("json"))).collect();
    let inserted = bench.insert(jobs).await;
    let ids: Vec<_> = inserted.iter().map(|one| one.id).collect();
    let found = bench.store.find(&ids).await.expect("find");
    for (n, job) in found.into_iter().enumerate() {
        let job = job.expect("stored");
        assert_eq!((job.id, job.spec.job_type.as_str()), (ids[n], format!("type{n}").as_str()));
        assert_eq!(job.spec.payload.decode::<usize>().expect("number"), n);
    }
}

async fn j3_what_may_be_edited_is_edited_and_nothing_else(bench: Bench) {
    let id = bench.enqueue(job().tag("old", "1").correlation_id("before").priority(Priority::Low)).await;
    let before = bench.job(id).await;
    bench.advance(secs(9));
    let edit = Edit {
        priority: Some(Priority::Critical),
        tags: Some(BTreeMap::from([("new".to_owned(), "2".to_owned())])),
        correlation_id: Some(None),
        callback_url: Some(Some("https://example.com/hook".to_owned())),
    };
    bench.act(id, Act::Edit(edit.clone())).await;
    let mut expected = before;
    edit.apply(&mut expected);
    assert_eq!(bench.job(id).await, expected);
    assert_eq!(expected.spec.options.tags.len(), 1);
    bench.act(id, Act::Edit(Edit { callback_url: Some(None), ..Edit::default() })).await;
    assert_eq!(bench.job(id).await.spec.options.callback_url, None);
    bench.assert_sound().await;
}

async fn j3_tags_can_be_edited_in_every_state(bench: Bench) {
    let states = State::ALL.into_iter().filter(|state| *state != State::Scheduled);
    for state in states.chain([State::Scheduled]) {
        let id = bench.in_state(state).await;
        let mut expected = bench.job(id).await;
        bench.advance(MICRO);
        let tags = BTreeMap::from([("was".to_owned(), state.to_string())]);
        let edit = Edit { tags: Some(tags), ..Edit::default() };
        edit.apply(&mut expected);
        bench.act(id, Act::Edit(edit)).await;
        assert_eq!(bench.job(id).await, expected);
    }
    bench.assert_sound().await;
}

async fn j3_an_edit_out_of_bounds_changes_nothing(bench: Bench) {
    let id = bench.enqueue(job().tag("k", "v")).await;
    let before = snapshot(&bench, id).await;
    let many = (0..33).map(|n| (n.to_string(), String::new())).collect();
    let bad = [
        ("tags", Edit { tags: Some(many), ..Edit::default() }),
        ("tags", Edit { tags: Some(BTreeMap::from([("k".to_owned(), "nul\0".to_owned())])), ..Edit::default() }),
        ("correlation_id", Edit { correlation_id: Some(Some("é".repeat(257))), ..Edit::default() }),
        ("callback_url", Edit { callback_url: Some(Some("ftp://host/".to_owned())), ..Edit::default() }),
    ];
    for (field, edit) in bad {
        match edit.check() {
            Err(Error::InvalidArgument { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{field}: {other:?}"),
        }
        let target = crate::store::Target::Jobs(vec![id]);
        let operation =
            crate::store::Operation { target, act: Act::Edit(edit), by: None, why: String::new(), dry_run: false };
        // Refused as a whole or for the one job, as the store likes; the job stays as it was.
        let refused = bench.store.operate(&operation).await.map_or(true, |done| done.changed == 0);
        assert!(refused, "{field} out of bounds is refused");
        assert_eq!(snapshot(&bench, id).await, before);
    }
}

async fn j3_updated_at_moves_with_state_changes_only(bench: Bench) {
    let id = bench.enqueue(job().retry(no_jitter(3))).await;
    bench.advance(secs(1));
    let claimed = bench.claim_one().await;
    let claimed_at = bench.now();
    let key = claimed.lease.key();
    bench.advance(secs(1));
    bench.extend(key).await;
    let progress = Progress::new(0.5, "half").expect("progress");
    let save = Save::under(key).checkpoint("c").expect("small").progress(progress).log(["line".to_owned()]);
    bench.store.save(&[save]).await.expect("save").remove(0).expect("held");
    bench.act(id, Act::Edit(Edit { tags: Some(BTreeMap::new()), ..Edit::default() })).await;
    bench.act(id, Act::Cancel { force: false }).await;
    bench.upkeep().await;
    assert_eq!(bench.job(id).await.updated_at, claimed_at);
    bench.fail(claimed.lease).await;
    assert_eq!(bench.job(id).await.updated_at, bench.now());
}

async fn j3_payload_type_and_dependencies_survive_a_whole_life(bench: Bench) {
    let first = bench.in_state(State::Completed).await;
    let payload = Payload::json(&[1, 2, 3]).expect("json");
    let id = bench.enqueue(NewJob::new("kept", payload).after_all([first]).retry(no_jitter(1))).await;
    let before = bench.job(id).await;
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.job.spec, before.spec);
    bench.fail(claimed.lease).await;
    bench.act(id, Act::Requeue(RequeueOptions::default())).await;
    let claimed = bench.claim_one().await;
    bench.complete(claimed.lease).await;
    let after = bench.job(id).await;
    assert_eq!((after.id, after.created_at), (id, before.created_at));
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.spec.depends_on.len(), 1);
}

async fn j4_every_option_reads_back_as_submitted(bench: Bench) {
    let first = bench.enqueue(job().queue("other")).await;
    let policy = RetryPolicy {
        strategy: Backoff::Exponential { multiplier: 1.7 },
        initial: std::time::Duration::from_micros(1_234_567),
        max: secs(77),
        jitter: Jitter::Proportional(0.3),
        max_attempts: 17,
        retry_on: vec![Category::System, Category::Temporary],
        lost: Lost::Free,
        lost_backoff: true,
        interrupts_count: true,
        retry_after_max: secs(88),
    };
    let full = NewJob::new("full", Payload::json("payload").expect("json"))
        .queue("lane")
        .priority(Priority::Bulk)
        .delay(std::time::Duration::from_micros(5_000_001))
        .retry(policy)
        .execution_timeout(None)
        .visibility_timeout(secs(11))
        .lifetime(HOUR)
        .idempotency("key", Scope::Queue, secs(99))
        .after_any([first])
        .own_priority_only()
        .tag("team", "ops")
        .correlation_id("corr")
        .callback_url("https://example.com/hook")
        .trace_context("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("a=b".to_owned()))
        .cloned_from(first);
    let plain = job();
    for new in [full, plain] {
        let checked = new.clone().check(&Limits::default(), &Policies::default()).expect("valid");
        let id = bench.enqueue(new).await;
        assert_eq!(*bench.job(id).await.spec, checked);
    }
}

/// The one who takes a job back knows only what is written on it.
async fn j4_the_policy_on_the_job_decides_when_upkeep_takes_it_back(bench: Bench) {
    let waits = RetryPolicy { lost_backoff: true, ..no_jitter(2) };
    let never = RetryPolicy { retry_on: vec![Category::Temporary], ..no_jitter(5) };
    let free = RetryPolicy { lost: Lost::Free, ..no_jitter(1) };
    let mut ids = Vec::new();
    for policy in [waits, never, free, no_jitter(1)] {
        ids.push(bench.running(job().retry(policy)).await.job.id);
    }
    bench.pass(LEASE).await;
    let mut states = Vec::new();
    for id in &ids {
        states.push(bench.state(*id).await);
    }
    assert_eq!(states, [State::Retrying, State::Failed, State::Scheduled, State::DeadLetter]);
    assert_eq!(bench.job(ids[0]).await.run_at, Some(bench.now().plus(secs(1))));
    let freed = bench.job(ids[2]).await;
    assert_eq!((freed.failures, freed.lost), (0, 1));
    bench.assert_sound().await;
}
