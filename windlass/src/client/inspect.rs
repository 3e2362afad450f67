//! Looking at jobs and at everything around them. Nothing here changes anything.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use super::Client;
use crate::error::{Error, Result};
use crate::job::{AttemptRecord, Explanation, JobId, JobRecord, LogLine, State, WorkflowId};
use crate::observe;
use crate::schedule::ScheduleRecord;
use crate::store::{ActRecord, Cursor, Filter, ListQuery, Page, QueueRecord, Totals, WorkerRecord, WorkflowQuery};
use crate::workflow::WorkflowRecord;

/// Queues beyond this many are not recorded: producers choose the names, and each is a dozen series.
const QUEUES_RECORDED_MAX: usize = 1000;

impl Client {
    /// The job with this id; [`Error::NotFound`] when there is none.
    pub async fn job(&self, id: JobId) -> Result<JobRecord> {
        self.find(id).await?.ok_or_else(|| Error::no_such_job(id))
    }

    /// The job with this id, if there is one.
    pub async fn find(&self, id: JobId) -> Result<Option<JobRecord>> {
        Ok(self.store().find(&[id]).await?.into_iter().next().flatten())
    }

    /// Jobs that match, newest first, a page of up to 1,000 at a time.
    pub async fn list(&self, filter: Filter, limit: usize, after: Option<Cursor>) -> Result<Page<JobRecord>> {
        self.store().list(&ListQuery { filter, limit, after, ..ListQuery::default() }).await
    }

    /// How many jobs match, counted no further than `cap`.
    pub async fn count(&self, filter: &Filter, cap: u64) -> Result<u64> {
        Ok(self.store().count(filter, cap, u64::MAX).await?.count)
    }

    /// The dead-letter queue: jobs in FAILED or DEAD_LETTER, newest first.
    pub async fn dead(&self, limit: usize, after: Option<Cursor>) -> Result<Page<JobRecord>> {
        let filter = Filter { states: vec![State::Failed, State::DeadLetter], ..Filter::default() };
        self.list(filter, limit, after).await
    }

    /// The attempts of a job, oldest first.
    pub async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.store().attempts(job).await
    }

    /// What the attempts of a job logged, oldest first.
    pub async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.store().logs(job).await
    }

    /// Every reason why a job is not running now (rule O5).
    pub async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.store().explain(job).await
    }

    /// The numbers of the whole store.
    pub async fn totals(&self) -> Result<Totals> {
        self.store().totals().await
    }

    /// All queues, with what waits in them.
    pub async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.store().queues().await
    }

    /// Records how many jobs each queue holds, how long they have waited and whether it is paused, for a program without a
    /// server: the gauges [`QUEUE_DEPTH`](crate::observe::QUEUE_DEPTH) and its like, of the first 1,000 queues by name.
    ///
    /// Call it before each scrape, in one process: the numbers are the whole store's.
    pub async fn record_queues(&self) -> Result<()> {
        // A recorder keeps the last value of every name, so queues that are gone are told as empty, once.
        static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let (queues, now) = (self.queues().await?, self.store().now().await?);
        let mut told = TOLD.lock().expect("nothing panics while it holds this lock");
        let mut gone = std::mem::take(&mut *told);
        for queue in queues.iter().take(QUEUES_RECORDED_MAX) {
            let states = State::ALL.into_iter().map(|state| (state.as_str(), queue.count(state)));
            let waited = queue.oldest_scheduled.map_or(Duration::ZERO, |since| now.since(since));
            observe::queue(queue.name.as_str(), states, waited, queue.paused);
            gone.remove(queue.name.as_str());
            told.insert(queue.name.to_string());
        }
        for name in gone {
            observe::queue(&name, State::ALL.into_iter().map(|state| (state.as_str(), 0)), Duration::ZERO, false);
        }
        Ok(())
    }

    /// The workers that live. One whose last word was that it serves no queue has taken its leave.
    pub async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let mut live = self.store().workers().await?;
        live.retain(|worker| !worker.queues.is_empty());
        Ok(live)
    }

    /// Schedules by name, after this name.
    pub async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        self.store().schedules(after, limit).await
    }

    /// The workflow with this id; [`Error::NotFound`] when there is none.
    pub async fn workflow(&self, id: WorkflowId) -> Result<WorkflowRecord> {
        let found = self.store().workflows(&WorkflowQuery::Ids(vec![id])).await?.items.pop();
        found.ok_or_else(|| Error::not_found("workflow", id.to_string()))
    }

    /// Workflows, newest first.
    pub async fn workflows(&self, limit: usize, after: Option<&Cursor>) -> Result<Page<WorkflowRecord>> {
        self.store().workflows(&WorkflowQuery::Newest { limit, after: after.cloned() }).await
    }

    /// What operators did, newest first.
    pub async fn acts(&self, limit: usize, after: Option<&Cursor>) -> Result<Page<ActRecord>> {
        self.store().acts(after, limit).await
    }
}
