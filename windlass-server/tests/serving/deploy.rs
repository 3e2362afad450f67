//! The files under `deploy/`, held against the code.

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_server::serve::config::{Given, Settings};
use windlass_server::serve::metrics;

use crate::support::Place;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

/// Every word in a text that looks like a metric of ours.
fn metric_names(text: &str) -> Vec<&str> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !part_of_name(c)).filter(|word| word.starts_with("windlass_")).collect()
}

#[test]
fn every_metric_in_rules_and_dashboard_exists() {
    for name in ["alerts.yaml", "dashboard.json"] {
        let text = text(name);
        let used = metric_names(&text);
        assert!(used.len() > 5, "{name} names {} metrics", used.len());
        for used in used {
            let plain = used.strip_suffix("_bucket").unwrap_or(used);
            assert!(metrics::all().any(|metric| metric.name == plain), "{name}: there is no metric {used}");
        }
    }
}

#[test]
fn every_label_in_rules_and_dashboard_exists() {
    for name in ["alerts.yaml", "dashboard.json"] {
        let text = text(name);
        for (at, _) in text.match_indices("by (") {
            let inside = text[at + 4..].split(')').next().expect("a list of labels");
            for label in inside.split(',').map(str::trim) {
                let known = label == "le" || metrics::all().any(|metric| metric.labels.contains(&label));
                assert!(known, "{name}: no metric has the label {label}");
            }
        }
    }
}

#[test]
fn the_dashboard_is_json_with_panels_that_ask_something() {
    let dashboard: serde_json::Value = serde_json::from_str(&text("dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 10);
    for panel in panels {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(targets.iter().all(|target| target["expr"].as_str().is_some_and(|expr| !expr.is_empty())), "{panel}");
    }
}

#[test]
fn the_image_knows_whether_its_server_lives() {
    let text = text("Containerfile");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("CMD [\"bash\"")).expect("a health check");
    let command: Vec<String> = serde_json::from_str(&format!("[\"bash\"{line}")).expect("a list of words");
    let place = Place::new();
    let config = folder().join("windlass.toml");
    let mut server = place.start(&["run", "--listen", "0", "--config", config.to_str().expect("a plain path")]);
    let listen = server.started()["listen"].as_str().expect("an address").to_owned();
    let port = listen.rsplit(':').next().expect("a port").to_owned();
    let asks = |port: &str| {
        let words = command[1..].iter().map(|word| word.replace("/7654", &format!("/{port}")));
        Command::new(&command[0]).args(words).output().expect("bash runs").status.success()
    };
    assert!(asks(&port), "{}", server.err());
    drop(server);
    assert!(!asks(&port), "nobody answers any more");
}

#[track_caller]
fn accepted(toml: &str) {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("windlass.toml");
    std::fs::write(&path, toml).expect("written");
    let listen = Some("0.0.0.0:7654".to_owned());
    let settings = Settings::new(Given { file: Some(path), listen, ..Given::default() });
    settings.unwrap_or_else(|error| panic!("{error:#}\n{toml}"));
}

#[test]
fn the_configurations_are_accepted() {
    accepted(&text("windlass.toml"));
    let kubernetes = text("kubernetes.yaml");
    let (_, rest) = kubernetes.split_once("windlass.toml: |\n").expect("a configuration");
    let inside: Vec<&str> =
        rest.lines().take_while(|line| line.is_empty() || line.starts_with("    ")).map(str::trim_start).collect();
    assert!(inside.iter().any(|line| line.starts_with("sha256")), "the whole of it was found");
    accepted(&inside.join("\n"));
}

/// The command lines in the files are ones that the binary takes.
#[test]
fn the_command_lines_are_known() {
    let help = Command::new(env!("CARGO_BIN_EXE_windlass")).args(["run", "--help"]).output().expect("it runs");
    let help = String::from_utf8(help.stdout).expect("text");
    for name in ["windlass.service", "Containerfile", "kubernetes.yaml"] {
        let text = text(name);
        let line = text.lines().find(|line| line.contains("run") && line.contains("--config")).expect("a command line");
        let words = line.split(['"', ' ', ',', '[', ']']).filter(|word| word.starts_with("--"));
        let words: Vec<_> = words.collect();
        assert!(words.len() >= 2, "{name}");
        for word in words {
            assert!(help.contains(word), "{name}: there is no {word}");
        }
    }
}

/// Where there is a YAML parser at hand, the files are YAML; where there is a systemd, the unit is one.
#[test]
fn the_files_are_what_they_seem() {
    let has = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|out| out.status.success())
    };
    if has("python3", &["-c", "import yaml"]) {
        for name in ["alerts.yaml", "compose.yaml", "kubernetes.yaml"] {
            let program =
                "import sys, yaml; assert all(isinstance(d, dict) for d in yaml.safe_load_all(open(sys.argv[1])))";
            let path = folder().join(name);
            assert!(has("python3", &["-c", program, path.to_str().expect("a plain path")]), "{name}");
        }
    } else {
        println!("no YAML parser: not looked at");
    }
    for name in ["alerts.yaml", "compose.yaml", "kubernetes.yaml"] {
        let text = text(name);
        assert!(!text.contains('\t'), "{name}: YAML is not indented with tabs");
        let odd = text.lines().filter(|line| !line.starts_with('#') && (line.len() - line.trim_start().len()) % 2 == 1);
        assert_eq!(odd.count(), 0, "{name}: indented by two");
    }
    if has("systemd-analyze", &["--version"]) {
        let unit = folder().join("windlass.service");
        let checked = Command::new("systemd-analyze").args(["verify", unit.to_str().expect("a plain path")]).output();
        let said = String::from_utf8_lossy(&checked.expect("it runs").stderr).into_owned();
        // The program need not be installed where the tests run.
        let bad: Vec<_> = said
            .lines()
            .filter(|line| line.contains("windlass.service") && !line.contains("is not executable"))
            .collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}

