//! Reads the layers (flags over environment over file over default) and checks every value.
//!
//! Nothing is guessed and nothing is ignored: an unknown name, a wrong type or a value outside its
//! range stops the start with one line that says which setting and where it came from. Creating
//! folders or connecting to anything is left to the programs.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;

use crate::object;
use crate::table::{CONFIG_FILE_VARIABLE, Kind, PREFIX, SETTINGS, Setting, position};

/// Where a value came from; the later ones win.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// A key of the settings file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag, without its dashes.
    Flag(String),
}

impl Origin {
    /// The kind of place, for the start log.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(_) => "file",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }
}

impl Origin {
    /// Which layer wins: the higher one.
    const fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File(_) => 1,
            Self::Environment(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("the default"),
            Self::File(path) => write!(out, "the file {}", path.display()),
            Self::Environment(name) => write!(out, "the environment variable {name}"),
            Self::Flag(name) => write!(out, "the flag --{name}"),
        }
    }
}

/// Why the settings cannot be used; each prints as one line without any secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No setting has this name.
    #[error("unknown setting `{name}` in {origin}")]
    Unknown {
        /// The name as it was written.
        name: String,
        /// Where it stands.
        origin: Origin,
    },
    /// The value breaks the setting's rule.
    #[error("setting `{name}` from {origin} {problem}")]
    Bad {
        /// The setting's dotted name.
        name: String,
        /// Where the value came from.
        origin: Origin,
        /// What is wrong, without the value of a secret.
        problem: String,
    },
    /// One of several settings is needed and none is given.
    #[error("set {names}: {problem}")]
    Missing {
        /// The settings, each with its environment name.
        names: String,
        /// Why one is needed.
        problem: String,
    },
    /// The settings file cannot be read or is not TOML.
    #[error("the settings file {path} cannot be used: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The command line cannot be understood.
    #[error("{0}")]
    CommandLine(String),
}

/// The layers as the process got them.
#[derive(Clone, Default)]
pub struct Inputs {
    /// Flags without their dashes, with their values.
    pub flags: Vec<(String, String)>,
    /// Environment variables; names without the prefix are ignored, `HOME` and `XDG_DATA_HOME` apart.
    pub environment: Vec<(String, String)>,
    /// The settings file named by a flag; otherwise `POWERCONTEXT_SERVER_CONFIG_FILE` may name one.
    pub file: Option<PathBuf>,
}

/// Shows names alone: a value may be a key or an address with a password.
impl fmt::Debug for Inputs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn names(layer: &[(String, String)]) -> Vec<&str> {
            layer.iter().map(|(name, _)| name.as_str()).collect()
        }
        out.debug_struct("Inputs")
            .field("flags", &names(&self.flags))
            .field("environment", &names(&self.environment))
            .field("file", &self.file)
            .finish()
    }
}

impl Inputs {
    /// The environment of this process, for the settings alone.
    ///
    /// # Errors
    /// [`SettingsError::Bad`] when a value under the prefix is not UTF-8.
    pub fn from_process() -> Result<Self, SettingsError> {
        let mut environment = Vec::new();
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str().map(str::to_owned) else { continue };
            if !name.starts_with(PREFIX) && name != "HOME" && name != "XDG_DATA_HOME" {
                continue;
            }
            let Ok(value) = value.into_string() else {
                let origin = Origin::Environment(name.clone());
                return Err(SettingsError::Bad { name, origin, problem: "is not UTF-8".to_owned() });
            };
            environment.push((name, value));
        }
        Ok(Self { environment, ..Self::default() })
    }

    /// The value of one environment variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// One checked value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub text: String,
    pub origin: Origin,
}

/// The winning value of every setting, in table order.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    values: Vec<Option<Value>>,
}

impl Resolved {
    /// Reads all layers.
    pub fn read(inputs: &Inputs) -> Result<Self, SettingsError> {
        let mut resolved = Self { values: vec![None; SETTINGS.len()] };
        for (index, setting) in SETTINGS.iter().enumerate() {
            if let Some(text) = setting.default {
                resolved.set(index, text.to_owned(), Origin::Default)?;
            }
        }
        if let Some(path) = config_file(inputs)? {
            resolved.read_file(&path)?;
        }
        for (name, value) in &inputs.environment {
            if !name.starts_with(PREFIX) || name == CONFIG_FILE_VARIABLE {
                continue;
            }
            let origin = Origin::Environment(name.clone());
            match SETTINGS.iter().position(|setting| setting.variable() == *name) {
                Some(index) => resolved.set(index, value.clone(), origin)?,
                None => return Err(SettingsError::Unknown { name: name.clone(), origin }),
            }
        }
        for (name, value) in &inputs.flags {
            let origin = Origin::Flag(name.clone());
            match SETTINGS.iter().position(|setting| setting.flag().as_ref() == Some(name)) {
                Some(index) => resolved.set(index, value.clone(), origin)?,
                None => return Err(SettingsError::Unknown { name: name.clone(), origin }),
            }
        }
        for (text, file) in [
            ("generation_api_key", "generation_api_key_file"),
            ("generation_headers", "generation_headers_file"),
            ("embedding_api_key", "embedding_api_key_file"),
            ("embedding_headers", "embedding_headers_file"),
        ] {
            resolved.keep_higher(("inference", text), ("inference", file))?;
        }
        Ok(resolved)
    }

