//! Log lines of every program of the fleet: JSON or text on stderr, panics included.
//!
//! Decides what may reach the log whatever a dependency says or a panic quotes (TM-228). Which event
//! has which fields is decided where it is logged.

use std::panic;

use powercontext_settings::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

/// Starts logging for the whole process.
pub fn start(log: &Log) {
    // Dependencies speak only when something is wrong; the level is about this product.
    let filter = EnvFilter::new(format!("warn,{}", own_crates(&log.level)));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Json => lines.json().flatten_event(true).init(),
        LogFormat::Text => lines.with_ansi(false).init(),
    }
    // The message of a panic may quote what a user or a model wrote; its place never does.
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(event = "process.panic", place);
    }));
}

fn own_crates(level: &str) -> String {
    ["api_server", "controller", "core", "inference", "program", "settings", "store", "supervisor", "worker"]
        .map(|name| format!("powercontext_{name}={level}"))
        .join(",")
}
