//! Job ids that lead to their row without an index.
//!
//! A unique index on random UUIDs is the dearest thing in such a file: every insert dirties a page of its own. So an id
//! is drawn as a keyed permutation of (sequence, random bits), with the bits of version 4 set: it looks and spreads like
//! any other, and a store that has the file's key reads the sequence out of it. The stored id is still compared.

use uuid::Uuid;

use crate::job::JobId;

/// Bits of the sequence: 17 million million jobs. The other 78 of an id's 122 free bits are random.
const SEQUENCE_BITS: u32 = 44;
const RANDOM_BITS: u32 = 122 - SEQUENCE_BITS;
const HALF: u64 = (1 << 61) - 1;
const ROUNDS: usize = 4;
/// Bytes of a key in the file.
pub(super) const KEY_BYTES: usize = 8 * ROUNDS;

/// The secret of one file's ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct IdKey([u64; ROUNDS]);

impl IdKey {
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; KEY_BYTES] = bytes.try_into().ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        Some(IdKey(std::array::from_fn(|round| u64::from_le_bytes(words[round]))))
    }

    /// The id of the job with this sequence; `random` is drawn anew for each.
    pub(super) fn id(&self, sequence: i64, random: u128) -> JobId {
        let sequence = u128::try_from(sequence).unwrap_or_default();
        debug_assert!(sequence >> SEQUENCE_BITS == 0, "a file holds fewer jobs than that");
        let block = (sequence << RANDOM_BITS) | (random & ((1 << RANDOM_BITS) - 1));
        let (mut left, mut right) = ((block >> 61) as u64, block as u64 & HALF);
        for key in self.0 {
            (left, right) = (right, left ^ mix(right, key));
        }
        JobId::from_uuid(Uuid::from_u128(dress(u128::from(left) << 61 | u128::from(right))))
    }

    /// The sequence that an id of this file leads to; of another id, some number.
    pub(super) fn sequence(&self, id: JobId) -> i64 {
        let block = undress(id.as_uuid().as_u128());
        let (mut left, mut right) = ((block >> 61) as u64, block as u64 & HALF);
        for key in self.0.iter().rev() {
            (left, right) = (right ^ mix(left, *key), left);
        }
        let block = u128::from(left) << 61 | u128::from(right);
        i64::try_from(block >> RANDOM_BITS).unwrap_or(i64::MAX)
    }
}

fn mix(half: u64, key: u64) -> u64 {
    let mut mixed = half.wrapping_add(key);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) & HALF
}

/// Spreads 122 bits around the version and the variant of a random UUID.
fn dress(block: u128) -> u128 {
    let (high, middle, low) = (block >> 74, (block >> 62) & 0xfff, block & ((1 << 62) - 1));
    (high << 80) | (0x4 << 76) | (middle << 64) | (0b10 << 62) | low
}

fn undress(uuid: u128) -> u128 {
    let (high, middle, low) = (uuid >> 80, (uuid >> 64) & 0xfff, uuid & ((1 << 62) - 1));
    (high << 74) | (middle << 62) | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_sequence_and_looks_random() {
        let key = IdKey::from_bytes(&[7; KEY_BYTES]).expect("a key");
        let mut firsts = std::collections::HashSet::new();
        for sequence in (1..5000).chain([(1 << SEQUENCE_BITS) - 1]) {
            let id = key.id(sequence, Uuid::new_v4().as_u128());
            assert_eq!(id.as_uuid().get_version_num(), 4);
            assert_eq!(id.as_uuid().get_variant(), uuid::Variant::RFC4122);
            assert_eq!(key.sequence(id), sequence);
            firsts.insert(id.as_uuid().as_bytes()[0]);
        }
        assert_eq!(firsts.len(), 256, "ids spread over the whole range");
    }

    #[test]
    fn the_same_sequence_has_another_id_in_another_draw() {
        let key = IdKey::from_bytes(&[9; KEY_BYTES]).expect("a key");
        assert_ne!(key.id(1, 1), key.id(1, 2));
        assert!(IdKey::from_bytes(&[1, 2]).is_none());
    }
}
