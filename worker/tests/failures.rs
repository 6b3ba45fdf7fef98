//! What a failing model, a lost term or a second worker leaves behind: nothing but the budget row.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Reply, Script, World, answer, begin_term, creates, draft, probe, text};
use powercontext_core::ids::Position;
use powercontext_core::stages::Stage;
use powercontext_core::work::{Ending, ErrorCode, Step};
use powercontext_inference::{GenerationError, Usage};
use powercontext_worker::{StepObserver, run, run_until};
use serde_json::{Value, json};

fn global(drafts: Value) -> Reply {
    creates(drafts)
}

#[tokio::test]
async fn a_model_that_breaks_the_contract_twice_changes_nothing_and_shows_in_the_budget() {
    // TM-043, TM-061, TM-064, TM-073, TM-221, B-26, TM-059, TM-063
    let long = "x".repeat(513);
    let bad_globals: Vec<(&str, String)> = vec![
        ("prose", format!("Sure! {}", json!({"updates": [], "new_topics": []}))),
        ("fence", "```json\n{\"updates\":[],\"new_topics\":[]}\n```".into()),
        ("duplicate key", r#"{"updates":[],"updates":[],"new_topics":[]}"#.into()),
        ("unknown field", json!({"updates": [], "new_topics": [], "note": "x"}).to_string()),
        ("missing field", json!({"updates": []}).to_string()),
        ("unknown evidence", json!({"updates": [], "new_topics": [draft("alpha", &["s9"])]}).to_string()),
        ("no evidence", json!({"updates": [], "new_topics": [draft("alpha", &[])]}).to_string()),
        (
            "repeated evidence",
            json!({"updates": [], "new_topics": [draft("alpha", &["s1", "s1"])]}).to_string(),
        ),
        ("blank", json!({"updates": [], "new_topics": [draft("  ", &["s1"])]}).to_string()),
        ("too long", json!({"updates": [], "new_topics": [draft(&long, &["s1"])]}).to_string()),
        ("invented slot", json!({"updates": [draft("alpha", &["s1"])], "new_topics": []}).to_string()),
        ("empty", String::new()),
    ];
    for (name, bad) in bad_globals {
        let world = World::new().await;
        world.capture(&["alpha one", "alpha two"]).await;
        let before = world.durable().await;
        let (outcome, model) = world.work(vec![probe("alpha"), text(bad.clone()), text(bad)]).await;
        assert_eq!(outcome.error_code, Some(ErrorCode::InvalidOutput), "{name}");
        assert_eq!((outcome.ending, outcome.step), (Ending::Transient, Step::Global), "{name}");
        assert_eq!(outcome.counts.requests, 3, "{name}");
        assert_eq!((outcome.counts.input_tokens, outcome.counts.output_tokens), (21, 9));
        assert!(model.asked.lock().unwrap()[2].correction.is_some(), "{name}: the second try is corrected");
        assert_eq!(world.durable().await, before, "{name}");
        let budget = world.budget(0).await.unwrap();
        assert_eq!((budget.attempts, budget.failure_code), (1, Some(ErrorCode::InvalidOutput)), "{name}");
        assert_eq!((budget.reserved_requests, budget.reserved_tokens), (4, 500_000), "{name}");
    }
}

#[tokio::test]
async fn a_corrected_answer_is_published() {
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let (outcome, model) =
        world.work(vec![text("no"), probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]).await;
    assert_eq!(outcome.ending, Ending::Done);
    let (answer, problem) = model.asked.lock().unwrap()[1].correction.clone().unwrap();
    assert_eq!(answer, "no");
    assert!(problem.contains("exactly one JSON object"), "{problem}");
    assert_eq!(world.cursor().await, Position::new(1));
    assert_eq!(world.budget(0).await, None, "TM-076");
}

#[tokio::test]
async fn a_provider_that_fails_at_any_call_is_not_asked_again_and_changes_nothing() {
    // TM-079, TM-097, TM-224
    let usage = Usage { input_tokens: 5, output_tokens: 0 };
    let failures: Vec<fn(Usage) -> GenerationError> = vec![
        |usage| GenerationError::Refused { usage: Some(usage) },
        |usage| GenerationError::Truncated { usage: Some(usage) },
        |_| GenerationError::Timeout { after: Duration::from_secs(30) },
        |_| GenerationError::Unreachable { usage: None, source: None },
        |_| GenerationError::Overloaded { status: 429, retry_after: None, usage: None },
        |_| GenerationError::Rejected { status: 400, usage: None },
        |usage| GenerationError::Suspended { usage: Some(usage) },
        |usage| GenerationError::Unreadable { usage: Some(usage) },
        |_| GenerationError::Unauthorized { status: 401, usage: None },
        |_| GenerationError::QuotaExhausted { status: 429, usage: None },
    ];
    for failure in failures {
        for at in [Stage::Probe, Stage::Global] {
            let world = World::new().await;
            world.capture(&["alpha"]).await;
            let before = world.durable().await;
            let error = failure(usage);
            let code = error.code();
            let mut replies = vec![Reply::Error(error)];
            if at == Stage::Global {
                replies.insert(0, probe("alpha"));
            }
            let (outcome, model) = world.work(replies).await;
            assert_eq!((outcome.ending, outcome.error_code), (code.ending(), Some(code)));
            assert_eq!(model.stages().last(), Some(&at));
            assert_eq!(world.durable().await, before);
            assert_eq!(world.budget(0).await.unwrap().failure_code, Some(code));
        }
    }
}

#[tokio::test]
async fn a_wish_of_the_provider_to_be_left_alone_reaches_the_outcome() {
    // TM-222
    let limited = |wait| GenerationError::RateLimited { status: 429, retry_after: wait, usage: None };
    for (wait, seconds) in [(None, None), (Some(Duration::from_millis(1500)), Some(2))] {
        let world = World::new().await;
        world.capture(&["alpha"]).await;
        let (outcome, _) = world.work(vec![Reply::Error(limited(wait))]).await;
        assert_eq!(outcome.retry_after_seconds, seconds);
    }
}

#[tokio::test]
async fn a_fourth_attempt_never_starts_and_asks_no_model() {
    // TM-060, TM-066, TM-067, TM-069
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    for attempt in 1..=3 {
        let (outcome, _) = world.work(vec![text("no"), text("no")]).await;
        assert_eq!(outcome.error_code, Some(ErrorCode::InvalidOutput));
        assert_eq!(world.budget(0).await.unwrap().attempts, attempt);
    }
    world.capture(&["beta"]).await;
    let before = world.durable().await;
    let (outcome, model) = world.work(vec![]).await;
    assert_eq!(
        (outcome.ending, outcome.error_code),
        (Ending::Permanent, Some(ErrorCode::WindowAttemptLimit))
    );
    assert!(model.stages().is_empty());
    assert_eq!(world.budget(0).await.unwrap().attempts, 3);
    assert_eq!(world.durable().await, before);
}

#[tokio::test]
async fn quota_that_is_used_up_ends_the_frontier_before_the_call() {
    // TM-061, TM-067
    let mut world = World::new().await;
    world.settings.generation_max_requests = 400;
    world.settings.context_window_tokens = 100_000;
    world.capture(&["alpha"]).await;
    let (outcome, model) = world.work(vec![probe("alpha")]).await;
    assert_eq!(outcome.error_code, Some(ErrorCode::WindowProviderBudgetExceeded));
    assert_eq!((outcome.ending, outcome.step), (Ending::Permanent, Step::Global));
    assert_eq!(model.stages(), [Stage::Probe]);
    let (again, model) = world.work(vec![]).await;
    assert_eq!(again.error_code, Some(ErrorCode::WindowProviderBudgetExceeded));
    assert!(model.stages().is_empty());
    assert_eq!(world.cursor().await, Position::new(0));
}

#[tokio::test]
async fn after_a_failure_a_retry_publishes_as_always_and_the_tail_follows() {
    // TM-070
    let mut world = World::new().await;
    world.settings.source_window_limit = 2;
    world.capture(&["alpha one", "alpha two", "alpha three"]).await;
    for attempt in 1..=2 {
        let (outcome, _) = world.work(vec![text("no"), text("no")]).await;
        assert_eq!(outcome.ending, Ending::Transient);
        assert_eq!(world.budget(0).await.unwrap().attempts, attempt);
    }
    let (outcome, _) = world.work(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]).await;
    assert_eq!((outcome.ending, outcome.counts.created), (Ending::Done, 1));
    assert_eq!((world.cursor().await, world.budget(0).await), (Position::new(2), None));
    let (outcome, _) = world.work(vec![probe("alpha"), creates(json!([]))]).await;
    assert_eq!((outcome.ending, outcome.counts.sources), (Ending::Done, 1));
    assert_eq!(world.cursor().await, Position::new(3));
    assert!(world.pending().await.is_empty());
}

