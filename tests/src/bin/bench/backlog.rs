//! A leader that starts over 100,000 keys with unanswered flushes: what it reads, holds and does first.
//!
//! The supervisor runs in this process over the real database. Its workers end at once without having done
//! anything, so that the leader alone is measured and every key fails, which is what it remembers longest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use powercontext_core::ambient::{IdSource as _, SystemClock, SystemIds};
use powercontext_core::ids::{HolderId, ScopeId, SupervisorGeneration};
use powercontext_core::topic::BINDING;
use powercontext_core::work::{Ending, Fence, WorkAssignment, WorkKey};
use powercontext_store::{DatabaseUrl, Store, StoreOptions, migrate};
use powercontext_supervisor::facts::{
    AutoWave, Completion, DurableFacts, FactsError, Freeze, LateFact, PendingFact, TargetFact,
};
use powercontext_supervisor::{
    LaunchError, Launcher, Phase, Supervisor, SupervisorSettings, WorkerEnding, WorkerId,
};
use powercontext_tests::engine;
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::sync::mpsc;

use crate::figures::{millis, now, resident_megabytes, row};

const KEYS: usize = 100_000;
/// How many passes are watched.
const TICKS: u32 = 20;

/// Measures on a new database of the engine and prints.
pub async fn print(url: &str) {
    let options = StoreOptions::new(DatabaseUrl::parse(url).expect("a URL"));
    migrate(&options, &SystemIds).await.expect("a schema");
    let store = Store::open(&options).await.expect("a store");
    fill(url).await;

    let before = resident_megabytes(std::process::id());
    let facts = Arc::new(Counted { store: store.clone(), rows: AtomicU64::new(0), won: Mutex::new(None) });
    let launcher = Arc::new(Noted::new());
    let settings = SupervisorSettings::default();
    let tick = settings.tick;
    let handle = Supervisor::start_on(
        Arc::clone(&facts) as Arc<dyn DurableFacts>,
        Arc::clone(&launcher) as Arc<dyn Launcher>,
        (Arc::new(SystemClock::start()), Arc::new(SystemIds)),
        settings,
    );
    while handle.status().phase != Phase::Running {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut most_rows = 0;
    let mut most_memory: f64 = 0.0;
    for _ in 0..TICKS {
        tokio::time::sleep(tick).await;
        most_rows = most_rows.max(facts.rows.swap(0, Ordering::Relaxed));
        most_memory = most_memory.max(resident_megabytes(std::process::id()));
    }
    let won = facts.won.lock().expect("no panic").expect("a term");
    let first = launcher.first.lock().expect("no panic").expect("a worker");
    handle.shutdown().await;
    store.close().await;

    row("backlog of 100,000 keys: rows read per tick, most", &most_rows.to_string());
    row("  memory the leader grew by, most", &format!("{:.1} MB", (most_memory - before).max(0.0)));
    row("  lease won to first worker", &millis(first.duration_since(won)));
}

/// Scopes are not needed: discovery reads Pending, Cursors and budgets alone.
async fn fill(url: &str) {
    let pool = engine::connect(url);
    for thousand in 0..KEYS / 1_000 {
        let rows: Vec<String> = (0..1_000)
            .map(|number| format!("('{BINDING}', 'scp_{:08}', 3, 1)", thousand * 1_000 + number))
            .collect();
        let text = format!(
            "INSERT INTO pc_artifact_processing_pending (binding_name, scope_id, source_through, \
             flush_generation) VALUES {}",
            rows.join(", ")
        );
        pool.execute(AssertSqlSafe(text)).await.expect("rows");
    }
    pool.close().await;
}

/// Starts nothing; whoever is "started" fails at once.
struct Noted {
    first: Mutex<Option<Instant>>,
    failed: mpsc::UnboundedSender<WorkerId>,
    endings: tokio::sync::Mutex<mpsc::UnboundedReceiver<WorkerId>>,
}

impl Noted {
    fn new() -> Self {
        let (failed, endings) = mpsc::unbounded_channel();
        Self { first: Mutex::new(None), failed, endings: tokio::sync::Mutex::new(endings) }
    }
}

#[async_trait]
impl Launcher for Noted {
    async fn launch(&self, _assignment: &WorkAssignment) -> Result<WorkerId, LaunchError> {
        self.first.lock().expect("no panic").get_or_insert_with(now);
        let worker = WorkerId::new(SystemIds.random().to_string());
        self.failed.send(worker.clone()).expect("an open channel");
        Ok(worker)
    }

    async fn stop(&self, _worker: &WorkerId) {}

    async fn next_ending(&self) -> (WorkerId, WorkerEnding) {
        let worker = self.endings.lock().await.recv().await.expect("an open channel");
        (worker, WorkerEnding { ending: Ending::Transient, outcome: None })
    }
}

/// The store, with the rows of all pages counted.
struct Counted {
    store: Store,
    rows: AtomicU64,
    won: Mutex<Option<Instant>>,
}

impl Counted {
    fn count<T>(&self, rows: Vec<T>) -> Vec<T> {
        self.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
        rows
    }
}

#[async_trait]
impl DurableFacts for Counted {
    fn is_shared(&self) -> bool {
        DurableFacts::is_shared(&self.store)
    }

    async fn begin_term(&self, holder: &HolderId) -> Result<SupervisorGeneration, FactsError> {
        self.store.begin_term(holder).await
    }

    async fn acquire(
        &self,
        holder: &HolderId,
        ttl: Duration,
    ) -> Result<Option<SupervisorGeneration>, FactsError> {
        let won = self.store.acquire(holder, ttl).await?;
        if won.is_some() {
            self.won.lock().expect("no panic").get_or_insert_with(now);
        }
        Ok(won)
    }

    async fn renew(&self, fence: &Fence, ttl: Duration) -> Result<bool, FactsError> {
        self.store.renew(fence, ttl).await
    }

    async fn release(&self, fence: &Fence) -> Result<bool, FactsError> {
        self.store.release(fence).await
    }

    async fn current_term(&self) -> Result<Option<Fence>, FactsError> {
        self.store.current_term().await
    }

    async fn page(&self, after: Option<&WorkKey>, limit: usize) -> Result<Vec<PendingFact>, FactsError> {
        self.store.page(after, limit).await.map(|rows| self.count(rows))
    }

    async fn observe(&self, key: &WorkKey) -> Result<Option<PendingFact>, FactsError> {
        self.store.observe(key).await
    }

    async fn settle(&self, fence: &Fence, key: &WorkKey) -> Result<(), FactsError> {
        self.store.settle(fence, key).await
    }

    async fn clear_waves(&self, fence: &Fence) -> Result<u64, FactsError> {
        self.store.clear_waves(fence).await
    }

    async fn freeze_wave(
        &self,
        fence: &Fence,
        wave: &AutoWave,
        interval: Duration,
    ) -> Result<Freeze, FactsError> {
        self.store.freeze_wave(fence, wave, interval).await
    }

    async fn wave_targets(
        &self,
        wave: &AutoWave,
        after: Option<&ScopeId>,
        limit: usize,
    ) -> Result<Vec<TargetFact>, FactsError> {
        self.store.wave_targets(wave, after, limit).await.map(|rows| self.count(rows))
    }

    async fn mark_covered(
        &self,
        fence: &Fence,
        wave: &AutoWave,
        scopes: &[ScopeId],
    ) -> Result<u64, FactsError> {
        self.store.mark_covered(fence, wave, scopes).await
    }

    async fn complete_wave(&self, fence: &Fence, wave: &AutoWave) -> Result<Completion, FactsError> {
        self.store.complete_wave(fence, wave).await
    }

    async fn late_page(
        &self,
        wave: &AutoWave,
        after: Option<&ScopeId>,
        limit: usize,
    ) -> Result<Vec<LateFact>, FactsError> {
        self.store.late_page(wave, after, limit).await.map(|rows| self.count(rows))
    }
}
