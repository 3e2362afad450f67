//! Each invariant on a small history, once kept and once broken.

use windlass::job::{DependencyKind, Outcome, Stale};
use windlass::{JobId, State};

use super::{Invariant, check};
use crate::dump::{AbsenceEnd, AttemptEnd, Dump, JobEnd, ScheduleEnd};
use crate::history::{Answer, Asked, Event, Grant, Lease, Line, Sent};

/// The job of most histories.
fn job(number: u128) -> JobId {
    JobId::from_uuid(uuid::Uuid::from_u128(number))
}

/// A history being written, one event every millisecond of both clocks.
#[derive(Default)]
struct Book {
    lines: Vec<Line>,
    jobs: Vec<JobEnd>,
    schedules: Vec<ScheduleEnd>,
    absences: Vec<AbsenceEnd>,
    calls: u64,
}

impl Book {
    fn now(&self) -> i64 {
        i64::try_from(self.lines.len()).expect("small") * 1000
    }

    fn write(&mut self, by: &str, event: Event) -> &mut Self {
        let at = u64::try_from(self.now()).expect("small");
        self.lines.push(Line { at, by: by.to_owned(), event });
        self
    }

    fn call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    fn enqueued(&mut self, keys: Vec<Option<String>>, jobs: Vec<(JobId, bool)>) -> &mut Self {
        let call = self.call();
        let types = vec![String::new(); keys.len()];
        self.write("p", Event::EnqueueSent { call, batch: None, keys, types });
        self.write("p", Event::Enqueued { call, jobs })
    }

    /// `by` claims a version of job 1 now, for this many microseconds, and begins to run it.
    fn claim(&mut self, by: &str, version: u64, lease: i64) -> &mut Self {
        let lease_of = Lease { job: job(1), version };
        let grant = Grant { lease: lease_of, started: self.now(), expires: self.now() + lease };
        self.write(by, Event::Claimed(vec![grant]));
        self.write(by, Event::RunStarted(lease_of))
    }

    fn succeed(&mut self, by: &str, version: u64) -> &mut Self {
        self.write(by, Event::RunEnded { lease: Lease { job: job(1), version }, success: true })
    }

    fn settle(&mut self, by: &str, version: u64, outcome: Outcome, answer: Option<Answer>) -> &mut Self {
        let (call, before) = (self.call(), Some(self.now()));
        let sent = Sent { lease: Lease { job: job(1), version }, outcome };
        self.write(by, Event::SettleSent(Asked { call, before, asked: vec![sent] }));
        match answer {
            Some(answer) => self.write(by, Event::Settled { call, answers: vec![answer] }),
            None => self.write(by, Event::Failed { call: Some(call), attempted: "settle".into(), known: false }),
        }
    }

    fn extend(&mut self, by: &str, version: u64, answer: Result<i64, Stale>) -> &mut Self {
        let (call, before) = (self.call(), Some(self.now()));
        let asked = vec![Lease { job: job(1), version }];
        self.write(by, Event::ExtendSent(Asked { call, before, asked }));
        let after = Some(self.now());
        self.write(by, Event::Extended { call, after, answers: vec![answer] })
    }

    fn requeue(&mut self) -> &mut Self {
        let call = self.call();
        let (act, jobs) = ("requeue".to_owned(), vec![job(1)]);
        self.write("o", Event::OperateSent { call, act, jobs, with_dependents: false });
        self.write("o", Event::Operated { call, changed: 1, refused: Vec::new() })
    }

    fn end(&mut self, end: JobEnd) -> &mut Self {
        self.jobs.push(end);
        self
    }

    #[track_caller]
    fn finds(&self, wanted: &[Invariant]) {
        let count = u64::try_from(self.jobs.len()).expect("small");
        let dump = Dump {
            jobs: self.jobs.clone(),
            schedules: self.schedules.clone(),
            accepted: count,
            counted: count,
            contradictions: Vec::new(),
            absences: self.absences.clone(),
            leaks: Vec::new(),
        };
        let violations = check(&self.lines, &dump);
        let mut found: Vec<Invariant> = violations.iter().map(|violation| violation.invariant).collect();
        found.dedup();
        assert_eq!(found, wanted, "{violations:#?}");
    }
}

fn attempt(version: u64, started: i64, ended: i64, outcome: Outcome) -> AttemptEnd {
    AttemptEnd { version, generation: 0, started, ended: Some(ended), outcome: Some(outcome) }
}

fn ended(number: u128, state: State, attempts: Vec<AttemptEnd>) -> JobEnd {
    let completed = attempts.last().and_then(|attempt| attempt.ended);
    JobEnd { attempts, completed, ..JobEnd::new(job(number), state) }
}

