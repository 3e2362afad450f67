//! A registered handler, its types erased: bytes in, result or failure out.

use std::any::TypeId;
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};

use serde::Serialize;

use super::attempt::Attempt;
use super::context::Context;
use super::handled::{BackoffFunction, HandledType};
use crate::job::{CODE_INVALID_PAYLOAD, CODE_PANIC, Category, Failure, Job, JobType, Payload};
use crate::observe::JobMetrics;

/// What a handler comes to: a result to keep, or a failure.
pub type HandlerResult = Result<Option<Payload>, Failure>;
/// A handler's run.
pub(super) type Run<'a> = Pin<Box<dyn Future<Output = HandlerResult> + Send + 'a>>;
/// A handler whose types are erased.
pub(super) type Call = dyn Fn(Arc<Attempt>) -> Run<'static> + Send + Sync;
/// A handler, and what goes with its type.
pub(super) struct Handler {
    pub(super) call: Arc<Call>,
    pub(super) handled: Arc<HandledType>,
}

/// A handler of typed jobs.
pub(super) fn typed<J, S, R, F, Fut>(state: Arc<S>, handler: F) -> Arc<Call>
where
    J: Job,
    S: Send + Sync + 'static,
    R: Serialize + 'static,
    F: Fn(J, Context<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |attempt| {
        let (handler, context) = (Arc::clone(&handler), Context::new(Arc::clone(&state), Arc::clone(&attempt)));
        Box::pin(async move {
            let job = decode::<J>(&attempt.job().spec.payload)?;
            handler(job, context).await.and_then(|result| encode(&result))
        })
    })
}

/// A handler of jobs of any payload.
pub(super) fn raw<S, R, F, Fut>(state: Arc<S>, handler: F) -> Arc<Call>
where
    S: Send + Sync + 'static,
    R: Serialize + 'static,
    F: Fn(Payload, Context<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |attempt| {
        let (handler, context) = (Arc::clone(&handler), Context::new(Arc::clone(&state), Arc::clone(&attempt)));
        Box::pin(async move {
            handler(attempt.job().spec.payload.clone(), context).await.and_then(|result| encode(&result))
        })
    })
}

/// A handler of jobs of any payload, whose result is kept as it is.
pub(super) fn plain<S, F, Fut>(state: Arc<S>, handler: F) -> Arc<Call>
where
    S: Send + Sync + 'static,
    F: Fn(Payload, Context<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    Arc::new(move |attempt| {
        let context = Context::new(Arc::clone(&state), Arc::clone(&attempt));
        Box::pin(handler(attempt.job().spec.payload.clone(), context))
    })
}

/// The handler of every type that has none of its own, made into one for each type that comes along.
pub(super) struct AnyHandler {
    call: Arc<Call>,
    /// Backoffs of the user's own, by type.
    backoffs: HashMap<String, Arc<BackoffFunction>>,
    made: Mutex<HashMap<JobType, Arc<Handler>>>,
}

/// Types beyond this many share one line of metrics: producers choose the names.
const ANY_TYPES_MAX: usize = 1000;

impl AnyHandler {
    pub(super) fn new(call: Arc<Call>, backoffs: HashMap<String, Arc<BackoffFunction>>) -> Self {
        AnyHandler { call, backoffs, made: Mutex::new(HashMap::new()) }
    }

    /// The handler for a type; `metrics` makes those of a new one.
    pub(super) fn of(&self, job_type: &JobType, metrics: impl Fn(&JobType) -> Vec<JobMetrics>) -> Arc<Handler> {
        let mut made = self.made.lock().expect("nothing panics while it holds this lock");
        let shared = made.len() >= ANY_TYPES_MAX && !made.contains_key(job_type);
        let key = if shared { JobType::new("other").expect("the name is plain") } else { job_type.clone() };
        let handler = made.entry(key).or_insert_with_key(|key| {
            let backoff = self.backoffs.get(key.as_str()).cloned();
            let handled = HandledType { job_type: key.clone(), backoff, metrics: metrics(key) };
            Arc::new(Handler { call: Arc::clone(&self.call), handled: Arc::new(handled) })
        });
        Arc::clone(handler)
    }
}

/// Reads a payload. What it says about one that does not read holds nothing of the payload itself.
fn decode<J: Job>(payload: &Payload) -> Result<J, Failure> {
    if !payload.is_json() {
        return Err(Failure::permanent(CODE_INVALID_PAYLOAD, "the payload is not JSON"));
    }
    let mut json = serde_json::Deserializer::from_slice(payload.as_bytes());
    let read = serde_path_to_error::deserialize(&mut json);
    let problem = match read {
        Ok(job) => match json.end() {
            Ok(()) => return Ok(job),
            Err(error) => problem_of(".", &error),
        },
        Err(error) => problem_of(&error.path().to_string(), error.inner()),
    };
    let message = format!("the payload does not read as {}: {problem}", J::TYPE);
    Err(Failure::permanent(CODE_INVALID_PAYLOAD, message))
}

/// What is wrong with a payload: the place, what was expected there, and nothing of what was found.
fn problem_of(path: &str, error: &serde_json::Error) -> String {
    let place = format!("line {} column {}", error.line(), error.column());
    let text = error.to_string();
    // serde names fields of the type in backticks, and quotes values before it says what it expected.
    let named = ["missing field `", "duplicate field `"].into_iter().find(|start| text.starts_with(start));
    let what = match (named, text.rsplit_once(", expected ")) {
        (Some(start), _) => text[..start.len()].to_owned() + text[start.len()..].split('`').next().unwrap_or("") + "`",
        (None, Some((_, expected))) => format!("expected {}", expected.split(" at line ").next().unwrap_or(expected)),
        (None, None) => "not valid".to_owned(),
    };
    if path == "." { format!("{what} at {place}") } else { format!("{path}: {what} at {place}") }
}

fn encode<R: Serialize + 'static>(result: &R) -> HandlerResult {
    if TypeId::of::<R>() == TypeId::of::<()>() {
        return Ok(None);
    }
    let encoded = Payload::json(result).map(Some);
    encoded.map_err(|error| Failure::permanent("invalid_result", error))
}

/// A run that turns a panic into a failure (rule F2).
pub(super) struct Unpanicked<'a>(pub(super) Run<'a>);

impl Future for Unpanicked<'_> {
    type Output = HandlerResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<HandlerResult> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)));
        Poll::Ready(match polled {
            Ok(poll) => ready!(poll),
            Err(panic) => Err(Failure::new(Category::System, Some(CODE_PANIC.to_owned()), words(&*panic))),
        })
    }
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("without words"))
}