#[tokio::test]
async fn an_answer_that_merges_splits_retires_or_deletes_is_no_answer() {
    // TM-125
    for operation in ["merge", "merges", "split", "splits", "retire", "retires", "delete", "deletes"] {
        let world = World::new().await;
        world.capture(&["alpha"]).await;
        world.work(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]).await;
        world.capture(&["alpha again"]).await;
        let before = world.durable().await;
        let bad = || {
            Reply::From(Box::new(move |input| {
                let slots = input["slots"].as_array().unwrap().len();
                let mut answer = json!({"updates": vec![json!(null); slots], "new_topics": []});
                answer[operation] = json!([1]);
                answer.to_string()
            }))
        };
        let (outcome, _) = world.work(vec![probe("alpha"), bad(), bad()]).await;
        assert_eq!(outcome.error_code, Some(ErrorCode::InvalidOutput), "{operation}");
        assert_eq!(world.durable().await, before, "{operation}");
    }
}

#[tokio::test]
async fn a_term_that_ends_while_the_model_answers_publishes_nothing() {
    // TM-075, TM-186, TM-194, TM-195, TM-225, TM-272
    for at_probe in [true, false] {
        let world = World::new().await;
        world.capture(&["alpha"]).await;
        let before = world.durable().await;
        let new_term = || Reply::NewTerm(world.store.clone());
        let mut replies = vec![probe("alpha"), global(json!([draft("alpha", &["s1"])]))];
        replies.insert(usize::from(!at_probe), new_term());
        let (outcome, _) = world.work(replies).await;
        assert_eq!((outcome.ending, outcome.error_code), (Ending::Superseded, Some(ErrorCode::Fenced)));
        assert_eq!(outcome.step, if at_probe { Step::Global } else { Step::Publish });
        assert_eq!(world.durable().await, before);
        assert_eq!(world.budget(0).await.unwrap().failure_code, None, "nothing is recorded");
    }
}

