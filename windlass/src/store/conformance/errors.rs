//! Section 14 of the contract: what a store says when it refuses, and what it never says.

use super::Bench;
use super::bench::{LEASE, job};
use super::moves::{CANCEL, checked, queue, requeue, text};
use crate::error::Error;
use crate::job::{JobId, NewJob, RequeueOptions, State};
use crate::schedule::{Missed, ScheduleSpec};
use crate::store::{Act, Cursor, Edit, Filter, ListQuery, Operation, ScheduleEdit, Target, WorkflowQuery};

chapter! {
    e_errors_say_what_was_attempted_and_on_what,
    e_messages_hold_no_payload,
    e_a_cursor_from_elsewhere_is_refused,
    e_bad_values_are_refused_before_they_are_stored,
    e_reading_what_does_not_exist_is_not_found,
}

const SECRET: &str = "correct horse battery staple";

async fn refusal(bench: &Bench, id: JobId, act: Act) -> Error {
    bench.try_act(id, act).await.expect_err("should be refused")
}

async fn e_errors_say_what_was_attempted_and_on_what(bench: Bench) {
    let unknown = crate::store::new_job_id();
    let done = bench.in_state(State::Completed).await;
    let errors = [
        (refusal(&bench, unknown, CANCEL).await, "NotFound", format!("job {:?} does not exist", unknown.to_string())),
        (refusal(&bench, done, CANCEL).await, "IllegalState", format!("cannot cancel job {done}: it is COMPLETED")),
        (refusal(&bench, done, requeue()).await, "IllegalState", format!("cannot requeue job {done}: it is COMPLETED")),
        (
            bench.try_insert(vec![job().after([unknown])]).await.expect_err("unknown"),
            "DependencyNotFound",
            format!("cannot depend on job {unknown}: it does not exist"),
        ),
        (
            bench.store.edit_schedule(&ScheduleEdit::Pause("nightly".into()), None).await.expect_err("unknown"),
            "NotFound",
            "schedule \"nightly\" does not exist".to_owned(),
        ),
    ];
    for (error, name, message) in errors {
        assert_eq!((error.name(), error.to_string()), (name, message));
        assert!(error.outcome_is_known() && !error.is_transient());
    }
}

async fn e_messages_hold_no_payload(bench: Bench) {
    let secret = || NewJob::new("test", text(SECRET));
    let unknown = crate::store::new_job_id();
    let id = bench.enqueue(secret()).await;
    let claimed = bench.claim_one().await;
    let shown = format!("{claimed:?} {:?}", bench.job(id).await);
    assert!(!shown.contains(SECRET), "a record shows its payload");
    bench.apply(claimed.lease.complete(Some(text(SECRET)))).await;
    let mut errors = vec![
        bench.try_insert(vec![secret().after([unknown])]).await.expect_err("unknown"),
        bench
            // Beyond a lifetime that was named: the default one counts from the first run.
            .try_insert(vec![secret().lifetime(LEASE).run_at(bench.now().plus(2 * LEASE))])
            .await
            .expect_err("beyond"),
        bench.try_insert(vec![NewJob::new("test", text(&SECRET.repeat(1 << 16)))]).await.expect_err("too large"),
    ];
    for act in [CANCEL, requeue(), Act::DeadLetter] {
        errors.push(refusal(&bench, id, act).await);
    }
    for error in errors {
        assert!(!format!("{error} {error:?}").contains(SECRET), "{}", error.name());
    }
    let findings = bench.store.check().await.expect("check");
    assert!(findings.is_empty(), "{findings:?}");
}

