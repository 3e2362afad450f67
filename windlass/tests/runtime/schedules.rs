//! Recurring work through workers: registered from code, fired by upkeep, once (rules C1, C2).

use std::time::Duration;

use windlass::store::Filter;
use windlass::worker::LeftSchedules;
use windlass::{Context, Schedule, State, Worker};

use crate::support::{Number, Setup, until};

const HOUR: Duration = Duration::from_secs(3600);

fn hourly(name: &str) -> Schedule {
    Schedule::every(name, HOUR, Number(1)).expect("a schedule")
}

fn worker(setup: &Setup) -> Worker {
    setup.worker(4).upkeep_interval(Duration::from_millis(5)).handle(async |job: Number, _: Context| Ok(job.0))
}

async fn fired(setup: &Setup, name: &str) -> u64 {
    let filter = Filter::new().schedule(name);
    setup.client.count(&filter, 1000).await.expect("count")
}

async fn c2_many_workers_tick_and_one_fires(setup: Setup) {
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(worker(&setup).schedule(hourly("tick")).start().await.expect("start"));
    }
    for slot in 1..=3 {
        setup.clock.advance(HOUR);
        until("it fired", || async { fired(&setup, "tick").await >= slot }).await;
        let completed = Filter::new().states([State::Completed]);
        until("it ran", || async { setup.client.count(&completed, 10).await.expect("count") == slot }).await;
        assert_eq!(fired(&setup, "tick").await, slot);
    }
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(fired(&setup, "tick").await, 3);
}

async fn registering_again_changes_nothing_and_a_change_replaces(setup: Setup) {
    let schedules = || async { setup.client.schedules(None, 10).await.expect("schedules") };
    worker(&setup).schedule(hourly("a")).drain().await.expect("drain");
    let first = schedules().await;
    assert!(first[0].spec.from_code);
    worker(&setup).schedule(hourly("a")).drain().await.expect("drain");
    assert_eq!(schedules().await, first);
    let daily = Schedule::every("a", 24 * HOUR, Number(1)).expect("a schedule");
    worker(&setup).schedule(daily).drain().await.expect("drain");
    assert_eq!(schedules().await[0].version, first[0].version + 1);
}

async fn a_schedule_that_left_the_code_is_kept_paused_or_deleted(setup: Setup) {
    let schedules = || async { setup.client.schedules(None, 10).await.expect("schedules") };
    setup.client.put_schedule(&hourly("by-hand")).await.expect("put");
    worker(&setup).schedule(hourly("a")).schedule(hourly("b")).drain().await.expect("drain");
    let left = |left| worker(&setup).schedule(hourly("a")).left_schedules(left);
    left(LeftSchedules::Keep).drain().await.expect("drain");
    assert!(schedules().await.iter().all(|schedule| !schedule.paused));
    left(LeftSchedules::Pause).drain().await.expect("drain");
    let paused: Vec<bool> = schedules().await.iter().map(|schedule| schedule.paused).collect();
    assert_eq!(paused, [false, true, false], "only b, which code registered");
    left(LeftSchedules::Delete).drain().await.expect("drain");
    let names: Vec<String> = schedules().await.into_iter().map(|schedule| schedule.spec.name).collect();
    assert_eq!(names, ["a", "by-hand"]);
}

async fn a_schedule_that_makes_no_sense_stops_the_start(setup: Setup) {
    let twice = worker(&setup).schedule(hourly("a")).schedule(hourly("a"));
    assert_eq!(twice.start().await.expect_err("twice").name(), "InvalidArgument");
    let unnamed = worker(&setup).schedule(hourly("a b"));
    assert_eq!(unnamed.start().await.expect_err("a bad name").name(), "InvalidArgument");
    assert!(Schedule::cron("x", "61 * * * *", Number(1)).is_err());
}

on_every_store!(
    c2_many_workers_tick_and_one_fires,
    registering_again_changes_nothing_and_a_change_replaces,
    a_schedule_that_left_the_code_is_kept_paused_or_deleted,
    a_schedule_that_makes_no_sense_stops_the_start,
);
