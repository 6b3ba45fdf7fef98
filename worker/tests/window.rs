//! One Window from capture to published Topics, over a real database and a scripted model.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::sync::Arc;

use common::{Reply, Script, World, answer, creates, draft, probe, updates};
use powercontext_core::ids::{FlushGeneration, Position};
use powercontext_core::stages::Stage;
use powercontext_core::work::{Ending, Step, WorkAssignment, WorkMode};
use powercontext_worker::{StepObserver, WorkerParts, run};
use serde_json::json;

fn source_ids(revision: &powercontext_store::topics::TopicRevision) -> Vec<String> {
    revision.sources.iter().map(|source| source.source_id.to_string()).collect()
}

#[tokio::test]
async fn each_topic_keeps_only_the_evidence_it_used() {
    // TM-041, TM-042, TM-044, TM-120, TM-158, TM-200
    let world = World::new().await;
    world.capture(&["alpha one", "alpha two", "beta three"]).await;
    let topics = json!([draft("alpha", &["s2", "s1"]), draft("beta", &["s3"])]);
    let (outcome, model) = world.work(vec![probe("alpha beta"), creates(topics)]).await;
    assert_eq!((outcome.ending, outcome.step, outcome.error_code), (Ending::Done, Step::Publish, None));
    assert_eq!(model.stages(), [Stage::Probe, Stage::Global]);
    assert_eq!((outcome.counts.sources, outcome.counts.created, outcome.counts.updated), (3, 2, 0));
    assert_eq!(source_ids(&world.topics("alpha").await[0]), ["src_1", "src_2"]);
    assert_eq!(source_ids(&world.topics("beta").await[0]), ["src_3"]);
    assert_eq!(world.cursor().await, Position::new(3));
    assert!(world.pending().await.is_empty(), "the flush is answered");
    let line = serde_json::to_string(&outcome).unwrap();
    assert!(line.len() < 4_096 && !line.contains("alpha"), "{line}");
    assert_eq!(outcome.step_millis.len(), 10);
}

#[tokio::test]
async fn an_update_keeps_the_identity_and_is_offered_without_it() {
    // TM-045, TM-095, TM-121, TM-123, TM-127, TM-011, TM-119
    let world = World::new().await;
    world.capture(&["alpha one"]).await;
    world.work(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]).await;
    let first = world.topics("alpha").await.remove(0);
    world.capture(&["alpha two"]).await;
    let rewrite = draft("alpha again", &["s1"]);
    let (outcome, model) = world.work(vec![probe("alpha"), updates("alpha", rewrite, json!([]))]).await;
    assert_eq!((outcome.counts.created, outcome.counts.updated), (0, 1));
    assert_eq!(model.stages(), [Stage::Probe, Stage::Global], "a steady update takes two calls");
    let second = world.topics("alpha").await.remove(0);
    assert_eq!(second.topic.artifact_id, first.topic.artifact_id);
    assert_eq!(second.topic.revision.get(), 2);
    assert_eq!(second.content.title, "alpha again");
    assert_eq!(source_ids(&second), ["src_2"]);
    assert_eq!(world.exact(&first.topic).await, Some(first.clone()), "the old Revision stays readable");
    let asked = format!("{:?}", model.asked.lock().unwrap());
    assert!(!asked.contains(first.topic.artifact_id.as_str()), "no identity reaches the model");
}

#[tokio::test]
async fn a_window_that_changes_nothing_still_moves_the_cursor() {
    // TM-122, TM-128, TM-087
    let world = World::new().await;
    world.capture(&["alpha one"]).await;
    world.work(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]).await;
    let before = world.topics("alpha").await;
    for (position, replies) in [
        (2, vec![answer(json!({"probes": []}))]),
        (3, vec![probe("alpha"), creates(json!([]))]),
        (4, vec![probe("alpha"), updates("alpha", draft("alpha", &["s1"]), json!([]))]),
    ] {
        world.capture(&["nothing new"]).await;
        let (outcome, model) = world.work(replies).await;
        assert_eq!(outcome.ending, Ending::Done);
        assert_eq!((outcome.counts.created, outcome.counts.updated), (0, 0));
        assert_eq!(model.left(), 0);
        assert_eq!(world.cursor().await, Position::new(position));
        assert_eq!(world.topics("alpha").await, before);
        assert_eq!(world.budget(position - 1).await, None);
    }
}