/// Where Prometheus' own tool is at hand (WINDLASS_PROMTOOL, or in the path), it reads every rule and every query.
#[test]
fn every_rule_and_every_query_can_be_read() {
    let promtool = std::env::var("WINDLASS_PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    if Command::new(&promtool).arg("--version").output().is_err() {
        println!("no promtool: not looked at");
        return;
    }
    let dashboard: serde_json::Value = serde_json::from_str(&text("dashboard.json")).expect("JSON");
    let targets = dashboard["panels"].as_array().expect("panels").iter().flat_map(|panel| panel["targets"].as_array());
    let queries = targets.flatten().map(|target| target["expr"].as_str().expect("a query").to_owned());
    // A file of rules is what the tool reads; Grafana puts in the interval.
    let rule = |(at, query): (usize, String)| serde_json::json!({ "record": format!("q:{at}"), "expr": query.replace("$__rate_interval", "5m") });
    let rules: Vec<_> = queries.enumerate().map(rule).collect();
    assert!(rules.len() >= 10);
    let folder = tempfile::TempDir::new().expect("a folder");
    let asked = folder.path().join("queries.yaml");
    // JSON is YAML.
    let groups = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(&asked, groups.to_string()).expect("written");
    for path in [self::folder().join("alerts.yaml"), asked] {
        let checked = Command::new(&promtool).args(["check", "rules"]).arg(&path).output().expect("it runs");
        assert!(checked.status.success(), "{}: {checked:?}", path.display());
    }
}

/// Ports and probes are ones that the server has.
#[test]
fn ports_and_probes_are_the_servers() {
    let port = windlass_server::serve::config::PORT.to_string();
    for name in ["kubernetes.yaml", "compose.yaml", "Containerfile"] {
        let text = text(name);
        let lines = text.lines().filter(|line| {
            let line = line.trim_start_matches([' ', '-']);
            ["port: ", "containerPort: ", "prometheus.io/port: ", "EXPOSE ", "\"127.0.0.1:"]
                .iter()
                .any(|key| line.starts_with(key))
        });
        let lines: Vec<_> = lines.filter(|line| !line.ends_with("port: http")).collect();
        assert!(!lines.is_empty(), "{name}");
        assert!(lines.iter().all(|line| line.contains(&port)), "{name}: {lines:?}");
    }
    let kubernetes = text("kubernetes.yaml");
    let probes: Vec<_> = kubernetes.lines().filter_map(|line| line.trim().strip_prefix("path: ")).collect();
    assert_eq!(probes, ["/healthz", "/readyz"]);
}

