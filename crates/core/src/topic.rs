//! What a Topic is: its three content fields, its exact references and the limits on both.
//!
//! One Topic Memory Artifact is one long-term topic (TM-009). How its text is cut for retrieval is
//! decided in `projection`; where it is stored is left to the store.

use serde::{Deserialize, Serialize};

use crate::ids::{ArtifactId, Revision};

/// The Artifact family of Topics (TM-008).
pub const FAMILY: &str = "topic-memory";
/// The binding that turns a Scope's Sources into Topics (TM-008).
pub const BINDING: &str = "topic-memory-source-window";

/// The largest title, in Unicode scalar values; longer ones break the public contract.
pub const MAX_TITLE_CHARS: usize = 512;
/// The largest summary, in Unicode scalar values.
pub const MAX_SUMMARY_CHARS: usize = 8_000;
/// The largest detail, in Unicode scalar values.
pub const MAX_DETAIL_CHARS: usize = 125_000;

/// The complete content of one Topic Revision; exactly these three fields (TM-010).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicContent {
    /// Short and distinguishing; not a unique key (TM-011).
    pub title: String,
    /// Lets a reader judge relevance quickly.
    pub summary: String,
    /// The complete body, Markdown.
    pub detail: String,
}

/// Names one exact Revision of one Topic of a Scope that the caller supplies (TM-013).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicRef {
    /// The stable identity.
    pub artifact_id: ArtifactId,
    /// The exact Revision.
    pub revision: Revision,
}

/// What one retrieval channel is called in results (TM-142, B-25).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// Full text over title and summary.
    TopicFts,
    /// Full text over detail chunks.
    DetailFts,
}
