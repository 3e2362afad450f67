//! Who works through this server, and what comes of it: a layer between the API and the store.
//!
//! A worker in any language announces itself by claiming, and stays known while it renews leases. What it claims and settles
//! is counted here, because such a worker has no metrics of its own. Workers that announce themselves are left alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use windlass::job::{LeaseKey, Outcome, Settlement, WorkerId};
use windlass::observe::{self, ForOthers};
use windlass::store::{
    Announced, ClaimRequest, Claimed, Claims, Extended, Layer, ServedQueue, Settled, Store, WorkerEdit, WorkerRecord,
    WorkerReport,
};
use windlass::{JobId, JobType, QueueName, Result};

/// The host of a worker that is known by its claims alone.
const HOST: &str = "(by its claims)";
/// Workers count as live for 30 s, so that two of these may be lost.
const ANNOUNCED_EVERY: Duration = Duration::from_secs(10);
/// A worker that has become full, or has free slots again, is announced at once, but no more often than this.
const FLIPPED_EVERY: Duration = Duration::from_secs(1);
/// Workers that were not heard of for so long are forgotten when there are many.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Most workers that are kept in mind: clients that claim choose the names.
const WORKERS_MAX: usize = 10_000;
/// Most leases that are kept in mind; beyond, settlements are looked up.
const HELD_MAX: usize = 100_000;

/// The layer.
#[derive(Debug)]
pub(super) struct Presence {
    inner: Arc<dyn Store>,
    people: Mutex<People>,
}

/// Who is known, and who holds which job.
#[derive(Debug, Default)]
struct People {
    workers: HashMap<WorkerId, Known>,
    holders: HashMap<JobId, WorkerId>,
}

/// What is known of a worker.
#[derive(Debug)]
struct Known {
    report: WorkerReport,
    heard: Instant,
    announced: Option<Instant>,
    /// Whether it was announced with all slots busy, and when that last changed.
    full: bool,
    flipped: Option<Instant>,
    /// Whether it announces itself, and better than we could.
    by_itself: bool,
    /// Whether operators want it to take no more jobs.
    draining: bool,
    held: HashMap<JobId, Held>,
}

/// A job that a worker holds.
#[derive(Debug)]
struct Held {
    queue: QueueName,
    job_type: JobType,
    since: Instant,
    until: Instant,
}

impl Presence {
    pub(super) fn over(inner: Arc<dyn Store>) -> Self {
        Presence { inner, people: Mutex::default() }
    }

    fn people(&self) -> MutexGuard<'_, People> {
        // Nothing in it can be half-done in a way that matters.
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a worker that claims, where that is due.
    async fn greet(&self, request: &ClaimRequest) {
        let now = Instant::now();
        let due = {
            let mut people = self.people();
            let worker = people.worker(&request.worker, now);
            worker.asks(request, now);
            let first = worker.announced.is_none();
            worker.due(now).then(|| (first, worker.report.clone()))
        };
        let Some((first, report)) = due else { return };
        // After a restart, or through another server, it may have announced itself before.
        if first && self.announces_itself(&report.id).await {
            return;
        }
        self.announce_for(&report).await;
    }

    async fn announces_itself(&self, worker: &WorkerId) -> bool {
        let live = self.inner.workers().await.unwrap_or_default();
        let itself = live.iter().any(|live| live.id == *worker && live.host != HOST && !live.queues.is_empty());
        if itself {
            self.people().worker(worker, Instant::now()).by_itself = true;
        }
        itself
    }

    /// Announces those of these workers for whom it is due.
    async fn announce_again(&self, workers: impl IntoIterator<Item = WorkerId>) {
        for report in self.due_among(workers) {
            self.announce_for(&report).await;
        }
    }

    async fn announce_for(&self, report: &WorkerReport) {
        match self.inner.announce(report).await {
            Ok(announced) => self.people().worker(&report.id, Instant::now()).draining = announced.draining,
            Err(error) => tracing::debug!(%error, worker = %report.id, "cannot note that a worker lives"),
        }
    }

    /// Whether operators want a worker to take no more jobs, as was last heard.
    fn is_draining(&self, worker: &WorkerId) -> bool {
        self.people().workers.get(worker).is_some_and(|known| known.draining)
    }

