//! Encryption at rest: a store over another one, in which payloads, results and checkpoints are ciphertext.
//!
//! What users put into a job is sealed before it reaches the store and opened when it comes back, so that tables, files,
//! backups and replicas hold ciphertext only. What stores look at stays readable: ids, types, queues, states, times, tags,
//! correlation ids, idempotency keys, callback URLs, progress, log lines, and the words of failures.
//!
//! What was stored before encryption was turned on is read as it is. What cannot be opened stays an envelope: it shows as
//! bytes of the content type [`SEALED_TYPE`], and no handler is started with it.

mod keyring;
mod reencrypt;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use self::keyring::Keyring;
use self::keyring::{Closed, is_envelope};
pub use self::reencrypt::UnderKeys;
use super::{
    ClaimRequest, Claims, Inserted, Layer, ListQuery, Page, Save, ScheduleEdit, ScheduleEdited, Settled, Store,
};
use crate::error::{Error, Result};
use crate::job::{JobId, JobRecord, JobSpec, Payload, SEALED_TYPE, Settlement, Stale};
use crate::schedule::{ScheduleRecord, ScheduleSpec};
use crate::workflow::Submission;

/// How long a claimed job rests that cannot be opened here: a worker with its key may come, and the log is not flooded.
pub const UNOPENED_WAIT: Duration = Duration::from_secs(60);

/// A store whose payloads, results and checkpoints are encrypted.
///
/// ```
/// use std::sync::Arc;
///
/// use windlass::Client;
/// use windlass::store::{Keyring, MemoryStore, Sealed};
///
/// let keys = Keyring::parse(&Keyring::new_key("2026-1")?)?;
/// let client = Client::with_store(Arc::new(Sealed::new(Arc::new(MemoryStore::new()), keys)));
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sealed {
    inner: Arc<dyn Store>,
    keys: Keyring,
}

impl Sealed {
    /// Encrypts what goes into this store.
    pub fn new(inner: Arc<dyn Store>, keys: Keyring) -> Self {
        Sealed { inner, keys }
    }

    /// The keys.
    pub fn keys(&self) -> &Keyring {
        &self.keys
    }

    /// A submission whose payloads are sealed.
    pub(crate) fn seal_submission(&self, mut submission: Submission) -> Result<Submission> {
        let mut problem = None;
        submission.each(|spec| match self.seal_spec(spec) {
            Ok(payload) => spec.payload = payload,
            Err(error) => problem = Some(error),
        });
        problem.map_or(Ok(submission), Err)
    }

    /// A settlement whose result and children are sealed.
    pub(crate) fn seal_settlement(&self, settlement: &Settlement) -> Result<Settlement> {
        let job = settlement.key().job;
        let result = settlement.result().map(|result| self.seal_result(job, result)).transpose()?;
        let mut children = settlement.children().to_vec();
        for child in &mut children {
            child.payload = self.seal_spec(child)?;
        }
        Ok(settlement.with_data(result, children))
    }

    /// The payload of a job, sealed. Of a job with an idempotency key, the same bytes give the same envelope: stores
    /// compare the payloads of such jobs.
    fn seal_spec(&self, spec: &JobSpec) -> Result<Payload> {
        let place = place_of_payload(spec);
        let plain = packed(&spec.payload);
        let envelope = match &spec.options.idempotency {
            None => self.keys.seal(&plain, &place)?,
            Some(_) => self.keys.seal_alike(&plain, &place),
        };
        Ok(sealed(envelope))
    }

    fn seal_result(&self, job: JobId, result: &Payload) -> Result<Payload> {
        Ok(sealed(self.keys.seal(&packed(result), &place_of(b"result", job))?))
    }

    /// A schedule whose template is sealed: the same each time, so that a schedule that is put again has not changed.
    fn seal_schedule(&self, spec: &ScheduleSpec) -> ScheduleSpec {
        let envelope = self.keys.seal_alike(&packed(&spec.job.payload), &place_of_payload(&spec.job));
        let mut spec = spec.clone();
        spec.job.payload = sealed(envelope);
        spec
    }

