//! Asks what to look for among existing Topics: zero or more Probes (TM-087).
//!
//! A Probe is a query with its evidence; it carries no content and decides nothing (TM-088). The
//! search itself is done in `history`.

use std::collections::HashSet;

use powercontext_core::analyzer::MAX_QUERY_CHARS;
use powercontext_core::stages::{Probe, ProbeInput, ProbeOutput, Stage};
use serde_json::{Value, json};

use crate::drafts::{self, Problem};
use crate::evidence::EvidenceSet;
use crate::failure::WindowError;
use crate::generation::{Asker, Question};

/// The prompt text of this stage.
pub const INSTRUCTIONS: &str = include_str!("probe.md");

/// The JSON schema of [`ProbeOutput`].
#[must_use]
pub fn schema() -> Value {
    drafts::object(json!({
        "probes": {
            "type": "array",
            "items": drafts::object(json!({
                "query": { "type": "string" },
                "evidence_ids": drafts::evidence_ids_schema(),
            })),
        },
    }))
}

/// The question about one Window.
///
/// # Errors
/// [`WindowError`] when the evidence has no JSON form.
pub fn question(evidence: &EvidenceSet) -> Result<Question, WindowError> {
    let input = ProbeInput { sources: evidence.items().to_vec() };
    Question::new(Stage::Probe, INSTRUCTIONS, schema(), &input)
}

/// Checks the Probes of an answer.
///
/// # Errors
/// The first [`Problem`] found.
pub fn check(output: &ProbeOutput, known: &HashSet<&str>) -> Result<(), Problem> {
    for (index, probe) in output.probes.iter().enumerate() {
        let place = format!("`probes` entry {}", index + 1);
        drafts::check_text(&place, "query", &probe.query, MAX_QUERY_CHARS)?;
        drafts::check_ids(&place, &probe.evidence_ids, known)?;
    }
    Ok(())
}

pub(crate) async fn ask(asker: &Asker<'_>, evidence: &EvidenceSet) -> Result<Vec<Probe>, WindowError> {
    let known = evidence.known();
    let output: ProbeOutput = asker.ask(&question(evidence)?, |output| check(output, &known)).await?;
    Ok(output.probes)
}
