//! `windlass completions`: what a shell needs to complete commands and options.

use clap::Args;
use clap_complete::Shell;

/// What `windlass completions` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass completions bash > /etc/bash_completion.d/windlass
  windlass completions fish > ~/.config/fish/completions/windlass.fish")]
pub(crate) struct Arguments {
    /// For which shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, mut command: clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "windlass", &mut script);
    Ok(std::io::Write::write_all(&mut std::io::stdout(), &script)?)
}
