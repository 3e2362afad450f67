//! `windlass workflows`: graphs of jobs.

mod graph;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use windlass::job::RequeueOptions;
use windlass::store::{Act, Filter};
use windlass::workflow::WorkflowState;
use windlass::{State, WorkflowId};

use super::bulk::{self, HowArgs};
use super::connect::{Reach, Session};
use super::exit::{End, Exit};
use super::ids::{self, Typed};
use super::output::{OutputArgs, PageArgs, say};
use super::parse;
use super::rows::workflow_state;
use super::table::{jobs, span};
use crate::wire;

/// What `windlass workflows` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List workflows, newest first
    #[command(after_help = "Example:\n  windlass workflows list --limit 10")]
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one workflow
    #[command(after_help = "Example:\n  windlass workflows get 3f0c… -o wide")]
    Get {
        /// Which workflow
        #[arg(value_name = "ID")]
        id: Typed<WorkflowId>,
    },
    /// Draw a workflow: its jobs in order, and what each waits for
    #[command(after_help = "\
Examples:
  windlass workflows graph 3f0c…
  windlass workflows graph 3f0c… --as dot | dot -Tsvg > flow.svg")]
    Graph {
        /// Which workflow
        #[arg(value_name = "ID")]
        id: Typed<WorkflowId>,
        /// In which form
        #[arg(long = "as", value_enum, default_value_t, value_name = "FORM")]
        form: graph::Form,
    },
    /// Cancel every unfinished job of a workflow
    #[command(after_help = "Example:\n  windlass workflows cancel 3f0c… --reason 'order was withdrawn'")]
    Cancel {
        /// Which workflow
        #[arg(value_name = "ID")]
        id: Typed<WorkflowId>,
        /// Take running jobs away from their workers at once
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Send the dead jobs of a workflow back, and what died of them
    #[command(after_help = "Example:\n  windlass workflows requeue 3f0c… --yes")]
    Requeue {
        /// Which workflow
        #[arg(value_name = "ID")]
        id: Typed<WorkflowId>,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Start the workflow that a JSON file describes
    #[command(after_help = "\
The file: {\"name\": \"order-42\", \"jobs\": [
  {\"ref\": \"charge\", \"type\": \"charge\", \"payload\": {\"order\": 42}},
  {\"ref\": \"pack\", \"type\": \"pack\", \"depends_on\": [{\"ref\": \"charge\"}]}]}
Example:
  windlass workflows start -f order.json --wait=10m")]
    Start {
        /// The file; - for standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Wait until all its jobs have ended, perhaps no longer than this
        #[arg(long, value_name = "DURATION", require_equals = true, value_parser = parse::duration)]
        wait: Option<Option<Duration>>,
    },
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = match &arguments.command {
        Command::Start { .. } => reach.open_or_make(&arguments.output).await?,
        _ => reach.open(&arguments.output).await?,
    };
    let (session, client) = (&session, &session.client);
    match arguments.command {
        Command::List { page } => {
            let next = async |limit: usize, after: Option<windlass::store::Cursor>| {
                client.workflows(limit, after.as_ref()).await
            };
            session.out.pages(&page, "there are no workflows", next).await
        }
        Command::Get { id } => session.out.one(&client.workflow(ids::workflow(session, &id).await?).await?),
        Command::Graph { id, form } => graph::run(session, ids::workflow(session, &id).await?, form).await,
        Command::Cancel { id, force, how } => {
            let id = client.workflow(ids::workflow(session, &id).await?).await?.id;
            let filter = Filter::new().workflow(id).states(bulk::CANCEL.allowed.to_vec());
            bulk::on_all(session, bulk::CANCEL, Act::Cancel { force }, filter, &how).await
        }
        Command::Requeue { id, how } => {
            let id = client.workflow(ids::workflow(session, &id).await?).await?.id;
            let states = vec![State::Failed, State::DeadLetter];
            let filter = Filter::new().workflow(id).states(states);
            let options = RequeueOptions { with_dependents: true, ..RequeueOptions::default() };
            bulk::on_all(session, bulk::REQUEUE, Act::Requeue(options), filter, &how).await
        }
        Command::Start { file, wait } => start(session, &file, wait).await,
    }
}

async fn start(session: &Session, file: &std::path::Path, wait: Option<Option<Duration>>) -> anyhow::Result<()> {
    let shown = file.display();
    let text = match file == std::path::Path::new("-") {
        true => std::io::read_to_string(std::io::stdin().lock()).context("cannot read standard input")?,
        false => std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?,
    };
    let workflow: wire::NewWorkflow = serde_json::from_str(&text).map_err(|error| {
        End::usage(format!("{shown} describes no workflow: {error}"))
            .advise("`windlass workflows start --help` shows one")
    })?;
    let (submission, refs) = workflow.check(&session.client)?;
    let stored = session.client.submit(submission).await?;
    let id = stored.workflow.expect("a store answers a workflow with its id");
    say(format!("started workflow {id} with {}", jobs(stored.jobs.len() as u64)));
    let Some(limit) = wait else {
        return match session.out.is_table() {
            true => session.out.one(&session.client.workflow(id).await?),
            false => print_started(session, &wire::InsertedBatch::of(&stored, refs)),
        };
    };
    wait_for(session, id, limit).await
}

fn print_started(session: &Session, started: &wire::InsertedBatch) -> anyhow::Result<()> {
    match (session.out.format, started.workflow_id) {
        (super::output::Format::Id, Some(id)) => Ok(session.out.line(id.to_string())?),
        _ => session.out.json(started),
    }
}

async fn wait_for(session: &Session, id: WorkflowId, limit: Option<Duration>) -> anyhow::Result<()> {
    let wait = session.client.wait_workflow(id);
    let ended = match limit {
        None => wait.await?,
        Some(limit) => match tokio::time::timeout(limit, wait).await {
            Ok(ended) => ended?,
            Err(_) => {
                let message = format!("workflow {id} is still running after {}", span(limit));
                let advice = format!("`windlass workflows graph {id}` shows where it stands; it goes on meanwhile");
                return Err(End::new(Exit::TimedOut, message).advise(advice).into());
            }
        },
    };
    session.out.one(&ended)?;
    match ended.state() {
        WorkflowState::Completed => Ok(()),
        state => {
            let message = format!("workflow {id} ended {}", workflow_state(state));
            let advice = format!("`windlass workflows graph {id}` shows which job it was");
            Err(End::new(Exit::EndedBadly, message).advise(advice).into())
        }
    }
}