#[tokio::test]
async fn a_worker_takes_one_window_and_leaves_the_tail() {
    // TM-002, TM-026, TM-166, TM-167, TM-023
    let mut world = World::new().await;
    world.settings.source_window_limit = 2;
    world.capture(&["alpha one", "alpha two", "alpha three"]).await;
    let (outcome, _) =
        world.work(vec![probe("alpha"), creates(json!([draft("alpha", &["s1", "s2"])]))]).await;
    assert_eq!(outcome.window.map(|window| window.through), Some(Position::new(2)));
    assert_eq!(world.cursor().await, Position::new(2));
    assert_eq!(world.pending().await.len(), 1, "the flush is not answered yet");
    let (outcome, _) = world.work(vec![probe("alpha"), creates(json!([]))]).await;
    assert_eq!(outcome.counts.sources, 1);
    assert!(world.pending().await.is_empty());
}

#[tokio::test]
async fn a_window_never_passes_its_wave_target_and_one_behind_it_has_nothing_to_do() {
    // TM-166, TM-169
    let world = World::new().await;
    world.capture(&["alpha one", "alpha two"]).await;
    let mut assignment = world.assignment().await;
    assignment.wave_target = Position::new(1);
    let model = Script::new(vec![probe("alpha"), creates(json!([]))]);
    let outcome = run(assignment.clone(), world.parts(&model)).await;
    assert_eq!((outcome.ending, outcome.counts.sources), (Ending::Done, 1));
    assignment.source_after = Position::new(1);
    let outcome = run(assignment, world.parts(&Script::new(vec![]))).await;
    assert_eq!((outcome.ending, outcome.step), (Ending::Done, Step::Start));
    assert_eq!(world.budget(1).await, None, "no attempt is used");
}

#[tokio::test]
async fn a_round_without_a_new_topic_does_not_search_again() {
    // TM-119
    for (new_topic, ending) in [(false, Ending::Done), (true, Ending::Transient)] {
        let world = World::new().await;
        with_existing(&world).await;
        world.capture(&["alpha lease"]).await;
        // From the answer on, no search can succeed.
        let no_search = "ALTER TABLE pc_topic_memory_active_chunks RENAME TO elsewhere";
        let drafts = if new_topic { json!([draft("alpha lease", &["s1"])]) } else { json!([]) };
        let (outcome, model) =
            world.work(vec![probe("alpha"), Reply::Sql(world.url(), no_search), creates(drafts)]).await;
        assert_eq!(outcome.ending, ending, "{outcome:?}");
        assert_eq!(outcome.step, if new_topic { Step::Reconcile } else { Step::Publish });
        assert_eq!(model.stages(), [Stage::Probe, Stage::Global]);
    }
}

/// One published Topic whose own text finds it again above the threshold.
async fn with_existing(world: &World) {
    world.capture(&["alpha lease"]).await;
    world.work(vec![probe("alpha"), creates(json!([draft("alpha lease", &["s1"])]))]).await;
    assert_eq!(world.cursor().await, Position::new(1));
}

#[tokio::test]
async fn new_topics_about_an_existing_one_become_one_update_of_it() {
    // TM-115, TM-116, TM-117, TM-118
    let world = World::new().await;
    with_existing(&world).await;
    let old = world.topics("alpha").await.remove(0);
    world.capture(&["alpha lease renewal", "alpha lease expiry", "violin"]).await;
    let new = json!([
        draft("alpha lease", &["s1"]),
        { "title": "violin", "summary": "strings", "detail": "wood", "evidence_ids": ["s3"] },
        draft("alpha lease", &["s2"]),
    ]);
    let merged = json!({"update": draft("alpha lease, all of it", &["s1", "s2"]), "creates": []});
    let (outcome, model) = world.work(vec![probe("unrelated"), creates(new), answer(merged)]).await;
    assert_eq!(outcome.ending, Ending::Done, "{outcome:?}");
    assert_eq!((outcome.counts.created, outcome.counts.updated), (1, 1));
    let inputs = model.reconcile_inputs();
    assert_eq!(inputs.len(), 1, "the lone new Topic needs no call");
    assert_eq!(inputs[0].creates.len(), 2);
    assert_eq!(inputs[0].existing.title, "alpha lease");
    let updated = world.topics("alpha").await.remove(0);
    assert_eq!(updated.topic.artifact_id, old.topic.artifact_id);
    assert_eq!(source_ids(&updated), ["src_2", "src_3"]);
    assert_eq!(source_ids(&world.topics("violin").await[0]), ["src_4"]);
}

