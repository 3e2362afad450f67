//! What can happen in a history, and how histories are drawn.
//!
//! Operations name jobs, leases and settlements by small numbers that are taken modulo what there is when they run, so
//! that every shorter history is a history too and a failure shrinks to a few lines.

use std::fmt;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::flow::{ControlDraft, ModelGate, RateDraft};
use crate::flow::AfterFailure;
use crate::job::{Category, DependencyKind, OnExisting, Outcome, Scope, Until};

/// The queues of a history; the last is that of webhook jobs, which only the store puts there.
pub(super) const QUEUES: [&str; 4] = ["default", "mail", "bulk", "windlass.webhooks"];
/// The types of a history; the last is that of webhook jobs.
pub(super) const TYPES: [&str; 4] = ["a", "b", "c", "windlass.webhook"];
/// How long ended jobs of each queue and type are kept where nothing nearer says so (rule O4).
pub(super) const QUEUES_KEPT: [Kept; 3] =
    [Kept::SILENT, Kept([None, Some(Some(40)), Some(None), Some(Some(5))]), Kept::SILENT];
pub(super) const TYPES_KEPT: [Kept; 3] =
    [Kept::SILENT, Kept::SILENT, Kept([Some(Some(20)), None, Some(Some(2)), None])];
/// The place of the webhook queue and type.
pub(super) const WEBHOOK: u8 = 3;

/// One step of a history.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Submits a batch, perhaps as a workflow.
    Enqueue { jobs: Vec<Draft>, workflow: bool },
    /// Takes jobs.
    Claim(ClaimDraft),
    /// Heartbeats.
    Extend { leases: Vec<Pick>, seconds: Option<u8> },
    /// Saves a checkpoint or progress.
    Save { lease: Pick, checkpoint: Option<u8>, progress: Option<u8> },
    /// Settles leases in one call.
    Settle(Vec<(Pick, Say)>),
    /// Sends an old settlement once more.
    Repeat { sent: u8 },
    /// An operator acts on named jobs; `apt` ones can be acted on so, where there are such.
    Act { jobs: Vec<u8>, apt: bool, act: ActDraft, dry_run: bool },
    /// An operator acts on all jobs of a queue, in steps; not on webhook jobs, which the sweep itself may add.
    Sweep { queue: u8, act: ActDraft, limit: u8 },
    /// Pauses or resumes a queue.
    Pause { queue: u8, paused: bool },
    /// One step of upkeep; ended jobs are kept for this many seconds, or for ever.
    Upkeep { limit: u8, kept: Option<u8> },
    /// Brings a queue under control, or ends that.
    Control { queue: u8, control: Option<ControlDraft> },
    /// Holds a gate for this number of seconds, or lifts a hold.
    Hold { queue: u8, gate: ModelGate, seconds: Option<u8> },
    /// Lets a key go on.
    Resume { queue: u8, key: u8 },
    /// Time passes.
    Advance(Span),
}

/// Which lease, newest first; where there is none of that kind, any.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pick {
    /// One that holds.
    Live(u8),
    /// One whose job has since been given to somebody else.
    Ghost(u8),
    /// Any that was ever granted.
    Any(u8),
}

/// How long time passes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Span {
    /// A number of milliseconds.
    Millis(u32),
    /// To the very next moment at which something falls due.
    Next,
    /// To one microsecond before it.
    JustBefore,
}

/// A claim.
#[derive(Clone, Debug)]
pub(super) struct ClaimDraft {
    pub(super) queues: Vec<(u8, u8)>,
    pub(super) types: Option<Vec<u8>>,
    pub(super) limit: u8,
    pub(super) seconds: Option<u8>,
    pub(super) worker: u8,
}

/// What a lease holder says.
#[derive(Clone, Debug)]
pub(super) enum Say {
    Complete { result: Option<u8>, children: Vec<Draft> },
    Fail { category: Category, retry_after: Option<u8> },
    DeadLetter,
    Snooze(u8),
    Cancel,
    Release,
    Interrupt,
}

