//! What an operator may change about a job, and when.

use std::collections::BTreeMap;

use super::options::{CORRELATION_CHARS_MAX, check_chars, check_tags, check_url};
use super::{JobRecord, Priority, State};
use crate::error::{Error, Result};

/// A change to what may be changed (rule J3). What is `None` stays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edit {
    /// A new priority; not for running or ended jobs.
    pub priority: Option<Priority>,
    /// New tags in place of the old; in any state.
    pub tags: Option<BTreeMap<String, String>>,
    /// A new correlation id, or none; not for ended jobs.
    pub correlation_id: Option<Option<String>>,
    /// A new callback URL, or none; not for ended jobs.
    pub callback_url: Option<Option<String>>,
}

impl Edit {
    /// Refuses values out of bounds.
    pub fn check(&self) -> Result<()> {
        if let Some(tags) = &self.tags {
            check_tags(tags)?;
        }
        if let Some(Some(id)) = &self.correlation_id {
            check_chars("correlation_id", id, CORRELATION_CHARS_MAX)?;
        }
        if let Some(Some(url)) = &self.callback_url {
            check_url(url)?;
        }
        Ok(())
    }

    /// Refuses a job whose state does not allow this change.
    pub fn allowed(&self, job: &JobRecord) -> Result<()> {
        if let Some(damage) = &job.spec.damage {
            // What cannot be read would be written over.
            return Err(Error::Conflict(format!("job {} is damaged and cannot be edited: {damage}", job.id)));
        }
        let refuse = |wanted| Err(Error::IllegalState { job: job.id, state: job.state, wanted });
        if self.priority.is_some() && (job.state.is_terminal() || job.state == State::Running) {
            return refuse("reprioritise");
        }
        if job.state.is_terminal() && (self.correlation_id.is_some() || self.callback_url.is_some()) {
            return refuse("edit");
        }
        Ok(())
    }

    /// Changes the job. A priority inherited from dependencies still holds if it is more urgent.
    pub fn apply(&self, job: &mut JobRecord) {
        let spec = std::sync::Arc::make_mut(&mut job.spec);
        if let Some(priority) = self.priority {
            spec.priority = priority;
        }
        if let Some(tags) = &self.tags {
            spec.options.tags.clone_from(tags);
        }
        if let Some(id) = &self.correlation_id {
            spec.options.correlation_id.clone_from(id);
        }
        if let Some(url) = &self.callback_url {
            spec.options.callback_url.clone_from(url);
        }
    }
}
