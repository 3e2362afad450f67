//! `windlass run`: a server on a store.

use clap::Args;

use super::connect::Reach;
use crate::serve::config::{Given, Settings};
use crate::serve::logs::{self, Format, Level};
use crate::serve::webhook::Secret;
use crate::serve::{self, demo};

/// What `windlass run` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Fill a store of its own, windlass-demo.db, with work that goes on until it is stopped
    #[arg(long)]
    demo: bool,
    /// Seed of the demonstration
    #[arg(long, requires = "demo", default_value_t = 1, value_name = "N")]
    seed: u64,
    /// The address to listen on [default: 127.0.0.1:7654, or the next free port]
    #[arg(long, env = "WINDLASS_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,
    /// Let nobody change anything, whatever their token
    #[arg(long)]
    read_only: bool,
    /// How log lines are written [default: text on a terminal, else json]
    #[arg(long, env = "WINDLASS_LOG", value_enum, value_name = "FORMAT")]
    log: Option<Format>,
    /// Which log lines are written [default: warn on a terminal, else info]
    #[arg(long, env = "WINDLASS_LOG_LEVEL", value_enum, value_name = "LEVEL")]
    log_level: Option<Level>,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let usual = arguments.demo.then(|| demo::STORE.to_owned());
    let given = Given {
        file: reach.config(),
        store: reach.store_for_server()?.or(usual),
        listen: arguments.listen,
        log: arguments.log,
        level: arguments.log_level,
        webhook_secrets: webhook_secrets()?,
        read_only: arguments.read_only,
    };
    let mut settings = Settings::new(given.clone())?;
    let traces = logs::start(settings.log, settings.level)?;
    if arguments.demo {
        settings.retention = demo::retention();
    }
    let ran = serve::run(given, settings, arguments.demo.then_some(arguments.seed)).await;
    traces.finish().await;
    if ran? { Ok(()) } else { std::process::exit(130) }
}

/// Secrets from the environment: a file may be read by more people than a process.
pub(super) fn webhook_secrets() -> anyhow::Result<Vec<Secret>> {
    let text = std::env::var("WINDLASS_WEBHOOK_SECRETS").unwrap_or_default();
    let secrets = text.split([',', ' ']).filter(|secret| !secret.is_empty()).map(Secret::parse);
    secrets.collect::<Result<_, _>>().map_err(|problem| anyhow::anyhow!("WINDLASS_WEBHOOK_SECRETS: {problem}"))
}

/// What the second worker process of a demonstration takes.
#[derive(Debug, Args)]
pub(crate) struct DemoWorker {
    /// Seed of the demonstration
    #[arg(long)]
    seed: u64,
}

pub(crate) async fn demo_worker(reach: &Reach, arguments: DemoWorker) -> anyhow::Result<()> {
    demo::work(&reach.store_url("a demonstration")?, arguments.seed).await
}
