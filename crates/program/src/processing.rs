//! How settings become a supervisor with its launcher, and how the rest of a process sees it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use powercontext_core::ambient::{SystemClock, SystemIds};
use powercontext_core::failure::chain;
use powercontext_core::ids::BindingName;
use powercontext_core::topic::BINDING;
use powercontext_inference::{GenerationConfig, generator};
use powercontext_settings::Settings;
use powercontext_store::{DatabaseUrl, Store};
use powercontext_supervisor::{
    BindingSchedule, InvalidLease, LeaseSettings, LeaseTimes, ProcessLauncher, Supervisor, SupervisorHandle,
    SupervisorParts, SupervisorSettings, SupervisorStatus, WaveStatus,
};

use crate::Failure;

/// The worker program, expected beside the own one.
const WORKER_PROGRAM: &str = "powercontext-worker";

/// Everything the processing of Topics needs besides an open database.
pub struct Plan {
    worker_program: PathBuf,
    worker_environment: Vec<(String, String)>,
    supervisor: SupervisorSettings,
}

impl Plan {
    /// Finds the worker program, proves that workers could use the model, and checks that the
    /// supervisor's settings fit together for such a database.
    ///
    /// # Errors
    /// [`Failure::Configuration`] for what must be changed, [`Failure::Environment`] when this machine
    /// cannot use the model.
    pub fn new(settings: &Settings, config: &GenerationConfig, url: &DatabaseUrl) -> Result<Self, Failure> {
        // The settings of the model were checked before; what is left is the machine.
        generator(config).map_err(|error| Failure::Environment(chain(&error)))?;
        Ok(Self {
            worker_program: worker_program(settings)?,
            worker_environment: settings.worker_environment(),
            supervisor: supervisor_settings(settings, url.is_shared())?,
        })
    }
}

fn worker_program(settings: &Settings) -> Result<PathBuf, Failure> {
    let beside = || std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(WORKER_PROGRAM)));
    let program = settings.runtime.worker_program.clone().or_else(beside);
    match program {
        Some(program) if program.is_file() => Ok(program),
        program => Err(Failure::Configuration(format!(
            "the worker program {} does not exist; build it or set `runtime.worker_program`",
            program.unwrap_or_else(|| PathBuf::from(WORKER_PROGRAM)).display()
        ))),
    }
}

/// A database of one process has no lease, so its times are not looked at.
fn supervisor_settings(settings: &Settings, shared: bool) -> Result<SupervisorSettings, Failure> {
    let runtime = &settings.runtime;
    let schedule = |binding| BindingSchedule { binding, interval: runtime.topic_memory_schedule };
    Ok(SupervisorSettings {
        max_workers: runtime.artifact_processing_max_workers,
        worker_timeout: Duration::from_secs(runtime.artifact_processing_worker_timeout_seconds),
        tick: runtime.artifact_processing_tick,
        page_size: runtime.artifact_processing_page_size,
        lease: if shared { lease(settings)? } else { LeaseSettings::default() },
        bindings: BindingName::parse(BINDING).ok().map(schedule).into_iter().collect(),
        ..SupervisorSettings::default()
    })
}

fn lease(settings: &Settings) -> Result<LeaseSettings, Failure> {
    let (runtime, lease) = (&settings.runtime, &settings.runtime.artifact_processing_lease);
    let times = LeaseTimes {
        ttl: lease.duration,
        renewal: lease.renewal,
        candidacy: lease.candidacy,
        margin: lease.margin,
    };
    LeaseSettings::new(times, runtime.artifact_processing_tick)
        .map_err(|error| lease_refusal(settings, error))
}

/// Names every setting that was compared, and first the one that was chosen: a default only got in its way.
fn lease_refusal(settings: &Settings, error: InvalidLease) -> Failure {
    const LEASE: &str = "artifact_processing_lease_seconds";
    const RENEWAL: &str = "artifact_processing_lease_renewal_seconds";
    const MARGIN: &str = "artifact_processing_lease_margin_seconds";
    const CANDIDACY: &str = "artifact_processing_candidacy_seconds";
    const TICK: &str = "artifact_processing_tick_seconds";
    let compared: &[&str] = match error {
        InvalidLease::Zero => &[LEASE, RENEWAL, MARGIN, CANDIDACY, TICK],
        InvalidLease::RenewalTooSlow => &[RENEWAL, MARGIN, LEASE],
        InvalidLease::CandidacyTooSlow => &[CANDIDACY, LEASE],
        InvalidLease::TickTooSlow => &[TICK, RENEWAL],
    };
    let named = compared.iter().copied().find(|key| settings.is_chosen("runtime", key)).unwrap_or(LEASE);
    let shown = |key: &&str| {
        let name = format!("runtime.{key}");
        let value = settings.effective().iter().find(|one| one.name == name);
        format!("`{name}` is {}", value.and_then(|one| one.value.as_deref()).unwrap_or("unset"))
    };
    let shown = compared.iter().map(shown).collect::<Vec<_>>().join(", ");
    Failure::configuration(settings.refuse("runtime", named, format!("does not fit: {error} ({shown})")))
}

