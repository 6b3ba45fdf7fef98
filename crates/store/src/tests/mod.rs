//! One conformance suite over every database: what the store promises, table by table.

mod budgets;
mod capture;
mod equal_ranking;
mod faults_on_oceanbase;
mod leases_on_oceanbase;
mod pending;
mod plans;
mod publish;
mod refused_by_oceanbase;
mod relations;
mod schema;
mod search;
mod state;
mod waves;

use std::collections::BTreeMap;
use std::time::Duration;

use powercontext_core::ambient::{IdSource, SystemIds};
use powercontext_core::analyzer::Query;
use powercontext_core::content::{canonical, digest};
use powercontext_core::ids::{
    ArtifactId, AttemptId, BindingName, FlushGeneration, HolderId, Position, ScopeId, SourceId, SourceRef,
    Window,
};
use powercontext_core::projection::project;
use powercontext_core::topic::{BINDING, TopicContent};
use powercontext_core::work::{Fence, Frontier, WorkKey, WorkMode};
use serde_json::json;
use tempfile::TempDir;

use crate::budgets::{AttemptFence, AttemptStart, start_attempt};
use crate::database::{Database, Engine, Twin, values};
use crate::publish::{PreparedTopic, PublishRequest, TopicOperation};
use crate::scopes::NewScope;
use crate::sources::NewSource;
use crate::topics::TopicHit;
use crate::{DatabaseErrorKind, DatabaseUrl, Store, StoreOptions, leases, migrate, scopes, sources, topics};

/// A database of one test, removed with it.
struct TestDatabase {
    // Closed before the place is removed: a server would wait for a transaction that is open.
    store: Store,
    options: StoreOptions,
    place: Place,
}

/// What is removed when the test ends.
enum Place {
    Folder { _folder: TempDir },
    Server(StoreOptions, String),
}

/// Names the server whose databases the suite makes and removes, as in `mysql://root@127.0.0.1:2881`.
const SERVER: &str = "POWERCONTEXT_TEST_OCEANBASE_URL";

/// Every kind of database the suite runs over, each fresh and migrated: SQLite always, OceanBase
/// when [`SERVER`] names one.
async fn databases() -> Vec<TestDatabase> {
    let mut databases = vec![sqlite().await];
    databases.extend(oceanbase().await);
    databases
}

async fn sqlite() -> TestDatabase {
    let folder = TempDir::new().unwrap();
    let url = DatabaseUrl::parse(&format!("sqlite://{}", folder.path().join("store.db").display())).unwrap();
    TestDatabase::migrated(Place::Folder { _folder: folder }, url).await
}

async fn oceanbase() -> Option<TestDatabase> {
    let Some((url, name)) = server_url() else {
        eprintln!("{SERVER} is not set: OceanBase is left out");
        return None;
    };
    Some(TestDatabase::migrated(Place::Server(test_options(url.clone()), name), url).await)
}

/// The address of a database that does not exist yet, and its name.
fn server_url() -> Option<(DatabaseUrl, String)> {
    let base = std::env::var(SERVER).ok()?;
    let name = format!("pc_test_{}", SystemIds.random().simple());
    Some((DatabaseUrl::parse(&format!("{}/{name}", base.trim_end_matches('/'))).unwrap(), name))
}

fn test_options(url: DatabaseUrl) -> StoreOptions {
    StoreOptions { url, readers: 2, busy_timeout: Duration::from_secs(5) }
}

/// Ends every other session of the database, as a restarted server would.
async fn cut_off(database: &Database) {
    let mut session = database.session().await.unwrap();
    let text =
        "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()";
    for row in session.query(text, values![]).await.unwrap() {
        // One that ended by itself meanwhile cannot be ended again.
        let _ = session.command(format!("KILL {}", row.integer(0).unwrap())).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self::Server(options, name) = self else { return };
        let (options, text) = (options.clone(), format!("DROP DATABASE IF EXISTS {name}"));
        // A test's own runtime may be ending, so this takes another one.
        let removed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let database = match Database::open(&options.target(false)).await {
                    Err(error) if error.kind == DatabaseErrorKind::MissingDatabase => return,
                    opened => opened.unwrap(),
                };
                // The test's runtime waits here, so what it left open cannot be undone by itself.
                cut_off(&database).await;
                database.session().await.unwrap().command(text).await.unwrap();
            });
        });
        assert!(removed.join().is_ok() || std::thread::panicking(), "a test database was not removed");
    }
}

