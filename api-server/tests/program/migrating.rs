//! `migrate` and `migrate --check` over both databases.

use powercontext_tests::engine::SharedDatabase;
use powercontext_tests::running::Running;

use crate::{program, run};

/// The state of an empty database, told and left as it is; then migrated, told again.
fn told_migrated_and_told_again(url: &str) {
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| run(home.path(), arguments, &[("DATABASE_URL", url)]);
    for _ in 0..2 {
        let check = run(&["migrate", "--check"]);
        assert_eq!(check.status, 3, "{check:?}");
        let line = check.stdout.strip_suffix('\n').unwrap();
        assert!(line.starts_with("the database schema is at 0 and this program needs "), "{line}");
        assert!(line.contains("; pending: 0001_sources_topics_and_processing"), "{line}");
    }
    let migrated = run(&["migrate"]);
    assert_eq!(migrated.status, 0, "{migrated:?}");
    assert!(migrated.stdout.starts_with("the database schema is now at "), "{migrated:?}");
    assert_eq!(migrated.stdout.lines().count(), 1, "{migrated:?}");
    let check = run(&["migrate", "--check"]);
    assert_eq!(check.status, 0, "{check:?}");
    assert!(check.stdout.starts_with("the database schema is current at "), "{check:?}");
    assert_eq!(check.stderr, "", "a check says nothing else");
    let again = run(&["migrate"]);
    assert_eq!(again.status, 0, "{again:?}");
    assert!(again.stdout.ends_with("; nothing was changed\n"), "{again:?}");
}

#[test]
fn a_check_of_a_file_tells_its_state_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("a.sqlite3").display());
    let check = run(folder.path(), &["migrate", "--check"], &[("DATABASE_URL", &url)]);
    assert_eq!(check.status, 3, "{check:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    told_migrated_and_told_again(&url);
}

#[tokio::test]
async fn a_check_needs_no_stopped_server() {
    let home = tempfile::tempdir().unwrap();
    let _server = Running::start(program(home.path(), &[], &[("HTTP_PORT", "0")]), home.path()).await;
    assert_eq!(run(home.path(), &["migrate", "--check"], &[]).status, 0);
    let refused = run(home.path(), &["migrate"], &[]);
    assert_eq!(refused.status, 1);
    assert!(refused.line().ends_with("is in use by another server; stop that one first"), "{refused:?}");
}

#[tokio::test]
async fn a_check_of_oceanbase_tells_its_state() {
    let Some(database) = SharedDatabase::created().await else { return };
    let url = database.url();
    let api = |settings: &[(&str, &str)]| {
        let home = tempfile::tempdir().unwrap();
        let settings = [settings, &[("DATABASE_URL", url.as_str())]].concat();
        run(home.path(), &["--role", "api"], &settings)
    };
    // Role `api` never migrates; it says what to do.
    let refused = api(&[]);
    assert_eq!(refused.status, 1);
    assert!(refused.line().ends_with("no schema; run `powercontext-api-server migrate`"), "{refused:?}");
    told_migrated_and_told_again(&url);
    // A run that died before its last writes has something left to do.
    database.execute("DELETE FROM pc_topic_memory_retrieval_shape").await;
    assert!(api(&[]).line().ends_with("was interrupted; run `powercontext-api-server migrate`"));
    let check = run(std::path::Path::new("/"), &["migrate", "--check"], &[("DATABASE_URL", &url)]);
    assert_eq!(check.status, 3, "{check:?}");
    assert!(check.stdout.ends_with("was interrupted; pending: the end of it\n"), "{check:?}");
    assert_eq!(run(std::path::Path::new("/"), &["migrate"], &[("DATABASE_URL", &url)]).status, 0);
    assert_eq!(run(std::path::Path::new("/"), &["migrate", "--check"], &[("DATABASE_URL", &url)]).status, 0);
    // A database of a newer program can neither be served nor migrated, and the check says so.
    database.execute("INSERT INTO pc_schema_migrations VALUES (9999, 'later', 'x', 'x')").await;
    for refused in
        [api(&[]), run(std::path::Path::new("/"), &["migrate", "--check"], &[("DATABASE_URL", &url)])]
    {
        assert_eq!((refused.status, refused.stdout.as_str()), (1, ""), "{refused:?}");
        assert!(refused.line().contains("is at 9999, newer than"), "{refused:?}");
    }
    database.execute("DELETE FROM pc_schema_migrations WHERE number = 9999").await;
    database.execute("ALTER TABLE pc_scopes MODIFY title VARCHAR(200) COLLATE utf8mb4_general_ci").await;
    assert!(api(&[]).line().contains("collation `utf8mb4_general_ci`"));
    database.remove().await;
}

#[test]
fn a_database_that_cannot_be_reached_or_found_is_one_line_and_its_status() {
    let home = tempfile::tempdir().unwrap();
    for (url, status, line) in [
        ("mysql://u:hunter2@127.0.0.1:1/x", 1, "no server answers there: Connection refused"),
        ("mysql://u:hunter2@127.0.0.1:y/x", 2, "the port in the database URL must be a number"),
        ("mysql://u:hunter2@127.0.0.1", 2, "the name of a database"),
    ] {
        for arguments in [&["migrate"][..], &["migrate", "--check"], &["--role", "api"]] {
            let refused = run(home.path(), arguments, &[("DATABASE_URL", url)]);
            assert_eq!((refused.status, refused.stdout.as_str()), (status, ""), "{refused:?}");
            assert!(refused.line().contains(line) && !refused.line().contains("hunter2"), "{refused:?}");
        }
    }
}

#[test]
fn a_check_of_a_database_that_the_server_does_not_have_asks_for_a_migration_and_makes_none() {
    let Some(database) = SharedDatabase::new() else { return };
    let home = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let check = run(home.path(), &["migrate", "--check"], &[("DATABASE_URL", &database.url())]);
        assert_eq!(check.status, 3, "{check:?}");
        assert!(check.stdout.starts_with("the server has no such database; "), "{check:?}");
    }
}

#[tokio::test]
async fn the_settings_of_a_controller_can_be_migrated_with() {
    // TM-254
    let Some(database) = SharedDatabase::new() else { return };
    let url = database.url();
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("RUNTIME_ARTIFACT_PROCESSING_ROLE", "background"),
        ("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "60"),
    ];
    let home = tempfile::tempdir().unwrap();
    for arguments in [&["migrate"][..], &["migrate", "--check"]] {
        let ended = run(home.path(), arguments, &settings);
        assert_eq!(ended.status, 0, "{ended:?}");
    }
    database.remove().await;
}