    /// Opens what is sealed of a job; what does not open stays as it is, and why is said.
    fn open(&self, job: &mut JobRecord) -> Result<(), Closed> {
        let mut answer = Ok(());
        if job.spec.payload.is_sealed() {
            match self.open_payload(&job.spec.payload, &place_of_payload(&job.spec)) {
                Ok(payload) => Arc::make_mut(&mut job.spec).payload = payload,
                Err(closed) => answer = Err(closed),
            }
        }
        if let Some(result) = job.result.as_mut().filter(|result| result.is_sealed()) {
            match self.open_payload(result, &place_of(b"result", job.id)) {
                Ok(payload) => *result = payload,
                Err(closed) => answer = Err(closed),
            }
        }
        if let Some(checkpoint) = job.checkpoint.as_mut().filter(|checkpoint| is_envelope(checkpoint)) {
            match self.keys.open(checkpoint, &place_of(b"checkpoint", job.id)) {
                Ok(bytes) => *checkpoint = bytes.into(),
                Err(closed) => answer = Err(closed),
            }
        }
        answer
    }

    fn open_payload(&self, payload: &Payload, place: &[u8]) -> Result<Payload, Closed> {
        unpacked(self.keys.open(payload.as_bytes(), place)?).ok_or(Closed::Broken)
    }

    fn opened(&self, mut job: JobRecord) -> JobRecord {
        // One job that does not open must not keep a page from being read.
        let _ = self.open(&mut job);
        job
    }

    fn open_schedule(&self, schedule: &mut ScheduleRecord) {
        let job = &mut schedule.spec.job;
        if job.payload.is_sealed()
            && let Ok(payload) = self.open_payload(&job.payload, &place_of_payload(job))
        {
            job.payload = payload;
        }
    }

    /// Whether the jobs that known keys stand for carry what was submitted, where the store could not tell: their
    /// payloads were sealed under another key.
    async fn compare(&self, specs: &[JobSpec], inserted: &mut Inserted) -> Result<()> {
        let unsure = |place: &usize| inserted.jobs[*place].existing && !inserted.jobs[*place].matches;
        let places: Vec<usize> = (0..inserted.jobs.len()).filter(unsure).collect();
        if places.is_empty() {
            return Ok(());
        }
        let ids: Vec<JobId> = places.iter().map(|place| inserted.jobs[*place].id).collect();
        for (place, job) in places.into_iter().zip(Store::find(self, &ids).await?) {
            let same =
                |job: JobRecord| job.spec.job_type == specs[place].job_type && job.spec.payload == specs[place].payload;
            inserted.jobs[place].matches = job.is_some_and(same);
        }
        Ok(())
    }
}

/// What a payload belongs to. Not the queue: stores compare type and payload, whatever the queue. Not the id: the store
/// gives it later.
fn place_of_payload(spec: &JobSpec) -> Vec<u8> {
    [b"payload ".as_slice(), spec.job_type.as_str().as_bytes()].concat()
}

/// What a result or a checkpoint belongs to.
fn place_of(what: &[u8], job: JobId) -> Vec<u8> {
    [what, b" ", job.as_uuid().as_bytes()].concat()
}

fn sealed(envelope: Vec<u8>) -> Payload {
    Payload::from_stored(Some(SEALED_TYPE), envelope)
}

/// The content type and the bytes.
fn packed(payload: &Payload) -> Vec<u8> {
    let content_type = payload.stored_content_type().unwrap_or_default().as_bytes();
    let length = u8::try_from(content_type.len()).expect("content types have at most 255 bytes");
    [&[length], content_type, payload.as_bytes()].concat()
}

