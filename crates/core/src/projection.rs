//! What full text indexes of one Topic Revision.
//!
//! Decides that title and summary make one text and every detail chunk another (TM-134, TM-138), and
//! that no title is put before a chunk (TM-136). The same content always gives the same projection:
//! the store computes it again and refuses a Revision whose projection differs. A projection can be
//! rebuilt at any time and is no part of the public Topic (TM-129).

use crate::topic::TopicContent;
use crate::{analyzer, chunk};

/// The rebuildable index entries of one Revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicProjection {
    /// The terms of title and summary, joined by one space.
    pub topic_terms: String,
    /// The detail's chunks in order.
    pub chunks: Vec<ChunkProjection>,
}

/// The index entry of one detail chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkProjection {
    /// Counts from 0 in the order of the detail.
    pub ordinal: u32,
    /// Where the chunk starts, in Unicode scalar values of the detail.
    pub position: usize,
    /// Exactly that part of the detail.
    pub text: String,
    /// The terms of the chunk, joined by one space.
    pub terms: String,
}

/// The projection of `content` under the current analyzer and chunk policy.
#[must_use]
pub fn project(content: &TopicContent) -> TopicProjection {
    let chunks = chunk::chunks(&content.detail)
        .into_iter()
        .map(|chunk| ChunkProjection {
            ordinal: chunk.ordinal,
            position: chunk.position,
            terms: analyzer::index_text(&chunk.text),
            text: chunk.text,
        })
        .collect();
    TopicProjection {
        topic_terms: analyzer::index_text(&format!("{}\n{}", content.title, content.summary)),
        chunks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(detail: &str) -> TopicContent {
        TopicContent {
            title: "Deployment".into(),
            summary: "How the chart runs.".into(),
            detail: detail.into(),
        }
    }

    // TM-134, TM-138
    #[test]
    fn title_and_summary_are_one_text_and_every_chunk_another() {
        let projection = project(&content(&vec!["kestrel ".repeat(100); 3].join("\n\n")));
        assert_eq!(projection.topic_terms, "deployment how the chart runs");
        assert_eq!(projection.chunks.len(), 3);
        assert!(projection.chunks.iter().all(|chunk| chunk.terms.starts_with("kestrel kestrel")));
    }

    // TM-136
    #[test]
    fn a_chunk_has_its_own_heading_but_never_the_title() {
        let projection = project(&content("# Rollout\nWait."));
        assert_eq!(projection.chunks[0].text, "# Rollout\nWait.");
        assert_eq!(projection.chunks[0].terms, "rollout wait");
    }

    // TM-129
    #[test]
    fn the_same_content_gives_the_same_projection() {
        let content = content("Run the kestrel job first. 数据库备份。");
        assert_eq!(project(&content), project(&content));
    }
}
