//! Job ids that lead to their row without an index.
//!
//! A unique index on random ids costs a sixth of an enqueue while it is small, and more with every million jobs. So the
//! first 48 bits of an id are the job's sequence under a mask that only the store can take off: it is computed from the
//! other, random bits and a key of the schema. The id looks like any of version 4, and the stored one is still compared.
//!
//! The same is done in SQL by the function `enqueue`, so the mask is of a kind that PostgreSQL can compute.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Inner;
use super::fault::Fault;
use super::link::Link;
use super::tokens::{self, TokenKey};
use crate::job::{JobId, LeaseKey};

/// Bits of an id behind the sequence: 74 random ones, the version and the variant.
pub(super) const REST_BITS: u32 = 80;
pub(super) const REST: u128 = (1 << REST_BITS) - 1;

/// The secret of one schema's ids.
pub(super) struct IdKey {
    key: Vec<u8>,
    tokens: TokenKey,
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
        let rows = link.query(include_str!("sql/get_store.sql"), &[]).await?;
        let row = rows.first().ok_or_else(|| super::job_rows::corrupt("no key of its ids"))?;
        Ok(IdKey::from_bytes(row.get("id_key")))
    }

    fn from_bytes(key: Vec<u8>) -> Self {
        IdKey { tokens: TokenKey::of(&key), key }
    }

    pub(super) fn draw(&self) -> Draw {
        let rest = Uuid::new_v4().as_u128() & REST;
        Draw { rest, mask: self.mask(rest) }
    }

    fn mask(&self, rest: u128) -> i64 {
        let digest = Sha256::new().chain_update(&self.key).chain_update(&rest.to_be_bytes()[6..]).finalize();
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
    pub(super) fn sequences(&self, ids: &[Uuid]) -> Vec<i64> {
        let key = self.id_key();
        ids.iter().map(|id| key.sequence(*id)).collect()
    }

    /// Where the jobs of these leases are, and whether each token is one of that job.
    pub(super) fn leased(&self, leases: &[LeaseKey]) -> Vec<(i64, bool)> {
        let key = self.id_key();
        let place = |lease: &LeaseKey| {
            let seq = key.sequence(lease.job.as_uuid());
            (seq, tokens::sequence(lease.token) == seq)
        };
        leases.iter().map(place).collect()
    }

    pub(super) fn draw_id(&self) -> Draw {
        self.id_key().draw()
    }

    /// What the tokens of leases are made with.
    pub(super) fn tokens(&self) -> &TokenKey {
        &self.id_key().tokens
    }

    /// Whether this is the key of the ids that were given out.
    pub(super) fn has_key(&self, key: &IdKey) -> bool {
        self.id_key().key == key.key
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
        let key = IdKey::from_bytes(vec![7; 32]);
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
