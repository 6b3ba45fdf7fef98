//! The loop around the decisions, over a database that can fail and workers that never really run.

#![allow(clippy::unwrap_used, reason = "test code may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::ambient::{SystemClock, SystemIds};
use powercontext_core::ids::{
    BindingName, FlushGeneration, HolderId, Position, ScopeId, SupervisorGeneration,
};
use powercontext_core::work::{Ending, Fence, WorkAssignment, WorkKey};
use powercontext_supervisor::facts::{
    AutoWave, Completion, DurableFacts, FactsError, Freeze, LateFact, PendingFact, TargetFact,
};
use powercontext_supervisor::{
    LaunchError, Launcher, Phase, Supervisor, SupervisorHandle, SupervisorSettings, WorkerEnding, WorkerId,
};
use tokio::sync::mpsc;

#[derive(Default)]
struct World {
    broken: bool,
    holder: Option<HolderId>,
    generation: i64,
    row: Option<PendingFact>,
}

#[derive(Clone, Default)]
struct Facts(Arc<Mutex<World>>);

impl Facts {
    fn read<T>(&self, look: impl FnOnce(&mut World) -> T) -> Result<T, FactsError> {
        let mut world = self.0.lock().unwrap();
        if world.broken {
            return Err(FactsError::Database("it is broken".into()));
        }
        Ok(look(&mut world))
    }
}

#[async_trait]
impl DurableFacts for Facts {
    fn is_shared(&self) -> bool {
        false
    }

    async fn begin_term(&self, holder: &HolderId) -> Result<SupervisorGeneration, FactsError> {
        self.read(|world| {
            world.holder = Some(holder.clone());
            world.generation += 1;
            SupervisorGeneration::new(world.generation)
        })
    }

    async fn current_term(&self) -> Result<Option<Fence>, FactsError> {
        self.read(|world| {
            let generation = SupervisorGeneration::new(world.generation);
            world.holder.clone().map(|holder| Fence { holder, generation })
        })
    }

    async fn page(&self, after: Option<&WorkKey>, _limit: usize) -> Result<Vec<PendingFact>, FactsError> {
        self.read(|world| world.row.iter().filter(|_| after.is_none()).cloned().collect())
    }

    async fn observe(&self, _key: &WorkKey) -> Result<Option<PendingFact>, FactsError> {
        self.read(|world| world.row.clone())
    }

    async fn settle(&self, _fence: &Fence, _key: &WorkKey) -> Result<(), FactsError> {
        self.read(|world| world.row = None)
    }

    async fn acquire(&self, _: &HolderId, _: Duration) -> Result<Option<SupervisorGeneration>, FactsError> {
        self.read(|_| None)
    }

    async fn renew(&self, _: &Fence, _: Duration) -> Result<bool, FactsError> {
        self.read(|_| false)
    }

    async fn release(&self, _: &Fence) -> Result<bool, FactsError> {
        self.read(|_| false)
    }

    async fn clear_waves(&self, _: &Fence) -> Result<u64, FactsError> {
        self.read(|_| 0)
    }

    async fn freeze_wave(&self, _: &Fence, _: &AutoWave, _: Duration) -> Result<Freeze, FactsError> {
        self.read(|_| Freeze::NothingPending)
    }

    async fn wave_targets(
        &self,
        _: &AutoWave,
        _: Option<&ScopeId>,
        _: usize,
    ) -> Result<Vec<TargetFact>, FactsError> {
        self.read(|_| Vec::new())
    }

    async fn mark_covered(&self, _: &Fence, _: &AutoWave, scopes: &[ScopeId]) -> Result<u64, FactsError> {
        self.read(|_| scopes.len() as u64)
    }

    async fn complete_wave(&self, _: &Fence, _: &AutoWave) -> Result<Completion, FactsError> {
        self.read(|_| Completion::Gone)
    }

    async fn late_page(
        &self,
        _: &AutoWave,
        _: Option<&ScopeId>,
        _: usize,
    ) -> Result<Vec<LateFact>, FactsError> {
        self.read(|_| Vec::new())
    }
}

type Endings =
    (mpsc::UnboundedSender<WorkerEnding>, tokio::sync::Mutex<mpsc::UnboundedReceiver<WorkerEnding>>);

