//! Workers of any term: they may fail, crash, hang, lie, or publish after they were told to stop.

use std::collections::BTreeMap;

use powercontext_core::work::{Ending, ErrorCode, Fence, Outcome, OutcomeCounts, Step};
use powercontext_supervisor::{WorkerEnding, WorkerId};

use crate::audit::Cause;
use crate::database::Aim;
use crate::process::{Call, Reply};
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Publish,
    Fail,
    Conflict,
    CrashBefore,
    CrashAfter,
    Hang,
    PublishWhenStopped,
    Lie,
    CloseFrontier,
}

#[derive(Debug)]
pub struct Worker {
    /// Absent for a worker that no supervisor knows of.
    pub id: Option<WorkerId>,
    /// The process that started it.
    pub life: u64,
    pub fence: Fence,
    pub aim: Aim,
    pub plan: Plan,
    pub attempt: Option<u64>,
    pub stopped: bool,
}

impl World {
    /// The launcher does its work; without a process that waits for it, the worker is unknown.
    pub fn start_worker(&mut self, call: &Call, aim: Aim) -> Reply {
        if !self.kind && self.random.once_in(25) {
            return Reply::Failed;
        }
        self.names += 1;
        let id = WorkerId::new(format!("worker-{}", self.names));
        let known = call.life != 0;
        let twin = !self.kind && self.random.once_in(15);
        for id in [known.then(|| id.clone())].into_iter().chain(twin.then_some(None)) {
            let (plan, fence) = (self.plan(aim), call.fence.clone());
            self.workers.push(Worker {
                id,
                life: call.life,
                fence,
                aim,
                plan,
                attempt: None,
                stopped: false,
            });
        }
        Reply::Launched(id)
    }

    fn plan(&mut self, aim: Aim) -> Plan {
        if self.kind {
            return Plan::Publish;
        }
        // Some keys have Sources that models hardly digest.
        let hard = if self.busy { aim.key % 6 == 1 } else { aim.key % 16 == 3 };
        if hard && self.random.below(3) > 0 {
            return Plan::Fail;
        }
        match self.random.below(80) {
            13..16 if self.busy && !self.random.once_in(16) => Plan::Publish,
            0..5 => Plan::Fail,
            5..7 => Plan::Conflict,
            7..10 => Plan::CrashBefore,
            10..13 => Plan::CrashAfter,
            13 => Plan::Hang,
            14 | 15 => Plan::PublishWhenStopped,
            16 | 17 => Plan::Lie,
            18 => Plan::CloseFrontier,
            _ => Plan::Publish,
        }
    }

    pub fn stop_worker(&mut self, place: usize, id: &WorkerId) {
        let life = self.process(place).life;
        let known = |worker: &&mut Worker| worker.life == life && worker.id.as_ref() == Some(id);
        self.workers.iter_mut().filter(known).for_each(|worker| worker.stopped = true);
    }

    /// Lets one worker do its next step.
    pub fn move_worker(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        let at = self.random.below(self.workers.len());
        let worker = &self.workers[at];
        let (fence, aim, plan) = (worker.fence.clone(), worker.aim, worker.plan);
        if self.away_until > self.time && !self.kind {
            return self.end(at, Ending::Transient, Some(ErrorCode::DatabaseUnavailable));
        }
        let Some(attempt) = worker.attempt else {
            let started = self.database.start_attempt(&fence, aim);
            self.audit.saw(&self.database, &Cause::Attempt(fence, aim));
            match started {
                Ok(attempt) => self.workers[at].attempt = Some(attempt),
                Err(code) => self.end(at, code.ending(), Some(code)),
            }
            return;
        };
        if matches!(plan, Plan::Hang | Plan::PublishWhenStopped) && !worker.stopped {
            return;
        }
        match plan {
            Plan::Publish | Plan::CrashAfter | Plan::PublishWhenStopped => {
                let done = self.database.publish(&fence, attempt, aim);
                self.audit.saw(&self.database, &Cause::Publish(fence, aim));
                match done {
                    _ if plan == Plan::CrashAfter => self.end(at, Ending::Transient, None),
                    Ok(()) => self.end(at, Ending::Done, None),
                    Err(code) => self.end(at, code.ending(), Some(code)),
                }
            }
            Plan::CloseFrontier => {
                let code = ErrorCode::SourceComplexityLimit;
                self.database.close_frontier(attempt, aim, code);
                self.audit.saw(&self.database, &Cause::Close(aim.key));
                self.end(at, Ending::Permanent, Some(code));
            }
            Plan::Fail => self.end(at, Ending::Transient, Some(ErrorCode::InvalidOutput)),
            Plan::Conflict => self.end(at, Ending::Superseded, Some(ErrorCode::HeadConflict)),
            Plan::CrashBefore => self.end(at, Ending::Transient, None),
            Plan::Hang => self.end(at, Ending::Terminated, Some(ErrorCode::Terminated)),
            Plan::Lie => self.end(at, Ending::Done, None),
        }
    }

    fn end(&mut self, at: usize, ending: Ending, error_code: Option<ErrorCode>) {
        let worker = self.workers.swap_remove(at);
        let Some(id) = worker.id else { return };
        let crashed = ending == Ending::Transient && error_code.is_none();
        let outcome = (!crashed).then(|| Outcome {
            ending,
            step: Step::Publish,
            error_code,
            window: None,
            counts: OutcomeCounts::default(),
            step_millis: BTreeMap::new(),
            retry_after_seconds: None,
            first_read_millis: None,
        });
        let twice = !self.kind && self.random.once_in(30);
        let mut lives = self.places.iter_mut().flatten();
        if let Some(process) = lives.find(|process| process.life == worker.life) {
            let ending = WorkerEnding { ending, outcome };
            if twice {
                process.endings.push_back((id.clone(), ending.clone()));
            }
            process.endings.push_back((id, ending));
        }
    }

    /// An ending of a worker that nobody started.
    pub fn stranger_ends(&mut self, place: usize) {
        if let Ok(process) = &mut self.places[place] {
            let ending = WorkerEnding { ending: Ending::Done, outcome: None };
            process.endings.push_back((WorkerId::new("stranger"), ending));
        }
    }
}
