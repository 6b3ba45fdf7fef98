//! Single promises, told step by step.

use std::time::Duration;

use powercontext_core::ids::{BindingName, FlushGeneration, Position, ScopeId};
use powercontext_core::work::{Ending, ErrorCode, Outcome, OutcomeCounts, Step, WorkKey};
use powercontext_supervisor::decide::{Command, Decider, Decision, Event, Now};
use powercontext_supervisor::facts::PendingFact;
use powercontext_supervisor::notice::{FailureReason, Notice};
use powercontext_supervisor::{SupervisorSettings, WorkerEnding, WorkerId};

fn key(number: usize) -> WorkKey {
    WorkKey {
        binding: BindingName::parse("topic-memory").unwrap(),
        scope: ScopeId::parse(format!("scope-{number:05}")).unwrap(),
    }
}

fn at(seconds: u64) -> Now {
    Now { at: Duration::from_secs(seconds), random: 200 }
}

fn fact(number: usize, cursor: i64, through: i64, flush: i64, handled: i64) -> PendingFact {
    PendingFact {
        key: key(number),
        source_through: Position::new(through),
        flush_generation: FlushGeneration::new(flush),
        handled_flush_generation: FlushGeneration::new(handled),
        cursor: Position::new(cursor),
        terminal: None,
    }
}

fn decider(max_workers: usize) -> Decider {
    Decider::new(SupervisorSettings { max_workers, ..SupervisorSettings::default() })
}

/// The aims `(after, target, claimed)` of the launches; each is answered as started.
fn launches(decider: &mut Decider, now: Now) -> Vec<(i64, i64, i64)> {
    let commands = decider.dispatch(now).commands;
    let mut aims = Vec::new();
    for command in commands {
        if let Command::Launch { key, source_after, wave_target, claimed_flush_generation, .. } = command {
            aims.push((source_after.get(), wave_target.get(), claimed_flush_generation.get()));
            let worker = WorkerId::new(format!("{}", key.scope));
            decider.handle(Event::Launched { key, worker }, now);
        }
    }
    aims
}

fn end(decider: &mut Decider, number: usize, code: Option<ErrorCode>, now: Now) {
    end_asking(decider, number, (code, None), now);
}

/// The worker of a key ends, and its provider asked to be left alone for so many seconds.
fn end_asking(
    decider: &mut Decider,
    number: usize,
    (code, asked): (Option<ErrorCode>, Option<u32>),
    now: Now,
) {
    let ending = code.map_or(Ending::Done, ErrorCode::ending);
    let outcome = Outcome {
        ending,
        step: Step::Publish,
        error_code: code,
        window: None,
        counts: OutcomeCounts::default(),
        step_millis: std::collections::BTreeMap::new(),
        retry_after_seconds: asked,
        first_read_millis: None,
    };
    let worker = WorkerId::new(format!("{}", key(number).scope));
    decider.handle(Event::Ended { worker, ending: WorkerEnding { ending, outcome: Some(outcome) } }, now);
}

fn observe(decider: &mut Decider, number: usize, fact: Option<PendingFact>, now: Now) -> Decision {
    decider.handle(Event::Observed { key: key(number), fact }, now)
}

#[test]
fn any_number_of_flushes_during_a_wave_make_one_successor_and_new_sources_make_none() {
    // TM-166 TM-168 TM-169 TM-275
    let mut decider = decider(1);
    decider.handle(Event::Page(vec![fact(1, 0, 10, 1, 0)]), at(0));
    assert_eq!(launches(&mut decider, at(0)), [(0, 10, 1)]);
    // Five flushes and seven Sources arrive; the running wave keeps its aim.
    end(&mut decider, 1, None, at(1));
    observe(&mut decider, 1, Some(fact(1, 5, 17, 6, 0)), at(1));
    assert_eq!(launches(&mut decider, at(1)), [(5, 10, 1)]);
    end(&mut decider, 1, None, at(2));
    observe(&mut decider, 1, Some(fact(1, 10, 17, 6, 1)), at(2));
    assert_eq!(launches(&mut decider, at(2)), [(10, 17, 6)]);
    // The successor covers everything that was flushed; Sources that came later wait.
    end(&mut decider, 1, None, at(3));
    observe(&mut decider, 1, None, at(3));
    decider.handle(Event::Page(vec![]), at(3));
    assert_eq!(launches(&mut decider, at(4)), []);
}

