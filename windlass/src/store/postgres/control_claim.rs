//! Claims from a controlled queue: one at a time for each queue, under the lock of its row.
//!
//! First without the lock: is there anything to do, and what stands at the door? Then the lock, and each with a snapshot of its
//! own what ends of leases left behind, strands and gates, sent together. [`pick`] decides. Then the writes and the commit, sent
//! together. So others wait for two round trips, and a claim sees what every claim before it did.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Inner;
use super::control_columns::{GateColumns, StrandColumns};
use super::control_reading::Reading;
use super::control_room::{Roomy, counts_only};
use super::control_rows::{self, Board, GateRows, OPEN, StrandRow};
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows::{self, JobColumns};
use super::lanes::{Controlled, Lane};
use super::link::{InRow, Link, Parameter};
use super::tokens;
use super::turns::Caller;
use crate::flow::{Control, ControlRecord, Head, Picks, Strand, pick};
use crate::job::{JobOptions, Lease, QueueName};
use crate::observe;
use crate::store::answer::Claimed;
use crate::store::request::ClaimRequest;
use crate::time::Timestamp;

/// How many jobs at the door a claim sorts beyond those it wants.
pub(super) const SORTED: usize = 1000;
/// How many open strands a claim looks at beyond the jobs it wants: of those with one turn the oldest job goes first.
const OPEN_MORE: usize = 16;
/// How many notes a claim takes in.
pub(super) const NOTES_MAX: i64 = 1000;
/// How often a claim that found too little looks at further open strands.
const ROUNDS_MAX: usize = 8;
/// For how long after a change of control claims look for leases that plain claims, under way then, were granted.
pub(super) const SWEPT_FOR: Duration = Duration::from_secs(10);
/// How often a claim begins anew because the control changed meanwhile.
const TRIES_MAX: usize = 5;

/// What came through the gates.
#[derive(Default)]
pub(super) struct Through {
    pub(super) jobs: Vec<Claimed>,
    /// When time alone opens a gate.
    pub(super) again_in: Option<Duration>,
    /// How many jobs at the door were looked at.
    pub(super) door: usize,
    /// Whether too little was found, and more may wait before where it was looked for.
    overlooked: bool,
}

/// A job at the door.
struct Arrival {
    lane: Lane,
    key: String,
    head: Head,
}

impl Arrival {
    /// Whether it is among these, and stands there as it did.
    fn is_among(&self, heads: &HashMap<i64, Head>) -> bool {
        heads.get(&self.head.sequence) == Some(&self.head)
    }
}

/// What a claim sees under the lock.
struct Looks {
    board: Board,
    /// The jobs that still stand at the door as they did before the lock.
    door: HashMap<i64, Head>,
    /// Jobs of ordered keys that have come to the door since then: nothing of their keys may overtake them.
    late: Vec<Arrival>,
    record: ControlRecord,
    /// The one lane that is wanted and the strand on which it is counted, where strands were not read because there may be room.
    roomy: Option<(Lane, i32)>,
}

/// A claim on its way through the gates.
pub(super) struct Passage<'r> {
    name: &'r QueueName,
    pub(super) queue: i32,
    pub(super) control: &'r Control,
    pub(super) request: &'r ClaimRequest,
    /// How many jobs are wanted.
    pub(super) most: usize,
    /// The lanes of the types that are wanted.
    pub(super) lanes: Vec<Lane>,
    /// The lanes whose doors are looked at, and how many jobs there.
    doors: Vec<Lane>,
    at_door: i32,
    arrivals: Vec<Arrival>,
    /// The keys to look at in any case: those at the door.
    pub(super) keys: Vec<String>,
}

