//! A whole fleet in one thread: seeded, without sleeping, checked after every step.
//!
//! `POWERCONTEXT_SIM_SEED` replays a run; `POWERCONTEXT_SIM_STEPS` lengthens it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "test code: it may panic, and the seed is printed"
)]

mod audit;
mod database;
mod expect;
mod lease;
mod process;
mod random;
mod scenarios;
mod term;
mod waves;
mod workers;
mod world;

use std::time::Duration;

use powercontext_supervisor::{Backoff, BindingSchedule, SupervisorSettings};

use crate::world::{Shape, World};

const SEED: u64 = 20_261_130;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Tells how to see a failure again.
struct Replay {
    seed: u64,
    step: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("POWERCONTEXT_SIM_SEED={} fails at step {}", self.seed, self.step);
        }
    }
}

/// Settings with short periods; one binding for each interval in seconds.
fn settings(page_size: usize, max_workers: usize, intervals: &[Option<u64>]) -> SupervisorSettings {
    let schedule = |(number, interval): (usize, &Option<u64>)| BindingSchedule {
        binding: database::binding(number),
        interval: interval.map(Duration::from_secs),
    };
    SupervisorSettings {
        max_workers,
        page_size,
        worker_timeout: Duration::from_secs(20),
        backoff: Backoff { first: Duration::from_secs(5), longest: Duration::from_secs(60) },
        bindings: intervals.iter().enumerate().map(schedule).collect(),
        ..SupervisorSettings::default()
    }
}

fn simulate(shape: Shape, settings: SupervisorSettings, steps: u64) -> World {
    let seed = number("POWERCONTEXT_SIM_SEED", SEED);
    let steps = number("POWERCONTEXT_SIM_STEPS", steps);
    println!("seed {seed}, {steps} steps, {shape:?}");
    let mut replay = Replay { seed, step: 0 };
    let mut world = World::new(seed, shape, settings);
    for step in 0..steps {
        replay.step = step;
        world.step();
        if step % 10_000 == 9_999 {
            world.drain();
        }
    }
    world.drain();
    println!("{:?}, {} fenced writes", world.counts, world.database.fenced);
    let counts = &world.counts;
    let launches = counts.explicit + counts.automatic + counts.catch_up;
    assert!(launches > steps / 100, "the simulation must not be idle");
    world
}

#[test]
fn a_fleet_keeps_every_promise_through_everything_that_can_go_wrong() {
    let shape = Shape { shared: true, processes: 3, scopes_per_binding: 8 };
    simulate(shape, settings(4, 3, &[Some(30), Some(90)]), 40_000);
}

#[test]
fn a_fleet_whose_backlog_is_larger_than_its_memory_starves_nobody() {
    let shape = Shape { shared: true, processes: 2, scopes_per_binding: 60 };
    simulate(shape, settings(2, 4, &[Some(40), Some(120)]), 20_000);
}

#[test]
fn without_automatic_waves_ordinary_sources_wait_for_a_flush() {
    let shape = Shape { shared: true, processes: 2, scopes_per_binding: 8 };
    let world = simulate(shape, settings(4, 3, &[None, Some(60)]), 20_000);
    assert_eq!(world.database.bindings[0].completed_at, None);
}

#[test]
fn an_embedded_supervisor_keeps_every_promise_under_crashes_lies_and_restarts() {
    let shape = Shape { shared: false, processes: 1, scopes_per_binding: 8 };
    simulate(shape, settings(4, 3, &[Some(30), Some(90)]), 10_000);
}

#[test]
fn an_embedded_backlog_far_larger_than_memory_starves_nobody_and_stays_bounded() {
    let shape = Shape { shared: false, processes: 1, scopes_per_binding: 75 };
    simulate(shape, settings(2, 4, &[None, Some(60)]), 10_000);
}