impl Say {
    /// How the attempt ends by it.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Say::Complete { .. } => Outcome::Completed,
            Say::Fail { .. } => Outcome::Failed,
            Say::DeadLetter => Outcome::DeadLettered,
            Say::Snooze(_) => Outcome::Snoozed,
            Say::Cancel => Outcome::Cancelled,
            Say::Release => Outcome::Released,
            Say::Interrupt => Outcome::Interrupted,
        }
    }
}

/// What an operator does.
#[derive(Clone, Copy, Debug)]
pub(super) enum ActDraft {
    Cancel { force: bool },
    Requeue { delay: Option<u8>, keep_counters: bool, with_dependents: bool },
    DeadLetter,
    Delete,
    Edit { priority: Option<u8>, tag: Option<u8> },
}

/// A job to be submitted.
#[derive(Clone, PartialEq)]
pub(super) struct Draft {
    pub(super) queue: u8,
    pub(super) job_type: u8,
    pub(super) payload: u8,
    pub(super) priority: u8,
    pub(super) first: First,
    /// In seconds; `None` for no limit.
    pub(super) lifetime: Option<u32>,
    /// In seconds.
    pub(super) visibility: u32,
    /// In seconds; `None` for no limit.
    pub(super) execution: Option<u32>,
    pub(super) policy: Policy,
    pub(super) key: Option<Key>,
    /// The key for flow control, from 1 to 4.
    pub(super) flow_key: Option<u8>,
    pub(super) depends_on: Vec<(On, DependencyKind)>,
    pub(super) own_priority_only: bool,
    pub(super) callback: bool,
    pub(super) kept: Kept,
}

/// How long a job is kept after its end, in seconds or for ever: COMPLETED, CANCELLED, FAILED, DEAD_LETTER; what is `None` is left
/// to others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Kept(pub(super) [Option<Option<u8>>; 4]);

impl Kept {
    pub(super) const SILENT: Kept = Kept([None; 4]);
}

/// When a drafted job may first run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum First {
    Now,
    /// After this many seconds.
    In(u8),
    /// At the present moment plus this many seconds, or minus.
    At(i8),
}

/// A retry policy without jitter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Policy {
    /// 0 for constant, 1 for linear, from 2 on the multiplier of an exponential one.
    pub(super) growth: u8,
    pub(super) initial: u32,
    pub(super) max: u32,
    pub(super) attempts: u8,
    pub(super) retry_timeout: bool,
    pub(super) retry_system: bool,
    pub(super) lost_free: bool,
    pub(super) lost_backoff: bool,
    pub(super) interrupts_count: bool,
}

/// An idempotency key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Key {
    pub(super) key: u8,
    pub(super) scope: Scope,
    /// In seconds; `None` for ever.
    pub(super) window: Option<u8>,
    pub(super) until: Until,
    pub(super) on_existing: OnExisting,
    /// Quiet and at most, in seconds. Then nothing else says when the job runs.
    pub(super) debounce: Option<(u8, u8)>,
}

/// What a drafted job depends on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum On {
    /// A job that was once submitted, newest first.
    Known(u8),
    /// One that has not ended, where there is one.
    Open(u8),
    /// An earlier place of the same batch.
    Earlier(u8),
    /// Any place of the same batch, so perhaps a cycle.
    Place(u8),
    /// For a child: the job that spawns it.
    Parent,
    /// A job that never was.
    Nobody,
}

impl fmt::Debug for Draft {
    /// Names only what is not plain, so that a minimal history is short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Draft::plain();
        let mut words = f.debug_struct("Job");
        macro_rules! unless_plain {
            ($($field:ident),*) => {$(
                if self.$field != plain.$field {
                    words.field(stringify!($field), &self.$field);
                }
            )*};
        }
        unless_plain!(queue, job_type, payload, priority, first, lifetime, visibility, execution, policy, key);
        unless_plain!(flow_key, depends_on, own_priority_only, callback, kept);
        words.finish()
    }
}

