//! A fleet of real processes on one OceanBase engine of its own: API servers, background processes and
//! a network to the database for each of them that can be cut.
//!
//! Times of the lease are short, so that faults that need one to expire take seconds.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;
use tempfile::TempDir;

use crate::client::Client;
use crate::engine::{self, Engine};
use crate::events::{self, Event};
use crate::process::{Process, send};
use crate::proxy::Proxy;
use crate::server::{BUILTIN, free_port, program};
use crate::tables::Tables;
use crate::watcher::{self, Sample};

/// The database that the fleet uses on its engine.
const DATABASE: &str = "fleet";
/// How long anything a test waits for may take. Generous: only a fault reaches it.
pub const LIMIT: Duration = Duration::from_secs(60);
/// How often a condition is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// How a fleet is built.
#[derive(Clone, Debug)]
pub struct FleetSetup {
    /// How many API servers.
    pub apis: usize,
    /// How many background processes.
    pub controllers: usize,
    /// Settings of all of them, beyond the usual ones of a test; later entries win.
    pub settings: Vec<(String, String)>,
}

impl FleetSetup {
    /// Short lease times, small Windows, the built-in generator.
    #[must_use]
    pub fn new(apis: usize, controllers: usize) -> Self {
        Self { apis, controllers, settings: Vec::new() }
            .with("INFERENCE_GENERATION_MODEL", BUILTIN)
            .with("RUNTIME_TOPIC_MEMORY_SOURCE_WINDOW_LIMIT", "5")
            .with("RUNTIME_ARTIFACT_PROCESSING_MAX_WORKERS", "4")
            .with("RUNTIME_ARTIFACT_PROCESSING_TICK_SECONDS", "0.2")
            .with("RUNTIME_ARTIFACT_PROCESSING_LEASE_SECONDS", "3")
            .with("RUNTIME_ARTIFACT_PROCESSING_LEASE_RENEWAL_SECONDS", "0.8")
            .with("RUNTIME_ARTIFACT_PROCESSING_LEASE_MARGIN_SECONDS", "0.5")
            .with("RUNTIME_ARTIFACT_PROCESSING_CANDIDACY_SECONDS", "0.4")
            .with("DATABASE_REQUEST_TIMEOUT_SECONDS", "2")
    }

    /// Sets `POWERCONTEXT_SERVER_<name>`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.push((format!("POWERCONTEXT_SERVER_{name}"), value.into()));
        self
    }

    /// Makes the first worker that finishes `step` freeze itself; `mark` is a file that appears then.
    #[must_use]
    pub fn with_a_worker_frozen_after(mut self, step: &str, mark: &Path) -> Self {
        let worker = program("stopping-worker").display().to_string();
        for (name, value) in [("AFTER", step), ("SIGNAL", "STOP"), ("MARK", &mark.display().to_string())] {
            self.settings.push((format!("STOPPING_WORKER_{name}"), value.to_owned()));
        }
        self.with("RUNTIME_WORKER_PROGRAM", worker)
    }
}

/// What a member of the fleet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Serves HTTP.
    Api,
    /// Is a candidate, may lead and start workers.
    Controller,
}

/// One process of the fleet, with its way to the database and its log over all its lives.
#[derive(Debug)]
pub struct Member {
    /// `api-0`, `controller-1`; the name of its log file.
    pub name: String,
    /// Its network to the database.
    pub network: Proxy,
    part: Part,
    http_port: u16,
    environment: Vec<(String, String)>,
    process: Option<Process>,
}

impl Member {
    async fn new(part: Part, number: usize, setup: &FleetSetup, engine: &Engine) -> Self {
        let network = Proxy::start(engine.port()).await;
        let http_port = free_port();
        let mut environment = vec![
            ("POWERCONTEXT_SERVER_DATABASE_URL".to_owned(), engine::url(network.port(), DATABASE)),
            ("POWERCONTEXT_SERVER_HTTP_PORT".to_owned(), http_port.to_string()),
        ];
        environment.extend(setup.settings.iter().cloned());
        let name = match part {
            Part::Api => format!("api-{number}"),
            Part::Controller => format!("controller-{number}"),
        };
        Self { name, network, part, http_port, environment, process: None }
    }

    /// Starts its process; does not wait for anything.
    pub fn start(&mut self, folder: &Path) {
        let log = folder.join(format!("{}.log", self.name));
        let (program, arguments) = match self.part {
            Part::Api => ("powercontext-api-server", ["--role", "api"]),
            Part::Controller => ("powercontext-controller", ["--launcher", "process"]),
        };
        self.process = Some(Process::start(program, &arguments, &self.environment, &log));
    }

