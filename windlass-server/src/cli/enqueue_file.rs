//! `windlass enqueue --file`: jobs from JSONL, batch by batch. Each batch is stored whole or not at all.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use windlass::store::InsertedJob;
use windlass::workflow::Submission;
use windlass::{BATCH_MAX, JobSpec};

use super::connect::Session;
use super::enqueue::Stored;
use super::exit::{End, Exit};
use super::interrupt::Interrupt;
use super::output::{Format, Row, say};
use super::table::{jobs, number};
use crate::wire;

/// Longest line: a payload of 16 MiB in base64, and what stands around it.
const LINE_BYTES_MAX: u64 = 32 << 20;

/// How a file is enqueued.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Many at once")]
pub(crate) struct ManyArgs {
    /// Jobs in each transaction
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "file")]
    batch: usize,
    /// Leave out so many lines, to go on where an earlier run stopped
    #[arg(long, value_name = "LINES", default_value_t = 0, requires = "file", hide_default_value = true)]
    skip: u64,
}

/// How far it got.
#[derive(Debug, Default)]
struct Done {
    /// Lines that are dealt with: to be skipped when it goes on.
    lines: u64,
    stored: u64,
    existing: u64,
}

pub(crate) async fn run(session: &Session, file: &Path, many: &ManyArgs) -> anyhow::Result<()> {
    let batch = many.batch.clamp(1, BATCH_MAX);
    let mut lines = Lines::open(file)?;
    let interrupt = Interrupt::listen();
    let progress = bar();
    let mut done = Done::default();
    for _ in 0..many.skip {
        if lines.next_line().context("cannot skip lines")?.is_none() {
            break;
        }
    }
    done.lines = lines.number;
    loop {
        let specs = read_batch(&mut lines, batch, session).map_err(|error| stopped(error, &done))?;
        if specs.is_empty() {
            break;
        }
        let stored = session.client.submit(Submission::new(specs)?).await;
        let stored = stored.map_err(|error| stopped(error.into(), &done))?;
        done.lines = lines.number;
        note(session, &stored.jobs, &mut done)?;
        progress.set_position(done.stored + done.existing);
        if interrupt.is_asked() {
            progress.finish_and_clear();
            let message = format!("interrupted; {} so far", summary(&done));
            return Err(End::new(Exit::Interrupted, message).advise(go_on(&done)).into());
        }
    }
    progress.finish_and_clear();
    say(summary(&done));
    Ok(())
}

fn note(session: &Session, stored: &[InsertedJob], done: &mut Done) -> anyhow::Result<()> {
    for job in stored {
        match job.existing {
            true => done.existing += 1,
            false => done.stored += 1,
        }
        match session.out.format {
            Format::Table | Format::Wide => {}
            Format::Id => session.out.line(job.id.to_string())?,
            Format::Json | Format::Jsonl => session.out.line(serde_json::to_string(&Stored(*job).wire())?)?,
        }
    }
    Ok(())
}

/// Up to so many jobs, each checked; the refs of a batch hold inside it.
fn read_batch(lines: &mut Lines, batch: usize, session: &Session) -> anyhow::Result<Vec<JobSpec>> {
    let mut read = Vec::with_capacity(batch);
    let mut numbers = Vec::with_capacity(batch);
    while read.len() < batch {
        let Some(line) = lines.next_line()? else { break };
        if line.trim().is_empty() {
            continue;
        }
        read.push(job(&line).with_context(|| format!("line {} is no job", lines.number))?);
        numbers.push(lines.number);
    }
    if read.iter().any(|job| job.reference.is_some() || !job.depends_on.is_empty()) {
        // Jobs that name each other are checked together; which line is wrong follows from the words.
        return Ok(wire::check_jobs(read, &session.client)?);
    }
    let mut specs = Vec::with_capacity(read.len());
    for (job, number) in read.into_iter().zip(numbers) {
        let checked =
            wire::check_jobs(vec![job], &session.client).with_context(|| format!("line {number} is refused"))?;
        specs.extend(checked);
    }
    Ok(specs)
}

/// The job that a line describes.
pub(crate) fn job(line: &str) -> Result<wire::NewJob, End> {
    serde_json::from_str(line).map_err(|error| {
        End::usage(error.to_string())
            .advise("a line is one JSON object, such as {\"type\":\"email.send\",\"payload\":{}}")
    })
}

/// The error of a batch in the middle, with how far it got.
fn stopped(error: anyhow::Error, done: &Done) -> anyhow::Error {
    if done.stored + done.existing == 0 {
        return error.context("nothing was stored");
    }
    error.context(format!("{}, then stopped ({})", summary(done), go_on(done)))
}

fn summary(done: &Done) -> String {
    match done.existing {
        0 => format!("enqueued {}", jobs(done.stored)),
        existing => format!("enqueued {}, {} existed already", jobs(done.stored), number(existing)),
    }
}

fn go_on(done: &Done) -> String {
    format!("go on with --skip {}", done.lines)
}

/// The lines of a file or of standard input.
struct Lines {
    from: Box<dyn BufRead>,
    number: u64,
}

impl Lines {
    fn open(file: &Path) -> anyhow::Result<Self> {
        let from: Box<dyn BufRead> = if file == Path::new("-") {
            Box::new(std::io::stdin().lock())
        } else {
            let opened = std::fs::File::open(file);
            Box::new(BufReader::new(opened.with_context(|| format!("cannot open {}", file.display()))?))
        };
        Ok(Lines { from, number: 0 })
    }

    fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = Vec::new();
        let read = (&mut self.from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read as u64 == LINE_BYTES_MAX {
            return Err(End::usage(format!("line {} is longer than any job can be", self.number))
                .advise("write one job on each line, as JSON")
                .into());
        }
        let text = String::from_utf8(line);
        let text = text.map_err(|_| End::usage(format!("line {} is not UTF-8", self.number)))?;
        Ok(Some(text))
    }
}

/// A counter on standard error; indicatif draws nothing where that is no terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} jobs, {per_sec}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(line: &str) -> anyhow::Result<()> {
        wire::check_jobs(vec![job(line)?], &windlass::Client::in_memory())?;
        Ok(())
    }

    #[test]
    fn a_line_is_one_job() {
        assert!(check("{\"type\":\"mail\",\"payload\":{\"to\":1},\"delay\":\"5m\"}").is_ok());
        for bad in
            ["", "[]", "{}", "{\"type\":\"mail\",\"colour\":1}", "{\"type\":\"two words\"}", "{\"type\":\"a\"} x"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_the_reader_panic(line in "\\PC{0,80}|\\{\"type\":\"[a-z ]{0,5}\",\"[a-z_]{1,12}\":[\"0-9a-z{}\\[\\]]{0,20}\\}") {
            let _ = check(&line);
        }
    }
}
