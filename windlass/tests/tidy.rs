//! The house rules that can be checked, checked.
//!
//! Each test is one rule and says what to do about a breach. They read the tree as text, with the help of rustfmt's
//! layout, and know no Rust: where one is wrong about a line, write the line differently or make the test cleverer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The line of modules: each may use those to its left.
const LINE: [&str; 7] = ["job", "flow", "workflow", "schedule", "store", "client", "worker"];
/// What every module may use. They may use each other and `job`, whose ids and states they name.
const BASE: [&str; 2] = ["error", "time"];
/// What only modules that may do things can use: from `store` on.
const EFFECTS: [&str; 2] = ["clock", "observe"];
/// Stands to the right of the line: uses everything, and only tests use it.
const RIGHT_END: &str = "testing";
/// The folders that decide and do nothing else.
const PURE: [&str; 5] = ["job/", "flow/", "workflow/", "schedule/", "store/rules/"];
/// Rules over several jobs: functions of `store/rules` and of the plan of a submission that no store may have again.
const RULES: [&str; 23] = [
    "act_of",
    "act_on",
    "all_dependencies",
    "ask_to_stop",
    "check_children",
    "died_of",
    "expire",
    "fan_ins",
    "fire",
    "fire_slot",
    "gain",
    "last_job",
    "needed_by",
    "new_record",
    "outlive",
    "plan_graph",
    "requeue",
    "requeue_one",
    "spawn_children",
    "tell",
    "tell_dependents",
    "tell_ends",
    "waits_for_any",
];
/// Where those rules are told.
const RULES_TOLD: [&str; 2] = ["windlass/src/store/rules/", "windlass/src/workflow/plan.rs"];
/// What a pure module must not even mention: time, randomness and the outside world are arguments.
const IMPURE_WORDS: [&str; 9] =
    ["tokio", "SystemTime", "Instant::now", "fastrand", "new_v4", "rusqlite", "tokio_postgres", "std::fs", "std::net"];

/// Most names that the crate root gives a second home: what most programs name, and no more.
const ROOT_NAMES_MAX: usize = 25;
/// Most lines of a source file before its tests.
const FILE_LINES_MAX: usize = 600;
/// Files that may be longer for now: path from the root, and up to how many lines.
const LONG_FILES: [(&str, usize); 0] = [];
/// Most lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Functions that may be longer: path from the root, and the name.
const LONG_FUNCTIONS: [(&str, &str); 0] = [];
const README_LINES_MAX: usize = 200;
const ARCHITECTURE_LINES_MAX: usize = 400;
const EXAMPLE_LINES_MAX: usize = 60;

#[test]
fn modules_use_only_what_stands_to_their_left() {
    let reexports = reexports(&source("windlass/src/lib.rs"));
    let mut breaches = Vec::new();
    for (path, text) in files_under("windlass/src", &["rs"]) {
        let module = module_of(&path);
        if module == "lib" || module == RIGHT_END {
            continue;
        }
        for (number, used) in modules_used(untested(&text), &reexports) {
            if !may_use(&module, &used) {
                breaches.push(format!("{path}:{number}: {module} uses {used}"));
            }
        }
    }
    report(
        &breaches,
        "the modules stand in the line job → flow → workflow → schedule → store → client → worker, and each uses only what \
         stands to its left; move the code to the module that may do this, or pass it in as an argument (a new module \
         needs its place in tests/tidy.rs)",
    );
}

#[test]
fn the_crate_root_is_a_choice() {
    let lib = source("windlass/src/lib.rs");
    let names = reexports(&lib);
    assert!(!code_lines(&lib).any(|(_, line)| line.contains("::*")), "name what the root exports, one by one");
    assert!(
        names.len() <= ROOT_NAMES_MAX,
        "the crate root exports {} names, at most {ROOT_NAMES_MAX}: {names:?}\n→ leave the name in its module, or take \
         one out that fewer programs need",
        names.len()
    );
}

