//! A database that crashes, and networks to it that are cut or go silent, under a working fleet.

use std::time::Duration;

use powercontext_tests::events::Event;
use powercontext_tests::fleet::{Fleet, FleetSetup, LIMIT, Member, ready_status, until};
use powercontext_tests::proxy::Line;
use powercontext_tests::verdict::assert_sound;
use powercontext_tests::watcher::Watcher;
use powercontext_tests::writers::{Pace, Writers};
use serde_json::json;

const PACE: Pace = Pace { pause: Duration::from_millis(40), flush_every: 5 };

async fn until_not_ready(member: &Member) {
    let client = member.client();
    let unready = async || (ready_status(&client).await == Some(503)).then_some(());
    until(&format!("{} says that it is not ready", member.name), unready).await;
}

async fn assert_lives(member: &Member) {
    let answer = member.client().get("/health/live").await;
    assert_eq!(answer.status, 200, "{} lives", member.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_crashes_under_writers_loses_nothing_and_ends_no_process() {
    // TM-002, TM-004, TM-019, TM-174, TM-187, TM-189, TM-194
    let mut fleet = Fleet::start(FleetSetup::new(2, 2)).await;
    let watcher = Watcher::start(fleet.tables.clone());
    let scopes = fleet.create_scopes(3).await;
    let writers = Writers::start(&fleet.clients(), &scopes, &PACE);
    fleet.until_all_progress(&scopes).await;
    for _ in 0..2 {
        let (_, lease) = fleet.leader().await;
        fleet.engine.crash();
        for member in fleet.apis.iter().chain(&fleet.controllers) {
            until_not_ready(member).await;
            assert_lives(member).await;
        }
        let body = json!({"scope_id": scopes[0], "source_id": "refused", "content": "x"});
        let refused = fleet.apis[0].client().post("/v1/sources/content", &body).await;
        assert_eq!((refused.status, refused.code()), (503, "database_unavailable"), "{}", refused.body);
        for controller in &fleet.controllers {
            let away = |event: &Event| event.name == "database_unavailable";
            fleet.event_of(&controller.name, "it says that the database is away", away).await;
        }
        // Away for longer than the lease, so that the next leader begins a term and with it no wait.
        tokio::time::sleep(Duration::from_secs(3)).await;
        fleet.engine.restart().await;
        fleet.until_ready().await;
        fleet.leader_after(lease.generation).await;
        writers.until_acknowledged(20).await;
        fleet.until_all_progress(&scopes).await;
        fleet.assert_alive();
    }
    let ledger = writers.finish().await;
    assert!(ledger.repeated > 0, "the writers met the crash");
    fleet.catch_up(&scopes, LIMIT).await;
    fleet.assert_alive();
    assert_sound(&fleet, &ledger, &watcher.finish()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_and_a_server_cut_off_from_the_database_hold_up_nobody_else() {
    // TM-002, TM-004, TM-183, TM-187, TM-188, TM-194
    let mut fleet = Fleet::start(FleetSetup::new(2, 2)).await;
    let watcher = Watcher::start(fleet.tables.clone());
    let scopes = fleet.create_scopes(3).await;
    let writers = Writers::start(&fleet.clients(), &scopes, &PACE);
    fleet.until_all_progress(&scopes).await;
    for line in [Line::Cut, Line::Silent] {
        let (leader, lease) = fleet.leader().await;
        fleet.controllers[leader].network.set(line);
        fleet.apis[0].network.set(line);
        until_not_ready(&fleet.apis[0]).await;
        until_not_ready(&fleet.controllers[leader]).await;

        let (successor, _) = fleet.leader_after(lease.generation).await;
        assert_ne!(successor, leader);
        let name = fleet.controllers[leader].name.clone();
        let lost = |event: &Event| {
            event.name == "stepped_down" && event.number("supervisor_generation") == Some(lease.generation)
        };
        let left = fleet.event_of(&name, "the leader that is cut off steps down", lost).await;
        let name = &fleet.controllers[successor].name;
        let won = fleet.events_of(name).into_iter().rfind(|event| event.name == "term_started");
        let won = won.expect("the successor's term");
        assert!(left.at < won.at, "left at {}, followed at {}", left.at, won.at);
        // The other server and the new leader do the work of all.
        writers.until_acknowledged(20).await;
        fleet.until_all_progress(&scopes).await;
        for member in [&fleet.apis[0], &fleet.controllers[leader]] {
            assert_lives(member).await;
            assert_eq!(ready_status(&member.client()).await, Some(503), "{}", member.name);
        }

        fleet.controllers[leader].network.set(Line::Open);
        fleet.apis[0].network.set(Line::Open);
        fleet.until_ready().await;
        fleet.until_all_progress(&scopes).await;
        fleet.assert_alive();
    }
    let ledger = writers.finish().await;
    fleet.catch_up(&scopes, LIMIT).await;
    fleet.assert_alive();
    assert_sound(&fleet, &ledger, &watcher.finish()).await;
}
