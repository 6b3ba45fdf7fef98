//! What the end-to-end tests share: a real server process, a fleet of processes with faults and the
//! checks of its final state, a plain HTTP client, table dumps, a model endpoint that can misbehave, and
//! the replayer of recorded exchanges.
//!
//! Nothing here is part of the product. Tests start only what they stop, by process id.

pub mod client;
pub mod engine;
pub mod events;
pub mod fleet;
pub mod model;
pub mod process;
pub mod proxy;
pub mod replay;
pub mod running;
pub mod scene;
pub mod server;
pub mod tables;
pub mod verdict;
pub mod watcher;
pub mod writers;
