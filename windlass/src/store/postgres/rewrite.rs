//! Replacing stored bytes by others that mean the same.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::Inner;
use super::fault::Fault;
use super::link::Link;
use super::turns::Caller;
use crate::store::rewrite::{Part, Rewrite};

impl Inner {
    pub(super) async fn rewrite(&self, rewrites: &[Rewrite]) -> Result<Vec<bool>, Fault> {
        // Nobody waits for it, so it takes no connection that is kept for workers.
        let mut link = self.link(Caller::Producer).await?;
        link.begin().await?;
        match self.rewrite_in(&link, rewrites).await {
            Ok(answers) => {
                link.commit().await?;
                Ok(answers)
            }
            Err(fault) => {
                link.roll_back().await;
                Err(fault)
            }
        }
    }

    async fn rewrite_in(&self, link: &Link<'_>, rewrites: &[Rewrite]) -> Result<Vec<bool>, Fault> {
        let ids: Vec<Uuid> = rewrites.iter().map(|one| one.job.as_uuid()).collect();
        let seqs = self.sequences(&ids);
        // An id of another schema may lead to some job by chance.
        let rows = link.query(include_str!("sql/get_id.sql"), &[&seqs]).await?;
        let known: HashMap<i64, Uuid> = rows.iter().map(|row| (row.get("seq"), row.get("id"))).collect();
        let mut changed = HashSet::new();
        for (part, statement) in [
            (Part::Payload, include_str!("sql/rewrite_payload.sql")),
            (Part::Result, include_str!("sql/rewrite_result.sql")),
            (Part::Checkpoint, include_str!("sql/rewrite_checkpoint.sql")),
        ] {
            let is_known = |place: &usize| known.get(&seqs[*place]) == Some(&ids[*place]);
            let mut places: Vec<usize> =
                (0..rewrites.len()).filter(|place| rewrites[*place].part == part).filter(is_known).collect();
            // In one order, so that two that rewrite the same jobs do not wait for each other.
            places.sort_by_key(|place| seqs[*place]);
            if places.is_empty() {
                continue;
            }
            let of = |one: fn(&Rewrite) -> (Option<&str>, &[u8])| -> (Vec<Option<&str>>, Vec<&[u8]>) {
                places.iter().map(|place| one(&rewrites[*place])).unzip()
            };
            let numbers: Vec<i64> = places.iter().map(|place| seqs[*place]).collect();
            let (old_types, old) = of(|one| (one.old.stored_content_type(), one.old.as_bytes()));
            let (new_types, new) = of(|one| (one.new.stored_content_type(), one.new.as_bytes()));
            let rows = link.query(statement, &[&numbers, &old_types, &old, &new_types, &new]).await?;
            let done: HashSet<i64> = rows.iter().map(|row| row.get("seq")).collect();
            changed.extend(places.into_iter().filter(|place| done.contains(&seqs[*place])));
        }
        Ok((0..rewrites.len()).map(|place| changed.contains(&place)).collect())
    }
}
