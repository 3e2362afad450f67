//! `windlass jobs export`: all jobs that match as JSON lines, for other tools.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use windlass::store::PAGE_MAX;

use crate::cli::connect::Session;
use crate::cli::exit::{End, Exit};
use crate::cli::filter::FilterArgs;
use crate::cli::interrupt::Interrupt;
use crate::cli::output::{Row, say};
use crate::cli::table::jobs;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  windlass jobs export --state dead_letter --to dead.jsonl
  windlass jobs export --queue mail | jq .payload
  windlass jobs export --to jobs.jsonl && windlass enqueue --file jobs.jsonl --store sqlite:other.db")]
pub(super) struct Arguments {
    #[command(flatten)]
    filter: FilterArgs,
    /// Write to this new file instead of standard output
    #[arg(long, value_name = "FILE", help_heading = "Where to")]
    to: Option<PathBuf>,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> anyhow::Result<()> {
    let filter = arguments.filter.at(session.out.now);
    let mut to: Box<dyn Write> = match &arguments.to {
        None => Box::new(std::io::stdout()),
        Some(path) => {
            // For its owner alone: it holds every payload.
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
                match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        let message = format!("cannot export to {}: it exists already", path.display());
                        End::new(Exit::Conflict, message).advise("name a new file").into()
                    }
                    _ => anyhow::Error::new(error).context(format!("cannot make {}", path.display())),
                }
            });
            Box::new(made?)
        }
    };
    let mut lines = BufWriter::new(&mut to);
    let (interrupt, progress) = (Interrupt::listen(), ProgressBar::new_spinner());
    let (mut count, mut after) = (0, None);
    loop {
        let page = session.client.list(filter.clone(), PAGE_MAX, after).await?;
        for job in &page.items {
            serde_json::to_writer(&mut lines, &job.wire())?;
            lines.write_all(b"\n")?;
        }
        lines.flush()?;
        count += page.items.len() as u64;
        progress.set_message(format!("exported {}", jobs(count)));
        progress.tick();
        after = page.next;
        if after.is_none() {
            break;
        }
        if interrupt.is_asked() {
            progress.finish_and_clear();
            return Err(End::new(Exit::Interrupted, format!("interrupted; exported {} so far", jobs(count))).into());
        }
    }
    progress.finish_and_clear();
    say(format!("exported {}", jobs(count)));
    Ok(())
}
