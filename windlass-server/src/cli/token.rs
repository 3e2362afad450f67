//! `windlass token`: what goes into the configuration of a server, and what goes to its owner.

use anyhow::ensure;
use clap::{Args, Subcommand};

use crate::api::roles::Role;
use crate::serve::config::token_lines;
use crate::serve::guard::new_token;
use crate::serve::webhook::Secret;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a token; it is printed once and kept nowhere
    New(New),
    /// Make a secret to sign webhooks with
    Webhook,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// What it allows: read, produce, work, operate or admin
    #[arg(long)]
    role: Role,
    /// Who it is for, as in logs and in the record of acts
    #[arg(long)]
    name: Option<String>,
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::New(new) => {
            let name = new.name.unwrap_or_else(|| new.role.to_string());
            let plain = name.chars().count() <= 100 && !name.chars().any(char::is_control) && !name.is_empty();
            ensure!(plain, "--name must have 1 to 100 characters and no control characters");
            let (token, hash) = new_token()?;
            println!("{token}\n");
            println!(
                "The token stands above, and nowhere else. To make it known, put this into the configuration file:\n"
            );
            print!("{}", token_lines(&name, new.role, &hash));
        }
        Command::Webhook => {
            let secret = Secret::create()?;
            println!("{secret}\n");
            println!("Give it to the receivers, and to the server as WINDLASS_WEBHOOK_SECRETS or in the file:\n");
            println!("[webhooks]\nsecrets = [\"{secret}\"]");
        }
    }
    Ok(())
}
