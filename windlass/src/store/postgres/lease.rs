//! Heartbeats and what running attempts save: fenced in the statement that writes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use super::Inner;
use super::fault::Fault;
use super::link::Link;
use super::rows;
use crate::job::{CancelAsked, LeaseKey, Stale};
use crate::store::answer::Extended;
use crate::store::request::Save;

/// What is known of the leases on some jobs.
struct Fences {
    held: HashMap<Uuid, (Uuid, i64, i64)>,
}

impl Fences {
    /// Why a lease does not hold. One that does after all was being moved just then, and is looked at again.
    fn stale(&self, key: &LeaseKey) -> Result<Stale, Fault> {
        let held = self.held.get(&key.job.as_uuid());
        let expires_at = held.map(|(_, expires_at, _)| rows::time(*expires_at));
        let now = held.map_or(0, |(_, _, now)| *now);
        let matches = held.is_some_and(|(token, _, _)| *token == key.token.as_uuid());
        Stale::check(held.is_some(), expires_at, rows::time(now), matches).err().ok_or(Fault::Overtaken)
    }
}

impl Inner {
    async fn fences(&self, link: &Link<'_>, jobs: Vec<Uuid>) -> Result<Fences, Fault> {
        let rows = link.query(include_str!("sql/fence.sql"), &[&self.given_time(), &jobs]).await?;
        let held = rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3))));
        Ok(Fences { held: held.collect() })
    }

    pub(super) async fn extend(
        &self,
        leases: &[LeaseKey],
        lease_time: Option<Duration>,
    ) -> Result<Vec<Extended>, Fault> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let mut sorted: Vec<(Uuid, Uuid)> = leases.iter().map(|key| (key.job.as_uuid(), key.token.as_uuid())).collect();
        sorted.sort_unstable();
        let (ids, tokens): (Vec<Uuid>, Vec<Uuid>) = sorted.into_iter().unzip();
        let link = self.link().await?;
        let (time, lease_time) = (self.given_time(), lease_time.map(rows::micros));
        let rows = link.query(include_str!("sql/extend.sql"), &[&time, &lease_time, &ids, &tokens]).await?;
        let mut held: HashMap<(Uuid, Uuid), (Duration, Option<CancelAsked>)> = HashMap::with_capacity(rows.len());
        for row in &rows {
            let cancel: Option<&str> = row.get(2);
            let left = Duration::from_micros(u64::try_from(row.get::<_, i64>(1)).unwrap_or_default());
            let cancel = cancel.map(serde_json::from_str).transpose()?;
            held.insert((row.get(0), row.get(3)), (left, cancel));
        }
        let name = |key: &LeaseKey| (key.job.as_uuid(), key.token.as_uuid());
        let lost: Vec<Uuid> =
            leases.iter().filter(|key| !held.contains_key(&name(key))).map(|key| key.job.as_uuid()).collect();
        let fences = match lost.is_empty() {
            true => Fences { held: HashMap::new() },
            false => self.fences(&link, lost).await?,
        };
        let answers = leases.iter().map(|key| match held.get(&name(key)) {
            Some((expires_in, cancel)) => Ok(Extended::Held { expires_in: *expires_in, cancel: cancel.clone() }),
            None => fences.stale(key).map(Extended::Lost),
        });
        answers.collect()
    }

    pub(super) async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>, Fault> {
        if saves.is_empty() {
            return Ok(Vec::new());
        }
        let merged = Merged::of(saves);
        let mut link = self.link().await?;
        link.begin().await?;
        match self.save_in(&link, saves, &merged).await {
            Ok(answers) => {
                link.commit().await?;
                Ok(answers)
            }
            Err(fault) => {
                link.roll_back().await;
                Err(fault)
            }
        }
    }

    async fn save_in(
        &self,
        link: &Link<'_>,
        saves: &[Save],
        merged: &Merged<'_>,
    ) -> Result<Vec<Result<(), Stale>>, Fault> {
        let held = merged.write(self, link).await?;
        let is_held = |key: &LeaseKey| held.contains(&(key.job.as_uuid(), key.token.as_uuid()));
        let lost = saves.iter().map(Save::key).filter(|key| !is_held(key)).map(|key| key.job.as_uuid());
        let lost: Vec<Uuid> = lost.collect();
        let fences = match lost.is_empty() {
            true => Fences { held: HashMap::new() },
            false => self.fences(link, lost).await?,
        };
        let answer = |key: LeaseKey| if is_held(&key) { Ok(Ok(())) } else { fences.stale(&key).map(Err) };
        saves.iter().map(|save| answer(save.key())).collect()
    }
}

/// The saves of a call, one for each lease: later checkpoints replace earlier ones, log lines add up.
#[derive(Default)]
struct Merged<'s> {
    places: HashMap<LeaseKey, usize>,
    ids: Vec<Uuid>,
    tokens: Vec<Uuid>,
    checkpoints: Vec<Option<&'s [u8]>>,
    progress: Vec<Option<String>>,
    log_places: Vec<usize>,
    log_lines: Vec<&'s str>,
}

impl<'s> Merged<'s> {
    fn of(saves: &'s [Save]) -> Self {
        let mut merged = Merged::default();
        let mut sorted: Vec<&Save> = saves.iter().collect();
        sorted.sort_by_key(|save| save.key().job);
        for save in sorted {
            let key = save.key();
            let place = *merged.places.entry(key).or_insert_with(|| {
                merged.ids.push(key.job.as_uuid());
                merged.tokens.push(key.token.as_uuid());
                merged.checkpoints.push(None);
                merged.progress.push(None);
                merged.ids.len() - 1
            });
            if let Some(checkpoint) = save.new_checkpoint() {
                merged.checkpoints[place] = Some(checkpoint);
            }
            if let Some(progress) = save.new_progress() {
                merged.progress[place] = Some(rows::json(progress));
            }
            for line in save.new_log() {
                merged.log_places.push(place);
                merged.log_lines.push(line);
            }
        }
        merged
    }

    /// Writes them, and gives the leases that hold.
    async fn write(&self, store: &Inner, link: &Link<'_>) -> Result<HashSet<(Uuid, Uuid)>, Fault> {
        let time = store.given_time();
        let parameters: [super::link::Parameter<'_>; 5] =
            [&time, &self.ids, &self.tokens, &self.checkpoints, &self.progress];
        let rows = link.query(include_str!("sql/save.sql"), &parameters).await?;
        if !self.log_lines.is_empty() {
            let held: HashMap<(Uuid, Uuid), (i64, i64, i64)> =
                rows.iter().map(|row| ((row.get(0), row.get(4)), (row.get(1), row.get(2), row.get(3)))).collect();
            let (mut seqs, mut versions, mut times, mut lines) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for (place, line) in self.log_places.iter().zip(&self.log_lines) {
                if let Some((seq, version, now)) = held.get(&(self.ids[*place], self.tokens[*place])) {
                    seqs.push(*seq);
                    versions.push(*version);
                    times.push(*now);
                    lines.push(*line);
                }
            }
            link.execute(include_str!("sql/log_put.sql"), &[&seqs, &versions, &times, &lines]).await?;
            link.execute(include_str!("sql/log_cut.sql"), &[&seqs, &versions]).await?;
        }
        Ok(rows.iter().map(|row| (row.get(0), row.get(4))).collect())
    }
}
