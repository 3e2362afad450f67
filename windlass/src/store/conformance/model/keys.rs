//! The model's idempotency keys: what each stands for, for how long, and what a submission with it does (sections I and U).

use super::endings::Ending;
use super::history::Key;
use super::reference::{Model, ModelJob, Name, Plan, seconds};
use crate::job::{OnExisting, Outcome, ReasonKind, Scope, State, Until};
use crate::time::Timestamp;

/// What an idempotency key stands for.
#[derive(Clone, Debug)]
pub(super) struct ModelKey {
    scope: KeyScope,
    key: u8,
    /// The first submission of those that replaced each other.
    first_at: Timestamp,
    ends_at: Option<Timestamp>,
    until: Until,
    pub(super) job: Name,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum KeyScope {
    Type(u8),
    Queue(u8),
    Global,
}

/// What a submission's key meets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Met {
    /// Nothing that holds.
    Free,
    /// A job that stays.
    Stays(Name),
    /// A job that makes room; its first submission counts on.
    GivesWay(Name, Timestamp),
}

impl Model {
    /// The key of that name that a plan's key is the same as, as long as its time is not over.
    fn key_of(&self, plan: &Plan) -> Option<&ModelKey> {
        let key = plan.draft.key?;
        let mut live = self.keys.iter().filter(|known| known.ends_at.is_none_or(|ends_at| self.now < ends_at));
        live.find(|known| known.scope == plan.scope(key) && known.key == key.key)
    }

    pub(super) fn meet(&self, plan: &Plan) -> Met {
        let (Some(key), Some(known)) = (plan.draft.key, self.key_of(plan)) else { return Met::Free };
        let job = &self.jobs[known.job];
        let is_over = match known.until {
            Until::Window => false,
            Until::Claimed => !job.unfinished() || job.version > 0,
            Until::Ended => !job.unfinished(),
        };
        let draft = &job.plan.draft;
        let same_lane = draft.queue == plan.draft.queue && draft.job_type == plan.draft.job_type;
        match key.on_existing {
            _ if is_over => Met::Free,
            OnExisting::Replace if same_lane && job.unfinished() && job.version == 0 => {
                Met::GivesWay(known.job, known.first_at)
            }
            OnExisting::Keep | OnExisting::Replace => Met::Stays(known.job),
        }
    }

    /// The job that a plan's key stands for, and that stays.
    pub(super) fn known(&self, plan: &Plan) -> Option<Name> {
        match self.meet(plan) {
            Met::Stays(job) => Some(job),
            Met::Free | Met::GivesWay(..) => None,
        }
    }

    pub(super) fn key_ends(&self) -> impl Iterator<Item = Timestamp> {
        self.keys.iter().filter_map(|key| key.ends_at)
    }

    /// How many idempotency keys have lapsed, those of jobs that have just vanished among them; a store may forget them at
    /// any upkeep.
    pub(super) fn lapsed_keys(&self, vanished: &[Name]) -> usize {
        let is_over = |key: &&ModelKey| {
            let job = &self.jobs[key.job];
            let gone = job.gone || vanished.contains(&key.job);
            key.ends_at.is_some_and(|at| at <= self.now)
                || match key.until {
                    Until::Window => false,
                    Until::Claimed => gone || job.version > 0,
                    Until::Ended => gone,
                }
        };
        self.keys.iter().filter(is_over).count()
    }

    /// Keeps what a new job's key stands for; `first_at` is the submission that those before it began with.
    pub(super) fn keep_key(&mut self, plan: &Plan, job: Name, first_at: Timestamp) {
        let Some(key) = plan.draft.key else { return };
        let scope = plan.scope(key);
        self.keys.retain(|known| known.scope != scope || known.key != key.key);
        let ends_at = match key.debounce {
            Some((_, at_most)) => Some(first_at.plus(seconds(at_most.into()))),
            None => key.window.map(|window| self.now.plus(seconds(window.into()))),
        };
        self.keys.push(ModelKey { scope, key: key.key, first_at, ends_at, until: key.until, job });
    }

    /// Ends a job in favour of another; who waits for it hears of that with [`tell_replaced`](Self::tell_replaced).
    pub(super) fn replace(&mut self, name: Name, by: Name) {
        let mut ending = Ending::of(State::Cancelled, Outcome::Revoked).because(ReasonKind::Replaced);
        ending.reason.as_mut().expect("it was set a line ago").cause = Some(by);
        self.close(name, &ending);
        self.count("replaced");
        self.replaced.push(name);
    }

    pub(super) fn tell_replaced(&mut self) {
        for name in std::mem::take(&mut self.replaced) {
            self.conclude(name);
        }
    }
}

impl ModelJob {
    /// Whether a job that was submitted now is the same, but for its options.
    pub(super) fn is_same(&self, plan: &Plan) -> bool {
        let first = &self.plan.draft;
        first.job_type == plan.draft.job_type && first.payload == plan.draft.payload
    }
}

impl Plan {
    fn scope(&self, key: Key) -> KeyScope {
        match key.scope {
            Scope::Type => KeyScope::Type(self.draft.job_type),
            Scope::Queue => KeyScope::Queue(self.draft.queue),
            Scope::Global => KeyScope::Global,
        }
    }

    /// When a debounced job may run.
    pub(super) fn debounced_to(&self, first_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let (quiet, at_most) = self.draft.key?.debounce?;
        Some(now.plus(seconds(quiet.into())).min(first_at.plus(seconds(at_most.into()))))
    }
}

/// For each place of a batch the first place with the same key: itself, mostly.
pub(super) fn firsts(plans: &[Plan]) -> Vec<usize> {
    let same = |one: &Plan, other: &Plan| match (one.draft.key, other.draft.key) {
        (Some(a), Some(b)) => a.key == b.key && one.scope(a) == other.scope(b),
        _ => false,
    };
    let first = |place: usize| plans.iter().position(|earlier| same(earlier, &plans[place])).unwrap_or(place);
    (0..plans.len()).map(first).collect()
}
