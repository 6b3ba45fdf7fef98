//! The typed questions a generator answers, as they travel: the input and output of each stage.
//!
//! The worker builds the inputs and validates the outputs; a provider only carries them. Outputs
//! are data from outside: these types refuse unknown and missing fields, and everything that
//! depends on the request (known evidence, slot counts, limits) is checked by the worker.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The stages that call a generator on the direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Reads the Window and yields search Probes (TM-087).
    Probe,
    /// Reads the Window and the selected Topics and yields final content (TM-095).
    Global,
    /// Merges new Topics of this round with each other or with one Topic (TM-116).
    Reconcile,
}

impl Stage {
    /// The stable name used in logs, outcomes and provider requests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Global => "global",
            Self::Reconcile => "reconcile",
        }
    }
}

/// How a compatible endpoint is asked for JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StructuredOutput {
    /// The endpoint enforces the schema (`json_schema`, strict).
    #[default]
    JsonSchema,
    /// The endpoint only promises JSON; the schema is part of the instructions.
    JsonObject,
}

/// One Source of the Window as a model sees it (TM-042).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceItem {
    /// Operation-local name: `s1`, `s2`, ... in Journal order.
    pub evidence_id: String,
    /// The captured content; a JSON string for plain text.
    pub content: Value,
    /// The capture's metadata, absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Content for one Topic with the evidence it used (TM-126).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicDraft {
    /// See [`crate::topic::TopicContent::title`].
    pub title: String,
    /// See [`crate::topic::TopicContent::summary`].
    pub summary: String,
    /// See [`crate::topic::TopicContent::detail`].
    pub detail: String,
    /// The evidence ids this content actually used; never empty, each once.
    pub evidence_ids: Vec<String>,
}

/// Input of [`Stage::Probe`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeInput {
    /// The Window's eligible Sources in Journal order.
    pub sources: Vec<EvidenceItem>,
}

/// Output of [`Stage::Probe`]: zero or more Probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeOutput {
    /// What to look for among existing Topics.
    pub probes: Vec<Probe>,
}

/// A semantic query with the evidence it came from; carries no content and decides nothing (TM-088).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// A sentence or keywords.
    pub query: String,
    /// The Sources behind it; never empty, each once.
    pub evidence_ids: Vec<String>,
}

/// An existing Topic offered for update; its place in the list is its only name (TM-127).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// 1-based place; the output's `updates` has the same order and length.
    pub slot: u32,
    /// Current title.
    pub title: String,
    /// Current summary.
    pub summary: String,
    /// Current complete body.
    pub detail: String,
}

/// Input of [`Stage::Global`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalInput {
    /// The Window's eligible Sources in Journal order.
    pub sources: Vec<EvidenceItem>,
    /// The selected Topics, best first.
    pub slots: Vec<Slot>,
}

/// Output of [`Stage::Global`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalOutput {
    /// One entry per slot: a complete rewrite, or null to leave that Topic alone.
    pub updates: Vec<Option<TopicDraft>>,
    /// Topics that did not exist before.
    pub new_topics: Vec<TopicDraft>,
}

/// Input of [`Stage::Reconcile`]: one related group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconcileInput {
    /// New Topics of this round that may belong together; at least one.
    pub creates: Vec<TopicDraft>,
    /// The one existing Topic they may belong to (slot 1); new Topics without one are not asked about.
    pub existing: Slot,
}

/// Output of [`Stage::Reconcile`]. Every input evidence id must appear in it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconcileOutput {
    /// A complete rewrite of the existing Topic, or null to leave it alone; must be written.
    #[serde(deserialize_with = "Option::deserialize")]
    pub update: Option<TopicDraft>,
    /// The Topics that stay new, merged where they were the same.
    pub creates: Vec<TopicDraft>,
}
