//! The one transaction that publishes a Window: Topics, lineage, search records, Cursor, Pending
//! and budget commit together, or nothing does (TM-157 to TM-160).
//!
//! What a Topic says and which one it updates was decided by the worker; here every right to write
//! is checked again: the term first and last, the attempt, the Cursor and each Head, each by a
//! statement that also locks its row, in the order every transaction follows. A Window outside its
//! wave and a projection that is not the one its content has are refused before that (TM-155).

use std::collections::BTreeSet;

use powercontext_core::ids::{ArtifactId, FlushGeneration, Position, Revision, SourceRef, Window};
use powercontext_core::projection::{TopicProjection, project};
use powercontext_core::topic::{FAMILY, TopicContent, TopicRef};
use powercontext_core::work::{ErrorCode, WorkMode};

use crate::active::ActiveScope;
use crate::budgets::{self, AttemptFence};
use crate::database::{Transaction, Twin, values};
use crate::{Store, StoreError, cursors, leases, pending};

/// Everything one Window publishes.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishRequest {
    /// The right to publish.
    pub attempt: AttemptFence,
    /// What the Cursor moves over; starts at the attempt's frontier.
    pub window: Window,
    /// Where the wave ends (TM-166).
    pub wave_target: Position,
    /// The flush generation the wave answers (TM-166).
    pub claimed_flush_generation: FlushGeneration,
    /// Why the Window is processed: only an explicit wave answers flushes, whatever an automatic one covers
    /// (TM-172, TM-212, TM-213).
    pub mode: WorkMode,
    /// The Topics; none for a Window without anything to keep.
    pub operations: Vec<TopicOperation>,
}

/// One Topic of a Window.
#[derive(Clone, Debug, PartialEq)]
pub enum TopicOperation {
    /// A new Topic; its first Revision is 1.
    Create {
        /// The identity it gets.
        artifact_id: ArtifactId,
        /// Its content.
        topic: PreparedTopic,
    },
    /// The next Revision of a Topic.
    Update {
        /// The Revision it was made from; must still be the Head.
        target: TopicRef,
        /// Its content.
        topic: PreparedTopic,
    },
}

/// A Topic's content with its evidence and search records, complete before the transaction (TM-154).
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedTopic {
    /// The complete content.
    pub content: TopicContent,
    /// The Sources this Revision directly used, in Journal order.
    pub sources: Vec<SourceRef>,
    /// What the content is searched by.
    pub projection: TopicProjection,
}

/// What a publish wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// New Topics.
    pub created: Vec<TopicRef>,
    /// Topics with a new Revision.
    pub updated: Vec<TopicRef>,
}

/// Why a Window was not published. Nothing was written, unless the store lost the answer to the commit.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The leadership term is over. Drop the work; retrying cannot help.
    #[error("the leadership term is over")]
    Fenced,
    /// A newer attempt of the frontier took over, or the frontier was published.
    #[error("a newer attempt took over")]
    AttemptSuperseded,
    /// The Cursor is no longer where the Window starts.
    #[error("the cursor is no longer at {expected}")]
    CursorConflict {
        /// Where the Window starts.
        expected: Position,
    },
    /// A Topic has another Head than the Revision it was updated from, or an identity is taken.
    #[error("the head of topic `{artifact_id}` moved")]
    HeadConflict {
        /// Which Topic.
        artifact_id: ArtifactId,
    },
    /// The Window is empty, goes backward or passes the end of its wave.
    #[error("the window ({}, {}] is empty or passes its wave's end at {wave_target}", window.after, window.through)]
    InvalidWindow {
        /// The Window.
        window: Window,
        /// Where its wave ends.
        wave_target: Position,
    },
    /// Two operations of the Window write the same Topic.
    #[error("the topic `{artifact_id}` is named twice")]
    TopicNamedTwice {
        /// Which Topic.
        artifact_id: ArtifactId,
    },
    /// A search projection is not the one its content has.
    #[error("the projection of topic `{artifact_id}` does not belong to its content")]
    InvalidProjection {
        /// Which Topic.
        artifact_id: ArtifactId,
    },
    /// The store failed.
    #[error("failed to publish a window")]
    Store(#[from] StoreError),
}

impl PublishError {
    /// The stable code for outcomes and logs.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Fenced => ErrorCode::Fenced,
            Self::AttemptSuperseded => ErrorCode::AttemptSuperseded,
            Self::CursorConflict { .. } => ErrorCode::CursorConflict,
            Self::HeadConflict { .. } => ErrorCode::HeadConflict,
            Self::InvalidWindow { .. } | Self::TopicNamedTwice { .. } | Self::InvalidProjection { .. } => {
                ErrorCode::DataInvalid
            }
            Self::Store(error) => error.code(),
        }
    }
}

