//! The searchable records of current Topic Revisions: rows, posting lists and counts (TM-151 to TM-153).
//!
//! Written only inside the publish transaction, whole Revisions at a time, so no search ever sees
//! a part of one (TM-156, TM-159). Replacing a Revision removes every posting of the old one.

use powercontext_core::ids::ScopeId;
use powercontext_core::topic::TopicRef;

use crate::database::{Transaction, values};
use crate::fulltext::{self, CHUNKS_PER_TOPIC};
use crate::publish::PreparedTopic;
use crate::{DatabaseError, StoreError};

/// The Scope whose records are written, with the number its terms carry.
pub(crate) struct ActiveScope<'a> {
    scope: &'a ScopeId,
    scope_key: i64,
    topics: i64,
    chunks: i64,
}

impl<'a> ActiveScope<'a> {
    /// Looks the Scope up; a Scope that publishes exists.
    pub(crate) async fn open(tx: &mut Transaction, scope: &'a ScopeId) -> Result<Self, StoreError> {
        let scope_key = fulltext::scope_key(tx, scope)
            .await?
            .ok_or(StoreError::invalid("a scope that publishes does not exist"))?;
        Ok(Self { scope, scope_key, topics: 0, chunks: 0 })
    }

    /// Makes the first Revision of a Topic searchable.
    pub(crate) async fn insert(
        &mut self,
        tx: &mut Transaction,
        topic: &TopicRef,
        prepared: &PreparedTopic,
    ) -> Result<(), StoreError> {
        let at = StoreError::at("active.insert");
        let row = tx
            .query_one(
                "INSERT INTO pc_topic_memory_active_topics \
                 (scope_id, artifact_id, revision, title, summary, source_count, terms) \
                 VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING topic_key",
                values![
                    self.scope.as_str(),
                    topic.artifact_id.as_str(),
                    topic.revision.get(),
                    &prepared.content.title,
                    &prepared.content.summary,
                    count(prepared.sources.len()),
                    &prepared.projection.topic_terms
                ],
            )
            .await
            .map_err(&at)?
            .ok_or(StoreError::invalid("an active topic vanished while it was written"))?;
        let topic_key = row.integer(0).map_err(&at)?;
        self.topics += 1;
        self.insert_postings(tx, topic_key, topic, prepared).await.map_err(&at)
    }

    /// Makes the next Revision of a Topic searchable instead of the one before.
    pub(crate) async fn replace(
        &mut self,
        tx: &mut Transaction,
        topic: &TopicRef,
        prepared: &PreparedTopic,
    ) -> Result<(), StoreError> {
        let at = StoreError::at("active.replace");
        let row = tx
            .query_one(
                "UPDATE pc_topic_memory_active_topics \
                 SET revision = ?, title = ?, summary = ?, source_count = ?, terms = ? \
                 WHERE scope_id = ? AND artifact_id = ? RETURNING topic_key",
                values![
                    topic.revision.get(),
                    &prepared.content.title,
                    &prepared.content.summary,
                    count(prepared.sources.len()),
                    &prepared.projection.topic_terms,
                    self.scope.as_str(),
                    topic.artifact_id.as_str()
                ],
            )
            .await
            .map_err(&at)?
            .ok_or(StoreError::invalid("a topic with a head has no active record"))?;
        let topic_key = row.integer(0).map_err(&at)?;
        self.remove_postings(tx, topic_key).await.map_err(&at)?;
        self.insert_postings(tx, topic_key, topic, prepared).await.map_err(&at)
    }

    /// Adds what was written to the Scope's counts.
    pub(crate) async fn finish(self, tx: &mut Transaction) -> Result<(), StoreError> {
        let at = StoreError::at("active.finish");
        tx.execute(
            "INSERT INTO pc_topic_memory_scope_statistics (scope_id, topics, chunks) VALUES (?, 0, 0) \
             ON CONFLICT (scope_id) DO NOTHING",
            values![self.scope.as_str()],
        )
        .await
        .map_err(&at)?;
        tx.execute(
            "UPDATE pc_topic_memory_scope_statistics SET topics = topics + ?, chunks = chunks + ? \
             WHERE scope_id = ?",
            values![self.topics, self.chunks, self.scope.as_str()],
        )
        .await
        .map_err(&at)?;
        Ok(())
    }

    async fn remove_postings(&mut self, tx: &mut Transaction, topic_key: i64) -> Result<(), DatabaseError> {
        let (first, last) = chunk_keys(topic_key);
        tx.execute("DELETE FROM pc_topic_memory_topic_fts WHERE rowid = ?", values![topic_key]).await?;
        tx.execute("DELETE FROM pc_topic_memory_chunk_fts WHERE rowid BETWEEN ? AND ?", values![first, last])
            .await?;
        let removed = tx
            .execute(
                "DELETE FROM pc_topic_memory_active_chunks WHERE chunk_key BETWEEN ? AND ?",
                values![first, last],
            )
            .await?;
        self.chunks -= i64::try_from(removed).unwrap_or(i64::MAX);
        Ok(())
    }

    async fn insert_postings(
        &mut self,
        tx: &mut Transaction,
        topic_key: i64,
        topic: &TopicRef,
        prepared: &PreparedTopic,
    ) -> Result<(), DatabaseError> {
        tx.execute(
            "INSERT INTO pc_topic_memory_topic_fts (rowid, terms) VALUES (?, ?)",
            values![topic_key, fulltext::scoped_terms(self.scope_key, &prepared.projection.topic_terms)],
        )
        .await?;
        let (first, _) = chunk_keys(topic_key);
        for chunk in &prepared.projection.chunks {
            let chunk_key = first + i64::from(chunk.ordinal);
            tx.execute(
                "INSERT INTO pc_topic_memory_active_chunks \
                 (chunk_key, scope_id, artifact_id, revision, ordinal, body_position, body, terms) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values![
                    chunk_key,
                    self.scope.as_str(),
                    topic.artifact_id.as_str(),
                    topic.revision.get(),
                    i64::from(chunk.ordinal),
                    count(chunk.position),
                    &chunk.text,
                    &chunk.terms
                ],
            )
            .await?;
            tx.execute(
                "INSERT INTO pc_topic_memory_chunk_fts (rowid, terms) VALUES (?, ?)",
                values![chunk_key, fulltext::scoped_terms(self.scope_key, &chunk.terms)],
            )
            .await?;
            self.chunks += 1;
        }
        Ok(())
    }
}

/// The first and the last key the chunks of a Topic may have.
fn chunk_keys(topic_key: i64) -> (i64, i64) {
    let first = topic_key * CHUNKS_PER_TOPIC;
    (first, first + CHUNKS_PER_TOPIC - 1)
}

fn count(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
