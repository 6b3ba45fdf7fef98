//! A scratch database with one Scope, and a model that answers from a script.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use powercontext_core::ambient::{SystemClock, SystemIds};
use powercontext_core::content;
use powercontext_core::history::HistoryPolicy;
use powercontext_core::ids::{BindingName, FlushGeneration, HolderId, Position, ScopeId, SourceId};
use powercontext_core::stages::{EvidenceItem, GlobalInput, ProbeInput, ReconcileInput, Stage};
use powercontext_core::topic::{BINDING, TopicRef};
use powercontext_core::work::{Fence, Frontier, Outcome, WorkAssignment, WorkKey, WorkMode};
use powercontext_inference::{Generation, GenerationError, GenerationRequest, Generator, Usage};
use powercontext_store::topics::TopicRevision;
use powercontext_store::{
    DatabaseUrl, Store, StoreOptions, budgets, cursors, leases, pending, scopes, sources, topics,
};
use powercontext_worker::{NoObserver, WorkerParts, WorkerSettings, run};
use serde_json::{Value, json};

/// A migrated scratch database with its default Scope and a running term.
pub struct World {
    pub store: Store,
    pub scope: ScopeId,
    pub fence: Fence,
    pub settings: WorkerSettings,
    pub folder: tempfile::TempDir,
}

impl World {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::new(DatabaseUrl::file(&folder.path().join("worker.db")));
        powercontext_store::migrate(&options, &SystemIds).await.unwrap();
        let store = Store::open(&options).await.unwrap();
        let scope = scopes::default(&store).await.unwrap().unwrap().scope_id;
        let fence = begin_term(&store, "first").await;
        let settings = WorkerSettings {
            source_window_limit: 10,
            history: HistoryPolicy::default(),
            generation_max_requests: 2,
            context_window_tokens: 125_000,
        };
        Self { store, scope, fence, settings, folder }
    }

    pub fn url(&self) -> String {
        format!("sqlite://{}", self.folder.path().join("worker.db").display())
    }

    pub fn key(&self) -> WorkKey {
        WorkKey { binding: BindingName::parse(BINDING).unwrap(), scope: self.scope.clone() }
    }

    pub fn frontier(&self, after: i64) -> Frontier {
        Frontier { key: self.key(), source_after: Position::new(after) }
    }

    /// Captures plain texts and asks for a flush.
    pub async fn capture(&self, texts: &[&str]) {
        for text in texts {
            self.capture_json(json!(text)).await;
        }
        pending::flush(&self.store, &self.key()).await.unwrap();
    }

    pub async fn capture_json(&self, value: Value) {
        let head = sources::head(&self.store, &self.scope).await.unwrap();
        let content_json = content::canonical(&value).unwrap();
        let content_digest = content::digest(&content_json);
        let source_id = SourceId::parse(format!("src_{}", head.get() + 1)).unwrap();
        let scope = self.scope.clone();
        let new = sources::NewSource { scope, source_id, content_json, content_digest, metadata_json: None };
        sources::add(&self.store, &new).await.unwrap();
    }

    pub async fn assignment(&self) -> WorkAssignment {
        WorkAssignment {
            key: self.key(),
            fence: self.fence.clone(),
            source_after: self.cursor().await,
            wave_target: sources::head(&self.store, &self.scope).await.unwrap(),
            claimed_flush_generation: FlushGeneration::new(1),
            mode: WorkMode::Explicit,
        }
    }

    pub fn parts(&self, model: &Arc<Script>) -> WorkerParts {
        WorkerParts {
            store: self.store.clone(),
            generator: model.clone(),
            clock: Arc::new(SystemClock::start()),
            ids: Arc::new(SystemIds),
            settings: self.settings,
            observer: Arc::new(NoObserver),
        }
    }

    /// Runs one worker with these replies, in order.
    pub async fn work(&self, replies: Vec<Reply>) -> (Outcome, Arc<Script>) {
        let model = Script::new(replies);
        let outcome = run(self.assignment().await, self.parts(&model)).await;
        (outcome, model)
    }

    pub async fn cursor(&self) -> Position {
        cursors::get(&self.store, &self.key()).await.unwrap()
    }

    pub async fn budget(&self, after: i64) -> Option<budgets::Budget> {
        budgets::get(&self.store, &self.frontier(after)).await.unwrap()
    }

    pub async fn pending(&self) -> Vec<pending::PendingFact> {
        pending::page(&self.store, None, 10).await.unwrap()
    }

    /// Every current Topic that a text finds, with its exact Revision.
    pub async fn topics(&self, query: &str) -> Vec<TopicRevision> {
        let query = powercontext_core::analyzer::Query::parse(query).unwrap();
        let mut found = Vec::new();
        for hit in topics::search(&self.store, &self.scope, &query, 20).await.unwrap() {
            found.push(topics::get(&self.store, &self.scope, &hit.topic).await.unwrap().unwrap());
        }
        found
    }

    pub async fn exact(&self, topic: &TopicRef) -> Option<TopicRevision> {
        topics::get(&self.store, &self.scope, topic).await.unwrap()
    }

    /// Everything a failed worker must leave alone.
    pub async fn durable(&self) -> (Position, Vec<pending::PendingFact>, Vec<TopicRevision>) {
        let mut topics = Vec::new();
        // One word a search: several words would have to meet in one Topic.
        for word in ["alpha", "beta", "gamma", "delta"] {
            topics.extend(self.topics(word).await);
        }
        (self.cursor().await, self.pending().await, topics)
    }
}