impl Draft {
    /// A job with nothing special about it; what drafts shrink to.
    pub(super) fn plain() -> Self {
        Draft {
            queue: 0,
            job_type: 0,
            payload: 0,
            priority: 2,
            first: First::Now,
            lifetime: None,
            visibility: 10,
            execution: Some(1800),
            policy: Policy::plain(),
            key: None,
            flow_key: None,
            depends_on: Vec::new(),
            own_priority_only: false,
            callback: false,
            kept: Kept::SILENT,
        }
    }
}

impl Policy {
    fn plain() -> Self {
        Policy {
            growth: 0,
            initial: 3,
            max: 8,
            attempts: 2,
            retry_timeout: true,
            retry_system: true,
            lost_free: false,
            lost_backoff: false,
            interrupts_count: false,
        }
    }

    /// What webhook jobs have.
    pub(super) fn webhook() -> Self {
        Policy { growth: 3, initial: 5, max: 12 * 3600, attempts: 14, ..Policy::plain() }
    }
}

/// Histories of one step up to twice `steps`, so `steps` on average.
pub(super) fn histories(steps: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..=(steps * 2).max(1))
}

fn op() -> impl Strategy<Value = Op> {
    let rarely = || proptest::bool::weighted(0.15);
    prop_oneof![
        6 => (vec(draft(), 1..4), rarely()).prop_map(|(jobs, workflow)| Op::Enqueue { jobs, workflow }),
        1 => (vec(step(), 3..7), rarely()).prop_map(|(jobs, workflow)| Op::Enqueue { jobs, workflow }),
        7 => claim().prop_map(Op::Claim),
        6 => span().prop_map(Op::Advance),
        8 => vec((pick(), say()), 1..4).prop_map(Op::Settle),
        4 => (1u8..6, option::weighted(0.5, select(vec![5u8, 30, 90]))).prop_map(|(limit, kept)| Op::Upkeep { limit, kept }),
        2 => (vec(pick(), 1..4), option::weighted(0.7, 1u8..20)).prop_map(|(leases, seconds)| Op::Extend { leases, seconds }),
        2 => (pick(), option::of(0u8..9), option::of(0u8..=10))
            .prop_map(|(lease, checkpoint, progress)| Op::Save { lease, checkpoint, progress }),
        2 => (0u8..12).prop_map(|sent| Op::Repeat { sent }),
        6 => (vec(0u8..12, 1..3), proptest::bool::weighted(0.7), act(), rarely())
            .prop_map(|(jobs, apt, act, dry_run)| Op::Act { jobs, apt, act, dry_run }),
        1 => (0u8..WEBHOOK, act(), 1u8..5).prop_map(|(queue, act, limit)| Op::Sweep { queue, act, limit }),
        1 => (0u8..4, proptest::bool::weighted(0.4)).prop_map(|(queue, paused)| Op::Pause { queue, paused }),
        2 => (0u8..2, option::weighted(0.85, control())).prop_map(|(queue, control)| Op::Control { queue, control }),
        1 => (0u8..2, gate(), option::weighted(0.7, 1u8..20)).prop_map(|(queue, gate, seconds)| Op::Hold { queue, gate, seconds }),
        1 => (0u8..2, 1u8..5).prop_map(|(queue, key)| Op::Resume { queue, key }),
    ]
}

fn control() -> impl Strategy<Value = ControlDraft> {
    let limit = |weight| option::weighted(weight, 1u8..4);
    let rate = |weight| {
        let rate = (1u8..4, select(vec![1u8, 5, 30]), 1u8..4);
        option::weighted(weight, rate.prop_map(|(count, per, burst)| RateDraft { count, per, burst }))
    };
    let ordered = option::weighted(0.3, select(vec![AfterFailure::Halt, AfterFailure::GoOn]));
    (limit(0.4), limit(0.3), limit(0.4), rate(0.2), rate(0.2), any::<bool>(), ordered).prop_map(
        |(running, of_type, each_key, rate, key_rate, fair, ordered)| {
            let says_nothing = [running, of_type, each_key].iter().all(Option::is_none)
                && rate.is_none()
                && key_rate.is_none()
                && !fair
                && ordered.is_none();
            let running = running.or(says_nothing.then_some(2));
            ControlDraft { running, of_type, each_key, rate, key_rate, fair, ordered }
        },
    )
}

