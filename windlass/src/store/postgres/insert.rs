//! Enqueueing. What waits for nothing but perhaps a time is stored by one statement, which calls of one process
//! [share](super::insert_coalescer). The rest goes the slow path.

use std::collections::HashMap;
use std::sync::Arc;

use super::Inner;
use super::driver_row::Row;
use super::fault::{Fault, retrying};
use super::ids::Draw;
use super::insert_coalescer::InsertCoalescer;
use super::insert_keyed::{Keyed, TAKE_OVERS_MAX, is_keyed};
use super::job_rows;
use super::lanes::Lane;
use super::link::{Link, Parameter};
use super::turns::Caller;
use crate::error::Result;
use crate::job::{JobId, JobSpec, Priority, RunAt, State};
use crate::store::answer::{Inserted, InsertedJob, Wake};
use crate::time::Timestamp;
use crate::workflow::Submission;

/// Whether one statement can store it.
pub(super) fn is_plain(submission: &Submission) -> bool {
    is_flat(submission) && submission.jobs().iter().all(|spec| spec.options.idempotency.is_none())
}

/// Whether its jobs wait for no others and make up no workflow, and their lifetimes count from submission or a delay.
pub(super) fn is_flat(submission: &Submission) -> bool {
    let is_flat = |spec: &JobSpec| spec.depends_on.is_empty() && !spec.lifetime_follows_moment();
    submission.workflow_name().is_none() && submission.jobs().iter().all(is_flat)
}

pub(super) fn attempted(count: usize) -> String {
    if count == 1 { "enqueue a job".to_owned() } else { format!("enqueue {count} jobs") }
}

impl Inner {
    pub(super) async fn insert(
        self: &Arc<Self>,
        coalescer: &InsertCoalescer,
        submission: Submission,
    ) -> Result<Inserted> {
        if is_keyed(&submission) {
            return self.insert_with_keys(&submission).await;
        }
        if !is_plain(&submission) {
            return self.insert_slowly(&submission).await;
        }
        let answer = match coalescer.try_direct() {
            Some(_running) => {
                let attempted = attempted(submission.jobs().len());
                let alone = [&submission];
                let stored = retrying(&attempted, || self.insert_plain(&alone)).await?;
                stored.and_then(|mut answers| answers.pop()).ok_or(submission)
            }
            None => coalescer.insert(submission).await?,
        };
        match answer {
            Ok(inserted) => Ok(inserted),
            // The statement refused it: the rules say why, unless a lane that was remembered does not exist.
            Err(submission) => {
                self.lanes.forget();
                self.insert_slowly(&submission).await
            }
        }
    }

    async fn insert_with_keys(self: &Arc<Self>, submission: &Submission) -> Result<Inserted> {
        let attempted = attempted(submission.jobs().len());
        match retrying(&attempted, || self.insert_with_keys_once(submission)).await? {
            Some((inserted, hints)) => {
                self.hint(hints);
                Ok(inserted)
            }
            None => {
                self.lanes.forget();
                self.insert_slowly(submission).await
            }
        }
    }

    async fn insert_with_keys_once(
        &self,
        submission: &Submission,
    ) -> std::result::Result<Option<(Inserted, Vec<Wake>)>, Fault> {
        let mut link = self.link(Caller::Producer).await?;
        let names = submission.jobs().iter().map(|spec| (&spec.queue, &spec.job_type));
        self.lanes.ensure(&link, names).await?;
        // One job needs one statement; of several, one may lose its key while the others are stored.
        let is_alone = submission.jobs().len() == 1;
        let mut over = Vec::new();
        for _ in 0..TAKE_OVERS_MAX {
            if !is_alone {
                link.begin().await?;
            }
            let answer = self.insert_keyed(&link, submission, &over).await;
            match &answer {
                _ if is_alone => {}
                Ok(Keyed::Stored(..)) => link.commit().await?,
                Ok(Keyed::Over(_) | Keyed::Unclear) | Err(_) => link.roll_back().await,
            }
            match answer? {
                Keyed::Stored(inserted, hints) => return Ok(Some((inserted, hints))),
                Keyed::Over(more) => over.extend(more),
                Keyed::Unclear => break,
            }
        }
        Ok(None)
    }

    async fn insert_slowly(self: &Arc<Self>, submission: &Submission) -> Result<Inserted> {
        let attempted = attempted(submission.jobs().len());
        let insert = || async {
            let mut tx = self.transaction(Caller::Producer).await?;
            let inserted = tx.insert(submission).await;
            tx.finish(inserted).await
        };
        retrying(&attempted, insert).await
    }

