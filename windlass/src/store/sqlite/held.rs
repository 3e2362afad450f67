//! Statements that are run once for each job of a batch. Looking one up in the connection's cache costs as much as
//! running it, so a transaction holds on to them.

use rusqlite::CachedStatement;

use super::fault::Answer;
use super::tx::Tx;

/// The statements that are worth it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    AddJob,
    AddJobs,
    AddPlainJob,
    PlaceJobs,
    AddLifetime,
    AddNewWaiting,
    AddWaiting,
    ClaimNext,
    GetJob,
    DeleteWaiting,
    LeaseRun,
    RemoveTaken,
    GetLeased,
    DeleteLeased,
    FenceRun,
    CompleteRun,
    RemoveRun,
    AddDone,
    OpenEdges,
}

/// How many of them there are.
pub(super) const HELD: usize = 19;

impl Hold {
    fn sql(self) -> &'static str {
        match self {
            Hold::AddJob => include_str!("sql/add_job.sql"),
            Hold::AddJobs => include_str!("sql/add_jobs.sql"),
            Hold::AddPlainJob => include_str!("sql/add_plain_job.sql"),
            Hold::PlaceJobs => include_str!("sql/place_jobs.sql"),
            Hold::AddLifetime => include_str!("sql/add_lifetime.sql"),
            Hold::AddNewWaiting => include_str!("sql/add_new_waiting.sql"),
            Hold::AddWaiting => include_str!("sql/add_waiting.sql"),
            Hold::ClaimNext => include_str!("sql/claim_next.sql"),
            Hold::GetJob => include_str!("sql/get_job.sql"),
            Hold::DeleteWaiting => include_str!("sql/delete_waiting.sql"),
            Hold::LeaseRun => include_str!("sql/lease_run.sql"),
            Hold::RemoveTaken => include_str!("sql/remove_taken.sql"),
            Hold::GetLeased => include_str!("sql/get_leased.sql"),
            Hold::DeleteLeased => include_str!("sql/delete_leased.sql"),
            Hold::FenceRun => include_str!("sql/fence_run.sql"),
            Hold::CompleteRun => include_str!("sql/complete_run.sql"),
            Hold::RemoveRun => include_str!("sql/remove_run.sql"),
            Hold::AddDone => include_str!("sql/add_done.sql"),
            Hold::OpenEdges => include_str!("sql/open_edges.sql"),
        }
    }
}

impl<'c> Tx<'c> {
    /// Takes a statement to run it; [`give`](Self::give) it back for the next job.
    pub(super) fn take(&mut self, hold: Hold) -> Answer<CachedStatement<'c>> {
        match self.held[hold as usize].take() {
            Some(statement) => Ok(statement),
            None => Ok(self.conn.prepare_cached(hold.sql())?),
        }
    }

    pub(super) fn give(&mut self, hold: Hold, statement: CachedStatement<'c>) {
        self.held[hold as usize] = Some(statement);
    }

    /// Runs a statement that gives no rows; how many it changed.
    pub(super) fn execute(&mut self, hold: Hold, parameters: impl rusqlite::Params) -> Answer<usize> {
        let mut statement = self.take(hold)?;
        let changed = statement.execute(parameters)?;
        self.give(hold, statement);
        Ok(changed)
    }
}
