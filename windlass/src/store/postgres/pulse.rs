//! The store's pulse, in a row that all processes share; what it means is told in [`Pulse`].
//!
//! A beat waits for the standby as any other commit does, so that the fence also stands still while no write is confirmed.
//! A beat that waits cannot be seen, and holds its row: no other is made meanwhile, and the time of the next one is read
//! once the row is free. So whatever looks like an absence to a call that reads the row is one to the next beat as well.
//!
//! Nothing is accepted from a lease that has run out before the absence that excuses it is in the row, and recorded as an
//! act: a call that comes first ends the absence itself.
//!
//! What a statement has to do about it: a claim needs nothing but the time, since it grants leases and ends none. A statement
//! that accepts something from a lease compares its end with the time, and leaves alone what has run out; the call then asks
//! [`Inner::fences`] or [`Transaction::read_fence`] whether an absence excuses it. Whatever takes leases back goes by
//! `read_fence`, and by the time alone for lifetimes.

use std::time::Duration;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::flush::add_act;
use super::job_rows::{corrupt, micros, time};
use super::link::Link;
use super::transaction::Transaction;
use super::turns::Caller;
use crate::clock::{AWAY_AFTER, BEAT_EVERY, LAPSING, Pulse, ToldTime, passed};
use crate::error::Error;
use crate::store::rules;
use crate::time::Timestamp;

/// The row, and the store's time when it was read.
pub(super) struct PulseRow {
    pub(super) pulse: Pulse,
    /// What is added to the server's clock, in microseconds.
    pub(super) skew: i64,
    /// Whether the last beat was on this server.
    same_server: bool,
    pub(super) now: Timestamp,
}

impl PulseRow {
    fn of(rows: &[Row]) -> Result<Self, Fault> {
        let row = rows.first().ok_or_else(|| corrupt("no pulse"))?;
        let [at, away_from, grace_until, now] =
            ["at", "away_from", "grace_until", "now"].map(|column| time(row.get(column)));
        let pulse = Pulse { at, away_from, grace_until };
        Ok(PulseRow { pulse, skew: row.get("skew"), same_server: row.get("same_server"), now })
    }

    /// Whether only a process that was there can say if the time is right: nobody has beaten on this server yet, and by its clock
    /// that was long ago.
    pub(super) fn is_doubtful(&self) -> bool {
        !self.same_server && self.pulse.is_away(self.now)
    }
}

impl Inner {
    /// Whether absences count: always by the server's clock, and by a test's if that says so.
    pub(super) fn minds_absences(&self) -> bool {
        self.clock.as_ref().is_none_or(|clock| clock.pulse().is_some())
    }

    /// Beats, unless that was done just now or is under way.
    pub(super) async fn beat(&self) -> Result<(), Fault> {
        if !self.minds_absences() {
            return Ok(());
        }
        let mut link = self.link(Caller::Worker).await?;
        let (pulse, now) = self.look_at_clock(&mut link).await?;
        if now.since(pulse.at) < BEAT_EVERY || self.store_clock.is_in_doubt() {
            return Ok(());
        }
        let (given, every, away) = (self.given_time(), micros(BEAT_EVERY), micros(AWAY_AFTER));
        let rows = link.query(include_str!("sql/beat.sql"), &[&given, &every, &away]).await?;
        match rows.first() {
            Some(row) if !row.get::<_, bool>("beaten") => self.end_absence(&mut link).await,
            _ => Ok(()),
        }
    }

    /// Beats after an absence, after a leap of the clock, or for the first time, in a transaction of its own.
    pub(super) async fn end_absence(&self, link: &mut Link<'_>) -> Result<(), Fault> {
        link.begin().await?;
        match self.beat_in(link).await {
            Ok(_) => link.commit().await,
            Err(fault) => {
                link.roll_back().await;
                Err(fault)
            }
        }
    }

