//! Elected terms: several supervisors on one database.

use std::time::Duration;

use powercontext_core::ids::HolderId;
use powercontext_core::work::WorkAssignment;
use powercontext_supervisor::Phase;

use crate::double::{Facts, Running, SOON, TIMES, becomes, row, start, until};

/// Moves the clock in small steps until something holds.
async fn passes(facts: &Facts, mut holds: impl FnMut() -> bool) {
    while !holds() {
        facts.pass(Duration::from_millis(2));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Moves the clock until something is launched.
async fn launched(facts: &Facts, running: &mut Running) -> WorkAssignment {
    let mut assignment = None;
    passes(facts, || {
        assignment = running.launches.try_recv().ok();
        assignment.is_some()
    })
    .await;
    assignment.unwrap()
}

#[tokio::test]
async fn a_leader_keeps_its_term_by_renewals() {
    // TM-182 TM-183
    let facts = Facts::shared();
    let leader = start(&facts, SOON, None);
    becomes(&leader.handle, Phase::Running).await;
    for renewal in 1..6 {
        facts.pass(TIMES.renewal);
        until(|| facts.change(|world| world.renewals) >= renewal).await;
    }
    let status = leader.handle.status();
    assert_eq!(status.term.map(|term| term.get()), Some(1));
    assert!(status.is_leader());
    leader.handle.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_releases_first_so_that_a_follower_needs_one_candidacy_period() {
    // TM-188 TM-189 TM-190
    let facts = Facts::shared();
    let mut leader = start(&facts, SOON, None);
    becomes(&leader.handle, Phase::Running).await;
    let mut follower = start(&facts, SOON, None);
    becomes(&follower.handle, Phase::Candidate).await;
    assert!(follower.handle.is_running() && !follower.handle.status().is_leader());
    facts.change(|world| world.row = Some(row()));
    assert_eq!(leader.launches.recv().await.unwrap().fence.generation.get(), 1);
    leader.handle.shutdown().await;
    assert_eq!(facts.change(|world| world.log.clone()), ["clear", "release", "stop"]);
    facts.pass(TIMES.candidacy);
    assert_eq!(follower.launches.recv().await.unwrap().fence.generation.get(), 2);
    assert!(leader.launches.recv().await.is_none());
    follower.handle.shutdown().await;
}

#[tokio::test]
async fn a_refused_renewal_ends_the_term_at_once_and_candidacy_goes_on_in_the_same_process() {
    // TM-181 TM-182 TM-187 TM-189
    let facts = Facts::shared();
    facts.change(|world| world.row = Some(row()));
    let mut leader = start(&facts, Duration::from_millis(40), None);
    let first = leader.launches.recv().await.unwrap().fence;
    let other = HolderId::parse("another").unwrap();
    facts.change(|world| {
        (world.holder, world.generation) = (Some(other), 2);
        world.now += TIMES.renewal;
        world.expires = world.now + TIMES.ttl;
    });
    becomes(&leader.handle, Phase::Candidate).await;
    until(|| facts.change(|world| world.log.contains(&"stop"))).await;
    assert!(leader.launches.try_recv().is_err());
    let second = launched(&facts, &mut leader).await.fence;
    assert_eq!((second.generation.get(), &second.holder), (3, &first.holder));
    leader.handle.shutdown().await;
}

#[tokio::test]
async fn a_leader_without_answers_about_its_lease_stops_before_it_expires() {
    // TM-187
    let facts = Facts::shared();
    let mut leader = start(&facts, SOON, None);
    becomes(&leader.handle, Phase::Running).await;
    facts.change(|world| world.silent = true);
    passes(&facts, || leader.handle.status().phase != Phase::Running).await;
    facts.change(|world| world.row = Some(row()));
    assert!(leader.launches.try_recv().is_err());
    facts.change(|world| world.silent = false);
    assert_eq!(launched(&facts, &mut leader).await.fence.generation.get(), 2);
    leader.handle.shutdown().await;
}

#[tokio::test]
async fn a_process_that_was_frozen_for_longer_than_its_lease_launches_nothing_under_it() {
    // TM-187
    let facts = Facts::shared();
    let mut leader = start(&facts, SOON, None);
    becomes(&leader.handle, Phase::Running).await;
    facts.change(|world| {
        world.now += 10 * TIMES.ttl;
        world.row = Some(row());
    });
    leader.handle.wake();
    assert_eq!(launched(&facts, &mut leader).await.fence.generation.get(), 2);
    leader.handle.shutdown().await;
}

#[tokio::test]
async fn a_database_that_is_away_for_long_costs_the_term_and_not_the_process() {
    // TM-187
    let facts = Facts::shared();
    facts.change(|world| world.row = Some(row()));
    let mut leader = start(&facts, SOON, None);
    leader.launches.recv().await.unwrap();
    facts.change(|world| world.broken = true);
    becomes(&leader.handle, Phase::DatabaseUnavailable).await;
    assert!(leader.handle.status().is_leader(), "the term is not over yet");
    passes(&facts, || !leader.handle.status().is_leader()).await;
    for _ in 0..100 {
        facts.pass(TIMES.candidacy);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    becomes(&leader.handle, Phase::DatabaseUnavailable).await;
    assert!(leader.handle.is_running() && leader.launches.try_recv().is_err());
    facts.change(|world| world.broken = false);
    assert_eq!(launched(&facts, &mut leader).await.fence.generation.get(), 2);
    leader.handle.shutdown().await;
}

#[tokio::test]
async fn a_candidate_can_be_shut_down_while_the_database_is_silent() {
    let facts = Facts::shared();
    facts.change(|world| world.silent = true);
    let candidate = start(&facts, SOON, None);
    tokio::time::sleep(SOON).await;
    candidate.handle.shutdown().await;
    assert_eq!(facts.change(|world| world.generation), 0);
}

#[tokio::test]
async fn a_term_that_the_database_does_not_name_any_more_makes_a_candidate_before_the_renewal() {
    // TM-187 TM-194
    let facts = Facts::shared();
    let mut leader = start(&facts, SOON, None);
    becomes(&leader.handle, Phase::Running).await;
    // Another supervisor led and crashed; its lease is over.
    let other = HolderId::parse("another").unwrap();
    facts.change(|world| (world.holder, world.generation, world.expires) = (Some(other), 2, world.now));
    becomes(&leader.handle, Phase::Candidate).await;
    facts.change(|world| {
        world.row = Some(row());
        world.now += TIMES.candidacy;
    });
    assert_eq!(leader.launches.recv().await.unwrap().fence.generation.get(), 3);
    leader.handle.shutdown().await;
}
