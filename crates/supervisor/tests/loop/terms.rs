//! Embedded terms: one supervisor on a database of its own.

use powercontext_supervisor::Phase;

use crate::double::{Facts, NEVER, SOON, becomes, row, start};

#[tokio::test]
async fn a_wake_leads_to_a_launch_without_waiting_for_the_tick() {
    // TM-181 TM-185 TM-218
    let facts = Facts::default();
    let mut running = start(&facts, NEVER, None);
    becomes(&running.handle, Phase::Running).await;
    facts.change(|world| world.row = Some(row()));
    running.handle.wake();
    let assignment = running.launches.recv().await.unwrap();
    assert_eq!((assignment.wave_target.get(), assignment.fence.generation.get()), (3, 1));
    assert_eq!(assignment.fence.holder.as_str().as_bytes()[14], b'4', "a UUIDv4");
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_failing_database_pauses_the_supervisor_and_never_ends_it() {
    let facts = Facts::default();
    facts.change(|world| world.broken = true);
    let mut running = start(&facts, SOON, None);
    becomes(&running.handle, Phase::DatabaseUnavailable).await;
    assert!(running.handle.is_running());
    facts.change(|world| {
        world.broken = false;
        world.now += SOON;
    });
    becomes(&running.handle, Phase::Running).await;
    facts.change(|world| world.broken = true);
    becomes(&running.handle, Phase::DatabaseUnavailable).await;
    facts.change(|world| (world.broken, world.row) = (false, Some(row())));
    assert_eq!(running.launches.recv().await.unwrap().source_after.get(), 0);
    running.handle.shutdown().await;
}

#[tokio::test]
async fn a_lost_term_stops_the_workers_and_ends_dispatching() {
    // TM-187 TM-195
    let facts = Facts::default();
    facts.change(|world| world.row = Some(row()));
    let mut running = start(&facts, SOON, None);
    running.launches.recv().await.unwrap();
    facts.change(|world| world.generation += 1);
    becomes(&running.handle, Phase::TermLost).await;
    assert!(!running.handle.is_running());
    assert_eq!(running.handle.status().footprint.in_flight, 0);
    assert!(running.launches.recv().await.is_none());
    assert_eq!(facts.change(|world| world.generation), 2, "it begins no other term");
}

#[tokio::test]
async fn a_shutdown_stops_the_workers_first() {
    let facts = Facts::default();
    facts.change(|world| world.row = Some(row()));
    let mut running = start(&facts, SOON, None);
    running.launches.recv().await.unwrap();
    running.handle.shutdown().await;
    assert!(running.launches.recv().await.is_none());
    assert_eq!(
        facts.change(|world| world.log.clone()),
        ["clear", "stop"],
        "an embedded term is not released"
    );
}
