//! Faults in random order on a real fleet, for as long as one likes.
//!
//! `POWERCONTEXT_SOAK_SECONDS` says how long (`make soak`), `POWERCONTEXT_SOAK_SEED` repeats the faults of
//! a run; the seed is printed first and every fault before it happens.

use std::collections::BTreeMap;
use std::time::Duration;

use powercontext_core::ambient::{Clock as _, IdSource as _, SystemClock, SystemIds};
use powercontext_tests::fleet::{Fleet, FleetSetup, LIMIT, thaw};
use powercontext_tests::proxy::Line;
use powercontext_tests::verdict::assert_sound;
use powercontext_tests::watcher::Watcher;
use powercontext_tests::writers::{Pace, Writers};

const PACE: Pace = Pace { pause: Duration::from_millis(150), flush_every: 5 };
const SECONDS: u64 = 45;
const APIS: usize = 2;
const CONTROLLERS: usize = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A small generator, so that a seed gives the same faults everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(u64::try_from(count).expect("few"))).expect("few")
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }
}

/// What happens to a fleet next.
#[derive(Clone, Copy, Debug)]
enum Fault {
    KillLeader,
    KillController(usize),
    KillApi(usize),
    StopLeader,
    StopApi(usize),
    /// Longer than a lease.
    FreezeLeader(Duration),
    FreezeApi(usize, Duration),
    LeaderOff(Line, Duration),
    ControllerOff(usize, Line, Duration),
    ApiOff(usize, Line, Duration),
    /// And how long it is away.
    CrashDatabase(Duration),
}

impl Fault {
    fn next(dice: &mut Dice) -> Self {
        let line = if dice.below(2) == 0 { Line::Cut } else { Line::Silent };
        // Longer than a lease, so that no leader that stays waits half a minute before it tries again.
        let (outage, lull) = (dice.millis(3_500, 6_000), dice.millis(200, 2_000));
        let (controller, api) = (dice.index(CONTROLLERS), dice.index(APIS));
        match dice.below(14) {
            0..=2 => Self::KillLeader,
            3 => Self::KillController(controller),
            4 => Self::KillApi(api),
            5 => Self::StopLeader,
            6 => Self::StopApi(api),
            7 | 8 => Self::FreezeLeader(outage),
            9 => Self::FreezeApi(api, lull),
            10 => Self::LeaderOff(line, outage),
            11 => Self::ControllerOff(controller, line, outage),
            12 => Self::ApiOff(api, line, outage),
            _ => Self::CrashDatabase(outage),
        }
    }

    /// Does it and repairs it; what was killed runs again afterwards.
    async fn happen(self, fleet: &mut Fleet) {
        let leader = fleet.leader().await.0;
        match self {
            Self::KillLeader => kill_controller(fleet, leader),
            Self::KillController(number) => kill_controller(fleet, number),
            Self::KillApi(number) => {
                fleet.apis[number].kill();
                fleet.start_api(number);
            }
            Self::StopLeader => {
                fleet.controllers[leader].stop().await;
                fleet.start_controller(leader);
            }
            Self::StopApi(number) => {
                fleet.apis[number].stop().await;
                fleet.start_api(number);
            }
            Self::FreezeLeader(time) => {
                let workers = fleet.controllers[leader].process().freeze();
                tokio::time::sleep(time).await;
                thaw(&workers);
                fleet.controllers[leader].process().thaw();
            }
            Self::FreezeApi(number, time) => {
                let _ = fleet.apis[number].process().freeze();
                tokio::time::sleep(time).await;
                fleet.apis[number].process().thaw();
            }
            Self::LeaderOff(line, time) => {
                fleet.controllers[leader].network.set(line);
                tokio::time::sleep(time).await;
                fleet.controllers[leader].network.set(Line::Open);
            }
            Self::ControllerOff(number, line, time) => {
                fleet.controllers[number].network.set(line);
                tokio::time::sleep(time).await;
                fleet.controllers[number].network.set(Line::Open);
            }
            Self::ApiOff(number, line, time) => {
                fleet.apis[number].network.set(line);
                tokio::time::sleep(time).await;
                fleet.apis[number].network.set(Line::Open);
            }
            Self::CrashDatabase(time) => {
                fleet.engine.crash();
                tokio::time::sleep(time).await;
                fleet.engine.restart().await;
            }
        }
    }
}

fn kill_controller(fleet: &mut Fleet, number: usize) {
    fleet.controllers[number].kill();
    fleet.start_controller(number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_under_faults_in_random_order_loses_and_doubles_nothing() {
    // TM-002, TM-004, TM-019, TM-174, TM-183, TM-187, TM-188, TM-189, TM-190, TM-194, TM-221, TM-274
    let seed = number("POWERCONTEXT_SOAK_SEED").unwrap_or_else(|| SystemIds.random().as_u64_pair().0);
    let time = Duration::from_secs(number("POWERCONTEXT_SOAK_SECONDS").unwrap_or(SECONDS));
    println!("soak of {time:?}; POWERCONTEXT_SOAK_SEED={seed} repeats its faults");
    let mut dice = Dice(seed);
    let mut setup = FleetSetup::new(APIS, CONTROLLERS);
    if dice.below(2) == 0 {
        println!("with automatic waves beside the flushes");
        setup = setup.with("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "2");
    }
    let mut fleet = Fleet::start(setup).await;
    let watcher = Watcher::start(fleet.tables.clone());
    let scopes = fleet.create_scopes(3).await;
    let writers = Writers::start(&fleet.clients(), &scopes, &PACE);
    fleet.until_all_progress(&scopes).await;
    let clock = SystemClock::start();
    let mut faults = 0;
    while clock.monotonic() < time {
        let fault = Fault::next(&mut dice);
        println!("{:>6.1} s, {} Sources: {fault:?}", clock.monotonic().as_secs_f64(), writers.total());
        fault.happen(&mut fleet).await;
        fleet.until_ready().await;
        fleet.leader().await;
        fleet.until_all_progress(&scopes).await;
        fleet.assert_alive();
        faults += 1;
    }
    let ledger = writers.finish().await;
    fleet.catch_up(&scopes, LIMIT).await;
    fleet.assert_alive();
    assert_sound(&fleet, &ledger, &watcher.finish()).await;
    println!("soak: {} Sources, {faults} faults, {} repeated requests", ledger.total(), ledger.repeated);
    print_troubles(&fleet);
}

/// How often each process complained of what: nothing is judged by it, but it shows what a run met.
fn print_troubles(fleet: &Fleet) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for event in fleet.events().iter().filter(|event| matches!(event.text("level"), "WARN" | "ERROR")) {
        let said = [event.name.as_str(), event.text("stage"), event.text("error_code")].join(" ");
        *counts.entry(said.trim().to_owned()).or_default() += 1;
    }
    for (said, count) in counts {
        println!("  {count:>5} {said}");
    }
}
