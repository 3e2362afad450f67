//! `windlass top`: rates, queues, workers and the newest failures, drawn anew every second.
//!
//! Plain ANSI: the alternate screen, one write for each drawing. Where standard output is no terminal, one drawing.

use std::io::{Read, Write};
use std::time::Duration;

use clap::Args;
use owo_colors::OwoColorize;
use tokio_util::sync::CancellationToken;
use windlass::job::JobRecord;
use windlass::store::{QueueRecord, Totals, WorkerRecord};
use windlass::{State, Timestamp};

use super::connect::{Reach, Session};
use super::interrupt::Interrupt;
use super::output::{Out, OutputArgs, Row, is_watched};
use super::parse;
use super::rows::Dead;
use super::table;
use crate::figures::number;
use crate::serve::attention::{AttentionItem, Seen};
use crate::serve::flow::KeyCounts;

/// How many failures are shown.
const FAILURES_SHOWN: usize = 5;
/// How many queues and workers are shown: more do not fit a screen.
const ROWS_SHOWN: usize = 15;

/// To the alternate screen, without a cursor and without breaking long lines; and back.
const BEGIN: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const END: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// What `windlass top` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
q, Esc or Ctrl-C leaves. Without a terminal it prints once.
Examples:
  windlass top
  windlass top --every 5s")]
pub(crate) struct Arguments {
    /// How often to draw
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse::duration)]
    every: Duration,
    /// Draw once and leave
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is drawn, taken at one moment.
struct Snapshot {
    now: Timestamp,
    totals: Totals,
    queues: Vec<QueueRecord>,
    workers: Vec<WorkerRecord>,
    dead: Vec<JobRecord>,
    attention: Vec<AttentionItem>,
    keys: Vec<KeyCounts>,
}

impl Snapshot {
    async fn take(session: &Session) -> windlass::Result<Snapshot> {
        let client = &session.client;
        let queues = client.queues().await?;
        Ok(Snapshot {
            keys: KeyCounts::look(&**session.store(), &queues).await?,
            now: session.store().now().await?,
            totals: client.totals().await?,
            queues,
            workers: client.workers().await?,
            dead: client.dead(FAILURES_SHOWN, None).await?.items,
            attention: Seen::look(&**session.store()).await?.attention(),
        })
    }

    fn ended(&self) -> u64 {
        let of = |state: State| self.totals.states[usize::from(state.number())];
        State::ALL.into_iter().filter(|state| state.is_terminal()).map(of).sum::<u64>() + self.totals.pruned
    }
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    let first = Snapshot::take(&session).await?;
    if arguments.once || !is_watched() {
        return Ok(write!(anstream::stdout(), "{}", drawing(&session.out, None, &first))?);
    }
    let interrupt = Interrupt::listen();
    let every = arguments.every.max(Duration::from_millis(100));
    let keys = Keys::listen();
    screen(BEGIN)?;
    let ended = live(&session, first, every, &interrupt, &keys).await;
    screen(END)?;
    ended
}

async fn live(
    session: &Session,
    first: Snapshot,
    every: Duration,
    interrupt: &Interrupt,
    keys: &Keys,
) -> anyhow::Result<()> {
    let (mut last, mut problem) = (first, None);
    let mut drawn = drawing(&session.out, None, &last);
    loop {
        let mut text = drawn.clone();
        if let Some(problem) = &problem {
            text.push_str(&format!("\n{problem}\n"));
        }
        screen(&placed(&text, height()))?;
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = interrupt.asked() => return Ok(()),
            () = keys.asked_to_leave() => return Ok(()),
        }
        match Snapshot::take(session).await {
            Ok(next) => {
                drawn = drawing(&session.out, Some(&last), &next);
                (last, problem) = (next, None);
            }
            Err(error) => problem = Some(format!("cannot look: {error}")),
        }
    }
}

/// Lines put at their places, each clearing what was there before, and the rest cleared: no flicker, and nothing that
/// is too long for the screen scrolls it. Lines beyond the height are left out: a terminal would put each of them on its
/// last line.
fn placed(text: &str, height: usize) -> String {
    let all = text.lines().count();
    let shown = if all <= height { all } else { height.saturating_sub(1) };
    let left_out = (all > shown).then(|| format!("{} more lines; a taller window shows them", all - shown));
    let lines = text.lines().take(shown).map(str::to_owned).chain(left_out).take(height).enumerate();
    let lines = lines.map(|(place, line)| format!("\u{1b}[{};1H{line}\u{1b}[K", place + 1));
    lines.collect::<String>() + "\u{1b}[J"
}

/// How many lines the terminal has.
fn height() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(usize::MAX)
}

/// Keys, read as they are pressed and not shown. Dropping it gives the terminal back as it was.
struct Keys {
    before: Option<rustix::termios::Termios>,
    leave: CancellationToken,
}

impl Keys {
    fn listen() -> Self {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let leave = CancellationToken::new();
        let before = tcgetattr(std::io::stdin()).ok();
        let Some(mut quiet) = before.clone() else { return Keys { before, leave } };
        quiet.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        if tcsetattr(std::io::stdin(), OptionalActions::Now, &quiet).is_err() {
            return Keys { before: None, leave };
        }
        let pressed = leave.clone();
        // Reading cannot be given up, so the thread ends with the process.
        std::thread::spawn(move || {
            let mut keys = [0; 16];
            while let Ok(read @ 1..) = std::io::stdin().lock().read(&mut keys) {
                if leaves(&keys[..read]) {
                    return pressed.cancel();
                }
            }
        });
        Keys { before, leave }
    }

