//! What becomes of the targets of a wave.

use std::time::Duration;

use powercontext_core::work::{
    ErrorCode,
    WorkMode::{Automatic, Explicit},
};
use powercontext_supervisor::auto::WaveNews;
use powercontext_supervisor::decide::{WaveAnswer, WaveCall};
use powercontext_supervisor::facts::Completion;
use powercontext_supervisor::notice::Notice;

use crate::scene::{Scene, closed, fact, flushed, news, scope, target};

#[test]
fn a_wave_is_frozen_worked_off_marked_and_completed() {
    // TM-204 TM-207 TM-208 TM-209 TM-211
    let (mut scene, wave) = Scene::open(2);
    scene.targets(vec![target(7, fact(1, 0, 7)), target(5, fact(2, 5, 5)), target(3, fact(3, 0, 9))]);
    // The covered one is marked, by one command for the page.
    let marking = WaveCall::MarkCovered { wave: wave.clone(), scopes: vec![scope(2)] };
    assert_eq!(scene.call(), Some(marking));
    scene.answer(WaveAnswer::Marked { wave: wave.clone() });
    assert_eq!(scene.call(), None, "the round is over; the next begins with a tick");
    assert_eq!(scene.launches(), [(1, 0, 7, Automatic), (3, 0, 3, Automatic)]);
    // A target takes as many Windows as it needs, and never goes past itself.
    scene.end(1, None, Some(fact(1, 4, 12)));
    assert_eq!(scene.launches(), [(1, 4, 7, Automatic)]);
    scene.end(1, None, Some(fact(1, 7, 12)));
    scene.end(3, None, Some(fact(3, 3, 9)));
    assert_eq!(scene.launches(), [], "later Sources wait for the next wave");
    scene.tick(1);
    scene.targets(vec![target(7, fact(1, 7, 12)), target(3, fact(3, 3, 9))]);
    let marking = WaveCall::MarkCovered { wave: wave.clone(), scopes: vec![scope(1), scope(3)] };
    assert_eq!(scene.call(), Some(marking));
    scene.answer(WaveAnswer::Marked { wave: wave.clone() });
    assert_eq!(scene.call(), Some(WaveCall::Complete { wave: wave.clone() }));
    let completion = Completion::Completed { removed: 1 };
    let told = scene.answer(WaveAnswer::Completed { wave, completion });
    assert_eq!(news(&told), [WaveNews::Completed { removed: 1 }]);
    assert!(scene.decider.open_waves().is_empty());
    scene.tick(1);
    let next = scene.freeze();
    assert_eq!(next.id.as_str(), "wave-2", "whether it is due is for the database to say");
}

#[test]
fn a_target_that_must_wait_is_deferred_and_later_pages_go_on() {
    // TM-210 TM-226
    let (mut scene, wave) = Scene::open(9);
    // Key 1 runs for a flush, key 2 waits after a conflict, key 3 has a flush that nobody saw yet,
    // and key 4 is closed.
    scene.page(vec![flushed(fact(1, 0, 9)), flushed(fact(2, 0, 9))]);
    assert_eq!(scene.launches(), [(1, 0, 9, Explicit), (2, 0, 9, Explicit)]);
    scene.end(2, Some(ErrorCode::HeadConflict), Some(flushed(fact(2, 0, 9))));
    let page = vec![
        target(9, flushed(fact(1, 0, 9))),
        target(9, fact(2, 0, 9)),
        target(9, flushed(fact(3, 0, 9))),
        target(9, closed(fact(4, 0, 9))),
    ];
    let told = scene.targets(page);
    assert!(told.notices.iter().any(|notice| matches!(notice, Notice::FrontierTerminal { .. })), "{told:?}");
    assert_eq!(scene.launches(), [], "none of them may run now");
    match scene.call() {
        Some(WaveCall::Targets { after, .. }) => assert_eq!(after, Some(scope(4))),
        other => panic!("{other:?}"),
    }
    scene.targets(vec![target(2, fact(5, 0, 2))]);
    assert_eq!(scene.launches(), [(5, 0, 2, Automatic)]);
    assert_eq!(scene.call(), None, "the round is over");
    // After its retry time the conflicting target goes on, as automatic work.
    scene.tick(2);
    scene.targets(vec![target(9, fact(2, 0, 9))]);
    assert_eq!(scene.launches(), [(2, 0, 9, Automatic)]);
    assert!(scene.decider.open_waves()[0].wave == wave);
}

