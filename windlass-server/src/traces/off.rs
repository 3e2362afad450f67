//! Without the feature there are no traces, and a configuration that asks for some is told so.

use axum::http::{HeaderMap, Method, StatusCode};
use tracing::Span;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Identity;
use windlass::job::TraceContext;

/// No traces.
#[derive(Debug)]
pub(crate) struct Traces;

impl Traces {
    pub(crate) fn start() -> anyhow::Result<Self> {
        Ok(Traces)
    }

    pub(crate) fn layer<S: tracing::Subscriber>(&self) -> Option<impl Layer<S> + use<S>> {
        None::<Identity>
    }

    /// Says so where traces were asked for.
    pub(crate) fn tell(&self) {
        if ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
            .map(std::env::var_os)
            .iter()
            .any(Option::is_some)
        {
            tracing::warn!("no traces are sent: this binary was built without the feature opentelemetry");
        }
    }

    pub(crate) async fn finish(self) {}
}

pub(crate) fn of_request(_: &Method, _: &'static str, _: &HeaderMap) -> Span {
    Span::none()
}

pub(crate) fn tell_status(_: &Span, _: StatusCode) {}

pub(crate) fn of_here() -> Option<TraceContext> {
    None
}