#[tokio::test]
async fn a_worker_of_an_older_generation_writes_nothing_at_all() {
    // TM-186, TM-195
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let model = Script::new(vec![]);
    let assignment = world.assignment().await;
    begin_term(&world.store, "second").await;
    let outcome = run(assignment, world.parts(&model)).await;
    assert_eq!((outcome.ending, outcome.error_code), (Ending::Superseded, Some(ErrorCode::Fenced)));
    assert_eq!(outcome.step, Step::Start);
    assert_eq!(world.budget(0).await, None);
    assert!(outcome.first_read_millis.is_some());
}

#[tokio::test]
async fn of_two_workers_on_one_window_the_newer_attempt_publishes_and_the_other_ends_superseded() {
    // TM-075, TM-158
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let assignment = world.assignment().await;
    let script = || vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))];
    let (one, two) = (Script::new(script()), Script::new(script()));
    let (first, second) =
        tokio::join!(run(assignment.clone(), world.parts(&one)), run(assignment.clone(), world.parts(&two)),);
    let mut endings = [first.ending, second.ending];
    endings.sort_by_key(|ending| ending.exit_code());
    assert_eq!(endings, [Ending::Done, Ending::Superseded], "{first:?} {second:?}");
    assert_eq!(world.topics("alpha").await.len(), 1);
    assert_eq!(world.cursor().await, Position::new(1));
    let late = run(assignment, world.parts(&Script::new(vec![]))).await;
    assert_eq!((late.ending, late.error_code), (Ending::Superseded, Some(ErrorCode::CursorConflict)));
}