#[test]
fn a_wake_leads_to_a_launch_without_a_tick() {
    // TM-218
    let mut decider = decider(1);
    decider.handle(Event::Page(vec![]), at(0));
    assert_eq!(decider.wanted_page(), None);
    decider.handle(Event::Wake, at(0));
    assert!(decider.wanted_page().is_some());
    decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(0));
    assert_eq!(launches(&mut decider, at(0)), [(0, 1, 1)]);
}

#[test]
fn a_key_with_more_backlog_goes_behind_the_others() {
    // TM-197
    let mut decider = decider(1);
    decider.handle(Event::Page(vec![fact(1, 0, 10, 1, 0), fact(2, 0, 3, 1, 0)]), at(0));
    assert_eq!(launches(&mut decider, at(0)), [(0, 10, 1)]);
    end(&mut decider, 1, None, at(1));
    observe(&mut decider, 1, Some(fact(1, 5, 10, 1, 0)), at(1));
    assert_eq!(launches(&mut decider, at(1)), [(0, 3, 1)]);
}

#[test]
fn a_provider_that_asks_to_be_left_alone_is_left_alone_that_long_but_not_longer_than_an_hour() {
    // TM-222 TM-223
    let limited = Some(ErrorCode::GenerationRateLimited);
    for (asked, seconds) in [(None, 30), (Some(7), 30), (Some(90), 90), (Some(u32::MAX), 3600)] {
        let mut decider = decider(1);
        decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(0));
        launches(&mut decider, at(0));
        end_asking(&mut decider, 1, (limited, asked), at(0));
        let told = observe(&mut decider, 1, Some(fact(1, 0, 1, 1, 0)), at(0)).notices;
        let Notice::WindowFailed(setback) = &told[0] else { panic!("{told:?}") };
        assert_eq!((setback.failures, setback.delay), (1, Some(Duration::from_secs(seconds))));
        for (second, aims) in [(seconds - 1, vec![]), (seconds, vec![(0, 1, 1)])] {
            decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(second));
            assert_eq!(launches(&mut decider, at(second)), aims, "{asked:?}");
        }
    }
}

#[test]
fn a_worker_past_its_time_is_stopped_and_its_key_waits() {
    // TM-199 TM-221 TM-223 TM-224
    let mut decider = decider(1);
    decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(0));
    launches(&mut decider, at(0));
    let early = decider.handle(Event::Tick, at(599));
    assert_eq!(early.commands, []);
    let late = decider.handle(Event::Tick, at(600));
    assert!(matches!(late.commands[..], [Command::Stop { .. }]));
    assert_eq!(launches(&mut decider, at(600)), [], "one key, one worker, until it is gone");
    end(&mut decider, 1, Some(ErrorCode::Terminated), at(601));
    let told = observe(&mut decider, 1, Some(fact(1, 0, 1, 1, 0)), at(601)).notices;
    let Notice::WindowFailed(setback) = &told[0] else { panic!("{told:?}") };
    assert_eq!((setback.failures, setback.delay), (1, Some(Duration::from_secs(30))));
    for (second, aims) in [(630, vec![]), (631, vec![(0, 1, 1)])] {
        decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(second));
        assert_eq!(launches(&mut decider, at(second)), aims);
    }
}

#[test]
fn a_worker_that_claims_success_without_progress_waits_like_a_failure() {
    let mut decider = decider(1);
    decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(0));
    launches(&mut decider, at(0));
    end(&mut decider, 1, None, at(1));
    observe(&mut decider, 1, Some(fact(1, 0, 1, 1, 0)), at(1));
    decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(2));
    assert_eq!(launches(&mut decider, at(2)), []);
}

#[test]
fn a_conflict_waits_a_short_fixed_time_and_counts_no_failure() {
    // TM-225 TM-226
    let mut decider = decider(1);
    decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(0));
    launches(&mut decider, at(0));
    end(&mut decider, 1, Some(ErrorCode::HeadConflict), at(1));
    let told = observe(&mut decider, 1, Some(fact(1, 0, 1, 1, 0)), at(1)).notices;
    let Notice::WindowConflict(setback) = &told[0] else { panic!("{told:?}") };
    assert_eq!((setback.failures, setback.delay), (0, Some(Duration::from_secs(2))));
    decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(2));
    assert_eq!(launches(&mut decider, at(2)), []);
    decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0)]), at(3));
    assert_eq!(launches(&mut decider, at(3)), [(0, 1, 1)]);
}

