//! What is actually sent to each provider over HTTP, and which class each of its replies becomes.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod anthropic;
mod classes;
mod configuration;
mod embeddings;
mod openai;
mod stub;
