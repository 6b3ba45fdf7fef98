//! A [`Publisher`] over the store itself: captures one Source, starts an attempt and publishes, as a
//! worker of a term of its own would. Any supervisor of the server under test is fenced by it.

use async_trait::async_trait;
use powercontext_core::ambient::{IdSource, SystemIds};
use powercontext_core::content;
use powercontext_core::ids::{
    ArtifactId, AttemptId, BindingName, FlushGeneration, Revision, ScopeId, SourceId, SourceRef, Window,
};
use powercontext_core::projection::project;
use powercontext_core::topic::{BINDING, TopicRef};
use powercontext_core::work::{Fence, Frontier, WorkKey, WorkMode};
use powercontext_store::budgets::{AttemptFence, AttemptStart, start_attempt};
use powercontext_store::publish::{PreparedTopic, PublishRequest, TopicOperation, publish};
use powercontext_store::sources::{self, NewSource};
use powercontext_store::{Store, cursors};
use serde_json::json;

use crate::scene::new_term;

use super::{Publication, Published, Publisher};

/// Publishes into the database of the server under test.
pub struct ThroughStore {
    store: Store,
    fence: Fence,
}

impl ThroughStore {
    /// Takes the next term of the database.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn new(store: Store) -> Self {
        let fence = new_term(&store, &SystemIds.random().to_string()).await;
        Self { store, fence }
    }
}

#[async_trait]
impl Publisher for ThroughStore {
    async fn publish(&self, publication: Publication) -> Result<Published, String> {
        let source_id = format!("src_{}", SystemIds.random().simple());
        let scope = ScopeId::parse(publication.scope_id).map_err(text)?;
        let source = SourceId::parse(source_id.clone()).map_err(text)?;
        let key = WorkKey { binding: BindingName::parse(BINDING).map_err(text)?, scope: scope.clone() };
        let canonical = content::canonical(&json!(publication.content)).map_err(text)?;
        let new = NewSource {
            scope,
            source_id: source.clone(),
            content_digest: content::digest(&canonical),
            content_json: canonical,
            metadata_json: None,
        };
        let through = sources::add(&self.store, &new).await.map_err(text)?.position;
        let after = cursors::get(&self.store, &key).await.map_err(text)?;
        let attempt = AttemptFence {
            fence: self.fence.clone(),
            frontier: Frontier { key, source_after: after },
            attempt_id: AttemptId::parse(SystemIds.random().to_string()).map_err(text)?,
        };
        let start = start_attempt(&self.store, &self.fence, &attempt.frontier, &attempt.attempt_id);
        match start.await.map_err(text)? {
            AttemptStart::Started { .. } => {}
            refused => return Err(format!("no attempt: {refused:?}")),
        }
        let topic = PreparedTopic {
            projection: project(&publication.content),
            content: publication.content,
            sources: vec![SourceRef::content(source)],
        };
        let operation = match publication.replaces {
            None => TopicOperation::Create {
                artifact_id: ArtifactId::parse(format!("top_{}", SystemIds.random().simple()))
                    .map_err(text)?,
                topic,
            },
            Some((artifact_id, revision)) => TopicOperation::Update {
                target: TopicRef {
                    artifact_id: ArtifactId::parse(artifact_id).map_err(text)?,
                    revision: Revision::new(revision),
                },
                topic,
            },
        };
        let request = PublishRequest {
            attempt,
            window: Window { after, through },
            wave_target: through,
            claimed_flush_generation: FlushGeneration::new(0),
            mode: WorkMode::Explicit,
            operations: vec![operation],
        };
        let done = publish(&self.store, &request).await.map_err(text)?;
        let written = done.created.first().or(done.updated.first()).ok_or("nothing was published")?;
        Ok(Published {
            artifact_id: written.artifact_id.as_str().to_owned(),
            revision: written.revision.get(),
            source_ids: vec![source_id],
        })
    }
}

/// An error with its causes, for the report.
fn text(error: impl std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(": ");
        said.push_str(&error.to_string());
        cause = error.source();
    }
    said
}
