//! Errors as RFC 9457 problems, and back into errors. The one table of slugs and status codes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::Stale;
use windlass::{Error, JobId, State};

use super::{Span, names};

/// What stands before the slug in `type`.
const TYPE_PREFIX: &str = "urn:windlass:problem:";
/// Longest detail, in bytes: words for people, not a copy of what they sent.
const DETAIL_BYTES_MAX: usize = 2048;

/// What went wrong (RFC 9457, `application/problem+json`). Which members stand beside the first four depends on `type`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Which problem, as a URN with a stable slug: `urn:windlass:problem:stale-lease`.
    #[serde(rename = "type")]
    #[schema(example = "urn:windlass:problem:invalid-argument")]
    pub kind: String,
    /// The problem in two words.
    pub title: String,
    /// The status code of the answer.
    pub status: u16,
    /// What was attempted, on what, and why it did not happen.
    pub detail: String,
    /// The id of the request, as in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The field that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was looked for or is too large or too many: `job`, `payload`, `dependency depth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The id or name of what was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How much or how many there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// How much or how many are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The job that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    /// The state that the job is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::StateName>)]
    pub state: Option<State>,
    /// What the state does not allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// Why the lease does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::StaleName>)]
    pub stale: Option<Stale>,
    /// Whether what was asked for may have been done all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// How long was waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Span>,
}

/// Whether what was asked for may have been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ProblemOutcome)]
pub enum Outcome {
    /// Nothing was written.
    NotWritten,
    /// It may have happened: repeat with the idempotency key.
    Unknown,
}

/// A kind of problem: its slug, the status code, its title.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The stable slug.
    pub slug: &'static str,
    /// The status code of the answer.
    pub status: u16,
    /// The problem in two words.
    pub title: &'static str,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $slug:literal $status:literal $title:literal;)*) => {
        impl Kind {
            $($(#[$doc])* pub const $name: Kind = Kind { slug: $slug, status: $status, title: $title };)*

            /// Every kind of problem that the API answers with.
            pub const ALL: &[Kind] = &[$(Kind::$name),*];
        }
    };
}

