//! The publish transaction on OceanBase: how long one takes, and what ten publishers reach at once.
//!
//! Each Window belongs to a Scope of its own, as those of different workers do. Sources, attempts and
//! projections are there before the clock starts, so that the one transaction is measured alone. What the
//! engine itself reaches is printed beside it: ten connections against one, with transactions of as many
//! statements that each change one row of their own; and how much of the machine's processors was busy, since
//! the engine and its clients share them here. The same with the engine two milliseconds away, as another
//! machine would be, tells whether publishers wait for each other.

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::ambient::{IdSource as _, SystemIds};
use powercontext_core::content;
use powercontext_core::ids::{
    ArtifactId, AttemptId, BindingName, FlushGeneration, HolderId, Position, ScopeId, SourceId, SourceRef,
    Window,
};
use powercontext_core::projection::project;
use powercontext_core::topic::{BINDING, TopicContent};
use powercontext_core::work::{Fence, Frontier, WorkKey, WorkMode};
use powercontext_store::budgets::{AttemptFence, start_attempt};
use powercontext_store::publish::{PreparedTopic, PublishRequest, TopicOperation, publish};
use powercontext_store::scopes::{self, NewScope};
use powercontext_store::sources::{self, NewSource};
use powercontext_store::{DatabaseUrl, Store, StoreOptions, leases, migrate};
use powercontext_tests::engine;
use powercontext_tests::proxy::Proxy;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::sync::Mutex;

use crate::figures::{median, millis, now, per_second, processors, rate, row};

/// Windows of each measurement.
const WINDOWS: usize = 200;
const PUBLISHERS: usize = 10;
const CHUNKS: usize = 10;
/// About as many as a publish has.
const STATEMENTS: usize = 16;

/// How far away the engine is put.
const DISTANCE: Duration = Duration::from_millis(2);

/// Measures on new databases of the engine at this port and prints.
pub async fn print(port: u16) {
    publishers(&engine::url(port, "pc_bench_publish"), " on OceanBase").await;
    let far = Proxy::far(format!("127.0.0.1:{port}"), DISTANCE).await;
    publishers(&engine::url(far.port(), "pc_bench_publish_far"), " on OceanBase 2 ms away").await;

    let url = engine::url(port, "pc_bench_publish");
    let (alone, together) = (bare(&url, 1).await, bare(&url, PUBLISHERS).await);
    row("floor: bare transaction of 16 statements, one connection", &rate(alone));
    row("  ten connections at once", &rate(together));
    row("  ratio of ten to one", &format!("{:.2}", together / alone));
}

async fn publishers(url: &str, place: &str) {
    let mut options = StoreOptions::new(DatabaseUrl::parse(url).expect("a URL"));
    options.readers = 12;
    migrate(&options, &SystemIds).await.expect("a schema");
    let store = Store::open(&options).await.expect("a store");
    let holder = HolderId::parse("bench").expect("a holder");
    let generation = leases::acquire(&store, &holder, Duration::from_secs(3_600)).await.expect("an answer");
    let fence = Fence { holder, generation: generation.expect("the lease is free") };

    run(&store, prepare(&store, &fence, 20).await, 1).await;
    let (times, alone) = run(&store, prepare(&store, &fence, WINDOWS).await, 1).await;
    row(&format!("publish{place}, 1 Topic of 10 chunks, p50"), &millis(median(times)));
    row("  one publisher", &rate(alone));
    let requests = prepare(&store, &fence, WINDOWS).await;
    let before = processors();
    let (times, together) = run(&store, requests, PUBLISHERS).await;
    let busy = processors().busy_since(&before);
    row("  ten publishers at once", &rate(together));
    row("  ratio of ten to one", &format!("{:.2}", together / alone));
    row("  processors of the machine busy meanwhile", &format!("{:.0} %", busy * 100.0));
    row("  p50 of one transaction among ten", &millis(median(times)));
    store.close().await;
}