pub(super) fn small(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

impl Inner {
    /// Claims at most this many jobs of a controlled queue, and sorts those at the door; `None` when the queue is not controlled
    /// any more.
    pub(super) async fn claim_through_gates(
        &self,
        queue: &QueueName,
        most: usize,
        sorted: usize,
        request: &ClaimRequest,
    ) -> Result<Option<Through>, Fault> {
        for _ in 0..TRIES_MAX {
            let Some(known) = self.lanes.controlled(queue) else { return Ok(None) };
            if let Some(mut through) = self.pass(queue, &known, most, sorted, request).await? {
                let wanted = most.saturating_sub(through.jobs.len());
                // What was claimed is the caller's already, whatever becomes of the rest.
                if through.overlooked
                    && let Ok(Some(more)) = self.pass(queue, &known, wanted, sorted, request).await
                {
                    through.jobs.extend(more.jobs);
                    through.jobs.sort_by_key(|one| one.job.claim_order(tokens::sequence(one.lease.key().token)));
                    through.again_in = more.again_in;
                }
                return Ok(Some(through));
            }
            let link = self.link(Caller::Worker).await?;
            self.lanes.learn_queues(&link, &[queue.as_str()]).await?;
        }
        Ok(Some(Through::default()))
    }

    /// The same under the control that is known here; `None` when that has changed.
    async fn pass(
        &self,
        queue: &QueueName,
        known: &Controlled,
        most: usize,
        sorted: usize,
        request: &ClaimRequest,
    ) -> Result<Option<Through>, Fault> {
        let control = known.control.as_ref();
        let mut link = self.link(Caller::Worker).await?;
        let lanes = self.lanes.of(queue, request.types.as_deref());
        // Where keys are ordered, a job of another type may be first.
        let doors = if control.ordered.is_some() { self.lanes.of(queue, None) } else { lanes.clone() };
        let at_door = small(if control.has_strands() { most.saturating_add(sorted) } else { 1 });
        let (time, oldest) = (self.given_time(), control.ordered.is_some());
        let (claimable, door): ([Parameter<'_>; 3], [Parameter<'_>; 4]) =
            ([&time, &known.queue, &lanes], [&time, &doors, &at_door, &oldest]);
        let mut at_the_door = Vec::new();
        // After a claim that found jobs it is likely that there are more. Where all wait at the door, they are read under the lock.
        let found = known.found.load(Relaxed);
        if control.has_strands() || most == 0 || !found {
            let statements: [InRow<'_>; 2] =
                [(include_str!("sql/list_door.sql"), &door), (include_str!("sql/has_claimable.sql"), &claimable)];
            let peeked = link.query_in_row(if found { &statements[..1] } else { &statements }).await?;
            let mut peeked = peeked.into_iter();
            at_the_door = peeked.next().unwrap_or_default();
            let claimable = peeked.next().unwrap_or_default();
            if let Some(row) = claimable.first()
                && !row.get::<_, bool>("claimable")
                && at_the_door.is_empty()
            {
                let now = job_rows::time(row.get("now"));
                let next = row.get::<_, Option<i64>>("next").map(|next| job_rows::time(next).since(now));
                return Ok(Some(Through { again_in: next, ..Through::default() }));
            }
        }
        if most == 0 && at_the_door.len() < sorted {
            // Nothing is wanted, and what stands at the door is left to claims.
            return Ok(Some(Through { door: at_the_door.len(), ..Through::default() }));
        }
        let (arrivals, keys) = (Vec::new(), Vec::new());
        let number = known.queue;
        let mut passage =
            Passage { name: queue, queue: number, control, request, most, lanes, doors, at_door, arrivals, keys };
        passage.meet(&at_the_door)?;
        let door = at_the_door.len();
        let passed = self.pass_under_lock(&mut link, &passage, known).await;
        match passed {
            Ok(Some(through)) => {
                // Keys may be full while more is wanted; otherwise a claim that found too little found all there was.
                let enough = if control.has_strands() { 1 } else { most };
                known.found.store(through.jobs.len() >= enough, Relaxed);
                Ok(Some(Through { door, ..through }))
            }
            Ok(None) => {
                link.roll_back().await;
                Ok(None)
            }
            Err(fault) => {
                link.roll_back().await;
                Err(if fault.is_lock_timeout() { Fault::Overtaken } else { fault })
            }
        }
    }

    async fn pass_under_lock(
        &self,
        link: &mut Link<'static>,
        passage: &Passage<'_>,
        known: &Controlled,
    ) -> Result<Option<Through>, Fault> {
        let (earliest, latest) = self.expected_time();
        let looked = match passage.lanes[..] {
            [lane] if passage.most > 0 && counts_only(passage.control) && !known.full.load(Relaxed) => {
                self.look_for_room(link, passage, lane).await?
            }
            _ => self.look(link, passage).await?,
        };
        let Some(Looks { mut board, door, late, record, roomy }) = looked else { return Ok(None) };
        let now = board.gates.now;
        if !(earliest..=latest).contains(&now.as_micros()) {
            link.roll_back().await;
            return Ok(Some(Through::default()));
        }
        let is_new = now.since(record.updated_at) < SWEPT_FOR && !board.halted;
        let is_swept = is_new && self.sweep(link, passage.queue, &record.control, false).await? > 0;
        let has_room = |lane: &Lane| self.has_room(passage, &board.gates, *lane);
        known.full.store(!passage.lanes.iter().all(has_room), Relaxed);
        match roomy {
            Some(counted) if !is_swept && !board.halted && has_room(&counted.0) => {
                let again_in = board.gates.next.map(|at| at.since(now));
                let Roomy { jobs, overlooked } = self.take_room(link, passage, &board.gates, counted).await?;
                return Ok(Some(Through { jobs, again_in, overlooked, door: 0 }));
            }
            // Of a queue that is paused nothing is looked at.
            _ if is_swept || roomy.is_some() && !board.halted => board = self.look_again(link, passage).await?,
            _ => {}
        }
        let held: Vec<&Arrival> = passage.arrivals.iter().filter(|arrival| arrival.is_among(&door)).collect();
        let mut at_door: HashMap<(&str, Lane), Vec<Head>> = HashMap::new();
        for arrival in &held {
            at_door.entry((&arrival.key, arrival.lane)).or_default().push(arrival.head);
        }
        let (picks, strands, places) = self.pick(link, passage, &mut board, &at_door).await?;
        let overtakes = |(strand, head): &(usize, Head)| {
            let comes_after =
                |other: &Arrival| passage.control.within_key(&other.head) < passage.control.within_key(head);
            late.iter().any(|other| other.key == strands[*strand].key && comes_after(other))
        };
        if picks.taken.iter().any(overtakes) {
            return Ok(None);
        }
        let again_in = again_at(passage.control, &board.gates, &picks).map(|at| at.since(now));
        let rows: HashMap<(&str, Lane), &StrandRow> =
            board.rows.iter().map(|row| ((row.key.as_str(), row.lane), row)).collect();
        let taken: HashSet<i64> = picks.taken.iter().map(|(_, head)| head.sequence).collect();
        let sorted = held.iter().filter(|arrival| !taken.contains(&arrival.head.sequence)).filter_map(|arrival| {
            let row = rows.get(&(arrival.key.as_str(), arrival.lane))?;
            Some((arrival.head.sequence, row.strand))
        });
        let sorted: (Vec<i64>, Vec<i32>) = sorted.unzip();
        let jobs = self.write(link, passage, &board, &picks, (&strands, &places), &sorted).await?;
        observe::claim_blocked(passage.name, picks.blocked.iter().copied());
        if passage.control.has_strands() {
            observe::keys_served(passage.name, picks.key_waits(&strands, now));
        }
        Ok(Some(Through { jobs, again_in, ..Through::default() }))
    }

    /// Takes the lock and looks whether the gates have room.
    async fn look_for_room(
        &self,
        link: &mut Link<'static>,
        passage: &Passage<'_>,
        lane: Lane,
    ) -> Result<Option<Looks>, Fault> {
        let (queue, time) = (passage.queue, self.given_time());
        let (keys, lanes) = (vec![""], vec![lane]);
        let (lock, fold): ([Parameter<'_>; 1], [Parameter<'_>; 2]) = ([&queue], [&queue, &NOTES_MAX]);
        let (strands, counted): ([Parameter<'_>; 3], [Parameter<'_>; 2]) = ([&queue, &keys, &lanes], [&queue, &lanes]);
        let gates: [Parameter<'_>; 2] = [&time, &queue];
        let statements: [InRow<'_>; 5] = [
            (include_str!("sql/lock_queue.sql"), &lock),
            (include_str!("sql/fold_notes.sql"), &fold),
            (include_str!("sql/add_strand.sql"), &strands),
            (include_str!("sql/list_keyless.sql"), &counted),
            (include_str!("sql/list_gates.sql"), &gates),
        ];
        let answers = link.begin_with(&statements).await?;
        let Some((record, halted)) = passage.told(&answers[0])? else { return Ok(None) };
        let roomy = answers[3].first().map(|row| (lane, row.get("strand")));
        let board = Board { halted, gates: GateRows::read(&answers[4]), rows: Vec::new() };
        Ok(Some(Looks { board, door: HashMap::new(), late: Vec::new(), record, roomy }))
    }

    /// Takes the lock and looks: at the strands, at which jobs still stand at the door, and at what the queue has been told. `None`
    /// when that is not what was known, or the queue is paused.
    async fn look(&self, link: &mut Link<'static>, passage: &Passage<'_>) -> Result<Option<Looks>, Fault> {
        let (queue, time) = (passage.queue, self.given_time());
        let (keys, lanes): (Vec<&str>, Vec<Lane>) = passage.strands().into_iter().unzip();
        let seqs: Vec<i64> = passage.arrivals.iter().map(|arrival| arrival.head.sequence).collect();
        let reading = Reading::of(passage, 0);
        let (lock, fold): ([Parameter<'_>; 1], [Parameter<'_>; 2]) = ([&queue], [&queue, &NOTES_MAX]);
        let (strands, door): ([Parameter<'_>; 3], [Parameter<'_>; 1]) = ([&queue, &keys, &lanes], [&seqs]);
        let (read, gates): (_, [Parameter<'_>; 2]) = (reading.parameters(&time), [&time, &queue]);
        let again: [Parameter<'_>; 4] = [&time, &passage.doors, &passage.at_door, &true];
        let names = [passage.name.as_str()].to_vec();
        let all_lanes: [Parameter<'_>; 1] = [&names];
        let mut statements: Vec<InRow<'_>> = vec![
            (include_str!("sql/lock_queue.sql"), &lock),
            (include_str!("sql/fold_notes.sql"), &fold),
            (include_str!("sql/add_strand.sql"), &strands),
            (include_str!("sql/list_at_door.sql"), &door),
            (reading.statement(), &read),
            // Of what is read, last, so that all that was found was due by then.
            (include_str!("sql/list_gates.sql"), &gates),
        ];
        if passage.control.ordered.is_some() {
            // After the strands: a job that left its strand meanwhile, as an edit has it, stands at the door by then.
            statements.push((include_str!("sql/list_door.sql"), &again));
            // Last: a job of a type that is new here may have come first, and stands at a door that was not looked at.
            statements.push((include_str!("sql/list_lanes.sql"), &all_lanes));
        }
        let answers = link.begin_with(&statements).await?;
        let Some((record, halted)) = passage.told(&answers[0])? else { return Ok(None) };
        let doors: HashSet<Lane> = passage.doors.iter().copied().collect();
        if answers.get(7).is_some_and(|lanes| lanes.iter().any(|row| !doors.contains(&row.get("lane")))) {
            return Ok(None);
        }
        // One that was claimed and came back meanwhile is another arrival, and maybe not due yet.
        let mut door = HashMap::with_capacity(answers[3].len());
        for row in &answers[3] {
            let head = control_rows::head(row.get("seq"), row.get("priority"), row.get("due"), true)?;
            door.insert(head.sequence, head);
        }
        let late = match answers.get(6) {
            Some(rows) => passage.others(rows, &door)?,
            None => Vec::new(),
        };
        let mut board = Board { halted, gates: GateRows::read(&answers[5]), rows: Vec::new() };
        if !halted {
            self.learn_strands(link, &answers[4]).await?;
            board.add(&answers[4])?;
        }
        Ok(Some(Looks { board, door, late, record, roomy: None }))
    }

    async fn learn_strands(&self, link: &Link<'_>, rows: &[Row]) -> Result<(), Fault> {
        let lanes: Vec<Lane> = rows.iter().map(|row| row.get("lane")).filter(|lane| *lane != 0).collect();
        self.lanes.learn_lanes(link, &lanes).await
    }

    async fn look_again(&self, link: &Link<'static>, passage: &Passage<'_>) -> Result<Board, Fault> {
        let time = self.given_time();
        let reading = Reading::of(passage, 0);
        let rows = link.query(reading.statement(), &reading.parameters(&time)).await?;
        let gates = link.query(include_str!("sql/list_gates.sql"), &[&time, &passage.queue]).await?;
        self.learn_strands(link, &rows).await?;
        let mut board = Board { halted: false, gates: GateRows::read(&gates), rows: Vec::new() };
        board.add(&rows)?;
        Ok(board)
    }

    /// Picks, and looks at more where what was looked at does not say enough.
    async fn pick(
        &self,
        link: &Link<'static>,
        passage: &Passage<'_>,
        board: &mut Board,
        door: &HashMap<(&str, Lane), Vec<Head>>,
    ) -> Result<(Picks, Vec<Strand>, Vec<usize>), Fault> {
        let (now, time) = (board.gates.now, self.given_time());
        let mut rounds = 0;
        loop {
            let (gates, strands, places) = board.handed(passage.control, &self.lanes, &passage.lanes, door);
            let picks = pick(passage.control, &gates, &strands, passage.most, now);
            if !picks.short.is_empty() {
                let short: Vec<usize> = picks.short.iter().map(|strand| places[*strand]).collect();
                self.read_heads(link, passage.control, board, &short).await?;
                continue;
            }
            let opened = passage.lanes.iter().any(|lane| {
                let is_open = |row: &&StrandRow| row.lane == *lane && row.kept.look == OPEN;
                board.rows.iter().filter(is_open).count() >= passage.open_max() * (rounds + 1)
            });
            rounds += 1;
            if picks.taken.len() < passage.most && opened && rounds < ROUNDS_MAX {
                let reading = Reading::of(passage, rounds * passage.open_max());
                let rows = link.query(reading.statement(), &reading.parameters(&time)).await?;
                self.learn_strands(link, &rows).await?;
                if board.add(&rows)? {
                    continue;
                }
            }
            return Ok((picks, strands, places));
        }
    }

    /// Reads more of the first jobs of these strands.
    async fn read_heads(
        &self,
        link: &Link<'static>,
        control: &Control,
        board: &mut Board,
        places: &[usize],
    ) -> Result<(), Fault> {
        let most = places.iter().map(|place| board.rows[*place].most()).max().unwrap_or(1).saturating_mul(8);
        let lanes: Vec<Lane> = places.iter().map(|place| board.rows[*place].stands_in(control)).collect();
        let parameters: [Parameter<'_>; 3] = [&board.gates.now.as_micros(), &lanes, &small(most)];
        let rows = link.query(include_str!("sql/list_heads.sql"), &parameters).await?;
        let mut heads: HashMap<Lane, Vec<Head>> = HashMap::new();
        for row in &rows {
            let head = control_rows::head(row.get("seq"), row.get("priority"), row.get("due"), false)?;
            heads.entry(row.get("lane")).or_default().push(head);
        }
        for (place, lane) in places.iter().zip(lanes) {
            board.rows[*place].put_heads(heads.remove(&lane).unwrap_or_default(), most);
        }
        Ok(())
    }

    /// Writes what was picked and what became of strands and gates, and commits.
    async fn write(
        &self,
        link: &mut Link<'static>,
        passage: &Passage<'_>,
        board: &Board,
        picks: &Picks,
        (strands, places): (&[Strand], &[usize]),
        (sorted, onto): &(Vec<i64>, Vec<i32>),
    ) -> Result<Vec<Claimed>, Fault> {
        let request = passage.request;
        let (queue, now, worker) = (passage.queue, board.gates.now.as_micros(), request.worker.as_str());
        let lease_time = request.lease_time.map(job_rows::micros);
        let order: HashMap<i64, usize> = picks.taken.iter().map(|(_, head)| head.sequence).zip(0..).collect();
        let mut taken: Vec<&(usize, Head)> = picks.taken.iter().collect();
        taken.sort_unstable_by_key(|(_, head)| head.sequence);
        let seqs: Vec<i64> = taken.iter().map(|(_, head)| head.sequence).collect();
        let ids: Vec<i32> = taken.iter().map(|(strand, _)| strand_id(&strands[*strand])).collect();
        let lanes: Vec<Lane> = taken.iter().map(|(strand, _)| board.rows[places[*strand]].lane).collect();
        let common = tokens::draw_controlled();
        let changed = StrandColumns::of(board.changed(passage.control, picks, places));
        let gates = GateColumns::of(board.changed_gates(picks, &self.lanes));
        let sort: [Parameter<'_>; 2] = [sorted, onto];
        let take: [Parameter<'_>; 8] = [&now, &worker, &lease_time, &seqs, &ids, &lanes, &common, &queue];
        let (strand_columns, gate_columns) = (changed.parameters(), gates.parameters(&queue));
        let mut statements: Vec<InRow<'_>> = vec![(include_str!("sql/claim_picked.sql"), &take)];
        if !sorted.is_empty() && passage.control.has_strands() {
            statements.push((include_str!("sql/sort_ready.sql"), &sort));
        }
        if !changed.strands.is_empty() {
            statements.push((include_str!("sql/put_strand.sql"), &strand_columns));
        }
        if !gates.lanes.is_empty() {
            statements.push((include_str!("sql/put_gate.sql"), &gate_columns));
        }
        if seqs.is_empty() {
            statements.remove(0);
            link.commit_with(&statements).await?;
            return Ok(Vec::new());
        }
        let on_its_way = self.unheard.begin(common);
        let written = link.commit_with(&statements).await;
        if written.as_ref().err().is_none_or(Fault::is_certain) {
            on_its_way.arrived();
        }
        let rows = written?.swap_remove(0);
        let mut jobs = Vec::with_capacity(rows.len());
        let Some(columns) = rows.first().map(JobColumns::of) else { return Ok(Vec::new()) };
        for row in &rows {
            let (seq, job) = job_rows::claimed(row, &columns, &self.lanes, &request.worker)?;
            let lease = Lease::granted(&job, self.tokens().token(seq, common));
            let expires_in = job.lease.as_ref().map_or(Duration::ZERO, |lease| lease.expires_at.since(job.updated_at));
            jobs.push((order.get(&seq).copied(), Claimed { job, lease, expires_in }));
        }
        jobs.sort_by_key(|(place, _)| *place);
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }
}

fn strand_id(strand: &Strand) -> i32 {
    i32::try_from(strand.id).unwrap_or_default()
}

/// When to ask again: while the queue lets nothing through, what it says counts; otherwise also what was not looked at.
fn again_at(control: &Control, gates: &GateRows, picks: &Picks) -> Option<Timestamp> {
    match picks.gates.queue.room(&control.of_queue(), gates.now).starts {
        0 => picks.again_at,
        _ => picks.again_at.into_iter().chain(gates.next).min(),
    }
}

impl Passage<'_> {
    /// What the locked queue has been told, and whether it is paused; `None` when that is not what was known.
    fn told(&self, locked: &[Row]) -> Result<Option<(ControlRecord, bool)>, Fault> {
        let Some(row) = locked.first() else { return Ok(None) };
        let Some(text) = row.get::<_, Option<&str>>("control") else { return Ok(None) };
        let record: ControlRecord = serde_json::from_str(text)?;
        let is_known = record.control == *self.control;
        Ok(is_known.then(|| (record, row.get("halted"))))
    }

    /// Meets the jobs at the door.
    fn meet(&mut self, rows: &[Row]) -> Result<(), Fault> {
        if !self.control.has_strands() {
            // All wait at the door, and are read there.
            self.keys.push(String::new());
            return Ok(());
        }
        for row in rows {
            self.arrivals.push(self.arrival(row)?);
        }
        let keys: HashSet<&String> = self.arrivals.iter().map(|arrival| &arrival.key).collect();
        self.keys = keys.into_iter().cloned().collect();
        Ok(())
    }

    fn arrival(&self, row: &Row) -> Result<Arrival, Fault> {
        let key = row.get::<_, Option<&str>>("options").and_then(JobOptions::key_in);
        let key = self.control.key_of(key.as_deref()).to_owned();
        let head = control_rows::head(row.get("seq"), row.get("priority"), row.get("due"), true)?;
        Ok(Arrival { lane: row.get("lane"), key, head })
    }

    /// Those at the door that are not among these.
    fn others(&self, rows: &[Row], known: &HashMap<i64, Head>) -> Result<Vec<Arrival>, Fault> {
        let mut others = Vec::new();
        for row in rows {
            let arrival = self.arrival(row)?;
            if !arrival.is_among(known) {
                others.push(arrival);
            }
        }
        Ok(others)
    }

    /// How many open strands of a lane are looked at together.
    pub(super) fn open_max(&self) -> usize {
        if self.most == 0 { 0 } else { self.most.saturating_add(OPEN_MORE) }
    }

    /// The strands that there must be: of those at the door, or one for each lane.
    fn strands(&self) -> Vec<(&str, Lane)> {
        if !self.control.has_strands() {
            return self.lanes.iter().map(|lane| ("", *lane)).collect();
        }
        let strands: HashSet<(&str, Lane)> =
            self.arrivals.iter().map(|arrival| (arrival.key.as_str(), arrival.lane)).collect();
        strands.into_iter().collect()
    }
}
