//! Lease tokens: 74 random bits that the jobs of one claim have in common, behind the sequence of each job.
//!
//! Drawing a token for each job would cost a third of a claim, and only what they have in common is stored. So a lease is
//! found by its token alone, and is the job's only if the job's id leads to the same sequence.

use uuid::Uuid;

use super::ids::{REST, REST_BITS};
use crate::job::LeaseToken;

/// Draws what the tokens of one claim have in common, as it is stored.
pub(super) fn draw() -> Uuid {
    Uuid::from_u128(Uuid::new_v4().as_u128() & REST)
}

/// The token of a job.
pub(super) fn of(seq: i64, stored: Uuid) -> LeaseToken {
    let front = u128::try_from(seq).unwrap_or_default() << REST_BITS;
    LeaseToken::from_uuid(Uuid::from_u128(front | stored.as_u128() & REST))
}

/// What is stored of a token.
pub(super) fn stored(token: LeaseToken) -> Uuid {
    Uuid::from_u128(token.as_uuid().as_u128() & REST)
}

/// The sequence that a token begins with.
pub(super) fn sequence(token: LeaseToken) -> i64 {
    i64::try_from(token.as_uuid().as_u128() >> REST_BITS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_put_together_as_it_was_taken_apart() {
        for seq in [1, 77, (1 << 48) - 1] {
            let common = draw();
            let token = of(seq, common);
            assert_eq!((sequence(token), stored(token)), (seq, common));
            assert_eq!(token.as_uuid().get_version_num(), 4);
        }
        assert_ne!(draw(), draw());
    }
}