impl TestDatabase {
    async fn migrated(place: Place, url: DatabaseUrl) -> Self {
        let options = test_options(url);
        migrate(&options, &SystemIds).await.unwrap();
        let store = Store::open(&options).await.unwrap();
        Self { place, options, store }
    }

    /// The name of a server's database.
    fn name(&self) -> &str {
        match &self.place {
            Place::Folder { .. } => panic!("a file has no name on a server"),
            Place::Server(_, name) => name,
        }
    }

    fn engine(&self) -> Engine {
        self.store.database.engine()
    }

    /// Another database of the same kind that does not exist yet; a server's is removed with its place.
    fn beside(&self, name: &str) -> (StoreOptions, Option<Place>) {
        let (url, place) = match self.options.url.path() {
            Some(path) => (DatabaseUrl::file(&path.with_file_name(name)), None),
            None => {
                let (url, name) = server_url().unwrap();
                (url.clone(), Some(Place::Server(test_options(url), name)))
            }
        };
        (StoreOptions { url, ..self.options.clone() }, place)
    }

    /// A second, independent opening of the same database, as another process would have.
    async fn reopened(&self) -> Store {
        Store::open(&self.options).await.unwrap()
    }

    async fn scope(&self, name: &str) -> ScopeId {
        scopes::create(&self.store, &new_scope(name)).await.unwrap().scope_id
    }

    async fn capture(&self, scope: &ScopeId, count: usize) -> Position {
        let mut last = Position::default();
        for number in 0..count {
            let new = new_source(scope, &format!("{}-{number}", SystemIds.random()), "some text");
            last = sources::add(&self.store, &new).await.unwrap().position;
        }
        last
    }

    /// Begins a later term, as a start does on SQLite and a hand-over on OceanBase.
    async fn term(&self) -> Fence {
        let holder = HolderId::parse(SystemIds.random().to_string()).unwrap();
        let generation = match self.engine() {
            Engine::Sqlite => leases::begin_embedded_term(&self.store, &holder).await.unwrap(),
            Engine::OceanBase => {
                if let Some(fence) = leases::current(&self.store).await.unwrap() {
                    assert!(leases::release(&self.store, &fence).await.unwrap(), "{fence:?}");
                }
                leases::acquire(&self.store, &holder, Duration::from_secs(600)).await.unwrap().unwrap()
            }
        };
        Fence { holder, generation }
    }

    async fn attempt(&self, fence: &Fence, key: &WorkKey, after: i64) -> AttemptFence {
        let frontier = Frontier { key: key.clone(), source_after: Position::new(after) };
        let attempt_id = AttemptId::parse(SystemIds.random().to_string()).unwrap();
        let started = start_attempt(&self.store, fence, &frontier, &attempt_id).await.unwrap();
        assert!(matches!(started, AttemptStart::Started { .. }), "{started:?}");
        AttemptFence { fence: fence.clone(), frontier, attempt_id }
    }

    /// Publishes the operations as the next Window of one Source.
    async fn publish(&self, scope: &ScopeId, operations: Vec<TopicOperation>) {
        let fence = match leases::current(&self.store).await.unwrap() {
            Some(fence) => fence,
            None => self.term().await,
        };
        let through = self.capture(scope, 1).await.get();
        let attempt = self.attempt(&fence, &key(scope), through - 1).await;
        crate::publish::publish(&self.store, &request(attempt, through, operations)).await.unwrap();
    }

    async fn search(&self, scope: &ScopeId, text: &str) -> Vec<TopicHit> {
        match Query::parse(text) {
            Some(query) => topics::search(&self.store, scope, &query, 20).await.unwrap(),
            None => Vec::new(),
        }
    }

