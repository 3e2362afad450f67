//! What the memory store holds: one entry a job, and indexes that follow it wherever it goes.
//!
//! Every change to a job goes through [`Tables::update`], which compares the places a job stands in before and after and
//! moves it. So an index cannot be forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::strands::Controlled;
use crate::job::{
    ATTEMPTS_KEPT, AttemptRecord, JobId, JobRecord, JobType, LeaseToken, LogLine, Outcome, Priority, QueueName, State,
    WorkerId, WorkflowId,
};
use crate::schedule::ScheduleRecord;
use crate::store::answer::{ActRecord, JobEvent, JobEventKind, Wake, WorkerRecord};
use crate::store::observe::{AttemptCount, LaneRecord, Sample, SampleStep, ended_place};
use crate::store::request::Cursor;
use crate::store::rules::{Edges, Entry, KeptKey};
use crate::time::Timestamp;
use crate::workflow::{Sequence, WorkflowRecord};

/// The place of a SCHEDULED job in its lane (rule D5).
pub(super) type ClaimOrder = (Priority, Timestamp, Sequence);

/// How many events and acts are kept; older ones are forgotten.
pub(super) const EVENTS_KEPT: usize = 10_000;
/// How many rows one page or step looks at; rare matches among millions take several pages.
pub(super) const SCAN_MAX: usize = 10_000;

/// A job, and what rules do not ask for.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) entry: Entry,
    /// Closed attempts, oldest first, with the token each was held under.
    pub(super) closed: Vec<(LeaseToken, AttemptRecord)>,
    pub(super) logs: VecDeque<LogLine>,
}

impl Stored {
    /// Keeps a closed attempt, and forgets the oldest beyond the newest hundred together with its log.
    pub(super) fn close(&mut self, token: LeaseToken, attempt: AttemptRecord) {
        // Most jobs have one attempt, and there may be a million of them.
        self.closed.reserve_exact(1);
        self.closed.push((token, attempt));
        if self.closed.len() > ATTEMPTS_KEPT {
            let (_, oldest) = self.closed.remove(0);
            self.logs.retain(|line| line.attempt != oldest.id);
        }
    }
}

/// What an idempotency key stands for, kept even when the job is gone.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) kept: KeptKey,
    /// When upkeep looks at it.
    pub(super) look_at: Option<Timestamp>,
}

/// Something that happened, by its number.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) number: u64,
    at: Timestamp,
    job: JobId,
    queue: QueueName,
    job_type: JobType,
    submitted_by: Option<String>,
    kind: JobEventKind,
}

impl Event {
    pub(super) fn shown(&self) -> JobEvent {
        JobEvent {
            cursor: Cursor(self.number.to_string()),
            at: self.at,
            job: self.job,
            queue: self.queue.clone(),
            job_type: self.job_type.clone(),
            submitted_by: self.submitted_by.clone(),
            kind: self.kind,
        }
    }
}

