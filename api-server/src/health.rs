//! `/health` and `/v1/capabilities`: whether the process lives, is ready, and what it can do.
//!
//! Liveness asks nobody. Readiness asks the database, within a time. A switched-off or stopped
//! supervisor is a capability, not a reason to take the server out of service.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use powercontext_core::topic::FAMILY;
use serde_json::{Map, Value, json};

use crate::app::{App, Processing};

const DATABASE_TIME: Duration = Duration::from_secs(2);
/// The prompts of Topic processing that exist here.
const PROMPTS: [&str; 3] = ["topic_memory.probe", "topic_memory.global", "topic_memory.reconcile"];

/// `GET /health/live`
pub async fn live() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// `GET /health/ready`
pub async fn ready(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let answered = tokio::time::timeout(DATABASE_TIME, app.store().ping()).await;
    let database = matches!(answered, Ok(Ok(())));
    let supervisor = match app.processing().map(Processing::is_running) {
        None => "disabled",
        Some(true) => "ready",
        Some(false) => "stopped",
    };
    let (code, status) = match (database && !app.is_draining(), supervisor) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
        (true, "stopped") => (StatusCode::OK, "degraded"),
        (true, _) => (StatusCode::OK, "ready"),
    };
    let mut checks = json!({
        "runtime": if app.is_draining() { "stopping" } else { "ready" },
        "database": if database { "ready" } else { "unavailable" },
        "artifact_processing_supervisor": supervisor,
        "access_mode": "disabled",
    });
    if let Some(backlog) = app.processing().map(Processing::backlog) {
        // Texts, because clients of the contract expect one word per check.
        checks["topic_memory_unanswered_scopes"] = json!(backlog.unanswered.to_string());
        checks["topic_memory_terminal_frontiers"] = json!(backlog.terminal.to_string());
    }
    (code, Json(json!({"status": status, "checks": checks})))
}

/// `GET /v1/capabilities`: what exists in this server and nothing else.
pub async fn capabilities(State(app): State<App>) -> Json<Value> {
    let (status, reason) = match app.processing() {
        Some(_) => ("supported", None),
        None => ("disabled", Some("provider_not_configured")),
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
