//! `windlass enqueue --file`: jobs from JSONL, batch by batch. Each batch is stored whole or not at all.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use windlass::JobId;
use windlass::job::{BATCH_MAX, JobSpec, SYSTEM_PREFIX};
use windlass::store::InsertedJob;
use windlass::workflow::Submission;

use super::connect::Session;
use super::enqueue::Stored;
use super::exit::{End, Exit};
use super::exported;
use super::interrupt::Interrupt;
use super::output::{Format, Row, say};
use super::table::jobs;
use crate::figures::number;
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
    /// Of a file that `jobs export` wrote, enqueue jobs that had ended, too
    #[arg(long, requires = "file")]
    ended: bool,
}

/// How far it got.
#[derive(Debug, Default)]
struct Done {
    /// Lines that are dealt with: to be skipped when it goes on.
    lines: u64,
    stored: u64,
    existing: u64,
    /// Exported jobs that were left out because they had ended.
    left_out: u64,
    /// Exported jobs of the system, such as webhooks, which the jobs that they are about bring forth again.
    system: u64,
    /// Dependencies of exported jobs that could not be kept.
    unlinked: u64,
    /// The new ids of exported jobs.
    ids: HashMap<JobId, JobId>,
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
        let Batch { specs, old, ended } =
            read_batch(&mut lines, batch, session, many.ended, &mut done).map_err(|error| stopped(error, &done))?;
        if ended && specs.is_empty() {
            break;
        }
        if specs.is_empty() {
            continue;
        }
        let stored = session.client.submit(Submission::new(specs)?).await;
        let stored = stored.map_err(|error| stopped(error.into(), &done))?;
        done.lines = lines.number;
        done.ids.extend(old.into_iter().zip(&stored.jobs).map(|(old, job)| (old, job.id)));
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

/// Jobs to be stored together.
struct Batch {
    specs: Vec<JobSpec>,
    /// The old ids of exported jobs, in the same order.
    old: Vec<JobId>,
    /// Whether the file is at its end.
    ended: bool,
}

/// A batch of jobs, each checked; the refs of a batch hold inside it.
fn read_batch(
    lines: &mut Lines,
    batch: usize,
    session: &Session,
    with_ended: bool,
    done: &mut Done,
) -> anyhow::Result<Batch> {
    let (mut read, mut exported, mut numbers) = (Vec::with_capacity(batch), Vec::new(), Vec::new());
    let mut ended = false;
    while read.len() + exported.len() < batch {
        let Some(line) = lines.next_line()? else {
            ended = true;
            break;
        };
        if line.trim().is_empty() {
            continue;
        }
        if exported::is_one(&line) {
            let job = exported::read(&line, session.out.now)
                .with_context(|| format!("line {} is no exported job", lines.number))?;
            match job.job.job_type.starts_with(SYSTEM_PREFIX) {
                true => done.system += 1,
                false if job.state.is_terminal() && !with_ended => done.left_out += 1,
                false => exported.push(job),
            }
            continue;
        }
        read.push(job(&line).with_context(|| format!("line {} is no job", lines.number))?);
        numbers.push(lines.number);
    }
    if !exported.is_empty() {
        done.unlinked += exported::link(&mut exported, &done.ids) as u64;
        let old = exported.iter().map(|job| job.id).collect();
        read.splice(0..0, exported.into_iter().map(|exported| exported.job));
        return Ok(Batch { specs: wire::check_jobs(read, &session.client)?, old, ended });
    }
    if read.iter().any(|job| job.reference.is_some() || !job.depends_on.is_empty()) {
        // Jobs that name each other are checked together; which line is wrong follows from the words.
        return Ok(Batch { specs: wire::check_jobs(read, &session.client)?, old: Vec::new(), ended });
    }
    let mut specs = Vec::with_capacity(read.len());
    for (job, number) in read.into_iter().zip(numbers) {
        let checked =
            wire::check_jobs(vec![job], &session.client).with_context(|| format!("line {number} is refused"))?;
        specs.extend(checked);
    }
    Ok(Batch { specs, old: Vec::new(), ended })
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
    let mut text = format!("enqueued {}", jobs(done.stored));
    if done.existing > 0 {
        text += &format!(", {} existed already", number(done.existing));
    }
    if done.left_out > 0 {
        text += &format!(", left out {} that had ended (--ended takes them)", number(done.left_out));
    }
    if done.system > 0 {
        text += &format!(", left out {} of the system's own", number(done.system));
    }
    if done.unlinked > 0 {
        text += &format!("; {} dependencies are not in the file and are not waited for", number(done.unlinked));
    }
    text
}

fn go_on(done: &Done) -> String {
    format!("go on with --skip {}", done.lines)
}

/// The lines of a file or of standard input.
struct Lines {
    from: Box<dyn Source>,
    /// Where lines begin that are still to be read, the next one last; `None` to read straight on.
    ///
    /// A list of jobs begins with the newest, and so does an export. It is read from its end, so that jobs come in their old
    /// order and dependencies before what waits for them.
    backwards: Option<Vec<u64>>,
    number: u64,
}

trait Source: BufRead {
    /// Goes to a place in a file.
    fn go_to(&mut self, place: u64) -> std::io::Result<()>;
}

impl Source for BufReader<std::fs::File> {
    fn go_to(&mut self, place: u64) -> std::io::Result<()> {
        self.seek(SeekFrom::Start(place)).map(drop)
    }
}

impl Source for std::io::StdinLock<'_> {
    fn go_to(&mut self, _: u64) -> std::io::Result<()> {
        unreachable!("standard input is read straight on")
    }
}

impl Lines {
    fn open(file: &Path) -> anyhow::Result<Self> {
        if file == Path::new("-") {
            return Ok(Lines { from: Box::new(std::io::stdin().lock()), backwards: None, number: 0 });
        }
        let opened = std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        // A pipe cannot be read from its end.
        let whole = opened.metadata().is_ok_and(|about| about.is_file());
        let mut lines = Lines { from: Box::new(BufReader::new(opened)), backwards: None, number: 0 };
        if whole && lines.next_line()?.is_some_and(|first| exported::is_one(&first)) {
            lines.backwards = Some(lines.beginnings()?);
        } else if whole {
            lines.from.go_to(0)?;
        }
        lines.number = 0;
        Ok(lines)
    }

    /// Where all lines begin.
    fn beginnings(&mut self) -> anyhow::Result<Vec<u64>> {
        self.from.go_to(0)?;
        let (mut beginnings, mut at, mut line) = (Vec::new(), 0, Vec::new());
        loop {
            line.clear();
            let read = (&mut self.from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(beginnings);
            }
            beginnings.push(at);
            at += read as u64;
        }
    }

    fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        if let Some(beginnings) = &mut self.backwards {
            let Some(place) = beginnings.pop() else { return Ok(None) };
            self.from.go_to(place)?;
        }
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
