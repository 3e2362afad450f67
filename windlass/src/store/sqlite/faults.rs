//! Groups of dead jobs by the fault they died of, counted from one index.

use rusqlite::params;

use super::columns::{json, time};
use super::fault::{Answer, Fault};
use super::transaction::Transaction;
use crate::job::{FailureRecord, Fingerprint};
use crate::store::answer::Page;
use crate::store::faults::{FaultEnd, FaultGroup, FaultSums};
use crate::store::request::{Cursor, FAULT_JOBS_MAX, FaultQuery, LOOKED_MAX};

impl Transaction<'_> {
    /// Groups of jobs that are tried again: there is no index of their faults, so they are read, as many as one call reads.
    fn retried_faults(&mut self, query: &FaultQuery) -> Answer<Page<FaultGroup>> {
        let mut sums: FaultSums<i64> = FaultSums::of(query)?;
        let mut statement = self.statement(include_str!("sql/list_retrying.sql"))?;
        let mut rows = statement.query([self.now.as_micros(), i64::try_from(LOOKED_MAX + 1).unwrap_or(i64::MAX)])?;
        let mut looked = 0;
        while let Some(row) = rows.next()? {
            looked += 1;
            // One that cannot be read is told with its job.
            let failure = json::<FailureRecord>(row, "failure").ok().flatten();
            let Some(failure) = failure.filter(|_| looked <= LOOKED_MAX) else { continue };
            let names = self.names_of(row.get("lane")?)?;
            sums.see(failure.fingerprint(&names.1), failure.at, &names, row.get("seq")?);
        }
        sums.stopped = looked > LOOKED_MAX;
        drop(rows);
        drop(statement);
        let (found, next) = sums.page();
        let mut items = Vec::with_capacity(found.len());
        for sum in found {
            let newest: Answer<Vec<_>> = sum.newest.iter().map(|seq| Ok(self.known(*seq)?.job)).collect();
            items.extend(sum.group(&newest?, self.now));
        }
        Ok(Page::new(items, next))
    }

    pub(super) fn faults(&mut self, query: &FaultQuery) -> Answer<Page<FaultGroup>> {
        if query.retrying {
            return self.retried_faults(query);
        }
        let most = query.groups_max();
        let after = query.place()?.map_or(-1, Fingerprint::number);
        let mut statement = self.statement(include_str!("sql/list_faults.sql"))?;
        let wanted = i64::try_from(most + 1).unwrap_or(i64::MAX);
        let numbers = statement.query_map([after, wanted], |row| row.get::<_, i64>(0))?;
        let numbers = numbers.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut items = Vec::new();
        for number in numbers.iter().take(most) {
            items.extend(self.fault_group(*number, query)?);
        }
        let last = numbers.get(most - 1).filter(|_| numbers.len() > most);
        let next = last.copied().and_then(Fingerprint::from_number).map(|last| Cursor(last.to_string()));
        Ok(Page::new(items, next))
    }

    fn fault_group(&mut self, number: i64, query: &FaultQuery) -> Answer<Option<FaultGroup>> {
        let fingerprint = Fingerprint::from_number(number);
        let fingerprint = fingerprint.ok_or_else(|| Fault::broken(format!("{number} is no fingerprint")))?;
        let mut statement = self.statement(include_str!("sql/list_fault_ends.sql"))?;
        let most = i64::try_from(FAULT_JOBS_MAX + 1).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![number, most])?;
        let (mut newest, mut ends, mut looked) = (Vec::new(), Vec::new(), 0);
        while let Some(row) = rows.next()? {
            looked += 1;
            let (queue, job_type) = self.names_of(row.get("lane")?)?;
            if looked > FAULT_JOBS_MAX || !query.covers(&queue, &job_type) {
                continue;
            }
            if newest.len() < FaultGroup::SAMPLED {
                newest.push(self.known(row.get("seq")?)?.job);
            }
            ends.push(FaultEnd { at: time(row.get("at")?), queue });
        }
        Ok(FaultGroup::of(fingerprint, &newest, ends, looked, self.now))
    }
}
