//! Leaders that are killed, frozen or asked to stop while a fleet of real processes works on OceanBase.

use std::path::Path;
use std::time::Duration;

use powercontext_tests::events::Event;
use powercontext_tests::fleet::{Fleet, FleetSetup, LIMIT, thaw, until};
use powercontext_tests::tables::{self, Dump, difference};
use powercontext_tests::verdict::assert_sound;
use powercontext_tests::watcher::{self, Watcher};
use powercontext_tests::writers::{Pace, Writers};

const PACE: Pace = Pace { pause: Duration::from_millis(40), flush_every: 5 };
const LEASES: &str = "pc_artifact_processing_leases";
const NOTES: [&str; 3] = [
    "The nightly export of invoices failed because the export bucket policy had been tightened.",
    "Invoice export follow-up: the bucket policy of the invoice export now names the exporter role.",
    "Graph queries of the topology service are limited to depth six since the incident in May.",
];

async fn capture_notes(fleet: &Fleet, scope: &str) {
    let client = fleet.apis[0].client();
    for (number, text) in NOTES.into_iter().enumerate() {
        client.capture(scope, &format!("s{number}"), text).await;
    }
}

async fn until_exists(mark: &Path) {
    until("a worker froze itself", async || mark.exists().then_some(())).await;
}

/// Continues the frozen workers of a process that is itself still frozen, and waits until they have ended.
async fn let_workers_end(fleet: &Fleet, number: usize) {
    let process = fleet.controllers[number].process();
    thaw(&process.children());
    until("the woken workers end", async || process.children().is_empty().then_some(())).await;
}

