//! Traces of what the server and its workers do, for an OpenTelemetry collector (feature `opentelemetry`).
//!
//! The standard variables of the environment decide; without an endpoint there, or without the feature, nothing is kept
//! and nothing is sent. `otlp.rs` is the way to the collector. Not here: what a job remembers of the trace it was
//! enqueued in, which is the library's.

#[cfg(feature = "opentelemetry")]
mod on;
#[cfg(feature = "opentelemetry")]
mod otlp;

#[cfg(feature = "opentelemetry")]
pub(crate) use self::on::{Traces, of_here, of_request, tell_status};

#[cfg(not(feature = "opentelemetry"))]
mod off;
#[cfg(not(feature = "opentelemetry"))]
pub(crate) use self::off::{Traces, of_here, of_request, tell_status};
