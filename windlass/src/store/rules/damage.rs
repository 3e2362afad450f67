//! Damaged jobs: a claim that meets them ends them in DEAD_LETTER and hands out the others.

use crate::job::Settlement;
use crate::store::answer::Claimed;

/// How often one call looks for jobs when it found only damaged ones: it must end, however many there are.
pub const DAMAGED_CLAIMS_MAX: usize = 16;

/// Takes damaged jobs out of a claim: the settlements that set them aside, and the jobs that can be run.
pub fn split_damaged(claimed: Vec<Claimed>) -> (Vec<Settlement>, Vec<Claimed>) {
    if claimed.iter().all(|claimed| claimed.job.spec.damage.is_none()) {
        return (Vec::new(), claimed);
    }
    let (damaged, sound): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|claimed| claimed.job.spec.damage.is_some());
    for claimed in &damaged {
        let (job, spec) = (&claimed.job, &claimed.job.spec);
        // What is damaged may hold what nobody should read in a log.
        tracing::error!(
            job.id = %job.id,
            job.type = %spec.job_type,
            queue = %spec.queue,
            "a damaged job was set aside; `windlass store check` says what cannot be read"
        );
    }
    (damaged.into_iter().map(|claimed| claimed.lease.set_aside()).collect(), sound)
}
