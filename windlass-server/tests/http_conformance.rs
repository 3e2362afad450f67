//! The conformance suite over HTTP: every case runs against a real server on a real port, with the memory store and the
//! case's own clock behind it. So HTTP offers everything that the contract does, with the same fencing.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::net::TcpListener;
use windlass::job::{Limits, PAYLOAD_BYTES_MAX};
use windlass::store::conformance::{Case, Subject, cases};
use windlass::store::{MemoryStore, Store};
use windlass::{Client, ManualClock};
use windlass_server::api::{self, ApiState};
use windlass_server::remote::HttpStore;

#[derive(Debug)]
struct Http;

#[async_trait::async_trait]
impl Subject for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        let limits = Limits::with_payload_bytes(PAYLOAD_BYTES_MAX).expect("the most there can be");
        let client = Client::with_store(Arc::new(MemoryStore::with_clock(clock))).limits(limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = api::router(ApiState::new(client));
        // The server ends with the case's runtime.
        tokio::spawn(async move { axum::serve(listener, router).await });
        let store = HttpStore::connect(&url, None).expect("a URL");
        store.listen().await.expect("the server listens");
        Arc::new(store)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = |case: Case| {
        let left_out = case.is_left_out(&Http);
        Trial::test(format!("http::{}", case.name), move || hold(case)).with_ignored_flag(left_out)
    };
    libtest_mimic::run(&arguments, cases().into_iter().map(trial).collect()).exit_code()
}

/// Runs one case on a runtime of its own; a panic becomes a failure that names rule and case.
fn hold(case: Case) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case.run(&Http))));
    ran.map_err(|panic| {
        let (rule, name) = (case.rule(), case.name);
        Failed::from(format!("HTTP breaks rule {rule} in case {name}: {}", words(panic.as_ref())))
    })
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panicked")
}
