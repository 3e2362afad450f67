//! Ids and lease tokens that lead to their row without an index, the same in both SQL stores.
//!
//! A unique index on random ids is the dearest thing in such a table: every insert dirties a page of its own. So the first 48
//! bits of an id are the job's sequence under a mask that only the store can take off: it is computed from the other, random
//! bits and a key of the store. The id looks like any of version 4, and the stored one is still compared. A lease token
//! begins with its job's sequence.
//!
//! Because both stores make them alike, a store that is moved to another keeps its ids and leases by keeping its key.
//! The SQL function `enqueue` of PostgreSQL computes the same mask, so the mask is of a kind that PostgreSQL can compute.

use sha2::{Digest, Sha256};
use uuid::Uuid;

#[cfg(feature = "sqlite")]
use crate::job::LeaseToken;
use crate::job::{JobId, JobType, Payload};

/// Bits of an id behind the sequence: 74 random ones, the version and the variant.
pub(crate) const REST_BITS: u32 = 80;
pub(crate) const REST: u128 = (1 << REST_BITS) - 1;
/// The bits of the version (4) and the variant (10) of a random UUID.
#[cfg(feature = "sqlite")]
const VERSION: u128 = 0x4 << 76 | 0b10 << 62;
/// Bytes of a key in a store.
pub(crate) const KEY_BYTES: usize = 32;

/// The secret of one store's ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdKey([u8; KEY_BYTES]);

/// What an id will be, but for the sequence.
#[derive(Clone, Copy)]
pub(crate) struct Draw {
    rest: u128,
    pub(crate) mask: i64,
}

impl Draw {
    /// The part that is the same whatever the sequence, as hexadecimal digits.
    #[cfg(feature = "postgres")]
    pub(crate) fn rest(&self) -> String {
        format!("{:020x}", self.rest)
    }

    pub(crate) fn id(&self, seq: i64) -> JobId {
        let front = u128::try_from(seq ^ self.mask).unwrap_or_default();
        JobId::from_uuid(Uuid::from_u128(front << REST_BITS | self.rest))
    }
}

impl IdKey {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(IdKey)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn draw(&self) -> Draw {
        let rest = Uuid::new_v4().as_u128() & REST;
        Draw { rest, mask: self.mask(rest) }
    }

    /// An id for a job whose own cannot be read: the same at every reading, and it leads to the row.
    #[cfg(feature = "sqlite")]
    pub(crate) fn substitute(&self, seq: i64) -> JobId {
        Draw { rest: VERSION, mask: self.mask(VERSION) }.id(seq)
    }

    fn mask(&self, rest: u128) -> i64 {
        let digest = Sha256::new().chain_update(self.0).chain_update(&rest.to_be_bytes()[6..]).finalize();
        digest[..6].iter().fold(0, |mask, byte| mask << 8 | i64::from(*byte))
    }

    /// The sequence that an id of this store leads to; of another id, some number.
    pub(crate) fn sequence(&self, id: Uuid) -> i64 {
        let front = i64::try_from(id.as_u128() >> REST_BITS).unwrap_or_default();
        front ^ self.mask(id.as_u128() & REST)
    }
}

/// A new lease token for a job: its sequence, and 74 bits that nobody can guess.
#[cfg(feature = "sqlite")]
pub(crate) fn lease_token(seq: i64) -> LeaseToken {
    let front = u128::try_from(seq).unwrap_or_default() << REST_BITS;
    LeaseToken::from_uuid(Uuid::from_u128(front | Uuid::new_v4().as_u128() & REST))
}

/// What is kept of a job to recognise it by, with its idempotency key, when the job is long gone.
pub(crate) fn key_fingerprint(job_type: &JobType, payload: &Payload) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(job_type.as_str());
    digest.update(b" ");
    digest.update(payload.stored_content_type().unwrap_or_default());
    digest.update([0]);
    digest.update(payload.as_bytes());
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_sequence_and_looks_random() {
        let key = IdKey::from_bytes(&[7; KEY_BYTES]).expect("a key");
        let mut firsts = std::collections::HashSet::new();
        for seq in (1..5000).chain([(1 << 48) - 1]) {
            let draw = key.draw();
            let id = draw.id(seq).as_uuid();
            assert_eq!(id.get_version_num(), 4);
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(key.sequence(id), seq);
            firsts.insert(id.as_bytes()[0]);
        }
        assert_eq!(firsts.len(), 256, "ids spread over the whole range");
        assert!(IdKey::from_bytes(&[1, 2]).is_none());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn an_id_ends_with_what_was_drawn() {
        let draw = IdKey::from_bytes(&[7; KEY_BYTES]).expect("a key").draw();
        assert!(draw.id(1).as_uuid().simple().to_string().ends_with(&draw.rest()));
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn what_a_file_draws_is_a_random_uuid_behind_the_sequence() {
        let key = IdKey::from_bytes(&[9; KEY_BYTES]).expect("a key");
        assert_ne!(key.draw().id(1), key.draw().id(1), "the same sequence has another id in another draw");
        assert_eq!(key.sequence(key.substitute(77).as_uuid()), 77);
        let token = lease_token(5).as_uuid();
        assert_eq!((token.as_u128() >> REST_BITS, token.get_version_num()), (5, 4));
        assert_ne!(lease_token(5), lease_token(5));
    }
}
