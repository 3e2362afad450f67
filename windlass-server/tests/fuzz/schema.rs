//! Values as the description of the API tells of them.

use serde_json::{Map, Value, json};

use crate::draw::Draw;

/// Names that mean something in the store under test, newest last.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) jobs: Vec<String>,
    pub(crate) workflows: Vec<String>,
    pub(crate) operations: Vec<String>,
    /// Each with its job.
    pub(crate) leases: Vec<(String, String)>,
    pub(crate) cursors: Vec<String>,
}

impl Known {
    /// Remembers what an answer names.
    pub(crate) fn learn(&mut self, answer: &Value) {
        match answer {
            Value::Object(members) => {
                let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
                match (text("id"), answer["lease"]["token"].as_str()) {
                    (Some(id), Some(token)) => keep(&mut self.leases, (id, token.to_owned())),
                    (Some(id), None) if members.contains_key("dry_run") => keep(&mut self.operations, id),
                    (Some(id), None) => keep(&mut self.jobs, id),
                    _ => {}
                }
                text("workflow_id").into_iter().for_each(|id| keep(&mut self.workflows, id));
                text("next_cursor").into_iter().for_each(|cursor| keep(&mut self.cursors, cursor));
                members.values().for_each(|member| self.learn(member));
            }
            Value::Array(items) => items.iter().take(20).for_each(|item| self.learn(item)),
            _ => {}
        }
    }

    pub(crate) fn id(&self, draw: &mut Draw) -> String {
        one_of(&self.jobs, draw)
    }

    /// A job that was claimed, and the token of its lease.
    pub(crate) fn lease(&self, draw: &mut Draw) -> (String, String) {
        match self.leases.is_empty() {
            true => (self.id(draw), draw.text()),
            false => self.leases[draw.below(self.leases.len())].clone(),
        }
    }

    pub(crate) fn cursor(&self, draw: &mut Draw) -> String {
        if self.cursors.is_empty() || draw.once_in(2) {
            return draw.text();
        }
        let mut cursor = self.cursors[draw.below(self.cursors.len())].clone().into_bytes();
        if draw.once_in(2) {
            draw.spoil(&mut cursor);
        }
        String::from_utf8_lossy(&cursor).into_owned()
    }
}

fn keep<T>(list: &mut Vec<T>, one: T) {
    const KEPT: usize = 20;
    if list.len() >= KEPT {
        list.remove(0);
    }
    list.push(one);
}

/// One of those that are known, or anything.
pub(crate) fn one_of(known: &[String], draw: &mut Draw) -> String {
    if known.is_empty() || draw.once_in(10) {
        return draw.text();
    }
    known[draw.below(known.len())].clone()
}

/// A body that makes sense, where a schema alone seldom hits on one.
pub(crate) fn sense(path: &str, known: &Known, draw: &mut Draw) -> Option<Value> {
    let queue = draw.pick(&["default", "mail", "a"]);
    Some(match path {
        "/v1/jobs" => json!({ "type": "t", "queue": queue, "payload": draw.json(2) }),
        "/v1/schedules" | "/v1/schedules/{name}" => {
            let (member, value) = match draw.below(3) {
                0 => ("cron", draw.pick(&["*/5 * * * *", "0 0 29 2 *", "30 2 * * *"])),
                1 => ("every", "1h"),
                _ => ("delay", "10s"),
            };
            json!({ "name": draw.pick(&["a", "b", "s"]), member: value, "job": { "type": "t" } })
        }
        "/v1/claims" => json!({ "queues": [queue], "max": 1 + draw.below(3), "worker": "w" }),
        "/v1/leases/settle" => {
            let (id, token) = known.lease(draw);
            let mut told = json!({ "id": id, "token": token });
            match draw.below(4) {
                0 | 1 => (told["outcome"], told["result"]) = (json!("completed"), draw.json(2)),
                2 => told["outcome"] = json!("released"),
                _ => {
                    told["outcome"] = json!("failed");
                    told["failure"] = json!({ "category": "permanent", "code": "c", "message": draw.text() });
                }
            }
            json!({ "settlements": [told] })
        }
        "/v1/leases/extend" | "/v1/leases/saves" | "/v1/leases/save" => {
            let (id, token) = known.lease(draw);
            let lease = json!({ "id": id, "token": token });
            match path.rsplit('/').next() {
                Some("extend") => json!({ "leases": [lease] }),
                Some("saves") => json!({ "saves": [lease] }),
                _ => json!({ "id": lease["id"], "token": lease["token"], "log": [draw.text()] }),
            }
        }
        "/v1/operations" => {
            json!({ "filter": { "queue": queue }, "action": draw.pick(&["cancel", "requeue", "delete"]) })
        }
        "/v1/operations/step" => json!({ "operation": { "filter": {}, "action": "dead_letter" }, "limit": 1 }),
        _ => return None,
    })
}

