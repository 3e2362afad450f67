//! A trace goes from the producer through the store to the handler, and on to what the handler spawns (rule N6).

use std::time::Duration;

use opentelemetry::trace::{SpanId, TraceId, TracerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;
use windlass::{Client, Context, Failure, Job, NewJob, Payload, Worker, Workflow};

#[derive(Serialize, Deserialize)]
struct Order {
    children: u32,
}

impl Job for Order {
    const TYPE: &'static str = "order";
}

async fn run(job: Order, cx: Context) -> Result<(), Failure> {
    for _ in 0..job.children {
        cx.spawn(Order { children: 0 })?;
    }
    Ok(())
}

fn named<'s>(spans: &'s [SpanData], name: &str) -> Vec<&'s SpanData> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn place(span: &SpanData) -> (TraceId, SpanId) {
    (span.span_context.trace_id(), span.span_context.span_id())
}

// One test, since the propagator is the whole process's.
#[tokio::test(flavor = "current_thread")]
async fn n6_the_handler_continues_the_trace_of_the_producer() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));

    let client = Client::in_memory();
    let worker = Worker::new(&client).queue("default", 4).poll_interval(Duration::from_millis(5)).handle(run);
    let enqueue = async {
        let one = client.enqueue(Order { children: 2 }).await.expect("enqueue");
        client.enqueue_all([Order { children: 0 }]).await.expect("enqueue");
        let mut flow = Workflow::new("traced");
        flow.add(Order { children: 0 });
        client.start(flow).await.expect("start");
        one.id
    };
    let id = enqueue.instrument(tracing::info_span!("producer")).await;
    let kept = client.job(id).await.expect("a job").spec.options.trace_context.clone().expect("it keeps the trace");
    // What the caller says itself is not replaced.
    let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let told = NewJob::new("order", Payload::json(&Order { children: 0 }).expect("json")).trace_context(own, None);
    let enqueue = async { client.enqueue(told).await.expect("enqueue") };
    enqueue.instrument(tracing::info_span!("other")).await;
    assert_eq!(worker.drain().await.expect("drain").completed, 6);

    provider.force_flush().expect("flush");
    let spans = exporter.get_finished_spans().expect("spans");
    let [producer] = named(&spans, "producer")[..] else { panic!("one producer: {spans:?}") };
    let (trace, span) = place(producer);
    assert_eq!(kept.parent, format!("00-{trace}-{span}-01"));
    let runs = named(&spans, "windlass.job");
    assert_eq!(runs.len(), 6);
    let of_producer: Vec<_> = runs.iter().filter(|run| run.parent_span_id == span).collect();
    assert_eq!(of_producer.len(), 3, "alone, in a batch, in a workflow");
    let parents: Vec<SpanId> = of_producer.iter().map(|run| place(run).1).collect();
    let children = runs.iter().filter(|run| parents.contains(&run.parent_span_id)).count();
    assert_eq!(children, 2, "what a handler spawns continues its span");
    assert_eq!(runs.iter().filter(|run| place(run).0 == trace).count(), 5);
    let told = runs.iter().filter(|run| run.span_context.trace_id().to_string() == own[3..35]).count();
    assert_eq!(told, 1);
}
