//! Client and worker end to end, on every store.

#[macro_use]
mod support;

mod client;
mod context;
mod drained;
mod leases;
mod outcomes;
mod pipeline;
mod schedules;
mod shutdown;