#[test]
fn a_terminal_frontier_is_never_launched_is_told_once_and_stays_visible() {
    // TM-068 TM-069 TM-274
    let mut decider = decider(1);
    let closed = PendingFact { terminal: Some(ErrorCode::SourceComplexityLimit), ..fact(1, 0, 9, 4, 0) };
    let mut told = 0;
    for second in 0..5 {
        told +=
            decider.handle(Event::Page(vec![closed.clone(), fact(2, 0, 1, 1, 0)]), at(second)).notices.len();
    }
    assert_eq!(told, 1);
    assert_eq!(launches(&mut decider, at(5)), [(0, 1, 1)], "other Scopes keep processing");
    assert_eq!((decider.last_round().terminal, decider.last_round().backlog), (1, 10));
}

#[test]
fn a_covered_key_with_an_unanswered_flush_is_settled() {
    // TM-170
    let mut decider = decider(1);
    let decision = decider.handle(Event::Page(vec![fact(1, 4, 4, 2, 1)]), at(0));
    assert_eq!(decision.commands, [Command::Settle { key: key(1) }]);
    assert_eq!(launches(&mut decider, at(0)), []);
}

#[test]
fn closing_stops_every_worker_and_starts_none() {
    // TM-187
    let mut decider = decider(2);
    decider.handle(Event::Page(vec![fact(1, 0, 1, 1, 0), fact(2, 0, 1, 1, 0), fact(3, 0, 1, 1, 0)]), at(0));
    assert_eq!(launches(&mut decider, at(0)).len(), 2);
    assert_eq!(decider.handle(Event::Close, at(1)).commands.len(), 2);
    end(&mut decider, 1, Some(ErrorCode::Terminated), at(2));
    assert_eq!(launches(&mut decider, at(2)), []);
    assert_eq!(decider.wanted_page(), None);
    assert_eq!(decider.alive(), 1);
}

#[test]
fn a_hundred_thousand_pending_keys_are_read_in_bounded_pages() {
    let mut decider = decider(2);
    let mut reads = 0;
    let mut next = 0;
    while let Some(request) = decider.wanted_page() {
        let page: Vec<_> = (next..next + request.limit).map(|number| fact(number, 0, 1, 1, 0)).collect();
        next += request.limit;
        reads += 1;
        decider.handle(Event::Page(page), at(0));
        launches(&mut decider, at(0));
        assert!(next < 100_000);
    }
    assert!(reads <= 2, "{reads} pages for two workers");
    assert!(decider.footprint().ready <= 512);
}

#[test]
fn the_failure_of_the_last_attempt_is_told_before_the_closed_frontier_and_its_code() {
    // TM-067 TM-074 TM-224 TM-227
    for (code, reason) in [
        (Some(ErrorCode::InvalidOutput), FailureReason::Code(ErrorCode::InvalidOutput)),
        (Some(ErrorCode::HeadConflict), FailureReason::Code(ErrorCode::HeadConflict)),
        (None, FailureReason::NoProgress),
    ] {
        let mut decider = decider(1);
        decider.handle(Event::Page(vec![fact(1, 0, 9, 1, 0)]), at(0));
        launches(&mut decider, at(0));
        end(&mut decider, 1, code, at(1));
        let closed = PendingFact { terminal: Some(ErrorCode::WindowAttemptLimit), ..fact(1, 0, 9, 1, 0) };
        let told = observe(&mut decider, 1, Some(closed), at(1)).notices;
        let [
            Notice::WindowFailed(setback) | Notice::WindowConflict(setback),
            Notice::FrontierTerminal { code: ErrorCode::WindowAttemptLimit, .. },
        ] = &told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!((setback.reason, setback.delay), (reason, None), "no retry is promised");
        assert_eq!(decider.footprint().parked, 0);
    }
}

#[test]
fn a_crash_and_a_timeout_of_the_last_attempt_are_told() {
    // TM-199 TM-224 TM-227
    for (timed_out, expected) in [(false, ErrorCode::WorkerCrashed), (true, ErrorCode::WorkerTimeout)] {
        let mut decider = decider(1);
        decider.handle(Event::Page(vec![fact(1, 0, 9, 1, 0)]), at(0));
        launches(&mut decider, at(0));
        if timed_out {
            decider.handle(Event::Tick, at(600));
        }
        let worker = WorkerId::new(format!("{}", key(1).scope));
        let ending = WorkerEnding { ending: Ending::Transient, outcome: None };
        decider.handle(Event::Ended { worker, ending }, at(601));
        let closed = PendingFact { terminal: Some(ErrorCode::WindowAttemptLimit), ..fact(1, 0, 9, 1, 0) };
        let told = observe(&mut decider, 1, Some(closed), at(601)).notices;
        let Notice::WindowFailed(setback) = &told[0] else { panic!("{told:?}") };
        assert_eq!(setback.reason, FailureReason::Code(expected));
    }
}

