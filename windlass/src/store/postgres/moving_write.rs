//! What a move writes into a schema.

use serde_json::{Value, json};
use uuid::Uuid;

use super::events::{KIND_ACCEPTED, KIND_LEFT, KIND_LOST, KIND_PENDING, KIND_REMOVED, KIND_RETRIED};
use super::fault::Fault;
use super::flush::{is_slow, narrow, wide};
use super::job_rows::{self, Note};
use super::link::Link;
use super::moving::{Mover, check_runner, put_mark};
use super::schedules;
use super::working::kind_number;
use crate::job::{Outcome, State};
use crate::store::moving::{Mark, MovedJob, MovedKey, MovedWorkflow, Name, Part, Rest, departures};
use crate::time::Timestamp;

impl Mover {
    /// Writes over what was copied before.
    pub(super) async fn write_part(&self, part: &Part, mark: &Mark) -> Result<(), Fault> {
        let mut using = self.connection().await?;
        using.begin().await?;
        let written = async {
            let link = using.link()?;
            check_runner(link, &self.inner.schema, mark).await?;
            self.drop_copies(link, part).await?;
            for jobs in part.jobs.chunks(500) {
                self.put_jobs(link, jobs).await?;
            }
            put_workflows(link, &part.workflows).await?;
            put_keys(link, &part.keys).await?;
            put_mark(link, mark).await
        };
        let written = written.await;
        if written.is_err() {
            // Lanes that were made are undone.
            self.inner.lanes.forget();
        }
        using.finish(written).await
    }

