//! Section 10 of the contract: recurring work.

use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::moves::{checked, named, text};
use crate::job::{DependsOn, Firing, JobRecord, NewJob, Priority, State};
use crate::schedule::{Missed, Overlap, ScheduleRecord, ScheduleSpec};
use crate::store::{Filter, ScheduleEdit, ScheduleEdited, Upkeep};
use crate::time::Timestamp;
use crate::workflow::graph::DEPTH_MAX;

chapter! {
    c1_a_schedule_is_created_once,
    c1_a_replacement_takes_over_under_the_next_version,
    c1_a_replacement_of_an_older_version_is_refused,
    c1_a_paused_schedule_does_not_fire_nor_make_up_for_it,
    c1_a_trigger_fires_beside_the_slots,
    c1_a_deleted_schedule_is_forgotten_and_its_jobs_stay,
    c1_what_does_not_exist_is_not_found,
    c1_schedules_are_listed_by_name,
    c1_a_firing_is_made_from_the_template,
    c1_cron_and_fixed_rate_fire_at_their_slots,
    c2_concurrent_upkeeps_fire_a_slot_once,
    c2_a_schedule_made_anew_does_not_repeat_a_slot,
    c3_missed_slots_fire_as_one_by_default,
    c3_missed_slots_may_be_skipped,
    c3_missed_slots_may_fire_each_up_to_a_limit,
    c4_an_unfinished_job_skips_the_slot_by_default,
    c4_queue_one_waits_for_the_running_one,
    c4_allow_fires_every_slot,
    c4_a_failed_run_does_not_stop_the_schedule,
    c4_the_job_carries_its_nominal_time,
    c4_a_fixed_delay_waits_for_the_end_of_its_job,
    c4_queue_one_may_overlap_for_ever,
    c5_a_time_that_does_not_exist_fires_once_after_the_gap,
    c5_a_time_that_exists_twice_fires_once,
    c5_interval_patterns_follow_real_time,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Fires every minute, on the minute.
fn every_minute(name: &str) -> ScheduleSpec {
    ScheduleSpec::every(name, MINUTE, checked(named(name).lifetime(None)))
}

async fn try_edit(bench: &Bench, edit: ScheduleEdit) -> crate::Result<ScheduleEdited> {
    bench.store.edit_schedule(&edit, Some("ada")).await
}

async fn edit(bench: &Bench, change: ScheduleEdit) -> ScheduleEdited {
    try_edit(bench, change).await.expect("edit_schedule")
}

async fn create(bench: &Bench, spec: ScheduleSpec) -> ScheduleRecord {
    edit(bench, ScheduleEdit::Create(spec)).await.schedule
}

async fn refused(bench: &Bench, change: ScheduleEdit) -> &'static str {
    try_edit(bench, change).await.expect_err("should be refused").name()
}

async fn schedule(bench: &Bench, name: &str) -> Option<ScheduleRecord> {
    let all = bench.store.schedules(None, 100).await.expect("schedules");
    all.into_iter().find(|record| record.spec.name == name)
}

/// The jobs that a schedule fired, oldest first.
async fn fired(bench: &Bench, name: &str) -> Vec<JobRecord> {
    let filter = Filter { schedule: Some(name.to_owned()), ..Filter::default() };
    let mut jobs = bench.list(&filter).await;
    jobs.reverse();
    jobs
}

/// The slots that a schedule fired for, oldest first.
async fn slots(bench: &Bench, name: &str) -> Vec<Timestamp> {
    fired(bench, name).await.into_iter().map(|job| job.firing.expect("a firing").slot).collect()
}

async fn c1_a_schedule_is_created_once(bench: Bench) {
    let record = create(&bench, every_minute("a")).await;
    assert_eq!((record.version, record.paused, record.fired), (1, false, 0));
    assert_eq!((record.created_at, record.next_at), (bench.now(), Some(bench.now().plus(MINUTE))));
    assert_eq!(refused(&bench, ScheduleEdit::Create(every_minute("a"))).await, "Conflict");
    assert_eq!(schedule(&bench, "a").await, Some(record));
    let acts = bench.acts().await;
    assert_eq!(acts.len(), 1, "what was done is recorded, what was refused is not");
    assert_eq!(acts[0].by.as_deref(), Some("ada"), "with who did it");
}