fn unpacked(bytes: Vec<u8>) -> Option<Payload> {
    let bytes = Bytes::from(bytes);
    let start = 1 + usize::from(*bytes.first()?);
    let content_type = std::str::from_utf8(bytes.get(1..start)?).ok()?;
    let content_type = Some(content_type).filter(|content_type| !content_type.is_empty());
    Some(Payload::from_stored(content_type, bytes.slice(start..)))
}

#[async_trait]
impl Layer for Sealed {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        let keyed = submission.jobs().iter().any(|spec| spec.options.idempotency.is_some());
        let specs = if keyed { submission.jobs().to_vec() } else { Vec::new() };
        let mut inserted = self.inner.insert(self.seal_submission(submission)?).await?;
        if keyed {
            self.compare(&specs, &mut inserted).await?;
        }
        Ok(inserted)
    }

    /// What does not open is given back uncounted, and left to a worker that has its key.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        let mut opened = Vec::new();
        let mut given_back = Vec::new();
        let Claims { jobs, again_in } = self.inner.claim(request).await?;
        for mut claimed in jobs {
            match self.open(&mut claimed.job) {
                Ok(()) => opened.push(claimed),
                Err(closed) => {
                    tracing::error!(job = %claimed.job.id, "a claimed job cannot be opened and is given back: {closed}");
                    given_back.push(claimed.lease.snooze(UNOPENED_WAIT));
                }
            }
        }
        // The others are the caller's already: what is not given back now comes back when its lease ends.
        if !given_back.is_empty()
            && let Err(error) = self.inner.settle(&given_back).await
        {
            tracing::warn!(%error, "jobs that cannot be opened could not be given back");
        }
        Ok(Claims { jobs: opened, again_in })
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        let sealed = saves.iter().map(|save| match save.new_checkpoint() {
            None => Ok(save.clone()),
            Some(bytes) => {
                let envelope = self.keys.seal(bytes, &place_of(b"checkpoint", save.key().job))?;
                Ok(save.with_checkpoint(envelope.into()))
            }
        });
        let sealed: Vec<Save> = sealed.collect::<Result<_>>()?;
        self.inner.save(&sealed).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let sealed: Vec<Settlement> = settlements.iter().map(|one| self.seal_settlement(one)).collect::<Result<_>>()?;
        self.inner.settle(&sealed).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        let found = self.inner.find(ids).await?;
        Ok(found.into_iter().map(|job| job.map(|job| self.opened(job))).collect())
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        let page = self.inner.list(query).await?;
        let Page { items, next, looked } = page;
        Ok(Page { items: items.into_iter().map(|job| self.opened(job)).collect(), next, looked })
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        let edit = match edit {
            ScheduleEdit::Create(spec) => ScheduleEdit::Create(self.seal_schedule(spec)),
            ScheduleEdit::Put { spec, version } => {
                ScheduleEdit::Put { spec: self.seal_schedule(spec), version: *version }
            }
            other => other.clone(),
        };
        let mut edited = self.inner.edit_schedule(&edit, by).await?;
        self.open_schedule(&mut edited.schedule);
        Ok(edited)
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        let mut schedules = self.inner.schedules(after, limit).await?;
        schedules.iter_mut().for_each(|schedule| self.open_schedule(schedule));
        Ok(schedules)
    }
}

/// The store that a transaction of the user's own writes into, and what is to be written there: a layer that encrypts
/// has no transactions, but what it is over may.
pub(crate) fn in_transaction<T>(
    store: &Arc<dyn Store>,
    data: Result<T>,
    seal: impl FnOnce(&Sealed, T) -> Result<T>,
) -> (Arc<dyn Store>, Result<T, Error>) {
    let any: &dyn std::any::Any = store.as_ref();
    match any.downcast_ref::<Sealed>() {
        None => (Arc::clone(store), data),
        Some(sealed) => (Arc::clone(&sealed.inner), data.and_then(|data| seal(sealed, data))),
    }
}
