//! The worker killed after each of its steps, and the server right behind it.

use std::time::Duration;

use powercontext_tests::server::{Server, Setup, program};
use powercontext_tests::tables;

const STEPS: [&str; 10] = [
    "start",
    "attempt",
    "select",
    "evidence",
    "probe",
    "history",
    "global",
    "reconcile",
    "project",
    "publish",
];

#[tokio::test]
async fn a_worker_killed_after_any_step_leaves_work_that_a_restart_finishes_once() {
    // TM-004, TM-006, TM-050, TM-064, TM-076, TM-158, TM-174, TM-195, TM-221, TM-274
    for step in STEPS {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("stopped");
        let setup = Setup::new(folder.path())
            .with("RUNTIME_WORKER_PROGRAM", program("stopping-worker").display().to_string())
            .with_variable("STOPPING_WORKER_AFTER", step)
            .with_variable("STOPPING_WORKER_MARK", mark.display().to_string());
        let server = Server::start(setup).await;
        let client = server.client();
        let scope = client.create_scope(step).await;
        let texts = [
            "Backups of the ledger database run nightly and are restored every Monday as a rehearsal.",
            "The restore rehearsal of the ledger database backups took forty minutes this Monday.",
            "Feature flags of the search page are reviewed every quarter and stale flags are deleted.",
            "备份演练发现归档日志缺失,恢复点目标从五分钟调整为十五分钟。",
        ];
        for (number, text) in texts.into_iter().enumerate() {
            client.capture(&scope, &format!("s{number}"), text).await;
        }
        client.flush(&scope).await;
        let mut waited = 0;
        while !mark.exists() {
            assert!(waited < 200, "the worker never reached `{step}`: {}", server.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
            waited += 1;
        }
        let server = Server::start(server.kill()).await;
        server.client().flush_until_idle(&scope, Duration::from_secs(30)).await;
        let in_lineage = tables::assert_caught_up(&server.setup.database(), &scope).await;
        assert_eq!(in_lineage, 4, "stopped after `{step}`");
        assert!(server.stop().success());
    }
}
