//! The flow control of queues, as programs set it.

use std::time::Duration;

use super::Client;
use crate::error::Result;
use crate::flow::{Change, Control, ControlEdit, ControlRecord, GateName, KeyRecord, Limit};
use crate::job::QueueName;
use crate::store::KeyQuery;

/// A queue whose flow is looked at or changed.
///
/// ```
/// use windlass::Client;
/// use windlass::flow::{Control, Limit, Rate};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> windlass::Result<()> {
/// let client = Client::in_memory();
/// let mail = client.queue("mail")?;
/// mail.control(Control::new().running(50).rate(Rate::per_second(100)).each_key(Limit::running(3)).fair()).await?;
/// mail.limit_key("acme", Limit::running(10).weight(5)).await?;
/// assert_eq!(mail.controlled().await?.map(|record| record.version), Some(1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct QueueControl<'a> {
    client: &'a Client,
    queue: QueueName,
    by: Option<String>,
}

impl Client {
    /// The flow control of a queue: limits, rates, turns and order.
    pub fn queue(&self, queue: &str) -> Result<QueueControl<'_>> {
        Ok(QueueControl { client: self, queue: QueueName::new(queue)?, by: None })
    }
}

impl QueueControl<'_> {
    /// Who acts, for the record.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// The control of the queue, if it has one.
    pub async fn controlled(&self) -> Result<Option<ControlRecord>> {
        self.client.store().controlled(&self.queue).await
    }

    /// Brings the queue under control, or changes its control. Holds for every claim that begins afterwards.
    pub async fn control(&self, control: Control) -> Result<()> {
        self.change(Change::Put { control, version: None, from_code: false }).await
    }

    /// Ends the control of the queue.
    pub async fn clear(&self) -> Result<()> {
        self.change(Change::Clear { version: None }).await
    }

    /// Gives a key limits of its own.
    pub async fn limit_key(&self, key: &str, limit: Limit) -> Result<()> {
        self.change(Change::PutKey { key: key.to_owned(), limit }).await
    }

    /// Takes a key's own limits away.
    pub async fn clear_key(&self, key: &str) -> Result<()> {
        self.change(Change::ClearKey { key: key.to_owned() }).await
    }

    /// Starts nothing of a gate for a time; without a time, lifts the hold.
    pub async fn hold(&self, gate: GateName, time: Option<Duration>) -> Result<()> {
        self.change(Change::Hold { gate, time }).await
    }

    /// Lifts the hold of a key, and lets one that a failed job halts go on.
    pub async fn resume_key(&self, key: &str) -> Result<()> {
        self.change(Change::Resume { key: key.to_owned() }).await
    }

    /// How a key stands; `None` for one without jobs and limits.
    pub async fn key(&self, key: &str) -> Result<Option<KeyRecord>> {
        let query = KeyQuery { key: Some(key.to_owned()), ..KeyQuery::new(self.queue.clone()) };
        Ok(self.client.store().keys(&query).await?.items.pop())
    }

    async fn change(&self, change: Change) -> Result<()> {
        let edit = ControlEdit::new(self.queue.clone(), change);
        self.client.store().control(&edit, self.by.as_deref()).await.map(drop)
    }
}
