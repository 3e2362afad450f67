//! `windlass open`: shows the page of a server in the user's browser.

use std::process::{Command, Stdio};

use clap::Args;

use super::connect::{Place, Reach};
use super::exit::End;

/// The programs that open a URL, in the order in which they are tried.
const OPENERS: [&str; 4] = ["xdg-open", "open", "wslview", "x-www-browser"];

/// What `windlass open` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass open\n  windlass open /errors --print")]
pub(crate) struct Arguments {
    /// A path of the page, such as /jobs
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: String,
    /// Only print the address
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(reach: &Reach, arguments: &Arguments) -> anyhow::Result<()> {
    use std::io::Write;
    let Place::Server(server) = reach.place()? else {
        return Err(End::usage("the page is a server's, and a store was named")
            .advise("start `windlass run` on the store, and name that server with --server")
            .into());
    };
    let address = format!("{}/{}", server.trim_end_matches('/'), arguments.path.trim_start_matches('/'));
    writeln!(std::io::stdout(), "{address}")?;
    if arguments.print || OPENERS.iter().any(|opener| opens(opener, &address)) {
        return Ok(());
    }
    super::output::say("no program was found that opens a browser; open the address yourself");
    Ok(())
}

/// Whether a program is there and took the address. It is an argument, never part of a shell's line.
fn opens(program: &str, address: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
