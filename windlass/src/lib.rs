//! Durable background jobs: accepted work is not lost, not run by two holders at once, and not reported twice.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use windlass::{Client, Context, Failure, Job, Worker};
//!
//! #[derive(Serialize, Deserialize)]
//! struct WelcomeEmail { user_id: u64 }
//!
//! impl Job for WelcomeEmail {
//!     const TYPE: &'static str = "welcome_email";
//!     const QUEUE: &'static str = "mail";
//! }
//!
//! async fn send_welcome(job: WelcomeEmail, _cx: Context) -> Result<String, Failure> {
//!     Ok(format!("welcomed {}", job.user_id))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> windlass::Result<()> {
//! let client = Client::in_memory(); // or Client::open("sqlite:jobs.db"), Client::open("postgres://…")
//! let running = Worker::new(&client).queue("mail", 8).handle(send_welcome).start().await?;
//! let job = client.enqueue(WelcomeEmail { user_id: 7 }).idempotency_key("welcome-7").await?;
//! assert_eq!(client.wait(job.id).await?.state, windlass::State::Completed);
//! running.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The modules, each using only those before it
//!
//! | module | is |
//! |---|---|
//! | [`job`] | the job, its nine states, leases, retries, and every decision about them; pure |
//! | [`workflow`] | graphs of jobs: chain, group, chord, any DAG; pure |
//! | [`schedule`] | recurring work: cron with zones, fixed rate, fixed delay; pure |
//! | [`store`] | the trait that stores implement, the stores, and the conformance suite that holds them to the contract |
//! | [`client`] | enqueue, look at and operate jobs |
//! | [`worker`] | claim, run and settle them |
//!
//! # Features
//!
//! `sqlite`: jobs in a file, durable, nothing to install. `postgres`: many machines, one queue. `sqlx-0_8` and `sqlx-0_9`:
//! jobs in a transaction of your own sqlx. `opentelemetry`: a job continues the trace it was enqueued in. `conformance`: the public suite, for a store of your own. The memory store is
//! always there; it is for tests and forgets.

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
