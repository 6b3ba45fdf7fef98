//! Recalls existing Topics for each Probe and loads the chosen ones (TM-089 to TM-092).
//!
//! How candidates are chosen is decided in `core::history`; the search is the store's. Reads are
//! free: nothing here writes or reserves (B-12).

use std::collections::BTreeSet;

use powercontext_core::analyzer;
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
    let mut lists = Vec::new();
    for query in analyzer::bounded_queries(text) {
        lists.push(topics::recall(store, scope, &query, fusion::MAX_HITS).await?);
    }
    Ok(fusion::combine(&lists))
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
        per_probe.push(recall(store, scope, query).await?);
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
