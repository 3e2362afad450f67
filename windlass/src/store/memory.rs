//! The memory store.

use crate::clock::Clock;

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore;

impl MemoryStore {
    /// On this clock.
    pub fn with_clock(_clock: impl Clock) -> Self {
        MemoryStore
    }
}
