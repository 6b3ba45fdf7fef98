//! Handmade facts, and a decider with the answers it waits for.

use std::time::Duration;

use powercontext_core::ids::{BindingName, FlushGeneration, Position, ScopeId, WaveId};
use powercontext_core::work::{
    Ending, ErrorCode, Outcome, OutcomeCounts, Step, WorkKey,
    WorkMode::{self, Explicit},
};
use powercontext_supervisor::auto::WaveNews;
use powercontext_supervisor::decide::{Command, Decider, Decision, Event, Now, WaveAnswer, WaveCall};
use powercontext_supervisor::facts::{AutoWave, Freeze, LateFact, PendingFact, TargetFact};
use powercontext_supervisor::notice::Notice;
use powercontext_supervisor::{BindingSchedule, SupervisorSettings, WorkerEnding, WorkerId};

pub const INTERVAL: Duration = Duration::from_secs(100);

pub fn at(seconds: u64) -> Now {
    Now { at: Duration::from_secs(seconds), random: 200 }
}

pub fn binding(name: &str) -> BindingName {
    BindingName::parse(name).unwrap()
}

pub fn scope(number: usize) -> ScopeId {
    ScopeId::parse(format!("scope-{number:05}")).unwrap()
}

pub fn key(number: usize) -> WorkKey {
    WorkKey { binding: binding("topics"), scope: scope(number) }
}

/// Cursor and newest Source of a key without a flush.
pub fn fact(number: usize, cursor: i64, through: i64) -> PendingFact {
    PendingFact {
        key: key(number),
        source_through: Position::new(through),
        flush_generation: FlushGeneration::new(0),
        handled_flush_generation: FlushGeneration::new(0),
        cursor: Position::new(cursor),
        terminal: None,
    }
}

pub fn flushed(fact: PendingFact) -> PendingFact {
    PendingFact { flush_generation: FlushGeneration::new(1), ..fact }
}

pub fn closed(fact: PendingFact) -> PendingFact {
    PendingFact { terminal: Some(ErrorCode::WindowAttemptLimit), ..fact }
}

pub fn target(target: i64, fact: PendingFact) -> TargetFact {
    TargetFact { target: Position::new(target), fact }
}

/// A decider, the wave it opened last and how many it named.
pub struct Scene {
    pub decider: Decider,
    pub named: u32,
    pub now: u64,
}

impl Scene {
    pub fn new(settings: SupervisorSettings, bindings: &[&str]) -> Self {
        let bindings =
            bindings.iter().map(|name| BindingSchedule { binding: binding(name), interval: Some(INTERVAL) });
        let settings = SupervisorSettings { bindings: bindings.collect(), ..settings };
        let mut scene = Self { decider: Decider::new(settings), named: 0, now: 0 };
        scene.decider.handle(Event::Page(vec![]), at(0));
        assert_eq!(scene.call(), Some(WaveCall::Clear), "TM-206");
        scene.answer(WaveAnswer::Cleared);
        scene
    }

    /// One binding with an open wave of so many members.
    pub fn open(max_workers: usize) -> (Self, AutoWave) {
        let settings = SupervisorSettings { max_workers, page_size: 4, ..SupervisorSettings::default() };
        let mut scene = Self::new(settings, &["topics"]);
        let wave = scene.freeze();
        scene.answer(WaveAnswer::Frozen { wave: wave.clone(), freeze: Freeze::Frozen { members: 3 } });
        (scene, wave)
    }

    pub fn call(&mut self) -> Option<WaveCall> {
        let named = &mut self.named;
        self.decider.wave_call(at(self.now), &mut || {
            *named += 1;
            WaveId::parse(format!("wave-{named}")).unwrap()
        })
    }

    pub fn freeze(&mut self) -> AutoWave {
        match self.call() {
            Some(WaveCall::Freeze { wave, interval: INTERVAL }) => wave,
            other => panic!("{other:?}"),
        }
    }

    pub fn answer(&mut self, answer: WaveAnswer) -> Decision {
        self.decider.handle(Event::Wave(answer), at(self.now))
    }

    /// Answers the page of targets that is asked for.
    pub fn targets(&mut self, facts: Vec<TargetFact>) -> Decision {
        match self.call() {
            Some(WaveCall::Targets { wave, after, limit }) => {
                assert!(facts.len() <= limit);
                self.answer(WaveAnswer::Targets { wave, after, facts })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn late(&mut self, facts: Vec<LateFact>) -> Decision {
        match self.call() {
            Some(WaveCall::Late { wave, after, .. }) => self.answer(WaveAnswer::Late { wave, after, facts }),
            other => panic!("{other:?}"),
        }
    }

    pub fn tick(&mut self, seconds: u64) {
        self.now += seconds;
        self.decider.handle(Event::Tick, at(self.now));
    }

    /// Key, start, target and mode of the launches; each is answered as started.
    pub fn launches(&mut self) -> Vec<(usize, i64, i64, WorkMode)> {
        let mut aims = Vec::new();
        for command in self.decider.dispatch(at(self.now)).commands {
            let Command::Launch { key, source_after, wave_target, claimed_flush_generation, mode } = command
            else {
                panic!("{command:?}")
            };
            assert_eq!(claimed_flush_generation.get() > 0, mode == Explicit, "only a flush is claimed");
            let number = key.scope.as_str()["scope-".len()..].parse().unwrap();
            aims.push((number, source_after.get(), wave_target.get(), mode));
            let worker = WorkerId::new(key.scope.to_string());
            self.decider.handle(Event::Launched { key, worker }, at(self.now));
        }
        aims
    }

    /// The worker of a key ends and leaves these facts.
    pub fn end(&mut self, number: usize, code: Option<ErrorCode>, fact: Option<PendingFact>) -> Decision {
        let ending = code.map_or(Ending::Done, ErrorCode::ending);
        let outcome = Outcome {
            ending,
            step: Step::Publish,
            error_code: code,
            window: None,
            counts: OutcomeCounts::default(),
            step_millis: std::collections::BTreeMap::new(),
            retry_after_seconds: None,
            first_read_millis: None,
        };
        let worker = WorkerId::new(scope(number).to_string());
        let ending = WorkerEnding { ending, outcome: Some(outcome) };
        self.decider.handle(Event::Ended { worker, ending }, at(self.now));
        self.decider.handle(Event::Observed { key: key(number), fact }, at(self.now))
    }

    pub fn page(&mut self, facts: Vec<PendingFact>) -> Decision {
        self.decider.handle(Event::Page(facts), at(self.now))
    }
}

pub fn news(decision: &Decision) -> Vec<WaveNews> {
    let news = |notice: &Notice| match notice {
        Notice::AutoWave { news, .. } => Some(*news),
        _ => None,
    };
    decision.notices.iter().filter_map(news).collect()
}
