//! What a scenario file may say. A key that the replayer does not know fails the scenario: it could
//! only be a rule that would silently not be kept.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// One request and the answer it had.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What the step shows, for people.
    pub note: String,
    /// The request's method.
    pub method: String,
    /// Path and query, percent-encoded.
    pub path: String,
    /// Request headers that matter, lower-case names.
    #[serde(default)]
    pub headers: HashMap<String, String>,
    /// A JSON body, possibly `null`.
    #[serde(default, deserialize_with = "present")]
    pub body: Option<Value>,
    /// The exact text of a body, sent without a content type of its own.
    pub raw_body: Option<String>,
    /// The status of the answer.
    pub status: u16,
    /// Headers of the answer.
    #[serde(default)]
    pub response_headers: HashMap<String, String>,
    /// Further headers of the answer that are part of the contract.
    #[serde(default)]
    pub contract_headers: HashMap<String, String>,
    /// The JSON body of the answer; `null` when there was none.
    #[serde(default)]
    pub response: Value,
    /// A body that is not JSON, instead.
    pub response_text: Option<String>,
    /// Pointers to values that need only be present.
    #[serde(default)]
    pub free: Vec<String>,
    /// Pointers to lists that ascend by a key, with that key's pointer.
    #[serde(default)]
    pub sorted_by: HashMap<String, String>,
    /// Pointers to lists without an order.
    #[serde(default)]
    pub unordered: Vec<String>,
    /// Rows of placeholders to put in order after the step.
    #[serde(default)]
    pub sort_after: Vec<Vec<String>>,
    /// Why the answer does not bind.
    pub informative: Option<String>,
    /// What the server must be like.
    #[serde(default)]
    pub requires: Vec<Requirement>,
}

/// What a step needs of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// Nobody used it before.
    FreshServer,
}

impl Step {
    /// Note and request, to name the step in a report.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}: {} {}", self.note, self.method, self.path)
    }

    /// Whether the step means something on an unused server only.
    #[must_use]
    pub fn needs_a_fresh_server(&self) -> bool {
        self.requires.contains(&Requirement::FreshServer)
    }
}

/// Keeps a `null` apart from an absent key.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// Reads one scenario.
///
/// # Errors
/// A text for the report when the file cannot be read or says something unknown.
pub fn load(file: &Path) -> Result<Vec<Step>, String> {
    let text = std::fs::read_to_string(file).map_err(|problem| problem.to_string())?;
    serde_json::from_str(&text).map_err(|problem| problem.to_string())
}

/// The scenario files under a folder, in the order of their names.
#[must_use]
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