#[test]
fn no_file_of_the_worker_is_in_a_cycle() {
    let files = files_under("windlass/src/worker", &["rs"]);
    let name = |path: &str| Path::new(path).file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let uses: BTreeMap<String, BTreeSet<String>> = files
        .iter()
        .filter(|(path, _)| !path.ends_with("/mod.rs"))
        .map(|(path, text)| (name(path), siblings_used(untested(text))))
        .collect();
    let unknown = uses.iter().flat_map(|(file, used)| used.iter().map(move |used| (file, used)));
    let mut breaches: Vec<String> = unknown
        .filter(|(_, used)| !uses.contains_key(*used))
        .map(|(file, used)| format!("worker/{file}.rs uses super::{used}: name the file it is in"))
        .collect();
    breaches.extend(uses.keys().filter(|file| reaches(&uses, file, file)).map(|file| format!("worker/{file}.rs")));
    report(
        &breaches,
        "the files of worker/ use each other in one direction, so that each can be read with those it uses: move what \
         two of them share into a file that both use",
    );
}

/// Whether the way of `use` from one file comes to another.
fn reaches(uses: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&str> = vec![from];
    while let Some(file) = next.pop() {
        for used in uses.get(file).into_iter().flatten() {
            if used == to {
                return true;
            }
            if seen.insert(used) {
                next.push(used);
            }
        }
    }
    false
}

/// The names that the text reaches through `super::`.
fn siblings_used(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in code_lines(text) {
        for (at, marker) in line.match_indices("super::") {
            let rest = &line[at + marker.len()..];
            if rest.starts_with('{') {
                found.extend(group(&[&[rest], &lines[number..]].concat().join("\n")));
            } else {
                found.insert(identifier(rest).to_owned());
            }
        }
    }
    found
}

#[test]
fn cycles_are_found_however_long() {
    let uses = |edges: &[(&str, &str)]| -> BTreeMap<String, BTreeSet<String>> {
        edges.iter().map(|(from, to)| ((*from).to_owned(), siblings_used(to))).collect()
    };
    let straight = uses(&[("a", "use super::b::B;\nuse super::{c, d::D};"), ("b", "use super::c;"), ("c", "")]);
    assert!(!straight.keys().any(|file| reaches(&straight, file, file)));
    let round = uses(&[("a", "use super::b::B;"), ("b", "// super::a\nsuper::c::f()"), ("c", "use super::a::A;")]);
    assert!(round.keys().all(|file| reaches(&round, file, file)));
}

#[test]
fn pure_modules_touch_nothing_outside() {
    let mut breaches = Vec::new();
    for (path, text) in files_under("windlass/src", &["rs"]) {
        let below = path.strip_prefix("windlass/src/").unwrap_or(&path);
        if !PURE.iter().any(|folder| below.starts_with(folder)) {
            continue;
        }
        for (number, line) in code_lines(untested(&text)) {
            for word in IMPURE_WORDS.into_iter().filter(|word| mentions(line, word)) {
                breaches.push(format!("{path}:{number}: {word}"));
            }
        }
    }
    report(
        &breaches,
        "job, flow, workflow, schedule and store/rules are pure: take the time, the random numbers or the data as an argument, and do the \
         rest from store on",
    );
}

#[test]
fn rules_over_several_jobs_are_told_once() {
    let mut told: BTreeMap<&str, Vec<String>> = RULES.into_iter().map(|rule| (rule, Vec::new())).collect();
    let mut breaches = Vec::new();
    for (path, text) in files_under("windlass/src", &["rs"]) {
        let home = RULES_TOLD.iter().any(|home| path.starts_with(home));
        let store = ["memory", "sqlite", "postgres"]
            .iter()
            .any(|name| path.starts_with(&format!("windlass/src/store/{name}/")));
        for function in functions(untested(&text)) {
            let Some(homes) = told.get_mut(function.name) else { continue };
            if home && !path.ends_with("tests.rs") {
                homes.push(format!("{path}:{}", function.line));
            } else if store {
                breaches.push(format!("{path}:{}: {} is a rule", function.line, function.name));
            }
        }
    }
    for (rule, homes) in told.into_iter().filter(|(_, homes)| homes.len() != 1) {
        breaches.push(format!("{rule} is told {} times: {}", homes.len(), homes.join(", ")));
    }
    report(
        &breaches,
        "what several jobs do to each other is decided in store/rules, once; a store loads what a rule asks for and writes \
         what it changed (or the function deserves another name, or RULES in tests/tidy.rs a change)",
    );
}

