//! A walk over everything that is encrypted: what is under which key, and whatever is not under the current one is
//! encrypted again. In bounded steps, from a cursor, so that it can stop anywhere and go on later.
//!
//! Templates of schedules come first, because jobs take over their envelopes; then all jobs, newest first. What is put in
//! meanwhile is under the current key, unless another process still has another one. So an older key is needed no more
//! when a whole walk, begun after every process had the new key in front, finds nothing under it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::keyring::{Closed, key_name};
use super::{Sealed, place_of, place_of_payload};
use crate::error::{Error, Result};
use crate::job::{JobRecord, Payload, SYSTEM_PREFIX};
use crate::schedule::ScheduleRecord;
use crate::store::rewrite::{Part, Rewrite};
use crate::store::{Cursor, ListQuery, ScheduleEdit, Store};

/// Who changed a schedule, in the record of acts.
const BY: &str = "windlass store reencrypt";
const SCHEDULES: &str = "schedules";
const JOBS: &str = "jobs";

/// What one step of the walk found, as it stands after the step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct UnderKeys {
    /// Payloads, results, checkpoints and templates by the name of their key.
    pub by_key: BTreeMap<String, u64>,
    /// Those that are not encrypted.
    pub plain: u64,
    /// How many were encrypted again in this step.
    pub rewritten: u64,
    /// How many do not open with this keyring. They count under their key as well.
    pub unopened: u64,
    /// Where to go on; absent at the end.
    pub next: Option<Cursor>,
}

impl UnderKeys {
    /// Adds what another step found; the place to go on is that step's.
    pub fn add(&mut self, step: UnderKeys) {
        for (key, count) in step.by_key {
            *self.by_key.entry(key).or_default() += count;
        }
        self.plain += step.plain;
        self.rewritten += step.rewritten;
        self.unopened += step.unopened;
        self.next = step.next;
    }

    /// How many were looked at.
    pub fn looked_at(&self) -> u64 {
        self.by_key.values().sum::<u64>() + self.plain
    }

    fn count(&mut self, key: Option<&str>) {
        match key {
            Some(key) => *self.by_key.entry(key.to_owned()).or_default() += 1,
            None => self.plain += 1,
        }
    }
}

/// Something that is not under the current key.
struct Older {
    rewrite: Rewrite,
    key: Option<String>,
}

impl Sealed {
    /// The layer, where a store is one that encrypts.
    pub fn of(store: &Arc<dyn Store>) -> Option<&Sealed> {
        let any: &dyn Any = store.as_ref();
        any.downcast_ref()
    }

    /// One step of a walk that changes nothing: looks at up to `limit` jobs or schedules.
    pub async fn under_keys(&self, after: Option<&Cursor>, limit: usize) -> Result<UnderKeys> {
        self.walk(after, limit, false).await
    }

    /// The same, and encrypts again what is not under the current key.
    ///
    /// What somebody else changes meanwhile stays as they left it. What does not open is not touched.
    pub async fn reencrypt(&self, after: Option<&Cursor>, limit: usize) -> Result<UnderKeys> {
        self.walk(after, limit, true).await
    }

    async fn walk(&self, after: Option<&Cursor>, limit: usize, rewrites: bool) -> Result<UnderKeys> {
        let limit = limit.max(1);
        match after.map(|cursor| cursor.0.split_once(' ').unwrap_or((&cursor.0, ""))) {
            None => self.walk_schedules(None, limit, rewrites).await,
            Some((SCHEDULES, name)) => self.walk_schedules(Some(name), limit, rewrites).await,
            Some((JOBS, "")) => self.walk_jobs(None, limit, rewrites).await,
            Some((JOBS, place)) => self.walk_jobs(Some(Cursor(place.to_owned())), limit, rewrites).await,
            Some(_) => Err(Error::invalid("after", "is no place that an earlier step named")),
        }
    }

    async fn walk_schedules(&self, after: Option<&str>, limit: usize, rewrites: bool) -> Result<UnderKeys> {
        let mut found = UnderKeys::default();
        let schedules = self.inner.schedules(after, limit).await?;
        let next = match schedules.last().filter(|_| schedules.len() == limit) {
            Some(last) => format!("{SCHEDULES} {}", last.spec.name),
            None => JOBS.to_owned(),
        };
        for schedule in schedules {
            self.look_at_schedule(schedule, rewrites, &mut found).await?;
        }
        found.next = Some(Cursor(next));
        Ok(found)
    }