    async fn drop_copies(&self, link: &Link<'_>, part: &Part) -> Result<(), Fault> {
        let mut jobs: Vec<i64> = part.jobs.iter().map(|job| job.entry.sequence).collect();
        let (mut workflows, mut scopes, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for name in &part.gone {
            match name {
                Name::Job(seq) => jobs.push(*seq),
                Name::Workflow(seq) => workflows.push(*seq),
                Name::Key(scope, key) => {
                    scopes.push(scope.as_str());
                    keys.push(key.as_str());
                }
            }
        }
        if !jobs.is_empty() {
            link.execute(include_str!("moving/delete_copies.sql"), &[&jobs]).await?;
        }
        if !workflows.is_empty() {
            link.execute(include_str!("moving/delete_workflows.sql"), &[&workflows]).await?;
        }
        if !keys.is_empty() {
            link.execute(include_str!("moving/delete_moved_keys.sql"), &[&scopes, &keys]).await?;
        }
        Ok(())
    }

    async fn put_jobs(&self, link: &Link<'_>, jobs: &[MovedJob]) -> Result<(), Fault> {
        let inner = &self.inner;
        let names = jobs.iter().map(|job| (&job.entry.job.spec.queue, &job.entry.job.spec.job_type));
        inner.lanes.ensure(link, names).await?;
        let mut rows: Vec<Value> = Vec::with_capacity(jobs.len());
        let mut places: [Vec<Value>; 4] = Default::default();
        for moved in jobs {
            let job = &moved.entry.job;
            let lane = inner.lanes.get(&job.spec.queue, &job.spec.job_type);
            let lane = lane.ok_or_else(|| job_rows::corrupt("a lane that was not made"))?;
            rows.push(wide(&moved.entry, lane));
            let completing = |attempt: &crate::job::AttemptRecord| {
                attempt.outcome == Some(Outcome::Completed) && attempt.lease_version == job.lease_version
            };
            let completed_by = moved.attempts.last().filter(|(_, attempt)| completing(attempt));
            let completed_by = completed_by.map(|(token, attempt)| (*token, attempt.worker.clone()));
            // A job that was requeued, or that others may wait for, is looked at when it ends.
            let slow = is_slow(job) || job.generation > 0 || job.firing.is_some() || job.workflow_id.is_some();
            let note = Note { lane, slow, completed_by, strand: None };
            let (place, row) = narrow(&moved.entry, &note, inner.tokens());
            places[place].push(row);
        }
        let payloads: Vec<&[u8]> = jobs.iter().map(|job| job.entry.job.spec.payload.as_bytes().as_ref()).collect();
        let added =
            link.execute(include_str!("sql/add_job.sql"), &[&Value::Array(rows).to_string(), &payloads]).await?;
        if usize::try_from(added).unwrap_or_default() < jobs.len() {
            return Err(job_rows::corrupt("fewer jobs than were moved"));
        }
        let statements = [
            include_str!("sql/add_pending.sql"),
            include_str!("sql/add_ready.sql"),
            include_str!("sql/add_leased.sql"),
            include_str!("sql/add_done.sql"),
        ];
        for (rows, statement) in places.into_iter().zip(statements) {
            put(link, statement, rows).await?;
        }
        put_saved(link, jobs).await?;
        self.put_histories(link, jobs).await
    }

    /// Closed attempts, log lines, and dependencies with what they mean for the jobs at both ends.
    async fn put_histories(&self, link: &Link<'_>, jobs: &[MovedJob]) -> Result<(), Fault> {
        let (mut attempts, mut edges) = (Vec::new(), Vec::new());
        let (mut seqs, mut versions, mut times, mut texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut touched: Vec<i64> = jobs.iter().map(|job| job.entry.sequence).collect();
        for moved in jobs {
            let seq = moved.entry.sequence;
            for (token, attempt) in &moved.attempts {
                attempts.push(json!({
                    "seq": seq,
                    "version": attempt.lease_version,
                    "token": self.inner.tokens().stored(*token),
                    "number": attempt.number,
                    "generation": attempt.generation,
                    "outcome": attempt.outcome.map(Outcome::number),
                    "started_at": attempt.started_at.as_micros(),
                    "ended_at": attempt.ended_at.map(Timestamp::as_micros),
                    "worker": attempt.worker.as_str(),
                    "failure": attempt.failure.as_ref().map(job_rows::failure_record_text),
                }));
            }
            for edge in &moved.edges {
                let kind = kind_number(edge.kind);
                edges.push(json!({"parent": edge.parent, "child": seq, "kind": kind, "open": edge.open}));
                touched.push(edge.parent);
            }
            for line in &moved.logs {
                seqs.push(seq);
                versions.push(i64::try_from(line.version).unwrap_or(i64::MAX));
                times.push(line.at.as_micros());
                texts.push(line.text.as_str());
            }
        }
        put(link, include_str!("sql/add_attempt.sql"), attempts).await?;
        put(link, include_str!("sql/put_edge.sql"), edges).await?;
        if !seqs.is_empty() {
            let parameters: [super::link::Parameter<'_>; 4] = [&seqs, &versions, &times, &texts];
            link.execute(include_str!("sql/add_log_line.sql"), &parameters).await?;
        }
        let rows = link.query(include_str!("moving/list_waited_for.sql"), &[&touched]).await?;
        let waited_for: Vec<i64> = rows.iter().map(|row| row.get("parent")).collect();
        if !waited_for.is_empty() {
            link.execute(include_str!("sql/mark_slow.sql"), &[&waited_for]).await?;
        }
        Ok(())
    }

    /// Writes the small records and the numbers, in place of those of an earlier time.
    pub(super) async fn write_records(&self, rest: &Rest, mark: &Mark) -> Result<(), Fault> {
        let mut using = self.connection().await?;
        using.begin().await?;
        let written = async {
            let link = using.link()?;
            check_runner(link, &self.inner.schema, mark).await?;
            link.execute(include_str!("moving/empty_records.sql"), &[]).await?;
            self.put_numbers(link, rest).await?;
            let names: Vec<&str> = rest.queues.iter().map(|(queue, _)| queue.as_str()).collect();
            link.execute(include_str!("sql/add_queue.sql"), &[&names]).await?;
            for (queue, paused) in &rest.queues {
                link.execute(include_str!("sql/set_paused.sql"), &[&queue.as_str(), paused]).await?;
            }
            self.write_flow(link, &rest.flow).await?;
            for schedule in &rest.schedules {
                schedules::put(link, schedule).await?;
            }
            let acts: Vec<String> = rest.acts.iter().map(job_rows::json).collect();
            link.execute(include_str!("moving/put_acts.sql"), &[&acts]).await?;
            put_samples(link, rest).await?;
            link.query(include_str!("moving/set_last_sequence.sql"), &[&rest.last_sequence.max(1)]).await?;
            link.execute(include_str!("sql/put_pulse.sql"), &[&rest.at.as_micros(), &0_i64, &0_i64, &0_i64]).await?;
            Ok(())
        };
        let written = written.await;
        if written.is_err() {
            self.inner.lanes.forget();
        }
        using.finish(written).await
    }

    /// The numbers of every lane, as sums of events that nobody is told of.
    async fn put_numbers(&self, link: &Link<'_>, rest: &Rest) -> Result<(), Fault> {
        let lanes = &self.inner.lanes;
        lanes.ensure(link, rest.lanes.iter().map(|lane| (&lane.queue, &lane.job_type))).await?;
        let mut events = Vec::new();
        for lane in &rest.lanes {
            let number = lanes.get(&lane.queue, &lane.job_type);
            let number = number.ok_or_else(|| job_rows::corrupt("a lane that was not made"))?;
            let mut count = |kind: i16, count: u64| {
                if count > 0 {
                    events.push(json!({"lane": number, "kind": kind, "count": count, "seq": null}));
                }
            };
            count(KIND_ACCEPTED, lane.accepted);
            count(KIND_PENDING, lane.count(State::Pending));
            count(KIND_RETRIED, lane.retried);
            count(KIND_LOST, lane.lost);
            let ends = [State::Completed, State::Failed, State::DeadLetter, State::Cancelled];
            for (state, (removed, left)) in ends.into_iter().zip(departures(lane)) {
                let kind = i16::from(state.number());
                count(kind, lane.count(state));
                count(kind + KIND_REMOVED, removed);
                count(kind + KIND_LEFT, left);
            }
        }
        if !events.is_empty() {
            let rows = Value::Array(events).to_string();
            link.execute(include_str!("sql/add_event.sql"), &[&rows, &rest.at.as_micros()]).await?;
        }
        Ok(())
    }
}

async fn put(link: &Link<'_>, statement: &'static str, rows: Vec<Value>) -> Result<(), Fault> {
    if !rows.is_empty() {
        link.execute(statement, &[&Value::Array(rows).to_string()]).await?;
    }
    Ok(())
}

async fn put_saved(link: &Link<'_>, jobs: &[MovedJob]) -> Result<(), Fault> {
    let (mut seqs, mut progress, mut checkpoints) = (Vec::new(), Vec::new(), Vec::new());
    for moved in jobs {
        let job = &moved.entry.job;
        if job.progress.is_some() || job.checkpoint.is_some() {
            seqs.push(moved.entry.sequence);
            progress.push(job.progress.as_ref().map(job_rows::json));
            checkpoints.push(job.checkpoint.as_deref());
        }
    }
    if !seqs.is_empty() {
        link.execute(include_str!("moving/put_saved.sql"), &[&seqs, &progress, &checkpoints]).await?;
    }
    Ok(())
}

async fn put_workflows(link: &Link<'_>, workflows: &[MovedWorkflow]) -> Result<(), Fault> {
    if workflows.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = workflows.iter().map(|workflow| workflow.id.as_uuid()).collect();
    let seqs: Vec<i64> = workflows.iter().map(|workflow| workflow.sequence).collect();
    let names: Vec<&str> = workflows.iter().map(|workflow| workflow.name.as_str()).collect();
    let times: Vec<i64> = workflows.iter().map(|workflow| workflow.created_at.as_micros()).collect();
    let pruned = workflows.iter().map(|workflow| i64::try_from(workflow.pruned).unwrap_or(i64::MAX));
    let pruned: Vec<i64> = pruned.collect();
    let parameters: [super::link::Parameter<'_>; 5] = [&ids, &seqs, &names, &times, &pruned];
    link.execute(include_str!("moving/put_moved_workflows.sql"), &parameters).await?;
    Ok(())
}

async fn put_keys(link: &Link<'_>, keys: &[MovedKey]) -> Result<(), Fault> {
    if keys.is_empty() {
        return Ok(());
    }
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let scopes: Vec<&str> = keys.iter().map(|key| key.scope.as_str()).collect();
    let names: Vec<&str> = keys.iter().map(|key| key.key.as_str()).collect();
    let jobs: Vec<Uuid> = keys.iter().map(|key| key.job.as_uuid()).collect();
    let untils: Vec<i16> = keys.iter().map(|key| i16::from(key.until)).collect();
    let firsts: Vec<i64> = keys.iter().map(|key| key.first_at.as_micros()).collect();
    let ends: Vec<Option<i64>> = keys.iter().map(|key| micros(key.expires_at)).collect();
    let looks: Vec<Option<i64>> = keys.iter().map(|key| micros(key.look_at)).collect();
    let prints: Vec<&[u8]> = keys.iter().map(|key| key.fingerprint.as_slice()).collect();
    let parameters: [super::link::Parameter<'_>; 8] =
        [&scopes, &names, &jobs, &untils, &firsts, &ends, &looks, &prints];
    link.execute(include_str!("moving/put_moved_keys.sql"), &parameters).await?;
    Ok(())
}

async fn put_samples(link: &Link<'_>, rest: &Rest) -> Result<(), Fault> {
    let seconds = rest.samples.iter().map(|(step, _)| i64::try_from(step.every().as_secs()).unwrap_or(i64::MAX));
    let steps: Vec<i64> = seconds.collect();
    let times: Vec<i64> = rest.samples.iter().map(|(_, sample)| sample.at.as_micros()).collect();
    let texts: Vec<String> = rest.samples.iter().map(|(_, sample)| job_rows::json(sample)).collect();
    link.execute(include_str!("moving/put_samples.sql"), &[&steps, &times, &texts]).await?;
    Ok(())
}