#[test]
fn files_are_short() {
    let mut breaches = Vec::new();
    for (path, text) in files_under("", &["rs"]) {
        let lines = untested(&text).lines().count();
        let long = LONG_FILES.iter().find(|(long, _)| *long == path);
        let max = long.map_or(FILE_LINES_MAX, |(_, max)| *max);
        if lines > max {
            breaches.push(format!("{path}: {lines} lines before its tests, at most {max}"));
        } else if long.is_some() && lines <= FILE_LINES_MAX {
            breaches.push(format!("{path}: {lines} lines; take it off LONG_FILES in tests/tidy.rs"));
        }
    }
    report(&breaches, "look for the seam in the file and split it there");
}

#[test]
fn functions_fit_on_a_screen() {
    let mut breaches = Vec::new();
    for (path, text) in files_under("", &["rs"]) {
        for function in functions(&text) {
            let excepted = LONG_FUNCTIONS.contains(&(path.as_str(), function.name));
            if function.lines > FUNCTION_LINES_MAX && !function.is_test && !excepted {
                let Function { name, line, lines, .. } = function;
                breaches.push(format!("{path}:{line}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX}"));
            }
        }
    }
    report(&breaches, "keep the branching in the function and move straight-line work into helpers");
}

#[test]
fn every_sql_file_is_used() {
    let mut included = BTreeSet::new();
    for (path, text) in files_under("", &["rs"]) {
        let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
        included.extend(included_files(&text).map(|file| normal(&folder.join(file))));
    }
    let statements: Vec<String> =
        files_under("", &["sql"]).into_keys().filter(|path| path.split('/').any(|folder| folder == "src")).collect();
    println!("{} SQL files", statements.len());
    let unused: Vec<String> = statements.into_iter().filter(|path| !included.contains(path)).collect();
    report(&unused, "delete the file, or include it with include_str!(\"its/path.sql\"), written out as one literal");
}

#[test]
fn statements_have_one_name_in_both_sql_stores() {
    let names = |store: &str| -> BTreeSet<String> {
        let folder = format!("windlass/src/store/{store}/sql/");
        let files = files_under(&folder, &["sql"]).into_keys();
        files.map(|path| path.trim_start_matches(&folder).trim_end_matches(".sql").to_owned()).collect()
    };
    let (postgres, sqlite) = (names("postgres"), names("sqlite"));
    println!("{} statements have one name in both", postgres.intersection(&sqlite).count());
    let mut breaches = Vec::new();
    for (store, own, other) in [("postgres", &postgres, &sqlite), ("sqlite", &sqlite, &postgres)] {
        let reasons =
            include_str!("statements.txt").lines().filter(|line| line.starts_with(&format!("{store}, because ")));
        let excepted: BTreeSet<String> = reasons
            .flat_map(|line| line.rsplit(": ").next().unwrap_or_default().split(' '))
            .map(str::to_owned)
            .collect();
        for name in own.difference(other).filter(|name| !excepted.contains(*name)) {
            breaches.push(format!("only {store} has {name}.sql"));
        }
        for name in excepted.iter().filter(|name| !own.contains(*name) || other.contains(*name)) {
            breaches.push(format!("{name} is listed for {store} alone, and is not"));
        }
    }
    report(&breaches, "give it the name that the other store has, or list it with its reason in tests/statements.txt");
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not hold what it looks for.
    let macros = [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("#[ig", "nore")];
    let remark = concat!("FIX", "ME");
    let mut breaches = Vec::new();
    for (path, text) in files_under("", &["rs", "sql", "sh", "toml", "ts", "tsx", "js", "css", "html"]) {
        // Comments show examples that are not meant to run; a remark is one wherever it stands.
        let rust = if path.ends_with(".rs") { text.as_str() } else { "" };
        for (number, line) in code_lines(rust) {
            for word in macros.into_iter().filter(|word| line.contains(word)) {
                breaches.push(format!("{path}:{number}: {word}"));
            }
        }
        for (number, _) in numbered(&text).filter(|(_, line)| line.contains(remark)) {
            breaches.push(format!("{path}:{number}: {remark}"));
        }
    }
    report(&breaches, "do it now, or leave the feature out; if behaviour is wrong, let a test assert it and say so");
}

