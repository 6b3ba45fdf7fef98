use std::time::Duration;

use powercontext_core::ambient::SystemIds;
use powercontext_core::ids::{
    AttemptId, FlushGeneration, Position, Revision, ScopeId, SourceId, SourceRef, WaveId,
};
use powercontext_core::topic::{Channel, TopicRef};
use powercontext_core::work::{ErrorCode, Fence, Frontier, WorkMode};

use super::{TestDatabase, artifact, create, databases, key, new_scope, new_source, prepared, request};
use crate::budgets::{self, AttemptFence, Reservation, start_attempt};
use crate::database::{Engine, Transaction, ran, values};
use crate::publish::{PublishRequest, TopicOperation, publish};
use crate::scopes::{ExternalReference, ScopeFilter, UpdateScope};
use crate::sources::ReadLimit;
use crate::waves::{AutoWave, Completion, Freeze};
use crate::{Store, cursors, fulltext, leases, pending, scopes, sources, topics, waves};

/// Steps that look at few rows whatever the database holds: a posting list that is looked up, a list
/// of bound values, an inner result that is bounded already, the index of unanswered flushes alone,
/// and the tables of one row. In SQLite's words; OceanBase's plans name a scan of a table as such.
const HARMLESS: &[&str] = &[
    "json_each",
    ":M",
    ":=",
    ":>",
    "SCAN term",
    "SCAN wanted",
    "SCAN binding",
    "SCAN hits",
    "SCAN hit",
    "SCAN best",
    "SCAN placed",
    "SCAN (subquery",
    "SCAN ancestors",
    "SCAN pending",
    "SCAN target",
    "SCAN CONSTANT ROW",
    "_asked",
    "SCAN pc_default_scope",
];

/// Does once whatever requests, Windows and supervisor passes do.
async fn do_everything(database: &TestDatabase) {
    let store = &database.store;
    let mut new = new_scope("a");
    new.external_references = vec![ExternalReference { kind: "git".to_owned(), value: "x".to_owned() }];
    new.context_references = vec![scopes::default(store).await.unwrap().unwrap().scope_id];
    new.parent_scope_id = new.context_references.first().cloned();
    let made = scopes::create(store, &new).await.unwrap();
    let scope = made.scope_id.clone();
    scopes::get(store, &scope).await.unwrap();
    scopes::list(store, &ScopeFilter::default(), None, 5).await.unwrap();
    let children = ScopeFilter { parent_scope_id: made.parent_scope_id.clone(), ..ScopeFilter::default() };
    scopes::list(store, &children, Some(&scope), 5).await.unwrap();
    let update = UpdateScope {
        scope_id: scope.clone(),
        expected_version: 1,
        title: made.title,
        summary: made.summary,
        parent_scope_id: made.parent_scope_id,
        context_references: made.context_references,
        external_references: made.external_references,
    };
    scopes::update(store, &update).await.unwrap();
    scopes::set_default(store, &scope).await.unwrap();

    let fence = database.term().await;
    for through in 1..=2 {
        sources::add(store, &new_source(&scope, &format!("s{through}"), "text")).await.unwrap();
        pending::flush(store, &key(&scope)).await.unwrap();
        pending::page(store, None, 5).await.unwrap();
        pending::get(store, &key(&scope)).await.unwrap();
        let attempt = database.attempt(&fence, &key(&scope), through - 1).await;
        let reservation = Reservation { requests: 1, tokens: 1, through: Position::new(through) };
        budgets::reserve(store, &attempt, reservation).await.unwrap();
        budgets::record_failure(store, &attempt, ErrorCode::InvalidOutput).await.unwrap();
        budgets::get(store, &attempt.frontier).await.unwrap();
        let detail = "The kestrel hovers. ".repeat(200);
        let operation = match through {
            1 => create("one", "Kestrel", "The falcon.", &detail),
            _ => TopicOperation::Update {
                target: TopicRef { artifact_id: artifact("one"), revision: Revision::new(1) },
                topic: prepared("Kestrel", "The falcon.", &detail),
            },
        };
        let request = PublishRequest {
            claimed_flush_generation: FlushGeneration::new(through),
            ..request(attempt, through, vec![operation])
        };
        publish(store, &request).await.unwrap();
    }
    pending::settle(store, &fence, &key(&scope)).await.unwrap();
    whole_wave(store, &fence, &scope).await;
    leases::current(store).await.unwrap();
    cursors::get(store, &key(&scope)).await.unwrap();
    store.ping().await.unwrap();

    let everything = (Position::default(), Position::new(9));
    let limit = ReadLimit { sources: 9, bytes: 999 };
    sources::window_candidates(store, &scope, everything, limit).await.unwrap();
    sources::page(store, &scope, everything, limit).await.unwrap();
    sources::head(store, &scope).await.unwrap();
    let source = SourceRef::content(SourceId::parse("s1").unwrap());
    sources::get(store, &scope, &source).await.unwrap().unwrap();
    assert_eq!(database.search(&scope, "kestrel").await.len(), 1);
    let topic = TopicRef { artifact_id: artifact("one"), revision: Revision::new(1) };
    topics::get(store, &scope, &topic).await.unwrap().unwrap();
    assert_eq!(topics::current(store, &scope, &[artifact("one")]).await.unwrap().len(), 1);
}

