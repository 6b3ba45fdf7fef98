//! A database prepared without a server, and workers started by hand on it: what a supervisor of
//! any term, or two at once, could have started.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use powercontext_core::ambient::SystemIds;
use powercontext_core::content;
use powercontext_core::ids::{BindingName, FlushGeneration, HolderId, Position, ScopeId, SourceId};
use powercontext_core::topic::BINDING;
use powercontext_core::work::{Fence, Outcome, WorkAssignment, WorkKey, WorkMode};

use powercontext_store::sources::NewSource;
use powercontext_store::{DatabaseUrl, Store, StoreOptions, leases, migrate, pending, scopes, sources};
use serde_json::Value;

use crate::server::{BUILTIN, Setup, program};

/// Longer than any test, for a term on a shared database.
const TERM: Duration = Duration::from_secs(600);

/// One Scope with captured Sources, an explicit flush and a current term.
pub struct Scene {
    /// The open store.
    pub store: Store,
    /// Where it lies.
    pub setup: Setup,
    /// Binding and Scope.
    pub key: WorkKey,
    /// The current term.
    pub fence: Fence,
    /// The last position.
    pub head: Position,
}

impl Scene {
    /// Captures `texts` in the database of a server that is not running and flushes them.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn new(setup: Setup, texts: &[&str]) -> Self {
        let options = StoreOptions::new(DatabaseUrl::parse(&setup.database_url()).expect("a URL"));
        migrate(&options, &SystemIds).await.expect("a schema");
        let store = Store::open(&options).await.expect("a store");
        let scope = scopes::default(&store).await.expect("a read").expect("a default Scope").scope_id;
        for (number, text) in texts.iter().enumerate() {
            let canonical = content::canonical(&Value::from(*text)).expect("a text");
            let new = NewSource {
                scope: scope.clone(),
                source_id: SourceId::parse(format!("s{number}")).expect("an id"),
                content_digest: content::digest(&canonical),
                content_json: canonical,
                metadata_json: None,
            };
            sources::add(&store, &new).await.expect("a capture");
        }
        let key = WorkKey { binding: BindingName::parse(BINDING).expect("a binding"), scope };
        pending::flush(&store, &key).await.expect("a flush");
        let fence = new_term(&store, "first").await;
        let head = Position::new(i64::try_from(texts.len()).expect("few texts"));
        Self { store, setup, key, fence, head }
    }

    /// The Scope.
    #[must_use]
    pub fn scope(&self) -> &ScopeId {
        &self.key.scope
    }

    /// The assignment of the whole backlog under `fence`.
    #[must_use]
    pub fn assignment(&self, fence: &Fence) -> WorkAssignment {
        WorkAssignment {
            key: self.key.clone(),
            fence: fence.clone(),
            source_after: Position::new(0),
            wave_target: self.head,
            claimed_flush_generation: FlushGeneration::new(1),
            mode: WorkMode::Explicit,
        }
    }

    /// Starts a real worker process on an assignment.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_worker(&self, assignment: &WorkAssignment) -> Child {
        Command::new(program("powercontext-worker"))
            .args(["--assignment", &serde_json::to_string(assignment).expect("an assignment")])
            .env("POWERCONTEXT_SERVER_DATABASE_URL", self.setup.database_url())
            .env("POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL", BUILTIN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the worker starts")
    }
}

/// Begins a new term, which ends the one before, and returns its fence.
///
/// # Panics
/// When the store refuses.
pub async fn new_term(store: &Store, holder: &str) -> Fence {
    let holder = HolderId::parse(holder).expect("a holder");
    let generation = if store.is_shared() {
        if let Some(fence) = leases::current(store).await.expect("a read") {
            leases::release(store, &fence).await.expect("an answer");
        }
        leases::acquire(store, &holder, TERM).await.expect("an answer").expect("a free lease")
    } else {
        leases::begin_embedded_term(store, &holder).await.expect("a term")
    };
    Fence { holder, generation }
}

/// The outcome a worker printed last.
///
/// # Panics
/// When it printed none.
#[must_use]
pub fn outcome(output: &Output) -> Outcome {
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(said.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("no outcome: {said}{}", String::from_utf8_lossy(&output.stderr)))
}
