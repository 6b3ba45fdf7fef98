//! What a change of leaders costs, with real periods and without any other fault.

use std::time::Duration;

use crate::settings;
use crate::world::{Shape, World};

const INTERVAL: u64 = 120;

fn fleet() -> World {
    let shape = Shape { shared: true, processes: 2, scopes_per_binding: 4, busy: false };
    let mut world = World::new(7, shape, settings(4, 2, &[Some(INTERVAL)]));
    world.kind = true;
    world
}

impl World {
    fn leader(&self) -> Option<usize> {
        self.places.iter().position(|place| place.as_ref().is_ok_and(|process| process.term.is_some()))
    }

    /// Lets time pass until something holds; tells how long it took.
    fn wait(&mut self, work: bool, until: impl Fn(&Self) -> bool) -> Duration {
        let begin = self.time;
        while !until(self) {
            self.pass(Duration::from_millis(100));
            for place in 0..self.places.len() {
                self.run(place);
            }
            for _ in 0..if work { 8 } else { 0 } {
                self.move_worker();
            }
            self.check();
            assert!(self.time < begin + Duration::from_secs(3_600), "never happens");
        }
        self.time - begin
    }
}

fn captured(world: &mut World, keys: std::ops::Range<usize>) {
    for key in keys {
        world.database.capture(key);
        world.audit.saw(&world.database, &crate::audit::Cause::Capture(key));
    }
}

fn is_open(world: &World) -> bool {
    world.database.bindings[0].wave.is_some()
}

fn is_complete(world: &World) -> bool {
    world.database.bindings[0].completed_at.is_some() && !is_open(world)
}

/// Until a dead leader's lease is won by another, and the next look of its loop.
const TAKEOVER: Duration = Duration::from_millis(15_000 + 3_000 + 2_000);

#[test]
fn a_due_wave_that_its_leader_did_not_finish_runs_at_once_under_the_next() {
    // TM-188 TM-189 TM-191 TM-216 TM-276
    let mut world = fleet();
    captured(&mut world, 0..4);
    world.wait(false, |world| is_open(world) && !world.workers.is_empty());
    let generation = world.database.lease.generation;
    let first = world.database.bindings[0].wave.clone();
    world.crash(world.leader().unwrap(), Duration::from_secs(900));
    let waited = world.wait(false, |world| is_open(world) && world.database.bindings[0].wave != first);
    assert!(waited <= TAKEOVER, "{waited:?}");
    assert_eq!(world.database.lease.generation, generation + 1);
    world.wait(true, is_complete);
    assert!(world.database.scopes.iter().all(|scope| scope.row.is_none() && scope.cursor == 1));
}

#[test]
fn a_completed_wave_waits_only_for_the_rest_of_its_interval_under_the_next_leader() {
    // TM-192 TM-217 TM-220 TM-276
    let mut world = fleet();
    captured(&mut world, 0..4);
    world.wait(true, is_complete);
    let completed = world.database.clock;
    world.crash(world.leader().unwrap(), Duration::from_secs(900));
    captured(&mut world, 0..2);
    world.wait(true, is_open);
    let waited = world.database.clock - completed;
    let interval = Duration::from_secs(INTERVAL);
    assert!(waited >= interval && waited <= interval + Duration::from_secs(2), "{waited:?}");
}

#[test]
fn a_flush_that_its_leader_did_not_finish_resumes_at_once_under_the_next() {
    // TM-190
    let mut world = fleet();
    captured(&mut world, 0..1);
    assert!(world.database.flush(0));
    world.audit.saw(&world.database, &crate::audit::Cause::Flush(0));
    world.wait(false, |world| !world.workers.is_empty());
    world.workers.clear();
    world.crash(world.leader().unwrap(), Duration::from_secs(900));
    let waited = world.wait(true, |world| !world.database.scopes[0].is_flushed());
    assert!(waited <= TAKEOVER, "{waited:?}");
}

#[test]
fn a_leader_that_is_asked_to_end_is_followed_within_one_candidacy_period() {
    // TM-187 TM-188
    let mut world = fleet();
    world.wait(false, |world| world.leader().is_some());
    let generation = world.database.lease.generation;
    world.wait(false, |world| world.places.iter().all(Result::is_ok));
    world.resign(world.leader().unwrap());
    let waited = world.wait(false, |world| world.database.lease.generation > generation);
    assert!(waited <= Duration::from_millis(3_200), "{waited:?}");
}

#[test]
fn a_leader_that_was_frozen_past_its_lease_wakes_up_as_a_candidate_and_writes_nothing() {
    // TM-187 TM-194 TM-272
    let mut world = fleet();
    captured(&mut world, 0..4);
    world.wait(false, |world| is_open(world) && world.places.iter().all(Result::is_ok));
    let frozen = world.leader().unwrap();
    let generation = world.database.lease.generation;
    let until = world.time + Duration::from_secs(60);
    world.process(frozen).frozen_until = until;
    let waited = world.wait(false, |world| world.database.lease.generation > generation);
    assert!(waited <= TAKEOVER, "{waited:?}");
    world.wait(false, |world| world.time >= until + Duration::from_secs(5));
    assert!(world.process(frozen).term.is_none());
    // The one refused call is that it gives its lease back.
    assert_eq!((world.database.lease.generation, world.database.fenced), (generation + 1, 1));
}
