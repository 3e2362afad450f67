//! Webhooks as this server delivers them; the library does the work ([`windlass::worker::webhooks`]).

use std::time::Duration;

pub(crate) use windlass::worker::webhooks::signatures;
pub use windlass::worker::webhooks::{Allowed, Deliverer, Lookup, Secret, SystemLookup, Webhooks};

/// A new secret, as it is written.
pub fn create_secret() -> anyhow::Result<String> {
    Ok(Secret::from_bytes(&super::guard::random::<32>()?)?.reveal())
}

/// How long a worker of webhooks waits for deliveries under way when it stops.
pub(super) fn grace(settings: &Webhooks, most: Duration) -> Duration {
    (settings.timeout + Duration::from_secs(1)).min(most)
}
