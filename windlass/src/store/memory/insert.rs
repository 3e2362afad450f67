//! Storing a submission, and the idempotency keys that go with it.

use super::tables::{Key, ScopedKey, Tables};
use crate::error::Result;
use crate::job::{JobId, JobRecord, WorkflowId};
use crate::store::answer::Inserted;
use crate::store::new_workflow_id;
use crate::store::rules::{self, KeyUse};
use crate::time::Timestamp;
use crate::workflow::{Origin, Submission, WorkflowRecord};

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

    /// The job that an idempotency key stands for, and whether it is the same job.
    pub(super) fn holder(&self, key: &KeyUse, now: Timestamp) -> Option<(JobId, bool)> {
        let kept = self.keys.get(&(key.scope.clone(), key.key.clone()))?;
        let is_over = kept.expires_at.is_some_and(|expires_at| expires_at <= now);
        (!is_over).then(|| (kept.job, kept.job_type == key.job_type && kept.payload == key.payload))
    }

    /// Keeps what a new job's key stands for, in place of what it stood for before.
    pub(super) fn keep_key(&mut self, job: &JobRecord) {
        let Some(KeyUse { scope, key, job_type, payload }) = KeyUse::of(&job.spec) else { return };
        let name: ScopedKey = (scope, key);
        let window = job.spec.options.idempotency.as_ref().and_then(|key| key.window);
        let expires_at = window.map(|window| job.created_at.plus(window));
        if let Some(expires_at) = expires_at {
            self.key_ends.insert((expires_at, name.clone()));
        }
        let old = self.keys.insert(name.clone(), Key { job: job.id, expires_at, job_type, payload });
        if let Some(expired) = old.and_then(|old| old.expires_at)
            && Some(expired) != expires_at
        {
            self.key_ends.remove(&(expired, name));
        }
    }
}
