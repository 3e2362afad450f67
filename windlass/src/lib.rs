//! Durable background jobs.

pub mod client;
pub mod clock;
pub mod error;
pub mod job;
pub mod observe;
pub mod schedule;
pub mod store;
pub mod testing;
pub mod time;
pub mod worker;
pub mod workflow;

pub use client::{Client, Schedule};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, Result};
pub use job::*;
pub use time::Timestamp;
pub use worker::{Context, Worker};
pub use workflow::Workflow;
