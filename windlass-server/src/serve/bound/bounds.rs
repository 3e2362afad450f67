//! What a token is bound to, and what of a request or an answer that leaves.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use windlass::job::{JobSpec, Scope};
use windlass::store::{Filter, Wake, WorkerRecord};
use windlass::{Error, JobType, Policies, QueueName, Result};

/// The queues and types that a token is bound to; none for any.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// The queues.
    pub queues: Vec<QueueName>,
    /// The types.
    pub types: Vec<JobType>,
}

impl Bounds {
    /// Whether it binds nothing.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.types.is_empty()
    }

    pub(super) fn queue(&self, name: &QueueName) -> bool {
        self.queues.is_empty() || self.queues.contains(name)
    }

    pub(super) fn covers(&self, queue: &QueueName, job_type: &JobType) -> bool {
        self.queue(queue) && (self.types.is_empty() || self.types.contains(job_type))
    }

    /// Refuses to submit what the token is not for.
    pub(super) fn check(&self, job: &JobSpec) -> Result<()> {
        self.check_lane(job)?;
        self.check_key(job)
    }

    pub(super) fn check_lane(&self, job: &JobSpec) -> Result<()> {
        if self.covers(&job.queue, &job.job_type) {
            return Ok(());
        }
        let (queue, job_type) = (&job.queue, &job.job_type);
        Err(Error::Unauthorized(format!("this token is not for jobs of type {job_type} in queue {queue}")))
    }

    /// Refuses a key that is unique among more jobs than the token is for: it could keep a job of others from being stored, tell
    /// whether one is there, or replace it.
    fn check_key(&self, job: &JobSpec) -> Result<()> {
        let Some(idempotency) = &job.options.idempotency else { return Ok(()) };
        let (bound_to, is_within) = match idempotency.scope {
            Scope::Queue => ("types", !self.queues.is_empty()),
            Scope::Type => ("queues", !self.types.is_empty()),
            Scope::Global => ("queues or types", false),
        };
        if self.is_empty() || is_within {
            return Ok(());
        }
        let wanted = if self.queues.is_empty() { "type" } else { "queue" };
        let why = format!("this token is bound to {bound_to}: its idempotency keys need the scope {wanted}");
        Err(Error::Unauthorized(why))
    }

    /// The policies of what it is for: it needs no others, and they name queues and types of others.
    pub(in crate::serve) fn policies(&self, all: &Policies) -> Policies {
        let mut own = Policies::default().system(all.of_system().clone());
        for (queue, patch) in all.of_queues().filter(|(queue, _)| self.queue(queue)) {
            own = own.queue(queue.clone(), patch.clone());
        }
        let is_own = |job_type: &JobType| self.types.is_empty() || self.types.contains(job_type);
        // A token for queues may submit any type, and needs the policies of all.
        for (job_type, patch) in all.of_types().filter(|(job_type, _)| is_own(job_type)) {
            own = own.job_type(job_type.clone(), patch.clone());
        }
        own
    }

    /// The filter, narrowed to one queue and type that the token is for.
    pub(super) fn narrow(&self, filter: &Filter) -> Result<Filter> {
        let mut filter = filter.clone();
        filter.queue = narrowed("queue", filter.queue, &self.queues)?;
        filter.job_type = narrowed("type", filter.job_type, &self.types)?;
        Ok(filter)
    }
}

/// What was asked for if the token is for it; where nothing was, the only one that it is for.
pub(super) fn narrowed<T: Clone + PartialEq + std::fmt::Display>(
    what: &str,
    asked: Option<T>,
    bound: &[T],
) -> Result<Option<T>> {
    match (asked, bound) {
        (asked, []) => Ok(asked),
        (Some(asked), bound) if bound.contains(&asked) => Ok(Some(asked)),
        (Some(asked), _) => Err(Error::Unauthorized(format!("this token is not for the {what} {asked}"))),
        (None, [only]) => Ok(Some(only.clone())),
        (None, bound) => {
            let names: Vec<_> = bound.iter().map(ToString::to_string).collect();
            Err(Error::Unauthorized(format!("this token must name a {what}, one of {}", names.join(", "))))
        }
    }
}

/// How many wakes a slow listener may fall behind; it then misses some, and looks by itself.
const WAKES_MAX: usize = 256;

/// What a worker serves, as far as the token is for it; `None` where it is for nothing of it.
pub(super) fn narrowed_worker(bounds: &Bounds, mut worker: WorkerRecord) -> Option<WorkerRecord> {
    if bounds.is_empty() {
        return Some(worker);
    }
    worker.queues.retain(|served| bounds.queue(&served.queue));
    if !bounds.types.is_empty() {
        let known = worker.types.unwrap_or_else(|| bounds.types.clone());
        worker.types = Some(known.into_iter().filter(|job_type| bounds.types.contains(job_type)).collect());
    }
    let serves = !worker.queues.is_empty() && worker.types.as_ref().is_none_or(|types| !types.is_empty());
    serves.then_some(worker)
}

/// The wakes that tell of no queue but these, and of no worker: which are this token's is not known here, and they ask anyway.
pub(super) fn narrowed_wakes(mut from: broadcast::Receiver<Wake>, queues: Vec<QueueName>) -> broadcast::Receiver<Wake> {
    let (into, receiver) = broadcast::channel(WAKES_MAX);
    tokio::spawn(async move {
        loop {
            let wake = tokio::select! {
                () = into.closed() => return,
                wake = from.recv() => wake,
            };
            match wake {
                Ok(Wake::Scheduled(queue) | Wake::Paused(queue)) if !queues.contains(&queue) => {}
                Ok(Wake::Told(_)) => {}
                // Nobody listening any more ends it above.
                Ok(wake) => drop(into.send(wake)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
    receiver
}
