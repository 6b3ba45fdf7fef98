//! Reading Topics: search, recall for processing, exact Revisions and current ones.
//!
//! Search reads the active records alone (TM-146); exact reads use the immutable Revisions. Which
//! hits matter to a worker, and limits on a user's query, are decided by the callers.

use std::collections::HashMap;

use powercontext_core::analyzer::Query;
use powercontext_core::fusion::{Fused, MAX_HITS, fuse};
use powercontext_core::ids::{ArtifactId, Revision, ScopeId, SourceId, SourceRef};
use powercontext_core::snippet::{Excerpt, MAX_SNIPPET_CHARS, around_hit_in};
use powercontext_core::topic::{Channel, FAMILY, TopicContent, TopicRef};

use crate::database::{Engine, Transaction, Value, placeholders, values};
use crate::fulltext::{self, Hit};
use crate::{Store, StoreError};

/// How many channels a full-text deployment has (TM-134).
const ENABLED_CHANNELS: usize = 2;

/// One Topic found by a search.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicHit {
    /// The exact current Revision.
    pub topic: TopicRef,
    /// Its title.
    pub title: String,
    /// Its summary.
    pub summary: String,
    /// A window of the best chunk around the hit; `None` when no chunk was hit (TM-147).
    pub snippet: Option<String>,
    /// Fused rank, 0 to 100.
    pub score: f64,
    /// The channels that hit.
    pub matched_by: Vec<Channel>,
}

/// One immutable Revision with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRevision {
    /// Which Revision.
    pub topic: TopicRef,
    /// Its complete content.
    pub content: TopicContent,
    /// The Sources it directly used, in Journal order.
    pub sources: Vec<SourceRef>,
    /// When it was published, by the database's clock: ISO 8601, UTC (TM-150).
    pub published_at: String,
}

/// The Topics that match best, best first; at most `limit` and never more than 20.
///
/// An unknown Scope has no Topics.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn recall(
    store: &Store,
    scope: &ScopeId,
    query: &Query,
    limit: usize,
) -> Result<Vec<Fused>, StoreError> {
    let mut reader = store.database.snapshot().await.map_err(StoreError::at("topics.recall"))?;
    Ok(find(&mut reader, scope, query, limit).await?.fused)
}

/// The Topics that match best with what a reader needs to judge them; at most `limit`, at most 20.
///
/// An unknown Scope has no Topics.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn search(
    store: &Store,
    scope: &ScopeId,
    query: &Query,
    limit: usize,
) -> Result<Vec<TopicHit>, StoreError> {
    let mut reader = store.database.snapshot().await.map_err(StoreError::at("topics.search"))?;
    let found = find(&mut reader, scope, query, limit).await?;
    if found.fused.is_empty() {
        return Ok(Vec::new());
    }
    let mut cards = cards(&mut reader, scope, &found.fused).await?;
    let mut surroundings = surroundings(&mut reader, scope, &found).await?;
    let mut hits = Vec::with_capacity(found.fused.len());
    for fused in found.fused {
        let card = cards
            .remove(fused.artifact_id.as_str())
            .ok_or(StoreError::invalid("a found topic has no active record"))?;
        let snippet = surroundings
            .remove(fused.artifact_id.as_str())
            .map(|around| around_hit_in(around.excerpt(), query));
        hits.push(TopicHit {
            topic: TopicRef { artifact_id: fused.artifact_id, revision: card.revision },
            title: card.title,
            summary: card.summary,
            snippet,
            score: fused.score,
            matched_by: fused.matched_by,
        });
    }
    Ok(hits)
}