struct OneWorker {
    launched: mpsc::UnboundedSender<WorkAssignment>,
    endings: Endings,
}

#[async_trait]
impl Launcher for OneWorker {
    async fn launch(&self, assignment: &WorkAssignment) -> Result<WorkerId, LaunchError> {
        self.launched.send(assignment.clone()).unwrap();
        Ok(WorkerId::new("worker"))
    }

    async fn stop(&self, _worker: &WorkerId) {
        self.endings.0.send(WorkerEnding { ending: Ending::Terminated, outcome: None }).unwrap();
    }

    async fn next_ending(&self) -> (WorkerId, WorkerEnding) {
        (WorkerId::new("worker"), self.endings.1.lock().await.recv().await.unwrap())
    }
}

fn row() -> PendingFact {
    PendingFact {
        key: WorkKey {
            binding: BindingName::parse("topic-memory").unwrap(),
            scope: ScopeId::parse("scp_one").unwrap(),
        },
        source_through: Position::new(3),
        flush_generation: FlushGeneration::new(1),
        handled_flush_generation: FlushGeneration::new(0),
        cursor: Position::new(0),
        terminal: None,
    }
}

fn start(facts: &Facts, tick: Duration) -> (SupervisorHandle, mpsc::UnboundedReceiver<WorkAssignment>) {
    let (launched, launches) = mpsc::unbounded_channel();
    let (ended, endings) = mpsc::unbounded_channel();
    let launcher = OneWorker { launched, endings: (ended, tokio::sync::Mutex::new(endings)) };
    let ambient = (Arc::new(SystemClock::start()) as _, Arc::new(SystemIds) as _);
    let settings = SupervisorSettings { tick, ..SupervisorSettings::default() };
    (Supervisor::start_on(Arc::new(facts.clone()), Arc::new(launcher), ambient, settings), launches)
}

async fn becomes(handle: &SupervisorHandle, phase: Phase) {
    while handle.status().phase != phase {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const SOON: Duration = Duration::from_millis(5);
const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_wake_leads_to_a_launch_without_waiting_for_the_tick() {
    // TM-181 TM-185 TM-218
    let facts = Facts::default();
    let (handle, mut launches) = start(&facts, NEVER);
    becomes(&handle, Phase::Running).await;
    facts.0.lock().unwrap().row = Some(row());
    handle.wake();
    let assignment = launches.recv().await.unwrap();
    assert_eq!((assignment.wave_target.get(), assignment.fence.generation.get()), (3, 1));
    assert_eq!(assignment.fence.holder.as_str().as_bytes()[14], b'4', "a UUIDv4");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_failing_database_pauses_the_supervisor_and_never_ends_it() {
    let facts = Facts::default();
    facts.0.lock().unwrap().broken = true;
    let (handle, mut launches) = start(&facts, SOON);
    becomes(&handle, Phase::DatabaseUnavailable).await;
    assert!(handle.is_running());
    facts.0.lock().unwrap().broken = false;
    becomes(&handle, Phase::Running).await;
    facts.0.lock().unwrap().broken = true;
    becomes(&handle, Phase::DatabaseUnavailable).await;
    {
        let mut world = facts.0.lock().unwrap();
        (world.broken, world.row) = (false, Some(row()));
    }
    assert_eq!(launches.recv().await.unwrap().source_after.get(), 0);
    handle.shutdown().await;
}

#[tokio::test]
async fn a_lost_term_stops_the_workers_and_ends_dispatching() {
    // TM-187 TM-195
    let facts = Facts::default();
    facts.0.lock().unwrap().row = Some(row());
    let (handle, mut launches) = start(&facts, SOON);
    launches.recv().await.unwrap();
    facts.0.lock().unwrap().generation += 1;
    becomes(&handle, Phase::TermLost).await;
    assert!(!handle.is_running());
    assert_eq!(handle.status().footprint.in_flight, 0);
    assert!(launches.recv().await.is_none());
}

#[tokio::test]
async fn a_shutdown_stops_the_workers_first() {
    let facts = Facts::default();
    facts.0.lock().unwrap().row = Some(row());
    let (handle, mut launches) = start(&facts, SOON);
    launches.recv().await.unwrap();
    handle.shutdown().await;
    assert!(launches.recv().await.is_none());
}
