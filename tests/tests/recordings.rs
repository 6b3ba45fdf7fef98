//! Recorded exchanges of the reference server, replayed against ours.

use powercontext_store::{DatabaseUrl, Store, StoreOptions};
use powercontext_tests::engine::SharedDatabase;
use powercontext_tests::replay::through_store::ThroughStore;
use powercontext_tests::replay::{recordings, replay};
use powercontext_tests::server::{Server, Setup};

async fn assert_clean(setup: Setup) {
    let server = Server::start(setup.without("INFERENCE_GENERATION_MODEL")).await;
    let url = DatabaseUrl::parse(&server.setup.database_url()).expect("a URL");
    let store = Store::open(&StoreOptions::new(url)).await.expect("a store");
    let publisher = ThroughStore::new(store).await;
    let report = replay(&server.base_url, &recordings(), &publisher).await;
    assert!(report.is_clean(), "{report}");
    assert!(report.compared > 200, "{report}");
}

#[tokio::test]
async fn the_recorded_exchanges_replay_without_a_difference() {
    // TM-014, TM-018, TM-131, TM-140, TM-142, TM-143, TM-147, TM-150, TM-230, TM-236, TM-237, TM-238
    let folder = tempfile::tempdir().expect("a folder");
    assert_clean(Setup::new(folder.path())).await;
}

#[tokio::test]
async fn the_recorded_exchanges_replay_without_a_difference_on_oceanbase() {
    // TM-014, TM-018, TM-131, TM-140, TM-142, TM-143, TM-147, TM-150, TM-230, TM-236, TM-237, TM-238
    let Some(database) = SharedDatabase::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    assert_clean(Setup::on(folder.path(), &database)).await;
    database.remove().await;
}
