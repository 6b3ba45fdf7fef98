//! What the server logs about itself; how lines look and what may never be in one is decided with
//! the workers' log, which goes to the same place.

use powercontext_settings::Settings;
pub use powercontext_worker::logging::start;

/// Logs every setting as it took effect, one line each, without secrets (TM-229).
pub fn settings(settings: &Settings) {
    for one in settings.effective() {
        // Unset is a missing value, not an empty one.
        let (setting, value, origin) = (one.name.as_str(), one.value.as_deref(), one.origin);
        tracing::info!(event = "settings.effective", setting, value, origin);
    }
}
