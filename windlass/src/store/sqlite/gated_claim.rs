//! The claim through the gates of a controlled queue.
//!
//! It reads keys to which something has happened, those whose moment has come, those with new jobs, and the first open strands of
//! each type (`gated_view`): so it costs what it takes, sorts and looks at, and neither what waits nor how many keys there are. The
//! core picks, and what follows from it is written (`gated_picks`). New jobs wait in their plain lane, the door, until a claim sorts
//! them.

use std::collections::{BTreeMap, HashMap};

use super::fault::Answer;
use super::gated_view::View;
use super::transaction::Transaction;
use crate::flow::{Control, Gates};
use crate::job::QueueName;
use crate::observe;
use crate::store::answer::Claimed;
use crate::store::request::ClaimRequest;
use crate::time::Timestamp;

impl Transaction<'_> {
    /// Claims from a controlled queue what all gates let through; gives when to ask again. With nothing wanted, it only looks
    /// at the keys to which something has happened.
    pub(super) fn claim_through_gates(
        &mut self,
        queue: &QueueName,
        control: &Control,
        wanted: usize,
        request: Option<&ClaimRequest>,
        claimed: &mut Vec<Claimed>,
    ) -> Answer<Option<Timestamp>> {
        let types = request.and_then(|request| request.types.as_deref());
        let doors = self.doors(queue)?;
        let (strands, arrivals) = (BTreeMap::new(), HashMap::new());
        let mut view = View { queue, control, types, doors, gates: Gates::default(), strands, arrivals };
        let touched = self.touched_strands(queue)?;
        self.count_gates(&mut view, &touched)?;
        view.add(touched);
        let room = view.gates.queue.room(&control.of_queue(), self.now);
        if room.starts == 0 && wanted > 0 {
            let waits = self.waits(&view)?;
            let why = view.gates.queue.closed_by(&control.of_queue(), self.now);
            observe::claim_blocked(queue, why.filter(|_| waits));
            return Ok(room.again_at.filter(|_| waits));
        }
        let due = self.due_strands(queue)?;
        view.add(due);
        if wanted > 0 {
            self.read_door(&mut view, wanted)?;
        }
        let (strands, picks) = self.pick_from(&mut view, wanted)?;
        self.write_picks(&view, &strands, &picks, request, claimed)?;
        observe::claim_blocked(queue, picks.blocked.iter().copied());
        if control.has_strands() {
            observe::keys_served(queue, picks.key_waits(&strands, self.now));
        }
        let later = self.next_later(queue)?;
        Ok([picks.again_at, later].into_iter().flatten().min())
    }

    /// Whether a job waits that its key does not keep back.
    fn waits(&self, view: &View<'_>) -> Answer<bool> {
        if view.doors.iter().any(|door| door.waiting > 0) || view.strands.values().any(|strand| strand.waiting > 0) {
            return Ok(true);
        }
        let mut statement = self.statement(include_str!("sql/has_open.sql"))?;
        Ok(statement.query_row([view.queue.as_str()], |row| row.get(0))? || self.next_later(view.queue)?.is_some())
    }

    /// How many strands and jobs a claim looks at first.
    #[cfg(test)]
    fn looked_at(&mut self, queue: &QueueName, control: &Control, wanted: usize) -> Answer<(usize, usize)> {
        let (doors, gates, strands, arrivals) = (self.doors(queue)?, Gates::default(), BTreeMap::new(), HashMap::new());
        let mut view = View { queue, control, types: None, doors, gates, strands, arrivals };
        let touched = self.touched_strands(queue)?;
        self.count_gates(&mut view, &touched)?;
        view.add(touched);
        let due = self.due_strands(queue)?;
        view.add(due);
        self.read_door(&mut view, wanted)?;
        let (strands, _) = self.pick_from(&mut view, wanted)?;
        Ok((strands.len(), strands.iter().map(|strand| strand.heads.len()).sum()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rusqlite::params;

    use super::super::SqliteStore;
    use super::super::gated_view::SORTED;
    use super::super::transaction::Names;
    use super::*;
    use crate::clock::SystemClock;
    use crate::flow::{Change, ControlEdit, Limit};
    use crate::job::{Limits, NewJob, Payload, Policies, WorkerId};
    use crate::store::Store;
    use crate::workflow::Submission;

    const KEYS: usize = 20_000;
    const BLOCKED: usize = 20_000;
    const WANTED: usize = 100;

    async fn add(store: &SqliteStore, keys: impl Iterator<Item = String>) {
        let spec = |key: String| {
            let job = NewJob::new("test", Payload::default()).key(key);
            job.check(&Limits::default(), &Policies::default()).expect("valid")
        };
        let specs: Vec<_> = keys.map(spec).collect();
        for chunk in specs.chunks(1000) {
            store.insert(Submission::new(chunk.to_vec()).expect("a batch")).await.expect("inserted");
        }
    }

    #[tokio::test]
    async fn a_claim_reads_what_it_takes_and_not_what_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.db");
        let store = SqliteStore::open(&path).expect("a store");
        let (queue, control) = (QueueName::default(), Control::new().each_key(Limit::running(1)).fair());
        let put = Change::Put { control: control.clone(), version: None, from_code: false };
        store.control(&ControlEdit::new(queue.clone(), put), None).await.expect("controlled");
        let worker = WorkerId::new("test").expect("a name");
        let request = ClaimRequest {
            lease_time: Some(Duration::from_secs(600)),
            ..ClaimRequest::new(worker, queue.clone(), WANTED)
        };
        add(&store, (0..BLOCKED).map(|_| "blocked".to_owned())).await;
        for _ in 0..=BLOCKED / SORTED {
            store.claim(&request).await.expect("claim");
        }
        add(&store, (0..KEYS).map(|number| format!("k{number}"))).await;
        // Each claim sorts a part of them.
        for _ in 0..=KEYS / SORTED {
            assert_eq!(store.claim(&request).await.expect("claim").len(), WANTED);
        }
        let conn = rusqlite::Connection::open(&path).expect("open");
        let mut names = Names::default();
        let mut tx = Transaction::begin(&conn, &mut names, &SystemClock::default()).expect("begun");
        let (strands, jobs) = tx.looked_at(&queue, &control, WANTED).expect("read");
        assert!(strands <= WANTED + 1, "{strands} strands were looked at");
        assert!(jobs <= 3 * WANTED, "{jobs} jobs were looked at");
        let scans = include_str!("sql/list_open.sql");
        let mut plan = conn.prepare(&format!("explain query plan {scans}")).expect("a plan");
        let plan: Vec<String> = plan
            .query_map(params!["default", "test", 100], |row| row.get::<_, String>(3))
            .and_then(Iterator::collect)
            .expect("a plan");
        assert!(plan.iter().any(|step| step.contains("windlass_lane_open")), "{plan:?}");
        assert!(!plan.iter().any(|step| step.starts_with("SCAN") || step.contains("TEMP B-TREE")), "{plan:?}");
    }
}
