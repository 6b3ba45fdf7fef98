//! The server killed at any time while it captures and processes.

use std::time::Duration;

use powercontext_tests::server::{Server, Setup};
use powercontext_tests::tables;
use serde_json::json;

/// A small, fixed generator of pauses, so that a failing run can be repeated.
struct Pauses(u64);

impl Pauses {
    fn next_millis(&mut self, most: u64) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((self.0 >> 33) % most)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_again_and_again_loses_and_doubles_nothing() {
    // TM-004, TM-174, TM-185, TM-186, TM-195, TM-234
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(folder.path()).with("RUNTIME_TOPIC_MEMORY_SOURCE_WINDOW_LIMIT", "3");
    let mut server = Server::start(setup).await;
    let scope = server.client().create_scope("crash").await;
    let mut pauses = Pauses(20_261_130);
    let mut acknowledged = Vec::new();
    let mut number = 0;
    for life in 0..8 {
        let client = server.client();
        let writer_scope = scope.clone();
        let writer = tokio::spawn(async move {
            let mut kept = Vec::new();
            for number in number.. {
                let source = format!("s{number}");
                let body = json!({"scope_id": writer_scope, "source_id": source,
                    "content": format!("Deployment note {number}: the rollout of release {number} waits for the database migration.")});
                match client.try_post("/v1/sources/content", &body).await {
                    Some(answer) if answer.status == 202 => {
                        kept.push((number, answer.body["position"].as_i64()))
                    }
                    _ => return (kept, number + 1),
                }
                if number % 4 == 3 {
                    let _ =
                        client.try_post("/v1/topic-memory/flush", &json!({"scope_id": writer_scope})).await;
                }
                if kept.len() >= 12 {
                    return (kept, number + 1);
                }
            }
            (kept, number)
        });
        tokio::time::sleep(pauses.next_millis(250) + Duration::from_millis(30)).await;
        let setup = server.kill();
        let (kept, next) = writer.await.expect("the writer ends");
        assert!(kept.iter().all(|(_, position)| position.is_some()), "life {life}");
        acknowledged.extend(kept);
        number = next;
        server = Server::start(setup).await;
    }
    let client = server.client();
    client.flush_until_idle(&scope, Duration::from_secs(60)).await;
    for (number, position) in acknowledged {
        let read = client.get(&format!("/v1/scopes/{scope}/sources/content/s{number}")).await;
        assert_eq!(read.status, 200, "Source s{number} was acknowledged");
        assert_eq!(read.body["position"].as_i64(), position);
    }
    let in_lineage = tables::assert_caught_up(&server.setup.database(), &scope).await;
    let sources = tables::number(&server.setup.database(), "SELECT count(*) FROM pc_sources").await;
    assert_eq!(in_lineage, sources, "every Source reached a Topic");
}