    /// Beats within a transaction, whatever the last beat was; gives the pulse.
    async fn beat_in(&self, link: &Link<'_>) -> Result<Pulse, Fault> {
        let asked = passed();
        let rows = link.query(include_str!("sql/hold_pulse.sql"), &[&self.given_time()]).await?;
        let row = PulseRow::of(&rows)?;
        if self.clock.is_none() && self.store_clock.doubts(&row) {
            let problem =
                "another server answers, and a process that knows the time has yet to say if its clock is right";
            return Err(Fault::Refused(Error::StoreUnavailable {
                attempted: "go by the server's clock".to_owned(),
                problem: problem.to_owned(),
                known: true,
                source: None,
            }));
        }
        let PulseRow { pulse: before, mut skew, mut now, .. } = row;
        let answered = passed();
        if self.clock.is_none() {
            let leap = self.store_clock.leap(&ToldTime::new(now, asked, answered, skew != 0));
            let moved = before.set_right(now, leap);
            if moved != 0 {
                (skew, now) = (skew + moved, Timestamp::from_micros(now.as_micros() + moved));
                self.tell_leap(link, -moved, skew, now).await?;
            }
            self.store_clock.learn(ToldTime::new(now, asked, answered, skew != 0), skew);
        }
        let (by, last) = (now.plus(LAPSING).as_micros(), before.at.as_micros());
        let rows = link.query(include_str!("sql/get_latest_end.sql"), &[&by, &last]).await?;
        let latest: Option<i64> = rows.first().and_then(|row| row.get("latest"));
        let (after, absence) = before.beat(now, latest.map(time));
        if let Some(absence) = absence {
            absence.log();
            add_act(link, &rules::absence(&absence)).await?;
        }
        let [at, away_from, grace_until] = [after.at, after.away_from, after.grace_until].map(Timestamp::as_micros);
        link.execute(include_str!("sql/put_pulse.sql"), &[&at, &away_from, &grace_until, &skew]).await?;
        Ok(after)
    }

    /// Says that the server's clock leapt, and sets right what was written by it.
    async fn tell_leap(&self, link: &Link<'_>, leap: i64, skew: i64, now: Timestamp) -> Result<(), Fault> {
        let server = self.hosts.describe();
        let (by, off) = (Duration::from_micros(leap.unsigned_abs()), Duration::from_micros(skew.unsigned_abs()));
        let way = if leap > 0 { "ahead" } else { "back" };
        tracing::warn!(%server, ?by, way, correction = ?off, "the server's clock leapt; the store's time goes on from where it was");
        add_act(link, &rules::leap(leap, skew, now)).await?;
        self.call_back(link, now).await
    }

    /// The pulse, and the time by it.
    pub(super) async fn pulse_row(&self, link: &Link<'_>) -> Result<PulseRow, Fault> {
        PulseRow::of(&link.query(include_str!("sql/get_pulse.sql"), &[&self.given_time()]).await?)
    }

    pub(super) async fn pulse(&self, link: &Link<'_>) -> Result<Pulse, Fault> {
        Ok(self.pulse_row(link).await?.pulse)
    }
}

impl Transaction<'_> {
    /// Looks up the moment that leases are compared with, for a transaction that compares any. Ends an absence first.
    pub(super) async fn read_fence(&mut self) -> Result<Timestamp, Fault> {
        if !self.store.minds_absences() {
            return Ok(self.fence);
        }
        let mut pulse = self.store.pulse(&self.link).await?;
        if pulse.is_away(self.now) {
            pulse = match self.link.is_users() {
                // The user may keep the transaction open, and with it the row, while nobody else could beat.
                true => {
                    let mut link = self.store.link(Caller::Worker).await?;
                    self.store.end_absence(&mut link).await?;
                    self.store.pulse(&link).await?
                }
                false => self.store.beat_in(&self.link).await?,
            };
        }
        self.fence = pulse.fence(self.now);
        Ok(self.fence)
    }
}
