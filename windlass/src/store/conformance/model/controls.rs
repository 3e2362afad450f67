//! Flow control on both sides: what operators say, and what a controlled queue shows of its keys.

use super::flow::{ControlDraft, ModelGate};
use super::history::QUEUES;
use super::observed::differ;
use super::reference::seconds;
use super::translate;
use super::world::{Said, World, queue_name};
use crate::error::Error;
use crate::flow::{Change, ControlEdit, GateName};
use crate::job::QueueName;
use crate::store::{KeyQuery, PAGE_MAX};

impl World {
    /// Whether the keys of a queue have an order of their own.
    pub(super) fn shares(&self, queue: &QueueName) -> bool {
        let place = QUEUES.iter().position(|name| *name == queue.as_str());
        let flow = place.and_then(|place| self.model.flows[place].as_ref());
        flow.is_some_and(|flow| flow.draft.fair || flow.draft.ordered.is_some())
    }

    /// A change to a queue; says whether the store has flow control at all, and whether it took the change.
    async fn change(&mut self, queue: u8, change: Change) -> Said<Option<bool>> {
        match self.store.control(&ControlEdit::new(queue_name(queue), change), Some("op")).await {
            Ok(_) => Ok(Some(true)),
            Err(Error::Conflict(_)) => Ok(Some(false)),
            Err(Error::InvalidArgument { field: "control", .. }) => {
                self.model.count("store without flow control");
                Ok(None)
            }
            Err(error) => Err(format!("control: {error}")),
        }
    }

    pub(super) async fn control(&mut self, queue: u8, draft: Option<ControlDraft>) -> Said {
        let before = self.model.flows[usize::from(queue)].clone();
        let forgets = self.model.control(queue, draft);
        let mut took = Some(true);
        if forgets || draft.is_none() {
            took = self.change(queue, Change::Clear { version: None }).await?;
        }
        if let Some(draft) = draft {
            let put = Change::Put { control: draft.control(), version: None, from_code: false };
            took = self.change(queue, put).await?;
        }
        if took.is_none() {
            self.model.flows[usize::from(queue)] = before;
            return Ok(());
        }
        differ("control", &took, &Some(true))
    }

    pub(super) async fn hold(&mut self, queue: u8, gate: ModelGate, time: Option<u8>) -> Said {
        let time = time.map(|time| seconds(time.into()));
        let name = match gate {
            ModelGate::Queue => GateName::Queue,
            ModelGate::Key(key) => GateName::Key(translate::flow_key(key)),
        };
        let expected = self.model.hold(queue, gate, time);
        match self.change(queue, Change::Hold { gate: name, time }).await? {
            None => Ok(()),
            took => differ("hold", &took, &Some(expected)),
        }
    }

    pub(super) async fn resume(&mut self, queue: u8, key: u8) -> Said {
        let expected = self.model.resume(queue, key);
        match self.change(queue, Change::Resume { key: translate::flow_key(key) }).await? {
            None => Ok(()),
            took => differ("resume", &took, &Some(expected)),
        }
    }

    /// What runs of each key of a controlled queue.
    pub(super) async fn compare_keys(&self) -> Said {
        for queue in 0..QUEUES.len() as u8 {
            let Some(flow) = &self.model.flows[usize::from(queue)] else { continue };
            let query = KeyQuery { limit: PAGE_MAX, ..KeyQuery::new(queue_name(queue)) };
            let page = self.store.keys(&query).await.map_err(|error| format!("keys: {error}"))?;
            for key in 1..5 {
                let running = self.model.running(queue, |name| self.model.flow_key(flow, name) == key);
                let name = translate::flow_key(key);
                let shown = page.items.iter().find(|record| record.key == name);
                let shown = shown.map_or(0, |record| record.running as usize);
                differ(&format!("running of {name} in {}", QUEUES[usize::from(queue)]), &shown, &running)?;
            }
        }
        Ok(())
    }
}
