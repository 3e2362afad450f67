//! `windlass stats`: the numbers of the whole store.

use clap::Args;
use windlass::State;

use super::connect::Reach;
use super::detail::Lines;
use super::output::{Format, OutputArgs};
use crate::figures::number;
use crate::wire;

/// What `windlass stats` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass stats\n  windlass stats -o json | jq .states.dead_letter")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    let totals = session.client.totals().await?;
    if matches!(session.out.format, Format::Json | Format::Jsonl) {
        return session.out.json(&wire::Totals::from(totals));
    }
    let mut lines = Lines::default();
    for state in State::ALL {
        lines.add(state.as_str(), number(totals.states[usize::from(state.number())]));
    }
    lines.add("pruned", number(totals.pruned));
    lines.add("accepted", number(totals.accepted));
    Ok(session.out.line(lines.text())?)
}
