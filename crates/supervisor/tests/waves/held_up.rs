//! Waves that some of their targets keep open.

use std::time::Duration;

use powercontext_core::ids::WaveId;
use powercontext_core::work::WorkMode::{Automatic, CatchUp, Explicit};
use powercontext_supervisor::BindingSchedule;
use powercontext_supervisor::auto::{Round, Schedule, Standing, WaveNews};
use powercontext_supervisor::decide::WaveCall;
use powercontext_supervisor::facts::{AutoWave, Freeze, LateFact};

use crate::scene::{Scene, binding, closed, fact, flushed, news, scope, target};

#[test]
fn a_terminal_target_keeps_the_wave_open_is_told_once_per_interval_and_stays_visible() {
    // TM-069 TM-211 (B-28)
    let (mut scene, wave) = Scene::open(1);
    let rest = vec![target(9, closed(fact(1, 0, 9))), target(9, flushed(fact(2, 0, 9)))];
    let mut told = Vec::new();
    for second in 0..250 {
        let decision = scene.targets(rest.clone());
        told.extend(news(&decision).into_iter().map(|news| (second, news)));
        if second % 100 == 0 && second > 0 {
            scene.late(vec![]);
        }
        assert_eq!(scene.call(), None);
        scene.tick(1);
    }
    let round = Round { uncovered: 2, terminal: 1, ready: 0 };
    assert_eq!(told, [(100, WaveNews::HeldUp { round }), (200, WaveNews::HeldUp { round })]);
    let open = &scene.decider.open_waves()[0];
    assert_eq!((&open.wave, open.since, open.last_round), (&wave, Duration::ZERO, Some(round)));
    // An operator repairs it, and the wave goes on.
    scene.targets(vec![target(9, fact(1, 0, 9))]);
    assert_eq!(scene.launches(), [(1, 0, 9, Automatic)]);
}

/// A wave whose only target is closed, at the end of the first round after one interval.
fn held_up() -> (Scene, AutoWave) {
    let (mut scene, wave) = Scene::open(9);
    scene.targets(vec![target(9, closed(fact(1, 0, 9)))]);
    scene.tick(99);
    scene.targets(vec![target(9, closed(fact(1, 0, 9)))]);
    assert_eq!(scene.call(), None, "not before an interval has passed");
    scene.tick(1);
    scene.targets(vec![target(9, closed(fact(1, 0, 9)))]);
    (scene, wave)
}

#[test]
fn scopes_that_came_too_late_for_a_held_up_wave_catch_up_without_joining_it() {
    // TM-212 (B-28)
    let (mut scene, wave) = held_up();
    let late = |held, fact| LateFact { fact, held };
    scene.late(vec![
        late(true, fact(1, 0, 12)),
        late(false, fact(2, 3, 8)),
        late(false, fact(3, 5, 5)),
        late(false, flushed(fact(4, 0, 4))),
    ]);
    let Some(WaveCall::Late { after, .. }) = scene.call() else { panic!("a full page is not the last") };
    assert_eq!(after, Some(scope(4)));
    scene.late(vec![late(false, closed(fact(5, 0, 4))), late(false, fact(6, 0, 30))]);
    assert_eq!(scene.launches(), [(2, 3, 8, CatchUp), (6, 0, 30, CatchUp)]);
    // Several Windows, as far as the Sources reached then; later ones wait.
    scene.end(6, None, Some(fact(6, 10, 40)));
    assert_eq!(scene.launches(), [(6, 10, 30, CatchUp)]);
    scene.end(6, None, Some(fact(6, 30, 40)));
    scene.end(2, None, Some(fact(2, 8, 8)));
    assert_eq!(scene.launches(), []);
    // Once per interval; the wave and its members are what they were.
    for _ in 0..99 {
        scene.tick(1);
        scene.targets(vec![target(9, closed(fact(1, 0, 9)))]);
        assert_eq!(scene.call(), None);
    }
    scene.tick(1);
    scene.targets(vec![target(9, closed(fact(1, 0, 9)))]);
    scene.late(vec![late(true, fact(1, 0, 12)), late(false, fact(6, 30, 40))]);
    assert_eq!(scene.launches(), [(6, 30, 40, CatchUp)]);
    assert_eq!(scene.decider.open_waves()[0].wave, wave);
}

#[test]
fn nobody_catches_up_while_targets_wait_for_a_worker() {
    // TM-209 TM-212
    let (mut scene, _) = Scene::open(1);
    scene.targets(vec![target(9, closed(fact(1, 0, 9))), target(9, fact(2, 0, 9)), target(9, fact(3, 0, 9))]);
    assert_eq!(scene.launches(), [(2, 0, 9, Automatic)]);
    scene.tick(200);
    scene.targets(vec![target(9, closed(fact(1, 0, 9))), target(9, fact(2, 0, 9)), target(9, fact(3, 0, 9))]);
    assert_eq!(scene.call(), None);
}

#[test]
fn a_later_scope_with_a_flush_keeps_explicit_semantics_during_a_held_up_wave() {
    // TM-212
    let (mut scene, _) = held_up();
    scene.late(vec![]);
    scene.page(vec![flushed(fact(7, 0, 4))]);
    assert_eq!(scene.launches(), [(7, 0, 4, Explicit)]);
}

#[test]
fn a_short_interval_does_not_tell_of_a_held_up_wave_more_than_once_a_minute() {
    // B-28
    let interval = Some(Duration::from_millis(500));
    let mut schedule = Schedule::new(&BindingSchedule { binding: binding("topics"), interval }).unwrap();
    let at = Duration::from_secs;
    let Some(WaveCall::Freeze { wave, .. }) =
        schedule.wanted(at(0), 4, true, &mut || WaveId::parse("wave-1").unwrap())
    else {
        panic!("a new term looks at once")
    };
    schedule.frozen(&wave, Freeze::Frozen { members: 1 }, at(0), at(1));
    let mut told = Vec::new();
    for second in 1..200 {
        if schedule.targets(&[(scope(1), Standing::Terminal)], false, at(second)).is_some() {
            told.push(second);
        }
        schedule.late(None);
        schedule.tick();
    }
    assert_eq!(told, [60, 120, 180]);
}
