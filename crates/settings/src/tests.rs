//! What the settings promise: precedence, one clear line for every mistake, no secret in sight.

mod inference;

use super::*;
use std::fs;

fn environment(pairs: &[(&str, &str)]) -> Inputs {
    let mut environment: Vec<(String, String)> =
        pairs.iter().map(|(name, value)| (format!("{}{name}", table::PREFIX), (*value).to_owned())).collect();
    environment.push(("HOME".to_owned(), "/home/someone".to_owned()));
    Inputs { environment, ..Inputs::default() }
}

fn refusal(inputs: &Inputs) -> String {
    let line = Settings::load(inputs).unwrap_err().to_string();
    assert!(!line.contains('\n'), "one line: {line}");
    line
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn the_defaults_are_the_documented_ones() {
    // TM-246, TM-247, TM-248, TM-249, TM-250, TM-251, TM-252
    let settings = Settings::load(&environment(&[])).unwrap();
    assert_eq!((settings.http.host.as_str(), settings.http.port), ("127.0.0.1", 8000));
    let runtime = &settings.runtime;
    assert_eq!(runtime.artifact_processing_role, Role::All);
    assert_eq!(runtime.artifact_processing_max_workers, 10);
    assert_eq!(runtime.artifact_processing_worker_timeout_seconds, 600);
    assert_eq!(runtime.topic_memory_source_window_limit, 10);
    assert_eq!(runtime.topic_memory_history_max_candidates, 20);
    assert!((runtime.topic_memory_history_rrf_threshold - 70.0).abs() < f64::EPSILON);
    assert_eq!(runtime.topic_memory_history_min_candidates, 5);
    let inference = &settings.inference;
    assert_eq!(inference.generation_model, None);
    assert_eq!(inference.generation_model_context_window_tokens, 125_000);
    assert_eq!((inference.generation_timeout_seconds, inference.generation_max_requests), (30, 2));
    assert_eq!(
        settings.database.url.reveal(),
        "sqlite:///home/someone/.local/share/powercontext-fleet/powercontext.sqlite3"
    );
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let (_folder, path) = file("[http]\nport = 1\nhost = \"file\"\nmax_body_bytes = 2048\n");
    let mut inputs = environment(&[("HTTP_PORT", "2"), ("HTTP_HOST", "environment")]);
    inputs.file = Some(path);
    inputs.flags = vec![("http-port".to_owned(), "3".to_owned())];
    let settings = Settings::load(&inputs).unwrap();
    assert_eq!(settings.http.port, 3);
    assert_eq!(settings.http.host, "environment");
    assert_eq!(settings.http.max_body_bytes, 2048);
    let origin = |name: &str| settings.effective().iter().find(|e| e.name == name).unwrap().origin;
    assert_eq!(
        ["http.port", "http.host", "http.max_body_bytes", "log.level", "inference.generation_model"]
            .map(origin),
        ["flag", "environment", "file", "default", "unset"]
    );
}

#[test]
fn the_file_may_be_named_by_the_environment_and_the_flag_wins() {
    let (_one, chosen) = file("[http]\nport = 1\n");
    let (_two, other) = file("[http]\nport = 2\n");
    let mut inputs = environment(&[("CONFIG_FILE", other.to_str().unwrap())]);
    assert_eq!(Settings::load(&inputs).unwrap().http.port, 2);
    inputs.file = Some(chosen);
    assert_eq!(Settings::load(&inputs).unwrap().http.port, 1);
}

#[test]
fn an_unknown_name_stops_the_start_and_is_named_with_its_place() {
    let line = refusal(&environment(&[("HTTP_PROT", "1")]));
    assert!(line.contains("unknown setting `POWERCONTEXT_SERVER_HTTP_PROT`"), "{line}");
    for (text, name) in
        [("[http]\nprot = 1", "`http.prot`"), ("[htp]\nport = 1", "`htp`"), ("port = 1", "`port`")]
    {
        let (_folder, path) = file(text);
        let line = refusal(&Inputs { file: Some(path.clone()), ..environment(&[]) });
        assert!(line.contains(name) && line.contains(path.to_str().unwrap()), "{line}");
    }
    let flags = vec![("http-prot".to_owned(), "1".to_owned())];
    assert!(refusal(&Inputs { flags, ..environment(&[]) }).contains("`http-prot` in the flag --http-prot"));
}

#[test]
fn values_outside_their_range_are_refused_by_name_and_source() {
    // B-2, B-3
    for (name, value) in [
        ("HTTP_PORT", "65536"),
        ("HTTP_PORT", "8000.0"),
        ("HTTP_PORT", ""),
        ("HTTP_HOST", " "),
        ("RUNTIME_TOPIC_MEMORY_SOURCE_WINDOW_LIMIT", "0"),
        ("RUNTIME_TOPIC_MEMORY_SOURCE_WINDOW_LIMIT", "101"),
        ("RUNTIME_TOPIC_MEMORY_HISTORY_MAX_CANDIDATES", "21"),
        ("RUNTIME_TOPIC_MEMORY_HISTORY_MIN_CANDIDATES", "0"),
        ("RUNTIME_TOPIC_MEMORY_HISTORY_RRF_THRESHOLD", "100.1"),
        ("RUNTIME_TOPIC_MEMORY_HISTORY_RRF_THRESHOLD", "NaN"),
        ("RUNTIME_ARTIFACT_PROCESSING_MAX_WORKERS", "0"),
        ("RUNTIME_ARTIFACT_PROCESSING_WORKER_TIMEOUT_SECONDS", "-1"),
        ("INFERENCE_GENERATION_STRUCTURED_OUTPUT", "xml"),
        ("DATABASE_URL", "/a/path"),
        ("LOG_LEVEL", "loud"),
    ] {
        let line = refusal(&environment(&[(name, value)]));
        assert!(line.contains(&format!("POWERCONTEXT_SERVER_{name}")), "{line}");
    }
}

#[test]
fn the_smallest_history_may_not_exceed_the_largest() {
    // B-3
    let line = refusal(&environment(&[("RUNTIME_TOPIC_MEMORY_HISTORY_MAX_CANDIDATES", "4")]));
    assert!(
        line.contains("history_max_candidates` from the environment") && line.contains("5 is more than 4")
    );
    let both = [
        ("RUNTIME_TOPIC_MEMORY_HISTORY_MAX_CANDIDATES", "4"),
        ("RUNTIME_TOPIC_MEMORY_HISTORY_MIN_CANDIDATES", "4"),
    ];
    assert!(Settings::load(&environment(&both)).is_ok());
}

#[test]
fn each_of_the_three_roles_can_be_asked_for_and_the_default_is_known() {
    // TM-178, TM-250
    assert_eq!(Settings::load(&environment(&[])).unwrap().chosen_role(), None);
    for (word, role) in [("all", Role::All), ("api", Role::Api), ("background", Role::Background)] {
        let inputs = environment(&[("RUNTIME_ARTIFACT_PROCESSING_ROLE", word)]);
        let settings = Settings::load(&inputs).unwrap();
        assert_eq!(settings.runtime.artifact_processing_role, role);
        assert_eq!((settings.chosen_role(), role.as_str()), (Some(role), word));
    }
    let line = refusal(&environment(&[("RUNTIME_ARTIFACT_PROCESSING_ROLE", "ALL")]));
    assert!(line.contains("one of all, api, background"), "{line}");
}

#[test]
fn sqlite_is_refused_for_every_role_but_all() {
    // TM-179
    let sqlite = Settings::load(&environment(&[])).unwrap();
    let server = Settings::load(&environment(&[("DATABASE_URL", "mysql://root@host:2881/fleet")])).unwrap();
    assert!(sqlite.clone().in_role(Role::All).is_ok());
    for role in [Role::Api, Role::Background] {
        let line = sqlite.clone().in_role(role).unwrap_err().to_string();
        assert!(line.contains("`database.url` from the default names SQLite"), "{line}");
        assert!(line.contains(&format!("role `{}` needs OceanBase", role.as_str())), "{line}");
        let settings = server.clone().in_role(role).unwrap();
        assert_eq!(settings.runtime.artifact_processing_role, role);
        let name = "runtime.artifact_processing_role";
        let shown = settings.effective().iter().find(|one| one.name == name).unwrap();
        assert_eq!(shown.value.as_deref(), Some(role.as_str()), "the log tells the role that took effect");
    }
}

#[test]
fn a_schedule_without_a_model_is_refused() {
    // TM-086
    let schedule = ("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "60");
    let line = Settings::load(&environment(&[schedule])).unwrap().check_schedule().unwrap_err().to_string();
    assert!(
        line.starts_with("setting `runtime.topic_memory_schedule_seconds` from the environment"),
        "{line}"
    );
    assert!(line.contains("POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL"), "{line}");
    let model = ("INFERENCE_GENERATION_MODEL", "builtin:extractive");
    for given in [&[schedule, model][..], &[model], &[]] {
        assert_eq!(Settings::load(&environment(given)).unwrap().check_schedule(), Ok(()));
    }
}

#[test]
fn a_file_value_of_the_wrong_type_is_refused() {
    for text in
        ["[http]\nport = \"8000\"", "[http]\nport = 8000.0", "[log]\nlevel = 1", "[http]\nhost = true"]
    {
        let (_folder, path) = file(text);
        assert!(refusal(&Inputs { file: Some(path), ..environment(&[]) }).contains("must be"), "{text}");
    }
    let (_folder, path) = file("[http\nport");
    assert!(refusal(&Inputs { file: Some(path), ..environment(&[]) }).contains("cannot be used"));
    let missing = Some(PathBuf::from("/does/not/exist.toml"));
    assert!(refusal(&Inputs { file: missing, ..environment(&[]) }).contains("/does/not/exist.toml"));
}

#[test]
fn secrets_and_passwords_are_never_shown() {
    // TM-228, TM-229
    let settings = Settings::load(&environment(&[
        ("DATABASE_URL", "mysql://root@tenant:s3/c?r@t@host:2881/db?password=s3/c?r@t"),
        ("INFERENCE_GENERATION_API_KEY", "sk-live-1"),
    ]))
    .unwrap();
    let shown = format!("{settings:?} {:?} {:?}", settings.database, settings.inference);
    assert!(!shown.contains("s3/c") && !shown.contains("sk-live"), "{shown}");
    assert!(shown.contains("mysql://root@tenant:[redacted]@"), "{shown}");
    let blank = refusal(&environment(&[("INFERENCE_GENERATION_API_KEY", " ")]));
    assert!(!blank.contains("not \""), "{blank}");
    let line = refusal(&environment(&[("INFERENCE_GENERATION_BASE_URL", "https://me:s3@host/v1")]));
    assert!(line.contains("BASE_URL") && !line.contains("s3"), "{line}");
}

#[test]
fn the_start_log_shows_every_setting_once() {
    // TM-229
    let settings = Settings::load(&environment(&[])).unwrap();
    let names: Vec<String> = settings.effective().iter().map(|e| e.name.clone()).collect();
    assert_eq!(names, SETTINGS.iter().map(table::Setting::name).collect::<Vec<_>>());
    let url = settings.effective().iter().find(|e| e.name == "database.url").unwrap();
    assert!(url.value.as_ref().unwrap().starts_with("sqlite:///home/someone/"));
}

#[test]
fn a_key_file_is_read_at_start_and_travels_as_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let inputs = environment(&[("INFERENCE_GENERATION_API_KEY_FILE", path.to_str().unwrap())]);
    assert!(refusal(&inputs).contains("cannot be read"));
    fs::write(&path, "\n").unwrap();
    assert!(refusal(&inputs).contains("is empty"));
    fs::write(&path, "sk-file-1\n").unwrap();
    let settings = Settings::load(&inputs).unwrap();
    assert_eq!(settings.inference.generation_api_key, Some(Secret::new("sk-file-1")));
    let passed = settings.worker_environment();
    assert!(
        passed.iter().any(|(name, value)| name.ends_with("KEY_FILE") && *value == path.to_string_lossy())
    );
    assert!(!passed.iter().any(|(_, value)| value.contains("sk-file")));
    let both = [
        ("INFERENCE_GENERATION_API_KEY_FILE", path.to_str().unwrap()),
        ("INFERENCE_GENERATION_API_KEY", "sk-2"),
    ];
    assert!(refusal(&environment(&both)).contains("keep one of them"));
}

#[test]
fn a_worker_reads_the_same_settings_from_its_environment() {
    // TM-254
    let settings = Settings::load(&environment(&[
        ("INFERENCE_GENERATION_MODEL", "builtin:extractive"),
        ("RUNTIME_TOPIC_MEMORY_SOURCE_WINDOW_LIMIT", "3"),
    ]))
    .unwrap();
    let inputs = Inputs { environment: settings.worker_environment(), ..Inputs::default() };
    let worker = Settings::load(&inputs).unwrap();
    assert_eq!(worker.database.url, settings.database.url);
    assert_eq!(worker.inference, settings.inference);
    assert_eq!(worker.runtime.topic_memory_source_window_limit, 3);
}

#[test]
fn without_any_home_the_database_must_be_named() {
    assert!(refusal(&Inputs::default()).contains("`database.url`"));
    let mut inputs = environment(&[]);
    inputs.environment.push(("XDG_DATA_HOME".to_owned(), "/data".to_owned()));
    let database = Settings::load(&inputs).unwrap().database;
    assert_eq!(database.default_folder, Some(PathBuf::from("/data/powercontext-fleet")));
}

#[test]
fn the_help_lists_every_setting_with_its_names_and_default() {
    let help = settings_help();
    for setting in SETTINGS {
        assert!(help.contains(&setting.variable()) && help.contains(setting.help), "{}", setting.name());
        if let Some(flag) = setting.flag() {
            assert!(help.contains(&format!("--{flag} ")), "{flag}");
        }
        if let Some(default) = setting.default {
            assert!(help.contains(&format!("default: {default};")), "{}", setting.name());
        }
    }
    assert!(help.contains(table::CONFIG_FILE_VARIABLE));
}

#[test]
fn flags_are_parsed_with_the_short_form_of_the_role() {
    let parse = |arguments: &[&str]| {
        let mut inputs = environment(&[]);
        let matches = with_flags(clap::Command::new("p")).try_get_matches_from(arguments).unwrap();
        take_flags(&matches, &mut inputs).map(|()| inputs)
    };
    let inputs = parse(&["p", "--role", "all", "--http-port=0"]).unwrap();
    assert_eq!(Settings::load(&inputs).unwrap().http.port, 0);
    let long_form = ("runtime-artifact-processing-role".to_owned(), "all".to_owned());
    assert!(inputs.flags.contains(&long_form));
    assert!(parse(&["p", "--role", "all", "--runtime-artifact-processing-role", "all"]).is_err());
    let unknown = with_flags(clap::Command::new("p")).try_get_matches_from(["p", "--http-prot", "1"]);
    let line = command_line_error(&unknown.unwrap_err()).to_string();
    assert!(line.contains("--http-prot") && !line.contains('\n'), "{line}");
    assert!(line.contains("did you mean --http-port?") && line.ends_with("see --help"), "{line}");
}

#[test]
fn one_model_serves_every_stage() {
    // TM-253
    let named = |part: &str| {
        let names = table::SETTINGS.iter().map(table::Setting::name);
        names.filter(|name| name.contains(part)).collect::<Vec<_>>()
    };
    assert_eq!(
        named("generation_model"),
        [
            "inference.generation_model",
            "inference.generation_model_settings",
            "inference.generation_model_context_window_tokens",
        ]
    );
    for stage in ["probe", "global", "planner", "evolver", "reconcil"] {
        assert!(named(stage).is_empty(), "{stage}");
    }
}

#[test]
fn the_debug_text_of_the_inputs_shows_names_and_no_value() {
    let flags = vec![("inference-generation-api-key".to_owned(), "sk-flag".to_owned())];
    let inputs = Inputs { flags, ..environment(&[("INFERENCE_GENERATION_API_KEY", "sk-environment")]) };
    let text = format!("{inputs:?}");
    assert!(text.contains("inference-generation-api-key") && text.contains("GENERATION_API_KEY"), "{text}");
    assert!(!text.contains("sk-"), "{text}");
}

#[test]
fn automatic_processing_is_off_unless_a_period_above_zero_is_set() {
    // TM-245
    let with = |value| environment(&[("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", value)]);
    let schedule = |inputs: &Inputs| Settings::load(inputs).unwrap().runtime.topic_memory_schedule;
    assert_eq!(schedule(&environment(&[])), None);
    for (value, milliseconds) in [("60", 60_000), ("0.5", 500), ("1e-9", 1), ("31536000", 31_536_000_000)] {
        assert_eq!(schedule(&with(value)), Some(Duration::from_millis(milliseconds)), "{value}");
    }
    for value in ["0", "-1", "-0.5", "0.0", "NaN", "inf", "31536001", "soon", ""] {
        let line = refusal(&with(value));
        assert!(line.contains("SCHEDULE_SECONDS must be a number of seconds greater than 0"), "{line}");
    }
    for (value, milliseconds) in [("60", 60_000), ("0.5", 500)] {
        let (_folder, path) = file(&format!("[runtime]\ntopic_memory_schedule_seconds = {value}\n"));
        let inputs = Inputs { file: Some(path), ..environment(&[]) };
        assert_eq!(schedule(&inputs), Some(Duration::from_millis(milliseconds)));
    }
}

#[test]
fn the_lease_and_the_tick_have_the_documented_defaults() {
    // B-24
    let runtime = Settings::load(&environment(&[])).unwrap().runtime;
    let seconds = Duration::from_secs;
    assert_eq!(
        runtime.artifact_processing_lease,
        Lease { duration: seconds(15), renewal: seconds(5), margin: seconds(2), candidacy: seconds(3) }
    );
    assert_eq!(runtime.artifact_processing_tick, seconds(1));
    assert_eq!(runtime.artifact_processing_page_size, 256);
    for (name, value) in [
        ("LEASE_SECONDS", "0"),
        ("LEASE_RENEWAL_SECONDS", "3601"),
        ("CANDIDACY_SECONDS", ""),
        ("PAGE_SIZE", "15"),
    ] {
        let name = format!("RUNTIME_ARTIFACT_PROCESSING_{name}");
        assert!(refusal(&environment(&[(&name, value)])).contains(&name));
    }
}

#[test]
fn a_password_file_completes_the_database_url_and_travels_as_its_path() {
    // TM-228, TM-229
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    let with =
        |url: &str| environment(&[("DATABASE_URL", url), ("DATABASE_PASSWORD_FILE", path.to_str().unwrap())]);
    let inputs = with("mysql://root@tenant@host:2881/fleet");
    assert!(
        refusal(&inputs).contains("`database.password_file`") && refusal(&inputs).contains("cannot be read")
    );
    fs::write(&path, "pw/1@x\n").unwrap();
    let settings = Settings::load(&inputs).unwrap();
    let complete = "mysql://root@tenant:%70%77%2F%31%40%78@host:2881/fleet";
    assert_eq!(settings.database.url.reveal(), complete);
    let passed = settings.worker_environment();
    let shown = format!("{settings:?} {:?} {passed:?}", settings.database);
    assert!(!shown.contains("pw/1") && !shown.contains("%70"), "{shown}");
    let worker = Inputs { environment: passed, ..Inputs::default() };
    assert_eq!(Settings::load(&worker).unwrap().database.url, settings.database.url);
    for (url, problem) in [
        ("mysql://root:pw2@host/fleet", "keep one of them"),
        ("sqlite:///a/b", "begins with mysql://"),
        ("mysql://host/fleet", "with a user"),
    ] {
        let line = refusal(&with(url));
        assert!(line.contains("password_file") && line.contains(problem) && !line.contains("pw2"), "{line}");
    }
}

#[test]
fn a_secret_file_holds_one_line() {
    // TM-228
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let file = path.to_str().unwrap();
    let password = environment(&[("DATABASE_URL", "mysql://u@h/x"), ("DATABASE_PASSWORD_FILE", file)]);
    let key = environment(&[("INFERENCE_GENERATION_API_KEY_FILE", file)]);
    for text in ["pw", "pw\n", " pw\r\n\n"] {
        fs::write(&path, text).unwrap();
        assert_eq!(Settings::load(&password).unwrap().database.url.reveal(), "mysql://u:%70%77@h/x");
        Settings::load(&key).unwrap();
    }
    for text in ["pw\nother", "pw\r\n\nother\n", "pw\tother", "pw\0"] {
        fs::write(&path, text).unwrap();
        for inputs in [&password, &key] {
            let line = refusal(inputs);
            assert!(line.contains("_file`") && line.contains("must hold one line"), "{line}");
            assert!(!line.contains("pw") && !line.contains("other"), "{line}");
        }
    }
}

#[test]
fn a_key_of_a_higher_layer_replaces_the_key_file_of_a_lower_one() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    fs::write(&key_file, "sk-file").unwrap();
    let (_folder, path) =
        file(&format!("[inference]\ngeneration_api_key_file = \"{}\"\n", key_file.display()));
    let inputs = Inputs { file: Some(path), ..environment(&[("INFERENCE_GENERATION_API_KEY", "sk-higher")]) };
    let settings = Settings::load(&inputs).unwrap();
    assert_eq!(settings.inference.generation_api_key, Some(Secret::new("sk-higher")));
    let worker = Inputs { environment: settings.worker_environment(), ..Inputs::default() };
    assert_eq!(Settings::load(&worker).unwrap().inference, settings.inference);

    let (_folder, path) = file("[inference]\ngeneration_api_key = \"sk-lower\"\n");
    let flags = vec![("inference-generation-api-key-file".to_owned(), key_file.display().to_string())];
    let settings = Settings::load(&Inputs { file: Some(path), flags, ..environment(&[]) }).unwrap();
    assert_eq!(settings.inference.generation_api_key, Some(Secret::new("sk-file")));
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_line_and_key() {
    let (_folder, path) = file("[http]\nport = 1\n[inference]\ngeneration_api_key = sk-1\n");
    let line = refusal(&Inputs { file: Some(path), ..environment(&[]) });
    assert!(line.contains("line 4, key `generation_api_key`:") && !line.contains("sk-1"), "{line}");
    let (_folder, path) = file("http = 5\n");
    let line = refusal(&Inputs { file: Some(path), ..environment(&[]) });
    assert!(line.contains("`http`") && line.contains("must be a table, as in [http]"), "{line}");
}

#[test]
fn a_late_refusal_names_the_place_of_the_value() {
    let settings = Settings::load(&environment(&[("INFERENCE_GENERATION_BASE_URL", "ftp://host/")])).unwrap();
    let line = settings.refuse("inference", "generation_base_url", "is not usable".to_owned()).to_string();
    assert!(
        line.contains("`inference.generation_base_url` from the environment variable POWERCONTEXT_SERVER_")
    );
}
