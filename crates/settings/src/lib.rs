//! The settings of every program: read once at start, checked, and passed in (TM-254).
//!
//! [`table`] lists them; [`Settings::load`] merges flags, environment, file and defaults. Whether a
//! model name is known or a database answers is left to the programs.

mod command_line;
mod load;
pub mod table;
mod values;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powercontext_core::secret::Secret;

pub use command_line::{command_line_error, settings_help, take_flags, with_flags};
pub use load::{Inputs, Origin, SettingsError};
pub use powercontext_core::stages::StructuredOutput;
pub use values::{Database, Http, Inference, Log, LogFormat, Role, Runtime};

use load::{Resolved, redacted_url};
use table::{Kind, SETTINGS};

/// All settings of one process; `Debug` shows the redacted effective values alone.
#[derive(Clone)]
pub struct Settings {
    /// How requests are taken.
    pub http: Http,
    /// Where the data is.
    pub database: Database,
    /// How Sources become Topics.
    pub runtime: Runtime,
    /// The model behind generation.
    pub inference: Inference,
    /// What is logged, and how.
    pub log: Log,
    effective: Vec<Effective>,
    origins: Vec<Option<Origin>>,
    worker_environment: Vec<(String, String)>,
}

/// One setting as it took effect, safe to log (TM-229).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The dotted name.
    pub name: String,
    /// The value; a secret is `[redacted]`, an unset one is `None`.
    pub value: Option<String>,
    /// `default`, `file`, `environment`, `flag`, or `unset`.
    pub origin: &'static str,
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(&self.effective).finish()
    }
}

impl Settings {
    /// Merges the layers and checks every value.
    ///
    /// Reads the settings file and the key file, nothing else.
    ///
    /// # Errors
    /// [`SettingsError`] names the first thing that is wrong and where it stands.
    pub fn load(inputs: &Inputs) -> Result<Self, SettingsError> {
        let resolved = Resolved::read(inputs)?;
        let read = Reader(&resolved);
        let database = read.database(inputs)?;
        Ok(Self {
            http: Http {
                host: read.text("http", "host").unwrap_or_default(),
                port: read.integer("http", "port")?,
                max_body_bytes: read.integer("http", "max_body_bytes")?,
                max_concurrent_requests: read.integer("http", "max_concurrent_requests")?,
                drain: Duration::from_secs(read.integer("http", "drain_seconds")?),
                shutdown_timeout: Duration::from_secs(read.integer("http", "shutdown_timeout_seconds")?),
            },
            runtime: read.runtime()?,
            inference: read.inference()?,
            log: Log {
                level: read.text("log", "level").unwrap_or_default(),
                format: match read.text("log", "format").as_deref() {
                    Some("text") => LogFormat::Text,
                    _ => LogFormat::Json,
                },
            },
            effective: effective(&resolved, &database),
            origins: resolved.iter().map(|(_, value)| value.map(|value| value.origin.clone())).collect(),
            worker_environment: worker_environment(&resolved, &database),
            database,
        })
    }

    /// Every setting as it took effect, redacted, in table order (TM-229).
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// The error of a check that needed another crate, with the place the value came from.
    ///
    /// `problem` continues a sentence that begins with the setting, and holds no secret.
    #[must_use]
    pub fn refuse(&self, section: &str, key: &str, problem: String) -> SettingsError {
        let index = table::position(section, key);
        let origin = index.and_then(|index| self.origins.get(index)).cloned().flatten();
        let name = format!("{section}.{key}");
        SettingsError::Bad { name, origin: origin.unwrap_or(Origin::Default), problem }
    }

    /// What a worker process needs, under the same environment names.
    ///
    /// A key that was read from a file travels as the file's path, so no secret is copied.
    #[must_use]
    pub fn worker_environment(&self) -> Vec<(String, String)> {
        self.worker_environment.clone()
    }
}

struct Reader<'a>(&'a Resolved);

