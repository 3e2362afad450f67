//! The description of the API is printed from its routes and must be as committed.
//!
//! To write it anew: `WINDLASS_WRITE_DOCS=1 cargo test -p windlass-server --test http documents`.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Value, json};
use windlass_server::api::{self, roles};

use crate::support::Server;

fn document() -> Value {
    serde_json::from_str(api::document()).expect("JSON")
}

#[test]
fn the_description_is_as_committed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let text = api::document();
    if std::env::var_os("WINDLASS_WRITE_DOCS").is_some() {
        std::fs::write(&path, text).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(text.lines()).find(|(is, should)| is != should);
    assert!(
        committed == text,
        "docs/openapi.json is not what the routes say; print it with `WINDLASS_WRITE_DOCS=1 cargo test -p \
         windlass-server --test http documents`. First difference (is, should be): {differs:#?}"
    );
}

#[tokio::test]
async fn the_server_describes_itself() {
    let answer = Server::new().get("/v1/openapi.json").await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.json(), document());
    assert_eq!(answer.json()["openapi"], json!("3.1.0"));
}

#[test]
fn every_operation_has_an_id_of_its_own_a_summary_and_problems() {
    let document = document();
    let mut ids = HashSet::new();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            operations += 1;
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id.to_owned()), "{id} is used twice");
            assert!(operation["summary"].is_string(), "{method} {path}");
            for code in ["401", "403", "500", "503"] {
                assert!(operation["responses"].get(code).is_some(), "{method} {path} does not tell of {code}");
            }
            let role = operation["security"][1]["token"][0].as_str().map(str::parse::<roles::Role>);
            let Some(Ok(role)) = role else { panic!("{method} {path} is registered without a role") };
            let method = method.to_uppercase().parse().expect("a method");
            // A real path has something in place of each name in braces.
            let path = path.replace(['{', '}'], "x");
            assert_eq!(roles::role_for(&method, &path), role, "{method} {path}");
        }
    }
    assert!(operations > 45, "{operations}");
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk(value: &Value, document: &Value) {
        if let Some(target) = value.get("$ref").and_then(Value::as_str) {
            let pointer = target.strip_prefix('#').expect("a local reference");
            assert!(document.pointer(pointer).is_some(), "{target} is nowhere");
        }
        match value {
            Value::Object(members) => members.values().for_each(|member| walk(member, document)),
            Value::Array(items) => items.iter().for_each(|item| walk(item, document)),
            _ => {}
        }
    }
    let document = document();
    walk(&document, &document);
}
