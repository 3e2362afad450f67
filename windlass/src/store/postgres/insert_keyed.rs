//! Enqueueing with idempotency keys (section 8 of the contract): one statement, and another for keys that were known.

use std::collections::HashMap;

use uuid::Uuid;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::insert::{Columns, is_flat, resting_state};
use super::insert_graph::KeyColumns;
use super::job_rows;
use super::link::{Link, Parameter};
use crate::job::{JobId, JobSpec, State};
use crate::store::answer::{Inserted, InsertedJob, Wake};
use crate::store::rules::KeyUse;
use crate::workflow::Submission;

/// Whether two statements can store it, keys and all.
pub(super) fn is_keyed(submission: &Submission) -> bool {
    is_flat(submission) && submission.jobs().iter().any(|spec| spec.options.idempotency.is_some())
}

impl Inner {
    /// Stores a submission without dependencies; `None` when the slow path must say what became of it. Then the caller
    /// must undo what was written, if there is more than one job.
    pub(super) async fn insert_keyed(
        &self,
        link: &Link<'_>,
        submission: &Submission,
    ) -> Result<Option<(Inserted, Vec<Wake>)>, Fault> {
        let jobs = submission.jobs();
        // A key that is repeated in the batch is stored once.
        let places: Vec<usize> = (0..jobs.len()).filter(|place| submission.duplicate_of(*place).is_none()).collect();
        let specs = || places.iter().map(|place| &jobs[*place]);
        let columns = Columns::of(specs(), self)?;
        let own = NewKeyColumns::of(specs());
        let time = self.given_time();
        let mut parameters: Vec<Parameter<'_>> = columns.with(&time).to_vec();
        let keys: [Parameter<'_>; 4] = [&own.scopes, &own.keys, &own.windows, &own.types];
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
            return Ok(None);
        }
        let repeated = (0..jobs.len()).filter(|place| submission.duplicate_of(*place).is_some());
        let asked: Vec<usize> = lost.iter().copied().chain(repeated).collect();
        let known = self.known_keys(link, jobs, &asked).await?;
        if lost.iter().any(|place| !known.contains_key(place)) {
            return Ok(None);
        }
        answers.extend(known.iter().filter(|(place, _)| lost.contains(place)).map(|(place, known)| (*place, *known)));
        let answer = |place: usize| match submission.duplicate_of(place) {
            None => answers[&place],
            Some(first) => {
                let (earlier, spec) = (&jobs[first], &jobs[place]);
                let same = earlier.job_type == spec.job_type && earlier.payload == spec.payload;
                let matches = known.get(&place).map_or(same, |known| known.matches);
                InsertedJob { existing: true, matches, ..answers[&first] }
            }
        };
        Ok(Some((Inserted { jobs: (0..jobs.len()).map(answer).collect(), workflow: None }, hints)))
    }

    /// The jobs that the keys of these places stand for.
    async fn known_keys(
        &self,
        link: &Link<'_>,
        jobs: &[JobSpec],
        places: &[usize],
    ) -> Result<HashMap<usize, InsertedJob>, Fault> {
        if places.is_empty() {
            return Ok(HashMap::new());
        }
        let keys: Vec<KeyUse> = places.iter().filter_map(|place| KeyUse::of(&jobs[*place])).collect();
        // In force or not: they were a moment ago.
        let rows = link.query(include_str!("sql/find_key.sql"), &KeyColumns::of(&keys).with(&0)).await?;
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get("job")).collect();
        let states = self.states(link, &ids).await?;
        let known = rows.iter().map(|row| {
            let (place, id, matches): (i64, Uuid, bool) = (row.get("place"), row.get("job"), row.get("matches"));
            let place = places[usize::try_from(place - 1).unwrap_or_default()];
            let state = states.get(&id).copied();
            (place, InsertedJob { id: JobId::from_uuid(id), existing: true, state, matches })
        });
        Ok(known.collect())
    }

    async fn states(&self, link: &Link<'_>, ids: &[Uuid]) -> Result<HashMap<Uuid, State>, Fault> {
        let seqs = self.sequences(ids);
        let rows = link.query(include_str!("sql/get_state.sql"), &[&self.given_time(), &seqs, &ids]).await?;
        let state = |row: &Row| {
            let state = u8::try_from(row.get::<_, i16>("state")).ok().and_then(State::from_number)?;
            Some((row.get("id"), state))
        };
        Ok(rows.iter().filter_map(state).collect())
    }
}

/// The keys of new jobs, a column for each field; null where a job has none.
struct NewKeyColumns<'s> {
    scopes: Vec<Option<String>>,
    keys: Vec<Option<&'s str>>,
    windows: Vec<Option<i64>>,
    types: Vec<&'s str>,
}

impl<'s> NewKeyColumns<'s> {
    fn of(specs: impl Iterator<Item = &'s JobSpec>) -> Self {
        let mut columns =
            NewKeyColumns { scopes: Vec::new(), keys: Vec::new(), windows: Vec::new(), types: Vec::new() };
        for spec in specs {
            let key = spec.options.idempotency.as_ref();
            columns.scopes.push(spec.idempotency_scope());
            columns.keys.push(key.map(|key| key.key.as_str()));
            columns.windows.push(key.and_then(|key| key.window).map(job_rows::micros));
            columns.types.push(spec.job_type.as_str());
        }
        columns
    }
}
