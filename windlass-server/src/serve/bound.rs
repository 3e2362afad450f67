//! A store as a token sees it: where it is bound to queues or types, the jobs of others are not there.
//!
//! Each token but an admin's has an API of its own on such a store, so no route can forget to ask.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use windlass::flow::{ControlEdit, ControlRecord, KeyRecord};
use windlass::job::{
    AttemptRecord, Explanation, FailureRecord, JobOptions, JobSpec, LogLine, Reason, Scope, Settlement, Why,
};
use windlass::schedule::ScheduleRecord;
use windlass::store::{
    Act, ActRecord, ClaimRequest, Claims, Counted, Cursor, FaultGroup, FaultQuery, Filter, Inserted, JobEvent,
    KeyQuery, Layer, ListQuery, Observation, Operated, Operation, PAGE_MAX, Page, QueueRecord, Rewrite, Sample,
    SampleStep, ScheduleEdit, ScheduleEdited, Settled, Store, Target, Upkeep, UpkeepReport, Wake, WorkerRecord,
    WorkerReport, WorkflowQuery,
};
use windlass::workflow::{Submission, WorkflowRecord};
use windlass::{Error, JobId, JobRecord, JobType, Policies, QueueName, Result, Timestamp};

use crate::wire::HIDDEN;

/// What begins the names that are the system's own, such as the queue of webhooks.
const SYSTEM: &str = "windlass.";

/// The queues and types that a token is bound to; none for any.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// The queues.
    pub queues: Vec<QueueName>,
    /// The types.
    pub types: Vec<JobType>,
}

impl Bounds {
    /// Whether it binds nothing.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.types.is_empty()
    }

    fn queue(&self, name: &QueueName) -> bool {
        self.queues.is_empty() || self.queues.contains(name)
    }

    fn covers(&self, queue: &QueueName, job_type: &JobType) -> bool {
        self.queue(queue) && (self.types.is_empty() || self.types.contains(job_type))
    }

    /// Refuses to submit what the token is not for.
    fn check(&self, job: &JobSpec) -> Result<()> {
        self.check_lane(job)?;
        self.check_key(job)
    }

    fn check_lane(&self, job: &JobSpec) -> Result<()> {
        if self.covers(&job.queue, &job.job_type) {
            return Ok(());
        }
        let (queue, job_type) = (&job.queue, &job.job_type);
        Err(Error::Unauthorized(format!("this token is not for jobs of type {job_type} in queue {queue}")))
    }

    /// Refuses a key that is unique among more jobs than the token is for: it could keep a job of others from being stored, tell
    /// whether one is there, or replace it.
    fn check_key(&self, job: &JobSpec) -> Result<()> {
        let Some(idempotency) = &job.options.idempotency else { return Ok(()) };
        let (bound_to, is_within) = match idempotency.scope {
            Scope::Queue => ("types", !self.queues.is_empty()),
            Scope::Type => ("queues", !self.types.is_empty()),
            Scope::Global => ("queues or types", false),
        };
        if self.is_empty() || is_within {
            return Ok(());
        }
        let wanted = if self.queues.is_empty() { "type" } else { "queue" };
        let why = format!("this token is bound to {bound_to}: its idempotency keys need the scope {wanted}");
        Err(Error::Unauthorized(why))
    }

    /// The policies of what it is for: it needs no others, and they name queues and types of others.
    pub(super) fn policies(&self, all: &Policies) -> Policies {
        let mut own = Policies::default().system(all.of_system().clone());
        for (queue, patch) in all.of_queues().filter(|(queue, _)| self.queue(queue)) {
            own = own.queue(queue.clone(), patch.clone());
        }
        let is_own = |job_type: &JobType| self.types.is_empty() || self.types.contains(job_type);
        // A token for queues may submit any type, and needs the policies of all.
        for (job_type, patch) in all.of_types().filter(|(job_type, _)| is_own(job_type)) {
            own = own.job_type(job_type.clone(), patch.clone());
        }
        own
    }

    /// The filter, narrowed to one queue and type that the token is for.
    fn narrow(&self, filter: &Filter) -> Result<Filter> {
        let mut filter = filter.clone();
        filter.queue = narrowed("queue", filter.queue, &self.queues)?;
        filter.job_type = narrowed("type", filter.job_type, &self.types)?;
        Ok(filter)
    }
}