    async fn look_at_schedule(&self, schedule: ScheduleRecord, rewrites: bool, found: &mut UnderKeys) -> Result<()> {
        let mut spec = schedule.spec;
        let key = self.key_of_payload(&spec.job.payload);
        if key == Some(self.current()) {
            found.count(key);
            return Ok(());
        }
        let key = key.map(str::to_owned);
        let mut is_rewritten = false;
        match self.plain(&spec.job.payload, &place_of_payload(&spec.job)) {
            Ok(plain) if rewrites => {
                spec.job.payload = plain;
                let edit = ScheduleEdit::Put { spec: self.seal_schedule(&spec), version: Some(schedule.version) };
                match self.inner.edit_schedule(&edit, Some(BY)).await {
                    Ok(_) => is_rewritten = true,
                    // Changed or deleted meanwhile.
                    Err(Error::Conflict(_) | Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(_) => {}
            Err(_) => found.unopened += 1,
        }
        self.count_older(key.as_deref(), is_rewritten, found);
        Ok(())
    }

    async fn walk_jobs(&self, after: Option<Cursor>, limit: usize, rewrites: bool) -> Result<UnderKeys> {
        let mut found = UnderKeys::default();
        let query = ListQuery { after, ..ListQuery::new(Default::default(), limit) };
        let page = self.inner.list(&query).await?;
        let mut older = Vec::new();
        for job in &page.items {
            self.look_at_job(job, &mut older, &mut found)?;
        }
        let done = match rewrites && !older.is_empty() {
            true => {
                let rewrites: Vec<Rewrite> = older.iter().map(|older| older.rewrite.clone()).collect();
                self.inner.rewrite(&rewrites).await?
            }
            false => vec![false; older.len()],
        };
        for (older, done) in older.iter().zip(done) {
            self.count_older(older.key.as_deref(), done, &mut found);
        }
        found.next = page.next.map(|place| Cursor(format!("{JOBS} {}", place.0)));
        Ok(found)
    }

    /// Counts what is under the current key or does not open, and gives the rest with what is to take its place.
    fn look_at_job(&self, job: &JobRecord, older: &mut Vec<Older>, found: &mut UnderKeys) -> Result<()> {
        // The system's own jobs name other jobs and hold nothing of theirs: they are never encrypted.
        let is_system = job.spec.job_type.as_str().starts_with(SYSTEM_PREFIX);
        // What cannot be read is not written over.
        if is_system || job.spec.damage.is_some() {
            return Ok(());
        }
        let checkpoint = job.checkpoint.as_ref().map(|bytes| Payload::from_stored(None, bytes.clone()));
        let parts = [
            (Part::Payload, Some(&job.spec.payload), place_of_payload(&job.spec)),
            (Part::Result, job.result.as_ref(), place_of(b"result", job.id)),
            (Part::Checkpoint, checkpoint.as_ref(), place_of(b"checkpoint", job.id)),
        ];
        for (part, data, place) in parts {
            let Some(data) = data else { continue };
            let key = match part {
                Part::Checkpoint => key_name(data.as_bytes()),
                Part::Payload | Part::Result => self.key_of_payload(data),
            };
            if key == Some(self.current()) {
                found.count(key);
                continue;
            }
            let new = match (part, key) {
                (Part::Checkpoint, None) => Ok(data.clone()),
                (Part::Checkpoint, Some(_)) => {
                    self.keys.open(data.as_bytes(), &place).map(|bytes| Payload::from_stored(None, bytes))
                }
                (Part::Payload | Part::Result, _) => self.plain(data, &place),
            };
            let Ok(plain) = new else {
                found.unopened += 1;
                found.count(key);
                continue;
            };
            let new = match part {
                Part::Payload => {
                    let mut spec = (*job.spec).clone();
                    spec.payload = plain;
                    self.seal_spec(&spec)?
                }
                Part::Result => self.seal_result(job.id, &plain)?,
                Part::Checkpoint => Payload::from_stored(None, Bytes::from(self.keys.seal(plain.as_bytes(), &place)?)),
            };
            let rewrite = Rewrite { job: job.id, part, old: data.clone(), new };
            older.push(Older { rewrite, key: key.map(str::to_owned) });
        }
        Ok(())
    }

    fn count_older(&self, key: Option<&str>, is_rewritten: bool, found: &mut UnderKeys) {
        found.rewritten += u64::from(is_rewritten);
        found.count(if is_rewritten { Some(self.current()) } else { key });
    }

    fn current(&self) -> &str {
        self.keys.names().next().expect("a keyring has a key")
    }

    /// The key of a payload, if it is encrypted; of an envelope that cannot be read, no name.
    fn key_of_payload<'a>(&self, payload: &'a Payload) -> Option<&'a str> {
        payload.is_sealed().then(|| key_name(payload.as_bytes()).unwrap_or_default())
    }

    /// A payload as it was given.
    fn plain(&self, payload: &Payload, place: &[u8]) -> Result<Payload, Closed> {
        if payload.is_sealed() { self.open_payload(payload, place) } else { Ok(payload.clone()) }
    }
}
