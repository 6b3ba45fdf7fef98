//! Role `all`: migrates its database and processes Topics, alone on SQLite, elected on OceanBase.

use powercontext_tests::engine::SharedDatabase;
use powercontext_tests::running::Running;

use crate::program;

const MODEL: (&str, &str) = ("INFERENCE_GENERATION_MODEL", "builtin:extractive");
/// Any program will do where no worker is started.
const WORKER: (&str, &str) = ("RUNTIME_WORKER_PROGRAM", env!("CARGO_BIN_EXE_powercontext-api-server"));

async fn start(settings: &[(&str, &str)], folder: &std::path::Path) -> Running {
    let settings = [settings, &[("HTTP_PORT", "0"), MODEL, WORKER]].concat();
    Running::start(program(folder, &[], &settings), folder).await
}

#[tokio::test]
async fn on_sqlite_it_is_ready_and_tells_its_settings() {
    // TM-178, TM-229
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(&[("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "3600.5")], folder.path()).await;
    let ready = server
        .until("the term begins", async |server| {
            let (status, ready) = server.get("/health/ready").await;
            let began = ready["checks"]["artifact_processing_supervisor"] == "ready";
            assert_eq!(status, if began { 200 } else { 503 }, "not ready before: {ready}");
            began.then_some(ready)
        })
        .await;
    assert_eq!(ready["status"], "ready");
    assert_eq!(ready["checks"]["topic_memory_terminal_frontiers"], "0");
    assert_eq!(ready["checks"]["topic_memory_unanswered_scopes"], "0");
    assert_eq!(ready["checks"].get("supervisor_generation"), None);
    let log = server.log();
    let told = |setting: &str, value: &str| {
        let (setting, value) = (format!("\"setting\":\"{setting}\""), format!("\"value\":\"{value}\""));
        log.lines().any(|line| line.contains(&setting) && line.contains(&value))
    };
    assert!(told("runtime.topic_memory_schedule_seconds", "3600.5"), "{log}");
    assert!(told("runtime.artifact_processing_lease_seconds", "15"), "{log}");
    assert!(told("runtime.artifact_processing_role", "all"), "{log}");
    assert_eq!(server.terminate(), 0);
}

#[tokio::test]
async fn on_oceanbase_it_makes_and_migrates_its_database_and_one_of_several_leads() {
    // TM-179, TM-183
    let Some(database) = SharedDatabase::new() else { return };
    let url = database.url();
    let folder = tempfile::tempdir().unwrap();
    let mut first = start(&[("DATABASE_URL", &url)], folder.path()).await;
    let supervisor = "artifact_processing_supervisor";
    first.until("it leads", async |one| (one.check(supervisor).await == "leader").then_some(())).await;
    let mut second = start(&[("DATABASE_URL", &url)], folder.path()).await;
    second.until("it waits", async |one| (one.check(supervisor).await == "candidate").then_some(())).await;
    assert_eq!(second.get("/health/ready").await.1["status"], "ready");
    assert_eq!(second.get("/v1/scopes/default").await.0, 200);
    assert_eq!((first.terminate(), second.terminate()), (0, 0));
    database.remove().await;
}
