//! Workers that should not have been started, as real processes on one database.

use powercontext_core::ids::HolderId;
use powercontext_core::work::{Ending, Fence};
use powercontext_store::leases;
use powercontext_tests::engine::SharedDatabase;
use powercontext_tests::scene::{Scene, new_term, outcome};
use powercontext_tests::server::Setup;
use powercontext_tests::tables::{self, Dump, Tables, difference};

const TEXTS: [&str; 3] = [
    "The nightly export of invoices failed because the export bucket policy had been tightened.",
    "Invoice export follow-up: the bucket policy of the invoice export now names the exporter role.",
    "Graph queries of the topology service are limited to depth six since the incident in May.",
];

/// Runs a test on a file and, when the run has one, on OceanBase.
async fn on_each_database(test: impl AsyncFn(Setup)) {
    let folder = tempfile::tempdir().expect("a folder");
    test(Setup::new(folder.path())).await;
    if let Some(database) = SharedDatabase::new() {
        test(Setup::on(folder.path(), &database)).await;
        database.remove().await;
    }
}

/// Tables without the full-text engine's own pages, which two equal states may lay out differently.
async fn product_tables(scene: &Scene) -> Dump {
    let mut dump = Tables::at(&scene.setup.database_url()).dump().await;
    dump.retain(|name, _| !name.starts_with("sqlite_"));
    dump
}

/// Of two workers on one Window exactly one publishes.
async fn race(setup: Setup) {
    let scene = Scene::new(setup, &TEXTS).await;
    let assignment = scene.assignment(&scene.fence);
    let workers = [scene.start_worker(&assignment), scene.start_worker(&assignment)];
    let mut endings = Vec::new();
    for worker in workers {
        let output = worker.wait_with_output().expect("the worker ends");
        let outcome = outcome(&output);
        assert_eq!(output.status.code(), Some(i32::from(outcome.ending.exit_code())));
        endings.push((outcome.ending, outcome.counts.created));
    }
    let done = endings.iter().filter(|(ending, created)| *ending == Ending::Done && *created > 0).count();
    assert_eq!(done, 1, "{endings:?}");
    let others = endings.iter().filter(|(ending, _)| *ending == Ending::Superseded).count();
    assert_eq!(others, 1, "{endings:?}");
    let tables = Tables::at(&scene.setup.database_url());
    assert_eq!(tables::assert_caught_up(&tables, scene.scope().as_str()).await, 3);
}

#[tokio::test]
async fn of_two_workers_on_one_window_exactly_one_publishes() {
    // TM-002, TM-004, TM-075, TM-158, TM-160, TM-272
    for _ in 0..6 {
        on_each_database(race).await;
    }
}

/// A worker under `fence` writes nothing at all.
async fn assert_writes_nothing(scene: &Scene, fence: &Fence) {
    let before = product_tables(scene).await;
    let output = scene.start_worker(&scene.assignment(fence)).wait_with_output().expect("the worker ends");
    assert_eq!(outcome(&output).ending, Ending::Superseded);
    assert_eq!(output.status.code(), Some(10));
    assert_eq!(difference(&before, &product_tables(scene).await), Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_of_an_older_generation_writes_nothing() {
    // TM-182, TM-184, TM-186, TM-194, TM-272
    on_each_database(async |setup| {
        let scene = Scene::new(setup, &TEXTS).await;
        // The same holder, so the generation alone tells the terms apart.
        new_term(&scene.store, scene.fence.holder.as_str()).await;
        assert_writes_nothing(&scene, &scene.fence).await;
    })
    .await;
}

#[tokio::test]
async fn a_worker_of_another_holder_with_the_same_generation_writes_nothing() {
    // TM-184, TM-186, TM-272
    on_each_database(async |setup| {
        let scene = Scene::new(setup, &TEXTS).await;
        let holder = HolderId::parse("stranger").expect("a holder");
        assert_writes_nothing(&scene, &Fence { holder, ..scene.fence.clone() }).await;
    })
    .await;
}

#[tokio::test]
async fn a_worker_whose_lease_has_expired_writes_nothing() {
    // TM-184, TM-272
    let Some(database) = SharedDatabase::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let scene = Scene::new(Setup::on(folder.path(), &database), &TEXTS).await;
    assert!(leases::release(&scene.store, &scene.fence).await.expect("an answer"), "it was valid");
    assert_writes_nothing(&scene, &scene.fence).await;
    database.remove().await;
}
