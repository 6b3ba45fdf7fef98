//! What readiness says of the processing of Topics.

use std::sync::Arc;
use std::time::Duration;

use powercontext_api_server::Processing;
use powercontext_core::ambient::SystemIds;
use powercontext_core::ids::{AttemptId, BindingName, HolderId, Position, ScopeId, WaveId};
use powercontext_core::topic::BINDING;
use powercontext_core::work::{Fence, Frontier, WorkKey};
use powercontext_program::{ProcessingState, Work};
use powercontext_store::{budgets, leases};
use powercontext_supervisor::WaveStatus;
use serde_json::json;

use crate::common::server;

/// Processing that stands where it stands.
struct Standstill(ProcessingState);

impl Processing for Standstill {
    fn wake(&self) {}

    fn state(&self) -> ProcessingState {
        self.0.clone()
    }
}

#[tokio::test]
async fn a_process_that_alone_may_process_is_ready_while_it_does_and_others_whoever_does() {
    for (state, status, word) in [
        (ProcessingState::Starting, 503, "not_ready"),
        (ProcessingState::Ready(Work::default()), 200, "ready"),
        (ProcessingState::Stopped { shared: false }, 503, "not_ready"),
        (ProcessingState::Stopped { shared: true }, 200, "degraded"),
        (ProcessingState::Candidate, 200, "ready"),
        (ProcessingState::Remote, 200, "ready"),
    ] {
        let server = server(Some(Arc::new(Standstill(state.clone())))).await;
        let answer = server.get("/health/ready").await;
        assert_eq!((answer.status, &answer.body["status"]), (status, &json!(word)), "{state:?}");
        assert_eq!(answer.body["checks"]["artifact_processing_supervisor"], state.word());
    }
}

#[tokio::test]
async fn an_open_wave_and_a_frontier_that_closed_without_a_flush_are_told() {
    // TM-069, B-28
    let binding = BindingName::parse(BINDING).unwrap();
    let wave = WaveStatus {
        binding: binding.clone(),
        id: WaveId::generate(&SystemIds),
        open_for: Duration::from_millis(65_900),
        uncovered: 7,
        terminal: 1,
        ready: 4,
    };
    let work = Work { unanswered: 0, waves: vec![wave] };
    let server = server(Some(Arc::new(Standstill(ProcessingState::Ready(work))))).await;
    let scope = server.scope("s").await;
    server.post(&format!("/v1/scopes/{scope}/sources"), json!({"content": "x"})).await;
    let (store, holder) = (server.app.store(), HolderId::parse("h").unwrap());
    let generation = leases::begin_embedded_term(store, &holder).await.unwrap();
    let key = WorkKey { binding, scope: ScopeId::parse(scope).unwrap() };
    let frontier = Frontier { key, source_after: Position::default() };
    let fence = Fence { holder, generation };
    for attempt in ["a", "b", "c"] {
        budgets::start_attempt(store, &fence, &frontier, &AttemptId::parse(attempt).unwrap()).await.unwrap();
    }
    let checks = server.get("/health/ready").await.body["checks"].clone();
    for (check, value) in [
        ("topic_memory_unanswered_scopes", "0"),
        ("topic_memory_terminal_frontiers", "1"),
        ("automatic_wave_binding", BINDING),
        ("automatic_wave_open_seconds", "65"),
        ("automatic_wave_uncovered_scopes", "7"),
        ("automatic_wave_terminal_scopes", "1"),
        ("automatic_wave_ready_scopes", "4"),
    ] {
        assert_eq!(checks[check], value, "{check}: {checks}");
    }
}