/// Where the processing of Topics stands, as one process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessingState {
    /// This process is the only one that may do it, and has not begun yet.
    Starting,
    /// This process does it and is the only one that may.
    Ready(Work),
    /// This process leads all others.
    Leader {
        /// The term.
        generation: i64,
        /// What it has found.
        work: Work,
    },
    /// This process does not lead and would take over.
    Candidate,
    /// Other processes do it; this one never does.
    Remote,
    /// It has ended although this process should do it.
    Stopped {
        /// Whether other processes may do it instead.
        shared: bool,
    },
}

/// What a process that dispatches has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Scopes with a flush that is not answered yet, as the last look at all of them found.
    pub unanswered: u64,
    /// The automatic waves that are open.
    pub waves: Vec<WaveStatus>,
}

impl ProcessingState {
    /// The stable word for readiness.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready(_) => "ready",
            Self::Leader { .. } => "leader",
            Self::Candidate => "candidate",
            Self::Remote => "remote",
            Self::Stopped { .. } => "stopped",
        }
    }

    /// What waits; `None` when this process does not look.
    #[must_use]
    pub const fn work(&self) -> Option<&Work> {
        match self {
            Self::Ready(work) | Self::Leader { work, .. } => Some(work),
            Self::Starting | Self::Candidate | Self::Remote | Self::Stopped { .. } => None,
        }
    }

    /// The state of a running supervisor.
    fn of(status: SupervisorStatus, shared: bool) -> Self {
        let SupervisorStatus { term, last_round, waves, .. } = status;
        let work = Work { unanswered: last_round.pending, waves };
        match term {
            Some(generation) if shared => Self::Leader { generation: generation.get(), work },
            Some(_) => Self::Ready(work),
            None if shared => Self::Candidate,
            None => Self::Starting,
        }
    }
}

/// A supervisor of this process; it can be asked while it is being shut down.
#[derive(Debug)]
pub struct Processing {
    shared: bool,
    handle: Mutex<Option<SupervisorHandle>>,
}

impl Processing {
    /// Starts a supervisor with child processes as its workers. Must be called inside a runtime.
    #[must_use]
    pub fn start(plan: Plan, store: &Store) -> Self {
        let Plan { worker_program, worker_environment, supervisor } = plan;
        let handle = Supervisor::start(SupervisorParts {
            store: store.clone(),
            launcher: Arc::new(ProcessLauncher::new(worker_program, worker_environment)),
            clock: Arc::new(SystemClock::start()),
            ids: Arc::new(SystemIds),
            settings: supervisor,
        });
        Self { shared: store.is_shared(), handle: Mutex::new(Some(handle)) }
    }

    /// Says that a flush was recorded.
    pub fn wake(&self) {
        self.with(SupervisorHandle::wake);
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> ProcessingState {
        let seen = self.with(|handle| handle.is_running().then(|| handle.status()));
        match seen.flatten() {
            Some(status) => ProcessingState::of(status, self.shared),
            None => ProcessingState::Stopped { shared: self.shared },
        }
    }

    /// Stops dispatching, stops the workers and waits for both.
    pub async fn shutdown(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            handle.shutdown().await;
        }
    }

    fn with<T>(&self, ask: impl FnOnce(&SupervisorHandle) -> T) -> Option<T> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
    }
}