const APPLIED: Option<Answer> = Some(Answer::Applied(State::Completed));

/// A job that is enqueued, claimed for 100 ms and completed.
fn plain() -> Book {
    let mut book = Book::default();
    book.enqueued(vec![None], vec![(job(1), false)]);
    book.claim("a", 1, 100_000).succeed("a", 1).settle("a", 1, Outcome::Completed, APPLIED);
    book
}

#[test]
fn a_plain_run_is_clean() {
    plain().end(ended(1, State::Completed, vec![attempt(1, 2000, 6000, Outcome::Completed)])).finds(&[]);
}

#[test]
fn i1_an_acknowledged_job_that_is_gone_is_lost() {
    Book::default().enqueued(vec![None], vec![(job(1), false)]).finds(&[Invariant::Lost]);
}

#[test]
fn i1_an_unknown_enqueue_may_be_there_or_not_but_not_in_part() {
    for (there, clean) in [(0, true), (1, false), (2, true)] {
        for known in [false, true] {
            let mut book = Book::default();
            let (call, batch) = (1, Some("b".to_owned()));
            book.write(
                "p",
                Event::EnqueueSent { call, batch: batch.clone(), keys: vec![None, None], types: Vec::new() },
            );
            book.write("p", Event::Failed { call: Some(call), attempted: "enqueue".into(), known });
            for number in 0..there {
                book.end(JobEnd { batch: batch.clone(), ..ended(number, State::Cancelled, Vec::new()) });
            }
            // Where nothing is said to have been written, nothing may be there.
            let clean = clean && (!known || there == 0);
            book.finds(if clean { &[] } else { &[Invariant::Lost] });
        }
    }
}

#[test]
fn i1_an_acknowledged_settlement_that_is_gone_is_lost() {
    let mut book = Book::default();
    let retried = Some(Answer::Applied(State::Retrying));
    book.claim("a", 1, 100_000).settle("a", 1, Outcome::Failed, retried);
    book.end(ended(1, State::DeadLetter, vec![attempt(1, 0, 100_000, Outcome::Lost)])).finds(&[Invariant::Lost]);
}

#[test]
fn i1_an_unknown_settlement_may_be_there_or_not() {
    for outcome in [Outcome::Failed, Outcome::Lost] {
        let mut book = Book::default();
        book.claim("a", 1, 100_000).settle("a", 1, Outcome::Failed, None);
        book.end(ended(1, State::DeadLetter, vec![attempt(1, 0, 100_000, outcome)])).finds(&[]);
    }
}

#[test]
fn i2_a_job_that_has_not_ended_is_stuck() {
    Book::default().end(ended(1, State::Pending, Vec::new())).finds(&[Invariant::Stuck]);
}

#[test]
fn i3_a_lease_is_granted_once() {
    let mut book = Book::default();
    book.claim("a", 1, 100_000).claim("b", 1, 100_000);
    book.end(ended(1, State::DeadLetter, vec![attempt(1, 0, 100_000, Outcome::Lost)])).finds(&[Invariant::DoubleLease]);
}

#[test]
fn i3_attempts_do_not_overlap() {
    let attempts = vec![attempt(1, 0, 9000, Outcome::Failed), attempt(2, 8000, 9500, Outcome::Failed)];
    Book::default().end(ended(1, State::DeadLetter, attempts)).finds(&[Invariant::DoubleLease]);
}

#[test]
fn i3_a_lease_that_was_confirmed_is_not_taken_back_before_its_end() {
    // Claimed at 0 for 50 ms, confirmed after 2 ms for 50 ms more: it holds until 52 ms at least.
    for (taken_back, found) in [(52_000, &[][..]), (51_000, &[Invariant::DoubleLease][..])] {
        let mut book = Book::default();
        book.claim("a", 1, 50_000).extend("a", 1, Ok(50_000));
        book.end(ended(1, State::DeadLetter, vec![attempt(1, 0, taken_back, Outcome::Lost)])).finds(found);
    }
}

#[test]
fn i4_a_settlement_after_the_lease_has_ended_is_late() {
    // Sent at 3 ms. A lease of 3 ms has just ended then, one of 4 ms has not.
    for (lease, found) in [(4000, &[][..]), (3000, &[Invariant::LateCommit][..])] {
        let mut book = Book::default();
        book.claim("a", 1, lease).succeed("a", 1).settle("a", 1, Outcome::Completed, APPLIED);
        book.end(ended(1, State::Completed, vec![attempt(1, 0, 3500, Outcome::Completed)])).finds(found);
    }
}