    async fn asked_to_leave(&self) {
        self.leave.cancelled().await;
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = rustix::termios::tcsetattr(std::io::stdin(), rustix::termios::OptionalActions::Now, before);
        }
    }
}

/// Whether keys that came together ask to leave: q, or Esc alone, which also begins what arrows send.
fn leaves(keys: &[u8]) -> bool {
    matches!(keys, [b'q' | b'Q', ..] | [0x1b])
}

fn screen(text: &str) -> std::io::Result<()> {
    // Not through anstream, which would take the cursor's moves for colours.
    let mut out = std::io::stdout().lock();
    let text = match anstream::AutoStream::choice(&out) {
        anstream::ColorChoice::Never => uncoloured(text),
        _ => text.to_owned(),
    };
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Text without colours but with the cursor's moves, for `NO_COLOR`.
fn uncoloured(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for part in text.split_inclusive("\u{1b}[") {
        let Some(before) = plain.strip_suffix("\u{1b}[") else {
            plain.push_str(part);
            continue;
        };
        let digits = part.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(part.len());
        match part[digits..].starts_with('m') {
            true => plain = format!("{before}{}", &part[digits + 1..]),
            false => plain.push_str(part),
        }
    }
    plain
}

fn drawing(out: &Out, last: Option<&Snapshot>, next: &Snapshot) -> String {
    let of = |state: State| next.totals.states[usize::from(state.number())];
    let waiting = of(State::Pending) + of(State::Delayed) + of(State::Retrying);
    let now = table::to_the_second(next.now);
    let mut text = format!("{}  {now}\n", "windlass top".bold());
    text.push_str(&format!(
        "ready {}   running {}   later {}   completed {}   dead {}\n",
        number(of(State::Scheduled)),
        number(of(State::Running)),
        number(waiting),
        number(of(State::Completed)),
        number(of(State::Failed) + of(State::DeadLetter)),
    ));
    if let Some(last) = last {
        let seconds = next.now.since(last.now).as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let (came, went) = (rate(next.totals.accepted, last.totals.accepted), rate(next.ended(), last.ended()));
        text.push_str(&format!("in {came:.1} jobs/s   out {went:.1} jobs/s\n"));
    }
    if !next.attention.is_empty() {
        let shown = &next.attention[..next.attention.len().min(FAILURES_SHOWN)];
        section(&mut text, "Needs somebody", out, shown, next.now);
    }
    section(&mut text, "Queues", out, &next.queues, next.now);
    for words in next.keys.iter().filter_map(KeyCounts::words).take(ROWS_SHOWN) {
        text.push_str(&words);
        text.push('\n');
    }
    section(&mut text, "Workers", out, &next.workers, next.now);
    let dead: Vec<Dead> = next.dead.iter().cloned().map(Dead).collect();
    section(&mut text, "Newest dead jobs", out, &dead, next.now);
    text
}

fn section<T: Row>(text: &mut String, heading: &str, out: &Out, rows: &[T], now: Timestamp) {
    text.push_str(&format!("\n{}\n", heading.bold()));
    if rows.is_empty() {
        text.push_str("none\n");
        return;
    }
    let shown = &rows[..rows.len().min(ROWS_SHOWN)];
    let cells: Vec<_> = shown.iter().map(|row| row.cells(out.is_wide(), now)).collect();
    for line in table::lines(&T::headings(out.is_wide()), &cells, true) {
        text.push_str(&line);
        text.push('\n');
    }
    if rows.len() > shown.len() {
        text.push_str(&format!("and {} more\n", rows.len() - shown.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_at_their_places() {
        assert_eq!(placed("a\nb\n", 24), "\u{1b}[1;1Ha\u{1b}[K\u{1b}[2;1Hb\u{1b}[K\u{1b}[J");
    }

    #[test]
    fn no_line_is_put_below_the_screen() {
        let text: String = (1..=30).map(|line| format!("line {line}\n")).collect();
        for height in [1, 2, 15, 30, 40] {
            let drawn = placed(&text, height);
            let below = (height + 1..=60).find(|row| drawn.contains(&format!("\u{1b}[{row};1H")));
            assert_eq!(below, None, "{height} rows");
            assert_eq!(drawn.contains("more lines"), height < 30, "{height} rows");
        }
    }

    #[test]
    fn q_and_escape_leave_and_arrows_do_not() {
        assert!(leaves(b"q") && leaves(b"Q") && leaves(b"\x1b"));
        assert!(!leaves(b"\x1b[A") && !leaves(b"x") && !leaves(b""));
    }

    #[test]
    fn without_colours_the_cursor_still_moves() {
        assert_eq!(uncoloured("\u{1b}[Ha\u{1b}[1mb\u{1b}[0mc\u{1b}[K\nd\u{1b}[J"), "\u{1b}[Habc\u{1b}[K\nd\u{1b}[J");
        assert_eq!(uncoloured("plain"), "plain");
    }
}
