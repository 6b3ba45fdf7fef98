//! The searchable records of current Topic Revisions: rows, posting lists and counts (TM-151 to TM-153).
//!
//! Written only inside the publish transaction, whole Revisions at a time, so no search ever sees
//! a part of one (TM-156, TM-159). Replacing a Revision removes every posting of the old one.

use powercontext_core::ids::ScopeId;
use powercontext_core::projection::ChunkProjection;
use powercontext_core::topic::TopicRef;

use crate::database::{Engine, Transaction, Twin, Value, values};
use crate::fulltext::{self, CHUNKS_PER_TOPIC};
use crate::publish::PreparedTopic;
use crate::{DatabaseError, StoreError};

/// How many chunks one statement writes on OceanBase.
const CHUNKS_PER_STATEMENT: usize = 32;

/// The Scope whose records are written, with the number its terms carry.
pub(crate) struct ActiveScope<'a> {
    scope: &'a ScopeId,
    scope_key: i64,
    /// The newest topic key of the Scope; SQLite hands out its own.
    topic_keys: i64,
    topics: i64,
    chunks: i64,
}

/// One Revision with the key its records get.
struct Record<'a> {
    key: i64,
    topic: &'a TopicRef,
    prepared: &'a PreparedTopic,
}

impl<'a> ActiveScope<'a> {
    /// Looks the Scope up; a Scope that publishes exists. Holds its counts until the commit.
    pub(crate) async fn open(tx: &mut Transaction, scope: &'a ScopeId) -> Result<Self, StoreError> {
        let at = StoreError::at("active.open");
        let scope_key = fulltext::scope_key(tx, scope)
            .await?
            .ok_or(StoreError::invalid("a scope that publishes does not exist"))?;
        tx.execute(FIRST_STATISTICS, values![scope.as_str()]).await.map_err(&at)?;
        let topic_keys = match tx.engine() {
            Engine::Sqlite => 0,
            Engine::OceanBase => {
                let row = tx.query_one(LOCK_TOPIC_KEYS, values![scope.as_str()]).await.map_err(&at)?;
                row.map_or(Ok(0), |row| row.integer(0)).map_err(&at)?
            }
        };
        Ok(Self { scope, scope_key, topic_keys, topics: 0, chunks: 0 })
    }

    /// Makes the first Revision of a Topic searchable.
    pub(crate) async fn insert(
        &mut self,
        tx: &mut Transaction,
        topic: &TopicRef,
        prepared: &PreparedTopic,
    ) -> Result<(), StoreError> {
        let at = StoreError::at("active.insert");
        let mut parameters = values![
            self.scope.as_str(),
            topic.artifact_id.as_str(),
            topic.revision.get(),
            &prepared.content.title,
            &prepared.content.summary,
            count(prepared.sources.len()),
            &prepared.projection.topic_terms
        ];
        let key = match tx.engine() {
            Engine::Sqlite => {
                let row = tx.query_one(INSERT_TOPIC, parameters).await.map_err(&at)?;
                row.ok_or(StoreError::invalid("an active topic vanished while it was written"))?
                    .integer(0)
                    .map_err(&at)?
            }
            Engine::OceanBase => {
                self.topic_keys += 1;
                parameters.push(self.topic_keys.into());
                parameters.push(self.topic_postings(prepared).into());
                tx.execute(INSERT_TOPIC_WITH_KEY, parameters).await.map_err(&at)?;
                self.topic_keys
            }
        };
        self.topics += 1;
        self.insert_chunks(tx, &Record { key, topic, prepared }).await.map_err(&at)
    }

