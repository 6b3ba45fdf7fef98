//! What a schema must be so that every provider enforces it: the one subset that OpenAI's strict mode
//! and Anthropic's JSON output both take.
//!
//! Objects close themselves and require every property, nothing is limited by number or pattern, and
//! nothing refers to itself. Limits and meaning are checked by the worker after the answer.

use serde_json::{Map, Value};

/// Levels of nesting at most.
const MAX_DEPTH: usize = 10;
/// Unions in one schema at most.
const MAX_UNIONS: usize = 16;
const KEYWORDS: [&str; 8] =
    ["type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "description"];
const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "null", "object", "array"];

/// Where and why a schema cannot be enforced strictly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema at `{place}` {rule}")]
pub struct NotStrict {
    /// The path inside the schema; empty for its root.
    pub place: String,
    /// The rule that is broken.
    pub rule: &'static str,
}

/// Checks that every provider can enforce this schema.
///
/// # Errors
/// [`NotStrict`] with the first rule that is broken.
pub fn require_strict(schema: &Value) -> Result<(), NotStrict> {
    let mut unions = 0;
    check(schema, &mut String::new(), 0, &mut unions)?;
    match schema.get("type").and_then(Value::as_str) {
        Some("object") if unions <= MAX_UNIONS => Ok(()),
        Some("object") => Err(broken("", "has too many unions")),
        _ => Err(broken("", "must be an object at its root")),
    }
}

fn broken(place: &str, rule: &'static str) -> NotStrict {
    NotStrict { place: place.to_owned(), rule }
}

fn check(schema: &Value, place: &mut String, depth: usize, unions: &mut usize) -> Result<(), NotStrict> {
    let Some(fields) = schema.as_object() else { return Err(broken(place, "must be an object")) };
    if depth > MAX_DEPTH {
        return Err(broken(place, "is nested too deeply"));
    }
    if fields.keys().any(|key| !KEYWORDS.contains(&key.as_str())) {
        return Err(broken(place, "has a keyword that not every provider enforces"));
    }
    if let Some(choices) = fields.get("anyOf") {
        let choices = choices.as_array().filter(|choices| !choices.is_empty() && fields.len() == 1);
        let Some(choices) = choices else { return Err(broken(place, "must have its union alone")) };
        *unions += 1;
        for (index, choice) in choices.iter().enumerate() {
            within(place, &format!("anyOf/{index}"), |place| check(choice, place, depth + 1, unions))?;
        }
        return Ok(());
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("object") => {
            is_closed(fields, place)?;
            for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                within(place, name, |place| check(property, place, depth + 1, unions))?;
            }
            Ok(())
        }
        Some("array") => match fields.get("items") {
            Some(items) => within(place, "items", |place| check(items, place, depth + 1, unions)),
            None => Err(broken(place, "must say what its items are")),
        },
        Some(word) if TYPES.contains(&word) => Ok(()),
        _ => Err(broken(place, "must have one known type")),
    }
}

fn is_closed(fields: &Map<String, Value>, place: &str) -> Result<(), NotStrict> {
    if fields.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Err(broken(place, "must allow no additional properties"));
    }
    let mut properties: Vec<&str> = fields
        .get("properties")
        .and_then(Value::as_object)
        .map(|properties| properties.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let required = fields.get("required").and_then(Value::as_array);
    let mut required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    properties.sort_unstable();
    required.sort_unstable();
    if properties == required { Ok(()) } else { Err(broken(place, "must require every property")) }
}

fn within<T>(place: &mut String, step: &str, inside: impl FnOnce(&mut String) -> T) -> T {
    let before = place.len();
    place.push('/');
    place.push_str(step);
    let result = inside(place);
    place.truncate(before);
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(properties: &Value) -> Value {
        let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    }

    #[test]
    fn closed_objects_of_required_properties_are_strict() {
        let entry = object(&json!({ "text": { "type": "string", "description": "A sentence." } }));
        let list = json!({ "type": "array", "items": { "anyOf": [entry, { "type": "null" }] } });
        assert_eq!(require_strict(&object(&json!({ "list": list }))), Ok(()));
    }

    #[test]
    fn what_a_provider_would_not_enforce_is_found_at_its_place() {
        let inside = |property: Value| object(&json!({ "a": property }));
        for (schema, place) in [
            (json!([]), ""),
            (json!({ "type": "string" }), ""),
            (json!({ "anyOf": [object(&json!({}))] }), ""),
            (json!({ "type": "object", "properties": {}, "required": [] }), ""),
            (
                json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": [],
                     "additionalProperties": false }),
                "",
            ),
            (
                json!({ "type": "object", "properties": {}, "required": ["b"], "additionalProperties": false }),
                "",
            ),
            (inside(json!({ "type": "string", "maxLength": 3 })), "/a"),
            (inside(json!({ "type": ["string", "null"] })), "/a"),
            (inside(json!({ "$ref": "#" })), "/a"),
            (inside(json!({ "type": "array" })), "/a"),
            (inside(json!({ "type": "array", "items": { "type": "date" } })), "/a/items"),
            (inside(json!({ "anyOf": [{ "type": "null" }, {}] })), "/a/anyOf/1"),
            (inside(json!({ "anyOf": [] })), "/a"),
        ] {
            assert_eq!(require_strict(&schema).unwrap_err().place, place, "{schema}");
        }
        let deep =
            (0..12).fold(json!({ "type": "string" }), |inner, _| json!({ "type": "array", "items": inner }));
        assert_eq!(require_strict(&inside(deep)).unwrap_err().rule, "is nested too deeply");
        let union = json!({ "anyOf": [{ "type": "null" }] });
        let many: Map<String, Value> = (0..17).map(|n| (format!("p{n}"), union.clone())).collect();
        assert_eq!(require_strict(&object(&Value::Object(many))).unwrap_err().rule, "has too many unions");
    }
}