/// How the worker of a process that failed last says it failed.
fn last_failure(fleet: &Fleet, number: usize) -> Option<Event> {
    let events = fleet.events_of(&fleet.controllers[number].name);
    events.into_iter().rfind(|event| event.name == "worker_failed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_again_and_again_loses_and_doubles_nothing() {
    // TM-002, TM-004, TM-174, TM-179, TM-183, TM-187, TM-188, TM-189, TM-190, TM-194, TM-274
    let mut fleet = Fleet::start(FleetSetup::new(2, 3)).await;
    let watcher = Watcher::start(fleet.tables.clone());
    let scopes = fleet.create_scopes(3).await;
    let writers = Writers::start(&fleet.clients(), &scopes, &PACE);
    fleet.until_all_progress(&scopes).await;
    for _ in 0..4 {
        let (leader, lease) = fleet.leader().await;
        fleet.controllers[leader].kill();
        let (successor, _) = fleet.leader_after(lease.generation).await;
        assert_ne!(successor, leader, "another process leads");
        fleet.start_controller(leader);
        // Every Scope goes on before the next leader dies, so no frontier loses all its attempts to this test.
        fleet.until_all_progress(&scopes).await;
    }
    let ledger = writers.finish().await;
    fleet.catch_up(&scopes, LIMIT).await;
    fleet.assert_alive();
    assert_sound(&fleet, &ledger, &watcher.finish()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_frozen_past_its_lease_and_its_woken_worker_commit_nothing() {
    // TM-182, TM-184, TM-187, TM-188, TM-190, TM-193, TM-194, TM-272
    let mark = tempfile::tempdir().expect("a folder");
    let mark = mark.path().join("frozen");
    let mut fleet = Fleet::start(FleetSetup::new(1, 2).with_a_worker_frozen_after("project", &mark)).await;
    let scope = fleet.create_scopes(1).await.remove(0);
    capture_notes(&fleet, &scope).await;
    let (old, lease) = fleet.leader().await;
    fleet.apis[0].client().flush(&scope).await;
    until_exists(&mark).await;
    assert_eq!(fleet.controllers[old].process().freeze().len(), 1, "the leader has one worker");

    // The successor does the whole work of the frozen one.
    let (successor, _) = fleet.leader_after(lease.generation).await;
    assert_ne!(successor, old);
    fleet.catch_up(std::slice::from_ref(&scope), LIMIT).await;
    assert_eq!(tables::assert_caught_up(&fleet.tables, &scope).await, 3);
    let before = without_lease(fleet.tables.dump().await);

    // The worker has everything ready and publishes as soon as it runs again.
    let_workers_end(&fleet, old).await;
    let failure = last_failure(&fleet, old).expect("the woken worker failed");
    assert_eq!(failure.text("ending"), "superseded", "{}", failure.fields);
    fleet.controllers[old].process().thaw();
    let name = fleet.controllers[old].name.clone();
    fleet.event_of(&name, "the old leader steps down", |event| event.name == "stepped_down").await;
    fleet.event_of(&name, "the old leader is a candidate", |event| event.name == "candidate").await;
    let after = without_lease(fleet.tables.dump().await);
    assert_eq!(difference(&before, &after), Vec::<String>::new(), "nothing was written");
    fleet.until_ready().await;
    fleet.assert_alive();
}

/// The lease row changes with every renewal.
fn without_lease(mut dump: Dump) -> Dump {
    assert_eq!(dump.remove(LEASES).map(|rows| rows.len()), Some(1));
    dump
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_after_the_lease_has_expired_commits_nothing_although_nobody_took_over() {
    // TM-184, TM-194, TM-221, TM-272
    let mark = tempfile::tempdir().expect("a folder");
    let mark = mark.path().join("frozen");
    let mut fleet = Fleet::start(FleetSetup::new(1, 1).with_a_worker_frozen_after("project", &mark)).await;
    let watcher = Watcher::start(fleet.tables.clone());
    let scope = fleet.create_scopes(1).await.remove(0);
    capture_notes(&fleet, &scope).await;
    fleet.apis[0].client().flush(&scope).await;
    until_exists(&mark).await;
    let workers = fleet.controllers[0].process().freeze();
    assert_eq!(workers.len(), 1);
    let expired = async || watcher::sample(&fleet.tables).await.filter(|lease| !lease.is_valid());
    let lease = until("the lease expires", expired).await;

    // Holder and generation are still this term's: the time alone refuses the commit.
    let before = fleet.tables.dump().await;
    let_workers_end(&fleet, 0).await;
    let failure = last_failure(&fleet, 0).expect("the woken worker failed");
    assert_eq!(failure.text("ending"), "superseded", "{}", failure.fields);
    assert_eq!(difference(&before, &fleet.tables.dump().await), Vec::<String>::new(), "nothing was written");

    // The leader wakes too, begins another term and does the work in it.
    fleet.controllers[0].process().thaw();
    let (_, next) = fleet.leader_after(lease.generation).await;
    assert_eq!(next.holder, lease.holder, "one process is one holder");
    fleet.catch_up(std::slice::from_ref(&scope), LIMIT).await;
    assert_eq!(tables::assert_caught_up(&fleet.tables, &scope).await, 3);
    fleet.assert_alive();
    assert_eq!(watcher::faults(&watcher.finish(), &[]), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_asked_to_stop_hands_over_without_waiting_for_its_lease() {
    // TM-183, TM-188, TM-189, TM-190, TM-194
    // The lease outlasts the test, so only a lease that was given back can be taken.
    let setup = FleetSetup::new(1, 2)
        .with("RUNTIME_ARTIFACT_PROCESSING_LEASE_SECONDS", "3600")
        .with("RUNTIME_ARTIFACT_PROCESSING_LEASE_RENEWAL_SECONDS", "60");
    let mut fleet = Fleet::start(setup).await;
    let scopes = fleet.create_scopes(2).await;
    let writers = Writers::start(&fleet.clients(), &scopes, &PACE);
    fleet.until_all_progress(&scopes).await;
    for _ in 0..2 {
        let (leader, lease) = fleet.leader().await;
        let name = fleet.controllers[leader].name.clone();
        fleet.controllers[leader].stop().await;
        let (successor, _) = fleet.leader_after(lease.generation).await;
        assert_ne!(successor, leader);
        let released = last(&fleet, &name, "lease_released");
        let started = last(&fleet, &fleet.controllers[successor].name, "term_started");
        assert_eq!(released.number("supervisor_generation"), Some(lease.generation));
        assert!(released.at < started.at, "given back at {}, taken at {}", released.at, started.at);
        fleet.start_controller(leader);
        fleet.until_all_progress(&scopes).await;
    }
    let ledger = writers.finish().await;
    fleet.catch_up(&scopes, LIMIT).await;
    assert_sound(&fleet, &ledger, &[]).await;
}

fn last(fleet: &Fleet, name: &str, event: &str) -> Event {
    let found = fleet.events_of(name).into_iter().rfind(|found| found.name == event);
    found.unwrap_or_else(|| panic!("{name} has no {event}{}", fleet.log_tails()))
}
