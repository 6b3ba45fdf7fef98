//! Reads the Sources behind the Cursor and chooses the Window.
//!
//! Measuring and choosing are decided in `core`; this module turns what cannot be processed here
//! into its code: a first Source that is too complex is terminal (TM-040, B-9), one that is too
//! large alone is more than the direct path takes.

use powercontext_core::evidence::{self, ComplexityLimit};
use powercontext_core::ids::{SourceRef, Window};
use powercontext_core::window::{
    Candidate, CandidateSize, MAX_WINDOW_SOURCES, SelectionKind, WindowPolicy, select,
};
use powercontext_core::work::{ErrorCode, WorkAssignment};
use powercontext_store::Store;
use powercontext_store::sources::{self, WindowSource};
use serde_json::Value;

use crate::WorkerSettings;
use crate::failure::WindowError;

/// A Window with its Sources in Journal order.
#[derive(Clone, Debug)]
pub struct SelectedWindow {
    /// The positions.
    pub window: Window,
    /// Every Source of the Window.
    pub sources: Vec<WindowSourceContent>,
}

/// One Source of the Window.
#[derive(Clone, Debug)]
pub struct WindowSourceContent {
    /// Its exact name.
    pub source_ref: SourceRef,
    /// What a model may read; `None` for a `lineage_only` Source (TM-036).
    pub material: Option<Material>,
}

/// The readable part of a Source.
#[derive(Clone, Debug)]
pub struct Material {
    /// The captured content.
    pub content: Value,
    /// The captured metadata.
    pub metadata: Option<Value>,
}

/// Chooses the next Window, or `None` when nothing up to the wave target is left.
///
/// # Errors
/// `source_complexity_limit`, `source_over_budget` or the store's own code.
pub(crate) async fn next_window(
    store: &Store,
    assignment: &WorkAssignment,
    settings: &WorkerSettings,
) -> Result<Option<SelectedWindow>, WindowError> {
    let limit = settings.source_window_limit.clamp(1, MAX_WINDOW_SOURCES);
    let rows =
        sources::window_candidates(store, &assignment.key.scope, assignment.source_after, limit).await?;
    let mut candidates = Vec::with_capacity(rows.len());
    let mut read = Vec::with_capacity(rows.len());
    for row in rows.into_iter().take_while(|row| row.position <= assignment.wave_target) {
        let position = row.position;
        let (source, size) = measured(row)?;
        candidates.push(Candidate { position, size });
        read.push(source);
        if size == CandidateSize::TooComplex {
            break;
        }
    }
    let policy = WindowPolicy::new(limit, settings.context_window_tokens);
    let Some(chosen) = select(assignment.source_after, assignment.wave_target, &candidates, &policy) else {
        return Ok(None);
    };
    match chosen.kind {
        SelectionKind::Ordinary => {}
        SelectionKind::Oversized => return Err(ErrorCode::SourceOverBudget.into()),
        SelectionKind::TooComplex => return Err(ErrorCode::SourceComplexityLimit.into()),
    }
    let inside = candidates.iter().filter(|one| one.position <= chosen.window.through).count();
    read.truncate(inside);
    Ok(Some(SelectedWindow { window: chosen.window, sources: read }))
}

/// Reads and measures one Source. A text too deep for the JSON reader is too complex as well: the
/// reader's own depth limit is far beyond the product's.
fn measured(row: WindowSource) -> Result<(WindowSourceContent, CandidateSize), WindowError> {
    if row.lineage_only {
        let source = WindowSourceContent { source_ref: row.source_ref, material: None };
        return Ok((source, CandidateSize::LineageOnly));
    }
    let unread = |source_ref| WindowSourceContent { source_ref, material: None };
    let parse = |text: &str| serde_json::from_str::<Value>(text);
    let metadata = row.metadata_json.as_deref().map(parse).transpose();
    let (Ok(content), Ok(metadata)) = (parse(&row.content_json), metadata) else {
        return Ok((unread(row.source_ref), CandidateSize::TooComplex));
    };
    match evidence::measure(&content, metadata.as_ref()) {
        Ok(size) => {
            let material = Some(Material { content, metadata });
            Ok((WindowSourceContent { source_ref: row.source_ref, material }, CandidateSize::Fits(size)))
        }
        Err(ComplexityLimit::NotCanonical) => Err(ErrorCode::DataInvalid.into()),
        Err(
            ComplexityLimit::Visited
            | ComplexityLimit::Depth
            | ComplexityLimit::TextChars
            | ComplexityLimit::SerializedChars,
        ) => Ok((unread(row.source_ref), CandidateSize::TooComplex)),
    }
}
