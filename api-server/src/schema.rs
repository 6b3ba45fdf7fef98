//! The shapes of requests and answers, written once: [`check`] enforces them and [`Shape::document`]
//! describes them in `/openapi.json`, so the document cannot say anything else than the code does.
//!
//! Nothing is coerced: `600.0`, `"600"` and `true` are not integers, `null` is not the same as absent,
//! unknown fields are refused. Rules between fields or against stored data are left to the handlers.

use std::collections::HashSet;

use powercontext_core::content;
use serde_json::{Map, Number, Value, json};

use crate::error::Problem;

/// The most problems one answer names; a body can hold millions.
const MAX_PROBLEMS: usize = 32;
/// The longest name of an unknown field that is repeated in a path, in characters.
const MAX_NAME_CHARS: usize = 64;

/// What a text must look like beside its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Anything.
    Any,
    /// At least one character that is not white space.
    NotBlank,
    /// The same, without white space at either end. Described as [`Pattern::NotBlank`].
    Trimmed,
    /// No Unicode white space at either end.
    Unpadded,
    /// Printable ASCII without spaces.
    Graphic,
}

/// The shape of a JSON value.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A text of so many characters (Unicode scalar values), both ends included.
    Text(usize, Option<usize>, Pattern),
    /// An integer, both ends included.
    Integer(i64, Option<i64>),
    /// A number that is not negative.
    Number,
    /// True or false.
    Boolean,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any JSON value.
    Anything,
    /// An object with any members.
    OpenObject,
    /// An object from names to values of one shape.
    MapOf(&'static Shape),
    /// A list.
    List(&'static Shape),
    /// A list without equal items.
    Set(&'static Shape),
    /// The same with at least one item.
    NonEmptySet(&'static Shape),
    /// The shape or `null`.
    Nullable(&'static Shape),
    /// An object of exactly these fields.
    Object(&'static Object),
}

/// A named object of the contract.
#[derive(Debug)]
pub struct Object {
    /// Its name in the document.
    pub name: &'static str,
    /// Its fields, in the order of the document.
    pub fields: &'static [Field],
}

/// A field of an [`Object`].
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its shape.
    pub shape: Shape,
    /// Whether it must be present.
    pub required: bool,
    /// What absence means, where that has a value of its own.
    pub default: Option<Default>,
}

/// The value that an absent field or parameter stands for.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// An integer.
    Integer(i64),
    /// A text.
    Text(&'static str),
    /// A list without items.
    EmptyList,
}

impl Default {
    /// The value in the API description.
    #[must_use]
    pub fn document(self) -> Value {
        match self {
            Self::Integer(integer) => json!(integer),
            Self::Text(text) => json!(text),
            Self::EmptyList => json!([]),
        }
    }
}

impl Field {
    /// A field that must be present.
    #[must_use]
    pub const fn required(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, required: true, default: None }
    }

    /// A field that may be absent.
    #[must_use]
    pub const fn optional(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, required: false, default: None }
    }

    /// A field that may be absent and then has this value.
    #[must_use]
    pub const fn defaulting(name: &'static str, shape: Shape, default: Default) -> Self {
        Self { name, shape, required: false, default: Some(default) }
    }
}

/// Whether a character counts as white space: Unicode's (U+0085 among them), and U+001C to U+001F.
#[must_use]
pub fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// Whether a text has nothing but white space.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// Whether a text has white space at either end.
#[must_use]
pub fn is_padded(text: &str) -> bool {
    text.trim_matches(is_space).len() != text.len()
}

/// What is wrong with `value` as a value of `shape`; a list of at most [`MAX_PROBLEMS`], each of
/// bounded size, so that an answer is small whatever the body was.
#[must_use]
pub fn check(shape: &Shape, value: &Value) -> Vec<Problem> {
    let mut checking = Checking { loc: vec![json!("body")], problems: Vec::new() };
    checking.value(shape, value);
    checking.problems
}

/// One walk over a value: where it is, and what it has found.
struct Checking {
    loc: Vec<Value>,
    problems: Vec<Problem>,
}

impl Checking {
    fn value(&mut self, shape: &Shape, value: &Value) {
        match (shape, value) {
            (Shape::Anything, _) | (Shape::Nullable(_), Value::Null) | (Shape::Boolean, Value::Bool(_)) => {}
            (Shape::OpenObject, Value::Object(_)) => {}
            (Shape::Nullable(inner), value) => self.value(inner, value),
            (Shape::Text(least, most, pattern), Value::String(text)) => {
                self.report(text_problem(text, *least, *most, *pattern));
            }
            (Shape::Integer(least, most), Value::Number(number)) => match clamped(number) {
                Some(integer) => self.report(integer_problem(integer, *least, most.unwrap_or(i64::MAX))),
                None => self.report(Some(type_problem(shape))),
            },
            (Shape::Number, Value::Number(number)) if number.as_f64().is_some_and(|n| n >= 0.0) => {}
            (Shape::Word(words), Value::String(word)) if words.contains(&word.as_str()) => {}
            (Shape::List(item), Value::Array(items)) => self.items(item, items),
            (Shape::Set(item) | Shape::NonEmptySet(item), Value::Array(items)) => self.set(item, items),
            (Shape::MapOf(inner), Value::Object(members)) => {
                for (name, value) in members {
                    self.within(step(name), |inside| inside.value(inner, value));
                }
            }
            (Shape::Object(object), Value::Object(members)) => self.object(object, members),
            (shape, _) => self.report(Some(type_problem(shape))),
        }
    }

    fn items(&mut self, item: &Shape, items: &[Value]) {
        for (index, value) in items.iter().enumerate() {
            if self.is_full() {
                return;
            }
            self.within(json!(index), |inside| inside.value(item, value));
        }
    }

    fn set(&mut self, item: &Shape, items: &[Value]) {
        let before = self.problems.len();
        self.items(item, items);
        // Only well-formed items are compared; the order of an object's keys makes no difference.
        let mut seen = HashSet::new();
        let unseen = |item: &Value| {
            content::canonical(item).map_or(true, |canonical| seen.insert(content::digest(&canonical)))
        };
        if self.problems.len() == before && !items.iter().all(unseen) {
            self.report(Some(("value_error", "must not repeat an item".to_owned())));
        }
    }

    fn object(&mut self, object: &Object, members: &Map<String, Value>) {
        for field in object.fields {
            self.within(json!(field.name), |inside| match members.get(field.name) {
                Some(value) => inside.value(&field.shape, value),
                None if field.required => {
                    inside.report(Some(("missing", "the field is required".to_owned())))
                }
                None => {}
            });
        }
        for name in members.keys().filter(|name| object.fields.iter().all(|field| field.name != *name)) {
            if self.is_full() {
                return;
            }
            let unknown = ("extra_forbidden", "the field is not known".to_owned());
            self.within(step(name), |inside| inside.report(Some(unknown)));
        }
    }

    fn is_full(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    fn within(&mut self, step: Value, look: impl FnOnce(&mut Self)) {
        self.loc.push(step);
        look(self);
        self.loc.pop();
    }

    fn report(&mut self, problem: Option<(&'static str, String)>) {
        if let Some((kind, rule)) = problem.filter(|_| !self.is_full()) {
            self.problems.push(Problem { loc: self.loc.clone(), kind, rule });
        }
    }
}

/// A field's name as a step of a path; a long one is cut.
fn step(name: &str) -> Value {
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => json!(format!("{}…", name.get(..end).unwrap_or_default())),
        None => json!(name),
    }
}

/// A JSON integer, cut to the range of `i64`; `None` for a number with a fraction or an exponent.
fn clamped(number: &Number) -> Option<i64> {
    if let Some(integer) = number.as_i64() {
        return Some(integer);
    }
    // The parser keeps integers beyond 64 bits as floating point.
    let huge = number.as_f64().filter(|value| value.abs() >= 9_223_372_036_854_775_808.0)?;
    Some(if huge > 0.0 { i64::MAX } else { i64::MIN })
}

/// What is wrong with a text, as a stable word and a rule.
#[must_use]
pub fn text_problem(
    text: &str,
    least: usize,
    most: Option<usize>,
    pattern: Pattern,
) -> Option<(&'static str, String)> {
    // Counting is linear in the text; a text whose bytes fit needs no count.
    let too_long = |most: usize| text.len() > most && text.chars().count() > most;
    if text.is_empty() && least > 0 {
        return Some(("string_too_short", "must not be empty".to_owned()));
    }
    if let Some(most) = most.filter(|most| too_long(*most)) {
        return Some(("string_too_long", format!("must have at most {most} characters")));
    }
    const PADDED: &str = "must not have white space at its ends";
    let (fits, kind, rule) = match pattern {
        Pattern::Any => return None,
        Pattern::NotBlank | Pattern::Trimmed if is_blank(text) => {
            (false, "string_pattern_mismatch", "must not be blank")
        }
        Pattern::NotBlank => return None,
        Pattern::Trimmed => (!is_padded(text), "value_error", PADDED),
        Pattern::Unpadded => (!is_padded(text), "string_pattern_mismatch", PADDED),
        Pattern::Graphic => (
            text.chars().all(|c| c.is_ascii_graphic()),
            "string_pattern_mismatch",
            "must be printable ASCII without spaces",
        ),
    };
    (!fits).then(|| (kind, rule.to_owned()))
}

/// What is wrong with an integer, as a stable word and a rule.
#[must_use]
pub fn integer_problem(integer: i64, least: i64, most: i64) -> Option<(&'static str, String)> {
    if integer < least {
        return Some(("greater_than_equal", format!("must be at least {least}")));
    }
    (integer > most).then(|| ("less_than_equal", format!("must be at most {most}")))
}

fn type_problem(shape: &Shape) -> (&'static str, String) {
    let (kind, rule) = match shape {
        Shape::Text(..) => ("string_type", "must be a text"),
        Shape::Integer(..) => ("int_type", "must be an integer"),
        Shape::Number => ("number_type", "must be a number that is not negative"),
        Shape::Boolean => ("bool_type", "must be true or false"),
        Shape::Word(words) => return ("enum", format!("must be one of {}", words.join(", "))),
        Shape::List(_) | Shape::Set(_) | Shape::NonEmptySet(_) => ("list_type", "must be a list"),
        Shape::OpenObject | Shape::MapOf(_) | Shape::Object(_) => ("dict_type", "must be an object"),
        Shape::Nullable(inner) => return type_problem(inner),
        Shape::Anything => ("value_error", "is not allowed"),
    };
    (kind, rule.to_owned())
}

impl Shape {
    /// The shape as a schema of the API description.
    #[must_use]
    pub fn document(&self) -> Value {
        match self {
            Self::Text(least, most, pattern) => {
                let mut schema = json!({"type": "string"});
                if *least > 0 {
                    schema["minLength"] = json!(least);
                }
                if let Some(most) = most {
                    schema["maxLength"] = json!(most);
                }
                match pattern {
                    Pattern::Any => {}
                    Pattern::NotBlank | Pattern::Trimmed => schema["pattern"] = json!(r".*\S.*"),
                    Pattern::Unpadded => schema["pattern"] = json!(r"^\S(?:[\s\S]*\S)?$"),
                    Pattern::Graphic => schema["pattern"] = json!(r"^[\x21-\x7E]+$"),
                }
                schema
            }
            Self::Integer(least, most) => {
                let mut schema = json!({"type": "integer", "minimum": least});
                if let Some(most) = most {
                    schema["maximum"] = json!(most);
                }
                schema
            }
            Self::Number => json!({"type": "number", "minimum": 0}),
            Self::Boolean => json!({"type": "boolean"}),
            Self::Word(words) => json!({"type": "string", "enum": words}),
            Self::Anything => json!({}),
            Self::OpenObject => json!({"type": "object", "additionalProperties": true}),
            Self::MapOf(inner) => json!({"type": "object", "additionalProperties": inner.document()}),
            Self::List(item) => json!({"type": "array", "items": item.document()}),
            Self::Set(item) => json!({"type": "array", "items": item.document(), "uniqueItems": true}),
            Self::NonEmptySet(item) => {
                json!({"type": "array", "items": item.document(), "minItems": 1, "uniqueItems": true})
            }
            Self::Nullable(Shape::Object(object)) => {
                json!({"allOf": [Self::Object(object).document()], "nullable": true})
            }
            Self::Nullable(inner) => {
                let mut schema = inner.document();
                schema["nullable"] = json!(true);
                schema
            }
            Self::Object(object) => json!({"$ref": format!("#/components/schemas/{}", object.name)}),
        }
    }

    /// The named objects this shape mentions, itself included.
    pub fn objects(&self, found: &mut Vec<&'static Object>) {
        match self {
            Self::Object(object) if found.iter().all(|known| known.name != object.name) => {
                found.push(object);
                for field in object.fields {
                    field.shape.objects(found);
                }
            }
            Self::Nullable(inner)
            | Self::List(inner)
            | Self::Set(inner)
            | Self::NonEmptySet(inner)
            | Self::MapOf(inner) => inner.objects(found),
            _ => {}
        }
    }
}

impl Object {
    /// The object as a schema of the API description.
    #[must_use]
    pub fn document(&self) -> Value {
        let describe = |field: &Field| {
            let mut schema = field.shape.document();
            if let Some(default) = field.default {
                schema["default"] = default.document();
            }
            (field.name.to_owned(), schema)
        };
        let properties: Map<String, Value> = self.fields.iter().map(describe).collect();
        let required: Vec<&str> =
            self.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        let mut schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ITEM: Object = Object {
        name: "Item",
        fields: &[
            Field::required("kind", Shape::Text(1, Some(8), Pattern::Trimmed)),
            Field::required("value", Shape::Text(1, Some(8), Pattern::NotBlank)),
        ],
    };
    const SET: Shape = Shape::Set(&Shape::Object(&ITEM));

    #[test]
    fn a_body_full_of_mistakes_is_answered_with_a_few_short_ones() {
        let long = "x".repeat(100_000);
        let unknown: Map<String, Value> =
            (0..5_000).map(|n| (format!("{n}{long}"), json!(1))).take(50).collect();
        for (shape, value) in [
            (SET, json!(vec![json!(1); 100_000])),
            (SET, json!(vec![json!({}); 100_000])),
            (Shape::Object(&ITEM), Value::Object(unknown)),
        ] {
            let problems = check(&shape, &value);
            assert_eq!(problems.len(), MAX_PROBLEMS);
            let size: usize =
                problems.iter().map(|p| p.rule.len() + p.kind.len() + json!(p.loc).to_string().len()).sum();
            assert!(size < 8_192, "{size} bytes");
        }
    }

    #[test]
    fn equal_items_are_found_whatever_the_order_of_their_keys() {
        let one = json!({"kind": "a", "value": "b"});
        let other: Value = serde_json::from_str(r#"{"value":"b","kind":"a"}"#).unwrap();
        assert_eq!(check(&SET, &json!([one, other])).first().unwrap().kind, "value_error");
        assert_eq!(check(&SET, &json!([one, {"kind": "a", "value": "c"}])), []);
    }

    #[test]
    fn separators_and_the_next_line_count_as_white_space() {
        for space in ['\u{1c}', '\u{1d}', '\u{1e}', '\u{1f}', '\u{85}', '\u{a0}', ' '] {
            let kind = |pattern, text: &str| text_problem(text, 1, None, pattern).map(|(kind, _)| kind);
            let blank = space.to_string();
            for pattern in [Pattern::NotBlank, Pattern::Trimmed, Pattern::Unpadded] {
                assert_eq!(kind(pattern, &blank), Some("string_pattern_mismatch"), "{space:?}");
            }
            assert_eq!(kind(Pattern::NotBlank, &format!("{space}x")), None);
            assert_eq!(kind(Pattern::Trimmed, &format!("x{space}")), Some("value_error"));
            assert_eq!(kind(Pattern::Unpadded, &format!("{space}x")), Some("string_pattern_mismatch"));
        }
        assert_eq!(text_problem("\u{200b}", 1, None, Pattern::NotBlank), None);
    }

    #[test]
    fn an_integer_of_any_size_is_an_integer_and_nothing_else_is() {
        let kinds = |text: &str| {
            let value = serde_json::from_str(text).unwrap();
            check(&Shape::Integer(1, None), &value).first().map(|problem| problem.kind)
        };
        for text in ["1", "9223372036854775808", "18446744073709551616", "100000000000000000000000000000"] {
            assert_eq!(kinds(text), None, "{text}");
        }
        assert_eq!(kinds("-100000000000000000000000000000"), Some("greater_than_equal"));
        for text in ["2.0", "1.5", "\"2\"", "true", "null"] {
            assert_eq!(kinds(text), Some("int_type"), "{text}");
        }
    }
}
