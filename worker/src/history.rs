//! Recalls existing Topics for each Probe and loads the chosen ones (TM-089 to TM-092).
//!
//! How candidates are chosen is decided in `core::history`; the search is the store's. Reads are
//! free: nothing here writes or reserves (B-12).

use std::collections::BTreeSet;

use powercontext_core::analyzer::{self, Query};
use powercontext_core::fusion::{self, Fused};
use powercontext_core::history;
use powercontext_core::ids::{ArtifactId, ScopeId};
use powercontext_core::stages::Probe;
use powercontext_core::topic::{TopicContent, TopicRef};
use powercontext_store::{Store, StoreError, topics};

use crate::WorkerSettings;

/// An existing Topic at the exact Revision that this run works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current {
    /// The Revision an update would be based on.
    pub topic: TopicRef,
    /// Its content.
    pub content: TopicContent,
}

/// Searches with the whole of a text: every bounded query that covers it, fused (B-6).
pub(crate) async fn recall(store: &Store, scope: &ScopeId, text: &str) -> Result<Vec<Fused>, StoreError> {
    search(store, scope, analyzer::bounded_queries(text)).await
}

async fn search(store: &Store, scope: &ScopeId, queries: Vec<Query>) -> Result<Vec<Fused>, StoreError> {
    let mut lists = Vec::with_capacity(queries.len());
    for query in queries {
        lists.push(topics::recall(store, scope, &query, fusion::MAX_HITS).await?);
    }
    Ok(fusion::combine(&lists))
}

/// What one Probe recalls. Where fewer than `least` Topics have enough of its terms, the nearest that
/// have any of them follow, ranked behind, so that a small Scope's Topics are not hidden from a long
/// Probe (TM-092).
async fn recall_at_least(
    store: &Store,
    scope: &ScopeId,
    probe: &str,
    least: usize,
) -> Result<Vec<Fused>, StoreError> {
    let queries = analyzer::bounded_queries(probe);
    let mut recalled = search(store, scope, queries.clone()).await?;
    if recalled.len() >= least {
        return Ok(recalled);
    }
    let last = recalled.last().map_or(f64::INFINITY, |fused| fused.score);
    let known: BTreeSet<ArtifactId> = recalled.iter().map(|fused| fused.artifact_id.clone()).collect();
    let nearest = search(store, scope, queries.into_iter().map(Query::any).collect()).await?;
    let further = nearest.into_iter().filter(|fused| !known.contains(&fused.artifact_id));
    let missing = least - recalled.len();
    recalled.extend(further.take(missing).map(|fused| Fused { score: fused.score.min(last), ..fused }));
    Ok(recalled)
}

/// The existing Topics the model will see, best first.
pub(crate) async fn select(
    store: &Store,
    scope: &ScopeId,
    probes: &[Probe],
    settings: &WorkerSettings,
) -> Result<Vec<Current>, StoreError> {
    let queries: BTreeSet<&str> = probes.iter().map(|probe| probe.query.as_str()).collect();
    let mut per_probe = Vec::with_capacity(queries.len());
    for query in queries {
        per_probe.push(recall_at_least(store, scope, query, settings.history.min_candidates).await?);
    }
    load(store, scope, &history::select(&per_probe, &settings.history)).await
}

/// Loads current contents in the order of `ids`; an id without a Topic is left out.
pub(crate) async fn load(
    store: &Store,
    scope: &ScopeId,
    ids: &[ArtifactId],
) -> Result<Vec<Current>, StoreError> {
    let found = topics::current(store, scope, ids).await?;
    Ok(found.into_iter().map(|(topic, content)| Current { topic, content }).collect())
}