#[tokio::test]
async fn a_new_topic_about_a_topic_that_this_round_rewrites_is_folded_into_that_rewrite() {
    // B-16, TM-102, TM-117
    let world = World::new().await;
    with_existing(&world).await;
    world.capture(&["alpha lease renewal", "alpha lease expiry"]).await;
    let rewrite = draft("alpha lease renewed", &["s1"]);
    let new = json!([draft("alpha lease", &["s2"])]);
    let folded = json!({"update": draft("alpha lease, complete", &["s2"]), "creates": []});
    let (outcome, model) =
        world.work(vec![probe("alpha"), updates("alpha lease", rewrite, new), answer(folded)]).await;
    assert_eq!((outcome.ending, outcome.counts.created, outcome.counts.updated), (Ending::Done, 0, 1));
    let existing = model.reconcile_inputs().remove(0).existing;
    assert_eq!(existing.title, "alpha lease renewed", "the rewrite of this round is what is shown");
    let topics = world.topics("alpha").await;
    assert_eq!(topics.len(), 1);
    assert_eq!(
        (topics[0].topic.revision.get(), topics[0].content.title.as_str()),
        (2, "alpha lease, complete")
    );
    assert_eq!(source_ids(&topics[0]), ["src_2", "src_3"]);
}

#[tokio::test]
async fn coordination_may_keep_topics_apart_and_a_lost_evidence_fails_the_window() {
    // TM-112, TM-117, TM-011
    let world = World::new().await;
    with_existing(&world).await;
    world.capture(&["alpha lease renewal"]).await;
    let new = || creates(json!([draft("alpha lease", &["s1"])]));
    let lost = || answer(json!({"update": null, "creates": []}));
    let before = world.durable().await;
    let (outcome, _) = world.work(vec![probe("alpha"), new(), lost(), lost()]).await;
    assert_eq!((outcome.ending, outcome.step), (Ending::Transient, Step::Reconcile));
    assert_eq!(world.durable().await, before);
    let apart = answer(json!({"update": null, "creates": [draft("alpha lease", &["s1"])]}));
    let (outcome, _) = world.work(vec![probe("alpha"), new(), apart]).await;
    assert_eq!((outcome.ending, outcome.counts.created), (Ending::Done, 1));
    assert_eq!(world.topics("alpha").await.len(), 2);
}

