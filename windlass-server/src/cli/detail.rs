//! One job in full, for people.

use windlass::Timestamp;
use windlass::job::{DependencyKind, DependsOn};
use windlass::job::{JobRecord, Payload, ReasonKind};
use windlass::schedule::ScheduleRecord;

use super::rows::{failure, timing};
use super::table::{both, clean, clean_lines, cut, style_of};
use crate::wire;
use owo_colors::OwoColorize;

/// How much of a payload or result is shown unless more is asked for.
const DATA_CHARS: usize = 2000;

/// The lines of a description: names on the left, what is so on the right.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<(&'static str, String)>);

impl Lines {
    /// Adds a line.
    pub(crate) fn add(&mut self, name: &'static str, text: impl Into<String>) {
        self.0.push((name, text.into()));
    }

    /// Adds a line if there is something to say.
    pub(crate) fn maybe(&mut self, name: &'static str, text: Option<impl Into<String>>) {
        if let Some(text) = text {
            self.add(name, text);
        }
    }

    /// The text, with the names in a column.
    pub(crate) fn text(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let line = |(name, text): &(&str, String)| {
            let text = text.replace('\n', &format!("\n{:width$}  ", ""));
            format!("{name:width$}  {text}").trim_end().to_owned()
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Everything about a job.
pub(crate) fn job(job: &JobRecord, now: Timestamp, wide: bool) -> String {
    let moment = |at: Timestamp| both(at, now);
    let (spec, options) = (&job.spec, &job.spec.options);
    let mut lines = Lines::default();
    lines.add("id", job.id.to_string());
    lines.add("state", job.state.to_string().style(style_of(job.state)).to_string());
    lines.add("type", spec.job_type.to_string());
    lines.add("queue", spec.queue.to_string());
    lines.add("priority", priority(job));
    let (retry, requeues) = (&options.retry, job.generation);
    lines.add("attempt", format!("{} (failures: {} of {})", job.attempt, job.failures, retry.max_attempts));
    lines.maybe("requeued", Some(format!("{requeues} times")).filter(|_| requeues > 0));
    lines.add("created", moment(job.created_at));
    lines.maybe("scheduled", job.scheduled_at.map(moment));
    lines.maybe("run at", job.run_at.map(moment));
    lines.maybe("started", job.started_at.map(moment));
    lines.maybe("ended", job.completed_at.map(moment));
    lines.maybe("deadline", job.deadline.filter(|_| !job.state.is_terminal()).map(moment));
    if let Some(lease) = &job.lease {
        lines.add("worker", lease.worker.to_string());
        lines.add("lease", format!("version {}, until {}", lease.version, moment(lease.expires_at)));
    }
    lines.maybe("asked to stop", job.cancel.as_ref().map(|asked| told(asked.by.as_deref(), asked.message.as_deref())));
    lines.maybe(
        "progress",
        job.progress.as_ref().map(|p| format!("{:.0}% {}", p.fraction * 100.0, clean_lines(&p.message))),
    );
    lines.maybe("reason", job.reason.as_ref().map(reason));
    lines.maybe("failure", Some(failure(job.failure.as_ref(), true)).filter(|text| !text.is_empty()));
    for cause in job.failure.iter().flat_map(|failure| &failure.causes) {
        lines.add("caused by", clean_lines(cause));
    }
    related(job, &mut lines);
    lines.maybe("key", options.idempotency.as_ref().map(|key| clean_lines(&key.key)));
    lines.maybe("key", options.key.as_deref().map(clean_lines));
    lines.maybe("correlation id", options.correlation_id.as_deref().map(clean_lines));
    lines.maybe("callback", options.callback_url.as_deref().map(clean_lines));
    for (key, value) in &options.tags {
        lines.add("tag", clean_lines(&format!("{key}={value}")));
    }
    if wide {
        lines.add("timeout", wire::Limit(options.timeouts.execution).to_string());
        lines.add("lifetime", wire::Limit(options.timeouts.lifetime).to_string());
        lines.maybe("retention", wire::RetentionPatch::of(options.retention).map(|kept| kept.to_string()));
        lines.maybe("checkpoint", job.checkpoint.as_ref().map(|bytes| format!("{} bytes", bytes.len())));
    }
    lines.add("payload", data(&spec.payload, wide));
    lines.maybe("result", job.result.as_ref().map(|result| data(result, wide)));
    lines.text()
}

fn priority(job: &JobRecord) -> String {
    let (own, effective) = (job.spec.priority, job.effective_priority());
    match own == effective {
        true => own.as_str().to_owned(),
        false => format!("{} (its own is {})", effective.as_str(), own.as_str()),
    }
}

fn related(job: &JobRecord, lines: &mut Lines) {
    lines.maybe("workflow", job.workflow_id.map(|id| id.to_string()));
    lines.maybe("schedule", job.firing.as_ref().map(|firing| format!("{} for {}", firing.schedule, firing.slot)));
    lines.maybe("spawned by", job.spawned_by.map(|id| id.to_string()));
    lines.maybe("submitted by", job.spec.options.submitted_by.as_deref().map(clean_lines));
    lines.maybe("clone of", job.spec.options.cloned_from.map(|id| id.to_string()));
    for dependency in &job.spec.depends_on {
        if let DependsOn::Job(id) = dependency.on {
            lines.add(kind(dependency.kind), id.to_string());
        }
    }
}

/// An edge in words.
pub(crate) fn kind(kind: DependencyKind) -> &'static str {
    match kind {
        DependencyKind::After => "after",
        DependencyKind::AfterAny => "after any",
        DependencyKind::AfterAll => "after all",
        DependencyKind::FanInSuccess => "fan-in",
        DependencyKind::FanInDone => "fan-in done",
    }
}

fn reason(reason: &windlass::job::Reason) -> String {
    let mut text = reason.kind.as_str().to_owned();
    let said = told(reason.by.as_deref(), reason.message.as_deref());
    if !said.is_empty() {
        text.push_str(&format!(", {said}"));
    }
    if let Some(cause) = reason.cause {
        let link = if reason.kind == ReasonKind::Replaced { "by" } else { "because of" };
        text.push_str(&format!(", {link} job {cause}"));
    }
    text
}

fn told(by: Option<&str>, message: Option<&str>) -> String {
    let by = by.map(|by| format!("by {}", clean_lines(by)));
    let message = message.map(clean_lines);
    [by, message].into_iter().flatten().collect::<Vec<_>>().join(": ")
}

/// A payload or result: the JSON itself, or what the bytes are.
pub(crate) fn data(payload: &Payload, whole: bool) -> String {
    if !payload.is_json() {
        return format!("{} bytes of {}", payload.len(), payload.content_type());
    }
    let text = String::from_utf8_lossy(payload.as_bytes());
    // JSON holds no control characters but white space; a hostile store might.
    let text = clean_lines(&text);
    if whole { text } else { cut(&text, DATA_CHARS) }
}

/// Everything about a schedule.
pub(crate) fn schedule(schedule: &ScheduleRecord, now: Timestamp) -> String {
    let spec = &schedule.spec;
    let mut lines = Lines::default();
    lines.add("name", spec.name.clone());
    lines.add("status", if schedule.paused { "paused" } else { "active" });
    lines.add("when", timing(&spec.timing));
    lines.add("missed", format!("{:?}", spec.missed).to_lowercase());
    lines.add("overlap", format!("{:?}", spec.overlap).to_lowercase());
    lines.add("type", spec.job.job_type.to_string());
    lines.add("queue", spec.job.queue.to_string());
    lines.add("priority", spec.job.priority.as_str());
    lines.add("payload", data(&spec.job.payload, false));
    lines.add("registered", if spec.from_code { "by a worker's code" } else { "by hand" });
    lines.add("version", schedule.version.to_string());
    lines.add("created", both(schedule.created_at, now));
    lines.add("changed", both(schedule.updated_at, now));
    lines.add("fired", format!("{} times", schedule.fired));
    if let Some(error) = &schedule.last_error {
        lines.add("refused", format!("{} ({})", clean(&error.message), both(error.at, now)));
    }
    lines.maybe("last slot", schedule.last_slot.map(|at| both(at, now)));
    lines.maybe("last job", schedule.last_job.map(|id| id.to_string()));
    for (place, at) in schedule.next(5, now).into_iter().enumerate() {
        lines.add(if place == 0 { "next" } else { "" }, both(at, now));
    }
    lines.text()
}
