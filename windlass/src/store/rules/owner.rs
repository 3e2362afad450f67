//! Whom a store belongs to: a command that settles and removes jobs by itself takes no store but its own.

use crate::error::{Error, Result};

/// What is known of a store before it is taken.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    /// Whom it belongs to already.
    pub owner: Option<String>,
    /// Jobs that it ever took.
    pub accepted: u64,
    /// Whether it has schedules, or queues that are paused or hold jobs.
    pub in_use: bool,
}

impl Holding {
    /// Whether the store has yet to be marked; refuses one that somebody else has used.
    pub fn take(&self, owner: &str) -> Result<bool> {
        match &self.owner {
            Some(known) if known == owner => Ok(false),
            Some(known) => Err(Error::Conflict(format!("it belongs to `{known}`"))),
            None if self.accepted > 0 => {
                let problem = format!("it has taken {} jobs that are not known to be its own", self.accepted);
                Err(Error::Conflict(problem))
            }
            None if self.in_use => Err(Error::Conflict("it holds schedules or queues that are not its own".to_owned())),
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unused_store_and_ones_own_are_taken() {
        let unused = Holding::default();
        assert!(unused.take("bench").expect("free"));
        let own = Holding { owner: Some("bench".to_owned()), accepted: 9, in_use: true };
        assert!(!own.take("bench").expect("its own"));
        assert!(own.take("demo").is_err(), "another's");
        assert!(Holding { accepted: 1, ..Holding::default() }.take("bench").is_err());
        assert!(Holding { in_use: true, ..Holding::default() }.take("bench").is_err());
    }
}
