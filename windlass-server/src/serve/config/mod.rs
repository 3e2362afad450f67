//! The configuration of `windlass run`: flags over environment over file, in; checked settings, out.
//!
//! The only reader of the file. `docs/configuration.md` describes every key.

mod file;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use windlass::store::{Keyring, Retention, redacted};
use windlass::{Client, JobType, NewJob, Payload, Policies, QueueName};

use super::bound::Bounds;
use super::guard::{Host, SessionSecret, Token, Tokens, is_guessed};
use super::logs::{Format, Level};
use super::tls;
pub use super::webhook::Webhooks;
use super::webhook::{Allowed, Secret};
use crate::api::About;
use crate::api::roles::Role;
use crate::wire::{self, Limit, Span};

/// The port unless another is given.
pub const PORT: u16 = 7654;
/// The store unless another is given.
pub const STORE: &str = "sqlite:windlass.db";

/// What flags and environment say; each wins over the file.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// The store's URL.
    pub store: Option<String>,
    /// The address to listen on.
    pub listen: Option<String>,
    /// How log lines are written.
    pub log: Option<Format>,
    /// Which log lines are written.
    pub level: Option<Level>,
    /// Secrets to sign webhooks with.
    pub webhook_secrets: Vec<Secret>,
    /// Whether nobody may change anything, whatever the file says.
    pub read_only: bool,
}

/// Checked settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The store's URL.
    pub store: String,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Whether the next free port will do.
    pub any_port: bool,
    /// Who may do what; empty for everybody everything.
    pub tokens: Tokens,
    /// Where the certificate is; `None` for plain HTTP.
    pub tls: Option<tls::Files>,
    /// Names under which the server may be addressed, beside `localhost` and IP addresses.
    pub hosts: Vec<Host>,
    /// Other origins whose pages may call.
    pub origins: Vec<String>,
    /// Whether only those who run jobs or look after them see payloads and results.
    pub hide_payloads: bool,
    /// Whether everybody may only look.
    pub read_only: bool,
    /// The prefix under which a proxy shows the server, such as `/windlass`; empty for none.
    pub base: String,
    /// What sessions are sealed with, where several servers share a name; random for each process unless given.
    pub session_secret: Option<SessionSecret>,
    /// Whether metrics need no token.
    pub public_metrics: bool,
    /// How long requests and deliveries may take to finish at the end.
    pub grace: Duration,
    /// How log lines are written; by where they go unless given.
    pub log: Option<Format>,
    /// Which log lines are written; by where they go unless given.
    pub level: Option<Level>,
    /// What bounds a client.
    pub limits: Limits,
    /// How long ended jobs are kept.
    pub retention: Retention,
    /// What payloads are encrypted with; `None` for plain ones.
    pub keys: Option<Keyring>,
    /// How webhooks are delivered.
    pub webhooks: Webhooks,
    /// What holds for jobs that do not say it themselves.
    pub policies: Policies,
}

/// What bounds a client, each with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest payload; the contract's limit is 16 MiB.
    pub payload_bytes: usize,
    /// The largest body of a call that takes many jobs.
    pub batch_bytes: usize,
    /// Bodies that are held in memory at once, in all.
    pub body_memory_bytes: usize,
    /// The largest request head.
    pub header_bytes: usize,
    /// The most header lines of a request.
    pub headers: usize,
    /// The most connections at once.
    pub connections: usize,
    /// The most calls that look at once, beside them the most that submit or act, and the most heartbeats and settlements.
    pub requests: usize,
    /// The most claims at once, and beside them the most other requests that wait for something: `wait` on a job, events.
    pub waits: usize,
    /// How many hundredths of all this one token may take.
    pub token_percent: usize,
    /// How long a client may take to send a request's head, and a connection may be idle.
    pub header_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a client may take to read anything of what it asked for.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            payload_bytes: windlass::job::PAYLOAD_BYTES_DEFAULT,
            batch_bytes: 64 << 20,
            body_memory_bytes: 256 << 20,
            header_bytes: 32 << 10,
            headers: 64,
            connections: 1024,
            requests: 256,
            waits: 768,
            token_percent: 75,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// The largest body of a call that takes one job: its payload, as base64 if need be, and what stands around it.
    pub fn body_bytes(&self) -> usize {
        self.payload_bytes.div_ceil(3) * 4 + (64 << 10)
    }
}

impl Settings {
    /// Puts flags and environment over the file, and checks the whole.
    pub fn new(given: Given) -> anyhow::Result<Self> {
        let file = match &given.file {
            Some(path) => file::read(path)?,
            None => file::File::default(),
        };
        Settings::check(given, file)
    }

