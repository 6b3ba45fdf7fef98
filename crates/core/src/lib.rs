//! What is true of PowerContext Fleet without a database, a network or a runtime.
//!
//! Pure rules and the words every other crate shares: identities, positions and Windows, the work
//! contract between supervisor and worker, and the typed stages a generator answers. Nothing here
//! does I/O; [`ambient`] alone names the clock and the source of ids that the programs inject.

pub mod ambient;
pub mod analyzer;
pub mod chunk;
pub mod content;
pub mod endpoint;
pub mod error_code;
pub mod evidence;
pub mod failure;
pub mod fusion;
pub mod history;
pub mod ids;
pub mod projection;
pub mod ranking;
pub mod secret;
pub mod snippet;
pub mod stages;
pub mod tokens;
pub mod topic;
pub mod window;
pub mod work;
