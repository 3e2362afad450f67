//! The binary as people and machines start it: real processes, real files, real signals.

mod deploy;
mod documents;
mod exec;
mod names;
mod owned;
mod panels;
mod policies;
mod printed;
mod run;
mod support;
#[cfg(feature = "opentelemetry")]
mod traces;
mod webhooks;
