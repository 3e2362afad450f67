//! The options of a job as members of JSON objects, written down once for every struct that has them.
//!
//! They stand among a struct's own members instead of in a struct that serde flattens into it: flattening keeps a copy of
//! every member until all are read, which is a third of what reading a claimed job takes.

/// Calls a macro of the caller's with the members, each with its description and its form.
macro_rules! with_options {
    ($with:ident) => {
        $with! {
                /// Its lane; `default` unless named.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9_.:/-]+$")]
                pub queue: Option<String>,
                /// How urgent it is; `normal` unless said.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(value_type = Option<names::PriorityName>)]
                pub priority: Option<Priority>,
                /// Counted executions, the first included.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(minimum = 1, maximum = 100)]
                pub max_attempts: Option<u32>,
                /// When a failed attempt is tried again.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub retry: Option<Retry>,
                /// Longest run of one attempt.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub execution_timeout: Option<Limit>,
                /// The lease time of a claim that names none.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub visibility_timeout: Option<Span>,
                /// From submission to a terminal state.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub lifetime: Option<Limit>,
                /// How long it is kept after its end.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub retention: Option<RetentionPatch>,
                /// The same key in the window is the same job.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(min_length = 1, max_length = 256)]
                pub idempotency_key: Option<String>,
                /// Among which jobs the key is unique; those of the same type unless said.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(value_type = Option<names::ScopeName>)]
                pub idempotency_scope: Option<Scope>,
                /// How long the key holds; 24 h unless said, and `none` where `idempotency_until` is said.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub idempotency_window: Option<Limit>,
                /// Up to when the key stands for the job, if its window is not over before; `window` unless said.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(value_type = Option<names::UntilName>)]
                pub idempotency_until: Option<Until>,
                /// What becomes of the job that the key stands for; `keep` unless said. `replace` cancels one of the same type and queue
                /// that was never claimed.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(value_type = Option<names::OnExistingName>)]
                pub on_existing: Option<OnExisting>,
                /// Runs once for many submissions with the key, or else with the payload: each replaces the one before it.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub debounce: Option<Debounce>,
                /// Whom it counts under in a controlled queue: a tenant, an account. Not the idempotency key.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(min_length = 1, max_length = 128)]
                pub key: Option<String>,
                /// What it waits for.
                #[serde(default, skip_serializing_if = "Vec::is_empty")]
                #[schema(max_items = 1000)]
                pub depends_on: Vec<Dependency>,
                /// Whether it does not take over the priority of more urgent dependencies.
                #[serde(default, skip_serializing_if = "std::ops::Not::not")]
                pub own_priority_only: bool,
                /// Labels.
                #[serde(default, deserialize_with = "data::labels", skip_serializing_if = "BTreeMap::is_empty")]
                pub tags: BTreeMap<String, String>,
                /// For following one piece of work through several systems.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(max_length = 256)]
                pub correlation_id: Option<String>,
                /// Told by a signed POST when the job becomes terminal.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(max_length = 2048)]
                pub callback_url: Option<String>,
                /// The W3C trace that the job continues.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub trace_context: Option<TraceContext>,
                /// The job that this one is a copy of.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schema(value_type = Option<String>, format = "uuid")]
                pub cloned_from: Option<JobId>,
        }
    };
}

pub(super) use with_options;