/// One automatic wave, from the freeze to the completion.
async fn whole_wave(store: &Store, fence: &Fence, scope: &ScopeId) {
    let wave = AutoWave { binding: key(scope).binding, id: WaveId::generate(&SystemIds) };
    sources::add(store, &new_source(scope, "s3", "text")).await.unwrap();
    let frozen = waves::freeze(store, fence, &wave, Duration::ZERO).await.unwrap();
    assert_eq!(frozen, Freeze::Frozen { members: 1 });
    waves::targets(store, &wave, None, 5).await.unwrap();
    waves::late(store, &wave, None, 5).await.unwrap();
    assert_eq!(waves::complete(store, fence, &wave).await.unwrap(), Completion::Uncovered);
    let attempt_id = AttemptId::parse("wave").unwrap();
    let frontier = Frontier { key: key(scope), source_after: Position::new(2) };
    start_attempt(store, fence, &frontier, &attempt_id).await.unwrap();
    let attempt = AttemptFence { fence: fence.clone(), frontier, attempt_id };
    let window = PublishRequest { mode: WorkMode::Automatic, ..request(attempt, 3, Vec::new()) };
    publish(store, &window).await.unwrap();
    waves::mark_covered(store, fence, &wave, std::slice::from_ref(scope)).await.unwrap();
    let completed = waves::complete(store, fence, &wave).await.unwrap();
    assert_eq!(completed, Completion::Completed { removed: 1 });
}

/// Statements that must be among those that ran, so that the list cannot become empty unseen.
fn known(engine: Engine) -> Vec<String> {
    let mut known = vec![
        topics::surroundings_text(engine, 1),
        pending::PAGE.of(engine).to_owned(),
        budgets::RESERVE.of(engine).to_owned(),
        leases::HOLD.of(engine).to_owned(),
    ];
    let of_waves = [waves::TARGETS, waves::LATE, waves::UNCOVERED, waves::REMOVE_SETTLED, waves::FORGET];
    known.push(waves::FREEZE.of(engine).to_owned());
    known.extend(of_waves.map(str::to_owned));
    match engine {
        Engine::Sqlite => known.extend(
            [
                fulltext::TOPIC_FREQUENCIES,
                fulltext::CHUNK_FREQUENCIES,
                fulltext::TOPIC_CANDIDATES,
                fulltext::CHUNK_CANDIDATES,
            ]
            .map(str::to_owned),
        ),
        Engine::OceanBase => {
            for channel in [Channel::TopicFts, Channel::DetailFts] {
                known.push(fulltext::oceanbase::frequencies_text(channel, 1));
                known.push(fulltext::oceanbase::candidates_text(channel, 1));
            }
        }
    }
    known
}

