//! Jobs whose numbers are close together: their leases are written and ended in one statement, which costs half of what a
//! statement for each costs. Their tokens go along as one blob, in which a job's own is found by its number.

use super::columns::TOKEN_BYTES;
use crate::job::LeaseToken;

/// How many numbers further on the next job of a run may be. What stands in between is looked at in vain.
const STEP_MAX: i64 = 8;
/// The same where the jobs are found by their place in a lane: nothing is looked at in vain, and the blob grows.
const LANE_STEP_MAX: i64 = 64;

/// Whether a job goes into the same run as the one before it.
pub(super) fn follows(before: i64, seq: i64) -> bool {
    before < seq && seq - before <= STEP_MAX
}

/// The same for jobs that stand beside each other in a lane.
pub(super) fn follows_in_lane(before: i64, seq: i64) -> bool {
    before < seq && seq - before <= LANE_STEP_MAX
}

/// The tokens of a run, from the number of its first job on; zeros, which are the token of no lease, between them.
pub(super) fn tokens(run: impl Iterator<Item = (i64, LeaseToken)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut first = None;
    for (seq, token) in run {
        let place = usize::try_from(seq - *first.get_or_insert(seq)).expect("a run ascends");
        bytes.resize(TOKEN_BYTES * place, 0);
        bytes.extend_from_slice(token.as_uuid().as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_token_is_found_by_the_number_of_its_job() {
        let token = |byte| LeaseToken::from_uuid(Uuid::from_bytes([byte; TOKEN_BYTES]));
        let bytes = tokens([(5, token(1)), (6, token(2)), (9, token(3))].into_iter());
        let (each, rest) = bytes.as_chunks::<TOKEN_BYTES>();
        assert_eq!(each.iter().map(|token| token[0]).collect::<Vec<_>>(), [1, 2, 0, 0, 3]);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_run_ascends_in_small_steps() {
        assert!(follows(4, 5) && follows(4, 4 + STEP_MAX));
        assert!(!follows(5, 5) && !follows(5, 4) && !follows(4, 5 + STEP_MAX));
    }
}
