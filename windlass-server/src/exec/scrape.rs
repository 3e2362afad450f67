//! `windlass worker --metrics`: what this process recorded, for Prometheus.
//!
//! A worker that comes over HTTP leaves out what its server counts for it, or sums over both would count twice.

use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use axum::http::header;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::serve::metrics;

/// What a server counts for the workers that come to it over HTTP.
const COUNTED_BY_THE_SERVER: [&str; 6] = [
    "windlass_jobs_claimed_total",
    "windlass_attempts_ended_total",
    "windlass_job_wait_seconds",
    "windlass_job_run_seconds",
    "windlass_settlements_stale_total",
    "windlass_leases_lost_total",
];

/// Answers `/metrics` on this address until the process ends; gives the address, with its port where 0 was given.
pub(crate) async fn listen(address: SocketAddr, over_http: bool) -> anyhow::Result<SocketAddr> {
    let handle = metrics::install()?;
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("--metrics: cannot listen on {address}"))?;
    let bound = listener.local_addr()?;
    let answer = move || {
        let text = handle.render();
        let text = if over_http { without_the_servers(&text) } else { text };
        async { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text) }
    };
    let router = Router::new().route("/metrics", get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(bound)
}

fn without_the_servers(text: &str) -> String {
    let kept = text.lines().filter(|line| {
        let named = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")).unwrap_or(line);
        !COUNTED_BY_THE_SERVER.iter().any(|name| named.starts_with(name))
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_counts_is_left_out() {
        let text = "# HELP windlass_attempts_ended_total Attempts\n# TYPE windlass_attempts_ended_total counter\n\
                    windlass_attempts_ended_total{queue=\"a\"} 3\n# TYPE windlass_slots gauge\nwindlass_slots{queue=\"a\"} 4\n\
                    windlass_job_run_seconds_bucket{le=\"1\"} 2\n";
        assert_eq!(without_the_servers(text), "# TYPE windlass_slots gauge\nwindlass_slots{queue=\"a\"} 4\n");
        for name in COUNTED_BY_THE_SERVER {
            assert!(metrics::all().any(|metric| metric.name == name), "{name}");
        }
    }
}
