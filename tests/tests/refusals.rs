//! What programs refuse to work on, end to end: roles a database does not have, schemas that are missing,
//! newer or compare texts otherwise, databases that are taken.

use std::path::Path;

use powercontext_core::ambient::SystemIds;
use powercontext_core::ids::{
    BindingName, FlushGeneration, HolderId, Position, ScopeId, SupervisorGeneration,
};
use powercontext_core::topic::BINDING;
use powercontext_core::work::{Fence, WorkAssignment, WorkKey, WorkMode};
use powercontext_store::{DatabaseUrl, StoreOptions, migrate};
use powercontext_tests::engine::{SharedDatabase, connect};
use powercontext_tests::fleet::until;
use powercontext_tests::process::Process;
use powercontext_tests::server::BUILTIN;
use powercontext_tests::tables::Tables;
use sqlx::{AssertSqlSafe, Executor as _};

/// How a program ended that was started on a database, and its last line on standard error.
struct Refusal {
    code: Option<i32>,
    line: String,
}

impl Refusal {
    /// Runs a program until it refuses; one that goes on working fails the test.
    async fn of(program: &str, arguments: &[&str], url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("refused.log");
        let environment = [
            ("POWERCONTEXT_SERVER_DATABASE_URL", url),
            ("POWERCONTEXT_SERVER_HTTP_PORT", "0"),
            ("POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL", BUILTIN),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut process = Process::start(program, arguments, &environment, &log);
        let status = until(&format!("{program} {arguments:?} refuses"), async || process.ended()).await;
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        Self { code: status.code(), line: text.lines().last().unwrap_or_default().to_owned() }
    }

    fn assert(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.line);
        for word in words {
            assert!(self.line.contains(word), "no `{word}` in: {}", self.line);
        }
    }
}

const API: (&str, &[&str]) = ("powercontext-api-server", &["--role", "api"]);
const ALL: (&str, &[&str]) = ("powercontext-api-server", &["--role", "all"]);
const CONTROLLER: (&str, &[&str]) = ("powercontext-controller", &["--launcher", "process"]);

fn file_url(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("fleet.sqlite3").display())
}

async fn migrated(url: &str) {
    let options = StoreOptions::new(DatabaseUrl::parse(url).expect("a URL"));
    migrate(&options, &SystemIds).await.expect("a schema");
}

/// Some worker's assignment.
fn assignment() -> String {
    let assignment = WorkAssignment {
        key: WorkKey {
            binding: BindingName::parse(BINDING).expect("a binding"),
            scope: ScopeId::generate(&SystemIds),
        },
        fence: Fence {
            holder: HolderId::parse("somebody").expect("a holder"),
            generation: SupervisorGeneration::new(1),
        },
        source_after: Position::new(0),
        wave_target: Position::new(1),
        claimed_flush_generation: FlushGeneration::new(1),
        mode: WorkMode::Explicit,
    };
    serde_json::to_string(&assignment).expect("an assignment")
}

#[tokio::test]
async fn a_file_has_no_separate_processes() {
    // TM-179, TM-185
    let folder = tempfile::tempdir().expect("a folder");
    let url = file_url(folder.path());
    for (program, arguments) in [API, CONTROLLER] {
        let refusal = Refusal::of(program, arguments, &url).await;
        refusal.assert(2, &["SQLite", "needs OceanBase"]);
    }
    assert!(!folder.path().join("fleet.sqlite3").exists(), "a refusal makes no file");
}

#[tokio::test]
async fn a_program_has_its_own_roles_only() {
    // TM-178, TM-250
    let Some(database) = SharedDatabase::new() else { return };
    for (program, role, own) in [
        ("powercontext-controller", "api", "background"),
        ("powercontext-api-server", "background", "all and api"),
    ] {
        let refusal = Refusal::of(program, &["--role", role], &database.url()).await;
        refusal.assert(2, &["artifact_processing_role", own]);
    }
}

#[tokio::test]
async fn a_schema_that_is_newer_is_refused_by_every_program() {
    let Some(database) = SharedDatabase::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (server, file) = (database.url(), file_url(folder.path()));
    migrated(&server).await;
    migrated(&file).await;
    let newer = "INSERT INTO pc_schema_migrations (number, name, checksum, applied_at) \
                 VALUES (900, 'from_the_future', 'x', '2030-01-01T00:00:00.000Z')";
    connect(&server).execute(newer).await.expect("a newer schema");
    let path = folder.path().join("fleet.sqlite3");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let pool = sqlx::SqlitePool::connect_with(options).await.expect("the file");
    pool.execute(newer).await.expect("a newer schema");
    pool.close().await;
    let before = (Tables::at(&server).dump().await, Tables::at(&file).dump().await);
    let assignment = assignment();
    let programs = [
        API,
        CONTROLLER,
        ALL,
        ("powercontext-api-server", &["migrate"]),
        ("powercontext-worker", &["--assignment", &assignment]),
    ];
    for (program, arguments) in programs {
        let refusal = Refusal::of(program, arguments, &server).await;
        assert!(matches!(refusal.code, Some(1 | 30 | 40)), "{program}: {:?}", refusal.code);
        assert!(refusal.line.contains("900"), "{program}: {}", refusal.line);
    }
    for (program, arguments) in [ALL, ("powercontext-api-server", &["migrate"])] {
        Refusal::of(program, arguments, &file).await.assert(1, &["900", "newer"]);
    }
    assert_eq!(
        (Tables::at(&server).dump().await, Tables::at(&file).dump().await),
        before,
        "nothing was written"
    );
    database.remove().await;
}

#[tokio::test]
async fn a_database_that_was_never_migrated_is_refused_by_everything_but_role_all() {
    let Some(database) = SharedDatabase::new() else { return };
    let url = database.url();
    let assignment = assignment();
    let programs = [API, CONTROLLER, ("powercontext-worker", &["--assignment", &assignment] as &[&str])];
    for exists in [false, true] {
        for (program, arguments) in programs {
            let refusal = Refusal::of(program, arguments, &url).await;
            assert!(matches!(refusal.code, Some(1 | 30 | 40)), "{program}: {:?}", refusal.code);
            assert!(refusal.line.contains("powercontext-api-server migrate"), "{program}: {}", refusal.line);
        }
        if !exists {
            database.create().await;
        }
    }
    let tables = Tables::at(&url)
        .rows("SELECT table_name FROM information_schema.tables WHERE table_schema = database()")
        .await;
    assert_eq!(tables, Vec::<Vec<String>>::new(), "nothing was made");
    database.remove().await;
}

#[tokio::test]
async fn a_column_that_compares_texts_otherwise_is_refused() {
    // TM-016: identities that differ in case only are different ones.
    let Some(database) = SharedDatabase::new() else { return };
    let url = database.url();
    migrated(&url).await;
    let alter = "ALTER TABLE pc_artifact_lineage_artifacts \
                 MODIFY based_on_artifact_id VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL";
    connect(&url).execute(AssertSqlSafe(alter)).await.expect("another collation");
    for (program, arguments) in [API, CONTROLLER, ALL, ("powercontext-api-server", &["migrate"])] {
        let refusal = Refusal::of(program, arguments, &url).await;
        refusal.assert(1, &["pc_artifact_lineage_artifacts.based_on_artifact_id", "utf8mb4_general_ci"]);
    }
    database.remove().await;
}
