//! Heartbeats and what running attempts save: fenced in the statement that writes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use super::driver_row::Row;
use super::fault::Fault;
use super::link::Link;
use super::tokens::TokenKey;
use super::turns::Caller;
use super::{Inner, job_rows};
use crate::clock::{Pulse, passed};
use crate::job::{CancelAsked, JobId, LeaseKey, LeaseToken, Stale};
use crate::store::answer::Extended;
use crate::store::request::Save;
use crate::time::Timestamp;

/// What is known of the leases on some jobs.
struct Fences {
    held: HashMap<JobId, Fence>,
    pulse: Pulse,
}

struct Fence {
    token: LeaseToken,
    expires_at: Timestamp,
    deadline: Option<Timestamp>,
    now: Timestamp,
}

impl Fences {
    /// Why a lease does not hold. One that does after all was being moved just then, and is looked at again.
    fn stale(&self, key: &LeaseKey) -> Result<Stale, Fault> {
        self.check(key).err().ok_or(Fault::Overtaken)
    }

    fn check(&self, key: &LeaseKey) -> Result<(), Stale> {
        let Some(held) = self.held.get(&key.job) else { return Err(Stale::NotRunning) };
        // A lifetime that is over ends a lease whatever the store was doing.
        let outlived = held.deadline.is_some_and(|deadline| deadline <= held.now);
        let fence = if outlived { held.now } else { self.pulse.fence(held.now) };
        Stale::check(true, Some(held.expires_at), fence, held.token == key.token)
    }

    /// The moment that leases are compared with, if that is not the time and one of these keys gains by it.
    fn held_back(&self, keys: impl Iterator<Item = LeaseKey>) -> Option<i64> {
        let held = keys.filter(|key| self.check(key).is_ok()).find_map(|key| self.held.get(&key.job))?;
        (held.expires_at <= held.now).then(|| self.pulse.fence(held.now).as_micros())
    }
}

impl Inner {
    async fn fences(&self, link: &Link<'_>, jobs: impl Iterator<Item = JobId>) -> Result<Fences, Fault> {
        let ids: Vec<Uuid> = jobs.map(JobId::as_uuid).collect();
        if ids.is_empty() {
            return Ok(Fences { held: HashMap::new(), pulse: Pulse::default() });
        }
        let seqs = self.sequences(&ids);
        let rows = link.query(include_str!("sql/get_fence.sql"), &[&self.given_time(), &seqs, &ids]).await?;
        let held = rows.iter().map(|row| {
            let fence = Fence {
                token: self.tokens().token(row.get("seq"), row.get("token")),
                expires_at: job_rows::time(row.get("expires_at")),
                deadline: row.get::<_, Option<i64>>("deadline").map(job_rows::time),
                now: job_rows::time(row.get("now")),
            };
            (JobId::from_uuid(row.get("id")), fence)
        });
        let held: HashMap<JobId, Fence> = held.collect();
        let lapsed = held.values().find(|fence| fence.expires_at <= fence.now).map(|fence| fence.now);
        let Some(now) = lapsed.filter(|_| self.minds_absences()) else {
            return Ok(Fences { held, pulse: Pulse::default() });
        };
        let pulse = self.pulse(link).await?;
        // Nothing is taken from a lease that has run out before the absence that excuses it is recorded.
        if pulse.is_away(now) { Err(Fault::Away) } else { Ok(Fences { held, pulse }) }
    }

