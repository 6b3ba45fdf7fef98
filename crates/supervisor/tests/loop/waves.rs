//! Automatic waves through the loop.

use std::time::Duration;

use powercontext_core::ids::{FlushGeneration, Position};
use powercontext_core::work::{Ending, WorkMode};
use powercontext_supervisor::facts::PendingFact;
use powercontext_supervisor::{Phase, WorkerEnding};

use crate::double::{Facts, NEVER, SOON, TIMES, becomes, row, start, until};

const INTERVAL: Option<Duration> = Some(Duration::from_secs(60));

/// The row without a flush.
fn unflushed() -> PendingFact {
    PendingFact { flush_generation: FlushGeneration::new(0), ..row() }
}

#[tokio::test]
async fn a_wave_goes_from_the_freeze_to_the_completion() {
    // TM-204 TM-206 TM-207 TM-208
    let facts = Facts::default();
    facts.change(|world| world.row = Some(unflushed()));
    let mut running = start(&facts, SOON, INTERVAL);
    let assignment = running.launches.recv().await.unwrap();
    assert_eq!((assignment.mode, assignment.wave_target.get()), (WorkMode::Automatic, 3));
    assert_eq!(assignment.claimed_flush_generation, FlushGeneration::new(0));
    until(|| running.handle.status().waves.len() == 1).await;
    let cursor = Position::new(3);
    facts.change(|world| world.row = Some(PendingFact { cursor, ..unflushed() }));
    running.ended.send(WorkerEnding { ending: Ending::Done, outcome: None }).unwrap();
    until(|| facts.change(|world| world.log.contains(&"complete"))).await;
    until(|| running.handle.status().waves.is_empty()).await;
    running.handle.shutdown().await;
    assert_eq!(facts.change(|world| world.log.clone()), ["clear", "freeze", "mark", "complete"]);
}

#[tokio::test]
async fn a_freeze_without_an_answer_delays_neither_explicit_work_nor_the_lease_nor_a_shutdown() {
    // TM-187 TM-190 TM-202
    let facts = Facts::shared();
    facts.change(|world| (world.stuck, world.row) = (true, Some(unflushed())));
    let mut running = start(&facts, SOON, INTERVAL);
    becomes(&running.handle, Phase::Running).await;
    until(|| facts.change(|world| world.log.contains(&"clear"))).await;
    facts.pass(TIMES.renewal);
    until(|| facts.change(|world| world.renewals > 0)).await;
    facts.change(|world| world.row = Some(row()));
    running.handle.wake();
    assert_eq!(running.launches.recv().await.unwrap().mode, WorkMode::Explicit);
    running.handle.shutdown().await;
    assert_eq!(facts.change(|world| world.log.clone()), ["clear", "release", "stop"]);
}

#[tokio::test]
async fn a_freeze_goes_on_while_the_loop_waits_for_the_connection_that_it_holds() {
    // TM-187 TM-202: one connection writes; a loop that waited and drove the freeze too would stand still.
    let facts = Facts::default();
    facts.change(|world| (world.freeze_takes, world.row) = (10 * SOON, Some(unflushed())));
    let running = start(&facts, SOON, INTERVAL);
    until(|| facts.change(|world| world.freezes == 1)).await;
    let covered = PendingFact { cursor: row().source_through, ..row() };
    facts.change(|world| world.row = Some(covered));
    running.handle.wake();
    until(|| facts.change(|world| world.log.contains(&"settle"))).await;
    running.handle.shutdown().await;
    assert_eq!(facts.change(|world| world.log[..3].to_vec()), ["clear", "freeze", "settle"]);
}

#[tokio::test]
async fn a_lost_lease_abandons_a_freeze_without_an_answer() {
    // TM-187 TM-206
    let facts = Facts::shared();
    facts.change(|world| (world.stuck, world.row) = (true, Some(unflushed())));
    let mut running = start(&facts, SOON, INTERVAL);
    until(|| facts.change(|world| world.log.contains(&"clear"))).await;
    facts.change(|world| (world.stuck, world.now) = (false, world.now + 10 * TIMES.ttl));
    until(|| {
        facts.pass(Duration::from_millis(2));
        running.handle.status().term.is_some_and(|term| term.get() == 2)
    })
    .await;
    assert_eq!(running.launches.recv().await.unwrap().fence.generation.get(), 2);
    running.handle.shutdown().await;
    let log = facts.change(|world| world.log.clone());
    assert_eq!(log.iter().filter(|done| **done == "clear").count(), 2, "{log:?}");
    assert_eq!(log.iter().filter(|done| **done == "freeze").count(), 1, "{log:?}");
}

#[tokio::test]
async fn a_freeze_that_fails_waits_for_a_tick_and_delays_no_explicit_work() {
    // TM-202
    let facts = Facts::default();
    facts.change(|world| (world.refusing, world.row) = (true, Some(unflushed())));
    let mut running = start(&facts, NEVER, INTERVAL);
    until(|| facts.change(|world| world.freezes > 0)).await;
    for _ in 0..10 {
        let before = facts.change(|world| world.pages);
        running.handle.wake();
        until(|| facts.change(|world| world.pages > before)).await;
    }
    assert!(facts.change(|world| world.freezes) <= 2, "once at the start and once at the first tick");
    facts.change(|world| world.row = Some(row()));
    running.handle.wake();
    assert_eq!(running.launches.recv().await.unwrap().mode, WorkMode::Explicit);
    running.handle.shutdown().await;
    // With ticks it is tried again, and works in the end.
    facts.change(|world| world.row = Some(unflushed()));
    let mut running = start(&facts, SOON, INTERVAL);
    until(|| facts.change(|world| world.freezes > 3)).await;
    facts.change(|world| world.refusing = false);
    assert_eq!(running.launches.recv().await.unwrap().mode, WorkMode::Automatic);
    running.handle.shutdown().await;
}