    /// Makes the next Revision of a Topic searchable instead of the one before.
    pub(crate) async fn replace(
        &mut self,
        tx: &mut Transaction,
        topic: &TopicRef,
        prepared: &PreparedTopic,
    ) -> Result<(), StoreError> {
        let at = StoreError::at("active.replace");
        let scope = self.scope.as_str();
        let row = tx
            .query_one(TOPIC_KEY, values![scope, topic.artifact_id.as_str()])
            .await
            .map_err(&at)?
            .ok_or(StoreError::invalid("a topic with a head has no active record"))?;
        let key = row.integer(0).map_err(&at)?;
        let mut parameters = values![
            topic.revision.get(),
            &prepared.content.title,
            &prepared.content.summary,
            count(prepared.sources.len()),
            &prepared.projection.topic_terms
        ];
        if tx.engine() == Engine::OceanBase {
            parameters.push(self.topic_postings(prepared).into());
        }
        parameters.extend(values![scope, key]);
        let text = match tx.engine() {
            Engine::Sqlite => REPLACE_TOPIC,
            Engine::OceanBase => REPLACE_TOPIC_WITH_POSTINGS,
        };
        tx.execute(text, parameters).await.map_err(&at)?;
        self.remove_chunks(tx, key).await.map_err(&at)?;
        self.insert_chunks(tx, &Record { key, topic, prepared }).await.map_err(&at)
    }

    /// Adds what was written to the Scope's counts.
    pub(crate) async fn finish(self, tx: &mut Transaction) -> Result<(), StoreError> {
        let scope = self.scope.as_str();
        let (text, parameters) = match tx.engine() {
            Engine::Sqlite => (ADD_STATISTICS, values![self.topics, self.chunks, scope]),
            Engine::OceanBase => {
                (ADD_STATISTICS_AND_KEYS, values![self.topics, self.chunks, self.topic_keys, scope])
            }
        };
        tx.execute(text, parameters).await.map_err(StoreError::at("active.finish"))?;
        Ok(())
    }

    /// Removes the chunks of the Revision before; on SQLite also the postings of its Topic.
    async fn remove_chunks(&mut self, tx: &mut Transaction, key: i64) -> Result<(), DatabaseError> {
        let (first, last) = chunk_keys(key);
        if tx.engine() == Engine::Sqlite {
            tx.execute("DELETE FROM pc_topic_memory_topic_fts WHERE rowid = ?", values![key]).await?;
            tx.execute(
                "DELETE FROM pc_topic_memory_chunk_fts WHERE rowid BETWEEN ? AND ?",
                values![first, last],
            )
            .await?;
        }
        let removed = tx
            .execute(
                "DELETE FROM pc_topic_memory_active_chunks WHERE scope_id = ? AND chunk_key BETWEEN ? AND ?",
                values![self.scope.as_str(), first, last],
            )
            .await?;
        self.chunks -= i64::try_from(removed).unwrap_or(i64::MAX);
        Ok(())
    }

    async fn insert_chunks(
        &mut self,
        tx: &mut Transaction,
        record: &Record<'_>,
    ) -> Result<(), DatabaseError> {
        match tx.engine() {
            Engine::Sqlite => self.insert_each_chunk(tx, record).await?,
            Engine::OceanBase => self.insert_chunks_together(tx, record).await?,
        }
        self.chunks += count(record.prepared.projection.chunks.len());
        Ok(())
    }

    /// SQLite keeps posting lists in tables of their own, and a statement more costs no trip.
    async fn insert_each_chunk(
        &self,
        tx: &mut Transaction,
        record: &Record<'_>,
    ) -> Result<(), DatabaseError> {
        let projection = &record.prepared.projection;
        tx.execute(
            "INSERT INTO pc_topic_memory_topic_fts (rowid, terms) VALUES (?, ?)",
            values![record.key, fulltext::scoped_terms(self.scope_key, &projection.topic_terms)],
        )
        .await?;
        for chunk in &projection.chunks {
            let parameters = self.chunk_values(record, chunk);
            let chunk_key = chunk_key(record.key, chunk);
            tx.execute(INSERT_CHUNK, parameters).await?;
            tx.execute(
                "INSERT INTO pc_topic_memory_chunk_fts (rowid, terms) VALUES (?, ?)",
                values![chunk_key, fulltext::scoped_terms(self.scope_key, &chunk.terms)],
            )
            .await?;
        }
        Ok(())
    }

