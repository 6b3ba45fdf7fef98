//! A database, a clock and a launcher that do what a test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::ambient::{Clock, Monotonic, SystemIds};
use powercontext_core::ids::{
    BindingName, FlushGeneration, HolderId, Position, ScopeId, SupervisorGeneration,
};
use powercontext_core::work::{Ending, Fence, WorkAssignment, WorkKey};
use powercontext_supervisor::facts::{
    AutoWave, Completion, DurableFacts, FactsError, Freeze, LateFact, PendingFact, TargetFact,
};
use powercontext_supervisor::{
    BindingSchedule, LaunchError, Launcher, LeaseSettings, LeaseTimes, Phase, Supervisor, SupervisorHandle,
    SupervisorSettings, WorkerEnding, WorkerId,
};
use tokio::sync::mpsc;

pub const SOON: Duration = Duration::from_millis(5);
pub const NEVER: Duration = Duration::from_secs(3600);
pub const TIMES: LeaseTimes = LeaseTimes {
    ttl: Duration::from_millis(150),
    renewal: Duration::from_millis(50),
    candidacy: Duration::from_millis(30),
    margin: Duration::from_millis(20),
};

#[derive(Default)]
pub struct World {
    /// Every call fails.
    pub broken: bool,
    /// Calls about the lease get no answer.
    pub silent: bool,
    /// A freeze gets no answer.
    pub stuck: bool,
    /// A freeze fails.
    pub refusing: bool,
    /// How long a freeze takes; it holds the one connection that writes all the while.
    pub freeze_takes: Duration,
    pub freezes: usize,
    pub pages: usize,
    pub shared: bool,
    pub holder: Option<HolderId>,
    pub generation: i64,
    pub expires: Duration,
    pub renewals: usize,
    pub row: Option<PendingFact>,
    /// The uncompleted targets of the one wave.
    pub targets: Vec<TargetFact>,
    /// What was done, in order.
    pub log: Vec<&'static str>,
    pub now: Duration,
}

#[derive(Clone, Default)]
pub struct Facts(pub Arc<Mutex<World>>, Arc<tokio::sync::Mutex<()>>);

impl Clock for Facts {
    fn monotonic(&self) -> Monotonic {
        self.0.lock().unwrap().now
    }
}

impl Facts {
    pub fn shared() -> Self {
        let facts = Self::default();
        facts.0.lock().unwrap().shared = true;
        facts
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    pub fn pass(&self, time: Duration) {
        self.change(|world| world.now += time);
    }

    fn read<T>(&self, look: impl FnOnce(&mut World) -> T) -> Result<T, FactsError> {
        self.change(|world| {
            if world.broken {
                return Err(FactsError::Database("it is broken".into()));
            }
            Ok(look(world))
        })
    }

    /// A write of a term; refused when another one is current.
    fn write<T>(&self, fence: &Fence, change: impl FnOnce(&mut World) -> T) -> Result<T, FactsError> {
        self.read(|world| is_current(world, fence).then(|| change(world)))?.ok_or(FactsError::TermLost)
    }

    /// A call about the lease.
    async fn lease<T>(&self, call: impl FnOnce(&mut World) -> T) -> Result<T, FactsError> {
        if self.change(|world| world.silent) {
            std::future::pending::<()>().await;
        }
        self.read(call)
    }
}

fn is_current(world: &World, fence: &Fence) -> bool {
    let valid = !world.shared || world.now < world.expires;
    valid && world.holder.as_ref() == Some(&fence.holder) && world.generation == fence.generation.get()
}

fn begin(world: &mut World, holder: &HolderId) -> SupervisorGeneration {
    world.holder = Some(holder.clone());
    world.generation += 1;
    SupervisorGeneration::new(world.generation)
}

#[async_trait]
impl DurableFacts for Facts {
    fn is_shared(&self) -> bool {
        self.change(|world| world.shared)
    }

    async fn begin_term(&self, holder: &HolderId) -> Result<SupervisorGeneration, FactsError> {
        self.read(|world| begin(world, holder))
    }

    async fn acquire(
        &self,
        holder: &HolderId,
        ttl: Duration,
    ) -> Result<Option<SupervisorGeneration>, FactsError> {
        self.lease(|world| {
            (world.now >= world.expires).then(|| {
                world.expires = world.now + ttl;
                begin(world, holder)
            })
        })
        .await
    }

    async fn renew(&self, fence: &Fence, ttl: Duration) -> Result<bool, FactsError> {
        self.lease(|world| {
            let current = is_current(world, fence);
            if current {
                world.expires = world.now + ttl;
                world.renewals += 1;
            }
            current
        })
        .await
    }

    async fn release(&self, fence: &Fence) -> Result<bool, FactsError> {
        self.lease(|world| {
            let current = is_current(world, fence);
            if current {
                world.expires = world.now;
            }
            world.log.push("release");
            current
        })
        .await
    }

