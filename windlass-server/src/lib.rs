//! What the `windlass` binary is made of.
//!
//! The library `windlass` holds every rule. Here is what a person or another program touches: the command line (`cli`),
//! the server (`serve`) with its HTTP API (`api`), a store that is reached through it (`remote`), workers that run
//! programs or call URLs (`exec`), the JSON shapes that all of them speak (`wire`), spans of what is done (`traces`), and
//! what shows that a store keeps its promises while everything around it fails (`torture`).

pub mod api;
pub mod cli;
pub mod exec;
mod outgoing;
pub mod remote;
pub mod serve;
pub mod torture;
mod traces;
pub mod wire;