async fn e_a_cursor_from_elsewhere_is_refused(bench: Bench) {
    bench.insert(vec![job(); 3]).await;
    let texts = ["", "nonsense", "-1", "1.5", "99999999999999999999999999", "'; drop table jobs", "\u{0}", "\u{1F600}"];
    for cursor in texts.map(|text| Cursor(text.to_owned())) {
        let query =
            ListQuery { filter: Filter::default(), limit: 3, after: Some(cursor.clone()), ..ListQuery::default() };
        let target = Target::Matching { filter: Filter::default(), limit: 3, after: Some(cursor.clone()) };
        let operation = Operation { target, act: CANCEL, by: None, why: String::new(), dry_run: true };
        let errors = [
            bench.store.list(&query).await.map(drop),
            bench.store.operate(&operation).await.map(drop),
            bench.store.events(Some(&cursor), 3).await.map(drop),
            bench.store.acts(Some(&cursor), 3).await.map(drop),
            bench.store.workflows(&WorkflowQuery::Newest { limit: 3, after: Some(cursor.clone()) }).await.map(drop),
        ];
        for error in errors {
            assert_eq!(error.expect_err("no cursor of this store").name(), "InvalidArgument", "{cursor:?}");
        }
    }
    // Schedules go by name, so any text is a place among them.
    for text in ["", "\u{0}", "a\u{0}b", "\u{7f}", "\u{1F600}"] {
        let listed = bench.store.schedules(Some(text), 3).await;
        assert_eq!(listed.map(|listed| listed.len()).map_err(|error| error.name()), Ok(0), "{text:?}");
    }
    // Text that might be a cursor may be taken for one, but must not upset the store.
    for text in [i64::MAX.to_string(), u64::MAX.to_string(), "0".to_owned()] {
        let after = Some(Cursor(text));
        let query = ListQuery { filter: Filter::default(), limit: 3, after: after.clone(), ..ListQuery::default() };
        let target = Target::Matching { filter: Filter::default(), limit: 3, after: after.clone() };
        let operation = Operation { target, act: CANCEL, by: None, why: String::new(), dry_run: true };
        let _ = bench.store.list(&query).await;
        let _ = bench.store.operate(&operation).await;
        let _ = bench.store.events(after.as_ref(), 3).await;
        let _ = bench.store.acts(after.as_ref(), 3).await;
        let _ = bench.store.workflows(&WorkflowQuery::Newest { limit: 3, after: after.clone() }).await;
    }
    assert_eq!(bench.claim(3).await.len(), 3);
}

async fn e_bad_values_are_refused_before_they_are_stored(bench: Bench) {
    let id = bench.enqueue(job()).await;
    let edits = [
        ("tags", Edit { tags: Some([(String::new(), String::new())].into()), ..Edit::default() }),
        ("correlation_id", Edit { correlation_id: Some(Some("x".repeat(257))), ..Edit::default() }),
        ("callback_url", Edit { callback_url: Some(Some("ftp://example.com".to_owned())), ..Edit::default() }),
    ];
    for (field, edit) in edits {
        let operation = Operation {
            target: Target::Jobs(vec![id]),
            act: Act::Edit(edit),
            by: None,
            why: String::new(),
            dry_run: false,
        };
        let error = match bench.store.operate(&operation).await {
            Err(error) => error,
            Ok(answer) => answer.refused.into_iter().next().expect("refused").1,
        };
        assert!(matches!(error, Error::InvalidArgument { field: named, .. } if named == field), "{error}");
    }
    let all = ScheduleSpec::every("s", std::time::Duration::from_secs(60), checked(job())).missed(Missed::All(0));
    let error = bench.store.edit_schedule(&ScheduleEdit::Create(all), None).await.expect_err("all(0)");
    assert_eq!(error.name(), "InvalidArgument");
    let dead = bench.enqueue(job().queue("dead").lifetime(std::time::Duration::from_secs(9))).await;
    bench.end(dead, State::Failed).await;
    let run_at = Some(bench.now().plus(std::time::Duration::from_secs(9)));
    let error = refusal(&bench, dead, Act::Requeue(RequeueOptions { run_at, ..RequeueOptions::default() })).await;
    assert!(error.to_string().contains("run_at"), "{error}");
    assert_eq!(bench.state(dead).await, State::Failed);
}

async fn e_reading_what_does_not_exist_is_not_found(bench: Bench) {
    let unknown = crate::store::new_job_id();
    let errors = [
        bench.store.attempts(unknown).await.map(drop),
        bench.store.logs(unknown).await.map(drop),
        bench.store.explain(unknown).await.map(drop),
    ];
    for error in errors {
        assert_eq!(error.expect_err("unknown").name(), "NotFound");
    }
    assert_eq!(bench.store.find(&[]).await.expect("find"), []);
    assert!(bench.claim_from(queue("nowhere").as_str(), 1).await.is_empty(), "an unknown queue is an empty one");
    // No SQL text can hold NUL: a name that does is nobody's, and upsets no store.
    let pause = ScheduleEdit::Pause("a\u{0}b".to_owned());
    assert_eq!(bench.store.edit_schedule(&pause, None).await.expect_err("unknown").name(), "NotFound");
    let filter = Filter { schedule: Some("\u{0}".to_owned()), ..Filter::default() };
    assert_eq!(bench.count(&filter, 10).await, 0);
}
