//! A job as it is described on the command line: what `enqueue` and `schedules create` share.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::value::RawValue;
use windlass::Priority;
use windlass::job::{OnExisting, PAYLOAD_BYTES_MAX, Until};

use super::exit::End;
use super::parse;
use crate::wire::{self, Limit};

/// What every job may have.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The job")]
pub(crate) struct JobArgs {
    /// Its data: JSON, @FILE, or - for standard input
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    pub(crate) payload: Option<String>,
    /// What the data is when it is no JSON
    #[arg(long, value_name = "TYPE", requires = "payload")]
    pub(crate) content_type: Option<String>,
    /// Its queue; `default` unless named
    #[arg(short, long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// critical, high, normal, low or bulk
    #[arg(long, value_name = "PRIORITY")]
    pub(crate) priority: Option<Priority>,
    /// How often it may be tried
    #[arg(long, value_name = "N")]
    pub(crate) attempts: Option<u32>,
    #[command(flatten)]
    pub(crate) retry: RetryArgs,
    /// Longest run of one attempt, or none
    #[arg(long, value_name = "DURATION", value_parser = parse::limit)]
    pub(crate) timeout: Option<Limit>,
    /// How long it may take to end, or none
    #[arg(long, value_name = "DURATION", value_parser = parse::limit)]
    pub(crate) lifetime: Option<Limit>,
    /// How long it is kept after its end, or none; `failed=DURATION` for one end, may be repeated
    #[arg(long, value_name = "[END=]DURATION", hide_short_help = true)]
    pub(crate) retention: Vec<wire::RetentionPatch>,
    /// Whom it counts under in a controlled queue: a tenant, an account
    #[arg(long, value_name = "KEY")]
    pub(crate) flow_key: Option<String>,
    /// A label; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse::tag)]
    pub(crate) tags: Vec<(String, String)>,
    /// For following it through several systems
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Told by a signed POST when the job has ended
    #[arg(long, value_name = "URL")]
    pub(crate) callback_url: Option<String>,
}

/// When a failed attempt is tried again; what is left out is the preset's.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RetryArgs {
    /// How patiently: standard, responsive or patient
    #[arg(long = "retry", value_name = "PRESET", value_parser = word::<wire::Preset>)]
    preset: Option<wire::Preset>,
    /// How the pause grows: constant, linear or exponential
    #[arg(long, value_name = "STRATEGY", value_parser = word::<wire::Strategy>)]
    backoff: Option<wire::Strategy>,
    /// The pause after the first failure
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    retry_delay: Option<Duration>,
    /// The longest pause
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    retry_delay_max: Option<Duration>,
}

impl RetryArgs {
    fn retry(&self) -> Option<wire::Retry> {
        let retry = wire::Retry {
            preset: self.preset,
            strategy: self.backoff,
            initial: self.retry_delay.map(wire::Span),
            max: self.retry_delay_max.map(wire::Span),
            ..wire::Retry::default()
        };
        (retry != wire::Retry::default()).then_some(retry)
    }
}

/// Of how many submissions one is enough. The help names only the key and, in an example, the guide that has the rest: it
/// fits on a screen.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct UniqueArgs {
    /// The same key within 24 hours is the same job
    #[arg(long, value_name = "KEY", conflicts_with_all = ["unique", "unique_by"])]
    key: Option<String>,
    /// The same payload is the same job, until that has ended
    #[arg(long, hide_short_help = true)]
    unique: bool,
    /// The same value at this JSON pointer of the payload, such as /user/id; may be repeated
    #[arg(long, value_name = "POINTER", conflicts_with = "unique", hide_short_help = true)]
    unique_by: Vec<String>,
    /// Until the job is claimed for the first time, or until it has ended
    #[arg(long, value_name = "claimed|ended", value_parser = word::<Until>, hide_short_help = true)]
    #[arg(conflicts_with_all = ["throttle", "debounce"])]
    until: Option<Until>,
    /// Take the place of the same job, if it was never claimed
    #[arg(long, hide_short_help = true)]
    replace: bool,
    /// At most once in this time: the first wins
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, conflicts_with = "debounce", hide_short_help = true)]
    throttle: Option<Duration>,
    /// Once for many: when this long nothing more was enqueued
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "at_most", hide_short_help = true)]
    debounce: Option<Duration>,
    /// With --debounce: at the latest this long after the first
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "debounce", hide_short_help = true)]
    at_most: Option<Duration>,
}

