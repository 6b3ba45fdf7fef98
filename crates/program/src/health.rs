//! What a program says about itself: that it lives, and whether it is ready to be used.
//!
//! Liveness asks nobody. Readiness asks the database, within a time. Whether Topics are processed,
//! here or elsewhere, is told and never a reason to take a program out of service.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use powercontext_store::Store;
use serde_json::{Value, json};

use crate::processing::{Backlog, Standing};

const DATABASE_TIME: Duration = Duration::from_secs(2);

/// The answer of a process that lives.
pub fn live() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Readiness as the contract has it: one word per check, numbers as texts.
///
/// `standing` is where the processing of Topics stands, `None` when there is none; `more` are further
/// checks of the program, in order.
pub async fn ready(
    store: &Store,
    stopping: bool,
    standing: Option<Standing>,
    more: &[(&str, &str)],
) -> (StatusCode, Json<Value>) {
    let answered = tokio::time::timeout(DATABASE_TIME, store.ping()).await;
    let database = matches!(answered, Ok(Ok(())));
    let (code, status) = match standing {
        _ if !database || stopping => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
        Some(Standing::Stopped) => (StatusCode::OK, "degraded"),
        _ => (StatusCode::OK, "ready"),
    };
    let mut checks = json!({
        "runtime": if stopping { "stopping" } else { "ready" },
        "database": if database { "ready" } else { "unavailable" },
        "artifact_processing_supervisor": standing.map_or("disabled", Standing::word),
    });
    for (check, word) in more {
        checks[*check] = json!(word);
    }
    if let Some(Standing::Leader { generation, .. }) = standing {
        checks["supervisor_generation"] = json!(generation.to_string());
    }
    if let Some(Backlog { unanswered, terminal }) = standing.and_then(Standing::backlog) {
        checks["topic_memory_unanswered_scopes"] = json!(unanswered.to_string());
        checks["topic_memory_terminal_frontiers"] = json!(terminal.to_string());
    }
    (code, Json(json!({"status": status, "checks": checks})))
}
