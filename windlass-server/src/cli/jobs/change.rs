//! `windlass jobs edit` and `windlass jobs clone`.

use clap::Args;
use windlass::job::{JobRecord, JobSpec};
use windlass::store::{Act, Edit, Operation, Target};
use windlass::workflow::Submission;
use windlass::{JobId, Priority};

use crate::cli::connect::{Session, user};
use crate::cli::enqueue::Stored;
use crate::cli::exit::End;
use crate::cli::ids::{self, Typed};
use crate::cli::job_args::{json, read};
use crate::cli::output::say;
use crate::cli::parse;
use crate::wire;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  windlass jobs edit 3f0c… --priority high
  windlass jobs edit 3f0c… --tag customer=42 --untag trial")]
pub(super) struct EditArgs {
    /// Which jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<Typed<JobId>>,
    /// critical, high, normal, low or bulk; not for running or ended jobs
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<Priority>,
    /// Add or replace a tag; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse::tag)]
    tags: Vec<(String, String)>,
    /// Remove a tag; may be repeated
    #[arg(long, value_name = "KEY")]
    untag: Vec<String>,
    /// Set the correlation id; empty for none; not for ended jobs
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Set the callback URL; empty for none; not for ended jobs
    #[arg(long, value_name = "URL")]
    callback_url: Option<String>,
}

/// Edits jobs one by one: each keeps the tags that were not named.
pub(super) async fn edit(session: &Session, arguments: &EditArgs) -> anyhow::Result<()> {
    let EditArgs { ids, priority, tags, untag, correlation_id, callback_url } = arguments;
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let base = Edit {
        priority: *priority,
        tags: None,
        correlation_id: correlation_id.as_ref().map(given),
        callback_url: callback_url.as_ref().map(given),
    };
    if base == Edit::default() && tags.is_empty() && untag.is_empty() {
        let advice = "name --priority, --tag, --untag, --correlation-id or --callback-url";
        return Err(End::usage("nothing to change was named").advise(advice).into());
    }
    for id in &ids::jobs(session, ids).await? {
        let mut edit = base.clone();
        if !tags.is_empty() || !untag.is_empty() {
            let mut now = session.client.job(*id).await?.spec.options.tags.clone();
            untag.iter().for_each(|key| {
                now.remove(key);
            });
            now.extend(parse::tags(tags));
            edit.tags = Some(now);
        }
        edit.check()?;
        let (target, act) = (Target::Jobs(vec![*id]), Act::Edit(edit));
        let operation = Operation { target, act, by: user(), why: String::new(), dry_run: false };
        if let Some((_, error)) = session.store().operate(&operation).await?.refused.pop() {
            return Err(error.into());
        }
        session.out.one(&session.client.job(*id).await?)?;
    }
    Ok(())
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The copy has no dependencies, runs at once, and is linked to the original.
Example:
  windlass jobs clone 3f0c… --payload '{\"to\":\"bob@example.com\"}'")]
pub(super) struct CloneArgs {
    /// Which job
    #[arg(value_name = "ID")]
    id: Typed<JobId>,
    /// Another payload: JSON, @FILE, or - for standard input
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// Another queue
    #[arg(short, long, value_name = "QUEUE")]
    queue: Option<String>,
    /// An idempotency key of its own
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// How long that key holds, or forever [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = parse::limit, requires = "key")]
    window: Option<wire::Limit>,
}

/// Copies a job. What is new is checked by the rules of any new job.
pub(super) async fn clone(session: &Session, arguments: &CloneArgs) -> anyhow::Result<()> {
    let original = session.client.job(ids::job(session, &arguments.id).await?).await?;
    let mut new = wire::NewJob {
        queue: arguments.queue.clone(),
        idempotency_key: arguments.key.clone(),
        idempotency_window: arguments.window,
        ..wire::NewJob::default()
    };
    if let Some(payload) = &arguments.payload {
        new.payload = Some(json(read(payload)?, payload)?);
    }
    let spec = copied(session, &original, new)?;
    let stored = session.client.submit(Submission::new(vec![spec])?).await?;
    let inserted = *stored.jobs.first().expect("a store answers for each job");
    if inserted.existing {
        say(format!("the key is known: it stands for job {}, nothing was stored", inserted.id));
    }
    session.out.one(&Stored(inserted))
}

/// A copy of a job, linked to it: without dependencies, at once, with what is new in place of the old.
pub(crate) fn copied(session: &Session, original: &JobRecord, mut new: wire::NewJob) -> anyhow::Result<JobSpec> {
    let mut spec: JobSpec = (*original.spec).clone();
    spec.depends_on.clear();
    spec.options.run_at = None;
    spec.options.idempotency = None;
    spec.options.cloned_from = Some(original.id);
    new.job_type = spec.job_type.to_string();
    new.queue.get_or_insert_with(|| spec.queue.to_string());
    let replaces = new.payload.is_some();
    for checked in wire::check_jobs(vec![new], &session.client)? {
        spec.queue = checked.queue;
        spec.options.idempotency = checked.options.idempotency;
        if replaces {
            spec.payload = checked.payload;
        }
    }
    Ok(spec)
}
