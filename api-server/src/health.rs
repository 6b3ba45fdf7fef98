//! `/health` and `/v1/capabilities`: whether the process lives, is ready, and what it can do.
//!
//! What readiness looks at is decided for all programs in one place; what a client may do is decided
//! here.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use powercontext_core::topic::FAMILY;
use powercontext_program::health;
use serde_json::{Map, Value, json};

use crate::app::{App, Processing};

/// The prompts of Topic processing that exist here.
const PROMPTS: [&str; 3] = ["topic_memory.probe", "topic_memory.global", "topic_memory.reconcile"];

/// `GET /health/live`
pub async fn live() -> Json<Value> {
    health::live()
}

/// `GET /health/ready`
pub async fn ready(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let state = app.processing().map(Processing::state);
    app.readiness().answer(app.is_draining(), state, &[("access_mode", "disabled")]).await
}

/// `GET /v1/capabilities`: what exists in this server and nothing else.
pub async fn capabilities(State(app): State<App>) -> Json<Value> {
    let (status, reason) = match app.absence() {
        None => ("supported", None),
        // The contract has one reason for both.
        Some(absence) => (absence.word(), Some("provider_not_configured")),
    };
    let prompts: Map<String, Value> = PROMPTS
        .iter()
        .map(|name| {
            let capability = json!({
                "status": status,
                "reason": reason,
                "definition_version": format!("powercontext.prompt.{name}.v1"),
                "builtin_version": format!("powercontext.{name}.v1"),
                "builtin_profile": null,
            });
            ((*name).to_owned(), capability)
        })
        .collect();
    Json(json!({
        "prompts": prompts,
        "artifact_dreaming": false,
        "source_types": ["content"],
        "artifact_families": [FAMILY],
        "memory_extraction": false,
        "experience_generation": false,
        "managed_skill_generation": false,
        "external_skill_registry": false,
        "handoff_generation": false,
        "search_modes": [],
        "context_versions": [],
    }))
}
