//! When the database is asked what, and what its answers lead to.

use std::time::Duration;

use powercontext_core::ids::WaveId;
use powercontext_supervisor::decide::{Decider, Event, WaveAnswer, WaveCall};
use powercontext_supervisor::facts::{AutoWave, Completion, Freeze};
use powercontext_supervisor::{BindingSchedule, SupervisorSettings};

use crate::scene::{Scene, at, binding, fact, news, scope, target};

#[test]
fn without_an_interval_nothing_automatic_happens() {
    // TM-219
    let bindings = vec![BindingSchedule { binding: binding("topics"), interval: None }];
    let mut decider = Decider::new(SupervisorSettings { bindings, ..SupervisorSettings::default() });
    let mut fresh = || panic!("no wave is named");
    assert_eq!(decider.wave_call(at(0), &mut fresh), Some(WaveCall::Clear), "TM-206");
    decider.handle(Event::Wave(WaveAnswer::Cleared), at(0));
    for second in 1..100 {
        decider.handle(Event::Tick, at(second));
        assert_eq!(decider.wave_call(at(second), &mut fresh), None);
    }
}

#[test]
fn a_binding_that_is_not_due_waits_for_what_is_left_but_looks_again_every_minute() {
    // TM-191 TM-192 TM-220 TM-276
    let mut scene = Scene::new(SupervisorSettings::default(), &["topics"]);
    for (freeze, wait) in [
        (Freeze::NotDue { remaining: Duration::from_secs(20) }, 20),
        (Freeze::NotDue { remaining: Duration::from_secs(86_400) }, 60),
        (Freeze::NotDue { remaining: Duration::ZERO }, 1),
        (Freeze::NothingPending, 1),
    ] {
        let wave = scene.freeze();
        scene.answer(WaveAnswer::Frozen { wave, freeze });
        for _ in 1..wait {
            scene.tick(1);
            assert_eq!(scene.call(), None, "{freeze:?}");
        }
        scene.tick(1);
    }
    scene.freeze();
}

#[test]
fn a_call_without_an_answer_is_repeated_with_the_same_identity() {
    // TM-207 TM-208 TM-215
    let (mut scene, wave) = Scene::open(1);
    // The freeze was answered once; a second answer to its repetition changes nothing.
    let again = WaveAnswer::Frozen { wave: wave.clone(), freeze: Freeze::NothingPending };
    assert_eq!(news(&scene.answer(again)), []);
    for step in [
        WaveCall::Targets { wave: wave.clone(), after: None, limit: 4 },
        WaveCall::MarkCovered { wave: wave.clone(), scopes: vec![scope(1)] },
        WaveCall::Complete { wave: wave.clone() },
    ] {
        for _ in 0..3 {
            assert_eq!(scene.call(), Some(step.clone()));
            scene.tick(1);
        }
        let answer = match step {
            WaveCall::Targets { wave, after, .. } => {
                WaveAnswer::Targets { wave, after, facts: vec![target(2, fact(1, 2, 2))] }
            }
            WaveCall::MarkCovered { wave, .. } => WaveAnswer::Marked { wave },
            // The first reply was lost, so the repetition finds no targets.
            _ => WaveAnswer::Completed { wave: wave.clone(), completion: Completion::Gone },
        };
        scene.answer(answer);
    }
    assert!(scene.decider.open_waves().is_empty());
    scene.tick(1);
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(scene.freeze());
        scene.tick(1);
    }
    assert!(ids.iter().all(|wave| wave.id.as_str() == "wave-2"), "{ids:?}");
}

#[test]
fn answers_of_another_wave_or_another_page_change_nothing() {
    let (mut scene, wave) = Scene::open(1);
    let other = AutoWave { id: WaveId::parse("old").unwrap(), ..wave.clone() };
    let elsewhere = AutoWave { binding: binding("unknown"), ..wave.clone() };
    let facts = vec![target(9, fact(1, 0, 9))];
    for (wave, after) in [(other.clone(), None), (elsewhere, None), (wave.clone(), Some(scope(7)))] {
        scene.answer(WaveAnswer::Targets { wave, after, facts: facts.clone() });
    }
    scene.answer(WaveAnswer::Marked { wave: wave.clone() });
    scene.answer(WaveAnswer::Completed { wave: other, completion: Completion::Gone });
    scene.answer(WaveAnswer::Late { wave: wave.clone(), after: None, facts: vec![] });
    assert_eq!(scene.launches(), []);
    assert_eq!(scene.call(), Some(WaveCall::Targets { wave, after: None, limit: 4 }));
}

#[test]
fn a_wave_that_is_not_covered_after_all_makes_another_round() {
    // TM-214
    let (mut scene, wave) = Scene::open(1);
    scene.targets(vec![]);
    assert_eq!(scene.call(), Some(WaveCall::Complete { wave: wave.clone() }));
    scene.answer(WaveAnswer::Completed { wave: wave.clone(), completion: Completion::Uncovered });
    assert_eq!(scene.call(), None);
    scene.tick(1);
    assert_eq!(scene.call(), Some(WaveCall::Targets { wave, after: None, limit: 4 }));
}

#[test]
fn bindings_take_turns_and_one_without_answers_delays_no_other() {
    // TM-202
    let mut scene = Scene::new(SupervisorSettings::default(), &["topics", "other"]);
    let calls: Vec<_> = (0..4).map(|_| scene.freeze()).collect();
    let named: Vec<_> = calls.iter().map(|wave| (wave.binding.as_str(), wave.id.as_str())).collect();
    let (topics, other) = (("topics", "wave-1"), ("other", "wave-2"));
    assert_eq!(named, [topics, other, topics, other]);
    let wave = calls[1].clone();
    scene.answer(WaveAnswer::Frozen { wave: wave.clone(), freeze: Freeze::Frozen { members: 1 } });
    assert_eq!(scene.freeze().binding.as_str(), "topics");
    let Some(WaveCall::Targets { wave: asked, .. }) = scene.call() else { panic!() };
    assert_eq!(asked, wave);
}

#[test]
fn a_closed_supervisor_asks_for_nothing() {
    // TM-187
    let (mut scene, wave) = Scene::open(1);
    scene.decider.handle(Event::Close, at(0));
    assert_eq!(scene.call(), None);
    scene.answer(WaveAnswer::Targets { wave, after: None, facts: vec![target(9, fact(1, 0, 9))] });
    assert_eq!(scene.launches(), []);
}