#[test]
fn a_frontier_that_closes_is_told_however_many_are_closed_and_the_rest_once_together() {
    // TM-067 TM-074
    let settings = SupervisorSettings { max_workers: 1, page_size: 1, ..SupervisorSettings::default() };
    let limit = settings.memory_limit();
    let mut decider = Decider::new(settings);
    let closed =
        |number| PendingFact { terminal: Some(ErrorCode::WindowAttemptLimit), ..fact(number, 0, 9, 1, 0) };
    let mut told = Vec::new();
    for number in 2..limit + 8 {
        told.extend(decider.handle(Event::Page(vec![closed(number)]), at(0)).notices);
    }
    let terminal = told.iter().filter(|notice| matches!(notice, Notice::FrontierTerminal { .. })).count();
    let together = told.iter().filter(|notice| matches!(notice, Notice::TerminalsUnlisted { .. })).count();
    assert_eq!((terminal, together, told.len()), (limit, 1, limit + 1));
    decider.handle(Event::Page(vec![fact(1, 0, 9, 1, 0)]), at(0));
    launches(&mut decider, at(0));
    end(&mut decider, 1, Some(ErrorCode::InvalidOutput), at(1));
    let told = observe(&mut decider, 1, Some(closed(1)), at(1)).notices;
    assert!(matches!(told[..], [Notice::WindowFailed(_), Notice::FrontierTerminal { .. }]), "{told:?}");
    assert_eq!(decider.footprint().terminal, limit);
}

#[test]
fn a_failed_launch_is_told_once_with_its_cause() {
    // TM-224 TM-227
    let mut decider = decider(1);
    decider.handle(Event::Page(vec![fact(1, 0, 9, 1, 0)]), at(0));
    assert_eq!(decider.dispatch(at(0)).commands.len(), 1);
    let failed = Event::LaunchFailed { key: key(1), cause: "no such program".to_owned() };
    let told = decider.handle(failed, at(0)).notices;
    let [Notice::WindowFailed(setback)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(setback.reason, FailureReason::Code(ErrorCode::LaunchFailed));
    assert_eq!(setback.cause.as_deref(), Some("no such program"));
}

#[test]
fn an_answered_row_that_stays_for_new_sources_ends_its_wave() {
    // TM-167 TM-169
    let mut decider = decider(1);
    decider.handle(Event::Page(vec![fact(1, 0, 9, 1, 0)]), at(0));
    assert_eq!(launches(&mut decider, at(0)), [(0, 9, 1)]);
    end(&mut decider, 1, None, at(1));
    let told = observe(&mut decider, 1, Some(fact(1, 9, 12, 1, 1)), at(1)).notices;
    let [Notice::WindowPublished { window, backlog: 3, .. }, Notice::WaveCompleted { .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(window.through, Position::new(9));
    assert_eq!(launches(&mut decider, at(1)), []);
}

#[test]
fn any_number_of_flushes_reads_a_table_of_unready_rows_only_so_often_between_two_ticks() {
    // TM-226
    let settings = SupervisorSettings { page_size: 4, ..SupervisorSettings::default() };
    let mut decider = Decider::new(settings);
    let closed =
        |number| PendingFact { terminal: Some(ErrorCode::WindowAttemptLimit), ..fact(number, 0, 9, 1, 0) };
    for second in 0..3 {
        decider.handle(Event::Tick, at(second));
        let mut rows = 0;
        for _ in 0..1_000 {
            decider.handle(Event::Wake, at(second));
            while let Some(request) = decider.wanted_page() {
                let next =
                    request.after.map_or(0, |after| after.scope.as_str()[6..].parse::<usize>().unwrap() + 1);
                let page: Vec<_> = (next..30.min(next + request.limit)).map(closed).collect();
                rows += page.len();
                decider.handle(Event::Page(page), at(second));
            }
        }
        assert!((30..=64 * 4 + 4).contains(&rows), "{rows} rows");
    }
}
