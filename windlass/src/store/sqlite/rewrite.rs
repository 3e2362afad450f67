//! Replacing stored bytes by others that mean the same.

use rusqlite::{OptionalExtension, params};

use super::fault::Answer;
use super::transaction::Transaction;
use crate::store::rewrite::{Part, Rewrite};

impl Transaction<'_> {
    pub(super) fn rewrite(&mut self, rewrites: &[Rewrite]) -> Answer<Vec<bool>> {
        rewrites.iter().map(|one| self.rewrite_one(one)).collect()
    }

    fn rewrite_one(&mut self, one: &Rewrite) -> Answer<bool> {
        let seq = self.seq_of(one.job);
        let mut has_id = self.statement(include_str!("sql/has_id.sql"))?;
        if has_id.query_row(params![seq, one.job.as_uuid().as_bytes()], |_| Ok(())).optional()?.is_none() {
            return Ok(false);
        }
        let (old, new) = (one.old.as_bytes().as_ref(), one.new.as_bytes().as_ref());
        let (was, is) = (one.old.stored_content_type(), one.new.stored_content_type());
        let changed = match one.part {
            Part::Payload => {
                self.statement(include_str!("sql/rewrite_payload.sql"))?.execute(params![seq, was, old, is, new])?
            }
            Part::Result => {
                self.statement(include_str!("sql/rewrite_result.sql"))?.execute(params![seq, was, old, is, new])?
            }
            Part::Checkpoint => {
                self.statement(include_str!("sql/rewrite_checkpoint.sql"))?.execute(params![seq, old, new])?
            }
        };
        Ok(changed > 0)
    }
}
