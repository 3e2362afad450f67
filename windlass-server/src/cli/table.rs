//! Tables for people: columns that line up, short words for times and numbers, and nothing that moves the cursor.

use crate::figures::number;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table as Layout, presets};
use owo_colors::{OwoColorize, Style};
use windlass::{State, Timestamp};

/// Between two columns.
const GAP: usize = 2;

/// A cell: its text, and how it is coloured where colours are shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Option<Style>,
}

impl Cell {
    /// Any text; characters that would move the cursor are shown, not sent.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Cell { text: clean(text.as_ref()), style: None }
    }

    /// A coloured cell. Every cell to the left of it must be plain ASCII.
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Cell { style: Some(style), ..Cell::new(text) }
    }

    /// A state in its colour.
    pub(crate) fn state(state: State) -> Self {
        Cell::styled(state.to_string(), style_of(state))
    }
}

/// The colour of a state.
pub(crate) fn style_of(state: State) -> Style {
    let style = Style::new();
    match state {
        State::Completed => style.green(),
        State::Failed | State::DeadLetter => style.red(),
        State::Running => style.cyan(),
        State::Retrying => style.yellow(),
        State::Scheduled => style.bold(),
        State::Pending | State::Delayed | State::Cancelled => style.dimmed(),
    }
}

/// Rows under headings. With `headings` false only the rows are printed: for the second page of a list.
pub(crate) fn lines(headings: &[&str], rows: &[Vec<Cell>], with_headings: bool) -> Vec<String> {
    let mut layout = Layout::new();
    layout.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    layout.add_row(headings.iter().map(|heading| (*heading).to_owned()));
    for row in rows {
        layout.add_row(row.iter().map(|cell| cell.text.clone()));
    }
    let columns = layout.column_count();
    for (place, column) in layout.column_iter_mut().enumerate() {
        let right = if place + 1 == columns { 0 } else { u16::try_from(GAP).expect("a small gap") };
        column.set_padding((0, right));
    }
    let widths: Vec<usize> = layout.column_max_content_widths().into_iter().map(usize::from).collect();
    let mut lines: Vec<String> = layout.lines().map(|line| line.trim_end().to_owned()).collect();
    for (line, row) in lines.iter_mut().skip(1).zip(rows) {
        colour(line, row, &widths);
    }
    if !with_headings && !lines.is_empty() {
        lines.remove(0);
    }
    lines
}

/// Colours the cells of a laid-out line, from the right so that places stay where they are.
fn colour(line: &mut String, row: &[Cell], widths: &[usize]) {
    let starts: Vec<usize> =
        widths.iter().scan(0, |at, width| Some(std::mem::replace(at, *at + width + GAP))).collect();
    for (cell, start) in row.iter().zip(starts).rev() {
        let Some(style) = cell.style else { continue };
        let end = start + cell.text.len();
        if line.is_char_boundary(start) && line.get(start..end) == Some(cell.text.as_str()) {
            line.replace_range(start..end, &cell.text.style(style).to_string());
        }
    }
}

/// Text without what a terminal would obey: control characters are shown as `�`, line ends as spaces.
pub(crate) fn clean(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() || is_unseen(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Marks that turn the direction of text around, and those that nobody sees, by which two names look alike.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The same, but lines stay lines.
pub(crate) fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// At most `max` characters, with `…` where some were left out.
pub(crate) fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// `1 job`, `2 jobs`, `1,000 jobs`.
pub(crate) fn jobs(n: u64) -> String {
    format!("{} {}", number(n), if n == 1 { "job" } else { "jobs" })
}

/// A duration in its largest unit, rounded down: `3m`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.subsec_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A moment as seen from now: `3m ago`, `in 5m`, `now`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    const NOW: Duration = Duration::from_secs(1);
    if at > now {
        let ahead = at.since(now);
        return if ahead < NOW { "now".to_owned() } else { format!("in {}", span(ahead)) };
    }
    let passed = now.since(at);
    if passed < NOW { "now".to_owned() } else { format!("{} ago", span(passed)) }
}

/// A moment without what people do not read: `2026-11-01T12:00:00Z`.
pub(crate) fn to_the_second(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// An exact moment, without a fraction of a second where there is none.
fn exact(at: Timestamp) -> String {
    if at.as_micros() % 1_000_000 == 0 { to_the_second(at) } else { at.to_string() }
}

/// A moment both ways: `3m ago (2026-11-01T12:00:00.250000Z)`.
pub(crate) fn both(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", relative(at, now), exact(at))
}

/// The same, with what a clock on the wall of this zone shows: `in 20h (2026-11-19T02:00:00Z, 2026-11-19 03:00 CET)`.
pub(crate) fn both_in_zone(at: Timestamp, now: Timestamp, zone: &str) -> String {
    let local = jiff::Timestamp::from_microsecond(at.as_micros()).and_then(|at| at.in_tz(zone));
    match local {
        Ok(local) if zone != "UTC" => {
            format!("{} ({}, {})", relative(at, now), exact(at), local.strftime("%F %H:%M %Z"))
        }
        _ => both(at, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_has_no_tail() {
        let rows = [vec![Cell::new("a"), Cell::new("long")], vec![Cell::new("bcd"), Cell::new("x")]];
        assert_eq!(lines(&["ID", "NAME"], &rows, true), ["ID   NAME", "a    long", "bcd  x"]);
        assert_eq!(lines(&["ID", "NAME"], &rows, false), ["a    long", "bcd  x"]);
    }

    #[test]
    fn a_coloured_cell_does_not_move_the_others() {
        let rows = [vec![Cell::new("a"), Cell::state(State::Failed), Cell::new("é")]];
        let line = &lines(&["ID", "STATE", "X"], &rows, true)[1];
        assert_eq!(line, "a   \u{1b}[31mFAILED\u{1b}[0m  é");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(clean("a\u{1b}[2Jb\nc\u{202e}d"), "a\u{fffd}[2Jb c\u{fffd}d");
        assert_eq!(clean("pay\u{200b}\u{feff}\u{e0041}"), "pay\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(clean_lines("a\nb\u{7}"), "a\nb\u{fffd}");
    }

    #[test]
    fn numbers_and_times_are_short() {
        let now = Timestamp::from_seconds(1_000_000);
        let seen =
            [-100_000, -7200, -61, 0, 30, 200_000].map(|s| relative(Timestamp::from_seconds(1_000_000 + s), now));
        assert_eq!(seen, ["1d ago", "2h ago", "1m ago", "now", "in 30s", "in 2d"]);
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(to_the_second(now), "1970-01-12T13:46:40Z");
        assert_eq!(both(now, now), "now (1970-01-12T13:46:40Z)");
        assert_eq!(both(Timestamp::from_micros(1), now), "11d ago (1970-01-01T00:00:00.000001Z)");
    }
}
