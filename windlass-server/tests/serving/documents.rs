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
queues and types are the names that whoever enqueues chose.

This page is printed from the tables `windlass::observe::METRICS` and `windlass_server::serve::metrics::METRICS`.
";

#[test]
fn the_page_of_metrics_is_printed_from_the_tables() {
    let mut page = METRICS_PREFACE.to_owned();
    let lines = |page: &mut String, heading: &str, metrics: &[Metric]| {
        write!(page, "\n## {heading}\n\n| metric | kind | labels | says |\n|---|---|---|---|\n").expect("text");
        for Metric { name, kind, labels, help } in metrics {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).expect("text");
        }
    };
    lines(&mut page, "Of the library: clients and workers of this process", &windlass::observe::METRICS);
    lines(&mut page, "Of the server: its store and its clients", &metrics::METRICS);
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

/// Every key of the example file is read, and every key there is stands in it.
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
        let there = example
            .lines()
            .any(|line| line.starts_with(&format!("{key} =")) || section.iter().any(|section| line == section));
        assert!(there, "{key} is not in the example of docs/configuration.md");
    }
}