fn gate() -> impl Strategy<Value = ModelGate> {
    prop_oneof![1 => Just(ModelGate::Queue), 3 => (1u8..5).prop_map(ModelGate::Key)]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        4 => select(vec![1u32, 1000, 2000, 5000, 12_000, 40_000, 300_000]).prop_map(Span::Millis),
        4 => Just(Span::Next),
        2 => Just(Span::JustBefore),
    ]
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        7 => (0u8..8).prop_map(Pick::Live),
        1 => (0u8..8).prop_map(Pick::Ghost),
        2 => (0u8..8).prop_map(Pick::Any),
    ]
}

fn claim() -> impl Strategy<Value = ClaimDraft> {
    let types = option::weighted(0.25, vec(0u8..4, 1..3));
    (vec((0u8..4, 1u8..6), 1..5), types, 1u8..8, option::weighted(0.7, 1u8..15), 0u8..3)
        .prop_map(|(queues, types, limit, seconds, worker)| ClaimDraft { queues, types, limit, seconds, worker })
}

fn say() -> impl Strategy<Value = Say> {
    let category = prop_oneof![
        5 => Just(Category::Temporary),
        2 => Just(Category::Permanent),
        1 => Just(Category::Timeout),
        1 => Just(Category::System),
        1 => Just(Category::Cancelled),
    ];
    prop_oneof![
        5 => option::weighted(0.3, 0u8..9).prop_map(|result| Say::Complete { result, children: Vec::new() }),
        6 => (category, option::weighted(0.2, 0u8..20))
            .prop_map(|(category, retry_after)| Say::Fail { category, retry_after }),
        4 => vec(draft(), 1..4).prop_map(|children| Say::Complete { result: None, children }),
        1 => Just(Say::DeadLetter),
        1 => (0u8..9).prop_map(Say::Snooze),
        1 => Just(Say::Cancel),
        1 => Just(Say::Release),
        1 => Just(Say::Interrupt),
    ]
}

fn act() -> impl Strategy<Value = ActDraft> {
    let requeue = (option::weighted(0.3, 0u8..25), any::<bool>(), proptest::bool::weighted(0.6));
    prop_oneof![
        3 => any::<bool>().prop_map(|force| ActDraft::Cancel { force }),
        4 => requeue.prop_map(|(delay, keep_counters, with_dependents)| {
            ActDraft::Requeue { delay, keep_counters, with_dependents }
        }),
        2 => Just(ActDraft::DeadLetter),
        2 => Just(ActDraft::Delete),
        2 => (option::of(0u8..5), option::of(0u8..3)).prop_map(|(priority, tag)| ActDraft::Edit { priority, tag }),
    ]
}

fn draft() -> impl Strategy<Value = Draft> {
    let first = prop_oneof![
        6 => Just(First::Now),
        2 => (1u8..12).prop_map(First::In),
        1 => (-3i8..25).prop_map(First::At),
    ];
    let names = (0u8..3, 0u8..3, 0u8..2, prop_oneof![3 => Just(2u8), 2 => 0u8..5]);
    let lifetime = option::weighted(0.5, prop_oneof![select(vec![4u32, 9, 20, 60]), Just(7 * 24 * 3600)]);
    let execution = prop_oneof![3 => Just(Some(1800u32)), 2 => select(vec![Some(1u32), Some(8), None])];
    let times = (first, lifetime, select(vec![10u32, 2, 30]), execution);
    let flags = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.2), kept());
    let keys = (option::weighted(0.25, key()), option::weighted(0.7, 1u8..5));
    (names, times, policy(), keys, links(), flags).prop_map(
        |((queue, job_type, payload, priority), times, policy, (key, flow_key), depends_on, flags)| Draft {
            queue,
            job_type,
            payload,
            priority,
            first: if key.is_some_and(|key: Key| key.debounce.is_some()) { First::Now } else { times.0 },
            lifetime: times.1,
            visibility: times.2,
            execution: times.3,
            policy,
            key,
            flow_key,
            depends_on,
            own_priority_only: flags.0,
            callback: flags.1,
            kept: flags.2,
        },
    )
}

