//! The shapes of requests and answers, written once: [`check`] enforces them and [`Shape::document`]
//! describes them in `/openapi.json`, so the document cannot say anything else than the code does.
//!
//! Nothing is coerced: `600.0`, `"600"` and `true` are not integers, `null` is not the same as absent,
//! unknown fields are refused. Rules between fields or against stored data are left to the handlers.

use serde_json::{Map, Value, json};

use crate::error::Problem;

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
    /// A list; `true` means that equal items are refused.
    List(&'static Shape, bool),
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
}

impl Field {
    /// A field that must be present.
    #[must_use]
    pub const fn required(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, required: true }
    }

    /// A field that may be absent.
    #[must_use]
    pub const fn optional(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, required: false }
    }
}

/// Whether a character counts as white space at the end of a text: Unicode's, and U+001C to U+001F.
#[must_use]
pub fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// Whether a text is padded or blank.
#[must_use]
pub fn is_padded(text: &str) -> bool {
    text.trim_matches(is_space).len() != text.len() || text.is_empty()
}

/// Collects everything that is wrong with `value` as a value of `shape`.
pub fn check(shape: &Shape, value: &Value, loc: &mut Vec<Value>, problems: &mut Vec<Problem>) {
    match (shape, value) {
        (Shape::Anything, _) | (Shape::Nullable(_), Value::Null) | (Shape::Boolean, Value::Bool(_)) => {}
        (Shape::OpenObject, Value::Object(_)) => {}
        (Shape::Nullable(inner), value) => check(inner, value, loc, problems),
        (Shape::Text(least, most, pattern), Value::String(text)) => {
            if let Some((kind, rule)) = text_problem(text, *least, *most, *pattern) {
                report(loc, problems, kind, rule);
            }
        }
        (Shape::Integer(least, most), Value::Number(number)) if number.is_i64() || number.is_u64() => {
            let integer = number.as_i64().unwrap_or(i64::MAX);
            if let Some((kind, rule)) = integer_problem(integer, *least, most.unwrap_or(i64::MAX)) {
                report(loc, problems, kind, rule);
            }
        }
        (Shape::Number, Value::Number(number)) if number.as_f64().is_some_and(|n| n >= 0.0) => {}
        (Shape::Word(words), Value::String(word)) if words.contains(&word.as_str()) => {}
        (Shape::List(item, unique), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                within(loc, json!(index), |loc| check(item, value, loc, problems));
            }
            // Requests are small by the body limit, but a quadratic comparison would still be a lever.
            let mut seen = std::collections::HashSet::new();
            if *unique && !items.iter().all(|item| seen.insert(item.to_string())) {
                report(loc, problems, "value_error", "must not repeat an item".to_owned());
            }
        }
        (Shape::MapOf(inner), Value::Object(members)) => {
            for (name, value) in members {
                within(loc, json!(name), |loc| check(inner, value, loc, problems));
            }
        }
        (Shape::Object(object), Value::Object(members)) => check_object(object, members, loc, problems),
        (shape, _) => {
            let (kind, rule) = type_problem(shape);
            report(loc, problems, kind, rule);
        }
    }
}

fn check_object(
    object: &Object,
    members: &Map<String, Value>,
    loc: &mut Vec<Value>,
    problems: &mut Vec<Problem>,
) {
    for field in object.fields {
        within(loc, json!(field.name), |loc| match members.get(field.name) {
            Some(value) => check(&field.shape, value, loc, problems),
            None if field.required => report(loc, problems, "missing", "the field is required".to_owned()),
            None => {}
        });
    }
    for name in members.keys().filter(|name| object.fields.iter().all(|field| field.name != *name)) {
        let rule = "the field is not known".to_owned();
        within(loc, json!(name), |loc| report(loc, problems, "extra_forbidden", rule));
    }
}

fn within(loc: &mut Vec<Value>, step: Value, inside: impl FnOnce(&mut Vec<Value>)) {
    loc.push(step);
    inside(loc);
    loc.pop();
}

fn report(loc: &[Value], problems: &mut Vec<Problem>, kind: &'static str, rule: String) {
    problems.push(Problem { loc: loc.to_vec(), kind, rule });
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
    let (fits, kind, rule) = match pattern {
        Pattern::Any => return None,
        Pattern::NotBlank => {
            (text.chars().any(|c| !c.is_whitespace()), "string_pattern_mismatch", "must not be blank")
        }
        Pattern::Trimmed => {
            (!is_padded(text), "value_error", "must not be blank or have white space at its ends")
        }
        Pattern::Unpadded => (
            text.trim().len() == text.len() && !text.is_empty(),
            "string_pattern_mismatch",
            "must not have white space at its ends",
        ),
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
        Shape::List(..) => ("list_type", "must be a list"),
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
            Self::List(item, unique) => {
                let mut schema = json!({"type": "array", "items": item.document()});
                if *unique {
                    schema["uniqueItems"] = json!(true);
                }
                schema
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
            Self::Nullable(inner) | Self::List(inner, _) | Self::MapOf(inner) => inner.objects(found),
            _ => {}
        }
    }
}

impl Object {
    /// The object as a schema of the API description.
    #[must_use]
    pub fn document(&self) -> Value {
        let properties: Map<String, Value> =
            self.fields.iter().map(|field| (field.name.to_owned(), field.shape.document())).collect();
        let required: Vec<&str> =
            self.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        let mut schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }
}