/// Bare transactions a second over so many connections.
async fn bare(url: &str, connections: usize) -> f64 {
    let pool = engine::connect(url);
    pool.execute("DROP TABLE IF EXISTS bench_floor").await.expect("no table");
    pool.execute("CREATE TABLE bench_floor (id BIGINT PRIMARY KEY, number BIGINT NOT NULL)")
        .await
        .expect("a table");
    let rows: Vec<String> = (0..connections * STATEMENTS).map(|id| format!("({id}, 0)")).collect();
    let fill = format!("INSERT INTO bench_floor VALUES {}", rows.join(", "));
    pool.execute(AssertSqlSafe(fill)).await.expect("rows");
    pool.close().await;
    let start = now();
    let mut tasks = Vec::new();
    for connection in 0..connections {
        let pool = engine::connect(url);
        tasks.push(tokio::spawn(async move {
            for _ in 0..WINDOWS / connections {
                let mut transaction = pool.begin().await.expect("a transaction");
                for statement in 0..STATEMENTS {
                    let id = i64::try_from(connection * STATEMENTS + statement).expect("small");
                    sqlx::query("UPDATE bench_floor SET number = number + 1 WHERE id = ?")
                        .bind(id)
                        .execute(&mut *transaction)
                        .await
                        .expect("an update");
                }
                transaction.commit().await.expect("a commit");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a connection");
    }
    per_second(WINDOWS, start.elapsed())
}

async fn prepare(store: &Store, fence: &Fence, count: usize) -> Vec<PublishRequest> {
    let mut requests = Vec::new();
    for _ in 0..count {
        let scope = scope(store).await;
        let key = WorkKey { binding: BindingName::parse(BINDING).expect("a binding"), scope };
        let frontier = Frontier { key, source_after: Position::new(0) };
        let attempt_id = AttemptId::parse(SystemIds.random().to_string()).expect("an id");
        start_attempt(store, fence, &frontier, &attempt_id).await.expect("an attempt");
        let artifact_id = ArtifactId::parse(SystemIds.random().to_string()).expect("an id");
        requests.push(PublishRequest {
            attempt: AttemptFence { fence: fence.clone(), frontier, attempt_id },
            window: Window { after: Position::new(0), through: Position::new(1) },
            wave_target: Position::new(1),
            claimed_flush_generation: FlushGeneration::new(0),
            mode: WorkMode::Explicit,
            operations: vec![TopicOperation::Create { artifact_id, topic: topic() }],
        });
    }
    requests
}

/// A Scope with one Source.
async fn scope(store: &Store) -> ScopeId {
    let scope_id = ScopeId::generate(&SystemIds);
    let new = NewScope {
        idempotency_key: scope_id.to_string(),
        scope_id: scope_id.clone(),
        title: "Bench".to_owned(),
        summary: "For one Window.".to_owned(),
        parent_scope_id: None,
        context_references: Vec::new(),
        external_references: Vec::new(),
    };
    scopes::create(store, &new).await.expect("a scope");
    let content_json = content::canonical(&Value::from("one note")).expect("a text");
    let source = NewSource {
        scope: scope_id.clone(),
        source_id: source(),
        content_digest: content::digest(&content_json),
        content_json,
        metadata_json: None,
    };
    sources::add(store, &source).await.expect("a capture");
    scope_id
}

fn source() -> SourceId {
    SourceId::parse("s1").expect("an id")
}

/// A Topic whose detail is cut into ten chunks.
fn topic() -> PreparedTopic {
    let mut detail = String::new();
    let mut number = 0;
    loop {
        let content = TopicContent {
            title: "Rollout of the gateway".to_owned(),
            summary: "Who waits for whom, and what was measured.".to_owned(),
            detail: detail.clone(),
        };
        if !detail.is_empty() {
            let projection = project(&content);
            if projection.chunks.len() == CHUNKS {
                return PreparedTopic { content, sources: vec![SourceRef::content(source())], projection };
            }
            assert!(projection.chunks.len() < CHUNKS, "the detail grows by less than a chunk");
        }
        for _ in 0..4 {
            number += 1;
            detail.push_str(&crate::note(number));
            detail.push_str("\n\n");
        }
    }
}

/// Publishes everything with so many publishers; each transaction's time, and how many a second.
async fn run(store: &Store, requests: Vec<PublishRequest>, publishers: usize) -> (Vec<Duration>, f64) {
    let count = requests.len();
    let queue = Arc::new(Mutex::new(requests));
    let start = now();
    let mut tasks = Vec::new();
    for _ in 0..publishers {
        let (store, queue) = (store.clone(), Arc::clone(&queue));
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::new();
            loop {
                let Some(request) = queue.lock().await.pop() else { return times };
                let start = now();
                publish(&store, &request).await.expect("a publish");
                times.push(start.elapsed());
            }
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a publisher"));
    }
    (times, per_second(count, start.elapsed()))
}
