//! Documents that repeat code: printed from it, or held against it.
//!
//! To write them anew: `WINDLASS_WRITE_DOCS=1 cargo test -p windlass-server --test serving documents`.

use std::fmt::Write;
use std::path::Path;

use windlass::observe::{Kind, Metric};
use windlass_server::serve::metrics;

fn docs(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

const METRICS_PREFACE: &str = "\
# Metrics

`windlass run` answers `GET /metrics` in Prometheus' text format. Where tokens are configured it asks for one with the
role `read`, unless `public_metrics` is set. Programs that use the library record its metrics through the `metrics`
facade, with whatever recorder they install. Times are in seconds. No label holds an id, a payload or other free text;
queues and types have the names that producers chose.

Whose attempts are counted where: a worker inside a program counts in that program; workers that come over HTTP, `windlass worker`
with `--server` among them, are counted by the server they ask. So do not add up a server and a Rust worker that uses it over HTTP
and exports the same names. `windlass worker --metrics 127.0.0.1:9187` answers with what only its own process knows (slots, heartbeats,
failed calls) and, on a store, with all of it. `windlass_queue_slots` and the other gauges of queues are the whole store's, on every server alike:
take `max by (queue)`, not a sum.

In a program of your own, tell the recorder the bounds of the histograms, or it turns them into summaries, which cannot be added
up and which the dashboard does not read:

```rust
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use windlass::observe::{BUCKETS_JOBS, BUCKETS_SECONDS};

PrometheusBuilder::new()
    .set_buckets_for_metric(Matcher::Suffix(\"_seconds\".into()), &BUCKETS_SECONDS)?
    .set_buckets_for_metric(Matcher::Suffix(\"_jobs\".into()), &BUCKETS_JOBS)?
    .install()?;
```

A program without a server tells how many jobs its queues hold with `client.record_queues().await?`, called before each scrape.

`windlass_jobs_enqueued_total` does not count enqueues in a transaction of your own, because the commit decides; a program that enqueues in
no other way finds its jobs in the claims, the attempts and the depth of its queues.

This page is printed from the tables `windlass::observe::METRICS` and `windlass_server::serve::metrics::METRICS`.
";

#[test]
fn the_page_of_metrics_is_printed_from_the_tables() {
    let mut page = METRICS_PREFACE.to_owned();
    let lines = |page: &mut String, heading: &str, metrics: &[Metric]| {
        write!(page, "\n## {heading}\n\n| metric | kind | labels | says |\n|---|---|---|---|\n").expect("text");
        for Metric { name, kind, labels, help, .. } in metrics {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).expect("text");
        }
    };
    lines(&mut page, "Of the library: clients and workers of this process", windlass::observe::METRICS);
    lines(&mut page, "Of the server: its store and its clients", metrics::METRICS);
    let path = docs("metrics.md");
    if std::env::var_os("WINDLASS_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(page.lines()).find(|(is, should)| is != should);
    assert!(
        committed == page,
        "docs/metrics.md is not what the code says; print it with `WINDLASS_WRITE_DOCS=1 cargo test -p windlass-server \
         --test serving documents`. First difference (is, should be): {differs:#?}"
    );
}

/// Every key of the example file is read, and every key there is stands in it, one that excludes another in a comment.
#[test]
fn the_configuration_in_the_documentation_is_taken_and_whole() {
    let page = std::fs::read_to_string(docs("configuration.md")).expect("docs/configuration.md");
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("windlass.toml");
    std::fs::write(&path, example).expect("written");
    let given = windlass_server::serve::config::Given { file: Some(path), ..Default::default() };
    windlass_server::serve::config::Settings::new(given).expect("the example is valid");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/serve/config/file.rs");
    let source = std::fs::read_to_string(source).expect("the source");
    for line in source.lines().filter_map(|line| line.trim().strip_prefix("pub(super) ")) {
        let Some((key, _)) = line.split_once(": ").filter(|(key, _)| !key.contains(' ')) else { continue };
        let section = [format!("[{key}]"), format!("[[{key}]]")];
        let there = example.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).any(|line| {
            line.starts_with(&format!("{key} ="))
                || section.iter().any(|section| line == section)
                || line.starts_with(&format!("[{key}."))
        });
        assert!(there, "{key} is not in the example of docs/configuration.md");
    }
}

#[test]
fn the_page_of_the_api_names_every_problem() {
    let page = std::fs::read_to_string(docs("http-api.md")).expect("docs/http-api.md");
    for kind in windlass_server::wire::Kind::ALL {
        let line = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{}`", kind.slug)));
        assert!(line.is_some_and(|line| line.contains(&kind.status.to_string())), "{} {}", kind.slug, kind.status);
    }
}

/// Every test that the threat model names is there.
#[test]
fn the_threat_model_names_tests_that_exist() {
    let page = std::fs::read_to_string(docs("threat-model.md")).expect("docs/threat-model.md");
    let mut sources = String::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = ["windlass", "windlass-server"].map(|package| root.join(package)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") && !path.ends_with("node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                sources += &std::fs::read_to_string(path).expect("a source");
            }
        }
    }
    let is_test = |word: &&str| word.contains('_') && word.len() > 30 || word.ends_with("_*");
    let named: Vec<_> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(named.len() > 30, "{named:?}");
    for name in named {
        let there = match name.strip_suffix('*') {
            Some(beginning) => sources.contains(&format!("fn {beginning}")),
            None => sources.contains(&format!("fn {name}(")),
        };
        // A metric is a name, too.
        assert!(there || sources.contains(&format!("\"{name}\"")), "there is no test {name}");
    }
}
