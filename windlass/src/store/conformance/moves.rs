//! Moves that several chapters make: bring one job to an end, submit a workflow, read a whole list.

use crate::job::{
    Failure, JobId, JobRecord, JobSpec, JobType, Lease, Limits, NewJob, Payload, Policies, QueueName, RequeueOptions,
    State, WorkflowId,
};
use crate::store::{
    Act, ActRecord, ClaimRequest, Claimed, Filter, Inserted, ListQuery, Operated, Settled, Target, Totals,
    WorkflowQuery,
};
use crate::workflow::{Submission, WorkflowRecord};

use super::Bench;
use super::bench::{LEASE, worker};

/// A plain job of this type, so that [`Bench::take`] can single it out.
pub(super) fn named(job_type: &str) -> NewJob {
    NewJob::new(job_type, Payload::default())
}

/// A job as a store takes it.
pub(super) fn checked(job: NewJob) -> JobSpec {
    job.check(&Limits::default(), &Policies::default()).expect("a valid job")
}

/// Text as a payload.
pub(super) fn text(words: &str) -> Payload {
    Payload::json(words).expect("text is JSON")
}

/// A queue's name.
pub(super) fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a queue name")
}

/// A type's name.
pub(super) fn job_type(name: &str) -> JobType {
    JobType::new(name).expect("a type name")
}

/// A polite cancel.
pub(super) const CANCEL: Act = Act::Cancel { force: false };

/// A requeue that starts from nothing, now and alone.
pub(super) fn requeue() -> Act {
    Act::Requeue(RequeueOptions::default())
}

/// All jobs in one of these states.
pub(super) fn in_states(states: &[State]) -> Filter {
    Filter { states: states.to_vec(), ..Filter::default() }
}

impl Bench {
    /// Submits jobs as a workflow.
    pub(super) async fn submit_workflow(&self, name: &str, jobs: Vec<NewJob>) -> Inserted {
        let jobs = jobs.into_iter().map(checked).collect();
        let submission = Submission::workflow(name, jobs).expect("a valid workflow");
        self.store.insert(submission).await.expect("insert")
    }

    /// A workflow that must exist.
    pub(super) async fn workflow(&self, inserted: &Inserted) -> WorkflowRecord {
        let id = inserted.workflow.expect("a workflow has an id");
        self.find_workflow(id).await.expect("the workflow should exist")
    }

    /// A workflow, if it exists.
    pub(super) async fn find_workflow(&self, id: WorkflowId) -> Option<WorkflowRecord> {
        self.store.workflows(&WorkflowQuery::Ids(vec![id])).await.expect("workflows").items.pop()
    }

    /// Claims this job, which must be the first of its type in its queue.
    pub(super) async fn take(&self, id: JobId) -> Claimed {
        let job = self.job(id).await;
        let request = ClaimRequest {
            types: Some(vec![job.spec.job_type.clone()]),
            lease_time: Some(LEASE),
            ..ClaimRequest::new(worker("w1"), job.spec.queue.clone(), 1)
        };
        let claimed = self.store.claim(&request).await.expect("claim").pop();
        let claimed = claimed.unwrap_or_else(|| panic!("job {id} should be claimable, it is {}", job.state));
        assert_eq!(claimed.job.id, id, "another job of the type came first");
        claimed
    }

    /// Brings a SCHEDULED job to this terminal state.
    pub(super) async fn end(&self, id: JobId, state: State) {
        let failure = match state {
            State::Completed => {
                let claimed = self.take(id).await;
                self.complete(claimed.lease).await;
                return;
            }
            State::Cancelled => return self.act(id, CANCEL).await,
            State::Failed => Failure::permanent("broken", "it is broken"),
            State::DeadLetter => Failure::dead_letter("hopeless", "it is hopeless"),
            other => panic!("{other} is no end"),
        };
        let claimed = self.take(id).await;
        assert_eq!(self.apply(claimed.lease.fail(failure, &mut || 0.5)).await, state);
    }

    /// A job in each of the nine states, all in the default queue.
    pub(super) async fn one_of_each(&self) -> Vec<(State, JobId)> {
        let mut jobs = Vec::new();
        // The SCHEDULED one last, or it would be claimed on the way to the others.
        for state in State::ALL.into_iter().filter(|state| *state != State::Scheduled).chain([State::Scheduled]) {
            jobs.push((state, self.in_state(state).await));
        }
        jobs
    }

    /// The states of these jobs.
    pub(super) async fn states(&self, ids: &[JobId]) -> Vec<State> {
        let found = self.store.find(ids).await.expect("find");
        found.into_iter().map(|job| job.expect("the job should exist").state).collect()
    }

    /// Completes a claimed job and spawns children.
    pub(super) async fn complete_and_spawn(&self, lease: Lease, children: Vec<NewJob>) -> Settled {
        let children = children.into_iter().map(checked).collect();
        let settlement = lease.complete(None).spawn(children).expect("a completion may spawn");
        self.settle(&settlement).await
    }

    /// Every job that matches, newest first, read in pages of three.
    pub(super) async fn list(&self, filter: &Filter) -> Vec<JobRecord> {
        let mut query = ListQuery { filter: filter.clone(), limit: 3, after: None, ..ListQuery::default() };
        let mut all = Vec::new();
        loop {
            let page = self.store.list(&query).await.expect("list");
            assert!(page.items.len() <= query.limit, "a page has at most as many rows as asked for");
            all.extend(page.items);
            match page.next {
                None => return all,
                next => query.after = next,
            }
        }
    }

    /// The ids of every job that matches, newest first.
    pub(super) async fn ids(&self, filter: &Filter) -> Vec<JobId> {
        self.list(filter).await.iter().map(|job| job.id).collect()
    }

    /// The one job of this type.
    pub(super) async fn only(&self, name: &str) -> JobRecord {
        let filter = Filter { job_type: Some(job_type(name)), ..Filter::default() };
        let mut found = self.list(&filter).await;
        assert_eq!(found.len(), 1, "one job of type {name}");
        found.remove(0)
    }

    /// The numbers of the store.
    pub(super) async fn totals(&self) -> Totals {
        self.store.totals().await.expect("totals")
    }

    /// One step of an act on what matches.
    pub(super) async fn act_matching(&self, filter: Filter, act: Act, dry_run: bool) -> Operated {
        self.operate(Target::Matching { filter, limit: 1000, after: None }, act, dry_run).await
    }

    /// The newest acts that were recorded.
    pub(super) async fn acts(&self) -> Vec<ActRecord> {
        self.store.acts(None, 100).await.expect("acts").items
    }
}
