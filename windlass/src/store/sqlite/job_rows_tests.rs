//! What is read of rows by number is what their statements select.

use super::super::claim::ClaimableColumn;
use super::super::migrate;
use super::*;

#[test]
fn statements_select_the_columns_that_are_read() {
    let conn = rusqlite::Connection::open_in_memory().expect("open");
    migrate(&conn).expect("migrate");
    let cases: [(&str, &[&str], &[&str]); 7] = [
        (include_str!("sql/get_job.sql"), JobColumn::NAMES, &[]),
        (include_str!("sql/list_claimable.sql"), JobColumn::NAMES, ClaimableColumn::NAMES),
        (include_str!("sql/get_leased.sql"), HotColumn::NAMES, LeasedColumn::NAMES),
        (include_str!("sql/get_done.sql"), HotColumn::NAMES, DoneColumn::NAMES),
        (include_str!("sql/get_ready.sql"), HotColumn::NAMES, ReadyColumn::NAMES),
        (include_str!("sql/get_ready_moved.sql"), HotColumn::NAMES, ReadyColumn::NAMES),
        (include_str!("sql/get_pending.sql"), HotColumn::NAMES, PendingColumn::NAMES),
    ];
    for (sql, first, then) in cases {
        let statement = conn.prepare(sql).expect("a statement");
        assert_eq!(statement.column_names().collect::<Vec<_>>(), [first, then].concat(), "{sql}");
    }
}