/// One exact Revision, also when the Head is further; `None` when the Scope has no such Revision.
///
/// # Errors
/// [`StoreError`] when the database cannot be read or holds no valid content.
pub async fn get(
    store: &Store,
    scope: &ScopeId,
    topic: &TopicRef,
) -> Result<Option<TopicRevision>, StoreError> {
    let at = StoreError::at("topics.get");
    let (id, revision) = (topic.artifact_id.as_str(), topic.revision.get());
    let engine = store.database.engine();
    if !engine.tells_apart(scope.as_str()) || !engine.tells_apart(id) {
        return Ok(None);
    }
    let mut reader = store.database.snapshot().await.map_err(&at)?;
    let row = reader
        .query_one(
            "SELECT artifact.content, publication.published_at FROM pc_artifacts AS artifact \
             JOIN pc_topic_memory_revision_publications AS publication \
               ON publication.scope_id = artifact.scope_id \
               AND publication.artifact_id = artifact.artifact_id \
               AND publication.revision = artifact.revision \
             WHERE artifact.scope_id = ? AND artifact.family = ? AND artifact.artifact_id = ? \
               AND artifact.revision = ?",
            values![scope.as_str(), FAMILY, id, revision],
        )
        .await
        .map_err(&at)?;
    let Some(row) = row else { return Ok(None) };
    let rows = reader
        .query(
            "SELECT source_type, source_id FROM pc_artifact_lineage_sources \
             WHERE scope_id = ? AND family = ? AND artifact_id = ? AND revision = ? ORDER BY ordinal",
            values![scope.as_str(), FAMILY, id, revision],
        )
        .await
        .map_err(&at)?;
    let mut sources = Vec::with_capacity(rows.len());
    for source in &rows {
        let source_id = SourceId::parse(source.text(1).map_err(&at)?)
            .map_err(|_| StoreError::invalid("a lineage source id is not an identity"))?;
        sources.push(SourceRef { source_type: source.text(0).map_err(&at)?, source_id });
    }
    Ok(Some(TopicRevision {
        topic: topic.clone(),
        content: content(&row.text(0).map_err(&at)?)?,
        sources,
        published_at: row.text(1).map_err(&at)?,
    }))
}

/// The current Revisions of the given Topics, in the given order; unknown ones are left out.
///
/// # Errors
/// [`StoreError`] when the database cannot be read or holds no valid content.
pub async fn current(
    store: &Store,
    scope: &ScopeId,
    topics: &[ArtifactId],
) -> Result<Vec<(TopicRef, TopicContent)>, StoreError> {
    let at = StoreError::at("topics.current");
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let mut parameters = values![scope.as_str(), FAMILY];
    parameters.extend(topics.iter().map(|topic| Value::from(topic.as_str())));
    let mut reader = store.database.read().await.map_err(&at)?;
    let rows = reader
        .query(
            format!(
                "SELECT head.artifact_id, head.revision, artifact.content FROM pc_artifact_heads AS head \
                 JOIN pc_artifacts AS artifact ON artifact.scope_id = head.scope_id \
                   AND artifact.family = head.family AND artifact.artifact_id = head.artifact_id \
                   AND artifact.revision = head.revision \
                 WHERE head.scope_id = ? AND head.family = ? AND head.artifact_id IN ({})",
                placeholders(topics.len())
            ),
            parameters,
        )
        .await
        .map_err(&at)?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let artifact_id = artifact_id(row.text(0).map_err(&at)?)?;
        let revision = Revision::new(row.integer(1).map_err(&at)?);
        let content = content(&row.text(2).map_err(&at)?)?;
        found.insert(artifact_id.as_str().to_owned(), (TopicRef { artifact_id, revision }, content));
    }
    Ok(topics.iter().filter_map(|topic| found.get(topic.as_str()).cloned()).collect())
}

struct Found {
    fused: Vec<Fused>,
    chunks: Vec<Hit>,
}

/// Runs every channel, fuses them by rank and keeps the best (TM-141).
async fn find(
    reader: &mut Transaction,
    scope: &ScopeId,
    query: &Query,
    limit: usize,
) -> Result<Found, StoreError> {
    let Some(scope_key) = fulltext::scope_key(reader, scope).await? else {
        return Ok(Found { fused: Vec::new(), chunks: Vec::new() });
    };
    let topics = fulltext::channel(reader, Channel::TopicFts, (scope, scope_key), query).await?;
    let chunks = fulltext::channel(reader, Channel::DetailFts, (scope, scope_key), query).await?;
    let ranked = |hits: &[Hit]| hits.iter().map(|hit| hit.artifact_id.clone()).collect::<Vec<_>>();
    let channels = [(Channel::TopicFts, ranked(&topics)), (Channel::DetailFts, ranked(&chunks))];
    let mut fused = fuse(&channels, ENABLED_CHANNELS);
    fused.truncate(limit.min(MAX_HITS));
    Ok(Found { fused, chunks })
}

struct Card {
    revision: Revision,
    title: String,
    summary: String,
}