    /// The same for the text of a file.
    pub fn parse(text: &str, given: Given) -> anyhow::Result<Self> {
        Settings::check(given, file::parse(text)?)
    }

    /// Says what is unwise about them; to be called when there is a log.
    pub fn warn(given: &Given) {
        let Some(path) = &given.file else { return };
        if let Some(what) = open_secrets(path) {
            tracing::warn!(file = %path.display(), "others may read the configuration, which holds {what}: chmod 600 it");
        }
    }

    fn check(given: Given, file: file::File) -> anyhow::Result<Self> {
        let any_port = given.listen.is_none() && file.listen.is_none();
        // A value of the file is not repeated: it may be a secret in the wrong place.
        let listen = match (given.listen.as_deref(), file.listen.as_deref()) {
            (Some(text), _) => address(text).with_context(|| format!("listen: {text:?} is no address; {ADDRESSES}")),
            (None, Some(text)) => address(text).with_context(|| format!("listen: this is no address; {ADDRESSES}")),
            (None, None) => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT)),
        }?;
        let tokens = tokens(&file.tokens)?;
        if !listen.ip().is_loopback() && tokens.is_empty() {
            bail!(
                "will not listen on {listen} without a token: whoever reaches it could run jobs. Create one with \
                 `windlass token new --role admin` and put the line it prints into the configuration file, or listen on \
                 127.0.0.1"
            );
        }
        let hosts = file.hosts.iter().map(|host| Host::parse(host)).collect::<Result<_, _>>();
        let log = match (given.log, file.log.format.as_deref()) {
            (Some(format), _) => Some(format),
            (None, text) => text.map(str::parse).transpose().ok().context("log.format: must be text or json")?,
        };
        let level = match (given.level, file.log.level.as_deref()) {
            (Some(level), _) => Some(level),
            (None, text) => {
                let known = "log.level: must be error, warn, info, debug or trace";
                text.map(str::parse).transpose().ok().context(known)?
            }
        };
        Ok(Settings {
            store: given.store.or(file.store).unwrap_or_else(|| STORE.to_owned()),
            listen,
            any_port,
            tokens,
            tls: file.tls.map(|given| tls::Files { cert: given.cert, key: given.key, clients: given.clients }),
            hosts: hosts.map_err(anyhow::Error::msg).context("hosts")?,
            origins: origins(file.origins)?,
            hide_payloads: file.hide_payloads.unwrap_or(false),
            read_only: given.read_only || file.read_only.unwrap_or(false),
            base: base(file.base.as_deref().unwrap_or_default())?,
            session_secret: session_secret(file.session_secret.as_ref())?,
            public_metrics: file.public_metrics.unwrap_or(false),
            grace: file.grace.map_or(Duration::from_secs(25), |time| time.0),
            log,
            level,
            limits: limits(&file.limits)?,
            retention: retention(&file.retention),
            keys: file.encryption.keyring()?,
            webhooks: webhooks(given.webhook_secrets, file.webhooks)?,
            policies: policies(file.defaults, file.queues, file.types)?,
        })
    }

    /// What the page may tell of them: nothing secret.
    pub fn about(&self) -> About {
        About {
            retention: self.retention,
            payload_bytes: self.limits.payload_bytes,
            tokens: !self.tokens.is_empty(),
            webhooks: !self.webhooks.secrets.is_empty(),
            batch_bytes: self.limits.batch_bytes,
            hosts: self.hosts.iter().map(ToString::to_string).collect(),
        }
    }

    /// The store's URL without its password.
    pub fn store_shown(&self) -> String {
        redacted(&self.store)
    }
}

/// What an address to listen on looks like.
const ADDRESSES: &str = "write 127.0.0.1:7654 or 0.0.0.0:7654";

/// An address to listen on: `127.0.0.1:7654`, `[::1]:7654`, `localhost:7654`, or a port alone.
fn address(text: &str) -> Option<SocketAddr> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Ok(port) = text.parse::<u16>() {
        return Some(SocketAddr::new(loopback, port));
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Some(SocketAddr::new(loopback, port));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, PORT));
    }
    text.parse().ok()
}

fn tokens(given: &[file::Token]) -> anyhow::Result<Tokens> {
    let mut tokens = Vec::with_capacity(given.len());
    for (place, token) in given.iter().enumerate() {
        let name = token.name.clone().unwrap_or_else(|| format!("{} {}", token.role, place + 1));
        let parsed = parsed(name, token).with_context(|| format!("tokens, entry {}", place + 1));
        tokens.push(parsed?);
    }
    Tokens::new(tokens).map_err(anyhow::Error::msg).context("tokens")
}

