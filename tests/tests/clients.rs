//! Clients written for the reference contract against our server.

use std::path::{Path, PathBuf};
use std::process::Command;

use powercontext_tests::engine::SharedDatabase;
use powercontext_tests::server::{Server, Setup};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

async fn assert_main_job(setup: Setup) {
    let python = Command::new("bash").arg(root().join("scripts/python-env.sh")).output().expect("bash runs");
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let interpreter = String::from_utf8_lossy(&python.stdout).lines().last().unwrap_or_default().to_owned();
    let server = Server::start(setup).await;
    let base_url = server.base_url.clone();
    let run = tokio::task::spawn_blocking(move || {
        Command::new(interpreter).arg(root().join("tests/python/official_client.py")).arg(base_url).output()
    })
    .await
    .expect("the client ends")
    .expect("python runs");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("6 passed, 0 failed"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_python_client_does_the_main_job() {
    // TM-230, TM-231, TM-237, TM-238
    let folder = tempfile::tempdir().expect("a folder");
    assert_main_job(Setup::new(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_python_client_does_the_main_job_on_oceanbase() {
    // TM-179, TM-230, TM-231, TM-237, TM-238
    let Some(database) = SharedDatabase::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    assert_main_job(Setup::on(folder.path(), &database)).await;
    database.remove().await;
}
