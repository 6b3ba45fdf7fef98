//! Reads the Sources behind the Cursor and chooses the Window.
//!
//! Measuring and choosing are decided in `core`; this module turns what cannot be processed here
//! into its code: a first Source that is too complex is terminal (TM-040, B-9), one that is too
//! large alone is more than the direct path takes. Sources are read a few at a time and no further
//! than the first one that ends the Window, so memory is bounded by the Window's own limits.

use powercontext_core::evidence::{self, ComplexityLimit};
use powercontext_core::ids::{SourceRef, Window};
use powercontext_core::window::{
    Candidate, CandidateSize, MAX_WINDOW_SOURCES, SelectionKind, WindowPolicy, select,
};
use powercontext_core::work::{ErrorCode, WorkAssignment};
use powercontext_store::Store;
use powercontext_store::sources::{self, ReadLimit, WindowSource};
use serde_json::Value;

use crate::WorkerSettings;
use crate::failure::WindowError;
use crate::progress::count;

/// Bytes of Source text that are read at once, unless one Source alone has more.
const READ_BYTES: u64 = 1 << 20;

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
    let policy = WindowPolicy::new(limit, settings.context_window_tokens);
    let (scope, after, target) = (&assignment.key.scope, assignment.source_after, assignment.wave_target);
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut read = Vec::new();
    let chosen = loop {
        let last = candidates.last().map_or(after, |candidate| candidate.position);
        let places = limit.saturating_sub(count(candidates.len()));
        let part = ReadLimit { sources: places, bytes: READ_BYTES };
        let rows = sources::window_candidates(store, scope, (last, target), part).await?;
        let found = !rows.is_empty();
        for row in rows {
            let position = row.position;
            let (source, size) = measured(row)?;
            candidates.push(Candidate { position, size });
            read.push(source);
        }
        let chosen = select(after, target, &candidates, &policy);
        let last = candidates.last().map_or(after, |candidate| candidate.position);
        let open = chosen
            .is_some_and(|chosen| chosen.kind == SelectionKind::Ordinary && chosen.window.through == last);
        if !found || !open || last >= target || candidates.len() >= limit as usize {
            break chosen;
        }
    };
    let Some(chosen) = chosen else { return Ok(None) };
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
    let unread = |source_ref| WindowSourceContent { source_ref, material: None };
    let Some(text) = row.text else {
        return Ok((unread(row.source_ref), CandidateSize::LineageOnly));
    };
    let parse = |text: &str| serde_json::from_str::<Value>(text);
    let metadata = text.metadata_json.as_deref().map(parse).transpose();
    let (Ok(content), Ok(metadata)) = (parse(&text.content_json), metadata) else {
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