    /// OceanBase indexes a column of the same row; every statement is a trip to the server, so many
    /// chunks share one.
    async fn insert_chunks_together(
        &self,
        tx: &mut Transaction,
        record: &Record<'_>,
    ) -> Result<(), DatabaseError> {
        for chunks in record.prepared.projection.chunks.chunks(CHUNKS_PER_STATEMENT) {
            let mut parameters = Vec::with_capacity(chunks.len() * 9);
            for chunk in chunks {
                parameters.extend(self.chunk_values(record, chunk));
                parameters.push(fulltext::postings(self.scope_key, &chunk.terms).into());
            }
            let rows = vec!["(?, ?, ?, ?, ?, ?, ?, ?, ?)"; chunks.len()].join(", ");
            let text = format!(
                "INSERT INTO pc_topic_memory_active_chunks (chunk_key, scope_id, artifact_id, revision, \
                 ordinal, body_position, body, terms, postings) VALUES {rows}"
            );
            tx.execute(text, parameters).await?;
        }
        Ok(())
    }

    fn chunk_values(&self, record: &Record<'_>, chunk: &ChunkProjection) -> Vec<Value> {
        values![
            chunk_key(record.key, chunk),
            self.scope.as_str(),
            record.topic.artifact_id.as_str(),
            record.topic.revision.get(),
            i64::from(chunk.ordinal),
            count(chunk.position),
            &chunk.text,
            &chunk.terms
        ]
    }

    fn topic_postings(&self, prepared: &PreparedTopic) -> String {
        fulltext::postings(self.scope_key, &prepared.projection.topic_terms)
    }
}

/// OceanBase has no `ON CONFLICT`.
const FIRST_STATISTICS: Twin = Twin {
    sqlite: "INSERT INTO pc_topic_memory_scope_statistics (scope_id, topics, chunks) VALUES (?, 0, 0) \
        ON CONFLICT (scope_id) DO NOTHING",
    oceanbase: "INSERT INTO pc_topic_memory_scope_statistics (scope_id, topics, chunks) VALUES (?, 0, 0) \
        ON DUPLICATE KEY UPDATE topics = topics",
};

/// OceanBase only: its keys are numbered per Scope, in the order of publication as in SQLite.
const LOCK_TOPIC_KEYS: &str =
    "SELECT topic_keys FROM pc_topic_memory_scope_statistics WHERE scope_id = ? FOR UPDATE";

const ADD_STATISTICS: &str = "UPDATE pc_topic_memory_scope_statistics \
    SET topics = topics + ?, chunks = chunks + ? WHERE scope_id = ?";

const ADD_STATISTICS_AND_KEYS: &str = "UPDATE pc_topic_memory_scope_statistics \
    SET topics = topics + ?, chunks = chunks + ?, topic_keys = ? WHERE scope_id = ?";

const TOPIC_KEY: &str =
    "SELECT topic_key FROM pc_topic_memory_active_topics WHERE scope_id = ? AND artifact_id = ?";

/// SQLite only: the key is the row's own and is handed out here.
const INSERT_TOPIC: &str = "INSERT INTO pc_topic_memory_active_topics \
    (scope_id, artifact_id, revision, title, summary, source_count, terms) \
    VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING topic_key";

/// OceanBase only: the posting list is a column of the row.
const INSERT_TOPIC_WITH_KEY: &str = "INSERT INTO pc_topic_memory_active_topics \
    (scope_id, artifact_id, revision, title, summary, source_count, terms, topic_key, postings) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";

const REPLACE_TOPIC: &str = "UPDATE pc_topic_memory_active_topics \
    SET revision = ?, title = ?, summary = ?, source_count = ?, terms = ? \
    WHERE scope_id = ? AND topic_key = ?";

const REPLACE_TOPIC_WITH_POSTINGS: &str = "UPDATE pc_topic_memory_active_topics \
    SET revision = ?, title = ?, summary = ?, source_count = ?, terms = ?, postings = ? \
    WHERE scope_id = ? AND topic_key = ?";

const INSERT_CHUNK: &str = "INSERT INTO pc_topic_memory_active_chunks \
    (chunk_key, scope_id, artifact_id, revision, ordinal, body_position, body, terms) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

fn chunk_key(topic_key: i64, chunk: &ChunkProjection) -> i64 {
    chunk_keys(topic_key).0 + i64::from(chunk.ordinal)
}

/// The first and the last key the chunks of a Topic may have.
fn chunk_keys(topic_key: i64) -> (i64, i64) {
    let first = topic_key * CHUNKS_PER_TOPIC;
    (first, first + CHUNKS_PER_TOPIC - 1)
}

fn count(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
