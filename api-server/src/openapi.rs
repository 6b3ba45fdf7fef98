//! The API description, built from the table of operations and the shapes that requests are checked
//! against, so it cannot promise what the code does not do.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::contract;
use crate::operations::{OPERATIONS, Operation};
use crate::schema::{Object, Pattern, Shape};

/// The description; the same bytes for the whole life of the process.
pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(build)
}

fn build() -> Value {
    let mut paths = Map::new();
    let mut objects = Vec::new();
    Shape::Object(&contract::ERROR).objects(&mut objects);
    for operation in OPERATIONS {
        for object in [operation.body, operation.answer.1].into_iter().flatten() {
            Shape::Object(object).objects(&mut objects);
        }
        let methods = paths.entry(operation.path).or_insert_with(|| json!({}));
        methods[operation.method.to_ascii_lowercase()] = describe(operation);
    }
    objects.sort_by_key(|object| object.name);
    let schemas: Map<String, Value> =
        objects.iter().map(|object| (object.name.to_owned(), object.document())).collect();
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "PowerContext API",
            "version": "1.1.0",
            "description": "The part of the PowerContext contract that this server has.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "headers": {"RequestId": {"description": "Names one request.", "schema": {"type": "string"}}},
        },
    })
}

fn describe(operation: &Operation) -> Value {
    let mut responses = Map::new();
    let (status, answer) = operation.answer;
    responses.insert(status.to_string(), response("Success", answer));
    // Readiness answers 503 in its own shape; everything else may fail with the common error.
    let common: &[u16] = if operation.tag == "health" { &[] } else { &[500, 503] };
    // Any body may be unreadable or come too slowly.
    let of_bodies: &[u16] = if operation.body.is_some() { &[400, 408] } else { &[] };
    for status in operation.errors.iter().chain(of_bodies).chain(common) {
        responses.insert(status.to_string(), response(words(*status), Some(&contract::ERROR)));
    }
    if operation.id == "get_readiness" {
        responses.insert("503".to_owned(), response("Not ready", answer));
    }
    let mut description = json!({
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": operation.id,
        "responses": responses,
    });
    let parameters: Vec<Value> = path_parameters(operation.path).chain(query_parameters(operation)).collect();
    if !parameters.is_empty() {
        description["parameters"] = json!(parameters);
    }
    if let Some(body) = operation.body {
        description["requestBody"] = json!({"required": true, "content": content(Some(body))});
    }
    description
}

fn content(object: Option<&'static Object>) -> Value {
    let schema = object.map_or_else(|| json!({"type": "object"}), |object| Shape::Object(object).document());
    json!({"application/json": {"schema": schema}})
}

fn response(words: &str, object: Option<&'static Object>) -> Value {
    json!({
        "description": words,
        "headers": {"X-PowerContext-Request-ID": {"$ref": "#/components/headers/RequestId"}},
        "content": content(object),
    })
}

const fn words(status: u16) -> &'static str {
    match status {
        400 => "The query or the cursor is not valid, or the body cannot be read",
        404 => "Not found",
        408 => "The body did not arrive in time",
        409 => "Conflicts with the current state",
        413 => "The body is too large",
        422 => "The request does not follow the contract",
        503 => "Not available at the moment",
        _ => "The server failed",
    }
}

fn path_parameters(path: &'static str) -> impl Iterator<Item = Value> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).map(|name| {
        let shape = match name {
            "source_type" => Shape::Word(&["content"]),
            "source_id" => Shape::Text(1, Some(256), Pattern::Graphic),
            _ => Shape::Text(1, Some(256), Pattern::NotBlank),
        };
        json!({"name": name, "in": "path", "required": true, "schema": shape.document()})
    })
}

fn query_parameters(operation: &Operation) -> impl Iterator<Item = Value> {
    operation.query.iter().map(|parameter| {
        let mut schema = parameter.shape.document();
        if let Some(default) = parameter.default {
            schema["default"] = default.document();
        }
        json!({"name": parameter.name, "in": "query", "required": false, "schema": schema})
    })
}
