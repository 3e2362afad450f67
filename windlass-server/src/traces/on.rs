//! Spans of requests, and the layer that hands all spans to the exporter.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{HeaderMap, Method, StatusCode};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;
use windlass::job::TraceContext;

use super::otlp::{Otlp, Target};

/// Whether there is a collector to send to; requests have no spans otherwise.
static ON: AtomicBool = AtomicBool::new(false);

/// The traces of this process, sent in batches from a thread of their own.
#[derive(Debug)]
pub(crate) struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Reads the environment; with an endpoint there, spans are sent to it from now on.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let Some(target) = Target::read(|name| std::env::var(name).ok())? else { return Ok(Traces(None)) };
        let mut resource =
            Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let named = std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|all| all.contains("service.name="));
        if !named && std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("windlass");
        }
        let exporter = Otlp::new(target)?;
        let provider =
            SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        ON.store(true, Ordering::Relaxed);
        Ok(Traces(Some(provider)))
    }

    /// What hands spans over, where they are wanted. Only our own: what libraries say may hold what they were given.
    pub(crate) fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        let tracer = self.0.as_ref()?.tracer("windlass");
        let ours =
            Targets::new().with_targets([("windlass", LevelFilter::INFO), ("windlass_server", LevelFilter::INFO)]);
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        let plain = layer.with_location(false).with_threads(false).with_target(false).with_tracked_inactivity(false);
        Some(plain.with_filter(ours))
    }

    /// Says that traces are sent.
    pub(crate) fn tell(&self) {
        if self.0.is_some() {
            tracing::info!("traces are sent to a collector");
        }
    }

    /// Sends what is left.
    pub(crate) async fn finish(self) {
        let Traces(Some(provider)) = self else { return };
        // It waits for the thread that sends, which waits for this runtime.
        let ended = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// The span of a request, in the trace that its caller names. A request for the server's health has none.
pub(crate) fn of_request(method: &Method, resource: &'static str, headers: &HeaderMap) -> Span {
    if !ON.load(Ordering::Relaxed) || ["health", "metrics"].contains(&resource) {
        return Span::none();
    }
    let span = tracing::info_span!(
        "request",
        otel.name = format!("{method} {resource}"),
        otel.kind = "server",
        otel.status_code = tracing::field::Empty,
        http.request.method = %method,
        http.response.status_code = tracing::field::Empty,
    );
    let text = |name: &str| Some((name.to_owned(), headers.get(name)?.to_str().ok()?.to_owned()));
    let carried: HashMap<_, _> = ["traceparent", "tracestate"].into_iter().filter_map(text).collect();
    let parent = global::get_text_map_propagator(|propagator| propagator.extract(&carried));
    // Fails only without the layer, and then there is no span either.
    let _ = span.set_parent(parent);
    span
}

/// Tells a request's span how it was answered.
pub(crate) fn tell_status(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// The trace and span that this code runs in, to be carried on to others.
pub(crate) fn of_here() -> Option<TraceContext> {
    let context = Span::current().context();
    if !context.span().span_context().is_valid() {
        return None;
    }
    let mut carried = HashMap::new();
    global::get_text_map_propagator(|propagator| propagator.inject_context(&context, &mut carried));
    let parent = carried.remove("traceparent")?;
    Some(TraceContext { parent, state: carried.remove("tracestate").filter(|state| !state.is_empty()) })
}