/// A scope with a key in it.
pub(super) type ScopedKey = (String, String);

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) paused: bool,
    pub(super) states: [u64; 9],
    /// SCHEDULED jobs by type, so that a claim never walks over types it does not want (rule N1b).
    pub(super) lanes: BTreeMap<JobType, BTreeSet<ClaimOrder>>,
    /// The numbers of each type, which stay when its jobs are gone.
    pub(super) numbers: BTreeMap<JobType, LaneRecord>,
    /// Flow control, where the queue has it.
    pub(super) control: Option<Box<Controlled>>,
}

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) jobs: BTreeMap<Sequence, Box<Stored>>,
    pub(super) ids: HashMap<JobId, Sequence>,
    pub(super) queues: BTreeMap<QueueName, Queue>,
    /// DELAYED and RETRYING jobs by the moment they fall due.
    pub(super) due: BTreeSet<(Timestamp, Sequence)>,
    /// RUNNING jobs by the end of their lease.
    pub(super) leases: BTreeSet<(Timestamp, Sequence)>,
    /// Unfinished jobs by the end of their lifetime.
    pub(super) deadlines: BTreeSet<(Timestamp, Sequence)>,
    /// Ended jobs by their state and when they ended: those that the store's own retention removes, and those for which
    /// something else was said.
    pub(super) ended: BTreeSet<(State, Timestamp, Sequence)>,
    pub(super) ended_own: BTreeSet<(State, Timestamp, Sequence)>,
    /// The latter by the moment they may go.
    pub(super) prunes: BTreeSet<(Timestamp, Sequence)>,
    pub(super) edges: Edges,
    pub(super) keys: HashMap<ScopedKey, Key>,
    /// Keys by the moment at which upkeep looks at them.
    pub(super) key_looks: BTreeSet<(Timestamp, ScopedKey)>,
    pub(super) workflows: BTreeMap<Sequence, WorkflowRecord>,
    pub(super) workflow_ids: HashMap<WorkflowId, Sequence>,
    pub(super) workers: BTreeMap<WorkerId, WorkerRecord>,
    pub(super) schedules: BTreeMap<String, ScheduleRecord>,
    pub(super) acts: VecDeque<(u64, ActRecord)>,
    pub(super) events: VecDeque<Event>,
    pub(super) next: Sequence,
    pub(super) next_event: u64,
    pub(super) accepted: u64,
    pub(super) pruned: u64,
    pub(super) samples: BTreeMap<(SampleStep, Timestamp), Sample>,
    pub(super) owner: Option<String>,
    pub(super) random: fastrand::Rng,
    /// The moment that leases are compared with.
    pub(super) fence: Timestamp,
    hints: Vec<Wake>,
}

/// Where a job stands in the indexes; follows from its record.
#[derive(PartialEq, Eq, Clone, Copy)]
struct Places {
    state: (State, Timestamp),
    claim: Option<ClaimOrder>,
    due: Option<Timestamp>,
    lease: Option<Timestamp>,
    deadline: Option<Timestamp>,
    prune: Option<Timestamp>,
}

impl Places {
    fn of(entry: &Entry) -> Self {
        let job = &entry.job;
        let waits_for_time = matches!(job.state, State::Delayed | State::Retrying);
        Places {
            state: (job.state, job.completed_at.filter(|_| job.state.is_terminal()).unwrap_or_default()),
            claim: (job.state == State::Scheduled).then(|| job.claim_order(entry.sequence)),
            due: job.run_at.filter(|_| waits_for_time),
            lease: job.lease.as_ref().map(|lease| lease.expires_at),
            deadline: job.deadline.filter(|_| !job.state.is_terminal()),
            prune: job.prune_at(),
        }
    }
}

impl Tables {
    pub(super) fn new() -> Self {
        Tables {
            jobs: BTreeMap::new(),
            ids: HashMap::new(),
            queues: BTreeMap::new(),
            due: BTreeSet::new(),
            leases: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            ended: BTreeSet::new(),
            ended_own: BTreeSet::new(),
            prunes: BTreeSet::new(),
            edges: Edges::default(),
            keys: HashMap::new(),
            key_looks: BTreeSet::new(),
            workflows: BTreeMap::new(),
            workflow_ids: HashMap::new(),
            workers: BTreeMap::new(),
            schedules: BTreeMap::new(),
            acts: VecDeque::new(),
            events: VecDeque::new(),
            next: 1,
            next_event: 1,
            accepted: 0,
            pruned: 0,
            samples: BTreeMap::new(),
            owner: None,
            random: fastrand::Rng::new(),
            fence: Timestamp::EPOCH,
            hints: Vec::new(),
        }
    }

    pub(super) fn by_id(&self, id: JobId) -> Option<&Stored> {
        self.ids.get(&id).map(|sequence| self.stored(*sequence))
    }

    pub(super) fn stored(&self, sequence: Sequence) -> &Stored {
        self.jobs.get(&sequence).expect("indexes name only jobs that exist")
    }

    pub(super) fn stored_mut(&mut self, sequence: Sequence) -> &mut Stored {
        self.jobs.get_mut(&sequence).expect("indexes name only jobs that exist")
    }

    /// Changes a job and moves it to the places where it then stands.
    pub(super) fn update<T>(&mut self, sequence: Sequence, change: impl FnOnce(&mut Entry) -> T) -> T {
        let entry = &mut self.jobs.get_mut(&sequence).expect("indexes name only jobs that exist").entry;
        let before = Places::of(entry);
        let answer = change(entry);
        let after = Places::of(entry);
        if before != after {
            self.place(sequence, Some(before), Some(after));
        }
        answer
    }