async fn c1_a_replacement_takes_over_under_the_next_version(bench: Bench) {
    create(&bench, every_minute("a")).await;
    bench.pass(MINUTE).await;
    let hourly = ScheduleSpec::every("a", HOUR, checked(named("other")));
    let record = edit(&bench, ScheduleEdit::Put { spec: hourly.clone(), version: Some(1) }).await.schedule;
    assert_eq!((record.version, record.fired, &record.spec), (2, 1, &hourly));
    assert_eq!(record.next_at, Some(bench.now().plus(59 * MINUTE)));
    bench.pass(59 * MINUTE).await;
    assert_eq!(fired(&bench, "a").await.len(), 1, "the first firing is still unfinished");
    let fresh = edit(&bench, ScheduleEdit::Put { spec: every_minute("b"), version: None }).await.schedule;
    assert_eq!(fresh.version, 1, "a put creates what does not exist");
}

async fn c1_a_replacement_of_an_older_version_is_refused(bench: Bench) {
    create(&bench, every_minute("a")).await;
    let put = |version| ScheduleEdit::Put { spec: every_minute("a").overlap(Overlap::Allow), version };
    edit(&bench, put(Some(1))).await;
    assert_eq!(refused(&bench, put(Some(1))).await, "Conflict");
    assert_eq!(schedule(&bench, "a").await.expect("exists").version, 2);
    assert_eq!(edit(&bench, put(None)).await.schedule.version, 3, "without a version it always replaces");
}

async fn c1_a_paused_schedule_does_not_fire_nor_make_up_for_it(bench: Bench) {
    create(&bench, every_minute("a")).await;
    assert!(edit(&bench, ScheduleEdit::Pause("a".to_owned())).await.schedule.paused);
    assert_eq!(bench.pass(10 * MINUTE).await.fired, 0);
    let resumed = edit(&bench, ScheduleEdit::Resume("a".to_owned())).await.schedule;
    assert!(!resumed.paused);
    assert_eq!(bench.upkeep().await.fired, 0, "slots that passed meanwhile do not fire");
    assert_eq!(bench.pass(MINUTE).await.fired, 1);
}

async fn c1_a_trigger_fires_beside_the_slots(bench: Bench) {
    let before = create(&bench, every_minute("a")).await;
    bench.advance(Duration::from_secs(7));
    let edited = edit(&bench, ScheduleEdit::Trigger("a".to_owned())).await;
    let job = bench.job(edited.job.expect("the job that was fired")).await;
    assert_eq!(job.state, State::Scheduled);
    assert_eq!(job.firing, Some(Firing { schedule: "a".to_owned(), slot: bench.now() }));
    let after = edited.schedule;
    assert_eq!((after.fired, after.next_at, after.last_slot, after.last_job), (1, before.next_at, None, None));
    edit(&bench, ScheduleEdit::Pause("a".to_owned())).await;
    bench.advance(Duration::from_secs(1));
    edit(&bench, ScheduleEdit::Trigger("a".to_owned())).await;
    assert_eq!(fired(&bench, "a").await.len(), 2, "whatever the overlap policy says, and while paused");
    bench.assert_sound().await;
}

async fn c1_a_deleted_schedule_is_forgotten_and_its_jobs_stay(bench: Bench) {
    create(&bench, every_minute("a")).await;
    bench.pass(MINUTE).await;
    let deleted = edit(&bench, ScheduleEdit::Delete("a".to_owned())).await.schedule;
    assert_eq!(deleted.spec.name, "a");
    assert_eq!(schedule(&bench, "a").await, None);
    assert_eq!(bench.pass(10 * MINUTE).await.fired, 0);
    assert_eq!(bench.claim(10).await.len(), 1);
}

async fn c1_what_does_not_exist_is_not_found(bench: Bench) {
    let name = || "nowhere".to_owned();
    let edits = [ScheduleEdit::Pause, ScheduleEdit::Resume, ScheduleEdit::Trigger, ScheduleEdit::Delete];
    for change in edits {
        assert_eq!(refused(&bench, change(name())).await, "NotFound");
    }
    assert!(bench.acts().await.is_empty());
}

