//! Submissions: one job, a batch, a workflow, and what is answered.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::JobSpec;
use windlass::store::{Inserted as StoredBatch, InsertedJob};
use windlass::workflow::Submission;
use windlass::{Client, Error, JobId, Result, State, WorkflowId};

use super::names;
use super::new_job::{NewJob, Refs};

/// Jobs that are stored together: all of them or none.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The jobs, 1 to 10,000.
    #[schema(min_items = 1, max_items = 10000)]
    pub jobs: Vec<NewJob>,
}

/// A workflow to be started: jobs that are stored together under a record of their own.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWorkflow {
    /// Its name, for people; need not be unique.
    #[schema(min_length = 1, max_length = 256)]
    pub name: String,
    /// The jobs, 1 to 10,000.
    #[schema(min_items = 1, max_items = 10000)]
    pub jobs: Vec<NewJob>,
}

/// What became of one job of a submission.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Inserted {
    /// Its id, or that of the job its idempotency key stands for.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// The `ref` it had in the call.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Its state; `null` when an existing job has been pruned.
    #[schema(value_type = Option<names::StateName>)]
    pub state: Option<State>,
    /// Whether the job was there before.
    pub existing: bool,
    /// For an existing job: whether type and payload are the same.
    pub matches: bool,
    /// What the caller should know, though the job is stored: that nobody delivers its callback, for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What became of a batch or workflow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InsertedBatch {
    /// The workflow's id, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub workflow_id: Option<WorkflowId>,
    /// One for each job, in order.
    pub jobs: Vec<Inserted>,
    /// What the caller should know, though the jobs are stored: that nobody delivers their callbacks, for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Checks the jobs of one call under a client's limits and policies.
pub fn check_jobs(jobs: Vec<NewJob>, client: &Client) -> Result<Vec<JobSpec>> {
    let refs = Refs::of(&jobs)?;
    jobs.into_iter().map(|job| client.check_job(job.into_job(&refs)?)).collect()
}

impl Batch {
    /// The checked submission, and the refs of its jobs.
    pub fn check(self, client: &Client) -> Result<(Submission, Vec<Option<String>>)> {
        let refs = refs(&self.jobs);
        Ok((Submission::new(check_jobs(self.jobs, client)?)?, refs))
    }
}

impl NewWorkflow {
    /// The checked submission, and the refs of its jobs.
    pub fn check(self, client: &Client) -> Result<(Submission, Vec<Option<String>>)> {
        let refs = refs(&self.jobs);
        Ok((Submission::workflow(self.name, check_jobs(self.jobs, client)?)?, refs))
    }
}

fn refs(jobs: &[NewJob]) -> Vec<Option<String>> {
    jobs.iter().map(|job| job.reference.clone()).collect()
}

impl From<InsertedJob> for Inserted {
    fn from(job: InsertedJob) -> Self {
        let InsertedJob { id, state, existing, matches } = job;
        Inserted { id, reference: None, state, existing, matches, warnings: Vec::new() }
    }
}

impl From<&Inserted> for InsertedJob {
    fn from(job: &Inserted) -> Self {
        InsertedJob { id: job.id, existing: job.existing, state: job.state, matches: job.matches }
    }
}

impl InsertedBatch {
    /// The store's answer, with each job's ref.
    pub fn of(inserted: &StoredBatch, refs: Vec<Option<String>>) -> Self {
        let jobs = inserted.jobs.iter().zip(refs);
        let jobs = jobs.map(|(job, reference)| Inserted { reference, ..Inserted::from(*job) }).collect();
        InsertedBatch { workflow_id: inserted.workflow, jobs, warnings: Vec::new() }
    }

    /// What the store answered; refused when it is not for `count` jobs.
    pub fn into_stored(self, count: usize) -> Result<StoredBatch> {
        if self.jobs.len() != count {
            return Err(Error::store("read the server's answer", "it is not for as many jobs as were sent"));
        }
        Ok(StoredBatch { jobs: self.jobs.iter().map(InsertedJob::from).collect(), workflow: self.workflow_id })
    }
}
