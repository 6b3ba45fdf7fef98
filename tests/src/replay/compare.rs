//! What is fixed and what is free in an answer.
//!
//! Fixed: the status, field names, values, order and number of items, numbers (floats within 1e-9),
//! the media type, and a non-empty request id. Free: the wording of error messages and reasons, the
//! details of `invalid_request`, everything but the status of an answer that the reference's web
//! framework gave, and what a step frees. Server-made values are bound at first sight.

use std::collections::HashMap;

use serde_json::Value;

use super::names::{Names, Placeholder, expand};
use super::scenario::Step;

/// An answer as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Headers, lower-case names.
    pub headers: HashMap<String, String>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

/// Keys of `error.details` whose texts are wording.
const WORDING: [&str; 2] = ["reason", "issue"];

/// Every difference between an answer and the recorded one; binds placeholders on the way.
pub fn compare(step: &Step, answer: &Answer, names: &mut Names) -> Vec<String> {
    if answer.status != step.status {
        let start: String = String::from_utf8_lossy(&answer.body).chars().take(200).collect();
        return vec![format!("expected status {}, got {} {start}", step.status, answer.status)];
    }
    let mut comparison = Comparison { step, names, problems: Vec::new() };
    if answer.headers.get("x-powercontext-request-id").is_none_or(|id| id.trim().is_empty()) {
        comparison.differ("header x-powercontext-request-id", "missing or empty");
    }
    if is_of_the_framework(&step.response) {
        return comparison.problems;
    }
    let is_free = step.free.iter().any(String::is_empty);
    if !is_free {
        comparison.body(&answer.body);
    }
    for (name, wanted) in step.response_headers.iter().chain(&step.contract_headers) {
        let pointer = format!("header {name}");
        match answer.headers.get(name) {
            _ if name == "allow" || (name == "content-type" && is_free) => {}
            None => comparison.differ(&pointer, "missing"),
            Some(found) if name == "content-type" => {
                comparison.text(&media_type(wanted), &media_type(found), &pointer);
            }
            Some(found) => comparison.text(wanted, found, &pointer),
        }
    }
    comparison.problems
}

/// `{"detail": ...}` comes from the reference's web framework: only the status counts.
fn is_of_the_framework(body: &Value) -> bool {
    body.as_object().is_some_and(|members| members.len() == 1 && members.contains_key("detail"))
}

fn media_type(value: &str) -> String {
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

struct Comparison<'a> {
    step: &'a Step,
    names: &'a mut Names,
    problems: Vec<String>,
}

