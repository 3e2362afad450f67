//! A job continues the trace that it was enqueued in (feature `opentelemetry`); without the feature nothing happens here.
//!
//! The form is that of the propagator which the application installed with
//! `opentelemetry::global::set_text_map_propagator`, W3C trace context as a rule; without one no trace is carried.

use crate::job::TraceContext;

/// The caller's trace, in the form in which a job keeps it.
#[cfg(feature = "opentelemetry")]
pub(crate) fn of_caller() -> Option<TraceContext> {
    use std::collections::HashMap;

    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let context = tracing::Span::current().context();
    let mut headers: HashMap<String, String> = HashMap::new();
    opentelemetry::global::get_text_map_propagator(|propagator| propagator.inject_context(&context, &mut headers));
    let parent = headers.remove("traceparent")?;
    Some(TraceContext { parent, state: headers.remove("tracestate").filter(|state| !state.is_empty()) })
}

/// The caller's trace; not known without the feature.
#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn of_caller() -> Option<TraceContext> {
    None
}

/// Makes a span part of the trace that a job keeps.
#[cfg(feature = "opentelemetry")]
pub(crate) fn continue_in(span: &tracing::Span, trace: Option<&TraceContext>) {
    use std::collections::HashMap;

    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let Some(trace) = trace else { return };
    let mut headers = HashMap::from([("traceparent".to_owned(), trace.parent.clone())]);
    headers.extend(trace.state.clone().map(|state| ("tracestate".to_owned(), state)));
    let parent = opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&headers));
    // Fails only where no layer of tracing-opentelemetry is installed, and then there is nothing to continue.
    let _ = span.set_parent(parent);
}

/// Without the feature spans are nobody's.
#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn continue_in(_: &tracing::Span, _: Option<&TraceContext>) {}
