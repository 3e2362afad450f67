//! Enqueueing with idempotency keys (sections I and U of the contract): one statement, and another for keys that were
//! known. Where their jobs have come to what the keys hold until, the first statement follows again: it takes a key over
//! only from the job that was looked at, so that of several who do so at once one is first.

use std::collections::HashMap;

use uuid::Uuid;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::insert::{Columns, is_flat, resting_state};
use super::insert_graph::KeyColumns;
use super::job_rows;
use super::link::{Link, Parameter};
use super::working::held_by;
use crate::job::{JobId, JobSpec, OnExisting, State};
use crate::store::answer::{Inserted, InsertedJob, Wake};
use crate::store::rules::{self, KeyUse};
use crate::time::Timestamp;
use crate::workflow::{Held, Submission};

/// How often keys that are over are taken in a race with others, before the slow path decides.
pub(super) const TAKE_OVERS_MAX: usize = 3;

/// Whether two statements can store it, keys and all.
pub(super) fn is_keyed(submission: &Submission) -> bool {
    let mut keys = submission.jobs().iter().filter_map(|spec| spec.options.idempotency.as_ref()).peekable();
    is_flat(submission) && keys.peek().is_some() && keys.all(|key| key.on_existing == OnExisting::Keep)
}

/// What became of a submission with keys.
pub(super) enum Keyed {
    /// It is stored.
    Stored(Inserted, Vec<Wake>),
    /// The keys of these jobs are over, and no longer stand for them.
    Over(Vec<Uuid>),
    /// The slow path must say.
    Unclear,
}

impl Inner {
    /// Stores a submission without dependencies; the keys of the jobs in `over` are known to be over. Unless it is stored,
    /// the caller must undo what was written, if there is more than one job.
    pub(super) async fn insert_keyed(
        &self,
        link: &Link<'_>,
        submission: &Submission,
        over: &[Uuid],
    ) -> Result<Keyed, Fault> {
        let jobs = submission.jobs();
        // A key that is repeated in the batch is stored once.
        let places: Vec<usize> = (0..jobs.len()).filter(|place| submission.duplicate_of(*place).is_none()).collect();
        let specs = || places.iter().map(|place| &jobs[*place]);
        let columns = Columns::of(specs(), self)?;
        let own = NewKeyColumns::of(specs());
        let time = self.given_time();
        let mut parameters: Vec<Parameter<'_>> = columns.with(&time).to_vec();
        let keys: [Parameter<'_>; 7] =
            [&own.scopes, &own.keys, &own.windows, &own.types, &own.untils, &own.looks, &over];
        parameters.extend(keys);
        let rows = link.query(include_str!("sql/insert_keyed.sql"), &parameters).await?;
        let now = rows.first().map(|row| job_rows::time(row.get("now")));
        // From 1, as in SQL.
        let stored: HashMap<i64, Uuid> = rows.iter().map(|row| (row.get("place"), row.get("id"))).collect();
        let mut answers: HashMap<usize, InsertedJob> = HashMap::with_capacity(jobs.len());
        let mut hints = Vec::new();
        let mut lost = Vec::new();
        for (number, place) in (1..).zip(&places) {
            let spec = &jobs[*place];
            match now.zip(stored.get(&number)) {
                Some((now, id)) => {
                    let state = resting_state(spec, now);
                    if state == State::Scheduled && !hints.contains(&Wake::Scheduled(spec.queue.clone())) {
                        hints.push(Wake::Scheduled(spec.queue.clone()));
                    }
                    let (id, state) = (JobId::from_uuid(*id), Some(state));
                    answers.insert(*place, InsertedJob { id, existing: false, state, matches: true });
                }
                None => lost.push(*place),
            }
        }
        // A job without a key is always stored, unless the whole submission was refused.
        if lost.iter().any(|place| jobs[*place].options.idempotency.is_none()) {
            return Ok(Keyed::Unclear);
        }
        let repeated = (0..jobs.len()).filter(|place| submission.duplicate_of(*place).is_some());
        let asked: Vec<usize> = lost.iter().copied().chain(repeated).collect();
        let known = self.known_keys(link, jobs, &asked).await?;
        if lost.iter().any(|place| !known.contains_key(place)) {
            return Ok(Keyed::Unclear);
        }
        let is_over = |place: &&usize| known[*place].is_over;
        let ended: Vec<Uuid> = lost.iter().filter(is_over).map(|place| known[place].answer.id.as_uuid()).collect();
        if !ended.is_empty() {
            return Ok(Keyed::Over(ended));
        }
        answers.extend(lost.iter().map(|place| (*place, known[place].answer)));
        let answer = |place: usize| match submission.duplicate_of(place) {
            None => answers[&place],
            Some(first) => {
                let (earlier, spec) = (&jobs[first], &jobs[place]);
                let same = earlier.job_type == spec.job_type && earlier.payload == spec.payload;
                let matches = known.get(&place).map_or(same, |known| known.answer.matches);
                InsertedJob { existing: true, matches, ..answers[&first] }
            }
        };
        Ok(Keyed::Stored(Inserted { jobs: (0..jobs.len()).map(answer).collect(), workflow: None }, hints))
    }

    /// The jobs that the keys of these places stand for.
    async fn known_keys(
        &self,
        link: &Link<'_>,
        jobs: &[JobSpec],
        places: &[usize],
    ) -> Result<HashMap<usize, KnownKey>, Fault> {
        if places.is_empty() {
            return Ok(HashMap::new());
        }
        let keys: Vec<KeyUse> = places.iter().filter_map(|place| KeyUse::of(&jobs[*place])).collect();
        // In force or not: they were a moment ago.
        let rows = link.query(include_str!("sql/find_key.sql"), &KeyColumns::of(keys.iter()).with(&0)).await?;
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get("job")).collect();
        let states = self.states(link, &ids).await?;
        let mut known = HashMap::with_capacity(rows.len());
        for row in &rows {
            let (place, Held { id, matches, until, .. }) = (row.get::<_, i64>("place"), held_by(row)?);
            let place = places[usize::try_from(place - 1).unwrap_or_default()];
            let job = states.get(&id.as_uuid()).copied();
            let answer = InsertedJob { id, existing: true, state: job.map(|(state, _)| state), matches };
            known.insert(place, KnownKey { answer, is_over: until.is_over(job) });
        }
        Ok(known)
    }

