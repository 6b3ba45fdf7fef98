//! One conformance suite over every database: what the store promises, table by table.

mod budgets;
mod capture;
mod pending;
mod plans;
mod publish;
mod relations;
mod schema;
mod search;

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
use powercontext_core::work::{Fence, Frontier, WorkKey};
use serde_json::json;
use tempfile::TempDir;

use crate::budgets::{AttemptFence, AttemptStart, start_attempt};
use crate::database::values;
use crate::publish::{PreparedTopic, PublishRequest, TopicOperation};
use crate::scopes::NewScope;
use crate::sources::NewSource;
use crate::topics::TopicHit;
use crate::{DatabaseUrl, Store, StoreOptions, leases, migrate, scopes, sources, topics};

/// A database of one test, removed with it.
struct TestDatabase {
    _folder: TempDir,
    options: StoreOptions,
    store: Store,
}

/// Every kind of database the suite runs over, each fresh and migrated.
async fn databases() -> Vec<TestDatabase> {
    let folder = TempDir::new().unwrap();
    let url = DatabaseUrl::parse(&format!("sqlite://{}", folder.path().join("store.db").display())).unwrap();
    let options = StoreOptions { url, readers: 2, busy_timeout: Duration::from_secs(5) };
    migrate(&options, &SystemIds).await.unwrap();
    let store = Store::open(&options).await.unwrap();
    vec![TestDatabase { _folder: folder, options, store }]
}

impl TestDatabase {
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

    async fn term(&self) -> Fence {
        let holder = HolderId::parse(SystemIds.random().to_string()).unwrap();
        let generation = leases::begin_embedded_term(&self.store, &holder).await.unwrap();
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
        let tables = reader
            .query(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' \
                 ORDER BY name",
                values![],
            )
            .await
            .unwrap();
        let mut dump = BTreeMap::new();
        for table in &tables {
            let table = table.text(0).unwrap();
            let columns =
                reader.query("SELECT name FROM pragma_table_info(?)", values![&table]).await.unwrap();
            let columns: Vec<String> =
                columns.iter().map(|column| format!("quote(\"{}\")", column.text(0).unwrap())).collect();
            let text = format!("SELECT {} FROM \"{table}\" ORDER BY 1", columns.join("||'|'||"));
            let rows = reader.query(text, values![]).await.unwrap();
            dump.insert(table, rows.iter().map(|row| row.text(0).unwrap()).collect());
        }
        dump
    }

    async fn run(&self, text: &str) {
        let mut tx = self.store.database.write().await.unwrap();
        tx.execute(text.to_owned(), values![]).await.unwrap();
        tx.commit().await.unwrap();
    }
}

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
        attempt,
        operations,
    }
}
