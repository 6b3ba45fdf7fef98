//! The one table of settings: names, kinds, ranges, defaults and help.
//!
//! Flags, environment names, file keys, `--help` and the start log are all derived from it, so a
//! setting exists everywhere or nowhere. Reading the layers is left to `load`, the typed result to
//! `values`.

/// What every environment name of a setting begins with.
pub const PREFIX: &str = "POWERCONTEXT_SERVER_";
/// Names the settings file when `--config` does not.
pub const CONFIG_FILE_VARIABLE: &str = "POWERCONTEXT_SERVER_CONFIG_FILE";

/// What a value must look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A non-blank text.
    Text,
    /// A path, taken as it is.
    Path,
    /// A URL such as this one; a password inside is never shown.
    Url(&'static str),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A JSON object; in the file a table as well.
    Object,
    /// A whole number inside the range, both ends included.
    Integer(i64, i64),
    /// A number inside the range, both ends included.
    Decimal(f64, f64),
    /// A number of seconds greater than 0, at most this many; less than a millisecond counts as one.
    Seconds(u32),
}

impl Kind {
    /// The rule in words, as it stands in errors and in the help.
    #[must_use]
    pub fn rule(self) -> String {
        match self {
            Self::Text => "a non-blank text".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Url(example) => format!("a URL such as {example}"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Object => "a JSON object".to_owned(),
            Self::Integer(least, most) => format!("a whole number from {least} to {most}"),
            Self::Decimal(least, most) => format!("a number from {least} to {most}"),
            Self::Seconds(most) => format!("a number of seconds greater than 0, at most {most}"),
        }
    }
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The part of the product it belongs to; a table in the file.
    pub section: &'static str,
    /// Its name inside the section.
    pub key: &'static str,
    /// What a value must look like.
    pub kind: Kind,
    /// The default as text; `None` when unset has a meaning of its own.
    pub default: Option<&'static str>,
    /// Never shown anywhere, and not accepted on the command line, which other users can read.
    pub secret: bool,
    /// Whether a worker process needs it too.
    pub worker: bool,
    /// What it does, in one line.
    pub help: &'static str,
}

impl Setting {
    /// The dotted name, as in `http.port`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// The environment name, as in `POWERCONTEXT_SERVER_HTTP_PORT` (B-23).
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}_{}", self.section, self.key).to_ascii_uppercase()
    }

    /// The flag without its dashes, as in `http-port`; `None` for a secret.
    #[must_use]
    pub fn flag(&self) -> Option<String> {
        (!self.secret).then(|| format!("{}-{}", self.section, self.key).replace('_', "-"))
    }
}

/// The short form of `--runtime-artifact-processing-role`.
pub const ROLE_FLAG: &str = "role";
/// The section and key that [`ROLE_FLAG`] sets.
pub const ROLE: (&str, &str) = ("runtime", "artifact_processing_role");

const fn public(
    (section, key): (&'static str, &'static str),
    kind: Kind,
    default: Option<&'static str>,
    help: &'static str,
) -> Setting {
    Setting { section, key, kind, default, secret: false, worker: false, help }
}

const fn shared(
    (section, key): (&'static str, &'static str),
    kind: Kind,
    default: Option<&'static str>,
    help: &'static str,
) -> Setting {
    Setting { section, key, kind, default, secret: false, worker: true, help }
}

const fn hidden((section, key): (&'static str, &'static str), kind: Kind, help: &'static str) -> Setting {
    Setting { section, key, kind, default: None, secret: true, worker: true, help }
}