    fn note_claimed(&self, request: &ClaimRequest, claimed: &[Claimed]) {
        let (now, mut counted) = (Instant::now(), ForOthers::new());
        let mut people = self.people();
        for Claimed { job, expires_in, .. } in claimed {
            let waited = job.started_at.zip(job.scheduled_at).map(|(started, since)| started.since(since));
            counted.claimed(&job.spec.queue, &job.spec.job_type, waited.unwrap_or_default());
            let (queue, job_type) = (job.spec.queue.clone(), job.spec.job_type.clone());
            people.take(&request.worker, job.id, Held { queue, job_type, since: now, until: now + *expires_in });
        }
    }

    /// Those of these workers that are to be announced again.
    fn due_among(&self, workers: impl IntoIterator<Item = WorkerId>) -> Vec<WorkerReport> {
        let (mut people, now) = (self.people(), Instant::now());
        let due =
            |id: WorkerId| people.workers.get_mut(&id).and_then(|known| known.due(now).then(|| known.report.clone()));
        workers.into_iter().filter_map(due).collect()
    }

    /// Notes which leases were renewed; gives the workers that are to be announced again.
    fn note_extended(&self, leases: &[LeaseKey], answers: &[Extended]) -> Vec<WorkerReport> {
        let now = Instant::now();
        let (mut people, mut due) = (self.people(), Vec::new());
        for (lease, answer) in leases.iter().zip(answers) {
            match answer {
                Extended::Held { expires_in, .. } => {
                    let Some(worker) = people.holder(lease.job) else { continue };
                    worker.heard = now;
                    if let Some(held) = worker.held.get_mut(&lease.job) {
                        held.until = now + *expires_in;
                    }
                    due.extend(worker.due(now).then(|| worker.report.clone()));
                }
                Extended::Lost(stale) => {
                    observe::lease_lost_for_others(*stale);
                    people.let_go(lease.job);
                }
            }
        }
        due
    }

    async fn note_settled(&self, settlements: &[Settlement], answers: &[Settled]) {
        let (now, mut counted) = (Instant::now(), ForOthers::new());
        let strange = self.let_go_of(settlements, answers, now, &mut counted);
        if strange.is_empty() {
            return;
        }
        let ids: Vec<_> = strange.iter().map(|(id, _)| *id).collect();
        let found = self.inner.find(&ids).await.unwrap_or_default();
        for ((_, outcome), job) in strange.into_iter().zip(found) {
            if let Some(job) = job {
                counted.ended(&job.spec.queue, &job.spec.job_type, outcome, None);
            }
        }
    }

    /// Forgets who held the jobs that are settled; gives those of which that was not known.
    fn let_go_of(
        &self,
        settlements: &[Settlement],
        answers: &[Settled],
        now: Instant,
        counted: &mut ForOthers,
    ) -> Vec<(JobId, Outcome)> {
        let (mut people, mut strange) = (self.people(), Vec::new());
        for (settlement, answer) in settlements.iter().zip(answers) {
            let job = settlement.key().job;
            match answer {
                Settled::Applied(_) => match people.let_go(job) {
                    Some(held) => {
                        let ran = Some(now.saturating_duration_since(held.since));
                        counted.ended(&held.queue, &held.job_type, settlement.outcome(), ran);
                    }
                    // It was claimed through another server, or before a restart.
                    None => strange.push((job, settlement.outcome())),
                },
                Settled::Stale(stale) => {
                    observe::stale_for_others(*stale);
                    people.let_go(job);
                }
                Settled::AlreadyApplied => drop(people.let_go(job)),
                Settled::Refused(_) => {}
            }
        }
        strange
    }
}

impl Known {
    fn new(id: &WorkerId, now: Instant) -> Self {
        let report = WorkerReport { id: id.clone(), host: HOST.to_owned(), queues: Vec::new(), types: None };
        Known {
            report,
            heard: now,
            announced: None,
            full: false,
            flipped: None,
            by_itself: false,
            draining: false,
            held: HashMap::new(),
        }
    }

    /// Takes over what a claim says: queues, types, and how many slots are free.
    fn asks(&mut self, request: &ClaimRequest, now: Instant) {
        self.heard = now;
        self.held.retain(|_, held| held.until > now);
        self.report.types.clone_from(&request.types);
        let served = request.queues.iter().map(|(queue, wanted)| {
            let busy = number(self.held.values().filter(|held| held.queue == *queue).count());
            let before =
                self.report.queues.iter().find(|served| served.queue == *queue).map_or(0, |served| served.slots);
            ServedQueue { queue: queue.clone(), slots: before.max(busy + number((*wanted).min(request.limit))), busy }
        });
        self.report.queues = served.collect();
    }

