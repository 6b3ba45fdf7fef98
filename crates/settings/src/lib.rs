//! The settings of every program: read once at start, checked, and passed in (TM-254).
//!
//! [`table`] lists them; [`Settings::load`] merges flags, environment, file and defaults. Whether a
//! model name is known or a database answers is left to the programs.

mod command_line;
mod inference;
mod load;
mod object;
pub mod table;
mod url;
mod values;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powercontext_core::secret::Secret;

pub use command_line::{command_line_error, settings_help, take_flags, with_flags};
pub use load::{Inputs, Origin, SettingsError};
pub use powercontext_core::stages::StructuredOutput;
pub use values::{Database, Embedding, Http, Inference, Lease, Log, LogFormat, Role, Runtime};

use load::Resolved;
use table::{Kind, ROLE, SETTINGS};
use url::NoPlace;

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
    /// Reads the settings file and the files of key and password, nothing else.
    ///
    /// # Errors
    /// [`SettingsError`] names the first thing that is wrong and where it stands.
    pub fn load(inputs: &Inputs) -> Result<Self, SettingsError> {
        let resolved = Resolved::read(inputs)?;
        let read = Reader(&resolved);
        let (database, shown_url) = read.database(inputs)?;
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
            effective: effective(&resolved, &shown_url),
            origins: resolved.iter().map(|(_, value)| value.map(|value| value.origin.clone())).collect(),
            worker_environment: worker_environment(&resolved, &shown_url),
            database,
        })
    }

    /// Every setting as it took effect, redacted, in table order (TM-229).
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// The settings as they take effect in a role. Refuses a role that the database cannot have: SQLite
    /// belongs to one process (TM-179).
    ///
    /// # Errors
    /// [`SettingsError::Bad`] that names the URL and where it came from.
    pub fn in_role(mut self, role: Role) -> Result<Self, SettingsError> {
        if role == Role::All || url::is_server(self.database.url.reveal()) {
            self.runtime.artifact_processing_role = role;
            let shown = table::position(ROLE.0, ROLE.1).and_then(|index| self.effective.get_mut(index));
            if let Some(shown) = shown {
                shown.value = Some(role.as_str().to_owned());
            }
            return Ok(self);
        }
        let problem = format!(
            "names SQLite, which one process alone may use: role `{}` needs OceanBase, as in \
             mysql://user:password@host:port/database",
            role.as_str()
        );
        Err(self.refuse("database", "url", problem))
    }

    /// The role that was asked for; `None` when the default stands.
    #[must_use]
    pub fn chosen_role(&self) -> Option<Role> {
        self.is_chosen(ROLE.0, ROLE.1).then_some(self.runtime.artifact_processing_role)
    }

    /// Refuses a schedule of automatic processing that nothing could keep (TM-086).
    ///
    /// # Errors
    /// [`SettingsError::Bad`] that names the schedule and where it came from.
    pub fn check_schedule(&self) -> Result<(), SettingsError> {
        if self.runtime.topic_memory_schedule.is_none() || self.inference.generation_model.is_some() {
            return Ok(());
        }
        let problem = "asks for automatic processing, which needs a model; set \
                       `inference.generation_model` (POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL) too";
        Err(self.refuse("runtime", "topic_memory_schedule_seconds", problem.to_owned()))
    }

    /// Whether a setting has another origin than its default.
    #[must_use]
    pub fn is_chosen(&self, section: &str, key: &str) -> bool {
        let origin = table::position(section, key).and_then(|index| self.origins.get(index));
        origin.is_some_and(|origin| origin.as_ref().is_some_and(|origin| *origin != Origin::Default))
    }

    /// Whether a setting has a value, its default included.
    #[must_use]
    pub fn is_set(&self, section: &str, key: &str) -> bool {
        let origin = table::position(section, key).and_then(|index| self.origins.get(index));
        origin.is_some_and(Option::is_some)
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
    /// A key or a password that was read from a file travels as the file's path, so no secret is copied.
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

    /// A number of seconds, when one is set; its range was checked against the table.
    fn seconds(&self, section: &str, key: &str) -> Option<Duration> {
        let seconds = self.0.get(section, key)?.text.parse().ok()?;
        Some(Duration::try_from_secs_f64(seconds).ok()?.max(Duration::from_millis(1)))
    }

    /// The seconds of a setting that has a default.
    fn period(&self, section: &str, key: &str) -> Result<Duration, SettingsError> {
        self.seconds(section, key).ok_or_else(|| self.bad(section, key, "does not fit this machine"))
    }

    fn lease(&self) -> Result<Lease, SettingsError> {
        Ok(Lease {
            duration: self.period("runtime", "artifact_processing_lease_seconds")?,
            renewal: self.period("runtime", "artifact_processing_lease_renewal_seconds")?,
            margin: self.period("runtime", "artifact_processing_lease_margin_seconds")?,
            candidacy: self.period("runtime", "artifact_processing_candidacy_seconds")?,
        })
    }

    /// The database, and its URL as it was given.
    fn database(&self, inputs: &Inputs) -> Result<(Database, String), SettingsError> {
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
        let database = Database {
            url: self.complete(&url)?,
            default_folder,
            readers: self.integer("database", "readers")?,
            busy_timeout: Duration::from_millis(self.integer("database", "busy_timeout_milliseconds")?),
            request_timeout: self.period("database", "request_timeout_seconds")?,
        };
        Ok((database, url))
    }

    /// The URL with the password of the password file, if there is one.
    fn complete(&self, url: &str) -> Result<Secret, SettingsError> {
        let Some(path) = self.path("database", "password_file") else { return Ok(Secret::new(url)) };
        let password = self.secret_from("database", "password_file", &path)?;
        url::with_password(url, password.reveal()).map(Secret::new).map_err(|problem| {
            let problem = match problem {
                NoPlace::NoServer => "needs a `database.url` that begins with mysql://",
                NoPlace::NoUser => {
                    "needs a `database.url` with a user, as in mysql://user@host:port/database"
                }
                NoPlace::Taken => "is set together with a password in `database.url`; keep one of them",
            };
            self.bad("database", "password_file", problem)
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
            artifact_processing_role: match self.text(ROLE.0, ROLE.1).as_deref() {
                Some("api") => Role::Api,
                Some("background") => Role::Background,
                _ => Role::All,
            },
            artifact_processing_max_workers: self.integer("runtime", "artifact_processing_max_workers")?,
            artifact_processing_worker_timeout_seconds: self
                .integer("runtime", "artifact_processing_worker_timeout_seconds")?,
            artifact_processing_tick: self.period("runtime", "artifact_processing_tick_seconds")?,
            artifact_processing_page_size: self.integer("runtime", "artifact_processing_page_size")?,
            artifact_processing_lease: self.lease()?,
            topic_memory_source_window_limit: self.integer("runtime", "topic_memory_source_window_limit")?,
            topic_memory_history_max_candidates: max,
            topic_memory_history_rrf_threshold: threshold.and_then(|text| text.parse().ok()).unwrap_or(70.0),
            topic_memory_history_min_candidates: min,
            topic_memory_schedule: self.seconds("runtime", "topic_memory_schedule_seconds"),
            worker_program: self.path("runtime", "worker_program"),
        })
    }

    /// A secret of one line, as a key or a password is.
    fn secret_from(&self, section: &str, key: &str, path: &Path) -> Result<Secret, SettingsError> {
        let secret = self.secret_text_from(section, key, path)?;
        if secret.reveal().contains(char::is_control) {
            let problem = "which must hold one line without control characters";
            return Err(self.bad(section, key, &format!("names {}, {problem}", path.display())));
        }
        Ok(secret)
    }

    /// A secret of any number of lines; surrounding white space is dropped.
    fn secret_text_from(&self, section: &str, key: &str, path: &Path) -> Result<Secret, SettingsError> {
        let refused = |problem: String| self.bad(section, key, &problem);
        let text = std::fs::read_to_string(path)
            .map_err(|error| refused(format!("names {}, which cannot be read: {error}", path.display())))?;
        match text.trim() {
            "" => Err(refused(format!("names {}, which is empty", path.display()))),
            secret => Ok(Secret::new(secret)),
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

fn effective(resolved: &Resolved, url: &str) -> Vec<Effective> {
    let show = |(setting, value): (&'static table::Setting, Option<&load::Value>)| {
        let is_url = setting.section == "database" && setting.key == "url";
        let default_url = is_url.then_some(url);
        let text = value.map(|value| value.text.as_str()).or(default_url);
        let value_shown = text.map(|text| match setting.kind {
            _ if setting.secret => "[redacted]".to_owned(),
            Kind::Url(_) => url::redacted(text),
            Kind::Object => object::shown(text),
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

fn worker_environment(resolved: &Resolved, url: &str) -> Vec<(String, String)> {
    SETTINGS
        .iter()
        .filter(|setting| setting.worker)
        .filter_map(|setting| {
            let text = match (setting.section, setting.key) {
                ("database", "url") => url.to_owned(),
                (section, key) => resolved.get(section, key)?.text.clone(),
            };
            Some((setting.variable(), text))
        })
        .collect()
}

#[cfg(test)]
mod tests;