kinds! {
    /// The lease no longer holds.
    STALE_LEASE = "stale-lease" 409 "stale lease";
    /// There is no such thing.
    NOT_FOUND = "not-found" 404 "not found";
    /// A field is out of bounds.
    INVALID_ARGUMENT = "invalid-argument" 400 "invalid argument";
    /// The body is no JSON of the right shape.
    INVALID_BODY = "invalid-body" 400 "invalid body";
    /// A payload, result, checkpoint or body is too large.
    PAYLOAD_TOO_LARGE = "payload-too-large" 413 "payload too large";
    /// A job depends on a job that does not exist.
    DEPENDENCY_NOT_FOUND = "dependency-not-found" 422 "dependency not found";
    /// The dependencies run in a circle.
    DEPENDENCY_CYCLE = "dependency-cycle" 422 "dependency cycle";
    /// Too many dependencies, or too deep a graph.
    DEPENDENCY_LIMIT = "dependency-limit" 422 "too many dependencies";
    /// The job's state does not allow this.
    ILLEGAL_STATE = "illegal-state" 409 "illegal state";
    /// Something else stands in the way.
    CONFLICT = "conflict" 409 "conflict";
    /// The version named by If-Match has moved on.
    PRECONDITION_FAILED = "precondition-failed" 412 "precondition failed";
    /// The caller is not known.
    UNAUTHENTICATED = "unauthenticated" 401 "not authenticated";
    /// The caller may not do this.
    UNAUTHORIZED = "unauthorized" 403 "not allowed";
    /// The store cannot be reached or cannot write now.
    STORE_UNAVAILABLE = "store-unavailable" 503 "store unavailable";
    /// The enqueue was not acknowledged in time.
    SUBMISSION_TIMEOUT = "submission-timeout" 504 "submission timeout";
    /// The store failed in a way that trying again will not mend.
    STORE = "store" 500 "store failure";
    /// There is no such route.
    NO_SUCH_ROUTE = "no-such-route" 404 "no such route";
    /// The route does not know this method.
    METHOD_NOT_ALLOWED = "method-not-allowed" 405 "method not allowed";
    /// The body is not of a content type that is read here.
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type" 415 "unsupported media type";
    /// The Host header names another server.
    MISDIRECTED = "misdirected" 421 "misdirected request";
    /// The request's head is too large.
    HEAD_TOO_LARGE = "head-too-large" 431 "head too large";
    /// The request took too long to arrive.
    REQUEST_TIMEOUT = "request-timeout" 408 "request timeout";
    /// The server failed.
    INTERNAL = "internal" 500 "internal failure";
    /// Too many of these at once.
    TOO_MANY = "too-many" 429 "too many";
    /// The server is stopping or overloaded.
    UNAVAILABLE = "unavailable" 503 "unavailable";
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let mut detail: String = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
        }
        Problem {
            kind: format!("{TYPE_PREFIX}{}", kind.slug),
            title: kind.title.to_owned(),
            status: kind.status,
            detail,
            request_id: None,
            field: None,
            what: None,
            name: None,
            size: None,
            limit: None,
            job: None,
            state: None,
            wanted: None,
            stale: None,
            outcome: None,
            waited: None,
        }
    }

    /// The problem that an error is.
    pub fn of(error: &Error) -> Self {
        let of = |kind| Problem::new(kind, error.to_string());
        let outcome = |known| Some(if known { Outcome::NotWritten } else { Outcome::Unknown });
        match error {
            Error::StaleLease { job, stale } => {
                Problem { job: Some(*job), stale: Some(*stale), ..of(Kind::STALE_LEASE) }
            }
            Error::NotFound { what, name } => {
                Problem { what: Some((*what).to_owned()), name: Some(name.clone()), ..of(Kind::NOT_FOUND) }
            }
            Error::InvalidArgument { field, problem } => {
                Problem { field: Some((*field).to_owned()), ..Problem::new(Kind::INVALID_ARGUMENT, problem) }
            }
            Error::PayloadTooLarge { what, size, limit } => Problem {
                what: Some((*what).to_owned()),
                size: Some(*size),
                limit: Some(*limit),
                ..of(Kind::PAYLOAD_TOO_LARGE)
            },
            Error::DependencyNotFound { job } => Problem { job: Some(*job), ..of(Kind::DEPENDENCY_NOT_FOUND) },
            Error::DependencyCycle { through } => Problem { name: Some(through.clone()), ..of(Kind::DEPENDENCY_CYCLE) },
            Error::DependencyLimit { what, size, limit } => Problem {
                what: Some((*what).to_owned()),
                size: Some(*size),
                limit: Some(*limit),
                ..of(Kind::DEPENDENCY_LIMIT)
            },
            Error::IllegalState { job, state, wanted } => Problem {
                job: Some(*job),
                state: Some(*state),
                wanted: Some((*wanted).to_owned()),
                ..of(Kind::ILLEGAL_STATE)
            },
            Error::Conflict(why) => Problem::new(Kind::CONFLICT, why),
            Error::Unauthorized(why) => Problem::new(Kind::UNAUTHORIZED, why),
            // What the database says of itself is for the server's log.
            Error::StoreUnavailable { attempted, known, .. } => Problem {
                outcome: outcome(*known),
                ..Problem::new(Kind::STORE_UNAVAILABLE, format!("cannot {attempted}: the store is not available now"))
            },
            Error::SubmissionTimeout { after } => {
                Problem { outcome: outcome(false), waited: Some((*after).into()), ..of(Kind::SUBMISSION_TIMEOUT) }
            }
            // The store's own words may hold anything; they are for the server's log.
            Error::Store { attempted, .. } => Problem {
                outcome: outcome(error.outcome_is_known()),
                ..Problem::new(Kind::STORE, format!("cannot {attempted}: the store failed; see the server's log"))
            },
            other => Problem { outcome: outcome(other.outcome_is_known()), ..of(Kind::STORE) },
        }
    }

    /// Its slug.
    pub fn slug(&self) -> &str {
        self.kind.strip_prefix(TYPE_PREFIX).unwrap_or(&self.kind)
    }

    /// The error that it was; `attempted` says what was being done.
    pub fn into_error(self, attempted: &str) -> Error {
        if let Some(error) = self.known_error() {
            return error;
        }
        let Problem { detail, .. } = self;
        match self.status {
            401 | 403 => Error::Unauthorized(detail),
            status @ (429 | 502..=504) => Error::StoreUnavailable {
                attempted: attempted.to_owned(),
                problem: format!("the server answered {status}: {detail}"),
                known: status == 429 || self.outcome == Some(Outcome::NotWritten),
                source: None,
            },
            status if status < 500 => Error::invalid(field_name(self.field.as_deref().unwrap_or("request")), detail),
            status => Error::store(attempted, format!("the server answered {status}: {detail}")),
        }
    }

    /// The error of a slug that stands for one, if all of its members are there.
    fn known_error(&self) -> Option<Error> {
        let kind = Kind::ALL.iter().find(|kind| kind.slug == self.slug()).copied();
        kind.and_then(|kind| {
            Some(match kind {
                Kind::STALE_LEASE => Error::StaleLease { job: self.job?, stale: self.stale? },
                Kind::NOT_FOUND => {
                    Error::NotFound { what: thing_name(self.what.as_deref()?), name: self.name.clone()? }
                }
                Kind::INVALID_ARGUMENT => Error::invalid(field_name(self.field.as_deref()?), self.detail.clone()),
                Kind::PAYLOAD_TOO_LARGE => Error::PayloadTooLarge {
                    what: thing_name(self.what.as_deref()?),
                    size: self.size?,
                    limit: self.limit?,
                },
                Kind::DEPENDENCY_NOT_FOUND => Error::DependencyNotFound { job: self.job? },
                Kind::DEPENDENCY_CYCLE => Error::DependencyCycle { through: self.name.clone()? },
                Kind::DEPENDENCY_LIMIT => Error::DependencyLimit {
                    what: thing_name(self.what.as_deref()?),
                    size: self.size?,
                    limit: self.limit?,
                },
                Kind::ILLEGAL_STATE => Error::IllegalState {
                    job: self.job?,
                    state: self.state?,
                    wanted: thing_name(self.wanted.as_deref()?),
                },
                Kind::CONFLICT | Kind::PRECONDITION_FAILED => Error::Conflict(self.detail.clone()),
                Kind::SUBMISSION_TIMEOUT => {
                    Error::SubmissionTimeout { after: self.waited.map_or(Duration::ZERO, |span| span.0) }
                }
                _ => return None,
            })
        })
    }
}

