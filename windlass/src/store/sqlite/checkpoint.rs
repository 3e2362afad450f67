//! The thread that copies the log back into the file, so that the writer does not have to.
//!
//! A passive checkpoint works beside the writer but never quite catches up with one that does not pause, and only a
//! log that is wholly copied can be started over. So when the log is long all the same, the writer is asked to finish
//! the copy between two transactions: little is left to do then, and its next write starts the log over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use rusqlite::Connection;

/// How many pages the log may have before the writer is asked to finish: 8 MiB of pages of 4 KiB. A sync of what was
/// written over takes two thirds of the time of one that makes the file longer, so the log starts over early.
const LOG_PAGES_MAX: i64 = 2048;

/// Makes a checkpoint whenever one is asked for, until the writer is gone.
pub(super) fn run(conn: &Connection, asked: &Receiver<()>, log_is_long: &Arc<AtomicBool>) {
    while asked.recv().is_ok() {
        // A checkpoint that fails, because the disk is full or another process makes one, is made later.
        let pages: i64 = conn.query_row("pragma wal_checkpoint(passive)", [], |row| row.get(1)).unwrap_or_default();
        if pages >= LOG_PAGES_MAX {
            log_is_long.store(true, Ordering::Relaxed);
        }
    }
}
