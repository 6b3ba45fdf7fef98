//! The structured log of the programs, read back as events.

use std::path::Path;

use serde_json::Value;

/// One log line.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it was written, as the log says; texts of one machine order like times.
    pub at: String,
    /// Its stable name.
    pub name: String,
    /// The process that wrote it or whose worker did: the name of the log file.
    pub by: String,
    /// All its fields.
    pub fields: Value,
}

impl Event {
    /// A number of the event.
    #[must_use]
    pub fn number(&self, field: &str) -> Option<i64> {
        self.fields[field].as_i64()
    }

    /// A text of the event, empty when it has none.
    #[must_use]
    pub fn text(&self, field: &str) -> &str {
        self.fields[field].as_str().unwrap_or("")
    }
}

/// Every event of a log file, in the order of the file. A line that a killed process left unfinished is
/// left out.
#[must_use]
pub fn read(path: &Path) -> Vec<Event> {
    let by = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let text = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|fields| {
            let name = fields["event"].as_str()?.to_owned();
            let at = fields["timestamp"].as_str()?.to_owned();
            Some(Event { at, name, by: by.clone(), fields })
        })
        .collect()
}

/// Every event of the `.log` files of a folder, by time.
///
/// # Panics
/// When the folder cannot be read.
#[must_use]
pub fn read_all(folder: &Path) -> Vec<Event> {
    let mut all: Vec<Event> = std::fs::read_dir(folder)
        .expect("the folder of the logs")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .flat_map(|path| read(&path))
        .collect();
    all.sort_by(|left, right| left.at.cmp(&right.at));
    all
}