#[tokio::test]
async fn no_statement_that_runs_scans_a_table() {
    for database in databases().await {
        ran::take();
        do_everything(&database).await;
        let texts = ran::take();
        let mut reader = database.store.database.read().await.unwrap();
        let statements: Vec<&str> = texts
            .iter()
            .flat_map(|text| text.split(';').map(str::trim))
            .filter(|statement| !["BEGIN", "COMMIT"].iter().any(|word| statement.starts_with(word)))
            .collect();
        assert!(statements.len() > 60, "{} statements", statements.len());
        for known in known(database.engine()) {
            assert!(statements.contains(&known.as_str()), "never ran: {known}");
        }
        for statement in statements {
            match database.engine() {
                Engine::Sqlite => scans_nothing_on_sqlite(&mut reader, statement).await,
                Engine::OceanBase => scans_nothing_on_oceanbase(&mut reader, statement).await,
            }
        }
    }
}

async fn scans_nothing_on_sqlite(reader: &mut Transaction, statement: &str) {
    let rows = reader.query(format!("EXPLAIN QUERY PLAN {statement}"), values![]).await.unwrap();
    for row in &rows {
        let step = row.text(3).unwrap();
        let scans = step.starts_with("SCAN") && !HARMLESS.iter().any(|known| step.contains(known));
        assert!(!scans, "{statement}: {step}");
    }
}

/// The default Scope is one row, and the chain of ancestors one that was just found.
async fn scans_nothing_on_oceanbase(reader: &mut Transaction, statement: &str) {
    let plan = plan_on_oceanbase(reader, statement).await;
    let harmless = |step: &str| ["pc_default_scope", "|ancestors"].iter().any(|table| step.contains(table));
    let scans = |step: &&str| step.contains("FULL SCAN") && !harmless(step);
    assert_eq!(plan.lines().find(scans), None, "{statement}\n{plan}");
    let retrievals = plan.matches("TEXT RETRIEVAL SCAN").count();
    assert_eq!(retrievals, statement.matches("MATCH").count(), "{statement}\n{plan}");
}

/// The plan of the statement with a value in place of every placeholder.
async fn plan_on_oceanbase(reader: &mut Transaction, statement: &str) -> String {
    let mut filled = statement.replace("LIMIT ?", "LIMIT 9");
    for comparison in ["<", "<=", ">=", "+", "-"] {
        filled = filled.replace(&format!("{comparison} ?"), &format!("{comparison} 8"));
    }
    let filled = filled.replace('?', "'7xfoo'");
    let rows = reader.query(format!("EXPLAIN {filled}"), values![]).await.unwrap();
    rows.iter().map(|row| row.text(0).unwrap()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn every_page_is_a_bounded_range_of_an_index_that_nobody_has_to_sort() {
    // TM-207
    for database in databases().await {
        let mut reader = database.store.database.read().await.unwrap();
        // The live rows are read in the order of the table's own key.
        for (page, index) in [
            (pending::PAGE.of(database.engine()), "(pc_artifact_processing_pending_asked)"),
            (waves::TARGETS, "(pc_artifact_processing_auto_wave_targets_open)"),
            (waves::LATE, ""),
        ] {
            match database.engine() {
                Engine::Sqlite => {
                    let rows = reader.query(format!("EXPLAIN QUERY PLAN {page}"), values![]).await.unwrap();
                    let plan: Vec<String> = rows.iter().map(|row| row.text(3).unwrap()).collect();
                    let index = if index.is_empty() { "PRIMARY KEY" } else { index.trim_matches(['(', ')']) };
                    assert!(plan.iter().any(|step| step.contains(index)), "{plan:?}");
                    assert!(plan.iter().all(|step| !step.contains("TEMP B-TREE")), "sorted: {plan:?}");
                }
                Engine::OceanBase => {
                    let plan = plan_on_oceanbase(&mut reader, page).await;
                    bounded_on_oceanbase(&plan);
                    assert!(plan.contains(index), "{plan}");
                }
            }
        }
    }
}

/// Exactly one range is read, it ends at the page's limit, and what is joined to it is looked up by key.
pub(super) fn bounded_on_oceanbase(plan: &str) {
    assert_eq!(plan.matches("TABLE RANGE SCAN").count(), 1, "{plan}");
    assert_eq!(plan.matches("limit(").count(), 1, "{plan}");
    for step in ["FULL SCAN", "SORT", "PX ", "HASH", "MERGE JOIN", "MATERIAL"] {
        assert!(!plan.contains(step), "{step}: {plan}");
    }
}