fn parsed(name: String, given: &file::Token) -> anyhow::Result<Token> {
    let token = Token::new(name, given.role, &given.sha256).map_err(anyhow::Error::msg)?;
    if is_guessed(&given.sha256) {
        bail!("sha256 is that of a word that anybody guesses; `windlass token new` makes a token that nobody can");
    }
    let queues = given.queues.iter().map(QueueName::new).collect::<Result<_, _>>().context("queues")?;
    let types = given.types.iter().map(JobType::new).collect::<Result<_, _>>().context("types")?;
    let expires = given.expires.as_deref().map(str::parse).transpose();
    let expires = expires.map_err(|_| anyhow::anyhow!("expires: must be a time such as 2027-01-31T00:00:00Z"))?;
    Ok(token.bound(Bounds { queues, types }).expires(expires))
}

/// The prefix under which a proxy shows the server: nothing, or a path without a slash at its end.
fn base(text: &str) -> anyhow::Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '/');
    let path = text.trim_end_matches('/');
    if path.is_empty() {
        return Ok(String::new());
    }
    if !path.starts_with('/') || path.contains("//") || path.contains("..") || !path.chars().all(plain) {
        bail!("base: this is no path; write /windlass");
    }
    Ok(path.to_owned())
}

fn session_secret(given: Option<&file::Hidden>) -> anyhow::Result<Option<SessionSecret>> {
    let parsed = given.map(|secret| SessionSecret::parse(&secret.0)).transpose();
    parsed.map_err(anyhow::Error::msg).context("session_secret")
}

fn origins(given: Vec<String>) -> anyhow::Result<Vec<String>> {
    for origin in &given {
        let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.contains('/')) {
            bail!("origins: {origin:?} is no origin; write https://jobs.example.com");
        }
    }
    Ok(given)
}

fn limits(given: &file::Limits) -> anyhow::Result<Limits> {
    let usual = Limits::default();
    let time = |given: Option<Span>, usual: Duration| given.map_or(usual, |time| time.0);
    let limits = Limits {
        payload_bytes: given.payload_bytes.unwrap_or(usual.payload_bytes),
        batch_bytes: given.batch_bytes.unwrap_or(usual.batch_bytes),
        body_memory_bytes: given.body_memory_bytes.unwrap_or(usual.body_memory_bytes),
        header_bytes: given.header_bytes.unwrap_or(usual.header_bytes),
        headers: given.headers.unwrap_or(usual.headers),
        connections: given.connections.unwrap_or(usual.connections),
        requests: given.requests.unwrap_or(usual.requests),
        waits: given.waits.unwrap_or(usual.waits),
        token_percent: given.token_percent.unwrap_or(usual.token_percent),
        header_timeout: time(given.header_timeout, usual.header_timeout),
        body_timeout: time(given.body_timeout, usual.body_timeout),
        write_timeout: time(given.write_timeout, usual.write_timeout),
    };
    let within = |name: &str, value: usize, least: usize, most: usize| {
        if (least..=most).contains(&value) {
            Ok(())
        } else {
            bail!("limits.{name}: must be {least} to {most}, is {value}")
        }
    };
    within("payload_bytes", limits.payload_bytes, 1, windlass::job::PAYLOAD_BYTES_MAX)?;
    within("batch_bytes", limits.batch_bytes, limits.body_bytes(), 1 << 30)?;
    within("body_memory_bytes", limits.body_memory_bytes, limits.batch_bytes, u32::MAX as usize)?;
    within("header_bytes", limits.header_bytes, 8 << 10, 1 << 20)?;
    within("headers", limits.headers, 8, 1000)?;
    within("connections", limits.connections, 1, 100_000)?;
    within("requests", limits.requests, 1, 100_000)?;
    within("waits", limits.waits, 1, 100_000)?;
    within("token_percent", limits.token_percent, 1, 100)?;
    for (name, time) in [
        ("header_timeout", limits.header_timeout),
        ("body_timeout", limits.body_timeout),
        ("write_timeout", limits.write_timeout),
    ] {
        if time.is_zero() || time > Duration::from_secs(3600) {
            bail!("limits.{name}: must be more than zero and at most 1h");
        }
    }
    Ok(limits)
}

fn retention(given: &file::Retention) -> Retention {
    let usual = Retention::default();
    let kept = |given: Option<Limit>, usual| given.map_or(usual, |kept| kept.0);
    Retention {
        completed: kept(given.completed, usual.completed),
        cancelled: kept(given.cancelled, usual.cancelled),
        failed: kept(given.failed, usual.failed),
        dead_letter: kept(given.dead_letter, usual.dead_letter),
    }
}

