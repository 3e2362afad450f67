//! Looks for contradictions in what is stored. Reads everything: for tests and for operators in doubt.

use uuid::Uuid;

use super::fault::Fault;
use super::job_rows::{self, JobColumns, JobRow};
use super::link::Link;
use super::turns::Caller;
use super::{Inner, schedules};
use crate::flow::{ControlRecord, Limit};
use crate::job::State;
use crate::store::answer::counts;

/// How many rows are read at once: payloads come along.
const CHUNK: i64 = 200;
/// How many damaged rows one check reports: an operator who has more checks again after mending these.
const FINDINGS_MAX: usize = 100;

impl Inner {
    pub(super) async fn check(&self) -> Result<Vec<String>, Fault> {
        let mut link = self.link(Caller::Reader).await?;
        // One snapshot for all statements, or what moves in between would look like a contradiction.
        link.begin_snapshot().await?;
        let answer = self.contradictions(&link).await;
        link.roll_back().await;
        answer
    }

    async fn contradictions(&self, link: &Link<'_>) -> Result<Vec<String>, Fault> {
        let time = self.given_time();
        let mut found = Vec::new();
        for row in link.query(include_str!("sql/check_jobs.sql"), &[]).await? {
            found.push(format!("job {}: {}", row.get::<_, uuid::Uuid>("id"), row.get::<_, &str>("problem")));
        }
        for row in link.query(include_str!("sql/check_flow.sql"), &[&time]).await? {
            found.push(row.get("problem"));
        }
        for row in link.query(include_str!("sql/list_controlled.sql"), &[]).await? {
            let control = row.get::<_, Option<&str>>("control").map(serde_json::from_str::<ControlRecord>);
            if let Some(Err(problem)) = control {
                found.push(format!("the control of queue {} cannot be read: {problem}", row.get::<_, &str>("name")));
            }
        }
        let rows = link.query(include_str!("sql/check_counts.sql"), &[&time]).await?;
        let actual = counts(rows.iter().filter_map(|row| {
            let state = u8::try_from(row.get::<_, i16>("state")).ok().and_then(State::from_number)?;
            Some((state, u64::try_from(row.get::<_, i64>("count")).unwrap_or_default()))
        }));
        let lanes = self.counts_on(link).await?.lanes;
        // Where the store did not count to the end, there is nothing to compare.
        if lanes.iter().any(|lane| lane.at_least) {
            return Ok(found);
        }
        for state in State::ALL {
            let number = usize::from(state.number());
            let told: u64 = lanes.iter().map(|lane| lane.states[number]).sum();
            if told != actual[number] {
                found.push(format!("{told} jobs are counted as {state}, but {} are", actual[number]));
            }
        }
        self.read_every_job(link, &mut found).await?;
        read_every_attempt(link, &mut found).await?;
        read_every_schedule(link, &mut found).await?;
        read_every_limit(link, &mut found).await?;
        Ok(found)
    }

    /// Reads every job as a claim or a list would, and says which cannot be read.
    async fn read_every_job(&self, link: &Link<'_>, found: &mut Vec<String>) -> Result<(), Fault> {
        let now = self.read_clock(link).await?;
        let mut from = 0_i64;
        while found.len() < FINDINGS_MAX {
            let rows = link.query(include_str!("sql/list_oldest.sql"), &[&from, &CHUNK]).await?;
            let seqs: Vec<i64> = rows.iter().map(|row| row.get("seq")).collect();
            let Some(last) = seqs.last() else { return Ok(()) };
            from = *last;
            let rows = link.query(include_str!("sql/get_job.sql"), &[&seqs]).await?;
            let lanes: Vec<i32> = rows.iter().map(|row| row.get("lane")).collect();
            self.lanes.learn_lanes(link, &lanes).await?;
            let Some(columns) = rows.first().map(JobColumns::of) else { continue };
            for row in &rows {
                let id: Uuid = row.get(columns.id);
                match job_rows::job_row(row, &columns, self, now) {
                    Err(fault) => found.push(format!("job {id} cannot be read: {}", fault.into_error("read it"))),
                    Ok(JobRow { entry, .. }) => match &entry.job.spec.damage {
                        Some(damage) => found.push(format!("job {id} is damaged: {damage}")),
                        None if self.sequences(&[id]) != [entry.sequence] => {
                            found.push(format!("job {id}: its id does not lead to its row"));
                        }
                        None => {}
                    },
                }
            }
        }
        Ok(())
    }
}

async fn read_every_attempt(link: &Link<'_>, found: &mut Vec<String>) -> Result<(), Fault> {
    let (mut seq, mut version) = (0_i64, 0_i64);
    while found.len() < FINDINGS_MAX {
        let rows = link.query(include_str!("sql/check_attempts.sql"), &[&seq, &version, &CHUNK]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        (seq, version) = (last.get("seq"), last.get("version"));
        for row in &rows {
            if let Err(problem) = job_rows::failure_record(row.get("failure"), None) {
                let (seq, version): (i64, i64) = (row.get("seq"), row.get("version"));
                found.push(format!("attempt {version} of job number {seq}: its failure cannot be read: {problem}"));
            }
        }
    }
    Ok(())
}

async fn read_every_limit(link: &Link<'_>, found: &mut Vec<String>) -> Result<(), Fault> {
    let mut from = i32::MIN;
    while found.len() < FINDINGS_MAX {
        let rows = link.query(include_str!("sql/check_limits.sql"), &[&from, &CHUNK]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        from = last.get("strand");
        for row in &rows {
            if let Err(problem) = serde_json::from_str::<Limit>(row.get("limits")) {
                let (queue, key): (&str, &str) = (row.get("name"), row.get("key"));
                found.push(format!("the limit of key {key:?} in queue {queue} cannot be read: {problem}"));
            }
        }
    }
    Ok(())
}

async fn read_every_schedule(link: &Link<'_>, found: &mut Vec<String>) -> Result<(), Fault> {
    let rows = link.query(include_str!("sql/list_schedules.sql"), &[&None::<&str>, &i64::MAX]).await?;
    for row in &rows {
        if let Err(problem) = schedules::read(row.get("record")) {
            found.push(format!("a schedule cannot be read: {problem}"));
        }
    }
    Ok(())
}
