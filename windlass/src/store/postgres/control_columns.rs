//! Strands and gates as statements take them: a column for each field.

use super::control_rows::Kept;
use super::lanes::Lane;
use super::link::Parameter;
use crate::flow::Gate;
use crate::time::Timestamp;

/// Strands to be written, a column for each field.
#[derive(Default)]
pub(super) struct StrandColumns {
    pub(super) strands: Vec<i32>,
    looks: Vec<i64>,
    levels: Vec<i16>,
    classes: Vec<i16>,
    turns: Vec<i64>,
    running: Vec<i32>,
    tats: Vec<i64>,
    held: Vec<Option<i64>>,
    owners: Vec<Option<i64>>,
}

impl StrandColumns {
    pub(super) fn of(changed: Vec<(i32, Kept)>) -> Self {
        let mut columns = StrandColumns::default();
        for (strand, kept) in changed {
            columns.strands.push(strand);
            columns.looks.push(kept.look);
            columns.levels.push(kept.level);
            columns.classes.push(kept.class);
            columns.turns.push(kept.turn);
            columns.running.push(kept.running);
            columns.tats.push(kept.tat);
            columns.held.push(kept.held_until);
            columns.owners.push(kept.owner);
        }
        columns
    }

    pub(super) fn parameters(&self) -> [Parameter<'_>; 9] {
        let StrandColumns { strands, looks, levels, classes, turns, running, tats, held, owners } = self;
        [strands, looks, levels, classes, turns, running, tats, held, owners]
    }
}

/// Gates to be written, a column for each field.
#[derive(Default)]
pub(super) struct GateColumns {
    pub(super) lanes: Vec<Lane>,
    running: Vec<i32>,
    tats: Vec<i64>,
    held: Vec<Option<i64>>,
    turns: Vec<i64>,
}

impl GateColumns {
    pub(super) fn of(changed: Vec<(Lane, Gate)>) -> Self {
        let mut columns = GateColumns::default();
        for (lane, gate) in changed {
            columns.lanes.push(lane);
            columns.running.push(i32::try_from(gate.running).unwrap_or(i32::MAX));
            columns.tats.push(gate.tat);
            columns.held.push(gate.held_until.map(Timestamp::as_micros));
            columns.turns.push(gate.turn);
        }
        columns
    }

    pub(super) fn parameters<'a>(&'a self, queue: &'a i32) -> [Parameter<'a>; 6] {
        [queue, &self.lanes, &self.running, &self.tats, &self.held, &self.turns]
    }
}