    /// Every row of every table, posting lists included.
    async fn dump(&self) -> BTreeMap<String, Vec<String>> {
        let mut reader = self.store.database.snapshot().await.unwrap();
        let tables = reader.query(TABLES, values![]).await.unwrap();
        let mut dump = BTreeMap::new();
        for table in &tables {
            let table = table.text(0).unwrap();
            let columns = reader.query(COLUMNS, values![&table]).await.unwrap();
            let columns: Vec<String> = columns.iter().map(|column| column.text(0).unwrap()).collect();
            let row = match self.engine() {
                Engine::Sqlite => {
                    let quoted: Vec<String> =
                        columns.iter().map(|column| format!("quote(\"{column}\")")).collect();
                    quoted.join("||'|'||")
                }
                Engine::OceanBase => {
                    let quoted: Vec<String> =
                        columns.iter().map(|column| format!("quote(`{column}`)")).collect();
                    format!("concat_ws('|', {})", quoted.join(", "))
                }
            };
            let rows = reader.query(format!("SELECT {row} FROM {table} ORDER BY 1"), values![]).await;
            dump.insert(table, rows.unwrap().iter().map(|row| row.text(0).unwrap()).collect());
        }
        dump
    }

    /// Runs one statement on its own; definitions too.
    async fn run(&self, text: &str) {
        let mut session = self.store.database.session().await.unwrap();
        match session.command(text.to_owned()).await {
            // A busy seekdb repeats a definition by itself and then finds its own trigger or user.
            Err(error)
                if text.starts_with("CREATE TRIGGER") && format!("{error:?}").contains("already exist") => {}
            Err(error)
                if text.starts_with("CREATE USER") && format!("{error:?}").contains("CREATE USER failed") => {
            }
            done => done.unwrap(),
        }
    }
}

const TABLES: Twin = Twin {
    sqlite: "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' \
        ORDER BY name",
    oceanbase: "SELECT table_name FROM information_schema.tables \
        WHERE table_schema = database() AND table_type = 'BASE TABLE' ORDER BY table_name",
};

const COLUMNS: Twin = Twin {
    sqlite: "SELECT name FROM pragma_table_info(?)",
    oceanbase: "SELECT column_name FROM information_schema.columns \
        WHERE table_schema = database() AND table_name = ? ORDER BY ordinal_position",
};

fn key(scope: &ScopeId) -> WorkKey {
    WorkKey { binding: BindingName::parse(BINDING).unwrap(), scope: scope.clone() }
}

fn new_scope(name: &str) -> NewScope {
    NewScope {
        scope_id: ScopeId::generate(&SystemIds),
        idempotency_key: name.to_owned(),
        title: format!("Scope {name}"),
        summary: "For one test.".to_owned(),
        parent_scope_id: None,
        context_references: Vec::new(),
        external_references: Vec::new(),
    }
}

fn new_source(scope: &ScopeId, id: &str, text: &str) -> NewSource {
    let content_json = canonical(&json!(text)).unwrap();
    NewSource {
        scope: scope.clone(),
        source_id: SourceId::parse(id).unwrap(),
        content_digest: digest(&content_json),
        content_json,
        metadata_json: None,
    }
}

fn artifact(name: &str) -> ArtifactId {
    ArtifactId::parse(name).unwrap()
}

fn prepared(title: &str, summary: &str, detail: &str) -> PreparedTopic {
    let content =
        TopicContent { title: title.to_owned(), summary: summary.to_owned(), detail: detail.to_owned() };
    let projection = project(&content);
    let sources = vec![SourceRef::content(SourceId::parse("first").unwrap())];
    PreparedTopic { content, sources, projection }
}

fn create(name: &str, title: &str, summary: &str, detail: &str) -> TopicOperation {
    TopicOperation::Create { artifact_id: artifact(name), topic: prepared(title, summary, detail) }
}

fn request(attempt: AttemptFence, through: i64, operations: Vec<TopicOperation>) -> PublishRequest {
    PublishRequest {
        window: Window { after: attempt.frontier.source_after, through: Position::new(through) },
        wave_target: Position::new(through),
        claimed_flush_generation: FlushGeneration::new(0),
        mode: WorkMode::Explicit,
        attempt,
        operations,
    }
}
