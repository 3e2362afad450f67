//! What the `windlass` binary is made of.
//!
//! The library `windlass` holds every rule. Here is what a person or another program touches: the command line (`cli`),
//! the HTTP API (`api`) and the JSON shapes that both speak (`wire`).

pub mod api;
pub mod cli;
pub mod wire;
