//! What a client is told when a request fails: a status, a stable code, public words.
//!
//! Every error of another crate becomes an [`ApiError`] in one `match` without `_`, so a new variant
//! has to choose its answer here. Causes stay behind as [`Cause`] for the log and are never sent.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use powercontext_core::failure::chain;
use powercontext_store::StoreError;
use powercontext_store::pending::FlushError;
use powercontext_store::scopes::{CreateScopeError, SetDefaultError, UpdateScope, UpdateScopeError};
use powercontext_store::sources::{AddSourceError, ReadSourcesError};
use serde_json::{Value, json};

/// An answer other than success.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: &'static str,
    details: Option<Box<Value>>,
    cause: Option<Cause>,
}

/// The chain of errors behind an answer; travels to the log in the response's extensions.
#[derive(Clone, Debug)]
pub struct Cause(pub String);

/// One thing that is wrong with a request, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The path: `body`, `query` or `path`, then names and list positions.
    pub loc: Vec<Value>,
    /// A stable word for the kind of mistake.
    pub kind: &'static str,
    /// The rule in words; never the offending value.
    pub rule: String,
}

impl ApiError {
    const fn new(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message, details: None, cause: None }
    }

    fn with(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// 422 with the offending paths.
    #[must_use]
    pub fn invalid(problems: &[Problem]) -> Self {
        Self::invalid_at(StatusCode::UNPROCESSABLE_ENTITY, problems)
    }

    /// The same with another status; query parameters below a Scope answer 400.
    #[must_use]
    pub fn invalid_at(status: StatusCode, problems: &[Problem]) -> Self {
        let errors: Vec<Value> = problems
            .iter()
            .map(|problem| json!({"type": problem.kind, "loc": problem.loc, "msg": problem.rule}))
            .collect();
        Self::new(status, "invalid_request", "The request does not follow the contract.")
            .with(json!({ "errors": errors }))
    }

    /// 422 for a rule that no schema can express.
    #[must_use]
    pub fn invalid_field(field: &'static str, reason: &'static str) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", "The request is not valid.")
            .with(json!({"field": field, "reason": reason}))
    }

    /// 422 for a body that is no JSON text or does not say that it is.
    #[must_use]
    pub fn not_json(problem: Problem) -> Self {
        let mut error = Self::invalid(&[problem]);
        error.message = "The request body is not JSON.";
        error
    }

    /// 400 for a body that is not text in UTF-8 or is nested too deep.
    #[must_use]
    pub const fn unreadable() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unreadable_body", "The request body cannot be read.")
    }

    /// 413.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", "The request body is too large.")
            .with(json!({ "max_body_bytes": limit }))
    }

    /// 408: the body did not arrive in time.
    #[must_use]
    pub const fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request body did not arrive in time.")
    }

    /// 400 for a cursor that this server did not issue for this very request.
    #[must_use]
    pub fn invalid_cursor() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_cursor",
            "The page cursor is not valid or belongs to another request.",
        )
        .with(json!({"field": "cursor", "reason": "is invalid"}))
    }

    /// 404 for a path that no operation has.
    #[must_use]
    pub const fn unknown_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "There is no such path.")
    }

    /// 405; the caller adds `Allow`.
    #[must_use]
    pub const fn wrong_method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "The path does not support this method.",
        )
    }

    /// 404 for a Scope.
    #[must_use]
    pub const fn scope_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "scope_not_found", "The Scope does not exist.")
    }

    /// 404 for a Source.
    #[must_use]
    pub const fn source_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "source_not_found", "The Source does not exist.")
    }

    /// 404 for an exact Revision of an Artifact (B-19).
    #[must_use]
    pub const fn artifact_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "artifact_not_found", "The Artifact does not exist.")
    }

    /// 503: no supported generation model is configured, so nothing would ever process a flush (B-17).
    #[must_use]
    pub const fn processing_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "topic_memory_processing_unavailable",
            "Topic processing is not available on this server.",
        )
    }

    /// 503: too many requests at once.
    #[must_use]
    pub const fn overloaded() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server_overloaded",
            "The server has too many requests in progress.",
        )
    }

    /// 503: the database cannot be used.
    #[must_use]
    pub fn database_unavailable(cause: impl Into<String>) -> Self {
        let mut error = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "database_unavailable",
            "The database cannot be used at the moment.",
        );
        error.cause = Some(Cause(cause.into()));
        error
    }

    /// 500 for a defect of this server.
    #[must_use]
    pub fn internal(cause: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "The server failed.");
        error.cause = Some(Cause(cause.into()));
        error
    }

    fn scope_relationship(relationship: &'static str, issue: &'static str) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_scope_relationship",
            "The relationship between Scopes is not allowed.",
        )
        .with(json!({"relationship": relationship, "issue": issue}))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({
            "error": {"code": self.code, "message": self.message, "details": self.details}
        });
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE
            && self.code != "topic_memory_processing_unavailable"
        {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Unavailable { .. } => Self::database_unavailable(chain(&error)),
            StoreError::Invalid { .. } => Self::internal(chain(&error)),
        }
    }
}

