//! The way to a collector: OTLP over HTTP, spans as JSON.
//!
//! Every collector takes JSON where it takes protobuf, and this way the binary needs no second HTTP client and no code
//! made from schemas. gRPC is not spoken.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry::{Array, KeyValue, Value as Attribute};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use windlass::worker::webhooks::outgoing;

/// How long one delivery may take unless said otherwise, as the specification has it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Before a second and a third try. Spans that a collector does not want by then are dropped: jobs matter more.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Where spans go.
#[derive(Debug)]
pub(super) struct Target {
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
}

impl Target {
    /// What the standard variables say; none without an endpoint. The ones for traces win over the ones for all signals.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Self>> {
        let set = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let either = |last: &str| {
            let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{last}"), format!("OTEL_EXPORTER_OTLP_{last}")];
            names.into_iter().find_map(|name| set(&name).map(|text| (name, text)))
        };
        let off = set("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if off || set("OTEL_TRACES_EXPORTER").is_some_and(|text| text != "otlp") {
            return Ok(None);
        }
        let Some((name, text)) = either("ENDPOINT") else { return Ok(None) };
        let mut url: Url = text.trim().parse().with_context(|| format!("{name} is no URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            bail!("{name} must begin with http:// or https://");
        }
        // Only the variable for all signals is completed.
        if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
            url.set_path(&format!("{}/v1/traces", url.path().trim_end_matches('/')));
        }
        if let Some((name, text)) = either("PROTOCOL").filter(|(_, text)| !text.starts_with("http/")) {
            bail!("{name} is {text:?}, and only http is spoken here: name the collector's HTTP port, as a rule 4318");
        }
        let headers = match either("HEADERS") {
            None => HeaderMap::new(),
            Some((name, text)) => {
                headers(&text).with_context(|| format!("{name} is not written NAME=VALUE,NAME=VALUE"))?
            }
        };
        let timeout = match either("TIMEOUT") {
            None => TIMEOUT,
            Some((name, text)) => Duration::from_millis(text.parse().with_context(|| format!("{name} is no number"))?),
        };
        Ok(Some(Target { url, headers, timeout }))
    }
}

/// Headers as the environment writes them. Their values may be secrets and are not repeated.
fn headers(text: &str) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=').context("there is no =")?;
        let name: HeaderName = name.trim().parse().context("a name is none of a header")?;
        let mut value = HeaderValue::from_bytes(&unescaped(value.trim())).context("a value is none of a header")?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// The bytes that percent signs stand for.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    bytes
}

/// Sends spans.
#[derive(Debug)]
pub(super) struct Otlp {
    http: reqwest::Client,
    url: Url,
    resource: Value,
    /// Calls need a runtime, and the thread that exports has none.
    runtime: Handle,
}

impl Otlp {
    pub(super) fn new(target: Target) -> anyhow::Result<Self> {
        let http = outgoing::client(target.timeout).default_headers(target.headers);
        let http = http.build().context("cannot make calls")?;
        Ok(Otlp { http, url: target.url, resource: json!({}), runtime: Handle::current() })
    }
}

impl SpanExporter for Otlp {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (count, body) = (batch.len(), request(&self.resource, &batch).to_string());
        let sent = self.runtime.spawn(deliver(self.http.clone(), self.url.clone(), body)).await;
        let sent = sent.unwrap_or_else(|_| Err("the runtime has ended".to_owned()));
        sent.map_err(|problem| {
            tracing::warn!(spans = count, problem, "spans were not taken by the collector");
            OTelSdkError::InternalFailure(problem)
        })
    }

    fn set_resource(&mut self, resource: &Resource) {
        let attributes = resource.iter().map(|(key, value)| attribute(key.as_str(), value));
        self.resource = json!({ "attributes": attributes.collect::<Vec<_>>() });
    }
}

async fn deliver(http: reqwest::Client, url: Url, body: String) -> Result<(), String> {
    let mut pauses = PAUSES.into_iter();
    loop {
        let call = http.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body.clone());
        let (problem, after) = match call.send().await {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) if matches!(answer.status().as_u16(), 429 | 502 | 503 | 504) => {
                (format!("it answered {}", answer.status()), outgoing::retry_after(answer.headers()))
            }
            Ok(answer) => return Err(format!("it answered {}", answer.status())),
            Err(error) => (outgoing::words(error), None),
        };
        let Some(pause) = pauses.next() else { return Err(problem) };
        tokio::time::sleep(after.map_or(pause, |after| after.min(TIMEOUT))).await;
    }
}

