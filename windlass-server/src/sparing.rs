//! Log lines that come no more often than is of use: an outage must not fill the disk with the same words.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Says something at most once in a while, and how often it was left out.
#[derive(Debug)]
pub(crate) struct Sparing {
    every: Duration,
    said: Mutex<(Option<Instant>, u64)>,
}

impl Sparing {
    /// At most once in this time.
    pub(crate) const fn new(every: Duration) -> Self {
        Sparing { every, said: Mutex::new((None, 0)) }
    }

    /// Calls `say` with how many were left out since it was last called, or leaves this one out too.
    pub(crate) fn say(&self, say: impl FnOnce(u64)) {
        if let Some(left_out) = self.due(Instant::now()) {
            say(left_out);
        }
    }

    fn due(&self, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().expect("nothing panics while it holds this lock");
        if said.0.is_some_and(|at| now.saturating_duration_since(at) < self.every) {
            said.1 += 1;
            return None;
        }
        said.0 = Some(now);
        Some(std::mem::take(&mut said.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l17_the_same_words_come_once_in_a_while_and_the_others_are_counted() {
        let sparing = Sparing::new(Duration::from_secs(1));
        let begun = Instant::now();
        let due: Vec<_> = (0..30).filter_map(|tenth| sparing.due(begun + Duration::from_millis(tenth * 100))).collect();
        assert_eq!(due, [0, 9, 9]);
    }
}