impl Reader<'_> {
    fn text(&self, section: &str, key: &str) -> Option<String> {
        self.0.get(section, key).map(|value| value.text.clone())
    }

    fn path(&self, section: &str, key: &str) -> Option<PathBuf> {
        self.text(section, key).map(PathBuf::from)
    }

    fn bad(&self, section: &str, key: &str, problem: &str) -> SettingsError {
        let origin = self.0.get(section, key).map_or(Origin::Default, |value| value.origin.clone());
        SettingsError::Bad { name: format!("{section}.{key}"), origin, problem: problem.to_owned() }
    }

    /// A whole number; its range was checked against the table.
    fn integer<N: TryFrom<i64>>(&self, section: &str, key: &str) -> Result<N, SettingsError> {
        let number = self.0.get(section, key).and_then(|value| value.text.parse::<i64>().ok());
        number
            .and_then(|number| N::try_from(number).ok())
            .ok_or_else(|| self.bad(section, key, "does not fit this machine"))
    }

    fn database(&self, inputs: &Inputs) -> Result<Database, SettingsError> {
        let (url, default_folder) = match self.text("database", "url") {
            Some(url) => (url, None),
            None => {
                let Some(folder) = data_folder(inputs) else {
                    let problem = "has no default without XDG_DATA_HOME or HOME; set it";
                    return Err(self.bad("database", "url", problem));
                };
                (format!("sqlite://{}", folder.join("powercontext.sqlite3").display()), Some(folder))
            }
        };
        Ok(Database {
            url: Secret::new(url),
            default_folder,
            readers: self.integer("database", "readers")?,
            busy_timeout: Duration::from_millis(self.integer("database", "busy_timeout_milliseconds")?),
        })
    }

    fn runtime(&self) -> Result<Runtime, SettingsError> {
        let max = self.integer("runtime", "topic_memory_history_max_candidates")?;
        let min = self.integer("runtime", "topic_memory_history_min_candidates")?;
        if min > max {
            // The one that was chosen is the one to name; the default only got in its way.
            let key = "topic_memory_history_min_candidates";
            let chosen = |key| self.0.get("runtime", key).is_some_and(|v| v.origin != Origin::Default);
            let key = if chosen(key) { key } else { "topic_memory_history_max_candidates" };
            let problem =
                format!("breaks history_min_candidates <= history_max_candidates: {min} is more than {max}");
            return Err(self.bad("runtime", key, &problem));
        }
        let threshold = self.text("runtime", "topic_memory_history_rrf_threshold");
        Ok(Runtime {
            artifact_processing_role: Role::All,
            artifact_processing_max_workers: self.integer("runtime", "artifact_processing_max_workers")?,
            artifact_processing_worker_timeout_seconds: self
                .integer("runtime", "artifact_processing_worker_timeout_seconds")?,
            topic_memory_source_window_limit: self.integer("runtime", "topic_memory_source_window_limit")?,
            topic_memory_history_max_candidates: max,
            topic_memory_history_rrf_threshold: threshold.and_then(|text| text.parse().ok()).unwrap_or(70.0),
            topic_memory_history_min_candidates: min,
            worker_program: self.path("runtime", "worker_program"),
        })
    }

    fn inference(&self) -> Result<Inference, SettingsError> {
        let key_file = self.path("inference", "generation_api_key_file");
        let key = self.text("inference", "generation_api_key").map(Secret::new);
        let key = match &key_file {
            Some(path) => Some(self.key_from(path)?),
            None => key,
        };
        let base_url = self.text("inference", "generation_base_url");
        if base_url.as_ref().is_some_and(|url| url.contains('@')) {
            let problem = "must not hold a user or a password; set the key instead";
            return Err(self.bad("inference", "generation_base_url", problem));
        }
        let structured = self.text("inference", "generation_structured_output");
        Ok(Inference {
            generation_model: self.text("inference", "generation_model"),
            generation_base_url: base_url,
            generation_api_key: key,
            generation_api_key_file: key_file,
            generation_timeout_seconds: self.integer("inference", "generation_timeout_seconds")?,
            generation_max_requests: self.integer("inference", "generation_max_requests")?,
            generation_model_context_window_tokens: self
                .integer("inference", "generation_model_context_window_tokens")?,
            generation_structured_output: match structured.as_deref() {
                Some("json_object") => StructuredOutput::JsonObject,
                _ => StructuredOutput::JsonSchema,
            },
        })
    }

    fn key_from(&self, path: &Path) -> Result<Secret, SettingsError> {
        let refused = |problem: String| self.bad("inference", "generation_api_key_file", &problem);
        let text = std::fs::read_to_string(path)
            .map_err(|error| refused(format!("names {}, which cannot be read: {error}", path.display())))?;
        match text.trim() {
            "" => Err(refused(format!("names {}, which is empty", path.display()))),
            key => Ok(Secret::new(key)),
        }
    }
}

fn data_folder(inputs: &Inputs) -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(inputs.variable(name)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    base.map(|base| base.join("powercontext-fleet"))
}

fn effective(resolved: &Resolved, database: &Database) -> Vec<Effective> {
    let show = |(setting, value): (&'static table::Setting, Option<&load::Value>)| {
        let is_url = setting.section == "database" && setting.key == "url";
        let default_url = is_url.then(|| database.url.reveal());
        let text = value.map(|value| value.text.as_str()).or(default_url);
        let value_shown = text.map(|text| match setting.kind {
            _ if setting.secret => "[redacted]".to_owned(),
            Kind::Url(_) => redacted_url(text),
            _ => text.to_owned(),
        });
        let origin = match value {
            Some(value) => value.origin.word(),
            None if value_shown.is_some() => Origin::Default.word(),
            None => "unset",
        };
        Effective { name: setting.name(), value: value_shown, origin }
    };
    resolved.iter().map(show).collect()
}

fn worker_environment(resolved: &Resolved, database: &Database) -> Vec<(String, String)> {
    SETTINGS
        .iter()
        .filter(|setting| setting.worker)
        .filter_map(|setting| {
            let text = match (setting.section, setting.key) {
                ("database", "url") => database.url.reveal().to_owned(),
                (section, key) => resolved.get(section, key)?.text.clone(),
            };
            Some((setting.variable(), text))
        })
        .collect()
}

#[cfg(test)]
mod tests;