#[tokio::test]
async fn an_older_attempt_cannot_ask_or_publish_after_a_newer_one_published() {
    // TM-075
    for (held, stage, ended_at) in [(0, Stage::Probe, Step::Global), (1, Stage::Global, Step::Publish)] {
        let world = World::new().await;
        world.capture(&["alpha"]).await;
        let (word, waiting) = tokio::sync::oneshot::channel();
        let unrelated =
            json!([{ "title": "violin", "summary": "strings", "detail": "wood", "evidence_ids": ["s1"] }]);
        let mut replies = vec![probe("alpha"), creates(unrelated)];
        replies.insert(held, Reply::Wait(waiting));
        let older = Script::new(replies);
        let run = tokio::spawn(run(world.assignment().await, world.parts(&older)));
        while older.stages().last() != Some(&stage) {
            tokio::task::yield_now().await;
        }
        let (newer, _) = world.work(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]).await;
        assert_eq!(newer.ending, Ending::Done);
        let before = world.durable().await;
        assert_eq!(before.2.len(), 1);
        word.send(()).unwrap();
        let outcome = run.await.unwrap();
        assert_eq!(outcome.ending, Ending::Superseded, "{outcome:?}");
        assert_eq!((outcome.step, outcome.counts.created), (ended_at, 0));
        assert_eq!(older.stages().last(), Some(&stage), "nothing more is asked");
        assert_eq!(world.durable().await, before);
        assert!(world.topics("violin").await.is_empty());
        assert_eq!(world.budget(0).await, None);
    }
}

#[tokio::test]
async fn a_request_that_is_never_answered_is_counted_and_its_tokens_are_not() {
    // TM-063, TM-064
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let timeout = GenerationError::Timeout { after: Duration::from_secs(30) };
    let (outcome, _) = world.work(vec![probe("alpha"), Reply::Error(timeout)]).await;
    assert_eq!(outcome.error_code, Some(ErrorCode::GenerationTimeout));
    let counts = outcome.counts;
    assert_eq!((counts.requests, counts.input_tokens, counts.output_tokens), (2, 7, 3));
}

#[tokio::test]
async fn a_correction_carries_no_text_of_the_answer_but_the_answer_itself() {
    // TM-033, TM-228
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let bad = format!(r#"{{"{}":1}}"#, "zephyrine".repeat(20_000));
    let (outcome, model) = world.work(vec![text(bad), answer(json!({"probes": []}))]).await;
    assert_eq!(outcome.ending, Ending::Done);
    let (refused, problem) = model.asked.lock().unwrap()[1].correction.clone().unwrap();
    assert_eq!(refused, "(left out: too long)");
    assert!(problem.len() <= 500 && !problem.contains("zephyrine"), "{problem}");
}

/// Tells a worker to stop as soon as a step is done.
struct StopAfter(Step, std::sync::Mutex<Option<tokio::sync::oneshot::Sender<()>>>);

impl StepObserver for StopAfter {
    fn finished(&self, step: Step) {
        if step == self.0
            && let Some(stop) = self.1.lock().unwrap().take()
        {
            stop.send(()).unwrap();
        }
    }
}

#[tokio::test]
async fn a_stop_never_interrupts_a_publish_that_began() {
    // TM-157, TM-199
    for (step, ending, cursor) in [(Step::Probe, Ending::Terminated, 0), (Step::Project, Ending::Done, 1)] {
        let world = World::new().await;
        world.capture(&["alpha"]).await;
        let model = Script::new(vec![probe("alpha"), creates(json!([draft("alpha", &["s1"])]))]);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let mut parts = world.parts(&model);
        parts.observer = Arc::new(StopAfter(step, std::sync::Mutex::new(Some(stop))));
        let stopped = async { stopped.await.unwrap() };
        let outcome = run_until(world.assignment().await, parts, stopped).await;
        assert_eq!(outcome.ending, ending, "{outcome:?}");
        assert_eq!(world.cursor().await, Position::new(cursor));
        assert_eq!(outcome.counts.created, u32::from(ending == Ending::Done));
    }
}

/// The largest amount of memory this process ever had, in MiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
}

