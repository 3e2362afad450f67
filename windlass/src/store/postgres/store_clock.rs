//! The store's time: the server's clock, corrected so that it never runs back and never leaps (rules L8 and D6b).
//!
//! The correction stands in the row of the pulse, as `skew`. It is chosen when a clock is seen to have leapt: on a fresh
//! connection to another server, before any other statement runs there, and by the beats of a server whose clock was set. Beats
//! then take it back, by a twentieth of the time that passes, so that the store's time runs a little slower or faster until
//! both agree. A process that was just started cannot know whether another server's clock is right: for some seconds it leaves that
//! to those that knew the time before, and meanwhile takes and ends nothing. Statements read it only in processes that know of one, which look every second whether
//! it is gone; all others have nothing to ask for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Inner;
use super::fault::Fault;
use super::link::Link;
use super::pulse::PulseRow;
use super::turns::Caller;
use crate::clock::{DOUBT, ToldTime, passed};
use crate::time::Timestamp;

/// How old a correction may be that a process goes by.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a process knows of the store's time.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    /// Whether anything is added to the server's clock.
    skewed: AtomicBool,
    told: Mutex<Option<ToldTime>>,
    /// Since when this process, which was not there before, doubts the clock of another server, by the steady clock.
    doubts_from: Mutex<Option<Duration>>,
    in_doubt: AtomicBool,
}

impl StoreClock {
    fn told(&self) -> Option<ToldTime> {
        *self.told.lock().expect("no panic while the time is locked")
    }

    /// Whether the server's clock is corrected, as far as the process knows.
    pub(super) fn is_skewed(&self) -> bool {
        self.skewed.load(Ordering::Relaxed)
    }

    pub(super) fn learn(&self, told: ToldTime, skew: i64) {
        self.skewed.store(skew != 0, Ordering::Relaxed);
        *self.told.lock().expect("no panic while the time is locked") = Some(told);
    }

    /// Whether the time is left to others: this process has never known it, and others have not yet said that it is right.
    pub(super) fn doubts(&self, row: &PulseRow) -> bool {
        let mut from = self.doubts_from.lock().expect("no panic while the doubt is locked");
        let mut is_new = || passed().saturating_sub(*from.get_or_insert_with(passed)) < DOUBT;
        let doubts = self.told().is_none() && row.is_doubtful() && is_new();
        self.in_doubt.store(doubts, Ordering::Relaxed);
        doubts
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// By how many microseconds an answer is off what was expected; 0 where nothing is known.
    pub(super) fn leap(&self, later: &ToldTime) -> i64 {
        self.told().map_or(0, |told| told.leap(later))
    }

    fn is_due(&self) -> bool {
        (self.is_skewed() || self.is_in_doubt())
            && self.told().is_none_or(|told| passed().saturating_sub(told.at()) >= LOOK_EVERY)
    }
}

impl Inner {
    /// Whether a time that the server told is far ahead of what was expected. One that is behind proves nothing: its answer may
    /// have waited, for the standby or for this process.
    pub(super) fn leaps_ahead(&self, now: Timestamp) -> bool {
        let at = passed();
        self.clock.is_none() && self.store_clock.leap(&ToldTime::new(now, at, at, self.store_clock.is_skewed())) > 0
    }

    /// Between which times a statement runs that is sent now, unless the server's clock leapt. By a clock that leapt nothing is
    /// claimed or extended: the next beat sets it right.
    pub(super) fn expected_time(&self) -> (i64, i64) {
        if self.store_clock.is_in_doubt() {
            return (i64::MAX, i64::MIN);
        }
        let told = self.store_clock.told().filter(|_| self.clock.is_none());
        told.and_then(|told| told.expected(passed())).unwrap_or((i64::MIN, i64::MAX))
    }

    /// Whether a time that was asked for at this reading of the steady clock is far from what was expected.
    pub(super) fn leapt(&self, now: Timestamp, asked: Duration) -> bool {
        let told = ToldTime::new(now, asked, passed(), self.store_clock.is_skewed());
        self.clock.is_none() && self.store_clock.leap(&told) != 0
    }

    /// Asks for the correction of the server's clock again, if one is being taken back.
    pub(super) async fn follow_skew(&self, link: &mut Link<'_>) -> Result<(), Fault> {
        if self.store_clock.is_due() { self.look_at_clock(link).await.map(drop) } else { Ok(()) }
    }

    /// Reads the pulse and the time, and learns the correction; a leap is set right first.
    pub(super) async fn look_at_clock(&self, link: &mut Link<'_>) -> Result<(crate::clock::Pulse, Timestamp), Fault> {
        let asked = passed();
        let row = self.pulse_row(link).await?;
        if self.clock.is_none() && self.store_clock.doubts(&row) {
            self.store_clock.skewed.store(row.skew != 0, Ordering::Relaxed);
            link.correct_clock(row.skew != 0);
            return Ok((row.pulse, row.now));
        }
        let told = ToldTime::new(row.now, asked, passed(), row.skew != 0);
        if self.clock.is_some() || row.pulse.set_right(row.now, self.store_clock.leap(&told)) == 0 {
            self.store_clock.learn(told, row.skew);
            link.correct_clock(row.skew != 0);
            return Ok((row.pulse, row.now));
        }
        let ended = self.end_absence(link).await;
        link.correct_clock(self.store_clock.is_skewed());
        match ended {
            // Only a primary can be set right.
            Err(Fault::Database(error)) if error.code() == Some(&READ_ONLY) => Ok((row.pulse, row.now)),
            Err(fault) => Err(fault),
            Ok(()) => {
                let row = self.pulse_row(link).await?;
                Ok((row.pulse, row.now))
            }
        }
    }

    /// Sets right what was written while the server's clock was ahead and nobody had noticed.
    pub(super) async fn mend_leap(&self) {
        let mended = async {
            let mut link = self.link(Caller::Worker).await?;
            let (_, now) = self.look_at_clock(&mut link).await?;
            self.call_back(&link, now).await
        };
        if let Err(fault) = mended.await {
            let error = fault.into_error("set the time right");
            tracing::warn!(%error, "jobs that were stored while the server's clock was ahead may wait for it");
        }
    }

    /// Makes due what became due by a clock that was ahead, and ends leases that it granted when they should.
    pub(super) async fn call_back(&self, link: &Link<'_>, now: Timestamp) -> Result<(), Fault> {
        let now = now.as_micros();
        link.execute(include_str!("sql/call_back_ready.sql"), &[&now]).await?;
        link.execute(include_str!("sql/call_back_leased.sql"), &[&now]).await?;
        Ok(())
    }
}

const READ_ONLY: tokio_postgres::error::SqlState = tokio_postgres::error::SqlState::READ_ONLY_SQL_TRANSACTION;
