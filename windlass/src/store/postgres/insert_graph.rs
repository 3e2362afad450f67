//! Storing a submission on the slow path: jobs with dependencies, workflows, and what a fast path cannot decide.

use uuid::Uuid;

use super::fault::Fault;
use super::link::Parameter;
use super::transaction::Transaction;
use crate::store::answer::Inserted;
use crate::store::new_workflow_id;
use crate::store::rules::{self, KeptKey, KeyUse};
use crate::time::Timestamp;
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
    pub(super) async fn keep_keys(&self, kept: &[KeptKey]) -> Result<(), Fault> {
        if kept.is_empty() {
            return Ok(());
        }
        let now = self.now.as_micros();
        let micros = |time: Option<Timestamp>| time.map(Timestamp::as_micros);
        let ids: Vec<Uuid> = kept.iter().map(|kept| kept.job.as_uuid()).collect();
        let untils: Vec<i16> = kept.iter().map(|kept| kept.new.until.number().into()).collect();
        let firsts: Vec<i64> = kept.iter().map(|kept| kept.new.first_at.as_micros()).collect();
        let ends: Vec<Option<i64>> = kept.iter().map(|kept| micros(kept.new.expires_at)).collect();
        let looks: Vec<Option<i64>> = kept.iter().map(|kept| micros(kept.look_at(self.now))).collect();
        let seen: Vec<Uuid> = kept.iter().filter_map(|kept| Some(kept.new.instead_of?.as_uuid())).collect();
        let columns = KeyColumns::of(kept.iter().map(|kept| &kept.key));
        let mut parameters = columns.with(&now);
        let rest: [Parameter<'_>; 6] = [&ids, &untils, &firsts, &ends, &looks, &seen];
        parameters.extend(rest);
        let taken = self.link.execute(include_str!("sql/put_key.sql"), &parameters).await?;
        // Another transaction took one of the keys since they were looked at: everything is looked at again.
        if taken == kept.len() as u64 { Ok(()) } else { Err(Fault::Overtaken) }
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
    pub(super) fn of(uses: impl Iterator<Item = &'k KeyUse> + Clone) -> Self {
        KeyColumns {
            scopes: uses.clone().map(|key| key.scope.as_str()).collect(),
            keys: uses.clone().map(|key| key.key.as_str()).collect(),
            types: uses.clone().map(|key| key.job_type.as_str()).collect(),
            content_types: uses.clone().map(|key| key.payload.stored_content_type()).collect(),
            payloads: uses.map(|key| key.payload.as_bytes().as_ref()).collect(),
        }
    }

    /// The parameters that `find_key.sql` and `put_key.sql` begin with.
    pub(super) fn with<'p>(&'p self, now: &'p i64) -> Vec<Parameter<'p>> {
        vec![now, &self.scopes, &self.keys, &self.types, &self.content_types, &self.payloads]
    }
}