    /// Its process.
    ///
    /// # Panics
    /// When it was killed or stopped and not started again.
    #[must_use]
    pub fn process(&self) -> &Process {
        self.process.as_ref().unwrap_or_else(|| panic!("{} is not running", self.name))
    }

    /// Kills its process at once.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Asks its process to stop and waits for its end, which must be a clean one.
    ///
    /// # Panics
    /// When it does not end well or in time.
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            let status = process.stop().await;
            assert!(status.success(), "{} ended with {status} after SIGTERM", self.name);
        }
    }

    /// A client of its HTTP port; of a background process that is its health alone.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&format!("http://127.0.0.1:{}", self.http_port))
    }

    /// Whether the process has ended by itself.
    fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_some())
    }
}

/// A running fleet; everything ends with it.
#[derive(Debug)]
pub struct Fleet {
    /// The API servers.
    pub apis: Vec<Member>,
    /// The background processes.
    pub controllers: Vec<Member>,
    /// The database, read directly.
    pub tables: Tables,
    /// The engine. Dropped last, so that no process outlives its database by accident.
    pub engine: Engine,
    folder: TempDir,
}

impl Fleet {
    /// Starts an engine, migrates a database on it, starts all processes, and waits until every API
    /// server is ready and somebody leads.
    ///
    /// # Panics
    /// When any of it fails.
    pub async fn start(setup: FleetSetup) -> Self {
        let engine = Engine::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let tables = Tables::at(&engine::url(engine.port(), DATABASE));
        let mut fleet = Self { apis: Vec::new(), controllers: Vec::new(), tables, engine, folder };
        for number in 0..setup.apis {
            fleet.apis.push(Member::new(Part::Api, number, &setup, &fleet.engine).await);
        }
        for number in 0..setup.controllers {
            fleet.controllers.push(Member::new(Part::Controller, number, &setup, &fleet.engine).await);
        }
        fleet.migrate(&setup).await;
        for member in fleet.apis.iter_mut().chain(&mut fleet.controllers) {
            member.start(fleet.folder.path());
        }
        fleet.until_ready().await;
        fleet.leader().await;
        fleet
    }

    async fn migrate(&self, setup: &FleetSetup) {
        let mut environment = setup.settings.clone();
        let url = engine::url(self.engine.port(), DATABASE);
        environment.push(("POWERCONTEXT_SERVER_DATABASE_URL".to_owned(), url));
        let log = self.folder.path().join("migrate.log");
        let mut run = Process::start("powercontext-api-server", &["migrate"], &environment, &log);
        let status = until("the migration ends", async || run.ended()).await;
        assert!(status.success(), "the migration ended with {status}{}", run.log_tail());
    }

    /// Where the logs are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts an API server again.
    pub fn start_api(&mut self, number: usize) {
        self.apis[number].start(self.folder.path());
    }

    /// Starts a background process again.
    pub fn start_controller(&mut self, number: usize) {
        self.controllers[number].start(self.folder.path());
    }