    /// Stores submissions with one statement; `None` when one of them is refused.
    pub(super) async fn insert_plain(
        &self,
        submissions: &[&Submission],
    ) -> std::result::Result<Option<Vec<Inserted>>, Fault> {
        let link = self.link(Caller::Producer).await?;
        let specs = || submissions.iter().flat_map(|submission| submission.jobs());
        self.lanes.ensure(&link, specs().map(|spec| (&spec.queue, &spec.job_type))).await?;
        let columns = Columns::of(specs(), self)?;
        let time = self.given_time();
        let rows = columns.store(&link, &time).await?;
        drop(link);
        let Some((now, ids)) = columns.stored(&rows)? else { return Ok(None) };
        let mut hints: Vec<Wake> = Vec::new();
        let mut ids = ids.into_iter();
        let mut answers = Vec::with_capacity(submissions.len());
        for submission in submissions {
            let jobs = submission.jobs().iter().map(|spec| {
                let id = ids.next().expect("an id was drawn for every job");
                let state = resting_state(spec, now);
                if state == State::Scheduled && !hints.iter().any(|hint| *hint == Wake::Scheduled(spec.queue.clone())) {
                    hints.push(Wake::Scheduled(spec.queue.clone()));
                }
                InsertedJob { id, existing: false, state: Some(state), matches: true }
            });
            answers.push(Inserted { jobs: jobs.collect(), workflow: None });
        }
        self.hint(hints);
        if self.leaps_ahead(now) {
            self.mend_leap().await;
        }
        Ok(Some(answers))
    }
}

pub(super) fn resting_state(spec: &JobSpec, now: Timestamp) -> State {
    match spec.first_run(now) {
        Ok(None) => State::Scheduled,
        Ok(Some(_)) | Err(_) => State::Delayed,
    }
}

/// Jobs as columns, one array for each parameter: those that differ from job to job, and those of what jobs have in common.
#[derive(Default)]
pub(super) struct Columns<'s> {
    draws: Vec<Draw>,
    rests: Vec<String>,
    masks: Vec<i64>,
    payloads: Vec<&'s [u8]>,
    kinds: Vec<i32>,
    lanes: Vec<i32>,
    priorities: Vec<i16>,
    delays: Vec<Option<i64>>,
    moments: Vec<Option<i64>>,
    lifetimes: Vec<Option<i64>>,
    visibilities: Vec<i64>,
    lease_maxima: Vec<Option<i64>>,
    kept: Vec<Option<String>>,
    content_types: Vec<Option<&'s str>>,
    options: Vec<String>,
    slow: Vec<bool>,
    /// The last moment at which one of them would first run beyond its lifetime.
    beyond: Option<i64>,
}

impl<'s> Columns<'s> {
    pub(super) fn of(specs: impl Iterator<Item = &'s JobSpec>, store: &Inner) -> std::result::Result<Self, Fault> {
        let mut columns = Columns::default();
        let mut known: HashMap<(Lane, Priority, Option<&str>, String), i32> = HashMap::new();
        let mut last: Option<(&JobSpec, i32)> = None;
        for spec in specs {
            // Neighbours are mostly alike, and comparing them is cheaper than writing down what they are.
            let kind = match last {
                Some((last, kind)) if is_alike(last, spec) => kind,
                _ => {
                    let lane = store.lanes.get(&spec.queue, &spec.job_type);
                    // Forgotten just now, or the number that was drawn for it was taken.
                    let lane = lane.ok_or(Fault::Overtaken)?;
                    let options = job_rows::json(&spec.options);
                    let next = i32::try_from(known.len() + 1).unwrap_or(i32::MAX);
                    let kind = (lane, spec.priority, spec.payload.stored_content_type(), options.clone());
                    let kind = *known.entry(kind).or_insert(next);
                    if kind == next {
                        columns.add_kind(spec, lane, options);
                    }
                    kind
                }
            };
            last = Some((spec, kind));
            let draw = store.draw_id();
            columns.draws.push(draw);
            columns.rests.push(draw.rest());
            columns.masks.push(draw.mask);
            columns.payloads.push(spec.payload.as_bytes());
            columns.kinds.push(kind);
        }
        Ok(columns)
    }

