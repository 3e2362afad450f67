//! After every step: everything the store shows, held against the model.

use super::history::{Op, QUEUES, WEBHOOK};
use super::invariants::balance;
use super::observed::{Observed, differ, worker_name};
use super::reference::Name;
use super::world::{Said, World};
use crate::job::{JobRecord, State};
use crate::store::{Filter, JobEventKind, ListQuery, PAGE_MAX, WorkflowQuery};
use crate::workflow::Webhook;

impl World {
    /// Compares every job, the numbers, the queues, the workflows and the events, and asks the store to check itself.
    pub(super) async fn look(&mut self, op: &Op) -> Said {
        let jobs = self.all_jobs().await?;
        self.discover(&jobs)?;
        self.learn_jitter(&jobs);
        let names: Vec<Name> = jobs.iter().map(|job| self.names[&job.id]).collect();
        let mut expected: Vec<Name> = (0..self.model.jobs.len()).filter(|name| !self.model.jobs[*name].gone).collect();
        expected.sort_by_key(|name| self.model.jobs[*name].sequence);
        differ("the list of jobs, oldest first,", &names, &expected)?;
        for (job, name) in jobs.iter().zip(names) {
            self.compare_job(job, name)?;
        }
        self.seen.look(&jobs, op, self.model.now)?;
        self.last = jobs;
        self.compare_numbers().await?;
        self.compare_workflows().await?;
        self.compare_events().await?;
        self.compare_keys().await?;
        let findings = self.store.check().await.map_err(|error| format!("check: {error}"))?;
        if findings.is_empty() { Ok(()) } else { Err(format!("the store contradicts itself: {findings:?}")) }
    }

    /// All jobs, oldest first.
    async fn all_jobs(&self) -> Said<Vec<JobRecord>> {
        let (mut jobs, mut after) = (Vec::new(), None);
        loop {
            let query = ListQuery { filter: Filter::default(), limit: PAGE_MAX, after, ..ListQuery::default() };
            let page = self.store.list(&query).await.map_err(|error| format!("list: {error}"))?;
            jobs.extend(page.items);
            after = page.next;
            if after.is_none() {
                jobs.reverse();
                return Ok(jobs);
            }
        }
    }

    /// Finds out which of the model's jobs the new ones are; which came first among them is the store's to say.
    fn discover(&mut self, jobs: &[JobRecord]) -> Said {
        self.ids.resize(self.model.jobs.len(), None);
        // The model counts every job once, so this is the first number that no job has yet.
        let mut sequence = self.sequenced as u64;
        let mut last_planned = None;
        for job in jobs {
            let name = match self.names.get(&job.id) {
                Some(name) => *name,
                None => {
                    let found = self.recognise(job);
                    let name = found.ok_or_else(|| format!("the model does not know this job: {job:?}"))?;
                    self.bind(name, job.id)?;
                    name
                }
            };
            if name >= self.sequenced {
                let webhook = self.model.jobs[name].tells_of.is_some();
                if !webhook && last_planned.is_some_and(|last| last > name) {
                    return Err(format!("job {name} of a batch stands after a later one"));
                }
                last_planned = if webhook { last_planned } else { Some(name) };
                self.model.jobs[name].sequence = sequence;
                sequence += 1;
            }
        }
        self.sequenced = self.model.jobs.len();
        Ok(())
    }

    /// Of all the jobs here only webhook jobs back off with jitter, and where their execution timeout is over the store draws
    /// it: the model takes over a moment that lies within a tenth of the delay.
    fn learn_jitter(&mut self, jobs: &[JobRecord]) {
        for job in jobs {
            let Some(name) = self.names.get(&job.id) else { continue };
            let model = &mut self.model.jobs[*name];
            if model.tells_of.is_none() || (job.state, model.state) != (State::Retrying, State::Retrying) {
                continue;
            }
            let Some((store, planned)) = job.run_at.zip(model.run_at) else { continue };
            let jitter = planned.since(model.updated_at) / 10;
            if store >= planned.minus(jitter) && store <= planned.plus(jitter) {
                model.run_at = Some(store);
            }
        }
    }

    fn recognise(&self, job: &JobRecord) -> Option<Name> {
        let unknown = |name: &Name| self.ids[*name].is_none();
        let mut open = (0..self.model.jobs.len()).filter(unknown);
        if job.spec.queue.as_str() == QUEUES[usize::from(WEBHOOK)] {
            let told: Webhook = job.spec.payload.decode().ok()?;
            let of = *self.names.get(&told.job_id)?;
            return open.find(|name| self.model.jobs[*name].tells_of == Some(of));
        }
        let serial: usize = job.spec.options.correlation_id.as_ref()?.parse().ok()?;
        open.find(|name| self.model.jobs[*name].plan.serial == serial && self.model.jobs[*name].tells_of.is_none())
    }