async fn c1_schedules_are_listed_by_name(bench: Bench) {
    for name in ["c", "a", "d", "b"] {
        create(&bench, every_minute(name)).await;
    }
    let names = |records: Vec<ScheduleRecord>| records.into_iter().map(|record| record.spec.name).collect::<Vec<_>>();
    assert_eq!(names(bench.store.schedules(None, 3).await.expect("schedules")), ["a", "b", "c"]);
    assert_eq!(names(bench.store.schedules(Some("b"), 3).await.expect("schedules")), ["c", "d"]);
}

async fn c1_a_firing_is_made_from_the_template(bench: Bench) {
    let template = NewJob::new("report", text("weekly")).queue("reports").priority(Priority::High).tag("team", "a");
    let template = checked(template.max_attempts(7));
    create(&bench, ScheduleSpec::every("a", MINUTE, template.clone())).await;
    bench.pass(MINUTE).await;
    let job = fired(&bench, "a").await.remove(0);
    assert_eq!(*job.spec, template);
    assert_eq!((job.state, job.created_at), (State::Scheduled, bench.now()));
    assert_eq!(bench.claim_from("reports", 1).await[0].job.id, job.id);
}

async fn c1_cron_and_fixed_rate_fire_at_their_slots(bench: Bench) {
    let job = || checked(named("tick").lifetime(None));
    let anchor = bench.now().plus(Duration::from_secs(10));
    let rate = ScheduleSpec::every("rate", Duration::from_secs(45), job()).anchor(anchor);
    create(&bench, rate.overlap(Overlap::Allow)).await;
    let fifth = ScheduleSpec::cron("cron", "*/5 * * * *", "UTC", job()).expect("valid");
    create(&bench, fifth.overlap(Overlap::Allow)).await;
    let seconds = ScheduleSpec::cron("seconds", "30 */5 * * * *", "UTC", job()).expect("valid");
    create(&bench, seconds.overlap(Overlap::Allow)).await;
    let start = bench.now();
    for _ in 0..120 {
        bench.pass(Duration::from_secs(5)).await;
    }
    let after = |seconds: &[u64]| seconds.iter().map(|at| start.plus(Duration::from_secs(*at))).collect::<Vec<_>>();
    assert_eq!(slots(&bench, "cron").await, after(&[300, 600]));
    assert_eq!(slots(&bench, "seconds").await, after(&[30, 330]));
    let rate: Vec<u64> = (0..14).map(|n| 10 + 45 * n).collect();
    assert_eq!(slots(&bench, "rate").await, after(&rate));
}

async fn c2_concurrent_upkeeps_fire_a_slot_once(bench: Bench) {
    create(&bench, every_minute("a").overlap(Overlap::Allow)).await;
    for round in 1..=5 {
        bench.advance(MINUTE);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let store = Arc::clone(&bench.store);
                tokio::spawn(async move { store.upkeep(&Upkeep::default()).await })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.expect("a task").expect("upkeep").fired;
        }
        assert_eq!(sum, 1);
        assert_eq!(fired(&bench, "a").await.len(), round);
    }
    let mut slots = slots(&bench, "a").await;
    slots.dedup();
    assert_eq!(slots.len(), 5, "each slot once");
    bench.assert_sound().await;
}

async fn c2_a_schedule_made_anew_does_not_repeat_a_slot(bench: Bench) {
    create(&bench, every_minute("a").overlap(Overlap::Allow)).await;
    bench.pass(MINUTE).await;
    edit(&bench, ScheduleEdit::Delete("a".to_owned())).await;
    create(&bench, every_minute("a").overlap(Overlap::Allow)).await;
    assert_eq!(bench.upkeep().await.fired, 0);
    edit(&bench, ScheduleEdit::Put { spec: every_minute("a"), version: None }).await;
    assert_eq!(bench.upkeep().await.fired, 0, "nor does a replacement");
    assert_eq!(slots(&bench, "a").await, [bench.now()]);
}