/// Mostly nothing. Never no time at all: upkeep then ends and prunes a job in one step, and an invariant is that it does not.
fn kept() -> impl Strategy<Value = Kept> {
    let end = option::weighted(0.5, option::weighted(0.8, select(vec![1u8, 3, 15, 60])));
    prop_oneof![3 => Just(Kept::SILENT), 1 => [end.clone(), end.clone(), end.clone(), end].prop_map(Kept)]
}

/// A plain step of a larger graph, which mostly dies with what it waits for.
fn step() -> impl Strategy<Value = Draft> {
    let kind = prop_oneof![6 => Just(DependencyKind::After), 1 => Just(DependencyKind::AfterAll)];
    let links = vec(((0u8..6).prop_map(On::Earlier), kind), 1..4);
    (0u8..3, links).prop_map(|(queue, depends_on)| Draft { queue, depends_on, ..Draft::plain() })
}

fn policy() -> impl Strategy<Value = Policy> {
    let mostly = || proptest::bool::weighted(0.85);
    let rarely = || proptest::bool::weighted(0.25);
    prop_oneof![
        Just(Policy::plain()),
        (0u8..4, 0u32..6, 0u32..20, 1u8..4, (mostly(), mostly()), (rarely(), rarely(), rarely())).prop_map(
            |(growth, initial, more, attempts, retries, (lost_free, lost_backoff, interrupts_count))| Policy {
                growth,
                initial,
                max: initial + more,
                attempts,
                retry_timeout: retries.0,
                retry_system: retries.1,
                lost_free,
                lost_backoff,
                interrupts_count,
            }
        ),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    let scope = prop_oneof![3 => Just(Scope::Type), 1 => Just(Scope::Queue), 3 => Just(Scope::Global)];
    let window = option::weighted(0.8, select(vec![3u8, 10, 40]));
    let until = prop_oneof![3 => Just(Until::Window), 2 => Just(Until::Claimed), 2 => Just(Until::Ended)];
    let on_existing = prop_oneof![1 => Just(OnExisting::Keep), 1 => Just(OnExisting::Replace)];
    let plain = (0u8..2, scope, window, until, on_existing).prop_map(|(key, scope, window, until, on_existing)| Key {
        key,
        scope,
        window,
        until,
        on_existing,
        debounce: None,
    });
    let debounce = (select(vec![2u8, 5]), 0u8..12).prop_map(|(quiet, more)| Some((quiet, quiet + more)));
    let debounced = (0u8..2, debounce).prop_map(|(key, debounce)| Key {
        key,
        scope: Scope::Type,
        window: None,
        until: Until::Claimed,
        on_existing: OnExisting::Replace,
        debounce,
    });
    prop_oneof![4 => plain, 2 => debounced]
}

fn links() -> impl Strategy<Value = Vec<(On, DependencyKind)>> {
    let on = prop_oneof![
        3 => (0u8..10).prop_map(On::Known),
        8 => (0u8..10).prop_map(On::Open),
        6 => (0u8..3).prop_map(On::Earlier),
        1 => (0u8..3).prop_map(On::Place),
        3 => Just(On::Parent),
        1 => Just(On::Nobody),
    ];
    let kind = prop_oneof![
        4 => Just(DependencyKind::After),
        2 => Just(DependencyKind::AfterAny),
        2 => Just(DependencyKind::AfterAll),
        3 => Just(DependencyKind::FanInSuccess),
        2 => Just(DependencyKind::FanInDone),
    ];
    prop_oneof![Just(Vec::new()), vec((on, kind), 1..4)]
}
