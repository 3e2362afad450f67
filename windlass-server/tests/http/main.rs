//! The HTTP API, beyond what the conformance suite reaches through it: problems, limits, streams, waits, bulk work.

mod bounded;
mod bounds;
mod control;
mod documents;
mod leases;
mod numbers;
mod operators;
mod outcomes;
mod page;
mod problems;
mod schedules;
mod streams;
mod submit;
mod support;
mod workers;
