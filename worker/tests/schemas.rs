//! The schema of every stage is one that every provider enforces.

use powercontext_core::stages::Stage;
use powercontext_inference::require_strict;
use powercontext_worker::{global, probe, reconcile};
use serde_json::Value;

/// A new stage has to be named here before this compiles.
fn schema(stage: Stage) -> Value {
    match stage {
        Stage::Probe => probe::schema(),
        Stage::Global => global::schema(),
        Stage::Reconcile => reconcile::schema(),
    }
}

#[test]
fn the_schema_of_every_stage_is_strict() {
    for stage in [Stage::Probe, Stage::Global, Stage::Reconcile] {
        assert_eq!(require_strict(&schema(stage)), Ok(()), "{}", stage.as_str());
    }
}