/// Publishes a Window: its Topics become readable and the Cursor moves, at once and once only.
///
/// # Errors
/// [`PublishError`]; every table is as it was, unless the answer to the commit was lost.
pub async fn publish(store: &Store, request: &PublishRequest) -> Result<Published, PublishError> {
    check_window(request)?;
    check_topics(&request.operations)?;
    store.database.transact("publish", |tx| publish_in(tx, request)).await
}

async fn publish_in(mut tx: Transaction, request: &PublishRequest) -> Result<Published, PublishError> {
    match write(&mut tx, request).await {
        Ok(published) => {
            tx.commit().await.map_err(StoreError::at("publish"))?;
            Ok(published)
        }
        Err(error) => {
            tx.roll_back().await;
            Err(error)
        }
    }
}

async fn write(tx: &mut Transaction, request: &PublishRequest) -> Result<Published, PublishError> {
    let at = StoreError::at("publish.write");
    let attempt = &request.attempt;
    let key = &attempt.frontier.key;
    if !leases::is_current(tx, &attempt.fence).await.map_err(&at)? {
        return Err(PublishError::Fenced);
    }
    if !budgets::claim(tx, attempt).await.map_err(&at)? {
        return Err(PublishError::AttemptSuperseded);
    }
    let expected = request.window.after;
    if attempt.frontier.source_after != expected
        || !cursors::advance(tx, key, request.window).await.map_err(&at)?
    {
        return Err(PublishError::CursorConflict { expected });
    }
    advance_heads(tx, request).await?;
    let published = write_topics(tx, request).await?;
    if request.mode == WorkMode::Explicit {
        let wave = (request.wave_target, request.claimed_flush_generation);
        pending::answer(tx, key, request.window, wave).await.map_err(&at)?;
    }
    if !budgets::remove(tx, attempt).await.map_err(&at)? {
        return Err(PublishError::AttemptSuperseded);
    }
    if !leases::hold(tx, &attempt.fence).await.map_err(&at)? {
        return Err(PublishError::Fenced);
    }
    Ok(published)
}

/// A Window moves the Cursor forward and never past the end of its wave (TM-166).
fn check_window(request: &PublishRequest) -> Result<(), PublishError> {
    let PublishRequest { window, wave_target, .. } = request;
    if window.after < window.through && window.through <= *wave_target {
        return Ok(());
    }
    Err(PublishError::InvalidWindow { window: *window, wave_target: *wave_target })
}

/// Refuses a Topic that is named twice, and recomputes every projection (TM-155).
fn check_topics(operations: &[TopicOperation]) -> Result<(), PublishError> {
    let mut seen = BTreeSet::new();
    for operation in operations {
        let (artifact_id, topic) = operation.parts();
        if !seen.insert(artifact_id) {
            return Err(PublishError::TopicNamedTwice { artifact_id: artifact_id.clone() });
        }
        if project(&topic.content) != topic.projection {
            return Err(PublishError::InvalidProjection { artifact_id: artifact_id.clone() });
        }
    }
    Ok(())
}

/// Moves the Head of every updated Topic, ascending by identity so that two publishes never wait
/// for each other in a circle.
async fn advance_heads(tx: &mut Transaction, request: &PublishRequest) -> Result<(), PublishError> {
    let at = StoreError::at("publish.advance_heads");
    let mut targets: Vec<&TopicRef> = request
        .operations
        .iter()
        .filter_map(|operation| match operation {
            TopicOperation::Update { target, .. } => Some(target),
            TopicOperation::Create { .. } => None,
        })
        .collect();
    targets.sort_unstable();
    for target in targets {
        let affected = tx
            .execute(
                "UPDATE pc_artifact_heads SET revision = ? \
                 WHERE scope_id = ? AND family = ? AND artifact_id = ? AND revision = ?",
                values![
                    target.revision.next().get(),
                    request.attempt.frontier.key.scope.as_str(),
                    FAMILY,
                    target.artifact_id.as_str(),
                    target.revision.get()
                ],
            )
            .await
            .map_err(&at)?;
        if affected != 1 {
            return Err(PublishError::HeadConflict { artifact_id: target.artifact_id.clone() });
        }
    }
    Ok(())
}

async fn write_topics(tx: &mut Transaction, request: &PublishRequest) -> Result<Published, PublishError> {
    let scope = &request.attempt.frontier.key.scope;
    let mut published = Published::default();
    if request.operations.is_empty() {
        return Ok(published);
    }
    let mut active = ActiveScope::open(tx, scope).await?;
    for operation in &request.operations {
        match operation {
            TopicOperation::Create { artifact_id, topic } => {
                let topic_ref = TopicRef { artifact_id: artifact_id.clone(), revision: Revision::new(1) };
                insert_head(tx, scope.as_str(), artifact_id).await?;
                insert_revision(tx, scope.as_str(), &topic_ref, topic).await?;
                active.insert(tx, &topic_ref, topic).await?;
                published.created.push(topic_ref);
            }
            TopicOperation::Update { target, topic } => {
                let topic_ref =
                    TopicRef { artifact_id: target.artifact_id.clone(), revision: target.revision.next() };
                insert_revision(tx, scope.as_str(), &topic_ref, topic).await?;
                insert_basis(tx, scope.as_str(), &topic_ref, target).await?;
                active.replace(tx, &topic_ref, topic).await?;
                published.updated.push(topic_ref);
            }
        }
    }
    active.finish(tx).await?;
    Ok(published)
}

