//! Takes typed values out of a request, or says exactly what is wrong with it.
//!
//! A body, which `intake` has read, is parsed, checked against its shape and only then decoded. Path
//! and query texts follow the same rules. Nothing here reads the database.

use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use powercontext_core::ids::{ScopeId, SourceId, SourceRef};
use serde_json::json;

use crate::app::App;
use crate::contract::Body;
use crate::error::{ApiError, Problem};
use crate::json;
use crate::schema::{Default, Pattern, Shape, check, integer_problem, text_problem};

/// A checked and decoded request body.
pub struct ApiJson<T> {
    /// The body.
    pub body: T,
    /// Whether it holds an integer beyond 2^53 - 1, which no Source may.
    pub has_huge_integer: bool,
}

impl<T: Body> FromRequest<App> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        // `intake` has read the body within its bounds, so this waits for nobody.
        let limit = app.limits().max_body_bytes;
        let bytes = axum::body::to_bytes(body, limit).await.map_err(|_| ApiError::too_large(limit))?;
        if !bytes.is_empty() {
            require_json(&parts.headers)?;
        }
        let document = json::parse(&bytes)?;
        drop(bytes);
        if !document.value.is_object() {
            return Err(ApiError::invalid(&[whole_body("model_attributes_type", "must be an object")]));
        }
        let problems = check(&Shape::Object(T::SHAPE), &document.value);
        if !problems.is_empty() {
            return Err(ApiError::invalid(&problems));
        }
        let body = serde_json::from_value(document.value).map_err(|_| {
            ApiError::internal(format!("the shape of {} accepts what its type does not", T::SHAPE.name))
        })?;
        Ok(Self { body, has_huge_integer: document.has_huge_integer })
    }
}

/// Any other content type is a text to the contract, never an object.
fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let rule = match headers.get(header::CONTENT_TYPE) {
        None => "the header Content-Type is missing; it must be application/json",
        Some(value) if is_json(value.to_str().unwrap_or_default()) => return Ok(()),
        Some(_) => "the header Content-Type must be application/json",
    };
    Err(ApiError::not_json(whole_body("model_attributes_type", rule)))
}

fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let Some(subtype) = media_type.strip_prefix("application/") else { return false };
    subtype == "json" || (subtype.len() > "+json".len() && subtype.ends_with("+json"))
}

fn whole_body(kind: &'static str, rule: &str) -> Problem {
    Problem { loc: vec![json!("body")], kind, rule: rule.to_owned() }
}

fn one(place: &str, name: &str, (kind, rule): (&'static str, String)) -> Problem {
    Problem { loc: vec![json!(place), json!(name)], kind, rule }
}

/// The raw texts of a path, percent-decoded.
async fn path_texts(parts: &mut Parts, app: &App) -> Result<Vec<(String, String)>, ApiError> {
    let texts = RawPathParams::from_request_parts(parts, app).await.map_err(|_| {
        ApiError::invalid(&[one("path", "path", ("string_unicode", "must be UTF-8".to_owned()))])
    })?;
    Ok(texts.iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect())
}

fn path_text(
    texts: &[(String, String)],
    name: &str,
    pattern: Pattern,
    problems: &mut Vec<Problem>,
) -> String {
    let text = texts.iter().find(|(known, _)| known == name).map_or("", |(_, text)| text);
    problems.extend(text_problem(text, 1, Some(256), pattern).map(|problem| one("path", name, problem)));
    text.to_owned()
}

/// The Scope in a path.
pub struct ScopePath(pub ScopeId);

impl FromRequestParts<App> for ScopePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let mut problems = Vec::new();
        let texts = path_texts(parts, app).await?;
        let scope = path_text(&texts, "scope_id", Pattern::NotBlank, &mut problems);
        if !problems.is_empty() {
            return Err(ApiError::invalid(&problems));
        }
        Ok(Self(scope_id("path", &scope)?))
    }
}

/// The Scope and the Source in a path.
pub struct SourcePath(pub ScopeId, pub SourceRef);