#[test]
fn i4_a_heartbeat_does_not_revive_a_lease() {
    for (lease, found) in [(3000, &[][..]), (2000, &[Invariant::LateCommit][..])] {
        let mut book = Book::default();
        book.claim("a", 1, lease).extend("a", 1, Ok(50_000));
        book.end(ended(1, State::DeadLetter, vec![attempt(1, 0, 60_000, Outcome::Lost)])).finds(found);
    }
}

#[test]
fn i4_a_heartbeat_of_unknown_outcome_may_have_kept_the_lease() {
    let mut book = Book::default();
    book.claim("a", 1, 3000);
    let asked = Asked { call: 99, before: Some(book.now()), asked: vec![Lease { job: job(1), version: 1 }] };
    book.write("a", Event::ExtendSent(asked)).succeed("a", 1).settle("a", 1, Outcome::Completed, APPLIED);
    book.end(ended(1, State::Completed, vec![attempt(1, 0, 4500, Outcome::Completed)])).finds(&[]);
}

#[test]
fn i4_an_older_lease_settles_nothing() {
    let mut book = Book::default();
    let retried = Some(Answer::Applied(State::Retrying));
    book.claim("a", 1, 100_000).claim("b", 2, 100_000).settle("a", 1, Outcome::Failed, retried);
    let attempts = vec![attempt(1, 0, 1000, Outcome::Failed), attempt(2, 2000, 102_000, Outcome::Lost)];
    book.end(ended(1, State::DeadLetter, attempts)).finds(&[Invariant::LateCommit]);
}

#[test]
fn i4_a_refused_settlement_is_as_it_should_be() {
    let mut book = Book::default();
    book.claim("a", 1, 1000).claim("b", 2, 100_000);
    book.settle("a", 1, Outcome::Completed, Some(Answer::Stale(Stale::Mismatch)));
    let attempts = vec![attempt(1, 0, 1000, Outcome::Lost), attempt(2, 2000, 102_000, Outcome::Lost)];
    book.end(ended(1, State::DeadLetter, attempts)).finds(&[]);
}

#[test]
fn i5_a_completed_job_does_not_run_again() {
    let mut book = plain();
    book.claim("b", 2, 100_000);
    let attempts = vec![attempt(1, 2000, 6000, Outcome::Completed), attempt(2, 7000, 107_000, Outcome::Lost)];
    book.end(ended(1, State::Completed, attempts)).finds(&[Invariant::TwoEnds]);
}

#[test]
fn i5_a_dead_job_runs_again_only_if_it_was_requeued() {
    let failed = Some(Answer::Applied(State::Failed));
    let mut book = Book::default();
    book.claim("a", 1, 100_000).settle("a", 1, Outcome::Failed, failed);
    let first = attempt(1, 0, 3000, Outcome::Failed);
    let mut again = Book { lines: book.lines.clone(), calls: book.calls, ..Book::default() };
    again.claim("b", 2, 100_000).settle("b", 2, Outcome::Failed, failed);
    let second = attempt(2, 4000, 6000, Outcome::Failed);
    again.end(ended(1, State::Failed, vec![first, second])).finds(&[Invariant::TwoEnds]);

    book.requeue().claim("b", 2, 100_000).settle("b", 2, Outcome::Failed, failed);
    let second = AttemptEnd { generation: 1, ..attempt(2, 6000, 8000, Outcome::Failed) };
    book.end(JobEnd { generation: 1, ..ended(1, State::Failed, vec![first, second]) }).finds(&[]);
}

#[test]
fn i5_a_job_comes_back_no_more_often_than_it_was_requeued() {
    let mut book = Book::default();
    book.end(JobEnd { generation: 1, ..ended(1, State::Failed, Vec::new()) }).finds(&[Invariant::TwoEnds]);
}

#[test]
fn i6_success_needs_a_run_that_succeeded() {
    let mut book = Book::default();
    book.claim("a", 1, 100_000).settle("a", 1, Outcome::Completed, APPLIED);
    let attempts = vec![attempt(1, 0, 3000, Outcome::Completed)];
    book.end(ended(1, State::Completed, attempts)).finds(&[Invariant::EmptySuccess]);
}

