//! The description of the API, OpenAPI 3.1: what the routes say of themselves, and what holds for all of them.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use utoipa::OpenApi as _;

use super::roles::SCHEME;
use super::routes;
use crate::wire::Problem;

/// What the routes do not say of themselves.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Windlass",
        description = "Durable background jobs over HTTP: submit, claim, settle, look, operate. What Windlass promises \
            is in docs/semantics.md; this is how to ask for it.",
        license(name = "MIT OR Apache-2.0")
    ),
    components(schemas(Problem)),
    tags(
        (name = "jobs", description = "Submit jobs, look at them, act on one."),
        (name = "leases", description = "A lease holder's calls: claim, extend, save, settle."),
        (name = "operators", description = "Acts on many jobs, and the record of all acts."),
        (name = "queues", description = "Named lanes of jobs."),
        (name = "workflows", description = "Graphs of jobs."),
        (name = "schedules", description = "Recurring work."),
        (name = "workers", description = "Who claims."),
        (name = "events", description = "What happens, as it happens."),
        (name = "store", description = "The store as a whole."),
    )
)]
struct Frame;

/// The document as JSON text, as `/v1/openapi.json` answers it and `docs/openapi.json` repeats it.
pub fn document() -> &'static str {
    static DOCUMENT: LazyLock<String> = LazyLock::new(print);
    &DOCUMENT
}

fn print() -> String {
    let (_, described) = routes().split_for_parts();
    let mut frame = Frame::openapi();
    frame.merge(described);
    let mut document = serde_json::to_value(&frame).expect("a description is plain JSON");
    document["openapi"] = json!("3.1.0");
    document["security"] = json!([{}, { SCHEME: [] }]);
    let components = &mut document["components"];
    require_submitted(components["schemas"].as_object_mut().expect("there are shapes"));
    components["securitySchemes"] = json!({ SCHEME: { "type": "http", "scheme": "bearer" } });
    components["responses"] = json!({ "Problem": {
        "description": "What went wrong, and with what.",
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    }});
    let paths = document["paths"].as_object_mut().expect("there are routes");
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete(path, method, operation);
        }
    }
    let mut text = serde_json::to_string_pretty(&document).expect("a description is plain JSON");
    text.push('\n');
    text
}

/// What every stored job says of what was submitted, where a new one may leave it out.
const ALWAYS_SUBMITTED: [&str; 7] =
    ["queue", "priority", "max_attempts", "retry", "execution_timeout", "visibility_timeout", "lifetime"];

/// Says of a stored job which of the members that a new one may leave out are always there.
fn require_submitted(schemas: &mut Map<String, Value>) {
    let own = schemas["Job"]["required"].as_array().cloned().unwrap_or_default();
    let submitted = ALWAYS_SUBMITTED.iter().map(|name| json!(name));
    schemas["Job"]["required"] = submitted.chain(own).collect();
}

/// Adds what holds for all operations: an id that no other has, and the problems that it may answer with.
fn complete(path: &str, method: &str, operation: &mut Value) {
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    operation["operationId"] = json!(format!("{}_{}", name(&operation["tags"][0]), name(&operation["operationId"])));
    let has_body = operation.get("requestBody").is_some();
    let names_one = path.contains('{');
    let submits = method == "post"
        && (["/v1/jobs", "/v1/jobs/batch", "/v1/workflows"].contains(&path) || path.ends_with("/clone"));
    let conflicts =
        method != "get" && (names_one || path == "/v1/schedules" || path == "/v1/leases/save" || path == "/v1/owner");
    let rules: [(bool, &[u16]); 7] = [
        // 400 everywhere: a parameter that a route does not know is refused also where it knows none.
        (true, &[400, 401, 403, 429, 500, 503]),
        (names_one, &[404]),
        (has_body, &[413, 415]),
        (submits || path == "/v1/leases/saves" || path == "/v1/leases/save", &[413]),
        (submits, &[422, 504]),
        (conflicts, &[409]),
        (method == "put", &[412]),
    ];
    let responses = operation["responses"].as_object_mut().expect("every route has an answer");
    for (_, codes) in rules.iter().filter(|(holds, _)| *holds) {
        for code in *codes {
            add(responses, *code);
        }
    }
}

fn add(responses: &mut Map<String, Value>, code: u16) {
    let problem = || json!({ "$ref": "#/components/responses/Problem" });
    responses.entry(code.to_string()).or_insert_with(problem);
}
