//! Looks for contradictions: in the file as SQLite sees it, and between the tables.

use rusqlite::Connection;

use super::columns::{json, parse};
use super::fault::{Answer, Fault};
use super::job_rows::Entry;
use super::schedules::read_schedule;
use super::transaction::Transaction;
use crate::flow::{ControlRecord, Gate};
use crate::job::{FailureRecord, JobId};

/// Each gives a sentence for every contradiction it finds, at most a hundred.
const CHECKS: [&str; 8] = [
    include_str!("sql/check_places.sql"),
    include_str!("sql/check_counts.sql"),
    include_str!("sql/check_accounts.sql"),
    include_str!("sql/check_edges.sql"),
    include_str!("sql/check_marks.sql"),
    include_str!("sql/check_waits.sql"),
    include_str!("sql/check_order.sql"),
    include_str!("sql/check_flow.sql"),
];

/// How many rows are read at once.
const CHUNK: usize = 500;
/// How many damaged rows one check reports: an operator who has more checks again after mending these.
const FINDINGS_MAX: usize = 100;

impl Transaction<'_> {
    pub(super) fn check(&mut self) -> Answer<Vec<String>> {
        let mut findings = damages(self.conn)?;
        // Tables of a damaged file say nothing.
        if findings.is_empty() {
            for check in CHECKS {
                let mut statement = self.conn.prepare(check)?;
                let found = statement.query_map([], |row| row.get::<_, String>(0))?;
                findings.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
            }
            self.read_every_job(&mut findings)?;
            self.read_every_attempt(&mut findings)?;
            self.read_every_schedule(&mut findings)?;
            self.read_every_control(&mut findings)?;
        }
        Ok(findings)
    }

    /// Reads the control of every queue with its gates, and says which cannot be read.
    fn read_every_control(&self, findings: &mut Vec<String>) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/list_controlled.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let queue: String = row.get("name")?;
            if let Err(Fault::Broken(problem)) = json::<ControlRecord>(row, "control") {
                findings.push(format!("the control of queue {queue} cannot be read: {problem}"));
            }
            let mut statement = self.statement(include_str!("sql/list_gates.sql"))?;
            let mut gates = statement.query([&queue])?;
            while let Some(gate) = gates.next()? {
                if let Err(Fault::Broken(problem)) = json::<Gate>(gate, "gate") {
                    findings.push(format!("a gate of queue {queue} cannot be read: {problem}"));
                }
            }
        }
        Ok(())
    }

    /// Reads every job as a claim or a list would, and says which cannot be read.
    fn read_every_job(&mut self, findings: &mut Vec<String>) -> Answer<()> {
        let mut from = 0;
        while findings.len() < FINDINGS_MAX {
            let mut statement = self.statement(include_str!("sql/list_oldest.sql"))?;
            let seqs = statement.query_map([from, CHUNK as i64], |row| row.get("seq"))?;
            let seqs: Vec<i64> = seqs.collect::<rusqlite::Result<_>>()?;
            let Some(last) = seqs.last() else { return Ok(()) };
            from = *last;
            for seq in seqs {
                match self.load(seq) {
                    Ok(Some(entry)) => findings.extend(self.damage_of(&entry)),
                    Ok(None) => {}
                    Err(fault @ Fault::Sql(rusqlite::Error::SqliteFailure(..))) => return Err(fault),
                    Err(fault) => findings.push(format!("job number {seq} cannot be read: {fault}")),
                }
            }
        }
        Ok(())
    }

    fn damage_of(&self, entry: &Entry) -> Option<String> {
        let job = &entry.job;
        match &job.spec.damage {
            Some(damage) => Some(format!("job {} is damaged: {damage}", job.id)),
            None if self.seq_of(job.id) != entry.seq => {
                Some(format!("job {}: its id does not lead to its row", job.id))
            }
            None => None,
        }
    }

    fn read_every_attempt(&self, findings: &mut Vec<String>) -> Answer<()> {
        let (mut seq, mut version) = (0, 0);
        while findings.len() < FINDINGS_MAX {
            let mut statement = self.statement(include_str!("sql/check_attempts.sql"))?;
            let mut rows = statement.query([seq, version, CHUNK as i64])?;
            let before = (seq, version);
            while let Some(row) = rows.next()? {
                (seq, version) = (row.get("seq")?, row.get("version")?);
                if let Err(problem) =
                    row.get_ref("failure")?.as_str().map_err(Fault::from).and_then(parse::<FailureRecord>)
                {
                    let words = format!("attempt {version} of job number {seq}: its failure cannot be read: {problem}");
                    findings.push(words);
                }
            }
            if before == (seq, version) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_every_schedule(&self, findings: &mut Vec<String>) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/list_schedules.sql"))?;
        let mut rows = statement.query(rusqlite::params!["", i64::MAX])?;
        while let Some(row) = rows.next()? {
            if let Err(problem) = read_schedule(row) {
                let name: String = row.get("name").unwrap_or_default();
                findings.push(format!("schedule {name:?} cannot be read: {problem}"));
            }
        }
        Ok(())
    }

    /// The RUNNING jobs that were asked to stop.
    pub(super) fn asked_to_stop(&self) -> Answer<Vec<JobId>> {
        let mut statement = self.statement(include_str!("sql/list_cancel_asked.sql"))?;
        let ids = statement.query_map([], |row| row.get::<_, [u8; 16]>(0))?;
        let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(ids.into_iter().map(|id| JobId::from_uuid(uuid::Uuid::from_bytes(id))).collect())
    }
}

/// What SQLite's own integrity check finds.
fn damages(conn: &Connection) -> Answer<Vec<String>> {
    let mut statement = conn.prepare("pragma integrity_check")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut findings = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    findings.retain(|finding| finding != "ok");
    Ok(findings)
}