#[test]
fn i7_an_absence_of_the_store_costs_no_attempt() {
    // Granted at 0 for 4 ms; the store was away from 2 to 9 ms and said that leases held until 12.
    let away = AbsenceEnd { from: 2000, back: 9000, until: 12_000 };
    for (lost_at, found) in [(12_000, &[][..]), (10_000, &[Invariant::RunBound][..])] {
        let mut book = Book { absences: vec![away], ..Book::default() };
        book.claim("a", 1, 4000)
            .end(ended(1, State::DeadLetter, vec![attempt(1, 0, lost_at, Outcome::Lost)]))
            .finds(found);
    }
    let mut book = Book { absences: vec![AbsenceEnd { from: 5000, ..away }], ..Book::default() };
    book.claim("a", 1, 4000).end(ended(1, State::DeadLetter, vec![attempt(1, 0, 10_000, Outcome::Lost)])).finds(&[]);
}

#[test]
fn i12_a_job_is_what_it_was_enqueued_as() {
    for (stored, found) in [("", &[][..]), ("another", &[Invariant::OtherType][..])] {
        let mut book = Book::default();
        book.enqueued(vec![None], vec![(job(1), false)]);
        let end = JobEnd { job_type: stored.to_owned(), ..ended(1, State::Cancelled, Vec::new()) };
        book.end(end).finds(found);
    }
}

#[test]
fn i7_a_job_runs_no_more_often_than_it_may() {
    // One of three runs is snoozed and does not count.
    for (runs_max, found) in [(2, &[][..]), (1, &[Invariant::RunBound][..])] {
        let mut book = Book::default();
        let delayed = Some(Answer::Applied(State::Delayed));
        book.claim("a", 1, 1000).claim("a", 2, 100_000).settle("a", 2, Outcome::Snoozed, delayed).claim("a", 3, 1000);
        let attempts = vec![
            attempt(1, 0, 1000, Outcome::Lost),
            attempt(2, 2000, 5000, Outcome::Snoozed),
            attempt(3, 6000, 7000, Outcome::Lost),
        ];
        book.end(JobEnd { runs_max, ..ended(1, State::DeadLetter, attempts) }).finds(found);
    }
}

#[test]
fn i8_one_key_is_one_job() {
    let key = Some("k".to_owned());
    for (second, existing, found) in [(1, true, &[][..]), (2, false, &[Invariant::Key]), (1, false, &[Invariant::Key])]
    {
        let mut book = Book::default();
        book.enqueued(vec![key.clone()], vec![(job(1), false)]);
        book.enqueued(vec![key.clone()], vec![(job(second), existing)]);
        for number in 1..=second {
            book.end(JobEnd {
                key: key.clone().filter(|_| number == 1),
                ..ended(number, State::Cancelled, Vec::new())
            });
        }
        book.finds(found);
    }
}

#[test]
fn i8_two_stored_jobs_do_not_share_a_key() {
    let mut book = Book::default();
    for number in 1..=2 {
        book.end(JobEnd { key: Some("k".to_owned()), ..ended(number, State::Cancelled, Vec::new()) });
    }
    book.finds(&[Invariant::Key]);
}

fn dependent(kind: DependencyKind, began: i64) -> JobEnd {
    let end = ended(1, State::Failed, vec![attempt(1, began, began + 10, Outcome::Failed)]);
    JobEnd { depends_on: vec![(job(2), kind)], ..end }
}

fn dependency(state: State, completed: i64) -> JobEnd {
    JobEnd { completed: Some(completed), ..JobEnd::new(job(2), state) }
}

#[test]
fn i9_a_dependent_begins_after_its_dependency_went_well() {
    use DependencyKind::{After, AfterAll, AfterAny, FanInSuccess};
    for (kind, state, began, clean) in [
        (After, State::Cancelled, 6000, false),
        (FanInSuccess, State::Cancelled, 6000, false),
        (AfterAll, State::Cancelled, 6000, true),
        (AfterAll, State::Cancelled, 4000, false),
        (AfterAny, State::Cancelled, 6000, true),
        (AfterAny, State::Cancelled, 4000, false),
    ] {
        let mut book = Book::default();
        book.end(dependency(state, 5000)).end(dependent(kind, began));
        book.finds(if clean { &[] } else { &[Invariant::Chord] });
    }
}

#[test]
fn i9_a_fan_in_begins_after_what_was_spawned() {
    for (began, clean) in [(8000, true), (6000, false)] {
        let mut book = Book::default();
        let child = JobEnd { spawned_by: Some(job(2)), completed: Some(7000), ..JobEnd::new(job(3), State::Cancelled) };
        book.end(dependency(State::Cancelled, 5000)).end(child).end(dependent(DependencyKind::FanInDone, began));
        book.finds(if clean { &[] } else { &[Invariant::Chord] });
    }
}

