//! Which strands a claim from a controlled queue reads, and with which statement.

use super::control_claim::{Passage, small};
use super::lanes::Lane;
use super::link::Parameter;
use crate::flow::{Control, RUNNING_MAX};

/// How many strands whose moment has come a claim looks at beyond those it wants.
const LATER: usize = 500;

/// Whether priorities are merged within a key, so that the first jobs of each must be known.
fn merges_priorities(control: &Control) -> bool {
    control.ageing.is_some() || control.ordered.is_some()
}

/// Which strands are read.
pub(super) struct Reading<'p> {
    queue: i32,
    lanes: &'p [Lane],
    most: i32,
    from: i32,
    later: i32,
    keys: &'p [String],
    on_strands: bool,
    heads: i32,
    ordered: bool,
    of_each_priority: bool,
    /// How many jobs of a key may run that has no limits of its own.
    each_key: i32,
}

impl<'p> Reading<'p> {
    /// Those that a claim looks at first, or the open ones after the first `from`.
    pub(super) fn of(passage: &'p Passage<'_>, from: usize) -> Self {
        let is_first = from == 0;
        let (control, on_strands) = (passage.control, passage.control.has_strands());
        let each_key = control.each_key.and_then(|limit| limit.running).unwrap_or(RUNNING_MAX);
        Reading {
            queue: passage.queue,
            lanes: &passage.lanes,
            // Where keys make no difference, there is one strand for each lane, and it is asked for by its key.
            most: if on_strands { small(passage.open_max()) } else { 0 },
            from: small(from),
            later: if is_first && on_strands { small(passage.most.saturating_add(LATER)) } else { 0 },
            keys: if is_first { &passage.keys } else { &[] },
            on_strands,
            // One more than is wanted: the next one says where the strand stands then.
            heads: if on_strands { 2 } else { small(passage.most.saturating_add(1)) },
            ordered: control.ordered.is_some(),
            of_each_priority: !on_strands || merges_priorities(control),
            each_key: i32::try_from(each_key).unwrap_or(i32::MAX - 1),
        }
    }

    fn goes_by_priority(&self) -> bool {
        self.on_strands && !self.of_each_priority && !self.ordered
    }

    pub(super) fn statement(&self) -> &'static str {
        match self.goes_by_priority() {
            true => include_str!("sql/list_turns.sql"),
            false => include_str!("sql/list_strands.sql"),
        }
    }

    pub(super) fn parameters<'a>(&'a self, time: &'a Option<i64>) -> Vec<Parameter<'a>> {
        let Reading { queue, lanes, most, from, later, keys, .. } = self;
        let mut parameters: Vec<Parameter<'_>> = vec![time, queue, lanes, most, from, later, keys];
        match self.goes_by_priority() {
            true => parameters.push(&self.each_key),
            false => parameters.extend([
                &self.on_strands as Parameter<'_>,
                &self.heads,
                &self.ordered,
                &self.of_each_priority,
            ]),
        }
        parameters
    }
}