pub async fn begin_term(store: &Store, holder: &str) -> Fence {
    let holder = HolderId::parse(holder).unwrap();
    let generation = leases::begin_embedded_term(store, &holder).await.unwrap();
    Fence { holder, generation }
}

type Answer = Box<dyn FnOnce(&Value) -> String + Send>;

/// What the model does when it is asked next.
pub enum Reply {
    /// Answers from the input.
    From(Answer),
    /// Fails.
    Error(GenerationError),
    /// A new term begins, then the next reply is given.
    NewTerm(Store),
    /// Waits for a word, then the next reply is given.
    Wait(tokio::sync::oneshot::Receiver<()>),
    /// Runs a statement on the database behind this URL, then the next reply is given.
    Sql(String, &'static str),
    /// Never answers.
    Hang,
}

pub fn text(answer: impl Into<String>) -> Reply {
    let answer = answer.into();
    Reply::From(Box::new(move |_| answer))
}

pub fn answer(value: Value) -> Reply {
    text(value.to_string())
}

/// One Probe with this query over every Source.
pub fn probe(query: &str) -> Reply {
    let query = query.to_owned();
    Reply::From(Box::new(move |input| {
        let input: ProbeInput = serde_json::from_value(input.clone()).unwrap();
        let ids: Vec<&String> = input.sources.iter().map(|item: &EvidenceItem| &item.evidence_id).collect();
        json!({"probes": [{"query": query, "evidence_ids": ids}]}).to_string()
    }))
}

pub fn draft(title: &str, ids: &[&str]) -> Value {
    json!({
        "title": title,
        "summary": format!("Summary of {title}"),
        "detail": format!("Detail of {title}."),
        "evidence_ids": ids,
    })
}

/// New Topics, every slot left alone.
pub fn creates(drafts: Value) -> Reply {
    Reply::From(Box::new(move |input| {
        let input: GlobalInput = serde_json::from_value(input.clone()).unwrap();
        json!({"updates": vec![Value::Null; input.slots.len()], "new_topics": drafts}).to_string()
    }))
}

/// A rewrite of the slot with this title, and new Topics.
pub fn updates(title: &str, draft: Value, new_topics: Value) -> Reply {
    let title = title.to_owned();
    Reply::From(Box::new(move |input| {
        let input: GlobalInput = serde_json::from_value(input.clone()).unwrap();
        assert!(input.slots.iter().any(|slot| slot.title == title), "`{title}` is offered");
        let entry = |slot: &powercontext_core::stages::Slot| {
            if slot.title == title { draft.clone() } else { Value::Null }
        };
        let updates: Vec<Value> = input.slots.iter().map(entry).collect();
        json!({"updates": updates, "new_topics": new_topics}).to_string()
    }))
}

/// A model that answers from a script and remembers what it was asked.
pub struct Script {
    replies: Mutex<VecDeque<Reply>>,
    pub asked: Mutex<Vec<Asked>>,
}

/// One question as it was sent.
#[derive(Clone, Debug)]
pub struct Asked {
    pub stage: Stage,
    pub instructions: String,
    pub input: Value,
    pub schema: Value,
    pub correction: Option<(String, String)>,
}

impl Script {
    pub fn new(replies: Vec<Reply>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.into()), asked: Mutex::new(Vec::new()) })
    }

    pub fn stages(&self) -> Vec<Stage> {
        self.asked.lock().unwrap().iter().map(|asked| asked.stage).collect()
    }

    pub fn reconcile_inputs(&self) -> Vec<ReconcileInput> {
        let asked = self.asked.lock().unwrap();
        let reconcile = asked.iter().filter(|asked| asked.stage == Stage::Reconcile);
        reconcile.map(|asked| serde_json::from_value(asked.input.clone()).unwrap()).collect()
    }

    pub fn left(&self) -> usize {
        self.replies.lock().unwrap().len()
    }

    fn next(&self) -> Reply {
        self.replies.lock().unwrap().pop_front().expect("the model is asked more often than scripted")
    }
}

#[async_trait]
impl Generator for Script {
    fn model(&self) -> &str {
        "script"
    }

    async fn generate(&self, request: &GenerationRequest<'_>) -> Result<Generation, GenerationError> {
        self.asked.lock().unwrap().push(Asked {
            stage: request.stage,
            instructions: request.instructions.to_owned(),
            input: request.input.clone(),
            schema: request.schema.clone(),
            correction: request.correction.map(|it| (it.answer.clone(), it.problem.clone())),
        });
        loop {
            match self.next() {
                Reply::From(answer) => {
                    let usage = Usage { input_tokens: 7, output_tokens: 3 };
                    return Ok(Generation { text: answer(request.input), usage });
                }
                Reply::Error(error) => return Err(error),
                Reply::NewTerm(store) => {
                    begin_term(&store, "second").await;
                }
                Reply::Wait(word) => word.await.unwrap(),
                Reply::Sql(url, statement) => {
                    let pool = sqlx::sqlite::SqlitePool::connect(&url).await.unwrap();
                    sqlx::query(statement).execute(&pool).await.unwrap();
                    pool.close().await;
                }
                Reply::Hang => std::future::pending().await,
            }
        }
    }
}