    pub(super) async fn extend(
        &self,
        leases: &[LeaseKey],
        lease_time: Option<Duration>,
    ) -> Result<Vec<Extended>, Fault> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let mut link = self.link(Caller::Heartbeat).await?;
        let answer = self.extend_on(&link, leases, lease_time).await;
        if !matches!(answer, Err(Fault::Away)) {
            return answer;
        }
        self.end_absence(&mut link).await?;
        link.correct_clock(self.store_clock.is_skewed());
        self.extend_on(&link, leases, lease_time).await
    }

    async fn extend_on(
        &self,
        link: &Link<'_>,
        leases: &[LeaseKey],
        lease_time: Option<Duration>,
    ) -> Result<Vec<Extended>, Fault> {
        let places = self.leased(leases);
        let fitting = places.iter().zip(leases).filter(|((_, fits), _)| *fits);
        let mut sorted: Vec<(i64, Uuid)> =
            fitting.map(|((seq, _), key)| (*seq, self.tokens().stored(key.token))).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let sorted = sorted.into_iter().unzip();
        let mut held = self.extend_by(link, &sorted, lease_time, None).await?;
        let all = || leases.iter().zip(&places).map(|(key, (_, fits))| (key, *fits));
        let is_held = |held: &HeldLeases, key: &LeaseKey, fits: bool| fits && held.contains_key(&key.token);
        let lost = all().filter(|(key, fits)| !is_held(&held, key, *fits)).map(|(key, _)| key.job);
        let mut fences = self.fences(link, lost).await?;
        let lost = all().filter(|(key, fits)| *fits && !is_held(&held, key, *fits)).map(|(key, _)| *key);
        if let Some(fence) = fences.held_back(lost) {
            held.extend(self.extend_by(link, &sorted, lease_time, Some(fence)).await?);
            let lost = all().filter(|(key, fits)| !is_held(&held, key, *fits)).map(|(key, _)| key.job);
            fences = self.fences(link, lost).await?;
        }
        let answers = all().map(|(key, fits)| match held.get(&key.token).filter(|_| fits) {
            Some((expires_in, cancel)) => Ok(Extended::Held { expires_in: *expires_in, cancel: cancel.clone() }),
            None => fences.stale(key).map(Extended::Lost),
        });
        answers.collect()
    }

    /// Extends the leases that hold, compared with the time or with an earlier moment; gives those.
    async fn extend_by(
        &self,
        link: &Link<'_>,
        (seqs, stored): &(Vec<i64>, Vec<Uuid>),
        lease_time: Option<Duration>,
        fence: Option<i64>,
    ) -> Result<HeldLeases, Fault> {
        let (time, lease_time) = (self.given_time(), lease_time.map(job_rows::micros));
        let (_, latest) = self.expected_time();
        let parameters: [super::link::Parameter<'_>; 6] = [&time, &lease_time, seqs, stored, &fence, &latest];
        let asked = passed();
        let rows = link.query(include_str!("sql/extend.sql"), &parameters).await?;
        // By a clock that was set back a lease seems to hold for long, and its holder would not ask again in time.
        if rows.first().is_some_and(|row| self.leapt(job_rows::time(row.get("now")), asked)) {
            return Err(Fault::Away);
        }
        let mut held = HashMap::with_capacity(rows.len());
        for row in &rows {
            let cancel: Option<&str> = row.get("cancel");
            let left = Duration::from_micros(u64::try_from(row.get::<_, i64>("expires_in")).unwrap_or_default());
            // That somebody asked is known, even where who and why cannot be read.
            let asked =
                |text| serde_json::from_str(text).unwrap_or_else(|_| CancelAsked::new(None, "", Timestamp::EPOCH));
            let cancel = cancel.map(asked);
            held.insert(self.tokens().token(row.get("seq"), row.get("token")), (left, cancel));
        }
        Ok(held)
    }

    pub(super) async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>, Fault> {
        if saves.is_empty() {
            return Ok(Vec::new());
        }
        let mut link = self.link(Caller::Worker).await?;
        let keys: Vec<LeaseKey> = saves.iter().map(Save::key).collect();
        let places = self.leased(&keys);
        let merged = Merged::of(saves, &places, self.tokens());
        let (mut fence, mut noticed) = (None, false);
        loop {
            link.begin().await?;
            match self.save_in(&link, saves, &merged, fence).await {
                Ok(Saved::All(answers)) => {
                    link.commit().await?;
                    return Ok(answers);
                }
                // Leases that ran out while the store was away hold: all is written again, compared with that moment.
                Ok(Saved::HeldBack(earlier)) if fence.is_none() => {
                    link.roll_back().await;
                    fence = Some(earlier);
                }
                Ok(Saved::HeldBack(_)) => {
                    link.roll_back().await;
                    return Err(Fault::Overtaken);
                }
                Err(Fault::Away) if !noticed => {
                    link.roll_back().await;
                    self.end_absence(&mut link).await?;
                    noticed = true;
                }
                Err(fault) => {
                    link.roll_back().await;
                    return Err(fault);
                }
            }
        }
    }

    async fn save_in(
        &self,
        link: &Link<'_>,
        saves: &[Save],
        merged: &Merged<'_>,
        fence: Option<i64>,
    ) -> Result<Saved, Fault> {
        let held = merged.write(self, link, fence).await?;
        let is_held = |key: &LeaseKey| merged.places.get(key).is_some_and(|place| held.contains(&merged.lease(*place)));
        let lost = || saves.iter().map(Save::key).filter(|key| !is_held(key));
        let fences = self.fences(link, lost().map(|key| key.job)).await?;
        if let Some(earlier) = fences.held_back(lost().filter(|key| merged.places.contains_key(key))) {
            return Ok(Saved::HeldBack(earlier));
        }
        let answer = |key: LeaseKey| if is_held(&key) { Ok(Ok(())) } else { fences.stale(&key).map(Err) };
        Ok(Saved::All(saves.iter().map(|save| answer(save.key())).collect::<Result<_, Fault>>()?))
    }
}

