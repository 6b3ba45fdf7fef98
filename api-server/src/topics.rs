//! `/v1/topic-memory`: flush, search and exact reads (TM-230).
//!
//! Flush records an intent and wakes the supervisor; it never waits for generation (TM-232). Search
//! and reads never call a model.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use powercontext_core::analyzer::Query;
use powercontext_core::ids::{ArtifactId, BindingName, Revision, ScopeId};
use powercontext_core::topic::{BINDING, FAMILY, TopicRef};
use powercontext_core::work::WorkKey;
use powercontext_store::pending::{self, Flush as Flushed};
use powercontext_store::topics::{self, TopicHit};
use powercontext_store::{StoreError, scopes};
use serde_json::{Value, json};

use crate::app::App;
use crate::contract::{Flush, GetTopic, SEARCH_LIMIT, Search};
use crate::error::{ApiError, Problem};
use crate::extract::{ApiJson, scope_id};

/// When the Revision was published (TM-150, B-19). A header, because clients of the contract
/// refuse fields it does not name.
pub static PUBLISHED_AT: HeaderName = HeaderName::from_static("x-powercontext-published-at");

/// `POST /v1/topic-memory/flush`
pub async fn flush(
    State(app): State<App>,
    ApiJson { body, .. }: ApiJson<Flush>,
) -> Result<Json<Value>, ApiError> {
    let scope = scope_id("body", &body.scope_id)?;
    let Some(processing) = app.processing() else {
        require_scope(&app, &scope).await?;
        return Err(ApiError::processing_unavailable());
    };
    let binding = BindingName::parse(BINDING).map_err(|error| ApiError::internal(error.to_string()))?;
    let status = match pending::flush(app.store(), &WorkKey { binding, scope }).await? {
        Flushed::Accepted => {
            processing.wake();
            "accepted"
        }
        Flushed::Idle => "idle",
    };
    Ok(Json(json!({ "status": status })))
}

/// `POST /v1/topic-memory/search`
pub async fn search(
    State(app): State<App>,
    ApiJson { body, .. }: ApiJson<Search>,
) -> Result<Json<Value>, ApiError> {
    let scope = scope_id("body", &body.scope_id)?;
    require_scope(&app, &scope).await?;
    let hits = match Query::parse(&body.query) {
        Some(query) => {
            topics::search(app.store(), &scope, &query, body.limit.unwrap_or(SEARCH_LIMIT) as usize).await?
        }
        None => Vec::new(),
    };
    let hits: Vec<Value> = hits.iter().map(hit).collect();
    Ok(Json(json!({"mode": "fts", "hits": hits})))
}

/// `POST /v1/topic-memory/get`
pub async fn get(
    State(app): State<App>,
    ApiJson { body, .. }: ApiJson<GetTopic>,
) -> Result<Response, ApiError> {
    let scope = scope_id("body", &body.scope_id)?;
    require_scope(&app, &scope).await?;
    if body.artifact.family != FAMILY {
        return Err(ApiError::invalid(&[Problem {
            loc: vec![json!("body"), json!("artifact"), json!("family")],
            kind: "literal_error",
            rule: format!("must be {FAMILY}"),
        }]));
    }
    // A Revision beyond the counter's range exists as little as an unknown identity does.
    let revision = body.artifact.revision.0.ok_or_else(ApiError::artifact_not_found)?;
    let artifact_id =
        ArtifactId::parse(body.artifact.artifact_id).map_err(|_| ApiError::artifact_not_found())?;
    let topic = TopicRef { artifact_id, revision: Revision::new(revision) };
    let found = topics::get(app.store(), &scope, &topic).await?.ok_or_else(ApiError::artifact_not_found)?;
    let sources: Vec<Value> = found
        .sources
        .iter()
        .map(|source| json!({"name": source.source_type, "source_id": source.source_id}))
        .collect();
    let body = Json(json!({
        "artifact": reference(&found.topic),
        "title": found.content.title,
        "summary": found.content.summary,
        "detail": found.content.detail,
        "source_refs": sources,
    }));
    let published_at = HeaderValue::from_str(&found.published_at)
        .map_err(|_| StoreError::Invalid { what: "a publication time is not a header text" })?;
    Ok(([(PUBLISHED_AT.clone(), published_at)], body).into_response())
}

async fn require_scope(app: &App, scope: &ScopeId) -> Result<(), ApiError> {
    scopes::get(app.store(), scope).await?.map(|_| ()).ok_or_else(ApiError::scope_not_found)
}

fn reference(topic: &TopicRef) -> Value {
    json!({"family": FAMILY, "artifact_id": topic.artifact_id, "revision": topic.revision})
}

fn hit(hit: &TopicHit) -> Value {
    json!({
        "artifact": reference(&hit.topic),
        "title": hit.title,
        "summary": hit.summary,
        "snippet": hit.snippet,
        "score": hit.score,
        "matched_by": hit.matched_by,
    })
}
