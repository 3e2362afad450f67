//! Storing a submission on the slow path: jobs with dependencies, workflows, and what a fast path cannot decide.

use super::fault::Fault;
use super::link::Parameter;
use super::transaction::Transaction;
use crate::job::JobRecord;
use crate::store::answer::Inserted;
use crate::store::new_workflow_id;
use crate::store::rules::{self, Entry, KeyUse};
use crate::workflow::{Origin, Submission};

impl Transaction<'_> {
    pub(super) async fn insert(&mut self, submission: &Submission) -> Result<Inserted, Fault> {
        let workflow = submission.workflow_name().map(|_| new_workflow_id());
        let origin = Origin { workflow, ..Origin::default() };
        let mut working = self.working();
        let jobs = self.run(&mut working, |set| rules::insert(set, submission, &origin)).await?;
        if let Some((id, name)) = workflow.zip(submission.workflow_name()) {
            let now = self.now.as_micros();
            self.link.execute(include_str!("sql/add_workflow.sql"), &[&id.as_uuid(), &name, &now]).await?;
        }
        self.flush(working).await?;
        Ok(Inserted { jobs, workflow })
    }

    /// Keeps what the idempotency keys of new jobs stand for.
    pub(super) async fn keep_keys(&self, new: &[Entry]) -> Result<(), Fault> {
        let keyed: Vec<(KeyUse, &JobRecord)> =
            new.iter().filter_map(|entry| Some((KeyUse::of(&entry.job.spec)?, &entry.job))).collect();
        if keyed.is_empty() {
            return Ok(());
        }
        let window = |job: &JobRecord| job.spec.options.idempotency.as_ref().and_then(|key| key.window);
        let expires_at = |job: &JobRecord| window(job).map(|window| job.created_at.plus(window).as_micros());
        let ids: Vec<uuid::Uuid> = keyed.iter().map(|(_, job)| job.id.as_uuid()).collect();
        let ends: Vec<Option<i64>> = keyed.iter().map(|(_, job)| expires_at(job)).collect();
        let (uses, now): (Vec<KeyUse>, i64) = (keyed.into_iter().map(|(key, _)| key).collect(), self.now.as_micros());
        let columns = KeyColumns::of(&uses);
        let mut parameters = columns.with(&now);
        parameters.push(&ids);
        parameters.push(&ends);
        let kept = self.link.execute(include_str!("sql/put_key.sql"), &parameters).await?;
        // Another transaction took one of the keys since they were looked at: everything is looked at again.
        if kept == uses.len() as u64 { Ok(()) } else { Err(Fault::Overtaken) }
    }
}

/// Uses of idempotency keys, a column for each field.
pub(super) struct KeyColumns<'k> {
    scopes: Vec<&'k str>,
    keys: Vec<&'k str>,
    types: Vec<&'k str>,
    content_types: Vec<Option<&'k str>>,
    payloads: Vec<&'k [u8]>,
}

impl<'k> KeyColumns<'k> {
    pub(super) fn of(uses: &'k [KeyUse]) -> Self {
        KeyColumns {
            scopes: uses.iter().map(|key| key.scope.as_str()).collect(),
            keys: uses.iter().map(|key| key.key.as_str()).collect(),
            types: uses.iter().map(|key| key.job_type.as_str()).collect(),
            content_types: uses.iter().map(|key| key.payload.stored_content_type()).collect(),
            payloads: uses.iter().map(|key| key.payload.as_bytes().as_ref()).collect(),
        }
    }

    /// The parameters that `find_key.sql` and `put_key.sql` begin with.
    pub(super) fn with<'p>(&'p self, now: &'p i64) -> Vec<Parameter<'p>> {
        vec![now, &self.scopes, &self.keys, &self.types, &self.content_types, &self.payloads]
    }
}