/// Makes the Head of a new Topic. The Cursor is held, so nobody else publishes in the Scope meanwhile.
async fn insert_head(
    tx: &mut Transaction,
    scope: &str,
    artifact_id: &ArtifactId,
) -> Result<(), PublishError> {
    let head = values![scope, FAMILY, artifact_id.as_str(), scope, FAMILY, artifact_id.as_str()];
    match tx.execute(FIRST_HEAD, head).await.map_err(StoreError::at("publish.insert_head"))? {
        1 => Ok(()),
        _ => Err(PublishError::HeadConflict { artifact_id: artifact_id.clone() }),
    }
}

/// OceanBase wants a table for every condition.
macro_rules! first_head {
    ($nowhere:literal) => {
        concat!(
            "INSERT INTO pc_artifact_heads (scope_id, family, artifact_id, revision) SELECT ?, ?, ?, 1",
            $nowhere,
            " WHERE NOT EXISTS (SELECT 1 FROM pc_artifact_heads AS known \
              WHERE known.scope_id = ? AND known.family = ? AND known.artifact_id = ?)"
        )
    };
}

const FIRST_HEAD: Twin = Twin { sqlite: first_head!(""), oceanbase: first_head!(" FROM dual") };

/// Writes an immutable Revision with its direct Sources and its publication time (TM-148, TM-150).
async fn insert_revision(
    tx: &mut Transaction,
    scope: &str,
    topic_ref: &TopicRef,
    topic: &PreparedTopic,
) -> Result<(), StoreError> {
    let at = StoreError::at("publish.insert_revision");
    let (id, revision) = (topic_ref.artifact_id.as_str(), topic_ref.revision.get());
    let content = serde_json::to_string(&topic.content)
        .map_err(|_| StoreError::invalid("a topic's content cannot be written as JSON"))?;
    tx.execute(
        "INSERT INTO pc_artifacts (scope_id, family, artifact_id, revision, content) VALUES (?, ?, ?, ?, ?)",
        values![scope, FAMILY, id, revision, content],
    )
    .await
    .map_err(&at)?;
    for (source, ordinal) in topic.sources.iter().zip(0_i64..) {
        tx.execute(
            "INSERT INTO pc_artifact_lineage_sources \
             (scope_id, family, artifact_id, revision, ordinal, source_type, source_id) \
             VALUES (?, ?, ?, ?, ?, ?, ?)",
            values![scope, FAMILY, id, revision, ordinal, &source.source_type, source.source_id.as_str()],
        )
        .await
        .map_err(&at)?;
    }
    tx.execute(PUBLISHED_NOW, values![scope, id, revision]).await.map_err(&at)?;
    Ok(())
}

/// Each database formats its own clock, both with milliseconds.
const PUBLISHED_NOW: Twin = Twin {
    sqlite: "INSERT INTO pc_topic_memory_revision_publications (scope_id, artifact_id, revision, published_at) \
        VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
    oceanbase: "INSERT INTO pc_topic_memory_revision_publications \
        (scope_id, artifact_id, revision, published_at) \
        VALUES (?, ?, ?, concat(left(date_format(utc_timestamp(6), '%Y-%m-%dT%H:%i:%s.%f'), 23), 'Z'))",
};

/// Notes the exact Revision an update was made from (TM-148).
async fn insert_basis(
    tx: &mut Transaction,
    scope: &str,
    topic_ref: &TopicRef,
    basis: &TopicRef,
) -> Result<(), StoreError> {
    tx.execute(
        "INSERT INTO pc_artifact_lineage_artifacts \
         (scope_id, family, artifact_id, revision, ordinal, based_on_family, based_on_artifact_id, \
         based_on_revision) VALUES (?, ?, ?, ?, 0, ?, ?, ?)",
        values![
            scope,
            FAMILY,
            topic_ref.artifact_id.as_str(),
            topic_ref.revision.get(),
            FAMILY,
            basis.artifact_id.as_str(),
            basis.revision.get()
        ],
    )
    .await
    .map_err(StoreError::at("publish.insert_basis"))?;
    Ok(())
}

impl TopicOperation {
    fn parts(&self) -> (&ArtifactId, &PreparedTopic) {
        match self {
            Self::Create { artifact_id, topic } => (artifact_id, topic),
            Self::Update { target, topic } => (&target.artifact_id, topic),
        }
    }
}
