//! The configuration file as it is written. What it means is decided in `mod.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

use crate::api::roles::Role;
use crate::wire::{Limit, Policy, Span};

/// Everything that can stand in the file. A key that is not here is refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) store: Option<String>,
    pub(super) server: Option<String>,
    pub(super) token: Option<Hidden>,
    pub(super) listen: Option<String>,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) origins: Vec<String>,
    pub(super) hide_payloads: Option<bool>,
    pub(super) read_only: Option<bool>,
    pub(super) base: Option<String>,
    pub(super) session_secret: Option<Hidden>,
    pub(super) public_metrics: Option<bool>,
    pub(super) grace: Option<Span>,
    pub(super) tls: Option<Tls>,
    #[serde(default)]
    pub(super) encryption: Encryption,
    #[serde(default)]
    pub(super) log: Log,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) retention: Retention,
    #[serde(default)]
    pub(super) webhooks: Webhooks,
    #[serde(default)]
    pub(super) defaults: Policy,
    #[serde(default)]
    pub(super) queues: BTreeMap<String, Policy>,
    #[serde(default)]
    pub(super) types: BTreeMap<String, Policy>,
    #[serde(default)]
    pub(super) tokens: Vec<Token>,
}

/// A text that is not shown.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Hidden(pub(super) String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    pub(super) clients: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Encryption {
    pub(super) keys: Option<Vec<Hidden>>,
    pub(super) keys_file: Option<PathBuf>,
}

impl Encryption {
    /// The keys in force, those of the environment first.
    pub(super) fn keyring(&self) -> anyhow::Result<Option<windlass::store::Keyring>> {
        let keys = self.keys.as_ref().map(|keys| keys.iter().map(|key| key.0.as_str()).collect::<Vec<_>>().join("\n"));
        crate::keys::in_force(keys.as_deref(), self.keys_file.as_deref())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    pub(super) format: Option<String>,
    pub(super) level: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) payload_bytes: Option<usize>,
    pub(super) batch_bytes: Option<usize>,
    pub(super) body_memory_bytes: Option<usize>,
    pub(super) header_bytes: Option<usize>,
    pub(super) headers: Option<usize>,
    pub(super) connections: Option<usize>,
    pub(super) requests: Option<usize>,
    pub(super) waits: Option<usize>,
    pub(super) token_percent: Option<usize>,
    pub(super) header_timeout: Option<Span>,
    pub(super) body_timeout: Option<Span>,
    pub(super) write_timeout: Option<Span>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Retention {
    pub(super) completed: Option<Limit>,
    pub(super) cancelled: Option<Limit>,
    pub(super) failed: Option<Limit>,
    pub(super) dead_letter: Option<Limit>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Webhooks {
    #[serde(default)]
    pub(super) secrets: Vec<String>,
    #[serde(default)]
    pub(super) allow: Vec<String>,
    pub(super) allow_http: Option<bool>,
    pub(super) timeout: Option<Span>,
    pub(super) concurrency: Option<usize>,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Webhooks({} secrets)", self.secrets.len())
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Token {
    pub(super) name: Option<String>,
    pub(super) role: Role,
    pub(super) sha256: String,
    #[serde(default)]
    pub(super) queues: Vec<String>,
    #[serde(default)]
    pub(super) types: Vec<String>,
    pub(super) expires: Option<String>,
}

impl File {
    /// What stands in it that must not be read by others, in words.
    pub(super) fn secrets(&self) -> Option<&'static str> {
        let plain = |url: &str| url.split('?').next().unwrap_or_default().to_owned();
        let password = |url: &str| url.contains("password=") || windlass::store::redacted(url) != plain(url);
        match self {
            File { token: Some(_), .. } => Some("a token"),
            File { webhooks, .. } if !webhooks.secrets.is_empty() => Some("the secrets of webhooks"),
            File { encryption: Encryption { keys: Some(_), .. }, .. } => Some("keys that payloads are encrypted with"),
            File { store: Some(store), .. } if password(store) => Some("the password of the store"),
            _ => None,
        }
    }
}

/// Whether others than its owner may read a file.
pub(super) fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|about| about.permissions().mode() & 0o044 != 0)
}

/// Reads a file.
pub(super) fn read(path: &Path) -> anyhow::Result<File> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read configuration {}", path.display()))?;
    parse(&text).with_context(|| format!("in configuration {}", path.display()))
}

/// Reads the text of a file. What it says about a bad one names the key, never a value: a value may be a secret.
pub(super) fn parse(text: &str) -> anyhow::Result<File> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
        let place = line.map_or_else(String::new, |line| format!("line {line}: "));
        anyhow::anyhow!("{place}{}", without_secret_key(without_value(error.message())))
    })
}

/// The longest unknown key that is repeated; tokens and secrets are longer.
const KEY_CHARS_SHOWN: usize = 30;

/// What is wrong with a key, unless it may be a secret that stands in its place.
fn without_secret_key(message: String) -> String {
    let Some((front, rest)) = message.split_once('`') else { return message };
    let Some((key, back)) = rest.split_once('`') else { return message };
    let is_secret = key.chars().count() > KEY_CHARS_SHOWN || key.starts_with("whsec_") || key.starts_with("windlass_");
    if is_secret { format!("{front}(hidden: it looks like a secret){back}") } else { message }
}

/// What is wrong with a value, without the value: `invalid type: string "…", expected a sequence` repeats it, and so does
/// ``unknown variant `…`, expected one of``.
fn without_value(message: &str) -> String {
    if let Some((_, known)) = message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, ")) {
        return format!("unknown value, {known}");
    }
    let cut = message.find(" \"").zip(message.rfind("\", expected"));
    match cut.filter(|(from, to)| from < to) {
        Some((from, to)) => format!("{}{}", &message[..from], &message[to + 1..]),
        None => message.to_owned(),
    }
}
