//! The running thing that claims jobs and runs their handlers.
//!
//! A job goes through `fetcher.rs` (claims, into free slots and a little ahead of them) → `runner.rs` (runs the handler) → `decide.rs` (from its end
//! to a decision) → `committer.rs` (settles in batches) → `conclude.rs` (counts, tells and logs the answer). Beside them
//! run `heartbeat.rs` (keeps leases alive, on a thread of its own), `upkeep.rs` and, at the end, `shutdown.rs`. Nothing
//! here is trusted: the store checks the lease in every write.

mod attempt;
mod builder;
mod committer;
mod conclude;
mod context;
mod decide;
mod drain;
mod fetcher;
mod handled;
mod handler;
mod heartbeat;
mod middleware;
mod pace;
mod patience;
mod rotation;
mod runner;
mod schedules;
mod settings;
mod shared;
mod shutdown;
mod signals;
mod upkeep;
mod waiting;
#[cfg(feature = "webhooks")]
pub mod webhooks;

pub use attempt::Attempt;
pub use builder::{SLOTS_MAX, Worker};
pub use context::Context;
pub use drain::{CrashPoint, DRAIN_MAX, Drained};
pub use handled::Failed;
pub use handler::HandlerResult;
pub use middleware::{Middleware, Next};
pub use schedules::LeftSchedules;
pub use shutdown::{Running, Stop, Stopped};
pub use signals::stop_signal;
pub use upkeep::upkeep_until;
