//! A signal that arrives while the program still waits for its database.

use powercontext_tests::running::end_while_waiting;

use crate::program;

const MODEL: (&str, &str) = ("INFERENCE_GENERATION_MODEL", "builtin:extractive");
/// Any program will do where no worker is started.
const WORKER: (&str, &str) = ("RUNTIME_WORKER_PROGRAM", env!("CARGO_BIN_EXE_powercontext-api-server"));

#[tokio::test]
async fn a_start_that_waits_for_a_silent_database_ends_with_its_first_signal() {
    for role in ["api", "all"] {
        let home = tempfile::tempdir().unwrap();
        end_while_waiting(|url| {
            program(
                home.path(),
                &["--role", role],
                &[("DATABASE_URL", url), MODEL, WORKER, ("HTTP_PORT", "0")],
            )
        })
        .await;
    }
}
