//! `/v1/scopes/{scope_id}/sources` and `/v1/sources/content`: capture and reading of Sources.
//!
//! A Source keeps the value it was sent with; its digest covers the canonical form. Positions,
//! replays and conflicts are the store's.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use powercontext_core::content;
use powercontext_core::ids::{Position, ScopeId, SourceId, SourceRef};
use powercontext_store::sources::{self, NewSource, ReadLimit, Source};
use serde_json::{Value, json};

use crate::app::App;
use crate::contract::{Capture, CreateSource};
use crate::cursor;
use crate::error::ApiError;
use crate::extract::{ApiJson, Parameter, Parameters, ScopePath, SourcePath, scope_id, source_id};
use crate::schema::{Default, Pattern, Shape, is_blank, is_padded};

const DEFAULT_LIMIT: u32 = 50;
/// Contents in one page, in bytes; a larger Source gets a page of its own.
const PAGE_CONTENT_BYTES: u64 = 8 * 1024 * 1024;
/// Written by a workflow of its own, so general capture refuses it.
const RESERVED_SCHEMA: &str = "powercontext.handoff-receipt.v1";

/// The query parameters of `list_sources`.
pub const LIST_PARAMETERS: &[Parameter] = &[
    Parameter::defaulting("limit", Shape::Integer(1, Some(100)), Default::Integer(DEFAULT_LIMIT as i64)),
    Parameter::optional("cursor", Shape::Text(1, Some(4_096), Pattern::Any)),
];

/// `POST /v1/scopes/{scope_id}/sources`
pub async fn create(
    State(app): State<App>,
    ScopePath(scope): ScopePath,
    ApiJson { body, has_huge_integer }: ApiJson<CreateSource>,
) -> Result<Response, ApiError> {
    if is_reserved(&body.content) {
        return Err(reserved());
    }
    let id = SourceId::parse(format!("src_{}", app.ids().random().simple()))
        .map_err(|error| ApiError::internal(error.to_string()))?;
    let canonical = canonical("content", &body.content, has_huge_integer)?;
    let new = NewSource {
        scope,
        source_id: id,
        content_json: body.content.to_string(),
        content_digest: content::digest(&canonical),
        metadata_json: None,
    };
    let added = sources::add(app.store(), &new).await?;
    let location = location(&new.scope, &new.source_id)?;
    let source = Source {
        position: added.position,
        source_ref: SourceRef {
            source_type: body.source_type.unwrap_or_else(|| SourceRef::CONTENT.to_owned()),
            source_id: new.source_id,
        },
        content_json: new.content_json,
        content_digest: new.content_digest,
        metadata_json: None,
    };
    let body = json_body(record(&new.scope, &source)?);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], body).into_response())
}

/// `POST /v1/sources/content`
pub async fn capture(
    State(app): State<App>,
    ApiJson { body, has_huge_integer }: ApiJson<Capture>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let scope = scope_id("body", &body.scope_id)?;
    let content = Value::String(body.content);
    if let Some(problem) = capture_problem(&body.source_id, &content) {
        // What the values say is judged in a Scope that exists.
        sources::head(app.store(), &scope).await?;
        return Err(problem);
    }
    // Absent, null and empty metadata are the same.
    let metadata = body.metadata.filter(|value| value.as_object().is_some_and(|map| !map.is_empty()));
    let metadata_json = metadata.map(|value| canonical("metadata", &value, has_huge_integer)).transpose()?;
    let content_json = canonical("content", &content, false)?;
    let new = NewSource {
        scope,
        source_id: source_id("body", &body.source_id)?,
        content_digest: content::digest(&content_json),
        content_json,
        metadata_json,
    };
    let added = sources::add(app.store(), &new).await?;
    let answer = json!({
        "status": "accepted",
        "source": {"name": SourceRef::CONTENT, "source_id": new.source_id},
        "position": added.position,
    });
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

fn capture_problem(source_id: &str, content: &Value) -> Option<ApiError> {
    if is_blank(source_id) || is_padded(source_id) {
        return Some(ApiError::invalid_field("source_id", "must not have white space at its ends"));
    }
    if content.as_str().is_some_and(is_blank) {
        return Some(ApiError::invalid_field("content", "must not be blank"));
    }
    is_reserved(content).then(reserved)
}

/// `GET /v1/scopes/{scope_id}/sources/{source_type}/{source_id}`
pub async fn get(
    State(app): State<App>,
    SourcePath(scope, source): SourcePath,
) -> Result<Response, ApiError> {
    let source = sources::get(app.store(), &scope, &source).await?.ok_or_else(ApiError::source_not_found)?;
    Ok(json_body(record(&scope, &source)?).into_response())
}

/// A checked list request.
pub struct ListSources {
    limit: u32,
    cursor: Option<String>,
}

impl FromRequestParts<App> for ListSources {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let query = Parameters::read(parts, LIST_PARAMETERS, StatusCode::BAD_REQUEST)?;
        Ok(Self {
            limit: query.integer("limit", DEFAULT_LIMIT),
            cursor: query.text("cursor").map(str::to_owned),
        })
    }
}