impl Comparison<'_> {
    fn differ(&mut self, pointer: &str, problem: &str) {
        let pointer = if pointer.is_empty() { "/" } else { pointer };
        self.problems.push(format!("{pointer}: {problem}"));
    }

    fn body(&mut self, body: &[u8]) {
        let step = self.step;
        if let Some(wanted) = &step.response_text {
            match std::str::from_utf8(body) {
                Ok(found) => self.text(wanted, found, ""),
                Err(_) => self.differ("", "the body is not UTF-8"),
            }
            return;
        }
        let found = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(body) };
        match found {
            Ok(found) => self.value(&step.response, &found, ""),
            Err(_) => self.differ("", "the body is not JSON"),
        }
    }

    fn value(&mut self, wanted: &Value, found: &Value, pointer: &str) {
        if self.step.free.iter().any(|free| free == pointer) {
            return;
        }
        match (wanted, found) {
            (Value::Object(wanted), Value::Object(found)) => self.members(wanted, found, pointer),
            (Value::Array(wanted), Value::Array(found)) => self.items(wanted, found, pointer),
            (Value::String(wanted), Value::String(found)) => self.text(wanted, found, pointer),
            (Value::Number(wanted_number), Value::Number(found_number)) => {
                // An integer stays an integer: strict clients refuse `1.0` where `1` was promised.
                let alike = match (wanted_number.is_f64(), wanted_number.as_f64(), found_number.as_f64()) {
                    (true, Some(wanted), Some(found)) => is_close(wanted, found),
                    _ => wanted_number == found_number,
                };
                if !alike {
                    self.differ(pointer, &format!("expected {wanted}, got {found}"));
                }
            }
            (wanted, found) if wanted == found => {}
            (wanted, found) => {
                self.differ(pointer, &format!("expected {}, got {}", short(wanted), short(found)))
            }
        }
    }

    fn members(
        &mut self,
        wanted: &serde_json::Map<String, Value>,
        found: &serde_json::Map<String, Value>,
        pointer: &str,
    ) {
        for key in found.keys().filter(|key| !wanted.contains_key(*key)) {
            self.differ(&format!("{pointer}/{key}"), "unexpected field");
        }
        let is_invalid_request = wanted.get("code").and_then(Value::as_str) == Some("invalid_request");
        for (key, wanted) in wanted {
            let below = format!("{pointer}/{key}");
            let Some(found) = found.get(key) else {
                self.differ(&below, "the field is missing");
                continue;
            };
            let is_wording = pointer == "/error/details" && WORDING.contains(&key.as_str());
            if below == "/error/message" || is_wording {
                if found.as_str().is_none_or(str::is_empty) {
                    self.differ(&below, &format!("expected a text, got {}", short(found)));
                }
            } else if below == "/error/details" && is_invalid_request {
                if !found.is_null() && !found.is_object() {
                    self.differ(&below, &format!("expected an object or null, got {}", short(found)));
                }
            } else {
                self.value(wanted, found, &below);
            }
        }
    }

    fn items(&mut self, wanted: &[Value], found: &[Value], pointer: &str) {
        if wanted.len() != found.len() {
            self.differ(pointer, &format!("expected {} items, got {}", wanted.len(), found.len()));
        }
        let key = self.step.sorted_by.get(pointer);
        if let Some(key) = key {
            let keys: Vec<&str> = found
                .iter()
                .map(|item| item.pointer(key).and_then(Value::as_str).unwrap_or_default())
                .collect();
            if !keys.is_sorted() {
                self.differ(pointer, &format!("not in ascending order of {key}"));
            }
        }
        if key.is_some() || self.step.unordered.iter().any(|list| list == pointer) {
            self.as_set(wanted, found, pointer);
            return;
        }
        for (number, (wanted, found)) in wanted.iter().zip(found).enumerate() {
            self.value(wanted, found, &format!("{pointer}/{number}"));
        }
    }

    /// Gives each wanted item the first item left that is like it.
    fn as_set(&mut self, wanted: &[Value], found: &[Value], pointer: &str) {
        let mut left: Vec<&Value> = found.iter().collect();
        for (number, wanted) in wanted.iter().enumerate() {
            let below = format!("{pointer}/{number}");
            let like = left.iter().enumerate().find_map(|(at, found)| {
                let mut names = self.names.clone();
                let mut attempt = Comparison { step: self.step, names: &mut names, problems: Vec::new() };
                attempt.value(wanted, found, &below);
                attempt.problems.is_empty().then_some((at, names))
            });
            if let Some((at, names)) = like {
                left.remove(at);
                *self.names = names;
            } else {
                self.differ(pointer, &format!("no item like number {number}: {}", short(wanted)));
            }
        }
    }

    fn text(&mut self, wanted: &str, found: &str, pointer: &str) {
        if let Some(name) = Placeholder::whole(&expand(wanted))
            && (name.is_any() || self.names.is_new(&name))
        {
            if found.is_empty() {
                self.differ(pointer, "empty");
            } else if !name.is_any() {
                self.names.bind(name, found);
            }
            return;
        }
        match self.names.fill(wanted) {
            Err(problem) => self.differ(pointer, &problem),
            Ok(wanted) if wanted == found => {}
            Ok(wanted) => self.differ(pointer, &difference(&wanted, found)),
        }
    }
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= f64::max(1e-12, 1e-9 * one.abs().max(other.abs()))
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 160 { text } else { text.chars().take(157).chain("...".chars()).collect() }
}

/// Says where two texts part, with a little of both.
fn difference(wanted: &str, found: &str) -> String {
    let place = wanted.chars().zip(found.chars()).take_while(|(wanted, found)| wanted == found).count();
    let excerpt = |text: &str| -> String { text.chars().skip(place.saturating_sub(20)).take(60).collect() };
    format!("texts differ at character {place}: expected {:?}, got {:?}", excerpt(wanted), excerpt(found))
}
