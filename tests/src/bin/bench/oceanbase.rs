//! The fleet on OceanBase's engine: publishing, flush to searchable, and a large backlog.

use std::time::Duration;

use powercontext_tests::engine;
use powercontext_tests::fleet::{Fleet, FleetSetup};

use crate::figures::{median, millis, now, row};
use crate::{backlog, note, publish};

const ROUNDS: usize = 15;

/// Measures on an engine of its own and prints.
pub async fn print() {
    // The usual periods, not the short ones of tests.
    let setup = FleetSetup::new(1, 1)
        .with("RUNTIME_TOPIC_MEMORY_SOURCE_WINDOW_LIMIT", "10")
        .with("RUNTIME_ARTIFACT_PROCESSING_MAX_WORKERS", "10")
        .with("RUNTIME_ARTIFACT_PROCESSING_TICK_SECONDS", "1")
        .with("RUNTIME_ARTIFACT_PROCESSING_LEASE_SECONDS", "15")
        .with("RUNTIME_ARTIFACT_PROCESSING_LEASE_RENEWAL_SECONDS", "5")
        .with("RUNTIME_ARTIFACT_PROCESSING_LEASE_MARGIN_SECONDS", "2")
        .with("RUNTIME_ARTIFACT_PROCESSING_CANDIDACY_SECONDS", "3")
        .with("DATABASE_REQUEST_TIMEOUT_SECONDS", "30");
    let fleet = Fleet::start(setup).await;
    let times = flushes(&fleet).await;
    let worst = times.iter().max().copied().unwrap_or_default();
    row("flush to searchable on OceanBase, api and background, p50", &millis(median(times)));
    row("  worst of 15", &millis(worst));
    publish::print(fleet.engine.port()).await;
    backlog::print(&engine::url(fleet.engine.port(), "pc_bench_backlog")).await;
}

/// One Window of 10 Sources each, flushed while nothing else runs.
async fn flushes(fleet: &Fleet) -> Vec<Duration> {
    let client = &fleet.clients()[0];
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let scope = client.create_scope(&format!("flush-{round}")).await;
        for number in 0..10 {
            client.capture(&scope, &format!("s{number}"), &note(number)).await;
        }
        // Flushes come at any moment of the leader's period.
        tokio::time::sleep(Duration::from_millis(137 * (round as u64 % 8))).await;
        let start = now();
        assert_eq!(client.flush(&scope).await, "accepted");
        while client.search(&scope, "deployment rollout").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        times.push(start.elapsed());
    }
    times
}
