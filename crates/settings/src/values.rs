//! The settings as typed values, as the programs use them.
//!
//! Every value here has passed the rule of its table row; what is left to check is only what needs
//! another crate (whether a model name is known, whether a database answers).

use std::path::PathBuf;
use std::time::Duration;

use powercontext_core::endpoint::{Normalization, OutputLimit};
use powercontext_core::secret::Secret;
use powercontext_core::stages::StructuredOutput;

/// How requests are taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// Address or host name to listen on.
    pub host: String,
    /// TCP port; 0 takes any free one.
    pub port: u16,
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
    /// Requests worked on at once.
    pub max_concurrent_requests: usize,
    /// How long to go on serving after readiness was withdrawn.
    pub drain: Duration,
    /// How long requests in progress may take to finish.
    pub shutdown_timeout: Duration,
}

/// Where the data is.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    /// The URL with its password, wherever that came from.
    pub url: Secret,
    /// The folder of the default database, to be created with mode 0700; `None` for a chosen URL.
    pub default_folder: Option<PathBuf>,
    /// Connections of one process for reading.
    pub readers: u32,
    /// How long a write waits for another one.
    pub busy_timeout: Duration,
    /// How long a request may wait for a database that is shared.
    pub request_timeout: Duration,
}

/// What this process does (TM-178).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves HTTP and processes Topics.
    All,
    /// Serves HTTP.
    Api,
    /// Processes Topics.
    Background,
}

impl Role {
    /// The word of the setting.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Api => "api",
            Self::Background => "background",
        }
    }
}

/// How one leader is chosen and kept among processes that share a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How long leadership lasts without a renewal.
    pub duration: Duration,
    /// How often the leader renews.
    pub renewal: Duration,
    /// How long before the end of an unrenewed lease its leader stops acting.
    pub margin: Duration,
    /// How often the others try.
    pub candidacy: Duration,
}

/// How Sources become Topics.
#[derive(Clone, Debug, PartialEq)]
pub struct Runtime {
    /// What this process does (TM-250).
    pub artifact_processing_role: Role,
    /// Workers at the same time (TM-248).
    pub artifact_processing_max_workers: usize,
    /// Local timeout of one worker, in seconds (TM-249).
    pub artifact_processing_worker_timeout_seconds: u64,
    /// How often processing looks at the database without being woken.
    pub artifact_processing_tick: Duration,
    /// Rows one look reads at once.
    pub artifact_processing_page_size: usize,
    /// Leadership on a shared database.
    pub artifact_processing_lease: Lease,
    /// Sources in one Window at most (TM-246).
    pub topic_memory_source_window_limit: u32,
    /// Selected Topics at most (TM-247).
    pub topic_memory_history_max_candidates: usize,
    /// Normalised score from which a Topic counts as related (TM-247).
    pub topic_memory_history_rrf_threshold: f64,
    /// Selected Topics even below the threshold (TM-247).
    pub topic_memory_history_min_candidates: usize,
    /// Period of automatic processing; `None` means off (TM-245).
    pub topic_memory_schedule: Option<Duration>,
    /// The worker program; `None` means beside the own one.
    pub worker_program: Option<PathBuf>,
}

/// The models.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// `builtin:extractive`, `openai:<model>` or `anthropic:<model>`; `None` means Topic processing is
    /// unavailable.
    pub generation_model: Option<String>,
    /// Base URL of a compatible endpoint.
    pub generation_base_url: Option<String>,
    /// The provider's key, from the environment, the settings file or the key file.
    pub generation_api_key: Option<Secret>,
    /// Where the key was read from, when it came from a file.
    pub generation_api_key_file: Option<PathBuf>,
    /// Further headers as a JSON object, from wherever the key may come from.
    pub generation_headers: Option<Secret>,
    /// Where the headers were read from, when they came from a file.
    pub generation_headers_file: Option<PathBuf>,
    /// Settings of the model as a JSON object (TM-081).
    pub generation_model_settings: Option<Secret>,
    /// How long one call may take, in seconds (TM-252).
    pub generation_timeout_seconds: u64,
    /// Calls for one answer at most (TM-252).
    pub generation_max_requests: u32,
    /// Context of the model, input and output together (TM-251).
    pub generation_model_context_window_tokens: u64,
    /// How the model is asked for JSON.
    pub generation_structured_output: StructuredOutput,
    /// How the model is told the limit of an answer.
    pub generation_output_limit: OutputLimit,
    /// The model behind vectors; `None` means there are none (TM-256).
    pub embedding: Option<Embedding>,
}

/// The model behind vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// `builtin:hashing` or `openai:<model>`.
    pub model: String,
    /// The operator's name for these vectors; kept with the data (TM-257).
    pub profile_id: String,
    /// How many numbers a vector has.
    pub dimension: usize,
    /// Base URL of a compatible endpoint.
    pub base_url: Option<String>,
    /// The endpoint's key.
    pub api_key: Option<Secret>,
    /// Where the key was read from, when it came from a file.
    pub api_key_file: Option<PathBuf>,
    /// Further headers as a JSON object.
    pub headers: Option<Secret>,
    /// Where the headers were read from, when they came from a file.
    pub headers_file: Option<PathBuf>,
    /// `dimensions` and `truncate` as a JSON object (TM-081).
    pub model_settings: Option<Secret>,
    /// How long one request may take, in seconds (B-22).
    pub timeout_seconds: u64,
    /// Texts in one request at most (B-22).
    pub batch_size: usize,
    /// What is done with a vector before it is used.
    pub normalization: Normalization,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// JSON or text.
    pub format: LogFormat,
}
