//! `windlass-torture`: many processes on one store, faults all around them, and a checker that was there.
//!
//! Every process writes down what it asks of the store and what it is answered (`history`, `recording`). Workers are
//! killed, stalled and stopped, zombies settle long after their leases have ended, the store itself is disturbed (`faults`,
//! `fleet`, `server`). Then everything comes to rest, and the histories are held against what the store says (`check`).
//! It proves nothing that it did not see, so a run that saw too little is not a good one (`report`).
//!
//! `docs/torture.md` tells how to run it and what the numbers mean.

pub mod actors;
pub mod arena;
pub mod check;
pub mod cli;
pub mod dump;
pub mod faults;
mod fleet;
pub mod history;
pub mod jobs;
mod pair;
#[cfg(feature = "planted-bugs")]
pub mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted_failover;
#[cfg(feature = "planted-bugs")]
pub mod planted_flow;
pub mod process;
pub mod recording;
pub mod report;
mod run;
mod server;

pub use run::{Outcome, Progress, Settings, run};