    /// Adds a new job.
    pub(super) fn add(&mut self, entry: Entry) {
        let (sequence, id) = (entry.sequence, entry.job.id);
        let after = Places::of(&entry);
        self.jobs.insert(sequence, Box::new(Stored { entry, closed: Vec::new(), logs: VecDeque::new() }));
        self.ids.insert(id, sequence);
        self.accepted += 1;
        self.place(sequence, None, Some(after));
    }

    /// Removes an ended job for good; its idempotency key goes on.
    pub(super) fn remove(&mut self, sequence: Sequence) {
        let before = Places::of(&self.stored(sequence).entry);
        self.place(sequence, Some(before), None);
        let job = self.jobs.remove(&sequence).expect("it was there a line ago").entry.job;
        self.ids.remove(&job.id);
        self.edges.remove(job.id);
        self.pruned += 1;
        if let Some(workflow) = self.workflow_of(job.workflow_id) {
            workflow.pruned += 1;
            // A workflow goes with the last of its jobs.
            if workflow.counts.iter().all(|count| *count == 0) {
                let id = workflow.id;
                self.remove_workflow(id);
            }
        }
    }

    pub(super) fn remove_workflow(&mut self, id: WorkflowId) {
        if let Some(sequence) = self.workflow_ids.remove(&id) {
            self.workflows.remove(&sequence);
        }
    }

    fn place(&mut self, sequence: Sequence, before: Option<Places>, after: Option<Places>) {
        self.place_state(sequence, before.map(|places| places.state), after.map(|places| places.state));
        self.place_claim(sequence, before.and_then(|places| places.claim), after.and_then(|places| places.claim));
        let times = |pick: fn(Places) -> Option<Timestamp>| (before.and_then(pick), after.and_then(pick));
        move_time(&mut self.due, sequence, times(|places| places.due));
        move_time(&mut self.leases, sequence, times(|places| places.lease));
        move_time(&mut self.deadlines, sequence, times(|places| places.deadline));
        move_time(&mut self.prunes, sequence, times(|places| places.prune));
    }

    fn place_state(
        &mut self,
        sequence: Sequence,
        before: Option<(State, Timestamp)>,
        after: Option<(State, Timestamp)>,
    ) {
        if before == after {
            return;
        }
        let job = &self.jobs.get(&sequence).expect("a job is placed while it exists").entry.job;
        let (workflow, kept) = (job.workflow_id, job.spec.options.retention);
        if !self.queues.contains_key(&job.spec.queue) {
            self.queues.insert(job.spec.queue.clone(), Queue::default());
        }
        let queue = self.queues.get_mut(&job.spec.queue).expect("it was made a line ago");
        if let Some(control) = &mut queue.control {
            control.place_state(sequence, job, before.map(|(state, _)| state), after.map(|(state, _)| state));
        }
        let job_type = &job.spec.job_type;
        if !queue.numbers.contains_key(job_type) {
            let fresh = LaneRecord::new(job.spec.queue.clone(), job_type.clone());
            queue.numbers.insert(job_type.clone(), fresh);
        }
        let numbers = queue.numbers.get_mut(job_type).expect("it was made a line ago");
        numbers.accepted += u64::from(before.is_none());
        for (place, step) in [(before, -1_i64), (after, 1)] {
            let Some((state, at)) = place else { continue };
            let number = usize::from(state.number());
            for count in [&mut queue.states[number], &mut numbers.states[number]] {
                *count = count.wrapping_add_signed(step);
            }
            if let Some(place) = ended_place(state).filter(|_| step > 0) {
                numbers.ended[place] += 1;
            }
            if state.is_terminal() {
                let ended = (state, at, sequence);
                let index = if kept.of(state).is_some() { &mut self.ended_own } else { &mut self.ended };
                let _ = if step > 0 { index.insert(ended) } else { index.remove(&ended) };
            }
        }
        if let Some(workflow) = self.workflow_of(workflow) {
            for (place, step) in [(before, -1_i64), (after, 1)] {
                let Some((state, _)) = place else { continue };
                let count = &mut workflow.counts[usize::from(state.number())];
                *count = count.wrapping_add_signed(step);
            }
        }
    }

