//! Groups of dead jobs by the fault they died of, counted from one index.

use std::collections::HashMap;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows;
use super::lanes::Lane;
use super::link::Link;
use super::turns::Caller;
use crate::job::{Fingerprint, JobRecord};
use crate::store::answer::Page;
use crate::store::faults::{FaultEnd, FaultGroup, FaultSum, FaultSums};
use crate::store::request::{Cursor, FAULT_JOBS_MAX, FaultQuery, LOOKED_MAX};
use crate::time::Timestamp;

/// A fault and its newest jobs that are asked for, newest first.
struct Found {
    fingerprint: Fingerprint,
    newest: Vec<i64>,
    ends: Vec<FaultEnd>,
    looked: usize,
}

impl Inner {
    /// Groups of jobs that are tried again: there is no index of their faults, so they are read, as many as one call reads.
    async fn retried_faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>, Fault> {
        let mut sums: FaultSums<i64> = FaultSums::of(query)?;
        let link = self.link(Caller::Reader).await?;
        let most = i64::try_from(LOOKED_MAX).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/list_retrying.sql"), &[&self.given_time(), &most]).await?;
        let Some(first) = rows.first() else { return Ok(Page::new(Vec::new(), None)) };
        let now = job_rows::time(first.get("now"));
        sums.stopped = first.get::<_, i64>("looked") >= most;
        let lanes: Vec<Lane> = rows.iter().filter_map(|row| row.get::<_, Option<Lane>>("lane")).collect();
        self.lanes.learn_lanes(&link, &lanes).await?;
        for row in &rows {
            // One that cannot be read is told with its job.
            let failure = job_rows::failure_record(row.get("failure"), row.get("failed_at")).ok().flatten();
            let names = row.get::<_, Option<Lane>>("lane").and_then(|lane| self.lanes.name(lane));
            if let (Some(failure), Some(names)) = (failure, names) {
                sums.see(failure.fingerprint(&names.1), failure.at, &names, row.get("seq"));
            }
        }
        let (found, next) = sums.page();
        let newest: Vec<i64> = found.iter().flat_map(|sum| sum.newest.iter().copied()).collect();
        let jobs = self.sampled(&link, &newest, now).await?;
        let group = |sum: FaultSum<i64>| {
            let newest: Vec<JobRecord> = sum.newest.iter().filter_map(|seq| jobs.get(seq).cloned()).collect();
            sum.group(&newest, now)
        };
        Ok(Page::new(found.into_iter().filter_map(group).collect(), next))
    }

    /// Jobs that stand for their groups, by sequence.
    async fn sampled(&self, link: &Link<'_>, newest: &[i64], now: Timestamp) -> Result<HashMap<i64, JobRecord>, Fault> {
        let read = link.query(include_str!("sql/get_job.sql"), &[&newest]).await?;
        let rows = self.job_rows(link, &read, now).await?.into_iter();
        Ok(rows.map(|row| (row.entry.sequence, row.entry.job)).collect())
    }

    pub(super) async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>, Fault> {
        if query.retrying {
            return self.retried_faults(query).await;
        }
        let most = query.groups_max();
        let after = query.place()?.map_or(-1, Fingerprint::number);
        let link = self.link(Caller::Reader).await?;
        let wanted = i64::try_from(most + 1).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/list_faults.sql"), &[&after, &wanted]).await?;
        let numbers: Vec<i64> = rows.iter().map(|row| row.get("fingerprint")).collect();
        let shown = numbers[..numbers.len().min(most)].to_vec();
        let jobs = i64::try_from(FAULT_JOBS_MAX + 1).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/list_fault_ends.sql"), &[&self.given_time(), &shown, &jobs]).await?;
        let now = rows.first().map_or(Timestamp::EPOCH, |row| job_rows::time(row.get("now")));
        let lanes: Vec<Lane> = rows.iter().flat_map(|row| row.get::<_, Option<Vec<Lane>>>("lanes")).flatten().collect();
        self.lanes.learn_lanes(&link, &lanes).await?;
        let found: Vec<Found> = rows.iter().filter_map(|row| self.found(row, query)).collect();
        let newest: Vec<i64> = found.iter().flat_map(|found| found.newest.iter().copied()).collect();
        let jobs = self.sampled(&link, &newest, now).await?;
        let group = |found: Found| {
            let newest: Vec<JobRecord> = found.newest.iter().filter_map(|seq| jobs.get(seq).cloned()).collect();
            FaultGroup::of(found.fingerprint, &newest, found.ends, found.looked, now)
        };
        let last = shown.last().copied().filter(|_| numbers.len() > most).and_then(Fingerprint::from_number);
        let next = last.map(|last| Cursor(last.to_string()));
        Ok(Page::new(found.into_iter().filter_map(group).collect(), next))
    }

    fn found(&self, row: &Row, query: &FaultQuery) -> Option<Found> {
        let fingerprint = Fingerprint::from_number(row.get("fingerprint"))?;
        // None are left when the last job of a group has gone since.
        let (seqs, lanes): (Option<Vec<i64>>, Option<Vec<Lane>>) = (row.get("seqs"), row.get("lanes"));
        let (seqs, lanes, ats) = (seqs?, lanes?, row.get::<_, Option<Vec<i64>>>("ats")?);
        let looked = seqs.len();
        let (mut newest, mut ends) = (Vec::new(), Vec::new());
        for ((seq, lane), at) in seqs.into_iter().zip(lanes).zip(ats).take(FAULT_JOBS_MAX) {
            let Some((queue, job_type)) = self.lanes.name(lane) else { continue };
            if query.covers(&queue, &job_type) {
                newest.extend((newest.len() < FaultGroup::SAMPLED).then_some(seq));
                ends.push(FaultEnd { at: job_rows::time(at), queue });
            }
        }
        Some(Found { fingerprint, newest, ends, looked })
    }
}
