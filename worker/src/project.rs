//! Prepares everything the publish transaction writes, outside of it (TM-154).
//!
//! Assigns identities to new Topics (TM-120), maps evidence to exact Sources (TM-044) and cuts the
//! retrieval projection. The write boundary recomputes the projection (TM-155).

use powercontext_core::ambient::IdSource;
use powercontext_core::ids::ArtifactId;
use powercontext_core::projection;
use powercontext_core::stages::TopicDraft;
use powercontext_core::work::ErrorCode;
use powercontext_store::publish::{PreparedTopic, TopicOperation};

use crate::drafts;
use crate::evidence::EvidenceSet;
use crate::failure::WindowError;
use crate::global::Plan;

/// Turns a plan into operations.
///
/// # Errors
/// `data_invalid` when a new identity cannot be formed.
pub(crate) fn operations(
    plan: Plan,
    evidence: &EvidenceSet,
    ids: &dyn IdSource,
) -> Result<Vec<TopicOperation>, WindowError> {
    let mut operations = Vec::with_capacity(plan.updates.len() + plan.creates.len());
    for update in plan.updates {
        let topic = prepare(&update.draft, evidence);
        operations.push(TopicOperation::Update { target: update.target.topic, topic });
    }
    for draft in plan.creates {
        let artifact_id = ArtifactId::parse(format!("top_{}", ids.ordered().simple()))
            .map_err(|_| ErrorCode::DataInvalid)?;
        operations.push(TopicOperation::Create { artifact_id, topic: prepare(&draft, evidence) });
    }
    Ok(operations)
}

fn prepare(draft: &TopicDraft, evidence: &EvidenceSet) -> PreparedTopic {
    let content = drafts::content(draft);
    let projection = projection::project(&content);
    PreparedTopic { content, sources: evidence.sources_of(&draft.evidence_ids), projection }
}
