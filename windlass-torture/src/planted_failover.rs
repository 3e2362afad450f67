//! Stores that break the contract when their server fails over, each in one way that this store was once broken.
//!
//! What a failover does inside a server is done here from outside, as it shows to those who use the store: a job that was acknowledged
//! is gone, a job stands under another type, leases run out while nobody could be heard.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use windlass::clock::{Clock, SystemClock};
use windlass::job::{JobType, LeaseKey, Settlement, Stale};
use windlass::store::*;
use windlass::workflow::Submission;
use windlass::{Error, JobId, Result, Timestamp};

use super::jobs::TYPES;

/// How long the store works before it is away.
const UNTIL_AWAY: Duration = Duration::from_secs(2);
/// How long it is away: longer than stores take for a pause of upkeep.
const AWAY: Duration = Duration::from_millis(4500);
/// How long it says that leases held after it was back.
const GRACE: Duration = Duration::from_secs(3);

/// One way to fail over badly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailoverBug {
    /// The number of a lane was lost and drawn again for another type, and nothing in a statement tells the two apart.
    LaneWithoutStamp,
    /// The server says that the wait for the standby was cancelled, and the enqueue is acknowledged all the same.
    CancelledWait,
    /// The fence goes on while the store is away.
    FenceNotHeld,
}

/// A good store that fails over, and perhaps a bug in it.
#[derive(Debug)]
pub struct Failing {
    inner: Arc<dyn Store>,
    bug: Option<FailoverBug>,
    begun: Instant,
    turns: AtomicUsize,
    /// Jobs that only the old primary has.
    unconfirmed: Mutex<Vec<JobId>>,
}

/// The machine's clock, for a store that takes every gap for time that passed.
#[derive(Debug, Default)]
struct Heedless(SystemClock);

impl Clock for Heedless {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl Failing {
    /// Plants a bug in a store in memory.
    pub fn planted(bug: FailoverBug) -> Self {
        let inner: Arc<dyn Store> = match bug {
            FailoverBug::FenceNotHeld => Arc::new(MemoryStore::with_clock(Heedless::default())),
            FailoverBug::LaneWithoutStamp | FailoverBug::CancelledWait => Arc::new(MemoryStore::new()),
        };
        Failing { bug: Some(bug), ..Failing::away(inner) }
    }

    /// A store that is away for a while, without a bug.
    pub fn away(inner: Arc<dyn Store>) -> Self {
        let (begun, turns) = (Instant::now(), AtomicUsize::new(0));
        Failing { inner, bug: None, begun, turns, unconfirmed: Mutex::default() }
    }

    fn has(&self, bug: FailoverBug) -> bool {
        self.bug == Some(bug)
    }

    fn every(&self, occasions: usize) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed) % occasions == occasions - 1
    }

    /// Refuses a call while the store is away.
    fn reach(&self, attempted: &str) -> Result<()> {
        let can_be_away = self.bug.is_none() || self.has(FailoverBug::FenceNotHeld);
        if !can_be_away || !(UNTIL_AWAY..UNTIL_AWAY + AWAY).contains(&self.begun.elapsed()) {
            return Ok(());
        }
        let (attempted, problem) = (attempted.to_owned(), "the store is away".to_owned());
        Err(Error::StoreUnavailable { attempted, problem, known: true, source: None })
    }

    /// Forgets what the new primary does not have.
    async fn fail_over(&self) -> Result<()> {
        let gone = std::mem::take(&mut *self.unconfirmed.lock().expect("nothing panics while it holds this lock"));
        if gone.is_empty() {
            return Ok(());
        }
        for act in [Act::Cancel { force: true }, Act::Delete] {
            let target = Target::Jobs(gone.clone());
            self.inner.operate(&Operation { target, act, by: None, why: String::new(), dry_run: false }).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Layer for Failing {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        self.reach("enqueue")?;
        let is_plain = submission.workflow_name().is_none() && submission.jobs().len() == 1;
        if self.has(FailoverBug::LaneWithoutStamp) && is_plain && self.every(10) {
            let mut jobs = submission.into_jobs();
            let other = usize::from(jobs[0].job_type.as_str() == TYPES[0]);
            jobs[0].job_type = JobType::new(TYPES[other])?;
            return self.inner.insert(Submission::new(jobs)?).await;
        }
        let inserted = self.inner.insert(submission).await?;
        if self.has(FailoverBug::CancelledWait) && is_plain && self.every(10) {
            let mut unconfirmed = self.unconfirmed.lock().expect("nothing panics while it holds this lock");
            unconfirmed.extend(inserted.jobs.iter().filter(|job| !job.existing).map(|job| job.id));
        }
        Ok(inserted)
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        self.reach("claim")?;
        self.inner.claim(request).await
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        self.reach("extend")?;
        self.inner.extend(leases, lease_time).await
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        self.reach("save")?;
        self.inner.save(saves).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.reach("settle")?;
        self.inner.settle(settlements).await
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.reach("upkeep")?;
        self.fail_over().await?;
        self.inner.upkeep(request).await
    }

    /// The absence is told, whatever was made of it.
    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        let mut page = self.inner.acts(after, limit).await?;
        if self.has(FailoverBug::FenceNotHeld) && after.is_none() {
            let begun = self.inner.now().await?.minus(self.begun.elapsed());
            let [from, back, until] =
                [UNTIL_AWAY, UNTIL_AWAY + AWAY, UNTIL_AWAY + AWAY + GRACE].map(|at| begun.plus(at));
            let (act, target) = ("absence".to_owned(), format!("the store, away from {from}"));
            let why = Some(format!("leases that ran out meanwhile hold until {until}"));
            let mut absence = ActRecord::new(back, act, target, 1);
            absence.why = why;
            page.items.push(absence);
        }
        Ok(page)
    }

    /// Heartbeats come through here too.
    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        Ok(None)
    }
}