fn webhooks(given: Vec<Secret>, file: file::Webhooks) -> anyhow::Result<Webhooks> {
    let mut secrets = given;
    if secrets.is_empty() {
        for text in &file.secrets {
            secrets.push(Secret::parse(text).context("webhooks.secrets")?);
        }
    }
    let timeout = file.timeout.map_or(Duration::from_secs(15), |time| time.0);
    // The webhook job's own execution timeout is 30 s; ours must come first to say what happened.
    if timeout.is_zero() || timeout > Duration::from_secs(25) {
        bail!("webhooks.timeout: must be more than zero and at most 25s");
    }
    let concurrency = file.concurrency.unwrap_or(16);
    if !(1..=1000).contains(&concurrency) {
        bail!("webhooks.concurrency: must be 1 to 1000, is {concurrency}");
    }
    Ok(Webhooks {
        secrets,
        allowed: Allowed::parse(&file.allow).context("webhooks.allow")?,
        allow_http: file.allow_http.unwrap_or(false),
        timeout,
        concurrency,
    })
}

/// Policies that can hold: each is tried on a job, so that a mistake is told at the start and not at the first submission.
fn policies(
    defaults: wire::Policy,
    queues: BTreeMap<String, wire::Policy>,
    types: BTreeMap<String, wire::Policy>,
) -> anyhow::Result<Policies> {
    let names = |names: &BTreeMap<String, wire::Policy>| names.keys().cloned().collect::<Vec<_>>();
    let (queue_names, type_names) = (names(&queues), names(&types));
    let policies = wire::Policies { defaults, queues, types, ..wire::Policies::default() };
    let policies = policies.check().context("defaults, queues or types")?;
    let client = Client::in_memory().policies(policies.clone());
    let tried = |job_type: &str, queue: &str| client.check_job(NewJob::new(job_type, Payload::default()).queue(queue));
    tried("any", "default").context("defaults")?;
    for name in &queue_names {
        tried("any", name).with_context(|| format!("queues.{name}"))?;
    }
    for name in &type_names {
        tried(name, "default").with_context(|| format!("types.{name}"))?;
    }
    Ok(policies)
}

/// The policies that a configuration file asks for.
pub fn policies_in(path: &std::path::Path) -> anyhow::Result<Policies> {
    let file = file::read(path)?;
    policies(file.defaults, file.queues, file.types)
}

/// Reads a time such as `1m30s`, for flags.
pub fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<Span>().map(|span| span.0).map_err(|problem| problem.to_string())
}

/// The retention that a configuration file asks for, or the usual one.
pub fn retention_in(path: Option<&std::path::Path>) -> anyhow::Result<Retention> {
    Ok(match path {
        Some(path) => retention(&file::read(path)?.retention),
        None => Retention::default(),
    })
}

/// What a configuration file tells commands: where the jobs are.
#[derive(Clone, Default)]
pub struct Whereabouts {
    /// The store's URL.
    pub store: Option<String>,
    /// The server's URL.
    pub server: Option<String>,
    /// The token that the server asks for.
    pub token: Option<String>,
    /// What payloads in the store are encrypted with.
    pub keys: Option<Keyring>,
}

/// Where the jobs are, by a configuration file; the whole of it must be one.
pub fn whereabouts_in(path: &std::path::Path) -> anyhow::Result<Whereabouts> {
    let file = file::read(path)?;
    let keys = file.encryption.keyring()?;
    Ok(Whereabouts { store: file.store, server: file.server, token: file.token.map(|token| token.0), keys })
}

/// The lines of the configuration file that make a token known.
pub fn token_lines(name: &str, role: Role, sha256: &str, bounds: &Bounds, expires: Option<jiff::Timestamp>) -> String {
    let mut lines = format!("[[tokens]]\nname = {name:?}\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n");
    let queues: Vec<_> = bounds.queues.iter().map(QueueName::as_str).collect();
    let types: Vec<_> = bounds.types.iter().map(JobType::as_str).collect();
    for (key, names) in [("queues", queues), ("types", types)] {
        if !names.is_empty() {
            lines += &format!("{key} = {names:?}\n");
        }
    }
    if let Some(at) = expires {
        lines += &format!("expires = \"{at:.0}\"\n");
    }
    lines
}

/// Which secrets a configuration file holds that others than its owner may read.
pub fn open_secrets(path: &std::path::Path) -> Option<&'static str> {
    file::read(path).ok()?.secrets().filter(|_| file::is_open_to_others(path))
}

#[cfg(test)]
mod tests;