    /// Whether it is to be announced now; if so, it counts as announced.
    fn due(&mut self, now: Instant) -> bool {
        let over = |at: Option<Instant>, time: Duration| at.is_none_or(|at| now.duration_since(at) >= time);
        for served in &mut self.report.queues {
            served.busy = number(self.held.values().filter(|held| held.queue == served.queue).count());
        }
        let full =
            !self.report.queues.is_empty() && self.report.queues.iter().all(|served| served.busy >= served.slots);
        let flips = full != self.full && over(self.flipped, FLIPPED_EVERY);
        let due = !self.by_itself && (flips || over(self.announced, ANNOUNCED_EVERY));
        if due {
            self.announced = Some(now);
            self.flipped = if full == self.full { self.flipped } else { Some(now) };
            self.full = full;
        }
        due
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl People {
    /// A worker, known from now on. Who was not heard of for long is forgotten where there are many.
    fn worker(&mut self, id: &WorkerId, now: Instant) -> &mut Known {
        if self.workers.len() >= WORKERS_MAX {
            self.workers.retain(|_, worker| now.duration_since(worker.heard) < FORGOTTEN_AFTER);
        }
        if self.workers.len() >= WORKERS_MAX {
            self.workers.clear();
        }
        self.workers.entry(id.clone()).or_insert_with(|| Known::new(id, now))
    }

    fn holder(&mut self, job: JobId) -> Option<&mut Known> {
        self.workers.get_mut(self.holders.get(&job)?)
    }

    /// A worker holds a job from now on.
    fn take(&mut self, worker: &WorkerId, job: JobId, held: Held) {
        if self.holders.len() >= HELD_MAX {
            self.holders
                .retain(|job, worker| self.workers.get(worker).is_some_and(|known| known.held.contains_key(job)));
        }
        if self.holders.len() < HELD_MAX
            && let Some(known) = self.workers.get_mut(worker)
        {
            known.held.insert(job, held);
            self.holders.insert(job, worker.clone());
        }
    }

    /// The worker that held a job holds it no more.
    fn let_go(&mut self, job: JobId) -> Option<Held> {
        let worker = self.holders.remove(&job)?;
        self.workers.get_mut(&worker)?.held.remove(&job)
    }
}

#[async_trait]
impl Layer for Presence {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        self.greet(request).await;
        if self.is_draining(&request.worker) {
            return Ok(Claims::default());
        }
        let claimed = self.inner.claim(request).await?;
        if !claimed.is_empty() {
            self.note_claimed(request, &claimed);
            self.announce_again([request.worker.clone()]).await;
        }
        Ok(claimed)
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        let answers = self.inner.extend(leases, lease_time).await?;
        for report in self.note_extended(leases, &answers) {
            self.announce_for(&report).await;
        }
        Ok(answers)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let answers = self.inner.settle(settlements).await?;
        let holders: HashSet<WorkerId> = {
            let people = self.people();
            settlements.iter().filter_map(|one| people.holders.get(&one.key().job).cloned()).collect()
        };
        self.note_settled(settlements, &answers).await;
        self.announce_again(holders).await;
        Ok(answers)
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<Announced> {
        let announced = self.inner.announce(worker).await?;
        let mut people = self.people();
        if worker.is_leave() {
            people.workers.remove(&worker.id);
        } else {
            let known = people.worker(&worker.id, Instant::now());
            (known.by_itself, known.draining) = (true, announced.draining);
        }
        Ok(announced)
    }

    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord> {
        let told = self.inner.edit_worker(edit, by).await?;
        // Here it holds at once; elsewhere from the next announcement on.
        self.people().worker(&edit.worker, Instant::now()).draining = edit.draining;
        Ok(told)
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let mut live = self.inner.workers().await?;
        // A worker that serves nothing has taken its leave.
        live.retain(|worker| !worker.queues.is_empty());
        Ok(live)
    }
}

#[cfg(test)]
mod tests {
    use windlass::store::MemoryStore;
    use windlass::{Client, NewJob, Payload};

    use super::*;

    fn request(limit: usize) -> ClaimRequest {
        let worker = WorkerId::new("py-1").expect("a name");
        ClaimRequest::new(worker, QueueName::new("py").expect("a name"), limit)
    }

    #[tokio::test]
    async fn a_claim_announces_its_worker_and_a_leave_takes_it_off() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let client = Client::with_store(Arc::new(Presence::over(Arc::clone(&inner))));
        let job = client.enqueue(NewJob::new("resize", Payload::default()).queue("py")).await.expect("enqueued");
        let why = |explained: windlass::job::Explanation| format!("{:?}", explained.reasons);
        assert!(why(client.explain(job.id).await.expect("told")).contains("NoWorkerForQueue"));
        client.store().claim(&request(2)).await.expect("claimed");
        let live = client.workers().await.expect("listed");
        assert_eq!(live.len(), 1);
        assert_eq!((live[0].host.as_str(), live[0].queues[0].slots), (HOST, 2));
        let next = client.enqueue(NewJob::new("resize", Payload::default()).queue("py")).await.expect("enqueued");
        assert!(!why(client.explain(next.id).await.expect("told")).contains("NoWorkerForQueue"));
        let leave = WorkerReport { queues: Vec::new(), ..Known::new(&live[0].id, Instant::now()).report };
        client.store().announce(&leave).await.expect("left");
        assert!(why(client.explain(next.id).await.expect("told")).contains("NoWorkerForQueue"));
        assert_eq!(client.workers().await.expect("listed").len(), 0, "a worker that serves nothing has left");
    }

    #[tokio::test]
    async fn a_worker_that_announces_itself_is_left_alone() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let served = ServedQueue { queue: QueueName::new("py").expect("a name"), slots: 8, busy: 3 };
        let id = request(1).worker;
        let own = WorkerReport { id, host: "host-1".to_owned(), queues: vec![served], types: None };
        inner.announce(&own).await.expect("announced");
        // Two servers: the worker announced itself to the other one.
        let presence: Arc<dyn Store> = Arc::new(Presence::over(Arc::clone(&inner)));
        presence.claim(&request(1)).await.expect("claimed");
        let live = inner.workers().await.expect("listed");
        assert_eq!((live[0].host.as_str(), live[0].queues[0].busy), ("host-1", 3));
    }

