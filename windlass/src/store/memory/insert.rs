//! Storing a submission, and the idempotency keys that go with it.

use super::tables::{Key, ScopedKey, Tables};
use crate::error::Result;
use crate::job::WorkflowId;
use crate::store::answer::Inserted;
use crate::store::new_workflow_id;
use crate::store::rules::{self, KeptKey, KeyUse};
use crate::time::Timestamp;
use crate::workflow::{Held, Origin, Submission, WorkflowRecord};

impl Tables {
    pub(super) fn insert(&mut self, submission: &Submission, now: Timestamp) -> Result<Inserted> {
        let workflow = submission.workflow_name().map(|_| new_workflow_id());
        let origin = Origin { workflow, ..Origin::default() };
        // Before its jobs, which count in it.
        let name = submission.workflow_name().unwrap_or_default();
        workflow.into_iter().for_each(|id| self.add_workflow(id, name, now));
        let jobs = self.run(now, |set| rules::insert(set, submission, &origin));
        if let (Err(_), Some(id)) = (&jobs, workflow) {
            self.remove_workflow(id);
        }
        Ok(Inserted { jobs: jobs?, workflow })
    }

    fn add_workflow(&mut self, id: WorkflowId, name: &str, now: Timestamp) {
        let sequence = self.draw_sequence();
        self.workflow_ids.insert(id, sequence);
        let name = name.to_owned();
        self.workflows.insert(sequence, WorkflowRecord { id, name, created_at: now, counts: [0; 9], pruned: 0 });
    }

    /// What is kept of an idempotency key, if its time is not over.
    pub(super) fn held(&self, key: &KeyUse, now: Timestamp) -> Option<Held> {
        let KeptKey { key: kept, job, new } = &self.keys.get(&(key.scope.clone(), key.key.clone()))?.kept;
        let is_over = new.expires_at.is_some_and(|expires_at| expires_at <= now);
        let matches = kept.job_type == key.job_type && kept.payload == key.payload;
        (!is_over).then_some(Held { id: *job, matches, until: new.until, first_at: new.first_at })
    }

    /// Keeps what a key stands for, in place of what it stood for before.
    pub(super) fn keep_key(&mut self, kept: KeptKey, look_at: Option<Timestamp>) {
        let name: ScopedKey = (kept.key.scope.clone(), kept.key.key.clone());
        self.forget_key(&name);
        self.key_looks.extend(look_at.map(|at| (at, name.clone())));
        self.keys.insert(name, Key { kept, look_at });
    }

    pub(super) fn forget_key(&mut self, name: &ScopedKey) -> Option<KeptKey> {
        let Key { kept, look_at } = self.keys.remove(name)?;
        if let Some(at) = look_at {
            self.key_looks.remove(&(at, name.clone()));
        }
        Some(kept)
    }
}
