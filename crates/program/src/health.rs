//! What a program says about itself: that it lives, and whether it is ready to be used.
//!
//! Liveness asks nobody. Readiness asks the database, within a time. Whether Topics are processed is a
//! reason to take a process out of service only where no other one could: on SQLite. Who leads and what is
//! closed is read from the database as well, at most once per [`LOOK_AGAIN`] however often it is asked for.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use powercontext_core::ambient::{Clock, Monotonic};
use powercontext_core::work::Fence;
use powercontext_store::{Store, StoreError, budgets, leases};
use powercontext_supervisor::WaveStatus;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::processing::ProcessingState;

const DATABASE_TIME: Duration = Duration::from_secs(2);
/// How old what is told of the database's content may be.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Closed frontiers are counted up to this number, so that telling them stays cheap.
const MOST_CLOSED: u32 = 10_000;

/// The answer of a process that lives.
pub fn live() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Answers whether a process is ready.
pub struct Readiness {
    store: Store,
    clock: Arc<dyn Clock>,
    seen: Mutex<Option<(Monotonic, Seen)>>,
}

/// What the database says beside being there.
#[derive(Clone)]
struct Seen {
    newest_term: Option<Fence>,
    closed: u64,
}

impl Seen {
    /// Whether it was read after the own term began.
    fn is_as_new_as(&self, state: &ProcessingState) -> bool {
        match state {
            ProcessingState::Leader { generation, .. } => {
                self.newest_term.as_ref().is_some_and(|term| term.generation.get() >= *generation)
            }
            _ => true,
        }
    }
}

impl Readiness {
    /// Looks at this database.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, seen: Mutex::new(None) }
    }

    /// Readiness as the contract has it: one word per check, numbers as texts.
    ///
    /// `state` is where the processing of Topics stands, `None` when there is none; `more` are further
    /// checks of the program, in order.
    pub async fn answer(
        &self,
        stopping: bool,
        state: Option<ProcessingState>,
        more: &[(&str, &str)],
    ) -> (StatusCode, Json<Value>) {
        let (answered, seen) = tokio::join!(
            tokio::time::timeout(DATABASE_TIME, self.store.ping()),
            tokio::time::timeout(DATABASE_TIME, self.look(state.as_ref())),
        );
        let database = matches!(answered, Ok(Ok(())));
        let (code, status) = match state {
            _ if !database || stopping => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
            Some(ProcessingState::Starting | ProcessingState::Stopped { shared: false }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
            }
            Some(ProcessingState::Stopped { shared: true }) => (StatusCode::OK, "degraded"),
            _ => (StatusCode::OK, "ready"),
        };
        let mut checks = json!({
            "runtime": if stopping { "stopping" } else { "ready" },
            "database": if database { "ready" } else { "unavailable" },
            "artifact_processing_supervisor": state.as_ref().map_or("disabled", ProcessingState::word),
        });
        for (check, word) in more {
            checks[*check] = json!(word);
        }
        if let Some(state) = &state {
            tell(&mut checks, state, seen.ok().flatten().as_ref());
        }
        (code, Json(json!({"status": status, "checks": checks})))
    }

    /// What the database says, for a process that dispatches or would; `None` for others and when it
    /// cannot be read.
    async fn look(&self, state: Option<&ProcessingState>) -> Option<Seen> {
        if !matches!(
            state?,
            ProcessingState::Ready(_) | ProcessingState::Leader { .. } | ProcessingState::Candidate
        ) {
            return None;
        }
        // Held while reading, so that many questions at once become one look.
        let mut seen = self.seen.lock().await;
        let now = self.clock.monotonic();
        match &*seen {
            Some((at, known)) if now.saturating_sub(*at) < LOOK_AGAIN && known.is_as_new_as(state?) => {
                Some(known.clone())
            }
            _ => {
                let new = self.read().await.ok()?;
                *seen = Some((now, new.clone()));
                Some(new)
            }
        }
    }

    async fn read(&self) -> Result<Seen, StoreError> {
        let newest_term = leases::current(&self.store).await?;
        Ok(Seen { newest_term, closed: budgets::count_closed(&self.store, MOST_CLOSED).await? })
    }
}

/// Adds who leads and what waits.
fn tell(checks: &mut Value, state: &ProcessingState, seen: Option<&Seen>) {
    let newest = seen.and_then(|seen| seen.newest_term.as_ref());
    let leader = match state {
        // What was seen may be of a later term.
        ProcessingState::Leader { generation, .. } => {
            checks["supervisor_generation"] = json!(generation.to_string());
            newest.filter(|term| term.generation.get() == *generation)
        }
        ProcessingState::Candidate => newest,
        _ => None,
    };
    if let Some(Fence { holder, generation }) = leader {
        checks["supervisor_holder"] = json!(holder.as_str());
        checks["supervisor_generation"] = json!(generation.get().to_string());
    }
    let Some(work) = state.work() else { return };
    checks["topic_memory_unanswered_scopes"] = json!(work.unanswered.to_string());
    if let Some(Seen { closed, .. }) = seen {
        checks["topic_memory_terminal_frontiers"] = json!(closed.to_string());
    }
    // There is one binding, so there is one wave at most.
    if let Some(WaveStatus { binding, open_for, uncovered, terminal, ready, .. }) = work.waves.first() {
        checks["automatic_wave_binding"] = json!(binding.as_str());
        checks["automatic_wave_open_seconds"] = json!(open_for.as_secs().to_string());
        checks["automatic_wave_uncovered_scopes"] = json!(uncovered.to_string());
        checks["automatic_wave_terminal_scopes"] = json!(terminal.to_string());
        checks["automatic_wave_ready_scopes"] = json!(ready.to_string());
    }
}

#[cfg(test)]
mod tests {
    use powercontext_core::ambient::{SystemClock, SystemIds};
    use powercontext_core::ids::HolderId;
    use powercontext_store::{DatabaseUrl, StoreOptions, migrate};

    use super::*;
    use crate::processing::Work;

    #[tokio::test]
    async fn a_new_leader_is_named_at_once_whatever_was_seen_before_its_term() {
        // TM-178
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::new(DatabaseUrl::file(&folder.path().join("a.sqlite3")));
        migrate(&options, &SystemIds).await.unwrap();
        let store = Store::open(&options).await.unwrap();
        let readiness = Readiness::new(store.clone(), Arc::new(SystemClock::start()));
        let holder = async |state| {
            let (_, Json(answer)) = readiness.answer(false, Some(state), &[]).await;
            answer["checks"]["supervisor_holder"].clone()
        };
        assert_eq!(holder(ProcessingState::Candidate).await, Value::Null);
        let own = HolderId::parse("own").unwrap();
        let generation = leases::begin_embedded_term(&store, &own).await.unwrap().get();
        let leader = ProcessingState::Leader { generation, work: Work::default() };
        assert_eq!(holder(leader).await, json!("own"));
        store.close().await;
    }
}
