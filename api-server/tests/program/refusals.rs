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
