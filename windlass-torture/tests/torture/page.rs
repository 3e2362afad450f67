//! `docs/torture.md` shows the command line as it is.

use std::path::Path;

/// As wide as in `docs/cli.md`.
const COLUMNS: usize = 100;

#[test]
fn the_page_shows_the_help_as_it_is_printed() {
    let help = windlass_torture::cli::command().term_width(COLUMNS).render_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    let block = format!("```text\n{}\n```\n", help.join("\n").trim_end());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/torture.md");
    let page = std::fs::read_to_string(path).expect("the page can be read");
    assert!(page.contains(&block), "docs/torture.md does not show the help, which is\n{block}");
}