#[test]
fn i9_nothing_dies_of_a_dependency_that_did_no_harm() {
    for (kind, found) in [(DependencyKind::After, &[][..]), (DependencyKind::AfterAll, &[Invariant::Chord][..])] {
        let end = JobEnd { depends_on: vec![(job(2), kind)], ..ended(1, State::Failed, Vec::new()) };
        let mut book = Book::default();
        book.end(dependency(State::Failed, 5000)).end(JobEnd { died_of_dependency: true, ..end }).finds(found);
    }
}

fn fired(number: u128, slot: i64, completed: i64) -> JobEnd {
    let firing = Some(("s".to_owned(), slot));
    JobEnd { firing, created: slot, ..ended(number, State::Failed, vec![attempt(1, slot, completed, Outcome::Failed)]) }
}

fn schedule() -> ScheduleEnd {
    ScheduleEnd { name: "s".to_owned(), created: 0, every: None, no_overlap: false, after: None }
}

#[test]
fn i10_a_slot_fires_once() {
    let mut book = Book { schedules: vec![schedule()], ..Book::default() };
    book.end(fired(1, 100, 101)).end(fired(2, 200, 201)).finds(&[]);
    book.end(fired(3, 200, 201)).finds(&[Invariant::Slot]);
}

#[test]
fn i10_no_slot_is_left_out_where_each_must_fire() {
    let mut book = Book { schedules: vec![ScheduleEnd { every: Some(100), ..schedule() }], ..Book::default() };
    book.end(fired(1, 100, 101)).end(fired(2, 200, 201)).finds(&[]);
    book.end(fired(3, 400, 401)).finds(&[Invariant::Slot]);
    let mut late = Book { schedules: vec![ScheduleEnd { every: Some(100), ..schedule() }], ..Book::default() };
    late.end(fired(1, 200, 201)).finds(&[Invariant::Slot]);
}

#[test]
fn i10_firings_do_not_pile_up() {
    let mut book = Book { schedules: vec![ScheduleEnd { no_overlap: true, ..schedule() }], ..Book::default() };
    book.end(fired(1, 100, 200)).end(fired(2, 200, 301)).finds(&[]);
    book.end(fired(3, 300, 301)).finds(&[Invariant::Slot]);
    let mut delay = Book { schedules: vec![ScheduleEnd { after: Some(50), ..schedule() }], ..Book::default() };
    delay.end(fired(1, 100, 150)).end(fired(2, 200, 201)).finds(&[]);
    delay.end(fired(3, 250, 251)).finds(&[Invariant::Slot]);
}

#[test]
fn i10_a_firing_that_saw_an_end_may_carry_an_earlier_time() {
    // The second is stamped 300, sees that the first ended at 400, and runs at 500.
    for (created, found) in [(300, &[][..]), (-6_000_000, &[Invariant::Slot][..])] {
        let mut book = Book { schedules: vec![ScheduleEnd { no_overlap: true, ..schedule() }], ..Book::default() };
        book.end(fired(1, 100, 400)).end(JobEnd { created, firing: Some(("s".into(), 300)), ..fired(2, 500, 600) });
        book.finds(found);
    }
}

#[test]
fn i11_nothing_starts_before_its_time() {
    for (started, found) in [(5000, &[][..]), (4999, &[Invariant::Early][..])] {
        let end = ended(1, State::Failed, vec![attempt(1, started, 6000, Outcome::Failed)]);
        Book::default().end(JobEnd { delay: Some(5000), ..end }).finds(found);
    }
    for (outcome, wait) in [(Outcome::Failed, 100), (Outcome::Snoozed, 300)] {
        for (started, found) in [(1000 + wait, &[][..]), (999 + wait, &[Invariant::Early][..])] {
            let attempts = vec![attempt(1, 0, 1000, outcome), attempt(2, started, 9000, Outcome::Failed)];
            let end = ended(1, State::Failed, attempts);
            Book::default().end(JobEnd { backoff: Some(100), snooze: Some(300), ..end }).finds(found);
        }
    }
}

#[test]
fn d7_the_numbers_of_a_store_add_up() {
    let clean = Dump { jobs: vec![JobEnd::new(job(1), State::Cancelled)], accepted: 1, counted: 1, ..Dump::default() };
    assert_eq!(check(&[], &clean), []);
    for broken in [
        Dump { accepted: 2, ..clean.clone() },
        Dump { counted: 2, ..clean.clone() },
        Dump { contradictions: vec!["a job is in two tables".to_owned()], ..clean },
    ] {
        let found = check(&[], &broken);
        assert_eq!(found.iter().map(|one| one.invariant).collect::<Vec<_>>(), [Invariant::Accounting], "{found:?}");
    }
}