/// What is published holds the licences and a README of its own, and nothing that only our tests need.
#[test]
fn the_packages_hold_what_they_need() {
    for (package, files) in
        [("windlass", &["src/lib.rs", "examples/first_job.rs"][..]), ("windlass-server", &["src/main.rs"])]
    {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["package", "--list", "--allow-dirty", "--offline", "-p", package]).current_dir(folder().join(".."));
        let listed = cargo.output().expect("cargo runs");
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let listed = String::from_utf8(listed.stdout).expect("text");
        let holds = |wanted: &str| listed.lines().any(|line| line == wanted);
        for wanted in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "Cargo.toml"].iter().chain(files) {
            assert!(holds(wanted), "{package} lacks {wanted}");
        }
        assert!(!listed.lines().any(|line| line.starts_with("tests/")), "{package} ships our tests");
    }
}

/// What the registry shows of a package, and how it is documented there.
#[test]
fn the_packages_say_what_they_are() {
    for package in ["windlass", "windlass-server"] {
        let manifest =
            std::fs::read_to_string(folder().join("..").join(package).join("Cargo.toml")).expect("a manifest");
        for key in ["description = ", "keywords = ", "categories = ", "documentation = ", "readme = \"README.md\""] {
            assert!(manifest.contains(key), "{package}: {key}");
        }
    }
    let library = std::fs::read_to_string(folder().join("../windlass/Cargo.toml")).expect("a manifest");
    assert!(library.contains("[package.metadata.docs.rs]\nall-features = true"));
}

/// A registry that asks for a token, and knows two images.
fn registry(digest: &'static str) -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let realm = format!("{url}/token");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut head = String::new();
            while stream.read_line(&mut head).is_ok_and(|read| read > 2) {}
            let answer = match () {
                () if head.starts_with("GET /token?") => "200 OK\r\n\r\n{\"token\": \"let\"}".to_owned(),
                () if !head.contains("Bearer let") => {
                    format!("401 Unauthorized\r\nwww-authenticate: Bearer realm=\"{realm}\",service=\"r\"\r\n\r\n")
                }
                () => format!("200 OK\r\ndocker-content-digest: {digest}\r\n\r\n"),
            };
            let answer = format!("HTTP/1.0 {answer}");
            stream.get_mut().write_all(answer.as_bytes()).expect("answered");
        }
    });
    url
}

/// Images are pinned to what a registry says, and to nothing else.
#[test]
fn images_are_pinned_to_what_a_registry_says() {
    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let place = tempfile::tempdir().expect("a folder");
    for (name, from) in [("scripts/pin-images", folder().join("../scripts/pin-images"))]
        .into_iter()
        .chain(["Containerfile", "compose.yaml"].map(|name| (name, folder().join(name))))
    {
        let to = place.path().join(if name.contains('/') { name.to_owned() } else { format!("deploy/{name}") });
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        std::fs::copy(from, to).expect("copied");
    }
    let texts = || ["Containerfile", "compose.yaml"].map(|name| place.path().join("deploy").join(name)).map(read);
    let run = |registry: &str, arguments: &[&str]| {
        let mut command = Command::new("python3");
        let command = command.arg(place.path().join("scripts/pin-images")).args(arguments);
        command.env("WINDLASS_REGISTRY", registry).output().expect("python3 runs").status.code()
    };
    let before = texts();
    assert_eq!(run("http://127.0.0.1:9", &[]), Some(3), "nobody answers");
    assert_eq!(run(&registry("sha256:none"), &[]), Some(3), "that is no digest");
    let url = registry(DIGEST);
    assert_eq!(run(&url, &["--check"]), Some(1), "a release ends here");
    assert_eq!(texts(), before, "nothing was written so far");
    assert_eq!(run(&url, &[]), Some(0));
    let [containerfile, compose] = texts();
    for (text, images) in [(&containerfile, 2), (&compose, 1)] {
        assert_eq!(text.matches(DIGEST).count(), images, "{text}");
        let named = text.lines().filter(|line| line.contains("docker.io/"));
        assert!(named.clone().all(|line| line.contains(DIGEST)), "{text}");
    }
    assert_eq!(run(&url, &["--check"]), Some(0));
    let moved = registry("sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_eq!(run(&moved, &["--check"]), Some(1), "the tag names another image now");
    let release = read(folder().join("../scripts/release-check"));
    assert!(release.contains("step \"Images\" images") && release.contains("scripts/pin-images --check"));
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