    #[tokio::test]
    async fn what_a_worker_holds_is_busy_until_it_is_settled() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let presence = Arc::new(Presence::over(Arc::clone(&inner)));
        let client = Client::with_store(Arc::clone(&presence) as Arc<dyn Store>);
        client.enqueue(NewJob::new("resize", Payload::default()).queue("py")).await.expect("enqueued");
        let claimed = client.store().claim(&request(4)).await.expect("claimed").pop().expect("a job");
        let busy = |presence: &Presence| {
            let mut people = presence.people();
            let worker = people.worker(&request(1).worker, Instant::now());
            worker.announced = None;
            assert!(worker.due(Instant::now()));
            (worker.report.queues[0].slots, worker.report.queues[0].busy)
        };
        assert_eq!(busy(&presence), (4, 1));
        client.store().settle(&[claimed.lease.complete(None)]).await.expect("settled");
        assert_eq!(busy(&presence), (4, 0));
    }

    #[tokio::test]
    async fn a_worker_that_drains_is_given_no_jobs() {
        let client = Client::with_store(Arc::new(Presence::over(Arc::new(MemoryStore::new()))));
        let store = client.store();
        assert_eq!(store.claim(&request(1)).await.expect("claimed").len(), 0);
        client.drain_worker("py-1").await.expect("it lives");
        client.enqueue(NewJob::new("resize", Payload::default()).queue("py")).await.expect("enqueued");
        assert_eq!(store.claim(&request(1)).await.expect("claimed").len(), 0);
        let other = ClaimRequest { worker: WorkerId::new("py-2").expect("a name"), ..request(1) };
        let jobs = store.claim(&other).await.expect("claimed");
        assert_eq!(jobs.len(), 1, "the others go on");
        client.enqueue(NewJob::new("resize", Payload::default()).queue("py")).await.expect("enqueued");
        assert_eq!(store.claim(&request(1)).await.expect("claimed").len(), 0);
        client.resume_worker("py-1").await.expect("it lives");
        assert_eq!(store.claim(&request(1)).await.expect("claimed").len(), 1);
    }

    /// Also when the worker asks for no more because it is full, and long before its next heartbeat.
    #[tokio::test]
    async fn a_worker_that_is_full_is_known_as_full_at_once() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let client = Client::with_store(Arc::new(Presence::over(Arc::clone(&inner))));
        let job = || NewJob::new("resize", Payload::default()).queue("py");
        client.enqueue_all([job(), job()]).await.expect("enqueued");
        assert_eq!(client.store().claim(&request(2)).await.expect("claimed").len(), 2);
        let live = client.workers().await.expect("listed");
        assert_eq!((live[0].queues[0].slots, live[0].queues[0].busy), (2, 2));
        let next = client.enqueue(job()).await.expect("enqueued");
        let why = client.explain(next.id).await.expect("told").reasons;
        assert!(format!("{why:?}").contains("LimitReached"), "{why:?}");
    }
}