#[tokio::test]
async fn a_window_reads_no_more_of_a_large_journal_than_it_takes() {
    // TM-025, TM-029
    let mut world = World::new().await;
    world.settings.source_window_limit = 100;
    world.settings.context_window_tokens = 8_000_000;
    let large = "lorem ipsum ".repeat((1 << 20) / 12);
    for _ in 0..100 {
        world.capture_json(json!(large)).await;
    }
    let before = peak_memory();
    let (outcome, _) = world.work(vec![answer(json!({"probes": []}))]).await;
    assert_eq!((outcome.ending, outcome.counts.sources), (Ending::Done, 4), "{outcome:?}");
    assert_eq!(world.cursor().await, Position::new(4));
    let grown = peak_memory() - before;
    assert!(grown < 64, "{grown} MiB for a Window of 4 MiB");
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_ends_terminated_and_leaves_its_attempt() {
    // TM-064, TM-199
    let world = World::new().await;
    world.capture(&["alpha"]).await;
    let before = world.durable().await;
    let model = Script::new(vec![Reply::Hang]);
    let asked = async {
        while model.stages().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let outcome = run_until(world.assignment().await, world.parts(&model), asked).await;
    assert_eq!((outcome.ending, outcome.error_code), (Ending::Terminated, Some(ErrorCode::Terminated)));
    assert_eq!(outcome.step, Step::Probe);
    assert_eq!(world.durable().await, before);
    assert_eq!(world.budget(0).await.unwrap().reserved_requests, 2);
}

#[tokio::test]
async fn a_source_that_is_too_complex_is_terminal_without_any_provider_reservation() {
    // TM-035, TM-038, TM-040, TM-068, B-9
    // Beyond the product's own limit, and beyond what the JSON reader of the worker enters.
    for depth in [40, 200] {
        let world = World::new().await;
        let deep = (0..depth).fold(json!("x"), |deep, _| json!([deep]));
        world.capture_json(deep).await;
        world.capture(&["beta"]).await;
        let (outcome, model) = world.work(vec![]).await;
        assert_eq!(
            (outcome.ending, outcome.error_code),
            (Ending::Permanent, Some(ErrorCode::SourceComplexityLimit))
        );
        assert!(model.stages().is_empty());
        let budget = world.budget(0).await.unwrap();
        assert_eq!((budget.attempts, budget.reserved_requests), (1, 0));
        assert_eq!(budget.failure_code, Some(ErrorCode::SourceComplexityLimit));
        let (again, _) = world.work(vec![]).await;
        assert_eq!(again.step, Step::Start);
        assert_eq!(world.budget(0).await.unwrap().attempts, 1);
    }
}

#[tokio::test]
async fn a_single_source_over_the_window_budget_fails_closed_without_a_call() {
    // TM-031, TM-034
    let mut world = World::new().await;
    world.settings.context_window_tokens = 8_000;
    world.capture(&[&"alpha beta ".repeat(8_000)]).await;
    let (outcome, model) = world.work(vec![]).await;
    assert_eq!((outcome.ending, outcome.error_code), (Ending::Transient, Some(ErrorCode::SourceOverBudget)));
    assert!(model.stages().is_empty());
    assert_eq!(world.cursor().await, Position::new(0));
    assert_eq!(world.budget(0).await.unwrap().failure_code, Some(ErrorCode::SourceOverBudget));
}

#[tokio::test]
async fn material_over_the_context_fails_closed_before_the_call() {
    // TM-033, TM-094
    let mut world = World::new().await;
    world.capture(&["alpha beta gamma"]).await;
    let mut large = draft("alpha", &["s1"]);
    large["detail"] = json!("alpha beta gamma ".repeat(3_000));
    let (outcome, _) = world.work(vec![probe("alpha"), creates(json!([large]))]).await;
    assert_eq!(outcome.ending, Ending::Done);
    world.settings.context_window_tokens = 8_000;
    world.capture(&["alpha beta gamma"]).await;
    let (outcome, model) = world.work(vec![probe("alpha beta gamma")]).await;
    assert_eq!((outcome.step, outcome.error_code), (Step::Global, Some(ErrorCode::MaterialOverBudget)));
    assert_eq!(model.stages(), [Stage::Probe]);
    assert_eq!(world.budget(1).await.unwrap().reserved_requests, 2, "the refused call reserves nothing");
    assert_eq!(world.cursor().await, Position::new(1));
}

#[tokio::test]
async fn several_filled_slots_are_ambiguous_and_fail_closed() {
    // TM-096
    let world = World::new().await;
    world.capture(&["alpha one", "beta two"]).await;
    let both = json!([draft("alpha", &["s1"]), draft("beta", &["s2"])]);
    world.work(vec![probe("alpha"), creates(both)]).await;
    world.capture(&["alpha beta"]).await;
    let before = world.durable().await;
    let fill = json!({"updates": [draft("alpha x", &["s1"]), draft("beta x", &["s1"])], "new_topics": []});
    let (outcome, _) = world.work(vec![probe("alpha beta"), answer(fill)]).await;
    assert_eq!(outcome.error_code, Some(ErrorCode::AmbiguousTargets));
    assert_eq!(world.durable().await, before);
    assert_eq!(world.budget(2).await.unwrap().failure_code, Some(ErrorCode::AmbiguousTargets));
}
