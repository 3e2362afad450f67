//! Doors for the fuzzers in `fuzz/`: what stores read and nobody else can reach.

/// Reads the words of a notification.
pub fn notification(text: &str) {
    super::postgres::read_notification(text);
}

/// Reads bytes as each of the things that rows hold.
pub fn rows(bytes: &[u8]) {
    super::sqlite::read_columns(bytes);
    super::postgres::read_columns(bytes);
    super::sealed::read_envelope(bytes);
}
