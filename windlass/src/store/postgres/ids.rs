//! Job ids that lead to their row without an index.
//!
//! A unique index on random ids costs a sixth of an enqueue while it is small, and more with every million jobs. So the
//! first 48 bits of an id are the job's sequence under a mask that only the store can take off: it is computed from the
//! other, random bits and a key of the schema. The id looks like any of version 4, and the stored one is still compared.
//!
//! The same is done in SQL by the function `enqueue`, so the mask is of a kind that PostgreSQL can compute.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::fault::Fault;
use super::link::Link;
use super::{Inner, tokens};
use crate::job::{JobId, LeaseKey};

/// Bits of an id behind the sequence: 74 random ones, the version and the variant.
pub(super) const REST_BITS: u32 = 80;
pub(super) const REST: u128 = (1 << REST_BITS) - 1;

/// The secret of one schema's ids.
pub(super) struct IdKey {
    bytes: Vec<u8>,
    /// Whether there may be jobs from before ids led anywhere: those are found by an index.
    has_old: bool,
}

/// What an id will be, but for the sequence.
#[derive(Clone, Copy)]
pub(super) struct Draw {
    rest: u128,
    pub(super) mask: i64,
}

impl Draw {
    /// The part that is the same whatever the sequence, as hexadecimal digits.
    pub(super) fn rest(&self) -> String {
        format!("{:020x}", self.rest)
    }

    pub(super) fn id(&self, seq: i64) -> JobId {
        let front = u128::try_from(seq ^ self.mask).unwrap_or_default();
        JobId::from_uuid(Uuid::from_u128(front << REST_BITS | self.rest))
    }
}

impl IdKey {
    pub(super) async fn read(link: &Link<'_>) -> Result<Self, Fault> {
        let rows = link.query(include_str!("sql/id_key.sql"), &[]).await?;
        let row = rows.first().ok_or_else(|| super::rows::corrupt("no key of its ids"))?;
        Ok(IdKey { bytes: row.get(0), has_old: row.get(1) })
    }

    pub(super) fn draw(&self) -> Draw {
        let rest = Uuid::new_v4().as_u128() & REST;
        Draw { rest, mask: self.mask(rest) }
    }

    fn mask(&self, rest: u128) -> i64 {
        let digest = Sha256::new().chain_update(&self.bytes).chain_update(&rest.to_be_bytes()[6..]).finalize();
        digest[..6].iter().fold(0, |mask, byte| mask << 8 | i64::from(*byte))
    }

    /// The sequence that an id of this schema leads to; of another id, some number.
    fn sequence(&self, id: Uuid) -> i64 {
        let front = i64::try_from(id.as_u128() >> REST_BITS).unwrap_or_default();
        front ^ self.mask(id.as_u128() & REST)
    }
}

impl Inner {
    /// Where the jobs with these ids are, if they exist.
    pub(super) async fn sequences(&self, link: &Link<'_>, ids: &[Uuid]) -> Result<Vec<i64>, Fault> {
        let key = self.id_key();
        let mut seqs: Vec<i64> = ids.iter().map(|id| key.sequence(*id)).collect();
        if key.has_old {
            let rows = link.query(include_str!("sql/seq_find.sql"), &[&ids]).await?;
            let old: HashMap<Uuid, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            for (seq, id) in seqs.iter_mut().zip(ids) {
                *seq = old.get(id).copied().unwrap_or(*seq);
            }
        }
        Ok(seqs)
    }

    /// Where the jobs of these leases are, and whether each token is one of that job.
    pub(super) async fn leased(&self, link: &Link<'_>, leases: &[LeaseKey]) -> Result<Vec<(i64, bool)>, Fault> {
        let key = self.id_key();
        let fits = |lease: &LeaseKey, seq: i64| (seq, tokens::sequence(lease.token) == seq);
        let found = leases.iter().map(|lease| fits(lease, key.sequence(lease.job.as_uuid())));
        let mut found: Vec<(i64, bool)> = found.collect();
        if key.has_old && found.iter().any(|(_, fits)| !fits) {
            let ids: Vec<Uuid> = leases.iter().map(|lease| lease.job.as_uuid()).collect();
            let seqs = self.sequences(link, &ids).await?;
            found = leases.iter().zip(seqs).map(|(lease, seq)| fits(lease, seq)).collect();
        }
        Ok(found)
    }

    pub(super) fn draw_id(&self) -> Draw {
        self.id_key().draw()
    }

    fn id_key(&self) -> &IdKey {
        self.ids.get().expect("the key is read before the store is used")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_sequence_and_looks_random() {
        let key = IdKey { bytes: vec![7; 32], has_old: false };
        let mut firsts = std::collections::HashSet::new();
        for seq in (1..5000).chain([(1 << 48) - 1]) {
            let draw = key.draw();
            let id = draw.id(seq).as_uuid();
            assert_eq!(id.get_version_num(), 4);
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(key.sequence(id), seq);
            assert!(id.simple().to_string().ends_with(&draw.rest()));
            firsts.insert(id.as_bytes()[0]);
        }
        assert_eq!(firsts.len(), 256, "ids spread over the whole range");
    }
}
