//! `/v1/scopes`: Scopes and the default one.
//!
//! Handlers only translate: the store decides about keys, versions and relationships.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use powercontext_core::ids::ScopeId;
use powercontext_store::scopes::{self, ExternalReference, NewScope, Scope, ScopeField, ScopeFilter};
use serde_json::{Value, json};

use crate::app::App;
use crate::contract::{CreateScope, ExternalReferenceBody, SetDefaultScope, UpdateScope};
use crate::cursor;
use crate::error::ApiError;
use crate::extract::{ApiJson, Parameter, Parameters, ScopePath, scope_id};
use crate::schema::{Default, Pattern, Shape, is_blank};

const DEFAULT_LIMIT: u32 = 50;
const FIELDS: &[&str] = &["scope_id", "title", "summary", "external_reference_value", "binding_external_id"];

/// The query parameters of `list_scopes`.
pub const LIST_PARAMETERS: &[Parameter] = &[
    Parameter::optional("query", Shape::Text(0, Some(256), Pattern::Any)),
    Parameter::optional("query_field", Shape::Word(FIELDS)),
    Parameter::optional("parent_scope_id", Shape::Text(1, Some(256), Pattern::NotBlank)),
    Parameter::optional("external_reference_kind", Shape::Text(1, Some(128), Pattern::Trimmed)),
    Parameter::optional("binding_integration", Shape::Text(1, Some(128), Pattern::Trimmed)),
    Parameter::optional("binding_kind", Shape::Text(1, Some(64), Pattern::Trimmed)),
    Parameter::defaulting("limit", Shape::Integer(1, Some(100)), Default::Integer(DEFAULT_LIMIT as i64)),
    Parameter::optional("cursor", Shape::Text(1, Some(4_096), Pattern::Any)),
];

/// `POST /v1/scopes`
pub async fn create(
    State(app): State<App>,
    ApiJson { body, .. }: ApiJson<CreateScope>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let new = NewScope {
        scope_id: ScopeId::generate(app.ids()),
        idempotency_key: body.idempotency_key,
        title: body.title,
        summary: body.summary,
        parent_scope_id: body.parent_scope_id.map(|id| scope_id("body", &id)).transpose()?,
        context_references: scope_ids(&body.context_references)?,
        external_references: external(body.external_references),
    };
    Ok((StatusCode::CREATED, Json(view(&scopes::create(app.store(), &new).await?))))
}

/// `GET /v1/scopes/{scope_id}`
pub async fn get(State(app): State<App>, ScopePath(scope): ScopePath) -> Result<Json<Value>, ApiError> {
    let scope = scopes::get(app.store(), &scope).await?.ok_or_else(ApiError::scope_not_found)?;
    Ok(Json(view(&scope)))
}

/// `PUT /v1/scopes/{scope_id}`
pub async fn update(
    State(app): State<App>,
    ScopePath(scope): ScopePath,
    ApiJson { body, .. }: ApiJson<UpdateScope>,
) -> Result<Json<Value>, ApiError> {
    // A version beyond the counter's range is simply not the current one.
    let expected_version = body.expected_version.0.unwrap_or(i64::MAX);
    let update = scopes::UpdateScope {
        scope_id: scope,
        expected_version,
        title: body.title,
        summary: body.summary,
        parent_scope_id: body.parent_scope_id.map(|id| scope_id("body", &id)).transpose()?,
        context_references: scope_ids(&body.context_references)?,
        external_references: external(body.external_references),
    };
    let updated = scopes::update(app.store(), &update).await;
    let scope = updated.map_err(|error| ApiError::from_update(error, &update))?;
    Ok(Json(view(&scope)))
}

/// `GET /v1/scopes/default`
pub async fn get_default(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let scope = scopes::default(app.store()).await?.ok_or_else(ApiError::scope_not_found)?;
    Ok(Json(view(&scope)))
}

