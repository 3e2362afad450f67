//! The JSON shapes of Windlass, and how they turn into the library's types and back.
//!
//! One set of shapes for HTTP and for `-o json`: snake_case, times as RFC 3339 UTC with microseconds, durations as text
//! (`"1m30s"`), states and priorities in lower case. Requests refuse members they do not know. A payload, result or
//! checkpoint stands as the JSON value it is; bytes that are no JSON stand in a member of the same name with `_base64`.
//!
//! Shapes hold no rule of the contract. What a request may say is checked by the library when it is turned into its types.

mod answer;
mod batch;
mod control;
mod data;
mod duration;
mod explain;
mod fault;
mod history;
mod job;
mod job_convert;
mod lane;
mod lease;
pub mod names;
mod new_job;
mod operate;
mod options;
mod policies;
mod problem;
mod record;
mod retention;
mod retry;
mod schedule;
mod settle;
#[cfg(test)]
mod tests;

pub use answer::*;
pub use batch::*;
pub use control::*;
pub use data::read;
pub use duration::{Limit, NotADuration, Span};
pub use explain::*;
pub use fault::*;
pub use history::*;
pub use job::*;
pub use lane::*;
pub use lease::*;
pub use new_job::*;
pub use operate::*;
pub use policies::{Policies, Policy};
pub use problem::*;
pub use record::*;
pub use retention::RetentionPatch;
pub use retry::*;
pub use schedule::*;
pub use settle::*;
