//! What the server says while it runs: to standard error, as text or as one JSON object a line.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::traces::Traces;

/// How log lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For machines: one object a line.
    Json,
}

/// Which log lines are written: these and the more urgent ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Level {
    /// What went wrong.
    Error,
    /// What is about to.
    Warn,
    /// What happens.
    Info,
    /// Every request.
    Debug,
    /// Everything.
    Trace,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Format as clap::ValueEnum>::from_str(text, false).map_err(|_| format!("{text:?} is none of text, json"))
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Level as clap::ValueEnum>::from_str(text, false)
            .map_err(|_| format!("{text:?} is none of error, warn, info, debug, trace"))
    }
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        }
    }
}

/// Starts logging and, where the environment asks for them, traces. On a terminal people are told what goes wrong,
/// elsewhere machines are told what happens.
pub(crate) fn start(format: Option<Format>, level: Option<Level>) -> anyhow::Result<Traces> {
    let terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal { Format::Text } else { Format::Json });
    let level = level.unwrap_or(if terminal { Level::Warn } else { Level::Info });
    // Only our own words at that level: what libraries say below a warning may hold what they were given.
    let ours = [("windlass", LevelFilter::from(level)), ("windlass_server", LevelFilter::from(level))];
    let filter = Targets::new().with_default(LevelFilter::WARN).with_targets(ours);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        Format::Text => lines.with_ansi(terminal && std::env::var_os("NO_COLOR").is_none()).boxed(),
        Format::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
    };
    let traces = Traces::start()?;
    // Somebody who embeds this may have begun before.
    let _ = tracing_subscriber::registry().with(traces.layer()).with(lines.with_filter(filter)).try_init();
    traces.tell();
    Ok(traces)
}
