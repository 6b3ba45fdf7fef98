//! Capture under concurrent load.

use std::collections::BTreeSet;
use std::time::Duration;

use powercontext_tests::server::{Server, Setup};
use powercontext_tests::tables;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_on_one_scope_get_contiguous_positions_and_lose_nothing() {
    // TM-019, TM-020, TM-164
    const WRITERS: usize = 8;
    const EACH: usize = 50;
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(Setup::new(folder.path())).await;
    let scope = server.client().create_scope("load").await;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (client, scope) = (server.client(), scope.clone());
        writers.push(tokio::spawn(async move {
            let mut positions = Vec::new();
            for number in 0..EACH {
                let source = format!("w{writer}-{number}");
                positions.push(client.capture(&scope, &source, &format!("text {number} of {writer}")).await);
            }
            positions
        }));
    }
    let mut all = BTreeSet::new();
    for writer in writers {
        let positions = writer.await.expect("the writer ends");
        assert!(positions.is_sorted(), "one writer's captures are ordered");
        all.extend(positions);
    }
    let expected: BTreeSet<i64> = (1..=i64::try_from(WRITERS * EACH).expect("small")).collect();
    assert_eq!(all, expected);
    server.client().flush_until_idle(&scope, Duration::from_secs(60)).await;
    tables::assert_caught_up(&server.setup.database(), &scope).await;
}