impl UniqueArgs {
    /// Says it of a job.
    pub(crate) fn apply(&self, job: &mut wire::NewJob) {
        job.idempotency_key.clone_from(&self.key);
        job.unique_by.clone_from(&self.unique_by);
        // What else is said here means the payload, where no key is named.
        let is_meant = self.unique || self.until.is_some() || self.replace || self.throttle.is_some();
        if is_meant && self.key.is_none() && self.unique_by.is_empty() {
            job.unique_by.push(String::new());
        }
        job.idempotency_until = self.until;
        job.on_existing = self.replace.then_some(OnExisting::Replace);
        job.idempotency_window = self.throttle.map(|period| Limit(Some(period)));
        let debounce = self.debounce.zip(self.at_most);
        job.debounce = debounce.map(|(quiet, at_most)| wire::Debounce { quiet: quiet.into(), at_most: at_most.into() });
    }
}

/// One of the words that the API knows.
fn word<Word: serde::de::DeserializeOwned>(text: &str) -> Result<Word, String> {
    // The refusal lists the words.
    Word::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text))
        .map_err(|error| error.to_string())
}

impl JobArgs {
    /// The job, of this type.
    pub(crate) fn job(&self, job_type: &str) -> anyhow::Result<wire::NewJob> {
        let mut job = wire::NewJob {
            job_type: job_type.to_owned(),
            queue: self.queue.clone(),
            priority: self.priority,
            max_attempts: self.attempts,
            retry: self.retry.retry(),
            execution_timeout: self.timeout,
            lifetime: self.lifetime,
            // What was said last wins.
            retention: self.retention.iter().copied().reduce(|all, last| last.or(all)),
            key: self.flow_key.clone(),
            tags: parse::tags(&self.tags),
            correlation_id: self.correlation_id.clone(),
            callback_url: self.callback_url.clone(),
            ..wire::NewJob::default()
        };
        if let Some(payload) = &self.payload {
            let bytes = read(payload)?;
            match &self.content_type {
                None => job.payload = Some(json(bytes, payload)?),
                Some(content_type) => {
                    job.payload_base64 = Some(STANDARD.encode(bytes));
                    job.content_type = Some(content_type.clone());
                }
            }
        }
        Ok(job)
    }
}

/// The payload that was typed, or that a file or standard input holds.
pub(crate) fn read(payload: &str) -> anyhow::Result<Vec<u8>> {
    if payload == "-" {
        return whole(std::io::stdin().lock()).context("cannot read the payload from standard input");
    }
    match payload.strip_prefix('@') {
        None => Ok(payload.as_bytes().to_vec()),
        Some(path) => {
            let file = std::fs::File::open(Path::new(path)).with_context(|| format!("cannot open {path}"))?;
            whole(file).with_context(|| format!("cannot read the payload from {path}"))
        }
    }
}

/// All there is, up to what a payload may hold.
fn whole(from: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = PAYLOAD_BYTES_MAX as u64;
    from.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(
            windlass::Error::PayloadTooLarge { what: "payload", size: bytes.len(), limit: PAYLOAD_BYTES_MAX }.into()
        );
    }
    Ok(bytes)
}

/// The payload as JSON; what was typed is quoted in the refusal, what a file holds is not.
pub(crate) fn json(bytes: Vec<u8>, typed: &str) -> anyhow::Result<Box<RawValue>> {
    let problem = |problem: String| {
        let advice = match typed.starts_with('@') || typed == "-" {
            true => "the payload must be one JSON value; name other data with --content-type",
            false => "put JSON into quotes, such as --payload '{\"to\":\"ada\"}', or name a file with @FILE",
        };
        End::usage(format!("the payload is not JSON: {problem}")).advise(advice)
    };
    let text = String::from_utf8(bytes).map_err(|_| problem("it is not UTF-8".to_owned()))?;
    let value = RawValue::from_string(text.trim().to_owned()).map_err(|error| problem(error.to_string()))?;
    Ok(value)
}