/// The fields that the library and the API name in errors; its errors hold static names.
const FIELDS: &[&str] = &[
    "after",
    "ageing",
    "backoff",
    "batch",
    "body",
    "burst",
    "by",
    "callback_url",
    "cap",
    "checkpoint",
    "content_type",
    "control",
    "correlation_id",
    "created_after",
    "created_before",
    "cron",
    "cursor",
    "debounce",
    "delay",
    "depends_on",
    "ended_before",
    "every",
    "execution timeout",
    "failure",
    "filter",
    "hold",
    "id",
    "idempotency window",
    "idempotency_key",
    "ids",
    "jitter_fraction",
    "job",
    "jobs",
    "key",
    "lease",
    "leases",
    "lifetime",
    "limit",
    "looked",
    "max",
    "max_attempts",
    "missed",
    "multiplier",
    "n",
    "name",
    "payload",
    "payload limit",
    "payloads",
    "priority",
    "progress",
    "query",
    "queue",
    "queues",
    "rate",
    "ref",
    "result",
    "retention",
    "run_at",
    "running",
    "saves",
    "server",
    "settlements",
    "simple_state",
    "slots",
    "snooze",
    "spawn",
    "state",
    "tags",
    "timeout",
    "timing",
    "token",
    "trace_context",
    "type",
    "types",
    "unique",
    "unique_by",
    "visibility timeout",
    "wait",
    "weight",
    "worker",
    "workflow",
    "workflow name",
    "zone",
];
/// What else they name.
const THINGS: &[&str] = &[
    "job",
    "worker",
    "schedule",
    "workflow",
    "queue",
    "control of queue",
    "key",
    "operation",
    "result",
    "payload",
    "checkpoint",
    "body",
    "dependency count",
    "dependency depth",
    "cancel",
    "requeue",
    "dead-letter",
    "delete",
    "reprioritise",
    "edit",
    "clone",
    "read the result of",
    "claim",
];

fn field_name(name: &str) -> &'static str {
    FIELDS.iter().copied().find(|known| *known == name).unwrap_or("request")
}

fn thing_name(name: &str) -> &'static str {
    THINGS.iter().copied().find(|known| *known == name).unwrap_or("thing")
}