impl From<CreateScopeError> for ApiError {
    fn from(error: CreateScopeError) -> Self {
        match error {
            CreateScopeError::IdempotencyConflict => Self::new(
                StatusCode::CONFLICT,
                "scope_idempotency_conflict",
                "The idempotency key was used with other parameters.",
            ),
            CreateScopeError::ScopeNotFound => Self::scope_not_found(),
            CreateScopeError::InvalidRelationship => {
                Self::scope_relationship("Parent", "a Scope cannot be related to itself")
            }
            CreateScopeError::Store(error) => error.into(),
        }
    }
}

impl From<SetDefaultError> for ApiError {
    fn from(error: SetDefaultError) -> Self {
        match error {
            SetDefaultError::ScopeNotFound => Self::scope_not_found(),
            SetDefaultError::Store(error) => error.into(),
        }
    }
}

impl ApiError {
    /// The answer to a failed update.
    #[must_use]
    pub fn from_update(error: UpdateScopeError, update: &UpdateScope) -> Self {
        let expected = update.expected_version;
        match error {
            UpdateScopeError::ScopeNotFound => Self::scope_not_found(),
            UpdateScopeError::VersionConflict { current } => Self::new(
                StatusCode::CONFLICT,
                "scope_version_conflict",
                "The Scope has another version by now.",
            )
            .with(json!({"expected_version": expected, "current_version": current})),
            UpdateScopeError::InvalidRelationship => {
                let own = &update.scope_id;
                let refers = update.context_references.contains(own);
                if refers && update.parent_scope_id.as_ref() != Some(own) {
                    Self::scope_relationship("Context Reference", "a Scope cannot refer to itself")
                } else {
                    Self::scope_relationship("Parent", "a Scope cannot be its own ancestor")
                }
            }
            UpdateScopeError::Store(error) => error.into(),
        }
    }
}

impl From<AddSourceError> for ApiError {
    fn from(error: AddSourceError) -> Self {
        match error {
            AddSourceError::ScopeNotFound => Self::scope_not_found(),
            AddSourceError::Conflict => Self::new(
                StatusCode::CONFLICT,
                "source_conflict",
                "The Source exists with other content or metadata.",
            ),
            AddSourceError::Store(error) => error.into(),
        }
    }
}

impl From<ReadSourcesError> for ApiError {
    fn from(error: ReadSourcesError) -> Self {
        match error {
            ReadSourcesError::ScopeNotFound => Self::scope_not_found(),
            ReadSourcesError::Store(error) => error.into(),
        }
    }
}

impl From<FlushError> for ApiError {
    fn from(error: FlushError) -> Self {
        match error {
            FlushError::ScopeNotFound => Self::scope_not_found(),
            FlushError::Store(error) => error.into(),
        }
    }
}
