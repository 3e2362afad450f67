//! Claims whose answer was lost: the connection broke, or nobody waited any longer (rule D6b).
//!
//! The server may have granted them, and then jobs would stand still until their leases expire, and an attempt would be counted
//! that nobody made. The common part of a claim's tokens is drawn here, so the process can find such leases, and its next
//! claims give them back.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Inner;
use super::fault::Fault;
use super::turns::Caller;
use crate::error::Result;
use crate::job::{JobId, Lease};

/// How long a claim is looked for: its statement may still run, but no longer than the server's limit for statements.
const LOOKED_FOR_MAX: Duration = Duration::from_secs(70);
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The claims of this process that may have been granted without anybody hearing of it.
#[derive(Debug, Default)]
pub(super) struct UnheardClaims(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The common part of the tokens, and when the answer was lost.
    claims: Vec<(Uuid, Instant)>,
    looked_at: Option<Instant>,
}

impl UnheardClaims {
    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.0.lock().expect("no panic while the claims are locked")
    }

    /// A claim is made: unless its answer [arrives](ClaimOnItsWay::arrived) it is noted.
    pub(super) fn begin(&self, common: Uuid) -> ClaimOnItsWay<'_> {
        ClaimOnItsWay { claims: self, common: Some(common) }
    }

    /// The claims to look for now.
    fn due(&self) -> Vec<Uuid> {
        let mut noted = self.noted();
        if noted.claims.is_empty() || noted.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Vec::new();
        }
        noted.looked_at = Some(Instant::now());
        noted.claims.retain(|(_, at)| at.elapsed() < LOOKED_FOR_MAX);
        noted.claims.iter().map(|(common, _)| *common).collect()
    }

    fn found(&self, found: &[Uuid]) {
        self.noted().claims.retain(|(common, _)| !found.contains(common));
    }
}

/// A claim that waits for its answer.
pub(super) struct ClaimOnItsWay<'c> {
    claims: &'c UnheardClaims,
    common: Option<Uuid>,
}

impl ClaimOnItsWay<'_> {
    /// Its answer is here, or it is certain that it has written nothing.
    pub(super) fn arrived(mut self) {
        self.common = None;
    }
}

impl Drop for ClaimOnItsWay<'_> {
    fn drop(&mut self) {
        if let Some(common) = self.common {
            self.claims.noted().claims.push((common, Instant::now()));
        }
    }
}

impl Inner {
    /// Gives back what was granted to this process without its hearing of it; what fails is tried again later.
    pub(super) async fn give_back_unheard(self: &Arc<Self>) {
        let commons = self.unheard.due();
        if commons.is_empty() {
            return;
        }
        match self.give_back(&commons).await {
            Ok(0) => {}
            Ok(jobs) => tracing::warn!(jobs, "gave back jobs of a claim whose answer was lost"),
            Err(error) => tracing::debug!(%error, "cannot give back jobs of a claim whose answer was lost"),
        }
    }

    async fn give_back(self: &Arc<Self>, commons: &[Uuid]) -> Result<usize> {
        let failed = |fault: Fault| fault.into_error("give back jobs");
        let link = self.link(Caller::Worker).await.map_err(failed)?;
        let rows = link.query(include_str!("sql/list_leased_by.sql"), &[&commons]).await.map_err(failed)?;
        drop(link);
        let tokens = |row: &super::driver_row::Row| (row.get("seq"), row.get("token"), row.get("id"));
        let leased: Vec<(i64, Uuid, Uuid)> = rows.iter().map(tokens).collect();
        let ids: Vec<JobId> = leased.iter().map(|(_, _, id)| JobId::from_uuid(*id)).collect();
        let jobs = self.find(&ids).await.map_err(failed)?;
        // They never started, so this is not counted.
        let release = |(job, (seq, token, _)): (Option<_>, &(i64, Uuid, Uuid))| {
            Some(Lease::granted(&job?, self.tokens().token(*seq, *token)).release())
        };
        let releases: Vec<_> = jobs.into_iter().zip(&leased).filter_map(release).collect();
        if !releases.is_empty() {
            self.settle(&releases).await?;
            let found: Vec<Uuid> = leased.iter().map(|(_, token, _)| *token).collect();
            self.unheard.found(&found);
        }
        Ok(releases.len())
    }
}
