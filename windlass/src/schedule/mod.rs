//! Recurring work.
