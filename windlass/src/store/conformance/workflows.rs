//! Section 9 of the contract: spawning, joining, and workflows as a whole (W4 to W7).

use std::time::Duration;

use super::Bench;
use super::bench::job;
use super::moves::{CANCEL, checked, in_states, named, text};
use crate::job::{DependencyKind, DependsOn, JobId, Limits, NewJob, Policies, RequeueOptions, State};
use crate::store::{Act, Filter, Inserted, Operated, Settled, Target, WorkflowQuery};
use crate::workflow::{Join, Workflow, WorkflowState, chain, chord, group};

chapter! {
    w4_a_chord_of_1000_releases_its_finaliser_once,
    w4_children_are_stored_with_the_completion,
    w4_children_may_name_each_other_and_their_parent,
    w4_a_repeated_completion_spawns_nothing_more,
    w4_an_unknown_dependency_of_a_child_changes_nothing,
    w4_a_cycle_through_children_changes_nothing,
    w4_an_indirect_cycle_through_children_changes_nothing,
    w4_one_refused_settlement_does_not_fail_the_others,
    w4_a_fan_in_waits_for_all_that_was_spawned,
    w4_a_fan_in_of_successes_dies_with_a_child,
    w4_a_fan_in_of_ends_waits_for_failed_children_too,
    w4_a_fan_in_without_children_follows_its_job,
    w5_the_results_of_dependencies_can_be_read,
    w6_a_workflow_counts_its_jobs_by_state,
    w6_shapes_nest_and_run_in_order,
    w6_a_workflow_ends_as_its_jobs_do,
    w6_a_workflow_counts_what_was_spawned_and_pruned,
    w6_workflows_are_listed_newest_first,
    w7_cancelling_a_workflow_ends_every_unfinished_job,
    w7_a_requeue_takes_along_the_dependents_that_died_of_it,
    w7_a_requeue_with_dependents_goes_through_a_diamond,
    w7_dependents_that_come_along_wait_for_each_other,
    w7_a_requeued_fan_in_cannot_come_to_wait_for_itself,
    w7_a_requeue_alone_leaves_the_dependents_dead,
    w7_a_requeued_dependent_waits_for_unfinished_dependencies_only,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn fan_in(on: JobId, kind: DependencyKind) -> NewJob {
    named("join").depends_on(DependsOn::Job(on), kind)
}

async fn w4_a_chord_of_1000_releases_its_finaliser_once(bench: Bench) {
    let mut flow = Workflow::new("chord");
    flow.piece(chord((0..1000).map(|_| named("member")), named("finaliser")));
    let submission = flow.check(&Limits::default(), &Policies::default()).expect("valid");
    let inserted = bench.store.insert(submission).await.expect("insert");
    let finaliser = inserted.jobs[1000].id;
    for _ in 0..4 {
        assert_eq!(bench.state(finaliser).await, State::Pending);
        let claimed = bench.claim(250).await;
        assert_eq!(claimed.len(), 250);
        let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
        bench.store.settle(&settlements).await.expect("settle");
        // A committer that lost the reply repeats.
        bench.store.settle(&settlements).await.expect("settle");
    }
    assert_eq!(bench.claim_ids(10).await, [finaliser]);
    assert!(bench.claim(10).await.is_empty());
    bench.assert_sound().await;
}

async fn w4_children_are_stored_with_the_completion(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let children = vec![named("now").tag("a", "b"), named("later").delay(DAY)];
    let settled = bench.complete_and_spawn(parent.lease, children).await;
    assert!(matches!(settled, Settled::Applied(State::Completed)), "{settled:?}");
    let (now, later) = (bench.only("now").await, bench.only("later").await);
    assert_eq!((now.state, later.state), (State::Scheduled, State::Delayed));
    assert_eq!((now.spawned_by, later.spawned_by), (Some(parent.job.id), Some(parent.job.id)));
    assert_eq!((now.created_at, now.spec.options.tags.len()), (bench.now(), 1));
    assert_eq!(bench.totals().await.accepted, 3);
    bench.assert_sound().await;
}

async fn w4_children_may_name_each_other_and_their_parent(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let second = named("second")
        .depends_on(DependsOn::Batch(0), DependencyKind::After)
        .depends_on(DependsOn::Job(parent.job.id), DependencyKind::After);
    bench.complete_and_spawn(parent.lease, vec![named("first"), second]).await;
    let (first, second) = (bench.only("first").await, bench.only("second").await);
    assert_eq!((first.state, second.state), (State::Scheduled, State::Pending));
    bench.end(first.id, State::Completed).await;
    assert_eq!(bench.state(second.id).await, State::Scheduled);
}

async fn w4_a_repeated_completion_spawns_nothing_more(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let settlement = parent.lease.complete(None).spawn(vec![checked(named("child"))]).expect("a completion");
    bench.settle(&settlement).await;
    assert!(matches!(bench.settle(&settlement).await, Settled::AlreadyApplied));
    bench.only("child").await;
}

async fn w4_an_unknown_dependency_of_a_child_changes_nothing(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let before = bench.job(parent.job.id).await;
    let children = vec![named("good"), named("bad").after([crate::store::new_job_id()])];
    let key = parent.lease.key();
    let settled = bench.complete_and_spawn(parent.lease, children).await;
    assert!(matches!(&settled, Settled::Refused(error) if error.name() == "DependencyNotFound"), "{settled:?}");
    assert_eq!(bench.job(before.id).await, before);
    assert_eq!(bench.totals().await.accepted, 1);
    let lease = crate::job::Lease::granted(&before, key.token);
    assert_eq!(bench.complete(lease).await, State::Completed, "the lease still holds");
}

async fn w4_a_cycle_through_children_changes_nothing(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let join = bench.enqueue(fan_in(parent.job.id, DependencyKind::FanInSuccess)).await;
    let settled = bench.complete_and_spawn(parent.lease, vec![named("child").after([join])]).await;
    assert!(matches!(&settled, Settled::Refused(error) if error.name() == "DependencyCycle"), "{settled:?}");
    assert_eq!(bench.states(&[parent.job.id, join]).await, [State::Running, State::Pending]);
    assert_eq!(bench.totals().await.accepted, 2);
    bench.assert_sound().await;
}

async fn w4_an_indirect_cycle_through_children_changes_nothing(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let join = bench.enqueue(fan_in(parent.job.id, DependencyKind::FanInDone)).await;
    let between = bench.enqueue(named("between").after_all([join])).await;
    let children = vec![named("first").after_any([between])];
    let settled = bench.complete_and_spawn(parent.lease, children).await;
    assert!(matches!(&settled, Settled::Refused(error) if error.name() == "DependencyCycle"), "{settled:?}");
    assert_eq!(bench.totals().await.accepted, 3);
}

async fn w4_one_refused_settlement_does_not_fail_the_others(bench: Bench) {
    bench.insert(vec![job(), job(), job()]).await;
    let mut claimed = bench.claim(3).await.into_iter();
    let mut next = || claimed.next().expect("three").lease.complete(None);
    let unknown = checked(named("child").after([crate::store::new_job_id()]));
    let settlements = [next(), next().spawn(vec![unknown]).expect("a completion"), next()];
    let answers = bench.store.settle(&settlements).await.expect("settle");
    assert!(
        matches!(&answers[..], [Settled::Applied(_), Settled::Refused(_), Settled::Applied(_)]),
        "one answer for each, in order: {answers:?}"
    );
    assert_eq!(bench.ids(&in_states(&[State::Running])).await.len(), 1);
}

async fn w4_a_fan_in_waits_for_all_that_was_spawned(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let join = bench.enqueue(fan_in(parent.job.id, DependencyKind::FanInSuccess)).await;
    bench.complete_and_spawn(parent.lease, vec![named("a"), named("b")]).await;
    assert_eq!(bench.state(join).await, State::Pending);
    let (a, b) = (bench.only("a").await.id, bench.only("b").await.id);
    bench.end(b, State::Completed).await;
    let a = bench.take(a).await;
    bench.complete_and_spawn(a.lease, vec![named("grandchild")]).await;
    assert_eq!(bench.state(join).await, State::Pending, "it waits for what its children spawn, too");
    let grandchild = bench.only("grandchild").await.id;
    bench.end(grandchild, State::Completed).await;
    assert_eq!(bench.state(join).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn w4_a_fan_in_of_successes_dies_with_a_child(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let join = bench.enqueue(fan_in(parent.job.id, DependencyKind::FanInSuccess)).await;
    bench.complete_and_spawn(parent.lease, vec![named("a"), named("b")]).await;
    let a = bench.only("a").await.id;
    bench.end(a, State::Failed).await;
    let join = bench.job(join).await;
    assert_eq!(join.state, State::Failed);
    assert_eq!(join.reason.expect("a reason").cause, Some(a));
    bench.assert_sound().await;
}

async fn w4_a_fan_in_of_ends_waits_for_failed_children_too(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let join = bench.enqueue(fan_in(parent.job.id, DependencyKind::FanInDone)).await;
    bench.complete_and_spawn(parent.lease, vec![named("a"), named("b")]).await;
    let (a, b) = (bench.only("a").await.id, bench.only("b").await.id);
    bench.end(a, State::Failed).await;
    assert_eq!(bench.state(join).await, State::Pending);
    bench.end(b, State::Cancelled).await;
    assert_eq!(bench.state(join).await, State::Scheduled);
}

async fn w4_a_fan_in_without_children_follows_its_job(bench: Bench) {
    for (kind, end, state) in [
        (DependencyKind::FanInSuccess, State::Completed, State::Scheduled),
        (DependencyKind::FanInSuccess, State::DeadLetter, State::DeadLetter),
        (DependencyKind::FanInDone, State::DeadLetter, State::Scheduled),
    ] {
        let parent = bench.enqueue(named("parent")).await;
        let join = bench.enqueue(fan_in(parent, kind)).await;
        bench.end(parent, end).await;
        assert_eq!(bench.state(join).await, state, "{kind:?} after {end}");
    }
}

async fn w5_the_results_of_dependencies_can_be_read(bench: Bench) {
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let claimed = bench.running(named(name)).await;
        bench.apply(claimed.lease.complete(Some(text(name)))).await;
        ids.push(claimed.job.id);
    }
    bench.enqueue(named("sum").after(ids)).await;
    let sum = bench.claim_one().await;
    let mut results = Vec::new();
    for dependency in &sum.job.spec.depends_on {
        let DependsOn::Job(id) = dependency.on else { panic!("a stored dependency is an id") };
        results.push(bench.job(id).await.result.expect("a result").decode::<String>().expect("text"));
    }
    assert_eq!(results, ["a", "b"]);
}

async fn w6_a_workflow_counts_its_jobs_by_state(bench: Bench) {
    let after = |name: &str| named(name).depends_on(DependsOn::Batch(0), DependencyKind::After);
    let flow = bench.submit_workflow("order-42", vec![named("a"), after("b"), named("c").delay(DAY)]).await;
    let record = bench.workflow(&flow).await;
    assert_eq!((record.name.as_str(), record.created_at, record.pruned), ("order-42", bench.now(), 0));
    assert_eq!(record.counts, [1, 1, 1, 0, 0, 0, 0, 0, 0]);
    for inserted in &flow.jobs {
        assert_eq!(bench.job(inserted.id).await.workflow_id, flow.workflow);
    }
    let a = bench.take(flow.jobs[0].id).await;
    assert_eq!(bench.workflow(&flow).await.counts, [1, 1, 0, 1, 0, 0, 0, 0, 0]);
    bench.complete(a.lease).await;
    bench.advance(DAY);
    assert_eq!(bench.workflow(&flow).await.counts, [0, 0, 2, 0, 0, 1, 0, 0, 0], "the clock moves the delayed one");
    assert_eq!(bench.find_workflow(crate::store::new_workflow_id()).await, None);
    let (id, unknown) = (flow.workflow.expect("an id"), crate::store::new_workflow_id());
    let found = bench.store.workflows(&WorkflowQuery::Ids(vec![unknown, id, id])).await.expect("workflows");
    assert_eq!(found.items.iter().map(|found| found.id).collect::<Vec<_>>(), [id, id], "in the order asked");
    assert_eq!(found.next, None);
}

async fn w6_shapes_nest_and_run_in_order(bench: Bench) {
    let mut flow = Workflow::new("nested");
    let inner = chord([named("b").into(), chain([named("c"), named("d")])], named("e"));
    let ends = flow.piece(chain([named("a").into(), inner, group([named("f"), named("g")])]));
    let last = flow.after_all(ends, named("h"));
    flow.fan_in(last, Join::AllDone, named("i"));
    let submission = flow.check(&Limits::default(), &Policies::default()).expect("valid");
    let inserted = bench.store.insert(submission).await.expect("insert");
    let mut order = Vec::new();
    loop {
        let claimed = bench.claim(100).await;
        if claimed.is_empty() {
            break;
        }
        order.push(claimed.iter().map(|claimed| claimed.job.spec.job_type.as_str().to_owned()).collect::<String>());
        for claimed in claimed {
            bench.complete(claimed.lease).await;
        }
    }
    assert_eq!(order, ["a", "bc", "d", "e", "fg", "h", "i"]);
    assert_eq!(bench.workflow(&inserted).await.state(), WorkflowState::Completed);
}

async fn w6_a_workflow_ends_as_its_jobs_do(bench: Bench) {
    for (end, state) in [
        (State::Completed, WorkflowState::Completed),
        (State::Failed, WorkflowState::Failed),
        (State::DeadLetter, WorkflowState::Failed),
        (State::Cancelled, WorkflowState::Cancelled),
    ] {
        let flow = bench.submit_workflow("two", vec![named("a"), named("b")]).await;
        bench.end(flow.jobs[0].id, State::Completed).await;
        assert_eq!(bench.workflow(&flow).await.state(), WorkflowState::Running);
        bench.end(flow.jobs[1].id, end).await;
        assert_eq!(bench.workflow(&flow).await.state(), state);
    }
}

async fn w6_a_workflow_counts_what_was_spawned_and_pruned(bench: Bench) {
    let flow = bench.submit_workflow("spawning", vec![named("parent")]).await;
    let parent = bench.take(flow.jobs[0].id).await;
    bench.complete_and_spawn(parent.lease, vec![named("child")]).await;
    let child = bench.only("child").await;
    assert_eq!(child.workflow_id, flow.workflow);
    assert_eq!(bench.workflow(&flow).await.state(), WorkflowState::Running);
    bench.end(child.id, State::Failed).await;
    assert_eq!(bench.pass(DAY).await.pruned, 1);
    let record = bench.workflow(&flow).await;
    assert_eq!((record.counts, record.pruned), ([0, 0, 0, 0, 0, 0, 1, 0, 0], 1));
    assert_eq!(record.state(), WorkflowState::Failed);
    bench.act(child.id, Act::Delete).await;
    assert_eq!(bench.find_workflow(record.id).await, None, "a workflow goes with the last of its jobs");
    bench.assert_sound().await;
}

async fn w6_workflows_are_listed_newest_first(bench: Bench) {
    let mut newest = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        newest.insert(0, bench.submit_workflow(name, vec![job()]).await.workflow.expect("an id"));
        bench.advance(Duration::from_secs(1));
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = bench.store.workflows(&WorkflowQuery::Newest { limit: 2, after }).await.expect("workflows");
        assert!(page.items.len() <= 2);
        listed.extend(page.items.iter().map(|record| record.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, newest);
}

async fn w7_cancelling_a_workflow_ends_every_unfinished_job(bench: Bench) {
    let after = named("after").depends_on(DependsOn::Batch(0), DependencyKind::After);
    let jobs = vec![named("first"), after, named("later").delay(DAY), named("done"), named("running")];
    let flow = bench.submit_workflow("doomed", jobs).await;
    let outsider = bench.enqueue(named("outsider")).await;
    bench.end(flow.jobs[3].id, State::Completed).await;
    let running = bench.take(flow.jobs[4].id).await;
    let filter = Filter { workflow: flow.workflow, ..Filter::default() };
    bench.act_on(filter, 2, CANCEL).await;
    let ids: Vec<_> = flow.jobs.iter().map(|job| job.id).collect();
    let cancelled = State::Cancelled;
    assert_eq!(bench.states(&ids).await, [cancelled, cancelled, cancelled, State::Completed, State::Running]);
    assert_eq!(bench.fail(running.lease).await, cancelled, "the running one was asked to stop");
    assert_eq!(bench.workflow(&flow).await.state(), WorkflowState::Cancelled);
    assert_eq!(bench.state(outsider).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn w7_a_requeue_takes_along_the_dependents_that_died_of_it(bench: Bench) {
    let link = |name: &str, place| named(name).depends_on(DependsOn::Batch(place), DependencyKind::After);
    let flow = bench.submit_workflow("chain", vec![named("a"), link("b", 0), link("c", 1)]).await;
    let ids = ids(&flow);
    // It died, too, but of something else.
    let other = bench.enqueue(named("other").after([ids[0]])).await;
    bench.act(other, Act::DeadLetter).await;
    bench.end(ids[0], State::Failed).await;
    assert_eq!(bench.states(&ids).await, [State::Failed; 3]);
    requeue_with_dependents(&bench, ids[0]).await;
    assert_eq!(bench.states(&ids).await, [State::Scheduled, State::Pending, State::Pending]);
    assert_eq!(bench.state(other).await, State::DeadLetter);
    for id in ids {
        assert_eq!(bench.job(id).await.generation, 1);
        bench.end(id, State::Completed).await;
    }
    assert_eq!(bench.workflow(&flow).await.state(), WorkflowState::Completed);
    bench.assert_sound().await;
}

async fn w7_a_requeue_with_dependents_goes_through_a_diamond(bench: Bench) {
    let on = |name: &str, places: &[usize]| {
        let link = |job: NewJob, place: &usize| job.depends_on(DependsOn::Batch(*place), DependencyKind::After);
        places.iter().fold(named(name), link)
    };
    let flow =
        bench.submit_workflow("diamond", vec![on("a", &[]), on("b", &[0]), on("c", &[0]), on("d", &[1, 2])]).await;
    let ids = ids(&flow);
    for _ in 0..2 {
        bench.end(ids[0], State::DeadLetter).await;
        assert_eq!(bench.states(&ids).await, [State::DeadLetter; 4]);
        requeue_with_dependents(&bench, ids[0]).await;
        assert_eq!(bench.states(&ids[1..]).await, [State::Pending; 3]);
    }
    bench.end(ids[0], State::Completed).await;
    assert_eq!(bench.states(&ids[1..]).await, [State::Scheduled, State::Scheduled, State::Pending]);
    bench.end(ids[1], State::Completed).await;
    assert_eq!(bench.state(ids[3]).await, State::Pending);
    bench.end(ids[2], State::Completed).await;
    assert_eq!(bench.state(ids[3]).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn w7_dependents_that_come_along_wait_for_each_other(bench: Bench) {
    let on = |job: NewJob, place| job.depends_on(DependsOn::Batch(place), DependencyKind::After);
    // The last of them was submitted before the one it waits for.
    let jobs = vec![named("first"), on(on(named("last"), 0), 2), on(named("between"), 0)];
    let flow = bench.submit_workflow("out of order", jobs).await;
    let (first, last, between) = (flow.jobs[0].id, flow.jobs[1].id, flow.jobs[2].id);
    bench.end(first, State::Failed).await;
    requeue_with_dependents(&bench, first).await;
    bench.end(first, State::Completed).await;
    assert_eq!(bench.states(&[between, last]).await, [State::Scheduled, State::Pending]);
    bench.end(between, State::Completed).await;
    assert_eq!(bench.state(last).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn w7_a_requeued_fan_in_cannot_come_to_wait_for_itself(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let join = bench.enqueue(fan_in(parent.job.id, DependencyKind::FanInSuccess)).await;
    bench.act(join, Act::DeadLetter).await;
    // The child dies at once of the dead join, and must not become what the join waits for.
    bench.complete_and_spawn(parent.lease, vec![named("child").after([join])]).await;
    let child = bench.only("child").await;
    assert_eq!(child.state, State::DeadLetter);
    let options = RequeueOptions { with_dependents: true, ..RequeueOptions::default() };
    bench.act(join, Act::Requeue(options)).await;
    assert_eq!(bench.state(join).await, State::Scheduled);
    assert_eq!(bench.state(child.id).await, State::Pending);
    bench.end(join, State::Completed).await;
    assert_eq!(bench.state(child.id).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn w7_a_requeue_alone_leaves_the_dependents_dead(bench: Bench) {
    let first = bench.enqueue(named("first")).await;
    let second = bench.enqueue(named("second").after([first])).await;
    bench.end(first, State::Failed).await;
    bench.act(first, super::moves::requeue()).await;
    bench.end(first, State::Completed).await;
    assert_eq!(bench.state(second).await, State::Failed);
    bench.assert_sound().await;
}

async fn w7_a_requeued_dependent_waits_for_unfinished_dependencies_only(bench: Bench) {
    let first = bench.enqueue(named("first")).await;
    let second = bench.enqueue(named("second").after([first])).await;
    bench.end(first, State::Failed).await;
    bench.act(second, super::moves::requeue()).await;
    assert_eq!(bench.state(second).await, State::Scheduled, "its dependency has ended: the operator decides");
    bench.end(second, State::Failed).await;
    bench.act(first, super::moves::requeue()).await;
    bench.act(second, super::moves::requeue()).await;
    assert_eq!(bench.state(second).await, State::Pending, "its dependency runs again");
    bench.end(first, State::Completed).await;
    assert_eq!(bench.state(second).await, State::Scheduled);
    bench.assert_sound().await;
}

fn ids(flow: &Inserted) -> Vec<JobId> {
    flow.jobs.iter().map(|job| job.id).collect()
}

async fn requeue_with_dependents(bench: &Bench, id: JobId) {
    let act = Act::Requeue(RequeueOptions { with_dependents: true, ..RequeueOptions::default() });
    let Operated { changed, refused, .. } = bench.operate(Target::Jobs(vec![id]), act, false).await;
    assert!(changed >= 1 && refused.is_empty(), "{refused:?}");
}
