//! The generation providers behind one trait; nothing else in the workspace knows a wire format.
//!
//! [`generator`] is the only way to get one: it validates the settings and refuses what is not
//! supported (TM-080). A provider carries one typed question and hands back the answer's text.
//! Reserving budget, retrying with a correction and validating answers are left to the worker;
//! no provider here ever sends a request twice (TM-079).

pub mod builtin;
mod config;
mod error;
mod generator;
mod openai;

pub use config::{ConfigurationError, ConfigurationField, GenerationConfig, generator};
pub use error::GenerationError;
pub use generator::{Correction, Generation, GenerationRequest, Generator, Usage};
pub use powercontext_core::stages::StructuredOutput;