    /// Of two settings that say the same, the higher layer's counts; from one layer they are a mistake.
    fn keep_higher(&mut self, one: (&str, &str), other: (&str, &str)) -> Result<(), SettingsError> {
        let (Some(first), Some(second)) = (position(one.0, one.1), position(other.0, other.1)) else {
            return Ok(());
        };
        let (Some(a), Some(b)) = (self.get(one.0, one.1), self.get(other.0, other.1)) else {
            return Ok(());
        };
        let dropped = match a.origin.rank().cmp(&b.origin.rank()) {
            Ordering::Less => first,
            Ordering::Greater => second,
            Ordering::Equal => {
                let problem = format!("is set together with {}.{}; keep one of them", one.0, one.1);
                let name = format!("{}.{}", other.0, other.1);
                return Err(SettingsError::Bad { name, origin: b.origin.clone(), problem });
            }
        };
        if let Some(slot) = self.values.get_mut(dropped) {
            *slot = None;
        }
        Ok(())
    }

    fn read_file(&mut self, path: &PathBuf) -> Result<(), SettingsError> {
        let unusable = |problem: String| SettingsError::File { path: path.clone(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
        let sections: toml::Table =
            text.parse().map_err(|error: toml::de::Error| unusable(syntax_problem(&text, &error)))?;
        let origin = Origin::File(path.clone());
        for (section, content) in sections {
            let known = SETTINGS.iter().any(|setting| setting.section == section);
            if !known {
                return Err(SettingsError::Unknown { name: section, origin });
            }
            let toml::Value::Table(keys) = content else {
                let problem = format!("must be a table, as in [{section}], not {}", content.type_str());
                return Err(SettingsError::Bad { name: section, origin, problem });
            };
            for (key, value) in keys {
                let name = format!("{section}.{key}");
                let Some(index) = position(&section, &key) else {
                    return Err(SettingsError::Unknown { name, origin });
                };
                let kind = SETTINGS.get(index).map_or(Kind::Text, |setting| setting.kind);
                let Some(text) = file_text(kind, &value) else {
                    let problem = format!("must be {}, not {}", kind.rule(), value.type_str());
                    return Err(SettingsError::Bad { name, origin, problem });
                };
                self.set(index, text, origin.clone())?;
            }
        }
        Ok(())
    }

    fn set(&mut self, index: usize, text: String, origin: Origin) -> Result<(), SettingsError> {
        let Some(setting) = SETTINGS.get(index) else { return Ok(()) };
        if let Some(problem) = problem(setting, &text) {
            return Err(SettingsError::Bad { name: setting.name(), origin, problem });
        }
        if let Some(slot) = self.values.get_mut(index) {
            *slot = Some(Value { text, origin });
        }
        Ok(())
    }

    /// The value of a setting; `None` when it is unset or unknown.
    pub fn get(&self, section: &str, key: &str) -> Option<&Value> {
        self.values.get(position(section, key)?)?.as_ref()
    }

    /// Every setting with its value, in table order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, Option<&Value>)> {
        SETTINGS.iter().zip(self.values.iter().map(Option::as_ref))
    }
}

fn config_file(inputs: &Inputs) -> Result<Option<PathBuf>, SettingsError> {
    if inputs.file.is_some() {
        return Ok(inputs.file.clone());
    }
    match inputs.variable(CONFIG_FILE_VARIABLE) {
        None => Ok(None),
        Some("") => Err(SettingsError::Bad {
            name: "config_file".to_owned(),
            origin: Origin::Environment(CONFIG_FILE_VARIABLE.to_owned()),
            problem: "must be a path, not empty".to_owned(),
        }),
        Some(path) => Ok(Some(PathBuf::from(path))),
    }
}

/// The text of a file value, when its TOML type fits the kind.
fn file_text(kind: Kind, value: &toml::Value) -> Option<String> {
    match (kind, value) {
        (
            Kind::Text | Kind::Path | Kind::Url(_) | Kind::Choice(_) | Kind::Object,
            toml::Value::String(text),
        ) => Some(text.clone()),
        (Kind::Object, toml::Value::Table(table)) => object::of_table(table),
        (Kind::Integer(..) | Kind::Decimal(..) | Kind::Seconds(_), toml::Value::Integer(number)) => {
            Some(number.to_string())
        }
        (Kind::Decimal(..) | Kind::Seconds(_), toml::Value::Float(number)) => Some(number.to_string()),
        _ => None,
    }
}

/// What is wrong with a value, in words; `None` when it is fine.
fn problem(setting: &Setting, text: &str) -> Option<String> {
    let fits = match setting.kind {
        Kind::Text => !text.trim().is_empty(),
        Kind::Path => !text.is_empty(),
        Kind::Url(_) => text.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty() && !rest.is_empty() && !text.chars().any(char::is_control)
        }),
        Kind::Choice(words) => words.contains(&text),
        Kind::Object => object::is_object(text),
        Kind::Integer(least, most) => {
            text.parse::<i64>().is_ok_and(|number| (least..=most).contains(&number))
        }
        Kind::Decimal(least, most) => {
            text.parse::<f64>().is_ok_and(|number| (least..=most).contains(&number))
        }
        Kind::Seconds(most) => {
            text.parse::<f64>().is_ok_and(|number| number > 0.0 && number <= f64::from(most))
        }
    };
    if fits {
        return None;
    }
    let shown = if setting.secret || matches!(setting.kind, Kind::Url(_) | Kind::Object) {
        String::new()
    } else {
        let short: String = text.chars().take(60).collect();
        format!(", not {short:?}")
    };
    Some(format!("must be {}{shown}", setting.kind.rule()))
}

/// The line, the key at its beginning and the parser's words; never the value, which may be a secret.
fn syntax_problem(text: &str, error: &toml::de::Error) -> String {
    let message = one_line(error.message());
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let key = line.split_once('=').map_or("", |(key, _)| key.trim());
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    let key = if plain { format!(", key `{key}`") } else { String::new() };
    format!("line {number}{key}: {message}")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
