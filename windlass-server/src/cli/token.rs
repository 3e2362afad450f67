//! `windlass token`: what goes into the configuration of a server, and what goes to its owner.

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use windlass::store::Keyring;
use windlass::{JobType, QueueName};

use super::connect::Reach;
use super::output::OutputArgs;
use crate::api::roles::Role;
use crate::keys::VARIABLE;
use crate::remote::HttpStore;
use crate::serve::Bounds;
use crate::serve::config::{duration, token_lines};
use crate::serve::guard::new_token;
use crate::serve::webhook::create_secret;
use crate::wire::Reloaded;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a token; it is printed once and kept nowhere
    New(New),
    /// Let a server read the tokens of its configuration again, as SIGHUP does
    #[command(after_help = "Example:\n  windlass token reload --server https://jobs.example.com")]
    Reload(Reload),
    /// Make a key to encrypt payloads with; it is printed once and kept nowhere
    Key(Key),
    /// Make a secret to sign webhooks with
    Webhook,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// What it allows: read, submit, produce, work, operate or admin
    #[arg(long)]
    role: Role,
    /// Who it is for, as in logs and in the record of acts
    #[arg(long)]
    name: Option<String>,
    /// Only jobs of this queue; may be given several times
    #[arg(short, long = "queue", value_name = "QUEUE", value_parser = queue)]
    queues: Vec<QueueName>,
    /// Only jobs of this type; may be given several times
    #[arg(long = "type", value_name = "TYPE", value_parser = job_type)]
    types: Vec<JobType>,
    /// How long it is valid, such as 90d; for ever unless given
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires_in: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// What it is called in what it encrypts, such as 2026-11
    #[arg(long)]
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    output: OutputArgs,
}

fn queue(text: &str) -> windlass::Result<QueueName> {
    QueueName::new(text)
}

fn job_type(text: &str) -> windlass::Result<JobType> {
    JobType::new(text)
}

pub(crate) async fn run(reach: &Reach, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Reload(reload) => {
            let session = reach.open(&reload.output).await?;
            let store: &dyn std::any::Any = session.store().as_ref();
            let Some(server) = store.downcast_ref::<HttpStore>() else {
                let problem = "tokens are a server's: name one with --server, or send SIGHUP to its process";
                return Err(windlass::Error::invalid("server", problem).into());
            };
            let tokens = server.reload_tokens().await?;
            match session.out.is_table() {
                true => session.out.line(format!("{tokens} tokens are in force"))?,
                false => session.out.json(&Reloaded { tokens })?,
            }
        }
        Command::New(new) => {
            let name = new.name.unwrap_or_else(|| new.role.to_string());
            let plain = name.chars().count() <= 100 && !name.chars().any(char::is_control) && !name.is_empty();
            ensure!(plain, "--name must have 1 to 100 characters and no control characters");
            let (token, hash) = new_token()?;
            println!("{token}\n");
            println!("This token is shown once. Add this to the server's configuration:\n");
            let expires = match new.expires_in {
                Some(time) => Some(jiff::Timestamp::now().checked_add(time).context("--expires-in is too long")?),
                None => None,
            };
            let bounds = Bounds { queues: new.queues, types: new.types };
            print!("{}", token_lines(&name, new.role, &hash, &bounds, expires));
        }
        Command::Key(key) => {
            println!("{}\n", Keyring::new_key(&key.name)?);
            println!("Without it, what it encrypts is lost: keep a copy apart from the store and its backups.");
            println!(
                "Put it before older keys, a line for each, into the file that `encryption.keys_file` names, or into"
            );
            println!("{VARIABLE}, with commas between, of every server and worker that opens the store itself.");
        }
        Command::Webhook => {
            let secret = create_secret()?;
            println!("{secret}\n");
            println!("Give it to the receivers, and to the server as WINDLASS_WEBHOOK_SECRETS or in the file:\n");
            println!("[webhooks]\nsecrets = [\"{secret}\"]");
        }
    }
    Ok(())
}