async fn cards(
    reader: &mut Transaction,
    scope: &ScopeId,
    fused: &[Fused],
) -> Result<HashMap<String, Card>, StoreError> {
    let at = StoreError::at("topics.cards");
    let mut parameters = values![scope.as_str()];
    parameters.extend(fused.iter().map(|hit| Value::from(hit.artifact_id.as_str())));
    let rows = reader
        .query(
            format!(
                "SELECT artifact_id, revision, title, summary FROM pc_topic_memory_active_topics \
                 WHERE scope_id = ? AND artifact_id IN ({})",
                placeholders(fused.len())
            ),
            parameters,
        )
        .await
        .map_err(&at)?;
    let mut cards = HashMap::with_capacity(rows.len());
    for row in &rows {
        let card = Card {
            revision: Revision::new(row.integer(1).map_err(&at)?),
            title: row.text(2).map_err(&at)?,
            summary: row.text(3).map_err(&at)?,
        };
        cards.insert(row.text(0).map_err(&at)?, card);
    }
    Ok(cards)
}

/// A hit chunk with what stands around it in the detail.
struct Surrounding {
    text: String,
    cut_before: bool,
    cut_after: bool,
}

impl Surrounding {
    fn excerpt(&self) -> Excerpt<'_> {
        Excerpt { text: &self.text, cut_before: self.cut_before, cut_after: self.cut_after }
    }
}

/// The best chunk of every kept Topic that a chunk was hit of (TM-140), with one snippet's length of
/// the detail on both sides, so that a snippet can be expanded around the hit (TM-131).
async fn surroundings(
    reader: &mut Transaction,
    scope: &ScopeId,
    found: &Found,
) -> Result<HashMap<String, Surrounding>, StoreError> {
    let at = StoreError::at("topics.surroundings");
    let kept = |hit: &&Hit| found.fused.iter().any(|fused| fused.artifact_id == hit.artifact_id);
    let keys: Vec<Value> = found.chunks.iter().filter(kept).map(|hit| hit.key.into()).collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let margin = i64::try_from(MAX_SNIPPET_CHARS).unwrap_or(i64::MAX);
    let text = surroundings_text(reader.engine(), keys.len());
    let mut parameters = values![margin, margin, FAMILY, scope.as_str()];
    parameters.extend(keys);
    let rows = reader.query(text, parameters).await.map_err(&at)?;
    let mut surroundings = HashMap::with_capacity(rows.len());
    for row in &rows {
        let around = Surrounding {
            text: row.text(1).map_err(&at)?,
            cut_before: row.integer(2).map_err(&at)? != 0,
            cut_after: row.integer(3).map_err(&at)? != 0,
        };
        surroundings.insert(row.text(0).map_err(&at)?, around);
    }
    Ok(surroundings)
}

/// Offsets are characters; `first` is the 0-based place where the excerpt begins. The databases name
/// the functions differently and agree on everything else.
pub(crate) fn surroundings_text(engine: Engine, keys: usize) -> String {
    let (detail, largest, length) = match engine {
        Engine::Sqlite => ("artifact.content ->> '$.detail'", "max", "length"),
        Engine::OceanBase => {
            ("json_unquote(json_extract(artifact.content, '$.detail'))", "greatest", "char_length")
        }
    };
    format!(
        "WITH hit AS ( \
          SELECT chunk.artifact_id AS artifact_id, {detail} AS detail, \
            {largest}(chunk.body_position - ?, 0) AS first, \
            chunk.body_position + {length}(chunk.body) + ? AS past \
          FROM pc_topic_memory_active_chunks AS chunk \
          JOIN pc_artifacts AS artifact ON artifact.scope_id = chunk.scope_id \
            AND artifact.family = ? AND artifact.artifact_id = chunk.artifact_id \
            AND artifact.revision = chunk.revision \
          WHERE chunk.scope_id = ? AND chunk.chunk_key IN ({})) \
        SELECT artifact_id, substr(detail, first + 1, past - first), first > 0, past < {length}(detail) FROM hit",
        placeholders(keys)
    )
}

fn artifact_id(text: String) -> Result<ArtifactId, StoreError> {
    ArtifactId::parse(text).map_err(|_| StoreError::invalid("a stored artifact id is not an identity"))
}

fn content(text: &str) -> Result<TopicContent, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::invalid("a stored topic has no valid content"))
}