fn request(resource: &Value, batch: &[SpanData]) -> Value {
    let spans: Vec<_> = batch.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": resource,
        "scopeSpans": [{ "scope": { "name": "windlass", "version": env!("CARGO_PKG_VERSION") }, "spans": spans }],
    }] })
}

/// A span. Ids are hexadecimal and large numbers are texts, as OTLP has it in JSON.
fn span(span: &SpanData) -> Value {
    let events = span.events.events.iter().map(|event| {
        json!({ "timeUnixNano": nanos(event.timestamp), "name": event.name, "attributes": attributes(&event.attributes) })
    });
    let status = match &span.status {
        Status::Unset => json!({}),
        Status::Ok => json!({ "code": 1 }),
        Status::Error { description } => json!({ "code": 2, "message": description }),
    };
    let kind = match span.span_kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
        SpanKind::Producer => 4,
        SpanKind::Consumer => 5,
    };
    let mut told = json!({
        "traceId": span.span_context.trace_id().to_string(),
        "spanId": span.span_context.span_id().to_string(),
        "traceState": span.span_context.trace_state().header(),
        "flags": span.span_context.trace_flags().to_u8(),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.start_time),
        "endTimeUnixNano": nanos(span.end_time),
        "attributes": attributes(&span.attributes),
        "droppedAttributesCount": span.dropped_attributes_count,
        "events": events.collect::<Vec<_>>(),
        "status": status,
    });
    if span.parent_span_id != SpanId::INVALID {
        told["parentSpanId"] = json!(span.parent_span_id.to_string());
    }
    told
}

fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn attributes(all: &[KeyValue]) -> Vec<Value> {
    all.iter().map(|one| attribute(one.key.as_str(), &one.value)).collect()
}

fn attribute(key: &str, value: &Attribute) -> Value {
    let list = |values: Vec<Value>| json!({ "arrayValue": { "values": values } });
    let value = match value {
        Attribute::Bool(value) => json!({ "boolValue": value }),
        Attribute::I64(value) => json!({ "intValue": value.to_string() }),
        Attribute::F64(value) => json!({ "doubleValue": value }),
        Attribute::Array(Array::Bool(all)) => list(all.iter().map(|one| json!({ "boolValue": one })).collect()),
        Attribute::Array(Array::I64(all)) => {
            list(all.iter().map(|one| json!({ "intValue": one.to_string() })).collect())
        }
        Attribute::Array(Array::F64(all)) => list(all.iter().map(|one| json!({ "doubleValue": one })).collect()),
        Attribute::Array(Array::String(all)) => {
            list(all.iter().map(|one| json!({ "stringValue": one.as_str() })).collect())
        }
        other => json!({ "stringValue": other.as_str() }),
    };
    json!({ "key": key, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> anyhow::Result<Option<Target>> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Target::read(find)
    }

    fn url(variables: &[(&str, &str)]) -> Option<String> {
        read(variables).expect("it can be read").map(|target| target.url.to_string())
    }

    #[test]
    fn nothing_is_sent_unless_there_is_somewhere_to_send_it() {
        assert_eq!(url(&[]), None);
        assert_eq!(url(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), None);
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert_eq!(url(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), None);
        assert_eq!(url(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    #[test]
    fn the_endpoint_of_all_signals_is_completed_and_that_of_traces_is_not() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert_eq!(url(&[all]).as_deref(), Some("http://c:4318/v1/traces"));
        let under = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/");
        assert_eq!(url(&[under]).as_deref(), Some("https://c/otlp/v1/traces"));
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d/spans");
        assert_eq!(url(&[all, traces]).as_deref(), Some("http://d/spans"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_telling_secrets() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317");
        for bad in [
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4318"), ("", "")],
            [all, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            [all, ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")],
            [all, ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")],
            [all, ("OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cret")],
        ] {
            let error = read(&bad).expect_err("it is refused");
            assert!(!format!("{error:#}").contains("s3cret"), "{error:#}");
        }
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b%, x=");
        let target = read(&[all, headers]).expect("it can be read").expect("an endpoint");
        assert_eq!(target.headers.get("api-key").map(HeaderValue::as_bytes), Some(&b"a b%"[..]));
    }
}