    fn add_kind(&mut self, spec: &'s JobSpec, lane: Lane, options: String) {
        let (delay, moment) = match spec.options.run_at {
            None => (None, None),
            Some(RunAt::In(delay)) => (Some(job_rows::micros(delay)), None),
            Some(RunAt::At(at)) => (None, Some(at.as_micros())),
        };
        let delayed = spec.options.timeouts.lifetime_from_run_at.then_some(delay).flatten().unwrap_or_default();
        let lifetime =
            spec.options.timeouts.lifetime.map(|lifetime| job_rows::micros(lifetime).saturating_add(delayed));
        let beyond = moment.zip(lifetime).map(|(moment, lifetime)| moment.saturating_sub(lifetime));
        self.lanes.push(lane);
        self.priorities.push(i16::from(spec.priority.number()));
        self.delays.push(delay);
        self.moments.push(moment);
        self.lifetimes.push(lifetime);
        self.visibilities.push(job_rows::micros(spec.options.timeouts.visibility));
        self.lease_maxima.push(spec.options.timeouts.stored_lease_max());
        self.kept.push(spec.options.retention.stored().map(array_text));
        self.content_types.push(spec.payload.stored_content_type());
        self.options.push(options);
        self.slow.push(spec.options.callback_url.is_some());
        self.beyond = self.beyond.max(beyond);
    }

    /// Stores the jobs; gives what [`stored`](Self::stored) reads.
    pub(super) async fn store(&self, link: &Link<'_>, time: &Option<i64>) -> std::result::Result<Vec<Row>, Fault> {
        match (self.draws.len(), self.lanes.len()) {
            (1, _) => {
                let carried: [Parameter<'_>; 3] = [&self.rests[0], &self.masks[0], &self.payloads[0]];
                link.query(include_str!("sql/insert_one.sql"), &self.with_alike(time, carried)).await
            }
            (_, 1) => {
                let carried: [Parameter<'_>; 3] = [&self.rests, &self.masks, &self.payloads];
                link.query(include_str!("sql/insert_alike.sql"), &self.with_alike(time, carried)).await
            }
            _ => link.query(include_str!("sql/insert.sql"), &self.with(time)).await,
        }
    }

    /// What jobs of one kind carry, with what they have in common.
    fn with_alike<'p>(&'p self, time: &'p Option<i64>, carried: [Parameter<'p>; 3]) -> [Parameter<'p>; 16] {
        let [rests, masks, payloads] = carried;
        [
            time,
            rests,
            masks,
            payloads,
            &self.lanes[0],
            &self.priorities[0],
            &self.delays[0],
            &self.moments[0],
            &self.lifetimes[0],
            &self.visibilities[0],
            &self.content_types[0],
            &self.options[0],
            &self.slow[0],
            &self.beyond,
            &self.lease_maxima[0],
            &self.kept[0],
        ]
    }

    pub(super) fn with<'p>(&'p self, time: &'p Option<i64>) -> [Parameter<'p>; 17] {
        [
            time,
            &self.rests,
            &self.masks,
            &self.payloads,
            &self.kinds,
            &self.lanes,
            &self.priorities,
            &self.delays,
            &self.moments,
            &self.lifetimes,
            &self.visibilities,
            &self.content_types,
            &self.options,
            &self.slow,
            &self.beyond,
            &self.lease_maxima,
            &self.kept,
        ]
    }

    /// The time and the ids that the answer of `insert` gives the jobs; `None` when it stored none.
    pub(super) fn stored(&self, rows: &[Row]) -> std::result::Result<Option<(Timestamp, Vec<JobId>)>, Fault> {
        let Some(now) = rows.first().map(|row| job_rows::time(row.get("at"))) else { return Ok(None) };
        let mut drawn: HashMap<Lane, std::vec::IntoIter<i64>> = HashMap::with_capacity(rows.len());
        for row in rows {
            let mut seqs: Vec<i64> = row.get("seqs");
            seqs.sort_unstable();
            drawn.insert(row.get("lane"), seqs.into_iter());
        }
        let mut next = |kind: i32| {
            let lane = usize::try_from(kind - 1).ok().and_then(|kind| self.lanes.get(kind))?;
            drawn.get_mut(lane)?.next()
        };
        let id = |(draw, kind): (&Draw, &i32)| next(*kind).map(|seq| draw.id(seq));
        let ids: Option<Vec<JobId>> = self.draws.iter().zip(&self.kinds).map(id).collect();
        Ok(Some((now, ids.ok_or_else(|| job_rows::corrupt("fewer jobs than were stored"))?)))
    }
}

/// An array as PostgreSQL reads it from text: there are no arrays of arrays of different lengths.
fn array_text(numbers: [Option<i64>; 4]) -> String {
    let text = numbers.map(|number| number.map_or_else(|| "null".to_owned(), |number| number.to_string()));
    format!("{{{}}}", text.join(","))
}

/// Whether two jobs differ only in what they carry.
fn is_alike(one: &JobSpec, other: &JobSpec) -> bool {
    one.queue == other.queue
        && one.job_type == other.job_type
        && one.priority == other.priority
        && one.payload.stored_content_type() == other.payload.stored_content_type()
        && one.options == other.options
}
