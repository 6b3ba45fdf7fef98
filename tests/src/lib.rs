//! What the end-to-end tests share: a real server process, a plain HTTP client, table dumps, a
//! model endpoint that can misbehave, and the replayer of recorded exchanges.
//!
//! Nothing here is part of the product. Tests start only what they stop, by process id.

pub mod client;
pub mod model;
pub mod replay;
pub mod scene;
pub mod server;
pub mod tables;