#[cfg(test)]
mod tests {
    use powercontext_core::ids::SupervisorGeneration;
    use powercontext_settings::Inputs;
    use powercontext_supervisor::Phase;

    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let pairs = pairs.iter().map(|(name, value)| (format!("POWERCONTEXT_SERVER_{name}"), *value));
        let mut environment: Vec<_> = pairs.map(|(name, value)| (name, value.to_owned())).collect();
        environment.push(("HOME".to_owned(), "/home/someone".to_owned()));
        Settings::load(&Inputs { environment, ..Inputs::default() }).unwrap()
    }

    #[test]
    fn the_default_settings_are_those_of_the_supervisor_with_automatic_waves_off() {
        // TM-219, TM-245, TM-248, TM-249, B-24
        let binding = BindingName::parse(BINDING).unwrap();
        let bindings = vec![BindingSchedule { binding, interval: None }];
        let expected = SupervisorSettings { bindings, ..SupervisorSettings::default() };
        for shared in [false, true] {
            assert_eq!(supervisor_settings(&settings(&[]), shared).unwrap(), expected);
        }
    }

    #[test]
    fn every_setting_of_the_supervisor_reaches_it() {
        // TM-202, TM-245
        let given = settings(&[
            ("RUNTIME_ARTIFACT_PROCESSING_MAX_WORKERS", "3"),
            ("RUNTIME_ARTIFACT_PROCESSING_WORKER_TIMEOUT_SECONDS", "4"),
            ("RUNTIME_ARTIFACT_PROCESSING_TICK_SECONDS", "0.5"),
            ("RUNTIME_ARTIFACT_PROCESSING_PAGE_SIZE", "64"),
            ("RUNTIME_ARTIFACT_PROCESSING_LEASE_SECONDS", "9"),
            ("RUNTIME_ARTIFACT_PROCESSING_LEASE_RENEWAL_SECONDS", "2"),
            ("RUNTIME_ARTIFACT_PROCESSING_LEASE_MARGIN_SECONDS", "1"),
            ("RUNTIME_ARTIFACT_PROCESSING_CANDIDACY_SECONDS", "0.75"),
            ("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "2.5"),
        ]);
        let made = supervisor_settings(&given, true).unwrap();
        assert_eq!((made.max_workers, made.page_size), (3, 64));
        assert_eq!((made.worker_timeout, made.tick), (Duration::from_secs(4), Duration::from_millis(500)));
        let intervals: Vec<_> = made.bindings.iter().map(|schedule| schedule.interval).collect();
        assert_eq!(intervals, [Some(Duration::from_millis(2500))]);
        let times = LeaseTimes {
            ttl: Duration::from_secs(9),
            renewal: Duration::from_secs(2),
            candidacy: Duration::from_millis(750),
            margin: Duration::from_secs(1),
        };
        assert_eq!(made.lease.times(), times);
    }

    #[test]
    fn each_state_has_its_word_and_only_a_dispatcher_tells_what_waits() {
        let work = Work { unanswered: 2, waves: Vec::new() };
        let all = [
            (ProcessingState::Starting, "starting", None),
            (ProcessingState::Ready(work.clone()), "ready", Some(&work)),
            (ProcessingState::Leader { generation: 3, work: work.clone() }, "leader", Some(&work)),
            (ProcessingState::Candidate, "candidate", None),
            (ProcessingState::Remote, "remote", None),
            (ProcessingState::Stopped { shared: true }, "stopped", None),
        ];
        for (state, word, told) in all {
            assert_eq!((state.word(), state.work()), (word, told));
        }
    }

    #[test]
    fn a_supervisor_without_a_term_is_a_candidate_among_others_and_starting_when_alone() {
        let status = |phase, term: Option<i64>| SupervisorStatus {
            phase,
            term: term.map(SupervisorGeneration::new),
            ..SupervisorStatus::default()
        };
        for phase in [Phase::Starting, Phase::DatabaseUnavailable] {
            assert_eq!(ProcessingState::of(status(phase, None), false), ProcessingState::Starting);
            assert_eq!(ProcessingState::of(status(phase, None), true), ProcessingState::Candidate);
        }
        let led = status(Phase::Running, Some(4));
        assert_eq!(ProcessingState::of(led.clone(), false), ProcessingState::Ready(Work::default()));
        let leader = ProcessingState::Leader { generation: 4, work: Work::default() };
        assert_eq!(ProcessingState::of(led, true), leader);
    }

    #[test]
    fn times_of_the_lease_that_do_not_fit_are_told_with_every_setting_compared() {
        let told = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| (format!("RUNTIME_ARTIFACT_PROCESSING_{key}_SECONDS"), *value))
                .collect();
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), *value)).collect();
            supervisor_settings(&settings(&pairs), true).unwrap_err().to_string()
        };
        for (given, named, others) in [
            (
                &[("LEASE", "12")][..],
                "lease",
                &["lease_renewal_seconds` is 5", "lease_margin_seconds` is 2"][..],
            ),
            (
                &[("LEASE_MARGIN", "6")],
                "lease_margin",
                &["lease_renewal_seconds` is 5", "lease_seconds` is 15"],
            ),
            (&[("CANDIDACY", "15")], "candidacy", &["lease_seconds` is 15"]),
            (&[("TICK", "6")], "tick", &["lease_renewal_seconds` is 5"]),
            (&[("LEASE_RENEWAL", "0.5")], "lease_renewal", &["tick_seconds` is 1"]),
        ] {
            let line = told(given);
            let first = format!("setting `runtime.artifact_processing_{named}_seconds` from the environment");
            assert!(line.starts_with(&first), "{line}");
            for other in others {
                assert!(line.contains(&format!("`runtime.artifact_processing_{other}")), "{line}");
            }
        }
    }
}