/// What was asked for if the token is for it; where nothing was, the only one that it is for.
fn narrowed<T: Clone + PartialEq + std::fmt::Display>(what: &str, asked: Option<T>, bound: &[T]) -> Result<Option<T>> {
    match (asked, bound) {
        (asked, []) => Ok(asked),
        (Some(asked), bound) if bound.contains(&asked) => Ok(Some(asked)),
        (Some(asked), _) => Err(Error::Unauthorized(format!("this token is not for the {what} {asked}"))),
        (None, [only]) => Ok(Some(only.clone())),
        (None, bound) => {
            let names: Vec<_> = bound.iter().map(ToString::to_string).collect();
            Err(Error::Unauthorized(format!("this token must name a {what}, one of {}", names.join(", "))))
        }
    }
}

/// How many wakes a slow listener may fall behind; it then misses some, and looks by itself.
const WAKES_MAX: usize = 256;

/// What a worker serves, as far as the token is for it; `None` where it is for nothing of it.
fn narrowed_worker(bounds: &Bounds, mut worker: WorkerRecord) -> Option<WorkerRecord> {
    if bounds.is_empty() {
        return Some(worker);
    }
    worker.queues.retain(|served| bounds.queue(&served.queue));
    if !bounds.types.is_empty() {
        let known = worker.types.unwrap_or_else(|| bounds.types.clone());
        worker.types = Some(known.into_iter().filter(|job_type| bounds.types.contains(job_type)).collect());
    }
    let serves = !worker.queues.is_empty() && worker.types.as_ref().is_none_or(|types| !types.is_empty());
    serves.then_some(worker)
}

