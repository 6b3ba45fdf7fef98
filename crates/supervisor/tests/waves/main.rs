//! Automatic waves, told step by step with handmade facts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code may panic")]

mod calls;
mod held_up;
mod members;
mod scene;
