//! Waiting for what becomes of jobs. The store's hints make it quick; polling makes it certain (rule N2).

use std::collections::VecDeque;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::broadcast::{self, error::RecvError};

use super::Client;
use crate::error::Result;
use crate::job::{JobId, JobRecord, State, WorkflowId};
use crate::store::{Cursor, JobEvent, PAGE_MAX, Wake};
use crate::workflow::{WorkflowRecord, WorkflowState};

/// How long a lost hint can delay an answer.
const POLL: Duration = Duration::from_millis(500);

impl Client {
    /// Waits until a job has ended; gives it with its result or failure.
    ///
    /// Waits as long as it takes: put a timeout around it. [`Error::NotFound`](crate::Error::NotFound) when the job
    /// does not exist or was pruned meanwhile.
    pub async fn wait(&self, id: JobId) -> Result<JobRecord> {
        let mut wakes = self.store().wakes();
        loop {
            let job = self.job(id).await?;
            if job.state.is_terminal() {
                return Ok(job);
            }
            hint(&mut wakes, |wake| *wake == Wake::Ended(id)).await;
        }
    }

    /// Waits until a job has ended, and reads its result. One that ended otherwise is the inner error, with its failure and the
    /// reason of its end.
    pub async fn wait_result<T: DeserializeOwned>(&self, id: JobId) -> Result<Result<T, Box<JobRecord>>> {
        let ended = self.wait(id).await?;
        if ended.state != State::Completed {
            return Ok(Err(Box::new(ended)));
        }
        let result = ended.result.unwrap_or_default();
        Ok(Ok(result.decode()?))
    }

    /// Waits until every job of a workflow has ended.
    pub async fn wait_workflow(&self, id: WorkflowId) -> Result<WorkflowRecord> {
        let mut wakes = self.store().wakes();
        loop {
            let workflow = self.workflow(id).await?;
            if workflow.state() != WorkflowState::Running {
                return Ok(workflow);
            }
            hint(&mut wakes, |wake| matches!(wake, Wake::Ended(_))).await;
        }
    }

    /// Follows jobs as they are enqueued and end, from now on or after a cursor.
    pub async fn events(&self, after: Option<Cursor>) -> Result<Events> {
        let wakes = self.store().wakes();
        let after = match after {
            Some(cursor) => Some(cursor),
            None => self.store().events(None, 1).await?.next,
        };
        Ok(Events { client: self.clone(), wakes, handed: after.clone(), after, ready: VecDeque::new() })
    }
}

/// Jobs as they are enqueued and end, oldest first.
#[derive(Debug)]
pub struct Events {
    client: Client,
    wakes: broadcast::Receiver<Wake>,
    after: Option<Cursor>,
    /// Behind the last event that was handed out.
    handed: Option<Cursor>,
    ready: VecDeque<JobEvent>,
}

impl Events {
    /// The next event; waits for it. Dropping the wait loses nothing.
    pub async fn next(&mut self) -> Result<JobEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.handed = Some(event.cursor.clone());
                return Ok(event);
            }
            let page = self.client.store().events(self.after.as_ref(), PAGE_MAX).await?;
            let end = page.next.or_else(|| page.items.last().map(|event| event.cursor.clone()));
            self.after = end.or_else(|| self.after.take());
            if page.items.is_empty() {
                hint(&mut self.wakes, |wake| !matches!(wake, Wake::CancelAsked(_))).await;
            } else {
                self.ready.extend(page.items);
            }
        }
    }

    /// Behind the last event that was handed out: where to go on after a restart.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.handed.as_ref()
    }
}

/// Waits for a hint that is wanted, or until it is time to look anyway.
async fn hint(wakes: &mut broadcast::Receiver<Wake>, wanted: impl Fn(&Wake) -> bool) {
    let hinted = async {
        loop {
            match wakes.recv().await {
                Ok(wake) if wanted(&wake) => return,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    let _ = tokio::time::timeout(POLL, hinted).await;
}