#[test]
fn an_automatic_target_that_fails_waits_like_any_failure() {
    // TM-210 TM-221 TM-222 TM-223
    let (mut scene, _) = Scene::open(1);
    scene.targets(vec![target(9, fact(1, 0, 9))]);
    assert_eq!(scene.launches(), [(1, 0, 9, Automatic)]);
    let told = scene.end(1, Some(ErrorCode::InvalidOutput), Some(fact(1, 0, 9))).notices;
    let [Notice::WindowFailed(setback)] = &told[..] else { panic!("{told:?}") };
    let delay = setback.delay.unwrap();
    assert_eq!((setback.failures, delay, setback.wave.mode), (1, Duration::from_secs(30), Automatic));
    scene.tick(29);
    scene.targets(vec![target(9, fact(1, 0, 9)), target(4, fact(2, 0, 4))]);
    assert_eq!(scene.launches(), [(2, 0, 4, Automatic)], "other Scopes advance");
    scene.end(2, None, Some(fact(2, 4, 4)));
    scene.tick(1);
    scene.targets(vec![target(9, fact(1, 0, 9))]);
    assert_eq!(scene.launches(), [(1, 0, 9, Automatic)]);
    let told = scene.end(1, Some(ErrorCode::InvalidOutput), Some(fact(1, 0, 9))).notices;
    let [Notice::WindowFailed(setback)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(setback.failures, 2);
}

#[test]
fn a_wave_of_deferred_targets_costs_one_round_per_tick() {
    // TM-226
    let (mut scene, _) = Scene::open(1);
    for _ in 0..5 {
        scene.targets(vec![target(9, closed(fact(1, 0, 9)))]);
        for _ in 0..3 {
            assert_eq!(scene.call(), None, "no hot loop");
        }
        scene.tick(1);
    }
}

#[test]
fn explicit_work_comes_first_and_a_flush_during_an_automatic_window_is_answered_afterwards() {
    // TM-167 TM-196 TM-210
    let (mut scene, _) = Scene::open(2);
    scene.targets(vec![target(9, fact(1, 0, 9)), target(9, fact(2, 0, 9)), target(9, fact(3, 0, 9))]);
    assert_eq!(scene.launches(), [(1, 0, 9, Automatic), (2, 0, 9, Automatic)]);
    // A flush of a running key starts no second worker; one of a waiting key makes it explicit.
    scene.page(vec![flushed(fact(1, 0, 12)), flushed(fact(3, 0, 11))]);
    assert_eq!(scene.launches(), []);
    scene.end(1, None, Some(flushed(fact(1, 4, 12))));
    scene.end(2, None, Some(fact(2, 9, 9)));
    let mut started = scene.launches();
    started.sort_by_key(|launch| launch.0);
    assert_eq!(started, [(1, 4, 12, Explicit), (3, 0, 11, Explicit)]);
    // The frozen target of key 1 counts as covered through the Cursor.
    scene.end(1, None, None);
    scene.end(3, None, None);
    scene.tick(1);
    scene.targets(vec![target(9, fact(1, 12, 9)), target(9, fact(2, 9, 9)), target(9, fact(3, 11, 9))]);
    let Some(WaveCall::MarkCovered { scopes, .. }) = scene.call() else { panic!() };
    assert_eq!(scopes.len(), 3);
}

#[test]
fn automatic_work_and_explicit_work_take_turns() {
    // TM-197 TM-202
    let (mut scene, _) = Scene::open(1);
    scene.targets((1..=4).map(|number| target(1, fact(number, 0, 1))).collect());
    scene.page((11..=14).map(|number| flushed(fact(number, 0, 1))).collect());
    let mut modes = Vec::new();
    for _ in 0..8 {
        let [(number, _, _, mode)] = scene.launches()[..] else { panic!() };
        modes.push(mode);
        scene.end(number, None, None);
    }
    assert!(modes.chunks(2).all(|pair| pair.contains(&Explicit) && pair.contains(&Automatic)), "{modes:?}");
}

#[test]
fn a_wave_much_larger_than_memory_is_read_in_bounded_pages_and_worked_off() {
    // TM-207 TM-208
    let (mut scene, _) = Scene::open(3);
    let total = 100;
    let mut cursor = vec![0; total];
    for _ in 0..10_000 {
        scene.tick(1);
        while let Some(call) = scene.call() {
            match call {
                WaveCall::Targets { wave, after, limit } => {
                    let from =
                        after.as_ref().map_or(0, |after| after.as_str()["scope-".len()..].parse().unwrap());
                    let open = (from + 1..=total).filter(|number| cursor[number - 1] < 2);
                    let facts = open.take(limit).map(|number| target(1, fact(number, cursor[number - 1], 1)));
                    let facts = facts.collect();
                    scene.answer(WaveAnswer::Targets { wave, after, facts });
                }
                WaveCall::MarkCovered { wave, scopes } => {
                    for scope in scopes {
                        cursor[scope.as_str()["scope-".len()..].parse::<usize>().unwrap() - 1] = 2;
                    }
                    scene.answer(WaveAnswer::Marked { wave });
                }
                WaveCall::Complete { .. } => {
                    assert!(cursor.iter().all(|cursor| *cursor == 2));
                    return;
                }
                other => panic!("{other:?}"),
            }
            let held = scene.decider.footprint();
            assert!(held.automatic <= 8 && held.covered <= 4 && held.ready == 0, "{held:?}");
        }
        for (number, ..) in scene.launches() {
            cursor[number - 1] = 1;
            scene.end(number, None, Some(fact(number, 1, 1)));
        }
    }
    panic!("never completed");
}

#[test]
fn a_target_whose_worker_runs_is_left_alone_also_when_its_last_attempt_makes_it_look_closed() {
    // TM-196 TM-210
    let (mut scene, _) = Scene::open(9);
    scene.targets(vec![target(9, fact(1, 0, 9))]);
    assert_eq!(scene.launches(), [(1, 0, 9, Automatic)]);
    for seen in [fact(1, 0, 9), closed(fact(1, 0, 9))] {
        scene.tick(1);
        assert_eq!(scene.targets(vec![target(9, seen)]).notices, []);
        assert_eq!(scene.launches(), []);
    }
    scene.end(1, None, Some(fact(1, 4, 9)));
    assert_eq!(scene.launches(), [(1, 4, 9, Automatic)]);
}

#[test]
fn pages_are_read_only_while_there_is_room_for_what_they_bring() {
    // TM-207 TM-208
    let (mut scene, _) = Scene::open(1);
    scene.targets((1..=4).map(|number| target(1, fact(number, 0, 1))).collect());
    scene.targets((5..=8).map(|number| target(1, fact(number, 0, 1))).collect());
    for number in 1..=4 {
        assert_eq!(scene.call(), None, "two pages wait already");
        assert_eq!(scene.launches(), [(number, 0, 1, Automatic)]);
        scene.end(number, None, Some(fact(number, 1, 1)));
    }
    assert!(matches!(scene.call(), Some(WaveCall::Targets { after: Some(_), .. })));
}
