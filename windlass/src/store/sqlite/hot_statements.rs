//! Statements that are run once for each job of a batch. Looking one up in the connection's cache costs as much as
//! running it, so a transaction holds on to them.

use rusqlite::CachedStatement;

use super::fault::Answer;
use super::transaction::Transaction;

/// The statements that are worth it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HotStatement {
    AddJob,
    AddJobs,
    AddPlainJob,
    PlaceJobs,
    AddLifetime,
    AddNewReady,
    AddReady,
    ListClaimable,
    GetJob,
    DeleteReady,
    LeaseRange,
    DeleteClaimed,
    GetLeased,
    DeleteLeased,
    FenceRange,
    CompleteRange,
    DeleteRange,
    AddDone,
    IsWaitedFor,
    SortReady,
    ListFirst,
    FindStrand,
    PutStrand,
    AddCounts,
}

/// How many of them there are.
pub(super) const HOT_STATEMENTS: usize = 24;

impl HotStatement {
    fn sql(self) -> &'static str {
        match self {
            HotStatement::AddJob => include_str!("sql/add_job.sql"),
            HotStatement::AddJobs => include_str!("sql/add_jobs.sql"),
            HotStatement::AddPlainJob => include_str!("sql/add_plain_job.sql"),
            HotStatement::PlaceJobs => include_str!("sql/place_jobs.sql"),
            HotStatement::AddLifetime => include_str!("sql/add_lifetime.sql"),
            HotStatement::AddNewReady => include_str!("sql/add_new_ready.sql"),
            HotStatement::AddReady => include_str!("sql/add_ready.sql"),
            HotStatement::ListClaimable => include_str!("sql/list_claimable.sql"),
            HotStatement::GetJob => include_str!("sql/get_job.sql"),
            HotStatement::DeleteReady => include_str!("sql/delete_ready.sql"),
            HotStatement::LeaseRange => include_str!("sql/lease_range.sql"),
            HotStatement::DeleteClaimed => include_str!("sql/delete_claimed.sql"),
            HotStatement::GetLeased => include_str!("sql/get_leased.sql"),
            HotStatement::DeleteLeased => include_str!("sql/delete_leased.sql"),
            HotStatement::FenceRange => include_str!("sql/fence_range.sql"),
            HotStatement::CompleteRange => include_str!("sql/complete_range.sql"),
            HotStatement::DeleteRange => include_str!("sql/delete_range.sql"),
            HotStatement::AddDone => include_str!("sql/add_done.sql"),
            HotStatement::IsWaitedFor => include_str!("sql/is_waited_for.sql"),
            HotStatement::SortReady => include_str!("sql/sort_ready.sql"),
            HotStatement::ListFirst => include_str!("sql/list_first.sql"),
            HotStatement::FindStrand => include_str!("sql/find_strand.sql"),
            HotStatement::PutStrand => include_str!("sql/put_strand.sql"),
            HotStatement::AddCounts => include_str!("sql/add_counts.sql"),
        }
    }
}

impl<'c> Transaction<'c> {
    /// Takes a statement to run it; [give it back](Self::give_statement_back) for the next job.
    pub(super) fn take_statement(&mut self, hot: HotStatement) -> Answer<CachedStatement<'c>> {
        match self.hot_statements[hot as usize].take() {
            Some(statement) => Ok(statement),
            None => Ok(self.conn.prepare_cached(hot.sql())?),
        }
    }

    pub(super) fn give_statement_back(&mut self, hot: HotStatement, statement: CachedStatement<'c>) {
        self.hot_statements[hot as usize] = Some(statement);
    }

    /// Runs a statement that gives no rows; how many it changed.
    pub(super) fn execute(&mut self, hot: HotStatement, parameters: impl rusqlite::Params) -> Answer<usize> {
        let mut statement = self.take_statement(hot)?;
        let changed = statement.execute(parameters)?;
        self.give_statement_back(hot, statement);
        Ok(changed)
    }
}
