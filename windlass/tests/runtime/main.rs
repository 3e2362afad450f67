//! Client and worker end to end, on every store.

#[macro_use]
mod support;

mod chaos;
mod client;
mod context;
mod drained;
mod flow;
mod leases;
mod limits;
mod logs;
mod metrics;
mod outcomes;
mod pipeline;
mod prefetch;
mod schedules;
mod shutdown;
#[cfg(unix)]
mod signals;
#[cfg(feature = "webhooks")]
mod webhooks;