/// What a server-side capture of lineage marks on its Source.
#[tokio::test]
async fn a_long_probe_is_offered_the_nearest_topics_where_few_have_enough_of_its_terms() {
    // TM-089, TM-090, TM-092
    let world = World::new().await;
    world.capture(&["alpha", "violin"]).await;
    let violin = json!({ "title": "violin", "summary": "strings", "detail": "wood", "evidence_ids": ["s2"] });
    world.work(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"]), violin]))]).await;
    world.capture(&["a long Source"]).await;
    let long =
        "violin one two three four five six seven eight nine ten eleven twelve alpha thirteen fourteen";
    let (_, model) =
        world.work(vec![probe(long), answer(json!({"updates": [null, null], "new_topics": []}))]).await;
    let asked = model.asked.lock().unwrap();
    let mut offered: Vec<_> =
        asked[1].input["slots"].as_array().unwrap().iter().map(|slot| slot["title"].clone()).collect();
    offered.sort_by_key(ToString::to_string);
    assert_eq!(offered, ["alpha", "violin"]);
}

async fn mark_lineage_only(world: &World, position: i64) {
    let pool = sqlx::sqlite::SqlitePool::connect(&world.url()).await.unwrap();
    let done = sqlx::query("UPDATE pc_sources SET lineage_only = 1 WHERE position = ?").bind(position);
    assert_eq!(done.execute(&pool).await.unwrap().rows_affected(), 1);
    pool.close().await;
}

#[tokio::test]
async fn lineage_only_sources_are_never_shown_and_alone_need_no_model() {
    // TM-036, TM-037, B-10, TM-087
    let mut world = World::new().await;
    world.settings.source_window_limit = 2;
    world.capture(&["hidden one", "hidden two", "hidden three", "alpha four"]).await;
    for position in 1..=3 {
        mark_lineage_only(&world, position).await;
    }
    let (outcome, model) = world.work(vec![]).await;
    assert_eq!((outcome.ending, outcome.counts.sources, outcome.counts.requests), (Ending::Done, 2, 0));
    assert!(model.stages().is_empty());
    assert_eq!(world.cursor().await, Position::new(2));
    let (outcome, model) = world.work(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]).await;
    assert_eq!((outcome.ending, outcome.counts.sources), (Ending::Done, 2));
    assert!(!format!("{:?}", model.asked.lock().unwrap()).contains("hidden"));
    assert_eq!(source_ids(&world.topics("alpha").await[0]), ["src_4"]);
    assert_eq!(world.cursor().await, Position::new(4));
}

/// Asks after every step, through a connection of its own, whether a write could begin at once.
struct WriteProbe {
    file: std::path::PathBuf,
    answers: std::sync::Mutex<Vec<(Step, bool)>>,
}

impl WriteProbe {
    fn may_write(&self) -> bool {
        let options = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(&self.file)
            .busy_timeout(std::time::Duration::ZERO);
        // The step is told from inside the worker's runtime, so the question needs one of its own.
        let ask = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
                sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&mut connection).await.is_ok()
            })
        };
        std::thread::spawn(ask).join().unwrap()
    }
}

impl StepObserver for WriteProbe {
    fn finished(&self, step: Step) {
        self.answers.lock().unwrap().push((step, self.may_write()));
    }
}

#[tokio::test]
async fn everything_is_prepared_while_no_transaction_is_open() {
    // TM-154
    let world = World::new().await;
    world.capture(&["alpha one"]).await;
    let file = world.folder.path().join("worker.db");
    let probe_of_writes = Arc::new(WriteProbe { file, answers: std::sync::Mutex::default() });
    let model = Script::new(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]);
    let parts = WorkerParts { observer: probe_of_writes.clone(), ..world.parts(&model) };
    let outcome = run(world.assignment().await, parts).await;
    assert_eq!(outcome.counts.created, 1);
    let answers = probe_of_writes.answers.lock().unwrap().clone();
    assert_eq!(answers.len(), 10);
    assert!(answers.iter().all(|(_, free)| *free), "{answers:?}");

    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&probe_of_writes.file);
    let mut other = sqlx::ConnectOptions::connect(&options).await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    assert!(!probe_of_writes.may_write(), "the question notices an open transaction");
}

#[tokio::test]
async fn a_window_of_an_automatic_wave_or_a_catch_up_moves_the_cursor_and_leaves_the_pending_row() {
    // TM-172, TM-212, TM-213
    for mode in [WorkMode::Automatic, WorkMode::CatchUp] {
        let world = World::new().await;
        world.capture(&["alpha one"]).await;
        let before = world.pending().await;
        assert_eq!(before.len(), 1);
        let model = Script::new(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]);
        let claimed_flush_generation = FlushGeneration::new(0);
        let assignment = WorkAssignment { mode, claimed_flush_generation, ..world.assignment().await };
        let outcome = run(assignment, world.parts(&model)).await;
        assert_eq!((outcome.ending, outcome.counts.created), (Ending::Done, 1));
        assert_eq!(world.cursor().await, Position::new(1));
        let after = world.pending().await;
        assert_eq!(after[0].handled_flush_generation, FlushGeneration::new(0), "{mode:?}");
        assert_eq!(after[0].flush_generation, before[0].flush_generation);
    }
}