impl FromRequestParts<App> for SourcePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let mut problems = Vec::new();
        let texts = path_texts(parts, app).await?;
        let scope = path_text(&texts, "scope_id", Pattern::NotBlank, &mut problems);
        let source_type = path_text(&texts, "source_type", Pattern::Any, &mut problems);
        let source = path_text(&texts, "source_id", Pattern::Graphic, &mut problems);
        if source_type != SourceRef::CONTENT {
            problems.push(one("path", "source_type", ("literal_error", "must be content".to_owned())));
        }
        if !problems.is_empty() {
            return Err(ApiError::invalid(&problems));
        }
        Ok(Self(scope_id("path", &scope)?, SourceRef::content(source_id("path", &source)?)))
    }
}

/// A Scope identity out of a checked text.
///
/// # Errors
/// 422 when the identity type is stricter than the contract.
pub fn scope_id(place: &'static str, text: &str) -> Result<ScopeId, ApiError> {
    ScopeId::parse(text)
        .map_err(|error| ApiError::invalid(&[one(place, "scope_id", ("value_error", error.to_string()))]))
}

/// A Source identity out of a checked text.
///
/// # Errors
/// 422 when the identity type is stricter than the contract.
pub fn source_id(place: &'static str, text: &str) -> Result<SourceId, ApiError> {
    SourceId::parse(text)
        .map_err(|error| ApiError::invalid(&[one(place, "source_id", ("value_error", error.to_string()))]))
}

/// One query parameter of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// A text, a word or an integer.
    pub shape: Shape,
    /// What absence means, where that has a value of its own.
    pub default: Option<Default>,
}

impl Parameter {
    /// A parameter that may be absent.
    #[must_use]
    pub const fn optional(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, default: None }
    }

    /// A parameter that may be absent and then has this value.
    #[must_use]
    pub const fn defaulting(name: &'static str, shape: Shape, default: Default) -> Self {
        Self { name, shape, default: Some(default) }
    }
}

/// The query parameters of a request; every one known, at most once, and checked.
#[derive(Debug)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads the query of a request.
    ///
    /// # Errors
    /// 422 for unknown and repeated parameters, `status` for values that break their shape.
    pub fn read(parts: &Parts, known: &[Parameter], status: StatusCode) -> Result<Self, ApiError> {
        let texts =
            Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_or_else(|_| Vec::new(), |q| q.0);
        if texts.iter().any(|(name, _)| known.iter().all(|parameter| parameter.name != name)) {
            return Err(ApiError::invalid_field("query", "contains unknown parameters"));
        }
        let repeated = |name: &str| texts.iter().filter(|(other, _)| other == name).count() > 1;
        if texts.iter().any(|(name, _)| repeated(name)) {
            return Err(ApiError::invalid_field("query", "parameters must be provided at most once"));
        }
        let problems: Vec<Problem> = known
            .iter()
            .filter_map(|parameter| {
                let (_, text) = texts.iter().find(|(name, _)| name == parameter.name)?;
                Some(one("query", parameter.name, query_problem(&parameter.shape, text)?))
            })
            .collect();
        if problems.is_empty() { Ok(Self(texts)) } else { Err(ApiError::invalid_at(status, &problems)) }
    }

    /// A parameter as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// A checked integer parameter, or its default.
    #[must_use]
    pub fn integer(&self, name: &str, default: u32) -> u32 {
        self.text(name).and_then(integer).and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    }
}

/// Query texts are written by people and tools: a sign and surrounding spaces are accepted.
fn integer(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

fn query_problem(shape: &Shape, text: &str) -> Option<(&'static str, String)> {
    match shape {
        Shape::Text(least, most, pattern) => text_problem(text, *least, *most, *pattern),
        Shape::Integer(least, most) => match integer(text) {
            Some(number) => integer_problem(number, *least, most.unwrap_or(i64::MAX)),
            None => Some(("int_parsing", "must be an integer".to_owned())),
        },
        Shape::Word(words) if !words.contains(&text) => {
            Some(("enum", format!("must be one of {}", words.join(", "))))
        }
        _ => None,
    }
}
