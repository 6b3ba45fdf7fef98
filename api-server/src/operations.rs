//! The one table of operations: the router and the API description are both built from it.

use axum::Json;
use axum::extract::{DefaultBodyLimit, MatchedPath};
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Router, middleware};
use serde_json::Value;

use crate::app::App;
use crate::contract as shapes;
use crate::error::ApiError;
use crate::extract::Parameter;
use crate::schema::Object;
use crate::{envelope, health, openapi, scopes, sources, topics};

/// One operation of the API.
pub struct Operation {
    /// Its id; the same as in the contract.
    pub id: &'static str,
    /// Its method.
    pub method: &'static str,
    /// Its path template.
    pub path: &'static str,
    /// What it belongs to.
    pub tag: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Its query parameters.
    pub query: &'static [Parameter],
    /// Its body.
    pub body: Option<&'static Object>,
    /// Its success status and answer; no shape means any JSON object.
    pub answer: (u16, Option<&'static Object>),
    /// The statuses of its errors, 500 and 503 apart.
    pub errors: &'static [u16],
    mount: fn() -> MethodRouter<App>,
}

macro_rules! operation {
    ($method:ident $path:literal, $id:literal, $tag:literal, $summary:literal,
     query: $query:expr, body: $body:expr, answer: $answer:expr, errors: $errors:expr, $handler:path) => {
        Operation {
            id: $id,
            method: stringify!($method),
            path: $path,
            tag: $tag,
            summary: $summary,
            query: $query,
            body: $body,
            answer: $answer,
            errors: $errors,
            mount: || mount(MethodFilter::$method, $handler),
        }
    };
}

fn mount<H: Handler<T, App>, T: 'static>(method: MethodFilter, handler: H) -> MethodRouter<App> {
    on(method, handler)
}

/// Every operation there is.
pub static OPERATIONS: &[Operation] = &[
    operation!(GET "/health/live", "get_liveness", "health", "Whether the process is alive",
        query: &[], body: None, answer: (200, Some(&shapes::HEALTH)), errors: &[], health::live),
    operation!(GET "/health/ready", "get_readiness", "health", "Whether the server can serve",
        query: &[], body: None, answer: (200, Some(&shapes::READINESS)), errors: &[], health::ready),
    operation!(GET "/v1/capabilities", "get_capabilities", "capabilities", "What this server can do",
        query: &[], body: None, answer: (200, Some(&shapes::CAPABILITIES)), errors: &[],
        health::capabilities),
    operation!(GET "/v1/scopes", "list_scopes", "scopes", "List Scopes by id",
        query: scopes::LIST_PARAMETERS, body: None, answer: (200, Some(&shapes::SCOPE_PAGE)),
        errors: &[400, 422], scopes::list),
    operation!(POST "/v1/scopes", "create_scope", "scopes", "Create a Scope",
        query: &[], body: Some(&shapes::CREATE_SCOPE), answer: (201, Some(&shapes::SCOPE)),
        errors: &[404, 409, 413, 422], scopes::create),
    operation!(GET "/v1/scopes/default", "get_default_scope", "scopes", "Read the default Scope",
        query: &[], body: None, answer: (200, Some(&shapes::SCOPE)), errors: &[404],
        scopes::get_default),
    operation!(PUT "/v1/scopes/default", "set_default_scope", "scopes", "Choose the default Scope",
        query: &[], body: Some(&shapes::SET_DEFAULT_SCOPE), answer: (200, Some(&shapes::SCOPE)),
        errors: &[404, 413, 422], scopes::set_default),
    operation!(GET "/v1/scopes/{scope_id}", "get_scope", "scopes", "Read a Scope",
        query: &[], body: None, answer: (200, Some(&shapes::SCOPE)), errors: &[404, 422], scopes::get),
    operation!(PUT "/v1/scopes/{scope_id}", "update_scope", "scopes", "Replace a Scope's state",
        query: &[], body: Some(&shapes::UPDATE_SCOPE), answer: (200, Some(&shapes::SCOPE)),
        errors: &[404, 409, 413, 422], scopes::update),
    operation!(GET "/v1/scopes/{scope_id}/sources", "list_sources", "sources", "List Sources by position",
        query: sources::LIST_PARAMETERS, body: None, answer: (200, Some(&shapes::SOURCE_PAGE)),
        errors: &[400, 404, 422], sources::list),
    operation!(POST "/v1/scopes/{scope_id}/sources", "create_source", "sources", "Capture any JSON value",
        query: &[], body: Some(&shapes::CREATE_SOURCE), answer: (201, Some(&shapes::SOURCE)),
        errors: &[404, 413, 422], sources::create),
    operation!(GET "/v1/scopes/{scope_id}/sources/{source_type}/{source_id}", "get_source", "sources",
        "Read one Source", query: &[], body: None, answer: (200, Some(&shapes::SOURCE)),
        errors: &[404, 422], sources::get),
    operation!(POST "/v1/sources/content", "capture_content_source", "sources",
        "Capture a text under an id of the caller", query: &[], body: Some(&shapes::CAPTURE),
        answer: (202, Some(&shapes::CAPTURED)), errors: &[404, 409, 413, 422], sources::capture),
    operation!(POST "/v1/topic-memory/flush", "flush_topic_memory", "topic-memory",
        "Ask for Topic processing of what was captured", query: &[], body: Some(&shapes::FLUSH),
        answer: (200, Some(&shapes::FLUSHED)), errors: &[404, 413, 422], topics::flush),
    operation!(POST "/v1/topic-memory/search", "search_topic_memory", "topic-memory",
        "Search current Topics", query: &[], body: Some(&shapes::SEARCH),
        answer: (200, Some(&shapes::HITS)), errors: &[404, 413, 422], topics::search),
    operation!(POST "/v1/topic-memory/get", "get_topic_memory", "topic-memory",
        "Read one exact Revision of a Topic", query: &[], body: Some(&shapes::GET_TOPIC),
        answer: (200, Some(&shapes::TOPIC)), errors: &[404, 413, 422], topics::get),
    operation!(GET "/openapi.json", "get_api_description", "description", "This description",
        query: &[], body: None, answer: (200, None), errors: &[], description),
];

async fn description() -> Json<&'static Value> {
    Json(openapi::document())
}

/// The whole API over one application state.
pub fn router(app: App) -> Router {
    OPERATIONS
        .iter()
        .fold(Router::new(), |router, operation| router.route(operation.path, (operation.mount)()))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::disable()) // `intake` bounds bodies by the setting
        .layer(middleware::from_fn_with_state(app.clone(), envelope::around))
        .with_state(app)
}

async fn unknown_path() -> ApiError {
    ApiError::unknown_path()
}

async fn wrong_method(path: MatchedPath) -> Response {
    not_allowed(path.as_str())
}

/// Whether an operation exists and reads a body.
pub fn takes_body(method: &Method, path: &str) -> bool {
    let is_it = |operation: &&Operation| operation.path == path && operation.method == method.as_str();
    OPERATIONS.iter().find(is_it).is_some_and(|operation| operation.body.is_some())
}

/// 405 with the methods of a path template.
pub fn not_allowed(path: &str) -> Response {
    let methods: Vec<&str> = OPERATIONS
        .iter()
        .filter(|operation| operation.path == path)
        .map(|operation| operation.method)
        .collect();
    let mut response = ApiError::wrong_method().into_response();
    if let Ok(allow) = HeaderValue::from_str(&methods.join(", ")) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}
