//! The store's pulse, in a row that all processes share; what it means is told in [`Pulse`].
//!
//! A beat waits for the standby as any other commit does, so that the fence also stands still while no write is confirmed.

use std::sync::Arc;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows::{micros, time};
use super::link::Link;
use super::transaction::Transaction;
use super::turns::Caller;
use crate::clock::{AWAY_AFTER, BEAT_EVERY, LAPSING, Pulse};
use crate::store::rules;
use crate::time::Timestamp;

impl Inner {
    /// Whether absences count: always by the server's clock, and by a test's if that says so.
    pub(super) fn minds_absences(&self) -> bool {
        self.clock.as_ref().is_none_or(|clock| clock.pulse().is_some())
    }

    /// Beats. After an absence this takes a turn of the slow path.
    pub(super) async fn beat(self: &Arc<Self>) -> Result<(), Fault> {
        if !self.minds_absences() {
            return Ok(());
        }
        let link = self.link(Caller::Worker).await?;
        let (time, every, away) = (self.given_time(), micros(BEAT_EVERY), micros(AWAY_AFTER));
        let rows = link.query(include_str!("sql/beat.sql"), &[&time, &every, &away]).await?;
        drop(link);
        let Some(row) = rows.first() else { return Ok(()) };
        let (pulse, now) = (pulse(row), super::job_rows::time(row.get("now")));
        if pulse.at > Timestamp::EPOCH && !pulse.is_away(now) {
            return Ok(());
        }
        let mut tx = self.transaction(Caller::Worker).await?;
        let beaten = tx.beat().await;
        tx.finish(beaten).await
    }

    pub(super) async fn pulse(&self, link: &Link<'_>) -> Result<Pulse, Fault> {
        let rows = link.query(include_str!("sql/get_pulse.sql"), &[]).await?;
        Ok(rows.first().map_or_else(Pulse::default, pulse))
    }
}

fn pulse(row: &Row) -> Pulse {
    let [at, away_from, grace_until] = ["at", "away_from", "grace_until"].map(|column| time(row.get(column)));
    Pulse { at, away_from, grace_until }
}

impl Transaction<'_> {
    /// Beats after an absence, or for the first time.
    async fn beat(&mut self) -> Result<(), Fault> {
        let before = self.store.pulse(&self.link).await?;
        let by = self.now.plus(LAPSING).as_micros();
        let rows = self.link.query(include_str!("sql/get_latest_end.sql"), &[&by]).await?;
        let latest: Option<i64> = rows.first().and_then(|row| row.get("latest"));
        let (after, absence) = before.beat(self.now, latest.map(time));
        if let Some(absence) = absence {
            absence.log();
            self.add_act(&rules::absence(&absence)).await?;
        }
        let fields = [after.at, after.away_from, after.grace_until].map(Timestamp::as_micros);
        self.link.execute(include_str!("sql/put_pulse.sql"), &[&fields[0], &fields[1], &fields[2]]).await?;
        Ok(())
    }

    /// Looks up the moment that leases are compared with, for a transaction that compares any.
    pub(super) async fn read_fence(&mut self) -> Result<Timestamp, Fault> {
        if self.store.minds_absences() {
            self.fence = self.store.pulse(&self.link).await?.fence(self.now);
        }
        Ok(self.fence)
    }
}