async fn c3_missed_slots_fire_as_one_by_default(bench: Bench) {
    create(&bench, ScheduleSpec::every("a", HOUR, checked(named("a").lifetime(None)))).await;
    let start = bench.now();
    assert_eq!(bench.pass(14 * DAY + 30 * MINUTE).await.fired, 1);
    assert_eq!(slots(&bench, "a").await, [start.plus(14 * DAY)], "the newest of them");
    assert_eq!(schedule(&bench, "a").await.expect("exists").next_at, Some(start.plus(14 * DAY + HOUR)));
}

async fn c3_missed_slots_may_be_skipped(bench: Bench) {
    let hourly = ScheduleSpec::every("a", HOUR, checked(named("a").lifetime(None)));
    create(&bench, hourly.missed(Missed::Skip)).await;
    assert_eq!(bench.pass(14 * DAY + 30 * MINUTE).await.fired, 0);
    assert_eq!(bench.pass(30 * MINUTE).await.fired, 1, "the next slot fires in its time");
    assert_eq!(slots(&bench, "a").await, [bench.now()]);
}

async fn c3_missed_slots_may_fire_each_up_to_a_limit(bench: Bench) {
    let hourly = ScheduleSpec::every("a", HOUR, checked(named("a").lifetime(None)));
    create(&bench, hourly.missed(Missed::All(5)).overlap(Overlap::Allow)).await;
    let start = bench.now();
    assert_eq!(bench.pass(14 * DAY + 30 * MINUTE).await.fired, 5);
    let newest: Vec<_> = (0..5u32).rev().map(|hours| start.plus(14 * DAY - hours * HOUR)).collect();
    assert_eq!(slots(&bench, "a").await, newest, "the newest, oldest first");
    assert_eq!(bench.pass(30 * MINUTE).await.fired, 1);
    bench.assert_sound().await;
}

async fn c4_an_unfinished_job_skips_the_slot_by_default(bench: Bench) {
    create(&bench, every_minute("a")).await;
    let start = bench.now();
    bench.pass(MINUTE).await;
    assert_eq!(bench.pass(MINUTE).await.fired, 0, "the first firing has not been claimed");
    let first = fired(&bench, "a").await[0].id;
    bench.end(first, State::Completed).await;
    assert_eq!(bench.upkeep().await.fired, 0, "a skipped slot is over");
    assert_eq!(bench.pass(MINUTE).await.fired, 1);
    assert_eq!(slots(&bench, "a").await, [start.plus(MINUTE), start.plus(3 * MINUTE)]);
}

async fn c4_queue_one_waits_for_the_running_one(bench: Bench) {
    create(&bench, every_minute("a").overlap(Overlap::QueueOne)).await;
    bench.pass(MINUTE).await;
    let first = bench.claim_one().await;
    bench.store.extend(&[first.lease.key()], Some(HOUR)).await.expect("extend");
    assert_eq!(bench.pass(MINUTE).await.fired, 1);
    assert_eq!(bench.pass(MINUTE).await.fired, 0, "one waits already");
    let second = fired(&bench, "a").await[1].clone();
    assert_eq!(second.state, State::Pending);
    assert_eq!(second.spec.depends_on[0].on, DependsOn::Job(first.job.id));
    let failure = crate::job::Failure::permanent("broken", "it is broken");
    bench.apply(first.lease.fail(failure, &mut || 0.5)).await;
    assert_eq!(bench.state(second.id).await, State::Scheduled, "however the first ended");
    bench.assert_sound().await;
}

async fn c4_allow_fires_every_slot(bench: Bench) {
    create(&bench, every_minute("a").overlap(Overlap::Allow)).await;
    for _ in 0..3 {
        assert_eq!(bench.pass(MINUTE).await.fired, 1);
    }
    assert_eq!(bench.claim(10).await.len(), 3);
}

async fn c4_queue_one_may_overlap_for_ever(bench: Bench) {
    create(&bench, every_minute("a").overlap(Overlap::QueueOne)).await;
    bench.pass(MINUTE).await;
    for _ in 0..DEPTH_MAX + 20 {
        let running = bench.claim_one().await;
        bench.store.extend(&[running.lease.key()], Some(HOUR)).await.expect("extend");
        assert_eq!(bench.pass(MINUTE).await.fired, 1, "each waits only for the one before it");
        bench.complete(running.lease).await;
    }
    assert_eq!(schedule(&bench, "a").await.expect("exists").last_error, None);
}

