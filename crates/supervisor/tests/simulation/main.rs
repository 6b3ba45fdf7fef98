//! A whole fleet in one thread: seeded, without sleeping, checked after every step.
//!
//! `POWERCONTEXT_SIM_SEED` replays a run; `POWERCONTEXT_SIM_STEPS` lengthens it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: it may panic, and the seed is printed"
)]

mod database;
mod scenarios;
mod world;

use std::time::Duration;

use powercontext_supervisor::SupervisorSettings;

use crate::world::World;

const SEED: u64 = 20_261_130;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn simulate(keys: usize, page_size: usize, max_workers: usize, steps: u64) {
    let seed = number("POWERCONTEXT_SIM_SEED", SEED);
    let steps = number("POWERCONTEXT_SIM_STEPS", steps);
    println!("seed {seed}, {steps} steps, {keys} keys, pages of {page_size}, {max_workers} workers");
    let settings = SupervisorSettings {
        max_workers,
        page_size,
        worker_timeout: Duration::from_secs(60),
        ..SupervisorSettings::default()
    };
    let mut world = World::new(seed, keys, settings);
    for step in 0..steps {
        world.step();
        if step % 10_000 == 9_999 {
            world.drain();
        }
    }
    world.drain();
    println!("{} launches, {} restarts", world.launches, world.restarts);
    assert!(world.launches > steps / 100, "the simulation must not be idle");
}

#[test]
fn a_small_fleet_keeps_every_promise_under_crashes_lies_and_restarts() {
    // TM-161 TM-166 TM-167 TM-168 TM-169 TM-173 TM-174 TM-189 TM-190 TM-193 TM-194 TM-195 TM-196
    // TM-197 TM-199 TM-221 TM-222 TM-225 TM-226 TM-274 TM-275
    simulate(12, 8, 3, 80_000);
}

#[test]
fn a_backlog_far_larger_than_memory_starves_nobody_and_stays_bounded() {
    // TM-197
    simulate(150, 2, 4, 40_000);
}
