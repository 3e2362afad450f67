//! Looks for contradictions: in the file as SQLite sees it, and between the tables.

use rusqlite::Connection;

use super::fault::Answer;
use super::transaction::Transaction;
use crate::job::JobId;

/// Each gives a sentence for every contradiction it finds, at most a hundred.
const CHECKS: [&str; 6] = [
    include_str!("sql/check_places.sql"),
    include_str!("sql/check_counts.sql"),
    include_str!("sql/check_accounts.sql"),
    include_str!("sql/check_edges.sql"),
    include_str!("sql/check_waits.sql"),
    include_str!("sql/check_order.sql"),
];

impl Transaction<'_> {
    pub(super) fn check(&self) -> Answer<Vec<String>> {
        let mut findings = damages(self.conn)?;
        // Tables of a damaged file say nothing.
        if findings.is_empty() {
            for check in CHECKS {
                let mut statement = self.conn.prepare(check)?;
                let found = statement.query_map([], |row| row.get::<_, String>(0))?;
                findings.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
            }
        }
        Ok(findings)
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
