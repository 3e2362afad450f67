//! What the `windlass` binary is made of.
//!
//! The library `windlass` holds every rule. Here is what a person or another program touches: the command line (`cli`),
//! the HTTP API (`api`), a store that is reached through it (`remote`), the JSON shapes that all speak (`wire`), the
//! server (`serve`), and workers that run programs or call URLs (`exec`).

pub mod api;
pub mod cli;
pub mod exec;
mod outgoing;
pub mod remote;
pub mod serve;
pub mod wire;