#[test]
fn front_documents_are_short() {
    let mut breaches = Vec::new();
    for (path, max) in [("README.md", README_LINES_MAX), ("ARCHITECTURE.md", ARCHITECTURE_LINES_MAX)] {
        let lines = source(path).lines().count();
        if lines >= max {
            breaches.push(format!("{path}: {lines} lines, must be under {max}"));
        }
    }
    report(&breaches, "move the detail to a page under docs/ and link to it");
}

#[test]
fn examples_are_short() {
    let mut breaches = Vec::new();
    for (path, text) in files_under("", &["rs"]) {
        let lines = text.lines().count();
        if path.split('/').any(|folder| folder == "examples") && lines >= EXAMPLE_LINES_MAX {
            breaches.push(format!("{path}: {lines} lines, must be under {EXAMPLE_LINES_MAX}"));
        }
    }
    report(&breaches, "let the example show one thing, or make two of it");
}

/// Fails with all breaches and what to do about them.
#[track_caller]
fn report(breaches: &[String], advice: &str) {
    assert!(breaches.is_empty(), "{}\n→ {advice}", breaches.join("\n"));
}

// The tree.

fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package lies in the workspace").to_path_buf()
}

fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// The files below a folder of the workspace with one of these endings, by path from the root.
fn files_under(folder: &str, endings: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("cannot list {folder:?}: {error}"));
        for entry in entries {
            let path = entry.expect("the folder can be listed").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if path.is_dir() {
                // Built or downloaded, not written.
                if !name.starts_with('.') && !["target", "node_modules", "dist"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
                let key = normal(path.strip_prefix(root()).expect("only folders below the root are walked"));
                found.insert(key.clone(), source(&key));
            }
        }
    }
    found
}

/// A relative path with `/` and without `.` and `..`.
fn normal(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Normal(part) => parts.push(part.to_str().expect("the tree's paths are UTF-8")),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    parts.join("/")
}

// The text of a file.

/// What stands before the first `#[cfg(test)]`.
fn untested(text: &str) -> &str {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        if line.trim() == "#[cfg(test)]" {
            break;
        }
        end += line.len();
    }
    &text[..end]
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// The lines that are not comments.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    numbered(text).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Whether `word` stands in the line and is not part of a longer one.
fn mentions(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

// The line of modules.

/// `job` for `windlass/src/job/state.rs` and for `windlass/src/job.rs`.
fn module_of(path: &str) -> String {
    let path = path.strip_prefix("windlass/src/").expect("a file of the library");
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs").to_owned()
}

fn may_use(module: &str, used: &str) -> bool {
    let place = |name: &str| LINE.iter().position(|other| *other == name);
    let store = place("store");
    if module == used || BASE.contains(&used) {
        return true;
    }
    match (place(module), place(used)) {
        (Some(module), Some(used)) => used <= module,
        (Some(module), None) => EFFECTS.contains(&used) && Some(module) >= store,
        (None, Some(_)) => used == "job" && (BASE.contains(&module) || EFFECTS.contains(&module)),
        (None, None) => false,
    }
}

/// Names that `lib.rs` gives a second home, and the module they come from.
fn reexports(lib: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in lib.split("pub use ").skip(1) {
        let statement = statement.split(';').next().unwrap_or_default();
        if let Some((module, names)) = statement.split_once("::") {
            for name in names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty()) {
                found.insert(name.to_owned(), module.to_owned());
            }
        }
    }
    found
}

/// Every module that the text reaches through `crate::`, with the line.
fn modules_used(text: &str, reexports: &BTreeMap<String, String>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in code_lines(text) {
        for (at, marker) in line.match_indices("crate::") {
            let rest = &line[at + marker.len()..];
            let names = if rest.starts_with('{') {
                let following = [&[rest], &lines[number..]].concat().join("\n");
                group(&following)
            } else {
                vec![identifier(rest).to_owned()]
            };
            for name in names {
                found.push((number, reexports.get(&name).cloned().unwrap_or(name)));
            }
        }
    }
    found
}