/// Every setting there is, grouped by section (TM-246 to TM-252).
pub const SETTINGS: &[Setting] = &[
    public(("http", "host"), Kind::Text, Some("127.0.0.1"), "Address or host name to listen on."),
    public(("http", "port"), Kind::Integer(0, 65_535), Some("8000"), "TCP port; 0 takes any free one."),
    public(
        ("http", "max_body_bytes"),
        Kind::Integer(1_024, 1_073_741_824),
        Some("8388608"),
        "Largest request body; a larger one is answered with 413.",
    ),
    public(
        ("http", "max_concurrent_requests"),
        Kind::Integer(1, 65_536),
        Some("128"),
        "Requests worked on at once; further ones are answered with 503. Health checks do not count.",
    ),
    public(
        ("http", "drain_seconds"),
        Kind::Integer(0, 300),
        Some("0"),
        "On SIGTERM: how long to go on serving while readiness already says no, for load balancers.",
    ),
    public(
        ("http", "shutdown_timeout_seconds"),
        Kind::Integer(0, 300),
        Some("20"),
        "On SIGTERM: how long requests in progress may take to finish.",
    ),
    shared(
        ("database", "url"),
        Kind::Url("sqlite:///absolute/path or mysql://user:password@host:port/database"),
        None,
        "Where the data is: a file of this machine, or OceanBase. Unset: a file in the user's data folder.",
    ),
    shared(
        ("database", "password_file"),
        Kind::Path,
        None,
        "A file whose one line is the password of a mysql:// URL without one; surrounding white space is dropped.",
    ),
    shared(
        ("database", "readers"),
        Kind::Integer(1, 64),
        Some("4"),
        "Connections of one process for reading; writing has one on SQLite, as many more on OceanBase.",
    ),
    shared(
        ("database", "busy_timeout_milliseconds"),
        Kind::Integer(1, 600_000),
        Some("5000"),
        "How long a write waits for another one before it fails; on OceanBase at most 2 seconds.",
    ),
    public(
        ("database", "request_timeout_seconds"),
        Kind::Seconds(600),
        Some("5"),
        "OceanBase: how long one request may wait for the database before it is answered with 503.",
    ),
    public(
        ROLE,
        Kind::Choice(&["all", "api", "background"]),
        Some("all"),
        "What this process does: all serves HTTP and processes Topics, api serves HTTP alone, background \
         processes Topics alone. SQLite has only all. Short form: --role.",
    ),
    public(
        ("runtime", "artifact_processing_max_workers"),
        Kind::Integer(1, 1_000),
        Some("10"),
        "Workers that run at the same time, over all Scopes.",
    ),
    public(
        ("runtime", "artifact_processing_worker_timeout_seconds"),
        Kind::Integer(1, 86_400),
        Some("600"),
        "How long one worker may take for one Window before it is stopped.",
    ),
    public(
        ("runtime", "artifact_processing_tick_seconds"),
        Kind::Seconds(60),
        Some("1"),
        "How often processing looks at the database without being woken.",
    ),
    public(
        ("runtime", "artifact_processing_page_size"),
        Kind::Integer(16, 4_096),
        Some("256"),
        "Rows one look reads at once; the memory of processing is a multiple of it.",
    ),
    public(
        ("runtime", "artifact_processing_lease_seconds"),
        Kind::Seconds(3_600),
        Some("15"),
        "OceanBase: how long leadership lasts without a renewal; a failed leader is replaced after that.",
    ),
    public(
        ("runtime", "artifact_processing_lease_renewal_seconds"),
        Kind::Seconds(3_600),
        Some("5"),
        "OceanBase: how often the leader renews its lease.",
    ),
    public(
        ("runtime", "artifact_processing_lease_margin_seconds"),
        Kind::Seconds(3_600),
        Some("2"),
        "OceanBase: how long before the end of an unrenewed lease its leader stops acting.",
    ),
    public(
        ("runtime", "artifact_processing_candidacy_seconds"),
        Kind::Seconds(3_600),
        Some("3"),
        "OceanBase: how often the others try to become leader.",
    ),
    shared(
        ("runtime", "topic_memory_source_window_limit"),
        Kind::Integer(1, 100),
        Some("10"),
        "Sources in one Window at most.",
    ),
    shared(
        ("runtime", "topic_memory_history_max_candidates"),
        Kind::Integer(1, 20),
        Some("20"),
        "Existing Topics given to the model at most.",
    ),
    shared(
        ("runtime", "topic_memory_history_rrf_threshold"),
        Kind::Decimal(0.0, 100.0),
        Some("70"),
        "Score from which an existing Topic counts as related.",
    ),
    shared(
        ("runtime", "topic_memory_history_min_candidates"),
        Kind::Integer(1, 20),
        Some("5"),
        "Existing Topics given to the model even when they score lower; at most the maximum above.",
    ),
    public(
        ("runtime", "topic_memory_schedule_seconds"),
        Kind::Seconds(31_536_000),
        None,
        "Period of automatic processing; needs a model. Unset: only a flush starts processing.",
    ),
    public(
        ("runtime", "worker_program"),
        Kind::Path,
        None,
        "The worker program. Unset: powercontext-worker beside this program.",
    ),
    shared(
        ("inference", "generation_model"),
        Kind::Text,
        None,
        "builtin:extractive, openai:<model> or anthropic:<model>. Unset: Topics are not processed.",
    ),
    shared(
        ("inference", "generation_base_url"),
        Kind::Url("https://host/v1"),
        None,
        "Base URL of a compatible endpoint. Unset: the provider's own.",
    ),
    hidden(("inference", "generation_api_key"), Kind::Text, "The provider's key; prefer the file."),
    shared(
        ("inference", "generation_api_key_file"),
        Kind::Path,
        None,
        "A file whose one line is the provider's key; surrounding white space is dropped.",
    ),
    hidden(
        ("inference", "generation_headers"),
        Kind::Object,
        "Further headers for a gateway, as a JSON object of names and texts; prefer the file.",
    ),
    shared(
        ("inference", "generation_headers_file"),
        Kind::Path,
        None,
        "A file that holds the further headers.",
    ),
    shared(
        ("inference", "generation_model_settings"),
        Kind::Object,
        None,
        "Settings of the model as a JSON object: sampling, output, timeout, service tier.",
    ),
    shared(
        ("inference", "generation_timeout_seconds"),
        Kind::Integer(1, 3_600),
        Some("30"),
        "How long one call of the model may take.",
    ),
    shared(
        ("inference", "generation_max_requests"),
        Kind::Integer(1, 16),
        Some("2"),
        "Calls for one answer at most, corrections of an invalid answer included.",
    ),
    shared(
        ("inference", "generation_model_context_window_tokens"),
        Kind::Integer(1_000, 100_000_000),
        Some("125000"),
        "Context of the model, input and output together.",
    ),
    shared(
        ("inference", "generation_structured_output"),
        Kind::Choice(&["json_schema", "json_object"]),
        Some("json_schema"),
        "How the model is asked for JSON; json_object for endpoints without schemas.",
    ),
    shared(
        ("inference", "generation_output_limit_field"),
        Kind::Choice(&["max_completion_tokens", "max_tokens"]),
        Some("max_completion_tokens"),
        "openai: the field that bounds an answer; max_tokens for older compatible endpoints.",
    ),
    shared(
        ("inference", "embedding_model"),
        Kind::Text,
        None,
        "builtin:hashing or openai:<model>. Unset: no vectors.",
    ),
    shared(
        ("inference", "embedding_profile_id"),
        Kind::Text,
        None,
        "Your name for the vectors of this model; needed with it, kept with the data.",
    ),
    shared(
        ("inference", "embedding_dimension"),
        Kind::Integer(1, 16_384),
        None,
        "How many numbers a vector has; needed with the model. builtin:hashing has 256.",
    ),
    shared(
        ("inference", "embedding_base_url"),
        Kind::Url("https://host/v1"),
        None,
        "Base URL of a compatible embedding endpoint. Unset: OpenAI's own.",
    ),
    hidden(
        ("inference", "embedding_api_key"),
        Kind::Text,
        "The key of the embedding endpoint; prefer the file.",
    ),
    shared(
        ("inference", "embedding_api_key_file"),
        Kind::Path,
        None,
        "A file that holds the key of the embedding endpoint.",
    ),
    hidden(
        ("inference", "embedding_headers"),
        Kind::Object,
        "Further headers of the embedding endpoint, as a JSON object; prefer the file.",
    ),
    shared(
        ("inference", "embedding_headers_file"),
        Kind::Path,
        None,
        "A file that holds the further headers of the embedding endpoint.",
    ),
    shared(
        ("inference", "embedding_model_settings"),
        Kind::Object,
        None,
        "Settings of the embedding model as a JSON object: dimensions, truncate.",
    ),
    shared(
        ("inference", "embedding_timeout_seconds"),
        Kind::Integer(1, 3_600),
        Some("30"),
        "How long one request for vectors may take.",
    ),
    shared(
        ("inference", "embedding_batch_size"),
        Kind::Integer(1, 2_048),
        Some("10"),
        "Texts in one request for vectors at most.",
    ),
    shared(
        ("inference", "embedding_normalization"),
        Kind::Choice(&["unit", "none"]),
        Some("unit"),
        "unit scales every vector to length 1; none keeps it as the model made it.",
    ),
    shared(
        ("log", "level"),
        Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
        Some("info"),
        "The least important events that are logged.",
    ),
    shared(
        ("log", "format"),
        Kind::Choice(&["json", "text"]),
        Some("json"),
        "Log lines as JSON or for people; always on stderr.",
    ),
];

/// The index of a setting in [`SETTINGS`].
#[must_use]
pub fn position(section: &str, key: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.section == section && setting.key == key)
}