/// `GET /v1/scopes/{scope_id}/sources`: by position; all pages of one walk end where the Journal
/// ended at the first page. A page ends early when its contents become large.
pub async fn list(
    State(app): State<App>,
    ScopePath(scope): ScopePath,
    request: ListSources,
) -> Result<Response, ApiError> {
    let head = sources::head(app.store(), &scope).await?;
    let binding = format!("list_sources {}", json!([scope, request.limit]));
    let (after, through) = match &request.cursor {
        Some(cursor) => places(&cursor::decode(&binding, cursor)?).ok_or_else(ApiError::invalid_cursor)?,
        None => (Position::default(), head),
    };
    let limit = ReadLimit { sources: request.limit, bytes: PAGE_CONTENT_BYTES };
    let found = sources::page(app.store(), &scope, (after, through), limit).await?;
    let last = found.last().map(|source| source.position).filter(|last| *last < through);
    let next = last.map(|last| cursor::encode(&binding, &format!("{last}:{through}")));
    let mut body = String::from("{\"items\":[");
    for (index, source) in found.into_iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        body.push_str(&record(&scope, &source)?);
    }
    let _ = write!(body, "],\"next_cursor\":{}}}", json!(next));
    Ok(json_body(body).into_response())
}

fn places(text: &str) -> Option<(Position, Position)> {
    let (after, through) = text.split_once(':')?;
    Some((Position::new(after.parse().ok()?), Position::new(through.parse().ok()?)))
}

/// A Source as JSON text. The content goes in as it is stored: reading it would only cost time.
fn record(scope: &ScopeId, source: &Source) -> Result<String, ApiError> {
    let around = json!({
        "receipt_identity": null,
        "scope_id": scope,
        "source_type": source.source_ref.source_type,
        "source_id": source.source_ref.source_id,
        "position": source.position,
        "content_digest": source.content_digest,
    })
    .to_string();
    let head = around.strip_suffix('}').ok_or_else(|| ApiError::internal("an object without an end"))?;
    Ok(format!("{head},\"content\":{}}}", source.content_json))
}

fn json_body(text: String) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "application/json")], text)
}

fn canonical(field: &'static str, value: &Value, has_huge_integer: bool) -> Result<String, ApiError> {
    if has_huge_integer {
        return Err(ApiError::invalid_field(field, "has an integer beyond 2^53 - 1"));
    }
    content::canonical(value)
        .map_err(|_| ApiError::invalid_field(field, "has a number that cannot be kept or is nested too deep"))
}

fn is_reserved(content: &Value) -> bool {
    let names_it = |value: &Value| value.get("schema").and_then(Value::as_str) == Some(RESERVED_SCHEMA);
    match content {
        Value::Object(_) => names_it(content),
        Value::String(text) if text.trim_start().starts_with('{') => {
            serde_json::from_str::<Value>(text).is_ok_and(|value| names_it(&value))
        }
        _ => false,
    }
}

fn reserved() -> ApiError {
    ApiError::invalid_field("content", "uses a schema that is reserved for handoff receipts")
}

fn location(scope: &ScopeId, source: &SourceId) -> Result<HeaderValue, ApiError> {
    let path = format!("/v1/scopes/{}/sources/content/{}", encoded(scope.as_str()), encoded(source.as_str()));
    HeaderValue::from_str(&path).map_err(|error| ApiError::internal(error.to_string()))
}

/// One path segment, percent-encoded.
fn encoded(segment: &str) -> String {
    segment.bytes().fold(String::with_capacity(segment.len()), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_percent_encoded() {
        assert_eq!(encoded("scp_1-a.b~"), "scp_1-a.b~");
        assert_eq!(encoded("a b/é%"), "a%20b%2F%C3%A9%25");
    }

    #[test]
    fn only_the_reserved_schema_at_the_top_is_refused() {
        for (value, expected) in [
            (json!({"schema": RESERVED_SCHEMA}), true),
            (json!(format!(" {{\"schema\":\"{RESERVED_SCHEMA}\"}}")), true),
            (json!("{\"schem\\u0061\":\"powercontext.handoff-receipt.v1\"}"), true),
            (json!([{"schema": RESERVED_SCHEMA}]), false),
            (json!({"x": {"schema": RESERVED_SCHEMA}}), false),
            (json!(RESERVED_SCHEMA), false),
            (json!({"schema": "powercontext.handoff-receipt.v2"}), false),
        ] {
            assert_eq!(is_reserved(&value), expected, "{value}");
        }
    }
}
