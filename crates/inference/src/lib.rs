//! The model providers behind two traits; nothing else in the workspace knows a wire format.
//!
//! [`generator`] and [`embedder`] are the only ways to get one: they validate the settings and refuse
//! what is not supported (TM-080). A generator carries one typed question and hands back the answer's
//! text; an embedder maps texts to vectors. Reserving budget, retrying with a correction and
//! validating answers are left to the worker; no provider here ever sends a request twice (TM-079).

mod anthropic;
mod batch;
pub mod builtin;
mod config;
mod embedder;
mod error;
mod generator;
mod hashing;
mod headers;
mod json;
mod openai;
mod openai_embeddings;
mod remote;
mod reply;
mod retry_after;
mod schema;
mod settings;
mod transport;
mod wording;

pub use config::{ConfigurationError, ConfigurationField, GenerationConfig, generator};
pub use embedder::{
    Embedder, EmbeddingConfig, EmbeddingError, EmbeddingFailure, Embeddings, InvalidVectors, Spent, embedder,
};
pub use error::GenerationError;
pub use generator::{Correction, Generation, GenerationRequest, Generator, Usage};
pub use powercontext_core::endpoint::{Normalization, OutputLimit};
pub use powercontext_core::stages::StructuredOutput;
pub use schema::{NotStrict, require_strict};
