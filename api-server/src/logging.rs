//! Log lines on stderr: JSON or text, with a stable `event` in each.

use std::panic;

use powercontext_settings::{Log, LogFormat, Settings};
use tracing_subscriber::EnvFilter;

/// Starts logging for the whole process, panics included.
pub fn start(log: &Log) {
    // Dependencies speak only when something is wrong; the level is about this product.
    let filter = EnvFilter::new(format!("warn,powercontext={0},{1}", log.level, own_crates(&log.level)));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Json => lines.json().flatten_event(true).init(),
        LogFormat::Text => lines.init(),
    }
    // The message of a panic may quote what a user wrote; its place never does (TM-228).
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(event = "process.panic", place);
    }));
}

fn own_crates(level: &str) -> String {
    ["api_server", "core", "inference", "settings", "store", "supervisor", "worker"]
        .map(|name| format!("powercontext_{name}={level}"))
        .join(",")
}

/// Logs every setting as it took effect, one line each, without secrets (TM-229).
pub fn settings(settings: &Settings) {
    for one in settings.effective() {
        // Unset is a missing value, not an empty one.
        let (setting, value, origin) = (one.name.as_str(), one.value.as_deref(), one.origin);
        tracing::info!(event = "settings.effective", setting, value, origin);
    }
}