/// Leases that were extended: how long each holds, and whether somebody asked for a cancel.
type HeldLeases = HashMap<LeaseToken, (Duration, Option<CancelAsked>)>;

/// What became of a call that saves.
enum Saved {
    All(Vec<Result<(), Stale>>),
    /// Some leases hold only compared with this earlier moment.
    HeldBack(i64),
}

/// The saves of a call, one for each lease: later checkpoints replace earlier ones, log lines add up.
#[derive(Default)]
struct Merged<'s> {
    places: HashMap<LeaseKey, usize>,
    seqs: Vec<i64>,
    tokens: Vec<Uuid>,
    checkpoints: Vec<Option<&'s [u8]>>,
    progress: Vec<Option<String>>,
    log_places: Vec<usize>,
    log_lines: Vec<&'s str>,
}

impl<'s> Merged<'s> {
    /// Takes where each lease is, and whether its token fits.
    fn of(saves: &'s [Save], places: &[(i64, bool)], tokens: &TokenKey) -> Self {
        let mut merged = Merged::default();
        let fitting = saves.iter().zip(places).filter(|(_, (_, fits))| *fits);
        let mut sorted: Vec<(i64, &Save)> = fitting.map(|(save, (seq, _))| (*seq, save)).collect();
        sorted.sort_by_key(|(seq, _)| *seq);
        for (seq, save) in sorted {
            let key = save.key();
            let place = *merged.places.entry(key).or_insert_with(|| {
                merged.seqs.push(seq);
                merged.tokens.push(tokens.stored(key.token));
                merged.checkpoints.push(None);
                merged.progress.push(None);
                merged.seqs.len() - 1
            });
            if let Some(checkpoint) = save.new_checkpoint() {
                merged.checkpoints[place] = Some(checkpoint);
            }
            if let Some(progress) = save.new_progress() {
                merged.progress[place] = Some(job_rows::json(progress));
            }
            for line in save.new_log() {
                merged.log_places.push(place);
                merged.log_lines.push(line);
            }
        }
        merged
    }

    /// The sequence and what is stored of the token.
    fn lease(&self, place: usize) -> (i64, Uuid) {
        (self.seqs[place], self.tokens[place])
    }

    /// Writes them, and gives the leases that hold.
    async fn write(&self, store: &Inner, link: &Link<'_>, fence: Option<i64>) -> Result<HashSet<(i64, Uuid)>, Fault> {
        let time = store.given_time();
        let parameters: [super::link::Parameter<'_>; 6] =
            [&time, &self.seqs, &self.tokens, &self.checkpoints, &self.progress, &fence];
        let rows = link.query(include_str!("sql/save.sql"), &parameters).await?;
        let lease = |row: &Row| (row.get("seq"), row.get("token"));
        let held = rows.iter().map(|row| (lease(row), (row.get("version"), row.get("now"))));
        let held: HashMap<(i64, Uuid), (i64, i64)> = held.collect();
        if !self.log_lines.is_empty() {
            let (mut seqs, mut versions, mut times, mut lines) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for (place, line) in self.log_places.iter().zip(&self.log_lines) {
                if let Some((version, now)) = held.get(&self.lease(*place)) {
                    seqs.push(self.seqs[*place]);
                    versions.push(*version);
                    times.push(*now);
                    lines.push(*line);
                }
            }
            link.execute(include_str!("sql/add_log_line.sql"), &[&seqs, &versions, &times, &lines]).await?;
            link.execute(include_str!("sql/forget_log_lines.sql"), &[&seqs, &versions]).await?;
        }
        Ok(held.into_keys().collect())
    }
}
