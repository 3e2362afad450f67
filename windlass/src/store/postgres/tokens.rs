//! Lease tokens: 73 bits that nobody can guess, behind the sequence of each job.
//!
//! Drawing a token for each job in the server would cost a third of a claim, so only one secret is drawn and stored for
//! all jobs of a claim. What a job's holder is given is that secret under a permutation that is keyed by the schema's own
//! key and the job's sequence: a program that knows the token of one job learns nothing of the tokens
//! of the others. The store turns a token back into what is stored, so a lease is found by its token alone, and is the
//! job's only if the job's id leads to the same sequence.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::ids::{REST, REST_BITS};
use crate::job::LeaseToken;

/// Random bits on each side of the permutation.
const HALF_BITS: u32 = 37;
const HALF: u64 = (1 << HALF_BITS) - 1;
/// The bits of the version (4) and the variant (10) of a random UUID, which stay as they are.
const VERSION: u128 = 0x4 << 76 | 0b10 << 62;

/// The bit of what is stored that says whether jobs were claimed through gates, so that their ends are noted.
const CONTROLLED: u128 = 1;

/// Draws what is stored for the jobs of one claim.
pub(super) fn draw() -> Uuid {
    Uuid::from_u128(Uuid::new_v4().as_u128() & REST & !CONTROLLED)
}

/// Draws what is stored for the jobs of one claim from a controlled queue.
pub(super) fn draw_controlled() -> Uuid {
    Uuid::from_u128(Uuid::new_v4().as_u128() & REST | CONTROLLED)
}

/// Whether jobs with this stored part were claimed through gates.
pub(super) fn is_controlled(stored: Uuid) -> bool {
    stored.as_u128() & CONTROLLED != 0
}

/// The secret under which one schema's tokens are permuted.
#[derive(Clone, Copy)]
pub(super) struct TokenKey([u8; 32]);

impl TokenKey {
    /// From the key of the schema's ids, which every process of the store reads.
    pub(super) fn of(id_key: &[u8]) -> Self {
        TokenKey(Sha256::new().chain_update(b"windlass lease tokens").chain_update(id_key).finalize().into())
    }

    /// The token of a job.
    ///
    /// Two rounds of a Feistel network. Each half of one job's token is the stored half and a number that is computed with
    /// the job's own sequence and the fresh other half, so it tells nothing of another job's.
    pub(super) fn token(&self, seq: i64, stored: Uuid) -> LeaseToken {
        let (left, right) = halves(stored.as_u128());
        let left = left ^ self.round(0, seq, right);
        let right = right ^ self.round(1, seq, left);
        let front = u128::try_from(seq).unwrap_or_default() << REST_BITS;
        LeaseToken::from_uuid(Uuid::from_u128(front | joined(left, right)))
    }

    /// What is stored of a token.
    pub(super) fn stored(&self, token: LeaseToken) -> Uuid {
        let seq = sequence(token);
        let (left, right) = halves(token.as_uuid().as_u128());
        let right = right ^ self.round(1, seq, left);
        let left = left ^ self.round(0, seq, right);
        Uuid::from_u128(joined(left, right))
    }

    fn round(&self, number: u8, seq: i64, half: u64) -> u64 {
        let mut input = [0; 49];
        input[..32].copy_from_slice(&self.0);
        input[32] = number;
        input[33..41].copy_from_slice(&seq.to_be_bytes());
        input[41..].copy_from_slice(&half.to_be_bytes());
        let digest = Sha256::digest(input);
        digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) & HALF
    }
}

/// The sequence that a token begins with.
pub(super) fn sequence(token: LeaseToken) -> i64 {
    i64::try_from(token.as_uuid().as_u128() >> REST_BITS).unwrap_or_default()
}

/// The 74 random bits behind the sequence, in two halves.
fn halves(uuid: u128) -> (u64, u64) {
    let random = (uuid >> 64 & 0xfff) << 62 | uuid & ((1 << 62) - 1);
    (((random >> HALF_BITS) as u64) & HALF, random as u64 & HALF)
}

fn joined(left: u64, right: u64) -> u128 {
    let random = u128::from(left) << HALF_BITS | u128::from(right);
    VERSION | (random >> 62) << 64 | random & ((1 << 62) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_put_together_as_it_was_taken_apart() {
        let key = TokenKey::of(&[7; 32]);
        for seq in [1, 77, (1 << 48) - 1] {
            let drawn = draw();
            let token = key.token(seq, drawn);
            assert_eq!((sequence(token), key.stored(token)), (seq, drawn));
            assert_eq!(token.as_uuid().get_version_num(), 4);
            assert_eq!(token.as_uuid().get_variant(), uuid::Variant::RFC4122);
            assert!(!is_controlled(drawn) && is_controlled(key.stored(key.token(seq, draw_controlled()))));
        }
        assert_ne!(draw(), draw());
    }

    #[test]
    fn l21_the_tokens_of_one_claim_have_nothing_in_common() {
        let (key, drawn) = (TokenKey::of(&[7; 32]), draw());
        // Without the version and the variant, which all have.
        let random = REST & !(0xf << 76 | 0b11 << 62);
        let rest = |seq: i64| key.token(seq, drawn).as_uuid().as_u128() & random;
        let (mut same, pairs) = (0, 2000);
        for seq in 1..=pairs {
            assert_ne!(rest(seq), drawn.as_u128() & random, "the stored secret is not shown");
            same += (!(rest(seq) ^ rest(seq + 1)) & random).count_ones();
        }
        // 74 bits of which half agree by chance.
        let share = f64::from(same) / (74.0 * pairs as f64);
        assert!((0.48..0.52).contains(&share), "{share} of the bits agree");
    }

    #[test]
    fn another_schema_has_other_tokens() {
        let (one, other, drawn) = (TokenKey::of(&[1; 32]), TokenKey::of(&[2; 32]), draw());
        assert_ne!(one.token(5, drawn), other.token(5, drawn));
        assert_ne!(other.stored(one.token(5, drawn)), drawn);
    }
}
