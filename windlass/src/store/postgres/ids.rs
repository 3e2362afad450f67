//! The key of one schema's ids, and where the jobs of ids and leases are; see [`crate::store::ids`].

use uuid::Uuid;

use super::Inner;
use super::fault::Fault;
use super::link::Link;
use super::tokens::{self, TokenKey};
use crate::job::LeaseKey;
use crate::store::ids;
pub(super) use crate::store::ids::{Draw, REST, REST_BITS};

/// The secret of one schema's ids, and what the tokens of its leases are made with.
pub(super) struct IdKey {
    key: ids::IdKey,
    tokens: TokenKey,
}

impl IdKey {
    pub(super) async fn read(link: &Link<'_>) -> Result<Self, Fault> {
        let rows = link.query(include_str!("sql/get_store.sql"), &[]).await?;
        let row = rows.first().ok_or_else(|| super::job_rows::corrupt("no key of its ids"))?;
        let key = ids::IdKey::from_bytes(row.get("id_key"));
        Ok(IdKey::of(key.ok_or_else(|| super::job_rows::corrupt("a key of its ids of a wrong length"))?))
    }

    pub(super) fn of(key: ids::IdKey) -> Self {
        IdKey { tokens: TokenKey::of(key.as_bytes()), key }
    }
}

impl Inner {
    /// Where the jobs with these ids are, if they exist.
    pub(super) fn sequences(&self, ids: &[Uuid]) -> Vec<i64> {
        let key = self.id_key().key;
        ids.iter().map(|id| key.sequence(*id)).collect()
    }

    /// Where the jobs of these leases are, and whether each token is one of that job.
    pub(super) fn leased(&self, leases: &[LeaseKey]) -> Vec<(i64, bool)> {
        let key = self.id_key().key;
        let place = |lease: &LeaseKey| {
            let seq = key.sequence(lease.job.as_uuid());
            (seq, tokens::sequence(lease.token) == seq)
        };
        leases.iter().map(place).collect()
    }

    pub(super) fn draw_id(&self) -> Draw {
        self.id_key().key.draw()
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