/// `PUT /v1/scopes/default`
pub async fn set_default(
    State(app): State<App>,
    ApiJson { body, .. }: ApiJson<SetDefaultScope>,
) -> Result<Json<Value>, ApiError> {
    let scope = scopes::set_default(app.store(), &scope_id("body", &body.scope_id)?).await?;
    Ok(Json(view(&scope)))
}

/// A checked list request.
pub struct ListScopes {
    /// `None` when the filter names bindings to integrations, which this server does not have.
    filter: Option<ScopeFilter>,
    limit: u32,
    cursor: Option<String>,
    binding: String,
}

impl FromRequestParts<App> for ListScopes {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let query = Parameters::read(parts, LIST_PARAMETERS, StatusCode::UNPROCESSABLE_ENTITY)?;
        let text = query.text("query").filter(|text| !is_blank(text));
        if text.is_some() != query.text("query_field").is_some() {
            return Err(ApiError::invalid_field("query", "query and query_field must be provided together"));
        }
        let field = match query.text("query_field") {
            Some("scope_id") => Some(ScopeField::ScopeId),
            Some("title") => Some(ScopeField::Title),
            Some("summary") => Some(ScopeField::Summary),
            Some("external_reference_value") => Some(ScopeField::ExternalReferenceValue),
            _ => None,
        };
        let bindings = query.text("query_field") == Some("binding_external_id")
            || query.text("binding_integration").is_some()
            || query.text("binding_kind").is_some();
        let filter = ScopeFilter {
            parent_scope_id: query.text("parent_scope_id").map(|id| scope_id("query", id)).transpose()?,
            external_reference_kind: query.text("external_reference_kind").map(str::to_owned),
            query: field.zip(text.map(str::to_owned)),
        };
        let limit = query.integer("limit", DEFAULT_LIMIT);
        let texts: Vec<Option<&str>> = LIST_PARAMETERS
            .iter()
            .filter(|parameter| !matches!(parameter.name, "limit" | "cursor"))
            .map(|parameter| query.text(parameter.name))
            .collect();
        Ok(Self {
            filter: (!bindings).then_some(filter),
            limit,
            cursor: query.text("cursor").map(str::to_owned),
            binding: format!("list_scopes {}", json!([texts, limit])),
        })
    }
}

/// `GET /v1/scopes`: ascending by id; a page ends with a cursor only when another Scope follows.
pub async fn list(State(app): State<App>, request: ListScopes) -> Result<Json<Value>, ApiError> {
    let after = match &request.cursor {
        Some(cursor) => {
            let place = cursor::decode(&request.binding, cursor)?;
            Some(ScopeId::parse(place).map_err(|_| ApiError::invalid_cursor())?)
        }
        None => None,
    };
    let Some(filter) = &request.filter else {
        return Ok(Json(json!({"items": [], "next_cursor": null})));
    };
    let mut found = scopes::list(app.store(), filter, after.as_ref(), request.limit + 1).await?;
    let limit = request.limit as usize;
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| more);
    let next_cursor = last.map(|scope| cursor::encode(&request.binding, scope.scope_id.as_str()));
    let items: Vec<Value> = found.iter().map(view).collect();
    Ok(Json(json!({"items": items, "next_cursor": next_cursor})))
}

fn scope_ids(texts: &[String]) -> Result<Vec<ScopeId>, ApiError> {
    texts.iter().map(|text| scope_id("body", text)).collect()
}

fn external(references: Vec<ExternalReferenceBody>) -> Vec<ExternalReference> {
    let one = |ExternalReferenceBody { kind, value }| ExternalReference { kind, value };
    references.into_iter().map(one).collect()
}

fn view(scope: &Scope) -> Value {
    let external: Vec<Value> = scope
        .external_references
        .iter()
        .map(|reference| json!({"kind": reference.kind, "value": reference.value}))
        .collect();
    json!({
        "scope_id": scope.scope_id,
        "title": scope.title,
        "summary": scope.summary,
        "parent_scope_id": scope.parent_scope_id,
        "context_references": scope.context_references,
        "external_references": external,
        "version": scope.version,
    })
}