    async fn current_term(&self) -> Result<Option<Fence>, FactsError> {
        self.read(|world| {
            let generation = SupervisorGeneration::new(world.generation);
            world.holder.clone().map(|holder| Fence { holder, generation })
        })
    }

    async fn page(&self, after: Option<&WorkKey>, _limit: usize) -> Result<Vec<PendingFact>, FactsError> {
        let flushed = |fact: &&PendingFact| fact.handled_flush_generation < fact.flush_generation;
        self.read(|world| {
            world.pages += 1;
            world.row.iter().filter(|_| after.is_none()).filter(flushed).cloned().collect()
        })
    }

    async fn observe(&self, _key: &WorkKey) -> Result<Option<PendingFact>, FactsError> {
        self.read(|world| world.row.clone())
    }

    async fn settle(&self, fence: &Fence, _key: &WorkKey) -> Result<(), FactsError> {
        let _writer = self.1.lock().await;
        self.write(fence, |world| {
            world.log.push("settle");
            world.row = None;
        })
    }

    async fn clear_waves(&self, fence: &Fence) -> Result<u64, FactsError> {
        self.write(fence, |world| {
            world.log.push("clear");
            std::mem::take(&mut world.targets).len() as u64
        })
    }

    async fn freeze_wave(&self, fence: &Fence, _: &AutoWave, _: Duration) -> Result<Freeze, FactsError> {
        if self.change(|world| world.stuck) {
            std::future::pending::<()>().await;
        }
        let _writer = self.1.lock().await;
        let takes = self.change(|world| {
            world.freezes += 1;
            world.freeze_takes
        });
        tokio::time::sleep(takes).await;
        if self.change(|world| world.refusing) {
            return Err(FactsError::Database("it cannot freeze".into()));
        }
        self.write(fence, |world| {
            let Some(fact) = world.row.clone() else { return Freeze::NothingPending };
            world.log.push("freeze");
            world.targets = vec![TargetFact { target: fact.source_through, fact }];
            Freeze::Frozen { members: 1 }
        })
    }

    async fn wave_targets(
        &self,
        _: &AutoWave,
        after: Option<&ScopeId>,
        _: usize,
    ) -> Result<Vec<TargetFact>, FactsError> {
        self.read(|world| {
            let fresh = |target: &TargetFact| TargetFact {
                fact: world.row.clone().unwrap_or_else(|| target.fact.clone()),
                ..target.clone()
            };
            world.targets.iter().filter(|_| after.is_none()).map(fresh).collect()
        })
    }

    async fn mark_covered(&self, fence: &Fence, _: &AutoWave, scopes: &[ScopeId]) -> Result<u64, FactsError> {
        self.write(fence, |world| {
            world.log.push("mark");
            world.targets.retain(|target| !scopes.contains(&target.fact.key.scope));
            scopes.len() as u64
        })
    }

    async fn complete_wave(&self, fence: &Fence, _: &AutoWave) -> Result<Completion, FactsError> {
        self.write(fence, |world| {
            world.log.push("complete");
            Completion::Completed { removed: u64::from(world.row.take().is_some()) }
        })
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
    facts: Facts,
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
        self.facts.change(|world| world.log.push("stop"));
        self.endings.0.send(WorkerEnding { ending: Ending::Terminated, outcome: None }).unwrap();
    }

    async fn next_ending(&self) -> (WorkerId, WorkerEnding) {
        (WorkerId::new("worker"), self.endings.1.lock().await.recv().await.unwrap())
    }
}

pub fn row() -> PendingFact {
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

/// A supervisor, what it launches, and a way to end its worker.
pub struct Running {
    pub handle: SupervisorHandle,
    pub launches: mpsc::UnboundedReceiver<WorkAssignment>,
    pub ended: mpsc::UnboundedSender<WorkerEnding>,
}

pub fn start(facts: &Facts, tick: Duration, interval: Option<Duration>) -> Running {
    let (launched, launches) = mpsc::unbounded_channel();
    let (ended, endings) = mpsc::unbounded_channel();
    let launcher = OneWorker {
        facts: facts.clone(),
        launched,
        endings: (ended.clone(), tokio::sync::Mutex::new(endings)),
    };
    let ambient = (Arc::new(facts.clone()) as _, Arc::new(SystemIds) as _);
    let settings = SupervisorSettings {
        tick,
        lease: LeaseSettings::new(TIMES, SOON).unwrap(),
        bindings: vec![BindingSchedule { binding: row().key.binding, interval }],
        ..SupervisorSettings::default()
    };
    let handle = Supervisor::start_on(Arc::new(facts.clone()), Arc::new(launcher), ambient, settings);
    Running { handle, launches, ended }
}

pub async fn becomes(handle: &SupervisorHandle, phase: Phase) {
    until(|| handle.status().phase == phase).await;
}

pub async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