/// The first names of the paths in `{a::b, c::{d, e}, f}`.
fn group(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut expects_name = false;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && (c == '{' || c == ',') {
            expects_name = true;
        } else if expects_name && (c.is_alphabetic() || c == '_') {
            names.push(identifier(&text[at..]).to_owned());
            expects_name = false;
        }
    }
    names
}

#[test]
fn the_line_of_modules_is_read_from_any_form_of_path() {
    let reexports = reexports("pub use clock::ManualClock;\npub use job::{Job, JobId};\n");
    let used = |text: &str| -> Vec<String> {
        modules_used(text, &reexports).into_iter().map(|(_, module)| module).collect::<Vec<_>>()
    };
    assert_eq!(used("use crate::store::Store;"), ["store"]);
    assert_eq!(used("use crate::{\n    error::{Error, Result},\n    worker,\n};"), ["error", "worker"]);
    assert_eq!(used("let clock: crate::clock::Clock = crate::JobId::new();"), ["clock", "job"]);
    assert_eq!(used("// See crate::worker."), [""; 0]);
}

#[test]
fn the_line_of_modules_has_one_direction() {
    for (module, used) in [("worker", "job"), ("store", "clock"), ("job", "time"), ("error", "job"), ("clock", "time")]
    {
        assert!(may_use(module, used), "{module} may use {used}");
    }
    for (module, used) in
        [("job", "workflow"), ("schedule", "clock"), ("store", "client"), ("error", "store"), ("worker", "testing")]
    {
        assert!(!may_use(module, used), "{module} may not use {used}");
    }
}

// Functions.

struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
    is_test: bool,
}

/// The functions that have a body of several lines, as rustfmt lays them out: the body ends with a brace under `fn`.
fn functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = indent(line);
        let Some(length) = lines[index..].iter().position(|line| ends_function(line, indent)) else { continue };
        let is_test = lines[..index]
            .iter()
            .rev()
            .take_while(|line| line.trim_start().starts_with("#["))
            .any(|line| line.contains("test]") || line.contains("::test("));
        found.push(Function { name, line: index + 1, lines: length + 1, is_test });
    }
    found
}

/// The name in a line that begins a function.
fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_qualifier = |word: &str| ["const", "async", "unsafe", "extern", "default"].contains(&word);
    let is_visibility = |word: &str| word == "pub" || (word.starts_with("pub(") && word.ends_with(')'));
    let begins = before.split_whitespace().all(|word| is_qualifier(word) || is_visibility(word));
    Some(identifier(rest)).filter(|name| begins && !name.is_empty())
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether a line ends the function that begins at this indent: its closing brace, or a signature without a body.
fn ends_function(line: &str, at: usize) -> bool {
    let line_end = line.trim_end();
    indent(line) == at && (line_end.ends_with('}') || line_end.ends_with(';'))
}

#[test]
fn functions_are_measured_from_fn_to_their_brace() {
    let text = "trait T {\n    fn declared(&self);\n    #[tokio::test(start_paused = true)]\n    pub(crate) async fn run(\n        \
                a: u8,\n    ) -> u8 {\n        if a == 0 {\n        }\n        1\n    }\n}\n// fn not_this() {\n";
    let measured: Vec<_> = functions(text).iter().map(|f| (f.name, f.line, f.lines, f.is_test)).collect();
    assert_eq!(measured, [("declared", 2, 1, false), ("run", 4, 7, true)]);
}

// SQL.

/// The paths in `include_str!("…")`.
fn included_files(text: &str) -> impl Iterator<Item = &str> {
    text.split("include_str!(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

#[test]
fn included_files_are_found_from_the_file_that_includes_them() {
    let files: Vec<_> = included_files("include_str!(\"sql/claim.sql\"), include_str!(\n    \"../a.md\"\n)").collect();
    assert_eq!(files, ["sql/claim.sql", "../a.md"]);
    assert_eq!(normal(&Path::new("windlass/src/store/sqlite").join("../sql/x.sql")), "windlass/src/store/sql/x.sql");
}
