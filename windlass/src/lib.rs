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
//! # A tour
//!
//! **Put work in.** A [`Job`] is a plain struct with a name. A [`Client`] enqueues it, now or later
//! ([`delay`](client::Enqueue::delay), [`run_at`](client::Enqueue::run_at)), once per key
//! ([`idempotency_key`](client::Enqueue::idempotency_key)), and in a transaction of your own
//! ([`in_tx`](client::Enqueue::in_tx)). Jobs without a Rust type are a [`NewJob`] with a [`Payload`].
//!
//! **Take work out.** A [`Worker`] claims jobs from its queues and runs handlers, which are functions of the job and a
//! [`Context`]: application state, time left, checkpoints, progress, and completion in a transaction of your own. A
//! handler that cannot do its work answers a [`Failure`]; any error becomes a temporary one by `?`, and a
//! [`RetryPolicy`] says when to try again.
//!
//! **Put jobs together.** A [`Workflow`] is a graph of jobs: chain, group, chord or any other shape. A [`Schedule`] fires
//! jobs by cron expression, at a fixed rate or after a fixed delay.
//!
//! **Look and operate.** A [`JobRecord`] says everything about a job: its [`State`], its attempts, why it ended.
//! [`Client`] finds, explains, cancels, requeues and edits jobs, and pauses queues. [`observe`] names the metrics.
//!
//! **Test.** [`Client::for_tests`] has a clock that stands still until told, [`ManualClock`]; [`testing`] runs what is
//! due, fails attempts at any point, and looks at what was enqueued.
//!
//! # Where the rest is
//!
//! What most programs name is here in the root; everything else is in its module. Each module uses only those above it.
//!
//! | module | has |
//! |---|---|
//! | [`job`] | the job, its nine states, leases, retries, and every decision about them; pure |
//! | [`flow`] | flow control: limits, rates, fair turns and order of a queue's jobs; pure |
//! | [`workflow`] | graphs of jobs: chain, group, chord, any DAG; pure |
//! | [`schedule`] | recurring work: cron with zones, fixed rate, fixed delay; pure |
//! | [`store`] | the trait that stores implement, and the stores: `MemoryStore`, `SqliteStore`, `PostgresStore`; with the feature `conformance`, the suite that holds them to the contract |
//! | [`client`] | enqueue, look at and operate jobs |
//! | [`worker`] | claim, run and settle them |
//!
//! # Rules
//!
//! Pages that say *rule L6*, or *the contract*, mean the rules of
//! [semantics.md](https://github.com/windlass-jobs/windlass/blob/main/docs/semantics.md): what you may rely on, each with its tests.
//!
//! # What may grow
//!
//! Records that you are given, and enums of which there may be more one day, are `non_exhaustive`: match them with `..` and `_`, and
//! make them with their `new` (stores do) before setting what differs. So are [`RetryPolicy`] and [`store::Filter`], which have a method
//! for each field. Options with a default are made with `..Default::default()`; a new field there is no breaking change.
//! What you may match in full, because the rules fix it, is [`State`], [`Priority`] and what follows from them. What only stores build
//! or match ([`store::request`], [`store::answer`]) may change with each 0.x version: a store must not ignore what it does not know.
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `sqlite` | jobs in a file, durable, nothing to install |
//! | `postgres` | many machines, one queue |
//! | `sqlx-0_8`, `sqlx-0_9` | jobs in a transaction of your own sqlx, and on its pool; on PostgreSQL. On SQLite: the crate `windlass-sqlx-sqlite` |
//! | `jiff-0_2`, `chrono-0_4`, `time-0_3` | [`Timestamp`] from and into the types of these crates |
//! | `opentelemetry` | a job continues the trace it was enqueued in |
//! | `conformance` | the public suite, for a store of your own |
//!
//! The memory store is always there; it is for tests and forgets.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod client;
pub mod clock;
pub mod error;
pub mod flow;
pub mod job;
pub mod observe;
pub mod schedule;
pub mod store;
pub mod testing;
pub mod time;
pub mod worker;
pub mod workflow;

#[doc(inline)]
pub use client::{Client, Schedule};
#[doc(inline)]
pub use clock::ManualClock;
#[doc(inline)]
pub use error::{Error, Result};
#[doc(inline)]
pub use job::{
    Category, Failure, Job, JobId, JobRecord, JobType, NewJob, OrFailure, Payload, Policies, Priority, QueueName,
    RetryPolicy, State, WorkflowId,
};
#[doc(inline)]
pub use time::Timestamp;
#[doc(inline)]
pub use worker::{Context, Worker};
#[doc(inline)]
pub use workflow::Workflow;