    fn place_claim(&mut self, sequence: Sequence, before: Option<ClaimOrder>, after: Option<ClaimOrder>) {
        if before == after {
            return;
        }
        let job = &self.jobs.get(&sequence).expect("a job is placed while it exists").entry.job;
        let spec = &job.spec;
        let queue = self.queues.get_mut(&spec.queue).expect("a job's queue exists since it was placed");
        if let Some(control) = &mut queue.control {
            control.place_claim(job, before, after);
        }
        if let Some(before) = before
            && let Some(lane) = queue.lanes.get_mut(&spec.job_type)
        {
            lane.remove(&before);
            if lane.is_empty() {
                queue.lanes.remove(&spec.job_type);
            }
        }
        if let Some(after) = after {
            match queue.lanes.get_mut(&spec.job_type) {
                Some(lane) => {
                    lane.insert(after);
                }
                None => {
                    queue.lanes.insert(spec.job_type.clone(), BTreeSet::from([after]));
                }
            }
        }
    }

    /// Makes SCHEDULED what has fallen due by `now` (S4).
    pub(super) fn let_time_pass(&mut self, now: Timestamp) {
        while let Some((at, sequence)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            debug_assert!(at <= now);
            self.update(sequence, |entry| entry.job.fall_due()).expect("only waiting jobs stand in `due`");
            self.hint(Wake::Scheduled(self.stored(sequence).entry.job.spec.queue.clone()));
        }
    }

    pub(super) fn workflow_of(&mut self, id: Option<WorkflowId>) -> Option<&mut WorkflowRecord> {
        let sequence = self.workflow_ids.get(&id?)?;
        self.workflows.get_mut(sequence)
    }

    pub(super) fn draw_sequence(&mut self) -> Sequence {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn hint(&mut self, hint: Wake) {
        // Said twice in a row it says no more than once.
        if self.hints.last() != Some(&hint) {
            self.hints.push(hint);
        }
    }

    pub(super) fn take_hints(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.hints)
    }

    pub(super) fn event(&mut self, job: &JobRecord, kind: JobEventKind) {
        let at = match kind {
            JobEventKind::Enqueued => job.created_at,
            JobEventKind::Ended(_) => job.updated_at,
        };
        let (id, queue, job_type) = (job.id, job.spec.queue.clone(), job.spec.job_type.clone());
        let submitted_by = job.spec.options.submitted_by.clone();
        self.events.push_back(Event { number: self.next_event, at, job: id, queue, job_type, submitted_by, kind });
        self.next_event += 1;
        if self.events.len() > EVENTS_KEPT {
            self.events.pop_front();
        }
    }

    /// Counts an attempt that was retried or lost.
    pub(super) fn count_attempt(&mut self, sequence: Sequence, outcome: Option<Outcome>) {
        let job = &self.jobs.get(&sequence).expect("indexes name only jobs that exist").entry.job;
        let Some(counted) = AttemptCount::of(outcome, job.state) else { return };
        let queue = self.queues.get_mut(&job.spec.queue);
        if let Some(numbers) = queue.and_then(|queue| queue.numbers.get_mut(&job.spec.job_type)) {
            match counted {
                AttemptCount::Retried => numbers.retried += 1,
                AttemptCount::Lost => numbers.lost += 1,
            }
        }
    }

    pub(super) fn record_act(&mut self, act: ActRecord) {
        let number = self.acts.back().map_or(1, |(number, _)| number + 1);
        self.acts.push_back((number, act));
        if self.acts.len() > EVENTS_KEPT {
            self.acts.pop_front();
        }
    }
}

fn move_time(
    index: &mut BTreeSet<(Timestamp, Sequence)>,
    sequence: Sequence,
    (before, after): (Option<Timestamp>, Option<Timestamp>),
) {
    if before == after {
        return;
    }
    if let Some(before) = before {
        index.remove(&(before, sequence));
    }
    if let Some(after) = after {
        index.insert((after, sequence));
    }
}
