//! Flow control that goes along with a move: what queues have been told, and what is known of their gates beside what runs.
//! What runs is counted anew from the leases that were moved.

use super::control_columns::GateColumns;
use super::control_rows::limit_and_hold;
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows;
use super::lanes::Lane;
use super::link::{Link, Parameter};
use super::moving::Mover;
use crate::flow::{Control, ControlRecord, Gate, GateName};
use crate::job::{JobType, QueueName};
use crate::store::moving::Flow;
use crate::time::Timestamp;

/// How many keys are written in one statement.
const KEYS: usize = 5000;

impl Mover {
    pub(super) async fn read_flow(&self) -> Result<Flow, Fault> {
        let mut using = self.connection().await?;
        let link = using.link()?;
        let mut flow = Flow::default();
        for row in &link.query(include_str!("sql/list_controlled.sql"), &[]).await? {
            let Some(text) = row.get::<_, Option<&str>>("control") else { continue };
            let (number, queue) = (row.get::<_, i32>("queue"), QueueName::new(row.get::<_, &str>("name"))?);
            let record: ControlRecord = serde_json::from_str(text)?;
            let gates = link.query(include_str!("moving/list_moved_gates.sql"), &[&number]).await?;
            let lanes: Vec<Lane> = gates.iter().map(|row| row.get("lane")).filter(|lane| *lane != 0).collect();
            self.inner.lanes.learn_lanes(link, &lanes).await?;
            for row in &gates {
                let (name, gate) = (self.gate_name(row)?, read_gate(row, &record.control)?);
                if gate != Gate::default() {
                    flow.gates.push((queue.clone(), name.stored(), gate));
                }
            }
            flow.controls.push((queue, record));
        }
        Ok(flow)
    }

    fn gate_name(&self, row: &Row) -> Result<GateName, Fault> {
        if let Some(key) = row.get::<_, Option<String>>("key") {
            return Ok(GateName::Key(key));
        }
        match row.get::<_, Lane>("lane") {
            0 => Ok(GateName::Queue),
            lane => match self.inner.lanes.name(lane) {
                Some((_, job_type)) => Ok(GateName::Type(job_type)),
                None => Err(job_rows::corrupt("a gate of a lane that is not there")),
            },
        }
    }

    /// Brings queues under the control that they had, in place of what an earlier try left, and counts what runs in them.
    pub(super) async fn write_flow(&self, link: &Link<'_>, flow: &Flow) -> Result<(), Fault> {
        for (queue, record) in &flow.controls {
            link.execute(include_str!("sql/add_queue.sql"), &[&vec![queue.as_str()]]).await?;
            let rows = link.query(include_str!("sql/get_control.sql"), &[&queue.as_str()]).await?;
            let number: Option<i32> = rows.first().map(|row| row.get("queue"));
            let number = number.ok_or_else(|| job_rows::corrupt("a queue without a number"))?;
            link.execute(include_str!("sql/delete_gates.sql"), &[&number]).await?;
            link.execute(include_str!("sql/put_control.sql"), &[&number, &job_rows::json(record)]).await?;
            let (mut lanes, mut keys) = (vec![(0, Gate::default())], Vec::new());
            for (_, name, gate) in flow.gates.iter().filter(|(of, _, _)| of == queue) {
                match GateName::from_stored(name)? {
                    GateName::Queue => lanes[0].1 = gate.clone(),
                    GateName::Type(job_type) => lanes.push((self.lane_of(link, queue, &job_type).await?, gate.clone())),
                    GateName::Key(key) => keys.push((key, gate)),
                }
            }
            let columns = GateColumns::of(lanes);
            link.execute(include_str!("sql/put_gate.sql"), &columns.parameters(&number)).await?;
            for some in keys.chunks(KEYS) {
                put_keys(link, number, some).await?;
            }
            self.inner.sweep(link, number, &record.control, true).await?;
            self.inner.lanes.look_again(queue);
        }
        Ok(())
    }

    async fn lane_of(&self, link: &Link<'_>, queue: &QueueName, job_type: &JobType) -> Result<Lane, Fault> {
        self.inner.lanes.ensure(link, [(queue, job_type)]).await?;
        self.inner.lanes.get(queue, job_type).ok_or_else(|| job_rows::corrupt("a lane that was not made"))
    }
}

fn read_gate(row: &Row, control: &Control) -> Result<Gate, Fault> {
    let (limit, held_until) = limit_and_hold(row);
    // Where keys take no turns, a strand keeps the place of its next job there.
    let has_turn = control.fair || row.get::<_, Option<&str>>("key").is_none();
    Ok(Gate {
        tat: row.get("tat"),
        held_until,
        turn: if has_turn { row.get("turn") } else { 0 },
        owner: row.get("owner"),
        limit,
        ..Gate::default()
    })
}

async fn put_keys(link: &Link<'_>, queue: i32, gates: &[(String, &Gate)]) -> Result<(), Fault> {
    let keys: Vec<&str> = gates.iter().map(|(key, _)| key.as_str()).collect();
    let turns: Vec<i64> = gates.iter().map(|(_, gate)| gate.turn).collect();
    let tats: Vec<i64> = gates.iter().map(|(_, gate)| gate.tat).collect();
    let held: Vec<Option<i64>> = gates.iter().map(|(_, gate)| gate.held_until.map(Timestamp::as_micros)).collect();
    let owners: Vec<Option<i64>> = gates.iter().map(|(_, gate)| gate.owner).collect();
    let limits: Vec<Option<String>> = gates.iter().map(|(_, gate)| gate.limit.as_ref().map(job_rows::json)).collect();
    let parameters: [Parameter<'_>; 7] = [&queue, &keys, &turns, &tats, &held, &owners, &limits];
    link.execute(include_str!("moving/put_moved_strands.sql"), &parameters).await?;
    Ok(())
}
