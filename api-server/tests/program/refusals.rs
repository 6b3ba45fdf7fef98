//! Settings that this program cannot work with end it with status 2 and one line, before it has
//! opened or made anything.

use crate::run;

/// One line after the program's name, and an untouched home.
fn refused(arguments: &[&str], settings: &[(&str, &str)]) -> String {
    let home = tempfile::tempdir().unwrap();
    let ended = run(home.path(), arguments, settings);
    assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{ended:?}");
    let line = ended.stderr.strip_prefix("powercontext-api-server: ").unwrap().trim_end().to_owned();
    assert!(!line.contains('\n'), "{line}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing was made");
    line
}

#[test]
fn role_api_over_sqlite_is_refused() {
    // TM-179
    for arguments in [&["--role", "api"][..], &["migrate", "--role", "api"]] {
        let line = refused(arguments, &[]);
        assert!(line.starts_with("setting `database.url` from the default names SQLite"), "{line}");
        assert!(line.contains("role `api` needs OceanBase"), "{line}");
    }
}

#[test]
fn role_background_belongs_to_another_program() {
    // TM-178
    for url in ["sqlite:///a/b", "mysql://root@127.0.0.1:1/x"] {
        let settings = [("RUNTIME_ARTIFACT_PROCESSING_ROLE", "background"), ("DATABASE_URL", url)];
        let line = refused(&[], &settings);
        assert!(
            line.starts_with("setting `runtime.artifact_processing_role` from the environment"),
            "{line}"
        );
        assert!(line.contains("powercontext-controller"), "{line}");
    }
}

#[test]
fn a_role_or_a_schedule_that_cannot_be_is_refused() {
    // TM-245, TM-250
    assert!(refused(&["--role", "leader"], &[]).contains("must be one of all, api, background"));
    let schedule = [("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "0")];
    assert!(refused(&[], &schedule).contains("must be a number of seconds greater than 0"));
}

#[test]
fn a_schedule_without_a_model_is_refused_in_every_role() {
    // TM-086
    let schedule = ("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "60");
    for arguments in [&["--role", "all"][..], &["--role", "api"]] {
        // Nobody listens there, so a program that opened it first would end otherwise.
        let line = refused(arguments, &[schedule, ("DATABASE_URL", "mysql://root@127.0.0.1:1/x")]);
        let first = "setting `runtime.topic_memory_schedule_seconds` from the environment";
        assert!(line.starts_with(first) && line.contains("inference.generation_model"), "{line}");
    }
    assert!(refused(&[], &[schedule]).contains("topic_memory_schedule_seconds"));
}

#[test]
fn a_schedule_with_a_model_that_is_not_supported_is_refused() {
    // TM-086
    let schedule = ("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "60");
    let line = refused(&[], &[schedule, ("INFERENCE_GENERATION_MODEL", "gemini:m")]);
    assert!(line.contains("`inference.generation_model`") && line.contains("is not supported"), "{line}");
}

#[test]
fn times_of_the_lease_that_do_not_fit_together_are_refused_for_oceanbase_alone() {
    const WORKER: (&str, &str) = ("RUNTIME_WORKER_PROGRAM", env!("CARGO_BIN_EXE_powercontext-api-server"));
    const MODEL: (&str, &str) = ("INFERENCE_GENERATION_MODEL", "builtin:extractive");
    for (key, value, problem) in [
        ("lease_renewal_seconds", "6.5", "twice the renewal period"),
        ("candidacy_seconds", "15", "candidates must try more often"),
        ("tick_seconds", "5.1", "the tick must not be longer"),
    ] {
        let name = format!("RUNTIME_ARTIFACT_PROCESSING_{}", key.to_uppercase());
        // Nobody listens there, so a program that opened it first would end otherwise.
        let given = |url| [("DATABASE_URL", url), WORKER, MODEL, (name.as_str(), value)];
        let home = tempfile::tempdir().unwrap();
        let ended = run(home.path(), &[], &given("mysql://root@127.0.0.1:1/x"));
        assert_eq!(ended.status, 2, "{ended:?}");
        let setting = format!("setting `runtime.artifact_processing_{key}` from the environment");
        assert!(ended.line().starts_with(&setting) && ended.line().contains(problem), "{ended:?}");
        // A folder that does not exist ends a server that got as far as its file.
        let ended = run(home.path(), &[], &given("sqlite:///nowhere/x"));
        assert!(ended.line().contains("the folder /nowhere"), "{ended:?}");
    }
}
