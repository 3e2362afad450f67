//! What the `windlass` binary is made of.
//!
//! The library `windlass` holds every rule. Here is what a person or another program touches: the command line (`cli`),
//! the HTTP API (`api`), a store that is reached through it (`remote`), and the JSON shapes that all speak (`wire`).

pub mod api;
pub mod cli;
pub mod remote;
pub mod wire;