    /// A client of every API server.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        self.apis.iter().map(Member::client).collect()
    }

    /// Waits until every process says that it is ready.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn until_ready(&mut self) {
        for member in self.apis.iter_mut().chain(&mut self.controllers) {
            let client = member.client();
            until(&format!("{} is ready", member.name), async || {
                assert!(!member.has_ended(), "{} ended{}", member.name, member.process().log_tail());
                (ready_status(&client).await == Some(200)).then_some(())
            })
            .await;
        }
    }

    /// Waits until a lease is valid, and returns which background process holds it and its row.
    ///
    /// # Panics
    /// When nobody leads in time.
    pub async fn leader(&self) -> (usize, Sample) {
        self.leader_after(0).await
    }

    /// As [`Fleet::leader`], of a term newer than `generation`.
    ///
    /// # Panics
    /// When nobody leads in time.
    pub async fn leader_after(&self, generation: i64) -> (usize, Sample) {
        let found = until_or(async || {
            let lease = watcher::sample(&self.tables).await?;
            if !lease.is_valid() || lease.generation <= generation {
                return None;
            }
            let started = |event: &Event| {
                event.name == "term_started"
                    && event.number("supervisor_generation") == Some(lease.generation)
            };
            let by = self.events().into_iter().find(started)?.by;
            let number = self.controllers.iter().position(|member| member.name == by)?;
            Some((number, lease))
        });
        match found.await {
            Some(found) => found,
            None => panic!("nobody leads after term {generation}{}", self.log_tails()),
        }
    }

    /// Every event of every process so far, by time.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        events::read_all(self.folder.path())
    }

    /// The events of one process so far.
    #[must_use]
    pub fn events_of(&self, name: &str) -> Vec<Event> {
        events::read(&self.folder.path().join(format!("{name}.log")))
    }

    /// Waits until an event of a process satisfies a condition, and returns it.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn event_of(&self, name: &str, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let found = until_or(async || self.events_of(name).into_iter().find(|event| wanted(event)));
        match found.await {
            Some(event) => event,
            None => panic!("{name}: {what} did not happen within {LIMIT:?}{}", self.log_tails()),
        }
    }

    /// Creates Scopes.
    ///
    /// # Panics
    /// When the first API server refuses.
    pub async fn create_scopes(&self, count: usize) -> Vec<String> {
        let client = self.apis[0].client();
        let mut scopes = Vec::new();
        for number in 0..count {
            scopes.push(client.create_scope(&format!("fleet-{number}")).await);
        }
        scopes
    }

    /// How far each Scope is processed.
    ///
    /// # Panics
    /// When the database does not answer.
    pub async fn cursors(&self) -> BTreeMap<String, i64> {
        let rows = self.tables.rows("SELECT scope_id, cast(position AS CHAR) FROM pc_source_cursors").await;
        rows.into_iter().map(|row| (row[0].clone(), row[1].parse().expect("a position"))).collect()
    }

    /// Waits until a Window of every Scope was published that was not there when the wait began. Needs
    /// writers that flush.
    ///
    /// # Panics
    /// When that takes longer than a retry after a failure plus [`LIMIT`].
    pub async fn until_all_progress(&self, scopes: &[String]) {
        let before = self.cursors().await;
        let place = |cursors: &BTreeMap<String, i64>, scope| cursors.get(scope).copied().unwrap_or(0);
        let moved = async || {
            let now = self.cursors().await;
            scopes.iter().all(|scope| place(&now, scope) > place(&before, scope)).then_some(())
        };
        for _ in 0..2 {
            if until_or(moved).await.is_some() {
                return;
            }
        }
        let now = self.cursors().await;
        panic!("a Scope stands still: {before:?}, then {now:?}{}", self.log_tails());
    }

    /// Flushes all Scopes through the API servers in turn until each is idle.
    ///
    /// # Panics
    /// When that takes more than `limit` for one of them.
    pub async fn catch_up(&self, scopes: &[String], limit: Duration) {
        for (number, scope) in scopes.iter().enumerate() {
            let client = self.apis[number % self.apis.len()].client();
            let mut waited = Duration::ZERO;
            while client.flush(scope).await != "idle" {
                assert!(waited < limit, "scope `{scope}` is behind after {limit:?}{}", self.log_tails());
                tokio::time::sleep(PAUSE).await;
                waited += PAUSE;
            }
        }
    }

    /// Asserts that no process has ended by itself.
    ///
    /// # Panics
    /// When one has.
    pub fn assert_alive(&mut self) {
        for member in self.apis.iter_mut().chain(&mut self.controllers) {
            assert!(!member.has_ended(), "{} ended by itself{}", member.name, member.process().log_tail());
        }
    }

    /// The ends of all logs, for messages of failed tests.
    #[must_use]
    pub fn log_tails(&self) -> String {
        let members = self.apis.iter().chain(&self.controllers);
        members.filter_map(|member| Some(member.process.as_ref()?.log_tail())).collect()
    }
}

/// Continues processes that were frozen.
pub fn thaw(workers: &[Pid]) {
    for worker in workers {
        send(*worker, rustix::process::Signal::CONT);
    }
}

/// What `/health/ready` answers; `None` when nothing does.
pub async fn ready_status(client: &Client) -> Option<u16> {
    client.try_get("/health/ready").await.map(|answer| answer.status)
}

/// Waits until `found` gives something.
///
/// # Panics
/// When that takes longer than [`LIMIT`].
pub async fn until<T>(what: &str, found: impl AsyncFnMut() -> Option<T>) -> T {
    until_or(found).await.unwrap_or_else(|| panic!("{what}: not within {LIMIT:?}"))
}

async fn until_or<T>(mut found: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let looking = async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(LIMIT, looking).await.ok()
}
