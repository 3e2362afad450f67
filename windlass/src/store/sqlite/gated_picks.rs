//! What a claim of a controlled queue picked: taken, sorted and written.

use std::collections::{HashMap, HashSet};

use super::claim::Passage;
use super::columns::kind_state;
use super::fault::{Answer, Fault};
use super::gated_view::{Arrival, View};
use super::hot_statements::HotStatement;
use super::job_rows::FLAG_FLOW;
use super::transaction::Transaction;
use crate::flow::{Gate, GateName, Picks, Strand};
use crate::store::answer::Claimed;
use crate::store::request::ClaimRequest;

/// A job that a claim takes.
struct Picked {
    passage: Passage,
    at: i64,
    seq: i64,
    /// Its place among those at the door, if it is there.
    place: Option<usize>,
    /// Its place among those that are taken.
    order: usize,
}

impl Picked {
    /// Whether the next one stands beside it. Of a strand the first jobs are taken, so all of them do.
    fn stands_before(&self, next: &Picked) -> bool {
        self.passage == next.passage && next.place == self.place.map(|place| place + 1)
    }
}

impl Transaction<'_> {
    /// Takes what was picked, sorts what was not, and writes how gates and strands are left.
    pub(super) fn write_picks(
        &mut self,
        view: &View<'_>,
        strands: &[Strand],
        picks: &Picks,
        request: Option<&ClaimRequest>,
        claimed: &mut Vec<Claimed>,
    ) -> Answer<()> {
        let mut taken: HashMap<i64, u32> = HashMap::new();
        let mut gone = HashSet::new();
        for (place, head) in &picks.taken {
            *taken.entry(strands[*place].id).or_default() += 1;
            gone.insert(head.sequence);
        }
        if !picks.taken.is_empty() {
            let request = request.ok_or_else(|| Fault::broken("jobs were picked that nobody wants"))?;
            self.claim_picked(view, strands, picks, request, claimed)?;
        }
        // Where keys make no difference, what may not run yet stays where it is.
        let is_sorted = view.control.has_strands();
        for (strand, arrivals) in view.arrivals.iter().filter(|_| is_sorted) {
            for arrival in arrivals.iter().filter(|arrival| !gone.contains(&arrival.head.sequence)) {
                self.sort(arrival, *strand)?;
            }
        }
        self.write_gates(view, picks)?;
        for (strand, looked) in strands.iter().zip(&picks.strands) {
            let row = &view.strands[&strand.id];
            let counted = row.running + taken.get(&strand.id).copied().unwrap_or_default();
            let turn = Some(picks.gates.keys[&strand.key].turn).filter(|_| view.control.fair);
            self.put_strand(row, counted, Some(*looked).filter(|_| is_sorted), turn)?;
        }
        self.write_counts()?;
        for door in &view.doors {
            let counted = picks.gates.types[&door.job_type].running;
            if counted != door.was_counted {
                self.set_counted(door.lane, counted)?;
            }
        }
        Ok(())
    }

    fn write_gates(&self, view: &View<'_>, picks: &Picks) -> Answer<()> {
        let differs = |was: Option<&Gate>, is: &Gate| {
            let was = was.cloned().unwrap_or_default();
            was != Gate { running: was.running, ..is.clone() }
        };
        let (before, gates) = (&view.gates, &picks.gates);
        if differs(Some(&before.queue), &gates.queue) {
            self.put_gate(view.queue, &GateName::Queue, &gates.queue)?;
        }
        for (job_type, gate) in gates.types.iter().filter(|(name, gate)| differs(before.types.get(*name), gate)) {
            self.put_gate(view.queue, &GateName::Type(job_type.clone()), gate)?;
        }
        for (key, gate) in &gates.keys {
            // The turn of a key is kept with its strands.
            let turn = before.keys.get(key).map_or(0, |gate| gate.turn);
            if differs(before.keys.get(key), &Gate { turn, ..gate.clone() }) {
                self.put_gate(view.queue, &GateName::Key(key.clone()), &Gate { turn: 0, ..gate.clone() })?;
            }
        }
        Ok(())
    }

    /// Moves a job from the door to its strand.
    fn sort(&mut self, arrival: &Arrival, strand: i64) -> Answer<()> {
        let Arrival { lane, kind, head, .. } = arrival;
        let (priority, at) = (i64::from(head.priority.number()), head.position.as_micros());
        self.execute(HotStatement::SortReady, [*lane, priority, at, head.sequence, strand])?;
        self.execute(HotStatement::DeleteReady, [*lane, priority, at, head.sequence])?;
        self.count(*lane, kind_state(*kind)?, -1);
        self.count(strand, kind_state(*kind)?, 1);
        Ok(())
    }

    /// Claims what was picked, those that stand beside each other at once. Claimed jobs are in the order of the picks.
    fn claim_picked(
        &mut self,
        view: &View<'_>,
        strands: &[Strand],
        picks: &Picks,
        request: &ClaimRequest,
        claimed: &mut Vec<Claimed>,
    ) -> Answer<()> {
        let at_door: HashMap<i64, &Arrival> =
            view.arrivals.values().flatten().map(|arrival| (arrival.head.sequence, arrival)).collect();
        let mut picked: Vec<Picked> = Vec::with_capacity(picks.taken.len());
        for (order, (place, head)) in picks.taken.iter().enumerate() {
            let to = strands[*place].id;
            let arrival = at_door.get(&head.sequence);
            let (from, place) = arrival.map_or((to, None), |arrival| (arrival.lane, Some(arrival.place)));
            let passage = Passage { from, priority: head.priority.number(), to, flag: FLAG_FLOW };
            picked.push(Picked { passage, at: head.position.as_micros(), seq: head.sequence, place, order });
        }
        picked.sort_unstable_by_key(|one| (one.passage.from, one.passage.priority, one.at, one.seq));
        let mut answers: Vec<(usize, Claimed)> = Vec::with_capacity(picked.len());
        for run in picked.chunk_by(Picked::stands_before) {
            let first = &run[0];
            let (mut heads, mut taken) = (Vec::with_capacity(run.len()), Vec::with_capacity(run.len()));
            self.read_claimable(first.passage, (first.at, first.seq - 1), run.len(), |head| heads.push(head))?;
            if heads.iter().map(|head| head.seq).ne(run.iter().map(|one| one.seq)) {
                return Err(Fault::broken(format!("job number {} is not where it was picked", first.seq)));
            }
            for (one, head) in run.iter().zip(heads) {
                answers.push((one.order, self.claim_one(first.passage, head, request, &mut taken)?));
            }
            self.lease(first.passage, &taken, request)?;
        }
        answers.sort_unstable_by_key(|(order, _)| *order);
        claimed.extend(answers.into_iter().map(|(_, claimed)| claimed));
        Ok(())
    }
}
