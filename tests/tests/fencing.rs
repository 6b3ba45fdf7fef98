//! Workers that should not have been started, as real processes on one database.

use std::path::Path;

use powercontext_core::work::Ending;
use powercontext_tests::scene::{Scene, new_term, outcome};
use powercontext_tests::tables;

const TEXTS: [&str; 3] = [
    "The nightly export of invoices failed because the export bucket policy had been tightened.",
    "Invoice export follow-up: the bucket policy of the invoice export now names the exporter role.",
    "Graph queries of the topology service are limited to depth six since the incident in May.",
];

/// Tables without the full-text engine's own pages, which two equal states may lay out differently.
async fn product_tables(path: &Path) -> Vec<(String, Vec<String>)> {
    let mut tables: Vec<_> = tables::dump(path).await.into_iter().collect();
    tables.retain(|(name, _)| !name.starts_with("sqlite_"));
    tables
}

#[tokio::test]
async fn of_two_workers_on_one_window_exactly_one_publishes() {
    // TM-002, TM-004, TM-075, TM-158, TM-160, TM-272
    for round in 0..6 {
        let folder = tempfile::tempdir().expect("a folder");
        let scene = Scene::new(folder.path(), &TEXTS).await;
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
        assert_eq!(done, 1, "round {round}: {endings:?}");
        let others = endings.iter().filter(|(ending, _)| *ending == Ending::Superseded).count();
        assert_eq!(others, 1, "round {round}: {endings:?}");
        let path = scene.setup.database();
        assert_eq!(tables::assert_caught_up(&path, scene.scope().as_str()).await, 3);
    }
}

#[tokio::test]
async fn a_worker_of_an_older_generation_writes_nothing() {
    // TM-182, TM-186, TM-194, TM-272
    let folder = tempfile::tempdir().expect("a folder");
    let scene = Scene::new(folder.path(), &TEXTS).await;
    new_term(&scene.store, "second").await;
    let path = scene.setup.database();
    let before = product_tables(&path).await;
    let worker = scene.start_worker(&scene.assignment(&scene.fence));
    let output = worker.wait_with_output().expect("the worker ends");
    assert_eq!(outcome(&output).ending, Ending::Superseded);
    assert_eq!(output.status.code(), Some(10));
    assert_eq!(product_tables(&path).await, before);
}

#[tokio::test]
async fn a_worker_of_another_holder_with_the_same_generation_writes_nothing() {
    // TM-186, TM-272
    let folder = tempfile::tempdir().expect("a folder");
    let scene = Scene::new(folder.path(), &TEXTS).await;
    let mut stranger = scene.fence.clone();
    stranger.holder = powercontext_core::ids::HolderId::parse("stranger").expect("a holder");
    let path = scene.setup.database();
    let before = product_tables(&path).await;
    let worker = scene.start_worker(&scene.assignment(&stranger));
    assert_eq!(worker.wait_with_output().expect("the worker ends").status.code(), Some(10));
    assert_eq!(product_tables(&path).await, before);
}
