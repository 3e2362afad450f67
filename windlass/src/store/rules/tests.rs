//! What the suite cannot see from outside: that rules ask before they change, and for no more than they need.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::job::{
    DependencyKind, JobId, JobSpec, Lease, LeaseToken, Limits, NewJob, Payload, Policies, State, Unique, Until,
    WorkerId,
};
use crate::schedule::{ScheduleRecord, ScheduleSpec};
use crate::store::answer::Settled;
use crate::store::request::{Act, Operation, Target};
use crate::time::Timestamp;
use crate::workflow::{Held, Identity, Origin, Submission};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// Jobs as a store would keep them, and what was asked for.
#[derive(Default)]
struct Shelf {
    jobs: BTreeMap<JobId, Entry>,
    edges: Edges,
    drawn: i64,
    asked: Vec<Missing>,
    /// The job that every key stands for until its end.
    held: Option<JobId>,
}

fn job() -> NewJob {
    NewJob::new("t", Payload::default())
}

fn spec(job: NewJob) -> JobSpec {
    job.check(&Limits::default(), &Policies::default()).expect("valid")
}

impl Shelf {
    fn run<T>(&mut self, rule: impl FnMut(&mut WorkingSet) -> Result<T, Stop>) -> Result<T, Error> {
        let mut set = WorkingSet::new(NOW);
        let mut run = Run::new(rule);
        loop {
            let pending = run.answer.is_some();
            match run.step(&mut set) {
                Ok(answer) => {
                    self.write(set.finish());
                    return Ok(answer);
                }
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Missing(missing)) => {
                    assert!(pending || run.answer.is_some() || set.is_untouched(), "{missing:?} came too late");
                    self.load(&mut set, &missing);
                    self.asked.push(missing);
                }
            }
        }
    }

    fn load(&mut self, set: &mut WorkingSet, missing: &Missing) {
        let put = |set: &mut WorkingSet, id: JobId| match self.jobs.get(&id) {
            Some(entry) => set.put(entry.clone()),
            None => set.put_absent(id),
        };
        match missing {
            Missing::Jobs(ids) => ids.iter().for_each(|id| put(set, *id)),
            Missing::Dependents(ids) => {
                for id in ids {
                    for (edge, open) in self.edges.dependents(*id) {
                        set.put_edge(edge, open);
                        put(set, edge.child);
                    }
                    set.know_dependents(*id);
                }
            }
            Missing::Dependencies(ids) => {
                for id in ids {
                    for (edge, open) in self.edges.dependencies(*id) {
                        set.put_edge(edge, open);
                        put(set, edge.parent);
                    }
                    set.know_dependencies(*id);
                }
            }
            Missing::Keys(keys) => {
                let held = |id| Held { id, matches: true, until: Until::Ended, first_at: NOW };
                keys.iter().for_each(|key| set.put_key(key.clone(), self.held.map(held)));
            }
            Missing::Attempt(key, outcome) => set.put_attempt(*key, *outcome, false),
            Missing::Identities(count) => {
                for _ in 0..*count {
                    self.drawn += 1;
                    let id = JobId::from_uuid(Uuid::from_u128(self.drawn.unsigned_abs().into()));
                    set.put_identity(Identity { sequence: self.drawn, id });
                }
            }
        }
    }

    fn write(&mut self, changes: Changes) {
        let changed = changes.changed.into_iter().map(|change| change.after);
        self.jobs.extend(changes.new.into_iter().chain(changed).map(|entry| (entry.job.id, entry)));
        for change in changes.edges {
            self.edges.set(change.edge, change.open);
        }
    }

    fn add(&mut self, jobs: Vec<NewJob>) -> Vec<JobId> {
        let batch = Submission::new(jobs.into_iter().map(spec).collect()).expect("a batch");
        let added = self.run(|set| insert(set, &batch, &Origin::default())).expect("inserted");
        added.into_iter().map(|job| job.id).collect()
    }

    fn claim(&mut self, id: JobId) -> Lease {
        let entry = self.jobs.get_mut(&id).expect("it is there");
        let token = LeaseToken::from_uuid(Uuid::from_u128(7));
        entry.job.claim(&WorkerId::new("w").expect("a name"), None, NOW).expect("it is SCHEDULED");
        entry.token = Some(token);
        Lease::granted(&entry.job, token)
    }

    fn states(&self) -> HashMap<State, usize> {
        self.jobs.values().fold(HashMap::new(), |mut states, entry| {
            *states.entry(entry.job.state).or_default() += 1;
            states
        })
    }
}

/// Cancels one job.
fn cancel(id: JobId) -> Operation {
    let act = Act::Cancel { force: false };
    Operation { target: Target::Jobs(vec![id]), act, by: None, why: String::new(), dry_run: false }
}

