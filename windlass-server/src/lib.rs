//! What the `windlass` binary is made of.
//!
//! The library `windlass` holds every rule. Here is what a person or another program touches: the command line (`cli`),
//! the server (`serve`) with its HTTP API (`api`) and its page for browsers (`page`), a store that is reached through it
//! (`remote`), workers that run programs or call URLs (`exec`), the JSON shapes that all of them speak (`wire`), and spans
//! of what is done (`traces`).

pub mod api;
pub mod cli;
pub mod exec;
mod figures;
mod firings;
mod history;
mod keys;
mod marked;
mod moved;
mod page;
pub mod remote;
pub mod serve;
mod sparing;
mod traces;
pub mod wire;