    pub(super) fn compare_job(&self, job: &JobRecord, name: Name) -> Said {
        let store = Observed::of_record(job, |id| self.names.get(&id).copied());
        let model = Observed::of_model(&self.model.jobs[name]);
        if store == model { Ok(()) } else { differ(&format!("job {name}"), &store, &model) }
    }

    async fn compare_numbers(&self) -> Said {
        let totals = self.store.totals().await.map_err(|error| format!("totals: {error}"))?;
        balance(&totals)?;
        let mut states = [0; 9];
        let mut queues = [[0; 9]; QUEUES.len()];
        let mut oldest = [None; QUEUES.len()];
        for job in self.model.jobs.iter().filter(|job| !job.gone) {
            let (state, queue) = (usize::from(job.state.number()), usize::from(job.plan.draft.queue));
            states[state] += 1;
            queues[queue][state] += 1;
            if job.state == State::Scheduled {
                oldest[queue] = Some(oldest[queue].map_or(job.position, |at: crate::Timestamp| at.min(job.position)));
            }
        }
        let store = (totals.accepted, totals.pruned, totals.states);
        differ("totals (accepted, pruned, states)", &store, &(self.model.accepted, self.model.pruned, states))?;
        let records = self.store.queues().await.map_err(|error| format!("queues: {error}"))?;
        for (number, name) in QUEUES.iter().enumerate() {
            let record = records.iter().find(|record| record.name.as_str() == *name);
            let store =
                record.map_or((false, [0; 9], None), |record| (record.paused, record.states, record.oldest_scheduled));
            let model = (self.model.paused[number], queues[number], oldest[number]);
            differ(&format!("queue {name} (paused, states, oldest)"), &store, &model)?;
        }
        Ok(())
    }

    async fn compare_workflows(&self) -> Said {
        for (number, id) in self.workflows.iter().enumerate() {
            let Some(id) = id else { continue };
            let query = WorkflowQuery::Ids(vec![*id]);
            let found = self.store.workflows(&query).await.map_err(|error| format!("workflows: {error}"))?.items;
            let mut counts = [0; 9];
            for job in self.model.jobs.iter().filter(|job| !job.gone && job.workflow == Some(number)) {
                counts[usize::from(job.state.number())] += 1;
            }
            let pruned = self.model.workflows[number];
            // A workflow may go with the last of its jobs.
            let model = (counts != [0; 9]).then_some((counts, pruned));
            let store = found.first().map(|record| (record.counts, record.pruned));
            let store = store.filter(|(counts, _)| *counts != [0; 9]);
            differ(&format!("workflow {number} (counts, pruned)"), &store, &model)?;
        }
        Ok(())
    }

    /// Each job that was stored or ended in this step; the order is the store's.
    async fn compare_events(&mut self) -> Said {
        let mut store = Vec::new();
        loop {
            let page =
                self.store.events(self.events.as_ref(), PAGE_MAX).await.map_err(|error| format!("events: {error}"))?;
            self.events = page.next;
            if page.items.is_empty() {
                break;
            }
            for event in page.items {
                let name = self.names.get(&event.job).copied();
                store.push((
                    name,
                    match event.kind {
                        JobEventKind::Enqueued => None,
                        JobEventKind::Ended(state) => Some(state),
                    },
                ));
            }
        }
        let mut model: Vec<_> = self.model.events.drain(..).map(|(name, ended)| (Some(name), ended)).collect();
        store.sort_unstable();
        model.sort_unstable();
        differ("events (job, ended in)", &store, &model)
    }

    /// The attempts of every job, once at the end of a history: they are only ever added to.
    pub(super) async fn compare_attempts(&self) -> Said {
        for job in &self.last {
            let name = self.names[&job.id];
            let attempts = self.store.attempts(job.id).await.map_err(|error| format!("attempts: {error}"))?;
            let store = attempts.iter().map(|attempt| {
                let failure = attempt.failure.as_ref().map(|failure| (failure.category, failure.code.as_deref()));
                let numbers = (attempt.lease_version, attempt.number, attempt.generation);
                let times = (attempt.started_at, attempt.ended_at);
                (numbers, times, attempt.worker.to_string(), attempt.outcome, failure)
            });
            let model = self.model.jobs[name].attempts.iter().map(|attempt| {
                let numbers = (attempt.version, attempt.number, attempt.generation);
                let times = (attempt.started_at, attempt.ended_at);
                (numbers, times, worker_name(attempt.worker), attempt.outcome, attempt.failure)
            });
            let (store, model): (Vec<_>, Vec<_>) = (store.collect(), model.collect());
            differ(&format!("attempts of job {name}"), &store, &model)?;
        }
        Ok(())
    }
}
