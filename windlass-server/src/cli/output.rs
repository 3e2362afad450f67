//! Where words go: data to standard output in the form that was asked for, everything else to standard error.

use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
use serde::Serialize;
use windlass::Timestamp;
use windlass::store::{Cursor, Page};

use super::table::{self, Cell};

/// How many rows a list shows unless told otherwise.
const LIMIT_DEFAULT: usize = 50;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// A table with short times
    #[default]
    Table,
    /// A table with more columns and whole times
    Wide,
    /// JSON, as the HTTP API gives it
    Json,
    /// JSON, one line for each item
    Jsonl,
    /// Only ids or names, one a line
    Id,
}

/// How to print, on every command that prints.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// How to print
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        global = true,
        value_name = "FORM",
        help_heading = "Global options"
    )]
    pub(crate) output: Format,
}

/// How much of a list to print.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// How many to show; 0 for all
    #[arg(short = 'n', long, default_value_t = LIMIT_DEFAULT, value_name = "N")]
    pub(crate) limit: usize,
    /// Go on where an earlier list stopped
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// Something that lists show, in every form.
pub(crate) trait Row {
    /// The headings of its table.
    fn headings(wide: bool) -> Vec<&'static str>;
    /// Its cells under them.
    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell>;
    /// Its id or name.
    fn id(&self) -> String;
    /// Its JSON shape, as the HTTP API gives it.
    fn wire(&self) -> impl Serialize;
}

/// Where and how a command prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    /// The form that was asked for.
    pub(crate) format: Format,
    /// The store's time, for `3m ago`.
    pub(crate) now: Timestamp,
}

impl Out {
    /// Whether a table is wanted.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// Whether more columns are wanted.
    pub(crate) fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }

    /// A line of data.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> io::Result<()> {
        writeln!(anstream::stdout(), "{}", text.as_ref())
    }

    /// A value as JSON: on several lines, or with `jsonl` on one.
    pub(crate) fn json(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = match self.format {
            Format::Jsonl => serde_json::to_string(value)?,
            _ => serde_json::to_string_pretty(value)?,
        };
        Ok(self.line(text)?)
    }

    /// One row, in the form that was asked for.
    pub(crate) fn one<T: Row>(&self, row: &T) -> anyhow::Result<()> {
        match self.format {
            Format::Json | Format::Jsonl => self.json(&row.wire()),
            Format::Id => Ok(self.line(row.id())?),
            Format::Table | Format::Wide => self.table(std::slice::from_ref(row), true),
        }
    }

    /// All rows of a list that comes in one piece.
    pub(crate) fn all<T: Row>(&self, rows: &[T], nothing: &str) -> anyhow::Result<()> {
        match self.format {
            Format::Json => {
                let items = rows.iter().map(Row::wire).collect();
                self.json(&Items { items })
            }
            Format::Jsonl | Format::Id => rows.iter().try_for_each(|row| self.one(row)),
            Format::Table | Format::Wide if rows.is_empty() => {
                say(nothing);
                Ok(())
            }
            Format::Table | Format::Wide => self.table(rows, true),
        }
    }

    /// Rows as a table.
    pub(crate) fn table<T: Row>(&self, rows: &[T], headings: bool) -> anyhow::Result<()> {
        let cells: Vec<_> = rows.iter().map(|row| row.cells(self.is_wide(), self.now)).collect();
        for line in table::lines(&T::headings(self.is_wide()), &cells, headings) {
            self.line(line)?;
        }
        Ok(())
    }

    /// Prints a list page by page and stops at the limit, saying so.
    pub(crate) async fn pages<T: Row>(
        &self,
        page: &PageArgs,
        nothing: &str,
        mut next: impl AsyncFnMut(usize, Option<Cursor>) -> windlass::Result<Page<T>>,
    ) -> anyhow::Result<()> {
        let mut list = List { out: *self, shown: 0 };
        let mut after = page.cursor.clone().map(Cursor);
        list.begin()?;
        loop {
            let room = match page.limit {
                0 => windlass::store::PAGE_MAX,
                limit => (limit - list.shown).min(windlass::store::PAGE_MAX),
            };
            let found = next(room, after.take()).await?;
            list.add(&found.items)?;
            after = found.next;
            if after.is_none() || (page.limit != 0 && list.shown >= page.limit) {
                break;
            }
        }
        list.end(after.as_ref())?;
        if list.shown == 0 && after.is_none() && self.is_table() {
            say(nothing);
        }
        if let Some(Cursor(cursor)) = after {
            let shown = list.shown;
            say(format!("{shown} shown, there may be more: --limit 0 for all, or go on with --cursor {cursor}"));
        }
        Ok(())
    }
}

/// A list in one piece.
#[derive(Serialize)]
struct Items<T> {
    items: Vec<T>,
}

/// A list that is being printed.
struct List {
    out: Out,
    shown: usize,
}

impl List {
    fn begin(&self) -> anyhow::Result<()> {
        if self.out.format == Format::Json {
            self.out.line("{\n  \"items\": [")?;
        }
        Ok(())
    }

    fn add<T: Row>(&mut self, rows: &[T]) -> anyhow::Result<()> {
        match self.out.format {
            Format::Json => {
                for (place, row) in rows.iter().enumerate() {
                    let comma = if self.shown + place == 0 { "" } else { ",\n" };
                    let text = serde_json::to_string_pretty(&row.wire())?.replace('\n', "\n    ");
                    write!(anstream::stdout(), "{comma}    {text}")?;
                }
            }
            Format::Jsonl | Format::Id => rows.iter().try_for_each(|row| self.out.one(row))?,
            Format::Table | Format::Wide if rows.is_empty() => {}
            Format::Table | Format::Wide => self.out.table(rows, self.shown == 0)?,
        }
        self.shown += rows.len();
        Ok(())
    }

    fn end(&self, next: Option<&Cursor>) -> anyhow::Result<()> {
        if self.out.format == Format::Json {
            let line_end = if self.shown == 0 { "" } else { "\n" };
            let cursor = match next {
                None => String::new(),
                Some(next) => format!(",\n  \"next_cursor\": {}", serde_json::to_string(next)?),
            };
            self.out.line(format!("{line_end}  ]{cursor}\n}}"))?;
        }
        Ok(())
    }
}

/// A remark for people, on standard error.
pub(crate) fn say(text: impl AsRef<str>) {
    // Nothing is left to do when standard error is closed too.
    let _ = writeln!(anstream::stderr(), "{}", text.as_ref());
}

/// Whether somebody can be asked, and would see the question.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Whether somebody sees what standard output shows as it is printed.
pub(crate) fn is_watched() -> bool {
    io::stdout().is_terminal()
}