#[test]
fn an_end_is_told_through_the_graph_a_wave_at_a_time() {
    let mut shelf = Shelf::default();
    let first = shelf.add(vec![job()])[0];
    let second = shelf.add(vec![job().after([first]); 50]);
    shelf.add(vec![job().after(second.iter().copied()); 20]);
    shelf.asked.clear();
    shelf.run(|set| act_on(set, first, &cancel(first))).expect("cancelled");
    assert_eq!(shelf.states(), HashMap::from([(State::Cancelled, 71)]));
    let waves = shelf.asked.iter().filter(|missing| matches!(missing, Missing::Dependents(_))).count();
    assert_eq!(waves, 3, "one question for each generation: {:?}", shelf.asked.len());
}

#[test]
fn a_fan_in_gains_new_children_without_looking_at_the_old() {
    let mut shelf = Shelf::default();
    let parent = shelf.add(vec![job()])[0];
    let join = job().depends_on(crate::job::DependsOn::Job(parent), DependencyKind::FanInSuccess);
    let join = shelf.add(vec![join])[0];
    let settlement = shelf.claim(parent).complete(None).spawn(vec![spec(job()); 3]).expect("children");
    shelf.asked.clear();
    let settled = shelf.run(|set| settle(set, &settlement)).expect("settled");
    assert!(matches!(settled, Settled::Applied(State::Completed)));
    assert_eq!(shelf.jobs[&join].waits.all, 3, "its parent ended, and three children came");
    let walked = shelf.asked.iter().any(|missing| matches!(missing, Missing::Dependencies(_)));
    assert!(!walked, "a join may have thousands of dependencies: {:?}", shelf.asked);
}

#[test]
fn a_refused_settlement_changes_nothing() {
    let mut shelf = Shelf::default();
    let parent = shelf.add(vec![job()])[0];
    let unknown = JobId::from_uuid(Uuid::from_u128(99));
    let children = vec![spec(job()), spec(job().after([unknown]))];
    let settlement = shelf.claim(parent).complete(None).spawn(children).expect("children");
    let settled = shelf.run(|set| settle(set, &settlement)).expect("answered");
    assert!(matches!(settled, Settled::Refused(Error::DependencyNotFound { job }) if job == unknown));
    assert_eq!(shelf.states(), HashMap::from([(State::Running, 1)]));
}

/// A key that holds until its job ends is free for a child of that job, and that is asked for before anything is changed.
#[test]
fn u1_a_completed_job_leaves_its_key_to_its_child() {
    let mut shelf = Shelf::default();
    let once = || job().unique(Unique::key("k").until_ended());
    let parent = shelf.add(vec![once()])[0];
    shelf.held = Some(parent);
    let settlement = shelf.claim(parent).complete(None).spawn(vec![spec(once())]).expect("children");
    let settled = shelf.run(|set| settle(set, &settlement)).expect("answered");
    assert!(matches!(settled, Settled::Applied(State::Completed)), "{settled:?}");
    assert_eq!(shelf.states(), HashMap::from([(State::Completed, 1), (State::Scheduled, 1)]));
}

/// No rule refuses a firing of a schedule that was checked; one that an older program stored may break a newer rule.
#[test]
fn c4_a_refused_firing_is_noted_until_one_succeeds() {
    let mut shelf = Shelf::default();
    // The first slot of one that fires every second since the epoch is now.
    let second = Duration::from_secs(1);
    let every_second = ScheduleSpec::every("a", second, spec(job()));
    let schedule = ScheduleRecord::create(every_second, Timestamp::EPOCH).expect("valid");
    let late = job().run_at(NOW.plus(2 * second)).lifetime(second);
    let unfit = ScheduleRecord { spec: ScheduleSpec { job: spec(late), ..schedule.spec.clone() }, ..schedule.clone() };
    let mut fired = |schedule: &ScheduleRecord| {
        let mut written = None;
        let made = shelf.run(|set| {
            let made = fire(set, schedule)?;
            written = set.changes.schedules.first().map(|write| match write {
                ScheduleWrite::Put(schedule) => schedule.clone(),
                ScheduleWrite::Delete(name) => panic!("{name} was deleted"),
            });
            Ok(made)
        });
        (made.expect("a refusal is no error"), written.expect("the schedule was changed"))
    };
    let (made, noted) = fired(&unfit);
    assert_eq!((made, noted.fired), (0, 0));
    let error = noted.last_error.clone().expect("a refusal is noted");
    assert_eq!(error.at, NOW);
    assert!(error.message.contains("lifetime"), "{}", error.message);
    assert!(noted.next_at > Some(NOW), "the slot is over");
    let mended = ScheduleRecord { spec: schedule.spec, next_at: Some(NOW), ..noted };
    let (made, noted) = fired(&mended);
    assert_eq!((made, noted.last_error), (1, None), "a firing that succeeds clears it");
}

#[test]
fn what_a_rule_changed_is_not_loaded_over() {
    let mut shelf = Shelf::default();
    let id = shelf.add(vec![job()])[0];
    let mut set = WorkingSet::new(NOW);
    set.put(shelf.jobs[&id].clone());
    act_on(&mut set, id, &cancel(id)).expect("cancelled");
    set.put(shelf.jobs[&id].clone());
    assert_eq!(set.job(id).state, State::Cancelled);
}