/// A value of a schema, named in the document, for a member of this name.
pub(crate) fn value(
    document: &Value,
    schema: &Value,
    name: &str,
    known: &Known,
    draw: &mut Draw,
    depth: usize,
) -> Value {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let schema = document.pointer(&target[1..]).expect("a local reference");
        return value(document, schema, name, known, draw, depth);
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let plain = |choice: &&Value| choice["type"] != "object" && choice.get("$ref").is_none();
        // Deep down the plain choice ends it.
        let choice = match depth {
            0 => choices.iter().find(plain).unwrap_or(&choices[0]),
            _ => &choices[draw.below(choices.len())],
        };
        return value(document, choice, name, known, draw, depth.saturating_sub(1));
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return choices[draw.below(choices.len())].clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[draw.below(kinds.len())].as_str(),
        kind => kind.as_str(),
    };
    match kind {
        Some("object") => object(document, schema, known, draw, depth),
        Some("array") => {
            let count = if depth == 0 { 0 } else { 1 + draw.below(2) };
            (0..count).map(|_| value(document, &schema["items"], name, known, draw, depth - 1)).collect()
        }
        Some("string") => json!(text(schema, name, known, draw)),
        Some("boolean") => json!(draw.once_in(2)),
        Some("integer") => json!(schema["minimum"].as_u64().unwrap_or(0) + draw.below(3) as u64),
        Some("number") => json!(draw.below(100) as f64 / 100.0),
        Some("null") => Value::Null,
        _ => draw.json(2),
    }
}

fn object(document: &Value, schema: &Value, known: &Known, draw: &mut Draw, depth: usize) -> Value {
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let mut members = Map::new();
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        // Few at a time: most pairs of options exclude each other.
        if required.contains(&json!(name)) || (depth > 0 && draw.once_in(6)) {
            members.insert(name.clone(), value(document, member, name, known, draw, depth.saturating_sub(1)));
        }
    }
    if let Some(member) = schema.get("additionalProperties").filter(|member| member.is_object() && depth > 0) {
        members.insert("k".to_owned(), value(document, member, "k", known, draw, depth - 1));
    }
    Value::Object(members)
}

fn text(schema: &Value, name: &str, known: &Known, draw: &mut Draw) -> String {
    if draw.once_in(12) {
        return draw.text();
    }
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    match (schema["format"].as_str(), name) {
        (Some("uuid"), _) | (_, "id" | "token" | "ids") => known.id(draw),
        (Some("date-time"), _) => draw.pick(&["2026-11-01T12:00:00Z", "1970-01-01T00:00:00Z"]).to_owned(),
        (_, "cursor") => known.cursor(draw),
        (_, "cron") => draw.pick(&["*/5 * * * *", "0 0 29 2 *", "@daily", "0 0 L * *"]).to_owned(),
        (_, "zone" | "time_zone" | "timezone") => draw.pick(&["UTC", "Europe/Berlin", "America/New_York"]).to_owned(),
        (_, "queue" | "queues") => draw.pick(&["default", "mail", "a"]).to_owned(),
        (_, "type" | "types") => draw.pick(&["t", "email.send"]).to_owned(),
        _ if pattern.contains("ms|us|ns") => draw.pick(&["0s", "1ms", "10s", "1m30s", "1h"]).to_owned(),
        _ => draw.pick(&["a", "b", "s", "aGVsbG8=", "https://example.com/hook"]).to_owned(),
    }
}
