//! Upkeep of controlled queues: sorts while the door is long, forgets strands with nothing left, counts anew once a minute, and
//! goes on with what a process left half done that took the control from a queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Inner;
use super::control_rows::GateRows;
use super::fault::Fault;
use super::turns::Caller;
use crate::flow::ControlRecord;
use crate::job::{QueueName, WorkerId};
use crate::store::request::ClaimRequest;

/// How many jobs at the door are sorted in one step.
const SORTED: usize = 2000;
/// For how long one call sorts.
const SORTS_FOR: Duration = Duration::from_secs(1);
/// How often everything is counted anew, by any of the processes.
const SWEPT_EVERY: Duration = Duration::from_secs(60);
/// How many strands are forgotten at once.
const FORGOTTEN: i64 = 5000;

impl Inner {
    pub(super) async fn keep_gates(self: &Arc<Self>) -> Result<(), Fault> {
        let link = self.link(Caller::Worker).await?;
        let rows = link.query(include_str!("sql/list_controlled.sql"), &[]).await?;
        drop(link);
        for row in &rows {
            let (queue, name) = (row.get::<_, i32>("queue"), QueueName::new(row.get::<_, &str>("name"))?);
            let Some(text) = row.get::<_, Option<&str>>("control") else {
                self.unsort(queue, true).await?;
                continue;
            };
            // One that cannot be read is found by `check`.
            let Ok(record) = serde_json::from_str::<ControlRecord>(text) else { continue };
            if record.control.has_strands() {
                self.sort_door(&name).await?;
            }
            self.sweep_gates(queue, &name).await?;
        }
        Ok(())
    }

    /// Sorts while more stands at the door than a claim would sort.
    async fn sort_door(&self, queue: &QueueName) -> Result<(), Fault> {
        let begun = Instant::now();
        self.lanes.look_again(queue);
        let link = self.link(Caller::Worker).await?;
        self.lanes.learn_queues(&link, &[queue.as_str()]).await?;
        drop(link);
        let request = ClaimRequest::new(WorkerId::new("upkeep")?, queue.clone(), 0);
        while begun.elapsed() < SORTS_FOR {
            match self.claim_through_gates(queue, 0, SORTED, &request).await? {
                Some(through) if through.door >= SORTED => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Counts anew what runs in a queue, and forgets keys that have nothing, unless somebody did so just now.
    async fn sweep_gates(self: &Arc<Self>, queue: i32, name: &QueueName) -> Result<(), Fault> {
        let link = self.link(Caller::Worker).await?;
        let time = self.given_time();
        let rows = link.query(include_str!("sql/list_gates.sql"), &[&time, &queue]).await?;
        let is_due = |gates: &GateRows| gates.now.as_micros() - gates.swept_at >= super::job_rows::micros(SWEPT_EVERY);
        if rows.is_empty() || !is_due(&GateRows::read(&rows)) {
            return Ok(());
        }
        drop(link);
        let mut link = self.link(Caller::Worker).await?;
        let locked = link.begin_with(&[(include_str!("sql/lock_queue.sql"), &[&queue])]).await;
        let swept = match locked {
            Ok(locked) => self.sweep_locked(&link, queue, locked[0].first().and_then(|row| row.get("control"))).await,
            Err(fault) => Err(fault),
        };
        match swept {
            Ok(mended) => {
                link.commit().await?;
                if mended > 0 {
                    tracing::warn!(queue = %name, mended, "what runs in a controlled queue was counted wrongly, and is corrected");
                }
                Ok(())
            }
            Err(fault) => {
                link.roll_back().await;
                Err(fault)
            }
        }
    }

    async fn sweep_locked(
        &self,
        link: &super::link::Link<'_>,
        queue: i32,
        control: Option<String>,
    ) -> Result<usize, Fault> {
        let rows = link.query(include_str!("sql/list_gates.sql"), &[&self.given_time(), &queue]).await?;
        let now = GateRows::read(&rows).now.as_micros();
        let Some(Ok(record)) = control.map(|text| serde_json::from_str::<ControlRecord>(&text)) else { return Ok(0) };
        link.execute(include_str!("sql/fold_notes.sql"), &[&queue, &i64::MAX]).await?;
        let strays = self.sweep(link, queue, &record.control, false).await?;
        let mended = self.recount(link, queue).await?;
        link.execute(include_str!("sql/open_strands.sql"), &[&queue, &false, &false]).await?;
        link.execute(include_str!("sql/forget_owners.sql"), &[&queue]).await?;
        link.execute(include_str!("sql/delete_strands.sql"), &[&now, &queue, &FORGOTTEN]).await?;
        link.execute(include_str!("sql/put_swept.sql"), &[&queue, &now]).await?;
        Ok(mended + strays)
    }
}
