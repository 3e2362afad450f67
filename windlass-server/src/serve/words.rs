//! What `windlass run` says about itself: for people on a terminal, one JSON object a line elsewhere.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::json;

use super::config::PORT;

/// What there is to say at the start.
#[derive(Debug)]
pub(super) struct Started {
    /// Without its password.
    pub(super) store: String,
    pub(super) kind: &'static str,
    pub(super) listen: SocketAddr,
    /// `http`, or `https` with a certificate.
    pub(super) scheme: &'static str,
    /// The port that was wanted, where it was taken.
    pub(super) moved_from: Option<u16>,
    pub(super) token_needed: bool,
    pub(super) webhooks: bool,
    /// The prefix under which a proxy shows the page.
    pub(super) base: String,
    /// The program as it was called, to be called again.
    pub(super) program: String,
    /// Jobs a second, in a demonstration.
    pub(super) demo: Option<u32>,
}

impl Started {
    fn schema(&self) -> Option<i64> {
        match self.kind {
            "sqlite" => Some(windlass::store::sqlite::SCHEMA_VERSION),
            _ => None,
        }
    }

    /// Where a browser finds the page.
    fn page(&self) -> String {
        format!("{}://{}{}/", self.scheme, self.listen, self.base)
    }

    fn store_words(&self) -> String {
        let nature = match self.kind {
            "sqlite" => " (SQLite, durable)",
            "postgres" => " (PostgreSQL, durable)",
            "memory" => " (in memory: forgets everything at its end)",
            _ => "",
        };
        let plain = self.store.strip_prefix("sqlite:").map(shown_path);
        format!("{}{nature}", plain.as_deref().unwrap_or(&self.store))
    }

    fn text(&self) -> String {
        let schema = self.schema().map_or_else(String::new, |schema| format!("   schema v{schema}"));
        let access = if self.token_needed { "token needed" } else { "loopback only, no token needed" };
        let mut text = format!("  page        {}\n", self.page());
        text += &format!("  windlass {}   store {}{schema}\n", env!("CARGO_PKG_VERSION"), self.store_words());
        text += &format!("  api         {}://{}      ({access})\n", self.scheme, self.listen);
        if let Some(port) = self.moved_from {
            text += &format!("              port {port} is taken, so this is the next free one\n");
        }
        for (place, command) in self.tries().iter().enumerate() {
            text += &format!("  {:<10}  {command}\n", if place == 0 { "try" } else { "" });
        }
        if let Some(rate) = self.demo {
            text += &format!("  demo        {rate} jobs/s on 3 queues; stop with Ctrl-C\n");
        }
        text
    }

    /// Commands to begin with, in order. Each does what it says on this very server: the demonstration serves `mail`,
    /// and a plain server runs nothing until somebody starts a worker.
    fn tries(&self) -> Vec<String> {
        // Commands ask the usual address unless told otherwise.
        let usual = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
        let is_usual = self.listen == usual && self.scheme == "http";
        let server = if is_usual { String::new() } else { format!(" --server {}://{}", self.scheme, self.listen) };
        let (program, to) = (&self.program, r#"--payload '{"to":"ada@example.com"}' --wait"#);
        match self.demo {
            Some(_) => vec![format!("{program} enqueue email.send --queue mail {to}{server}")],
            None => vec![
                format!("{program} worker --exec cat{server} &"),
                format!("{program} enqueue email.send {to}{server}"),
            ],
        }
    }

    fn json(&self) -> String {
        let mut line = json!({
            "event": "started",
            "version": env!("CARGO_PKG_VERSION"),
            "store": self.store,
            "store_kind": self.kind,
            "listen": format!("{}://{}", self.scheme, self.listen),
            "page": self.page(),
            "token_needed": self.token_needed,
            "webhooks": self.webhooks,
            "try": self.tries(),
        });
        let object = line.as_object_mut().expect("it was written as an object");
        if let Some(schema) = self.schema() {
            object.insert("schema".to_owned(), json!(schema));
        }
        if let Some(port) = self.moved_from {
            object.insert("port_taken".to_owned(), json!(port));
        }
        if let Some(rate) = self.demo {
            object.insert("demo_jobs_per_second".to_owned(), json!(rate));
        }
        format!("{line}\n")
    }

    pub(super) fn say(&self) {
        say(&if std::io::stdout().is_terminal() { self.text() } else { self.json() });
    }
}

/// Relative paths begin with a dot, so that they read as paths.
fn shown_path(path: &str) -> String {
    if path.starts_with(['/', '.']) { path.to_owned() } else { format!("./{path}") }
}

/// Says that the end begins.
pub(super) fn say_stopping(running: usize) {
    if std::io::stdout().is_terminal() {
        say(&format!("stopping, {running} running … "));
    } else {
        say(&format!("{}\n", json!({ "event": "stopping", "running": running })));
    }
}

/// Says that the end is there.
pub(super) fn say_done(abandoned: usize) {
    if !std::io::stdout().is_terminal() {
        say(&format!("{}\n", json!({ "event": "stopped", "abandoned": abandoned })));
    } else if abandoned == 0 {
        say("done\n");
    } else {
        say(&format!("done; {abandoned} left to run again\n"));
    }
}

fn say(text: &str) {
    // A closed standard output has no reader.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Started {
        Started {
            store: "sqlite:windlass.db".to_owned(),
            kind: "sqlite",
            listen: "127.0.0.1:7655".parse().expect("an address"),
            scheme: "http",
            moved_from: Some(7654),
            token_needed: false,
            webhooks: false,
            base: String::new(),
            program: "windlass".to_owned(),
            demo: Some(30),
        }
    }

    #[test]
    fn people_read_six_lines_the_page_first() {
        let version = env!("CARGO_PKG_VERSION");
        let schema = windlass::store::sqlite::SCHEMA_VERSION;
        let expected = format!(
            "  page        http://127.0.0.1:7655/\n\
             \x20 windlass {version}   store ./windlass.db (SQLite, durable)   schema v{schema}\n\
             \x20 api         http://127.0.0.1:7655      (loopback only, no token needed)\n\
             \x20             port 7654 is taken, so this is the next free one\n\
             \x20 try         windlass enqueue email.send --queue mail --payload '{{\"to\":\"ada@example.com\"}}' --wait --server http://127.0.0.1:7655\n\
             \x20 demo        30 jobs/s on 3 queues; stop with Ctrl-C\n"
        );
        assert_eq!(started().text(), expected);
    }

    #[test]
    fn a_plain_server_needs_a_worker_first() {
        let listen = "127.0.0.1:7654".parse().expect("an address");
        let text = Started { demo: None, moved_from: None, listen, ..started() }.text();
        let tries: Vec<_> = text.lines().skip(3).map(str::trim_start).collect();
        assert_eq!(
            tries,
            [
                "try         windlass worker --exec cat &",
                "windlass enqueue email.send --payload '{\"to\":\"ada@example.com\"}' --wait",
            ]
        );
    }

    #[test]
    fn machines_read_one_line() {
        let text = started().json();
        assert_eq!(text.lines().count(), 1);
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(line["listen"], "http://127.0.0.1:7655");
        assert_eq!(line["port_taken"], 7654);
    }
}
