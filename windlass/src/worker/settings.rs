//! The numbers of a worker, each with its reason.

use std::time::Duration;

use super::schedules::LeftSchedules;
use crate::store::Retention;

/// Short, so that the jobs of a dead worker run again soon (rule L6).
const LEASE_TIME: Duration = Duration::from_secs(5);
/// A lost hint, and a job whose delay ends, waits at most this long.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Most process managers kill after 30 s.
const GRACE: Duration = Duration::from_secs(25);
/// The last part of the grace period, in which no handler runs any more: a fifth of it, but no more than this.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// In a short grace period the last settlements get this long all the same, or half of it.
const FLUSH_MIN: Duration = Duration::from_secs(2);
/// The very end of the grace period, in which the worker takes its leave of the store: a tenth of it, but no more than this.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// The margin of a fence is no longer than this, or a long lease would be given up before the execution timeout's notice is.
const FENCE_MARGIN_MAX: Duration = Duration::from_millis(500);
/// Expired leases are taken back within a second (rule L7).
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) host: String,
    pub(super) lease_time: Duration,
    pub(super) heartbeat_interval: Option<Duration>,
    /// How long a handler may run on under a lease that could not be confirmed.
    pub(super) hold: Duration,
    pub(super) poll_interval: Duration,
    pub(super) grace: Duration,
    /// Whether it does upkeep at all.
    pub(super) upkeep: bool,
    pub(super) upkeep_interval: Duration,
    pub(super) retention: Retention,
    pub(super) concurrency: Option<usize>,
    pub(super) strict: bool,
    /// How many jobs it claims ahead of free slots at most; `None` for as many as its pace allows.
    pub(super) prefetch: Option<usize>,
    pub(super) seed: Option<u64>,
    pub(super) left: LeftSchedules,
}

impl Settings {
    /// How often heartbeats are sent: every third of the lease time unless set otherwise, so that two may be lost, and
    /// never less often than every half of it.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_interval.unwrap_or(self.lease_time / 3).min(self.lease_time / 2)
    }

    /// How much of the grace period handlers get; the rest is for giving jobs back and the last settlements.
    pub(super) fn grace_of_handlers(&self) -> Duration {
        self.grace - (self.grace / 5).clamp(FLUSH_MIN.min(self.grace / 2), FLUSH_MAX)
    }

    /// How much of the grace period passes until every settlement is durable or given up.
    pub(super) fn grace_of_settlements(&self) -> Duration {
        self.grace - (self.grace / 10).min(LEAVE_MAX)
    }

    /// How long before its end a lease that was not confirmed counts as lost: clocks may run at different rates.
    pub(super) fn fence_margin(&self) -> Duration {
        (self.lease_time / 50).min(FENCE_MARGIN_MAX)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            host: host_name(),
            lease_time: LEASE_TIME,
            heartbeat_interval: None,
            hold: Duration::ZERO,
            poll_interval: POLL_INTERVAL,
            grace: GRACE,
            upkeep: true,
            upkeep_interval: UPKEEP_INTERVAL,
            retention: Retention::default(),
            concurrency: None,
            strict: false,
            prefetch: None,
            seed: None,
            left: LeftSchedules::default(),
        }
    }
}

/// The machine's name, for people; nothing is keyed on it.
fn host_name() -> String {
    let read =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    read.ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