    /// The states of these jobs, and whether each was ever claimed. Other transactions may be changing them, but not back:
    /// a claimed job stays claimed, and only an operator lets an ended one run again.
    pub(super) async fn states(&self, link: &Link<'_>, ids: &[Uuid]) -> Result<HashMap<Uuid, (State, bool)>, Fault> {
        let seqs = self.sequences(ids);
        let rows = link.query(include_str!("sql/get_state.sql"), &[&self.given_time(), &seqs, &ids]).await?;
        let state = |row: &Row| {
            let state = u8::try_from(row.get::<_, i16>("state")).ok().and_then(State::from_number)?;
            Some((row.get("id"), (state, row.get("was_claimed"))))
        };
        Ok(rows.iter().filter_map(state).collect())
    }
}

/// A key that was taken when a job was submitted with it.
struct KnownKey {
    /// What the submitter is told of the job that it stands for.
    answer: InsertedJob,
    /// Whether it no longer stands for that job.
    is_over: bool,
}

/// The keys of new jobs, a column for each field; null where a job has none.
#[derive(Default)]
struct NewKeyColumns<'s> {
    scopes: Vec<Option<String>>,
    keys: Vec<Option<&'s str>>,
    windows: Vec<Option<i64>>,
    types: Vec<&'s str>,
    untils: Vec<i16>,
    looks: Vec<Option<i64>>,
}

impl<'s> NewKeyColumns<'s> {
    fn of(specs: impl Iterator<Item = &'s JobSpec>) -> Self {
        let mut columns = NewKeyColumns::default();
        for spec in specs {
            let key = spec.options.idempotency.as_ref();
            columns.scopes.push(spec.idempotency_scope());
            columns.keys.push(key.map(|key| key.key.as_str()));
            let (until, window) = (key.map(|key| key.until).unwrap_or_default(), key.and_then(|key| key.window));
            // From the moment of the submission, which the server knows.
            let look_after =
                rules::look_at(until, window.map(|window| Timestamp::EPOCH.plus(window)), Timestamp::EPOCH);
            columns.windows.push(window.map(job_rows::micros));
            columns.untils.push(until.number().into());
            columns.looks.push(look_after.map(Timestamp::as_micros));
            columns.types.push(spec.job_type.as_str());
        }
        columns
    }
}