/// The wakes that tell of no queue but these.
fn narrowed_wakes(mut from: broadcast::Receiver<Wake>, queues: Vec<QueueName>) -> broadcast::Receiver<Wake> {
    let (into, receiver) = broadcast::channel(WAKES_MAX);
    tokio::spawn(async move {
        loop {
            let wake = tokio::select! {
                () = into.closed() => return,
                wake = from.recv() => wake,
            };
            match wake {
                Ok(Wake::Scheduled(queue) | Wake::Paused(queue)) if !queues.contains(&queue) => {}
                // Nobody listening any more ends it above.
                Ok(wake) => drop(into.send(wake)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
    receiver
}

/// A failure's words may repeat what the job was given; its category and code do not.
fn hide(failure: &mut FailureRecord) {
    HIDDEN.clone_into(&mut failure.message);
    failure.causes.clear();
}

/// Handlers say why they cancel a job, too, and in their own words.
fn hide_reason(reason: &mut Reason) {
    if reason.message.is_some() {
        reason.message = Some(HIDDEN.to_owned());
    }
}

/// An act's words: why, and the filter where it names what is hidden.
fn hide_act(act: &mut ActRecord) {
    if act.why.is_some() {
        act.why = Some(HIDDEN.to_owned());
    }
    if act.target.contains("key=") || act.target.contains("text=") {
        HIDDEN.clone_into(&mut act.target);
    }
}

/// A URL without what follows its host: that is where its secrets are.
fn without_path(url: &str) -> String {
    let end = url.find("://").and_then(|scheme| url[scheme + 3..].find(['/', '?', '#']).map(|end| scheme + 3 + end));
    end.map_or_else(|| url.to_owned(), |end| format!("{}/", &url[..end]))
}

/// The options that may hold secrets or pieces of a payload.
fn hide_options(options: &mut JobOptions) {
    options.callback_url = options.callback_url.as_deref().map(without_path);
    options.idempotency = None;
}

/// The store of a token that is not an admin's.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) inner: Arc<dyn Store>,
    pub(super) bounds: Bounds,
    /// Whether what may hold pieces of payloads is left out.
    pub(super) hides: bool,
}

impl Bound {
    /// The job as the token may see it. The API leaves out the payload, the result and the checkpoint.
    fn shown(&self, mut job: JobRecord) -> JobRecord {
        if !self.hides {
            return job;
        }
        if let Some(failure) = &mut job.failure {
            hide(failure);
        }
        if let Some(progress) = &mut job.progress {
            progress.message = String::new();
        }
        if let Some(reason) = &mut job.reason {
            hide_reason(reason);
        }
        hide_options(&mut Arc::make_mut(&mut job.spec).options);
        job
    }

    /// Schedules as the token may see them. The API leaves out the payload of the template.
    fn shown_schedules(&self, mut schedules: Vec<ScheduleRecord>) -> Vec<ScheduleRecord> {
        if self.hides {
            schedules.iter_mut().for_each(|schedule| hide_options(&mut schedule.spec.job.options));
        }
        schedules
    }

    /// The filter as the token may use it: not to find out what is hidden from it.
    fn narrow(&self, filter: &Filter) -> Result<Filter> {
        if self.hides && (filter.text.is_some() || filter.key.is_some()) {
            let why = "text and idempotency keys are hidden from this token, as payloads are";
            return Err(Error::Unauthorized(why.to_owned()));
        }
        self.bounds.narrow(filter)
    }

    fn sees(&self, job: &JobRecord) -> bool {
        self.bounds.covers(&job.spec.queue, &job.spec.job_type)
    }

    /// Refuses a job that is not there for this token.
    async fn seen(&self, id: JobId) -> Result<()> {
        if self.bounds.is_empty() {
            return Ok(());
        }
        match self.inner.find(&[id]).await?.pop().flatten() {
            Some(job) if self.sees(&job) => Ok(()),
            _ => Err(Error::not_found("job", id.to_string())),
        }
    }

    /// The schedule of this name, also one that the token does not cover.
    async fn schedule(&self, name: &str) -> Result<Option<ScheduleRecord>> {
        let mut after: Option<String> = None;
        loop {
            let mut page = self.inner.schedules(after.as_deref(), PAGE_MAX).await?;
            if let Some(place) = page.iter().position(|schedule| schedule.spec.name == name) {
                return Ok(Some(page.swap_remove(place)));
            }
            match page.pop() {
                Some(last) if page.len() + 1 == PAGE_MAX => after = Some(last.spec.name),
                _ => return Ok(None),
            }
        }
    }

    /// Refuses a token what is of a whole queue, unless it is for all of it.
    fn whole_queue(&self, queue: &QueueName) -> Result<()> {
        if !self.bounds.types.is_empty() {
            return Err(Error::Unauthorized("a whole queue is more than this token's types".to_owned()));
        }
        narrowed("queue", Some(queue.clone()), &self.bounds.queues).map(drop)
    }

    /// Refuses a bound token what is of no one queue.
    fn whole(&self, what: &str) -> Result<()> {
        if self.bounds.is_empty() {
            return Ok(());
        }
        Err(Error::Unauthorized(format!("{what} are not of one queue, and this token is bound to queues or types")))
    }
}

#[async_trait]
impl Layer for Bound {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        submission.jobs().iter().try_for_each(|job| self.bounds.check(job))?;
        self.inner.insert(submission).await
    }

    async fn own(&self, owner: &str) -> Result<()> {
        self.whole("marks")?;
        self.inner.own(owner).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        for (queue, _) in &request.queues {
            if queue.as_str().starts_with(SYSTEM) && !self.bounds.queues.contains(queue) {
                let why = format!("the queue {queue} is the system's own: a token that names it may claim from it");
                return Err(Error::Unauthorized(why));
            }
            narrowed("queue", Some(queue.clone()), &self.bounds.queues)?;
        }
        let mut request = request.clone();
        match &request.types {
            Some(types) => {
                for job_type in types {
                    narrowed("type", Some(job_type.clone()), &self.bounds.types)?;
                }
            }
            None if self.bounds.types.is_empty() => {}
            None => request.types = Some(self.bounds.types.clone()),
        }
        self.inner.claim(&request).await
    }

    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>> {
        self.whole_queue(&edit.queue)?;
        self.inner.control(edit, by).await
    }

    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        self.whole_queue(queue)?;
        self.inner.controlled(queue).await
    }

    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>> {
        self.whole_queue(&query.queue)?;
        self.inner.keys(query).await
    }

    /// The lease token is what allows it; what a settlement starts is a submission like any other.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let mut children = settlements.iter().flat_map(Settlement::children);
        children.try_for_each(|child| self.bounds.check(child))?;
        self.inner.settle(settlements).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        let found = self.inner.find(ids).await?;
        let seen = |job: Option<JobRecord>| job.filter(|job| self.sees(job)).map(|job| self.shown(job));
        Ok(found.into_iter().map(seen).collect())
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        let query = ListQuery { filter: self.narrow(&query.filter)?, ..query.clone() };
        let mut page = self.inner.list(&query).await?;
        page.items = page.items.into_iter().map(|job| self.shown(job)).collect();
        Ok(page)
    }

    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted> {
        self.inner.count(&self.narrow(filter)?, cap, looked_max).await
    }

    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>> {
        let query = FaultQuery {
            queue: narrowed("queue", query.queue.clone(), &self.bounds.queues)?,
            job_type: narrowed("type", query.job_type.clone(), &self.bounds.types)?,
            ..query.clone()
        };
        let mut page = self.inner.faults(&query).await?;
        if self.hides {
            page.items.iter_mut().for_each(|group| HIDDEN.clone_into(&mut group.pattern));
        }
        Ok(page)
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.seen(job).await?;
        let mut attempts = self.inner.attempts(job).await?;
        if self.hides {
            attempts.iter_mut().filter_map(|attempt| attempt.failure.as_mut()).for_each(hide);
        }
        Ok(attempts)
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.seen(job).await?;
        if self.hides {
            return Err(Error::Unauthorized("log lines are hidden from this token, as payloads are".to_owned()));
        }
        self.inner.logs(job).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.seen(job).await?;
        let mut explained = self.inner.explain(job).await?;
        if self.hides {
            explained.reasons.iter_mut().for_each(|why| match why {
                Why::Ended { because: Some(reason), .. } => hide_reason(reason),
                Why::Damaged { damage } => HIDDEN.clone_into(damage),
                _ => {}
            });
        }
        Ok(explained)
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        let mut page = self.inner.events(after, limit).await?;
        page.items.retain(|event| self.bounds.covers(&event.queue, &event.job_type));
        Ok(page)
    }

    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation> {
        let mut seen = self.inner.observe(ends_from).await?;
        seen.lanes.retain(|lane| self.bounds.covers(&lane.queue, &lane.job_type));
        seen.ends.retain(|end| self.bounds.covers(&end.queue, &end.job_type));
        Ok(seen)
    }

    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>> {
        let mut samples = self.inner.samples(step, from, before).await?;
        for sample in &mut samples {
            sample.lanes.retain(|seen| self.bounds.covers(&seen.lane.queue, &seen.lane.job_type));
        }
        Ok(samples)
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        let mut operation = operation.clone();
        match &mut operation.target {
            Target::Jobs(ids) => {
                for id in ids {
                    self.seen(*id).await?;
                }
            }
            Target::Matching { filter, .. } => *filter = self.narrow(filter)?,
        }
        if matches!(&operation.act, Act::Requeue(options) if options.with_dependents) {
            self.whole("dependents")?;
        }
        self.inner.operate(&operation).await
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        self.whole("acts")?;
        let mut page = self.inner.acts(after, limit).await?;
        if self.hides {
            page.items.iter_mut().for_each(hide_act);
        }
        Ok(page)
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.whole("upkeep and retention")?;
        self.inner.upkeep(request).await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.whole("checks")?;
        self.inner.check().await
    }

    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()> {
        self.whole("samples")?;
        self.inner.put_sample(step, sample).await
    }

    async fn rewrite(&self, rewrites: &[Rewrite]) -> Result<Vec<bool>> {
        self.whole("rewrites")?;
        self.inner.rewrite(rewrites).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        if self.bounds.queues.is_empty() {
            return self.inner.wakes();
        }
        narrowed_wakes(self.inner.wakes(), self.bounds.queues.clone())
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let workers = self.inner.workers().await?;
        Ok(workers.into_iter().filter_map(|worker| narrowed_worker(&self.bounds, worker)).collect())
    }

    /// What a worker says that it serves is what `explain` and operators go by.
    async fn announce(&self, worker: &WorkerReport) -> Result<()> {
        for served in &worker.queues {
            narrowed("queue", Some(served.queue.clone()), &self.bounds.queues)?;
        }
        let mut worker = worker.clone();
        match &worker.types {
            Some(types) => {
                for job_type in types {
                    narrowed("type", Some(job_type.clone()), &self.bounds.types)?;
                }
            }
            None if self.bounds.types.is_empty() => {}
            None => worker.types = Some(self.bounds.types.clone()),
        }
        self.inner.announce(&worker).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        let mut queues = self.inner.queues().await?;
        queues.retain(|queue| self.bounds.queue(&queue.name));
        if self.bounds.types.is_empty() {
            return Ok(queues);
        }
        // The numbers of a queue cover all its types; a token for types is given the lanes of its own types instead.
        let lanes = Layer::observe(self, None).await?.lanes;
        for queue in &mut queues {
            (queue.states, queue.oldest_scheduled, queue.control) = ([0; 9], None, None);
            for lane in lanes.iter().filter(|lane| lane.queue == queue.name) {
                queue.states.iter_mut().zip(lane.states).for_each(|(sum, count)| *sum += count);
            }
        }
        queues.retain(|queue| queue.states != [0; 9]);
        Ok(queues)
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        let name = match edit {
            ScheduleEdit::Create(spec) | ScheduleEdit::Put { spec, .. } => {
                self.bounds.check(&spec.job)?;
                &spec.name
            }
            ScheduleEdit::Pause(name)
            | ScheduleEdit::Resume(name)
            | ScheduleEdit::Trigger(name)
            | ScheduleEdit::Delete(name) => name,
        };
        if !self.bounds.is_empty()
            && let Some(there) = self.schedule(name).await?
        {
            self.bounds.check_lane(&there.spec.job)?;
        }
        self.inner.edit_schedule(edit, by).await
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        if self.bounds.is_empty() {
            return Ok(self.shown_schedules(self.inner.schedules(after, limit).await?));
        }
        let (mut seen, mut after) = (Vec::new(), after.map(str::to_owned));
        // A page is full or the last one, however many are not for this token.
        loop {
            let page = self.inner.schedules(after.as_deref(), PAGE_MAX).await?;
            after = page.last().map(|schedule| schedule.spec.name.clone());
            let is_last = page.len() < PAGE_MAX;
            seen.extend(page.into_iter().filter(|schedule| self.bounds.check_lane(&schedule.spec.job).is_ok()));
            if is_last || seen.len() >= limit {
                seen.truncate(limit);
                return Ok(self.shown_schedules(seen));
            }
        }
    }

    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>> {
        self.whole("workflows")?;
        self.inner.workflows(query).await
    }
}

#[cfg(test)]
mod tests {
    use windlass::job::WorkerId;
    use windlass::store::{MemoryStore, ServedQueue};
    use windlass::{Client, NewJob, Payload};

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    /// A store with a job in `mail` and one in `pay`, and a client of it that is bound to `mail`.
    async fn bound(hides: bool) -> (Client, Client, [JobId; 2]) {
        let whole = Client::in_memory();
        let mut ids = Vec::new();
        for name in ["mail", "pay"] {
            let job =
                NewJob::new("t", Payload::default()).queue(name).callback_url("https://hooks.example/x?key=s3cret");
            ids.push(whole.enqueue(job.idempotency_key(format!("order-7-{name}"))).await.expect("enqueue").id);
        }
        let bounds = Bounds { queues: vec![queue("mail")], types: Vec::new() };
        let seen = Bound { inner: Arc::clone(whole.store()), bounds, hides };
        (Client::with_store(Arc::new(seen)), whole, [ids[0], ids[1]])
    }

    fn is_unauthorized<T: std::fmt::Debug>(answer: Result<T>) -> bool {
        answer.is_err_and(|error| error.name() == "Unauthorized")
    }

    #[tokio::test]
    async fn m17_a_bound_token_sees_and_touches_no_job_of_another_queue() {
        let (client, whole, [own, other]) = bound(false).await;
        let store = client.store();
        assert!(store.find(&[own, other]).await.expect("found").iter().map(Option::is_some).eq([true, false]));
        for refused in [
            store.attempts(other).await.map(drop),
            store.logs(other).await.map(drop),
            store.explain(other).await.map(drop),
        ] {
            assert_eq!(refused.expect_err("not there").name(), "NotFound");
        }
        let all = client.list(Filter::default(), 10, None).await.expect("a list");
        assert_eq!(all.items.iter().map(|job| job.id).collect::<Vec<_>>(), [own]);
        let pay = Filter::new().queue(queue("pay"));
        assert!(is_unauthorized(client.list(pay.clone(), 10, None).await));
        assert!(is_unauthorized(store.count(&pay, 10, 10).await));
        assert_eq!(store.count(&Filter::default(), 10, 10).await.expect("a count").count, 1);
        assert_eq!(store.queues().await.expect("queues").len(), 1);
        assert!(is_unauthorized(store.control(&ControlEdit::pause(queue("pay"), true), None).await));
        let cancel = |target| Operation {
            target,
            act: Act::Cancel { force: false },
            by: None,
            why: String::new(),
            dry_run: false,
        };
        assert!(store.operate(&cancel(Target::Jobs(vec![other]))).await.is_err());
        let matching = Target::Matching { filter: Filter::default(), limit: 10, after: None };
        assert_eq!(store.operate(&cancel(matching)).await.expect("cancelled").changed, 1);
        assert_eq!(whole.job(other).await.expect("a job").state, windlass::State::Scheduled);
    }

    #[tokio::test]
    async fn m17_a_bound_token_enqueues_and_claims_only_what_it_is_for() {
        let (client, _, _) = bound(false).await;
        assert!(is_unauthorized(client.enqueue(NewJob::new("t", Payload::default()).queue("pay")).await));
        assert!(client.enqueue(NewJob::new("t", Payload::default()).queue("mail")).await.is_ok());
        let worker = WorkerId::new("w").expect("a name");
        let claim = |name| ClaimRequest::new(worker.clone(), queue(name), 10);
        assert!(is_unauthorized(client.store().claim(&claim("pay")).await));
        assert_eq!(client.store().claim(&claim("mail")).await.expect("claimed").len(), 2);
    }

    #[tokio::test]
    async fn a_token_that_is_bound_to_nothing_sees_everything() {
        let (_, whole, [own, _]) = bound(false).await;
        let free = Bound { inner: Arc::clone(whole.store()), bounds: Bounds::default(), hides: false };
        assert!(Store::acts(&free, None, 10).await.is_ok());
        assert!(Store::workflows(&free, &WorkflowQuery::Newest { limit: 10, after: None }).await.is_ok());
        assert_eq!(Store::queues(&free).await.expect("queues").len(), 2);
        assert_eq!(Store::count(&free, &Filter::default(), 10, 10).await.expect("a count").count, 2);
        assert!(Store::attempts(&free, own).await.is_ok() && Store::logs(&free, own).await.is_ok());
        let (bound, _, _) = bound(false).await;
        assert!(is_unauthorized(bound.store().acts(None, 10).await));
        assert!(is_unauthorized(bound.store().workflows(&WorkflowQuery::Newest { limit: 10, after: None }).await));
    }

    #[tokio::test]
    async fn m17_a_token_for_types_claims_no_other() {
        let whole = Client::in_memory();
        for job_type in ["a", "b"] {
            whole.enqueue(NewJob::new(job_type, Payload::default())).await.expect("enqueue");
        }
        let bounds = Bounds { queues: Vec::new(), types: vec![JobType::new("a").expect("a name")] };
        let seen = Bound { inner: Arc::clone(whole.store()), bounds, hides: false };
        let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 10);
        let claimed = Store::claim(&seen, &request).await.expect("claimed");
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].job.spec.job_type.as_str(), "a");
    }

    #[tokio::test]
    async fn m17_the_systems_queues_are_claimed_by_those_who_name_them() {
        let (store, worker) = (Arc::new(MemoryStore::new()), WorkerId::new("w").expect("a name"));
        let request = ClaimRequest::new(worker, queue("windlass.webhooks"), 1);
        let free = Bound { inner: store.clone(), bounds: Bounds::default(), hides: false };
        assert!(is_unauthorized(Store::claim(&free, &request).await));
        let bounds = Bounds { queues: vec![queue("windlass.webhooks")], types: Vec::new() };
        assert!(Store::claim(&Bound { inner: store, bounds, hides: false }, &request).await.is_ok());
    }

    /// A client that is bound to the type `a`.
    fn for_type_a(whole: &Client) -> Bound {
        let bounds = Bounds { queues: Vec::new(), types: vec![JobType::new("a").expect("a name")] };
        Bound { inner: Arc::clone(whole.store()), bounds, hides: false }
    }

    #[tokio::test]
    async fn m17_a_key_reaches_no_job_that_the_token_is_not_for() {
        let (client, whole, [_, other]) = bound(false).await;
        let keyed = |scope| NewJob::new("t", Payload::default()).queue("mail").idempotency("order-7-pay", scope, None);
        for scope in [Scope::Type, Scope::Global] {
            assert!(is_unauthorized(client.enqueue(keyed(scope)).await), "{scope:?}");
            assert_eq!(whole.job(other).await.expect("a job").state, windlass::State::Scheduled);
        }
        assert!(!client.enqueue(keyed(Scope::Queue)).await.expect("its own").existing);
        let of_type = for_type_a(&whole);
        let job = |scope| NewJob::new("a", Payload::default()).idempotency("k", scope, None);
        let of_type = Client::with_store(Arc::new(of_type));
        assert!(is_unauthorized(of_type.enqueue(job(Scope::Queue)).await));
        assert!(of_type.enqueue(job(Scope::Type)).await.is_ok());
    }

    #[tokio::test]
    async fn m17_a_bound_token_learns_nothing_of_the_workers_of_others() {
        let (client, whole, _) = bound(false).await;
        let report = |name: &str, queues: &[&str]| WorkerReport {
            id: WorkerId::new(name).expect("a name"),
            host: "host".to_owned(),
            queues: queues.iter().map(|name| ServedQueue { queue: queue(name), slots: 1, busy: 0 }).collect(),
            types: None,
        };
        whole.store().announce(&report("both", &["mail", "pay"])).await.expect("announced");
        whole.store().announce(&report("other", &["pay"])).await.expect("announced");
        let seen = client.store().workers().await.expect("workers");
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].queues.iter().map(|served| served.queue.as_str()).collect::<Vec<_>>(), ["mail"]);
        assert!(is_unauthorized(client.store().announce(&report("liar", &["pay"])).await));
        assert!(client.store().announce(&report("own", &["mail"])).await.is_ok());
        let of_type = for_type_a(&whole);
        Store::announce(&of_type, &report("typed", &["pay"])).await.expect("announced");
        let typed =
            whole.store().workers().await.expect("workers").into_iter().find(|worker| worker.id.as_str() == "typed");
        assert_eq!(typed.and_then(|worker| worker.types).map(|types| types.len()), Some(1), "it serves no other type");
    }

    #[tokio::test]
    async fn m17_a_bound_token_is_woken_for_its_own_queues() {
        let (client, whole, _) = bound(false).await;
        let mut wakes = client.store().wakes();
        for name in ["pay", "mail"] {
            whole.enqueue(NewJob::new("t", Payload::default()).queue(name)).await.expect("enqueue");
        }
        assert_eq!(wakes.recv().await.expect("a wake"), Wake::Scheduled(queue("mail")));
    }

    #[tokio::test]
    async fn m17_a_token_for_types_sees_no_numbers_of_others() {
        let whole = Client::in_memory();
        for (name, job_type) in [("mail", "a"), ("mail", "b"), ("pay", "b")] {
            whole.enqueue(NewJob::new(job_type, Payload::default()).queue(name)).await.expect("enqueue");
        }
        let seen = for_type_a(&whole);
        let queues = Store::queues(&seen).await.expect("queues");
        assert_eq!(queues.iter().map(|queue| queue.states.iter().sum::<u64>()).collect::<Vec<_>>(), [1]);
        assert!(is_unauthorized(Store::keys(&seen, &KeyQuery::new(queue("mail"))).await));
        assert!(is_unauthorized(Store::controlled(&seen, &queue("mail")).await));
    }

    #[tokio::test]
    async fn m17_a_bound_token_does_nothing_to_the_whole_store() {
        let (client, _, [own, _]) = bound(false).await;
        let store = client.store();
        assert!(is_unauthorized(store.upkeep(&Upkeep::default()).await));
        assert!(is_unauthorized(store.check().await));
        let options = windlass::job::RequeueOptions { with_dependents: true, ..Default::default() };
        let (target, act) = (Target::Jobs(vec![own]), Act::Requeue(options));
        let requeue = Operation { target, act, by: None, why: String::new(), dry_run: true };
        assert!(is_unauthorized(store.operate(&requeue).await));
        let policies =
            Policies::default().queue(queue("pay"), Default::default()).queue(queue("mail"), Default::default());
        let bounds = Bounds { queues: vec![queue("mail")], types: Vec::new() };
        assert_eq!(bounds.policies(&policies).of_queues().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["mail"]);
    }

    #[tokio::test]
    async fn l2_words_of_handlers_and_of_acts_are_hidden_too() {
        let (_, whole, [own, _]) = bound(false).await;
        let free = Bound { inner: Arc::clone(whole.store()), bounds: Bounds::default(), hides: true };
        let filter = Filter::new().key("order-7-mail");
        let matching = Target::Matching { filter, limit: 10, after: None };
        let (act, why) = (Act::Cancel { force: false }, "card 4111".to_owned());
        whole.store().operate(&Operation { target: matching, act, by: None, why, dry_run: false }).await.expect("done");
        let seen = Client::with_store(Arc::new(free));
        let told = format!(
            "{:?} {:?} {:?}",
            seen.job(own).await.expect("a job"),
            seen.store().explain(own).await.expect("explained"),
            seen.store().acts(None, 10).await.expect("acts")
        );
        assert!(told.contains("Cancelled") && told.contains(HIDDEN), "{told}");
        assert!(!told.contains("4111") && !told.contains("order-7"), "{told}");
    }

    #[tokio::test]
    async fn l2_what_may_hold_pieces_of_a_payload_is_hidden_too() {
        let (client, whole, [own, _]) = bound(true).await;
        let worker = WorkerId::new("w").expect("a name");
        let claimed =
            whole.store().claim(&ClaimRequest::new(worker, queue("mail"), 1)).await.expect("claimed").remove(0);
        let progress = windlass::job::Progress::new(0.5, "card 4111").expect("progress");
        let save = windlass::store::Save::under(claimed.lease.key()).progress(progress).log(["card 4111".to_owned()]);
        whole.store().save(&[save]).await.expect("saved")[0].as_ref().expect("fenced");
        let failure = windlass::Failure::permanent("declined", "card 4111 was declined");
        whole.store().settle(&[claimed.lease.fail(failure, &mut || 0.5)]).await.expect("settled");
        let seen = client.job(own).await.expect("a job");
        assert_eq!(seen.failure.as_ref().and_then(|failure| failure.code.as_deref()), Some("declined"));
        assert_eq!(seen.spec.options.callback_url.as_deref(), Some("https://hooks.example/"));
        let told = format!("{seen:?} {:?}", client.store().attempts(own).await.expect("attempts"));
        assert!(!told.contains("4111") && !told.contains("s3cret") && !told.contains("order-7"), "{told}");
        assert!(is_unauthorized(client.store().logs(own).await));
    }

    #[tokio::test]
    async fn l2_the_callback_of_a_schedule_is_hidden_too() {
        let (client, whole, _) = bound(true).await;
        let job = NewJob::new("t", Payload::default()).queue("mail").callback_url("https://hooks.example/x?key=s3cret");
        let hourly = windlass::Schedule::every("hourly", std::time::Duration::from_secs(3600), job).expect("valid");
        whole.put_schedule(&hourly).await.expect("stored");
        let free = Bound { inner: Arc::clone(whole.store()), bounds: Bounds::default(), hides: true };
        for seen in [client.store().schedules(None, 10).await, Store::schedules(&free, None, 10).await] {
            let seen = seen.expect("schedules");
            assert_eq!(seen[0].spec.job.options.callback_url.as_deref(), Some("https://hooks.example/"));
        }
    }
}