async fn c4_a_failed_run_does_not_stop_the_schedule(bench: Bench) {
    create(&bench, every_minute("a")).await;
    for (round, end) in [State::Failed, State::DeadLetter, State::Cancelled, State::Completed].into_iter().enumerate() {
        assert_eq!(bench.pass(MINUTE).await.fired, 1);
        let job = fired(&bench, "a").await[round].id;
        bench.end(job, end).await;
    }
    assert_eq!(schedule(&bench, "a").await.expect("exists").fired, 4);
}

async fn c4_the_job_carries_its_nominal_time(bench: Bench) {
    create(&bench, every_minute("a")).await;
    let slot = bench.now().plus(MINUTE);
    bench.pass(MINUTE + Duration::from_secs(20)).await;
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.job.firing, Some(Firing { schedule: "a".to_owned(), slot }));
    assert_eq!(claimed.job.created_at, bench.now(), "it was fired late");
    let record = schedule(&bench, "a").await.expect("exists");
    assert_eq!((record.last_slot, record.last_job), (Some(slot), Some(claimed.job.id)));
}

async fn c4_a_fixed_delay_waits_for_the_end_of_its_job(bench: Bench) {
    create(&bench, ScheduleSpec::delay("a", MINUTE, checked(named("a").lifetime(None)))).await;
    assert_eq!(bench.pass(MINUTE).await.fired, 1);
    assert_eq!(bench.pass(10 * MINUTE).await.fired, 0, "its job has not ended");
    assert_eq!(schedule(&bench, "a").await.expect("exists").next_at, None, "nobody knows when that will be");
    let first = fired(&bench, "a").await[0].id;
    bench.end(first, State::Failed).await;
    assert_eq!(bench.upkeep().await.fired, 0);
    assert_eq!(bench.pass(MINUTE - Duration::from_micros(1)).await.fired, 0);
    assert_eq!(bench.pass(Duration::from_micros(1)).await.fired, 1);
    assert_eq!(slots(&bench, "a").await.last(), Some(&bench.now()));
}

/// The slots that a cron schedule in Berlin fires for between two moments, with upkeep every quarter of an hour.
async fn night_in_berlin(bench: &Bench, expression: &str, from: &str, hours: u32) -> Vec<String> {
    bench.clock.advance_to(from.parse().expect("a time"));
    let job = checked(named("night").lifetime(None));
    let spec = ScheduleSpec::cron("night", expression, "Europe/Berlin", job).expect("valid");
    create(bench, spec.overlap(Overlap::Allow)).await;
    for _ in 0..4 * hours {
        bench.pass(15 * MINUTE).await;
    }
    slots(bench, "night").await.iter().map(ToString::to_string).collect()
}

async fn c5_a_time_that_does_not_exist_fires_once_after_the_gap(bench: Bench) {
    // At 02:00 local time on 29 March 2026, which is 01:00 UTC, clocks go to 03:00.
    let slots = night_in_berlin(&bench, "30 2 * * *", "2026-03-28T12:00:00Z", 48).await;
    assert_eq!(slots, ["2026-03-29T01:00:00.000000Z", "2026-03-30T00:30:00.000000Z"]);
}

async fn c5_a_time_that_exists_twice_fires_once(bench: Bench) {
    // At 03:00 local time on 25 October 2026, which is 01:00 UTC, clocks go back to 02:00.
    let slots = night_in_berlin(&bench, "30 2 * * *", "2026-10-24T12:00:00Z", 24).await;
    assert_eq!(slots.len(), 1, "{slots:?}");
}

async fn c5_interval_patterns_follow_real_time(bench: Bench) {
    let slots = night_in_berlin(&bench, "*/30 * * * *", "2026-10-24T23:00:00Z", 4).await;
    let half_hours: Vec<_> = ["23:30", "00:00", "00:30", "01:00", "01:30", "02:00", "02:30", "03:00"]
        .into_iter()
        .map(|time| format!("2026-10-{}T{time}:00.000000Z", if time == "23:30" { 24 } else { 25 }))
        .collect();
    assert_eq!(slots, half_hours);
}
