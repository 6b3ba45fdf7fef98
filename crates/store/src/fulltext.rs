//! Full-text retrieval inside one Scope: posting lists find, `core::ranking` orders.
//!
//! SQLite looks terms up in FTS5, OceanBase in its full-text index ([`oceanbase`]); both count the same
//! and yield the same records, so the same data has the same order on both.
//!
//! Every stored term carries its Scope's number, so a posting list holds one Scope only and another
//! Scope's data can change neither cost nor order. The statement counts how many distinct query
//! terms a record has (coverage) and keeps the most promising ones; those are scored exactly,
//! collapsed by Topic and only then cut to the channel's cap (TM-139).

pub(crate) mod oceanbase;

use powercontext_core::analyzer::Query;
use powercontext_core::fusion::MAX_HITS;
use powercontext_core::ids::{ArtifactId, ScopeId};
use powercontext_core::ranking::{self, Statistics};
use powercontext_core::topic::Channel;
use serde_json::json;

use crate::database::{Engine, Row, Transaction, values};
use crate::{DatabaseError, StoreError};

pub(crate) use oceanbase::postings;

/// Keys set aside for the chunks of one Topic; the schema says the same number.
pub(crate) const CHUNKS_PER_TOPIC: i64 = 1 << 20;
/// The most records that are scored exactly.
const MAX_CANDIDATES: i64 = 200;
/// The most chunks of one Topic among them, so that at least 25 Topics take part.
const MAX_CHUNKS_OF_ONE_TOPIC: i64 = 8;
/// Term weights are summed as integers, so the order of a sum never matters.
const WEIGHT_SCALE: f64 = 1_000_000.0;

/// The best record of one Topic in one channel.
pub(crate) struct Hit {
    pub(crate) artifact_id: ArtifactId,
    /// Key of the topic or chunk record.
    pub(crate) key: i64,
}

/// The number a Scope's terms carry; `None` when there is no such Scope.
pub(crate) async fn scope_key(tx: &mut Transaction, scope: &ScopeId) -> Result<Option<i64>, StoreError> {
    let at = StoreError::at("fulltext.scope_key");
    if !tx.engine().tells_apart(scope.as_str()) {
        return Ok(None);
    }
    let row = tx
        .query_one("SELECT scope_key FROM pc_scopes WHERE scope_id = ?", values![scope.as_str()])
        .await
        .map_err(&at)?;
    row.map(|row| row.integer(0)).transpose().map_err(&at)
}

/// Index text in which every term carries the Scope's number.
pub(crate) fn scoped_terms(scope_key: i64, terms: &str) -> String {
    let mut text = String::with_capacity(terms.len() * 2);
    for term in terms.split(' ').filter(|term| !term.is_empty()) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&scoped_term(scope_key, term));
    }
    text
}

/// The best Topics of a channel, best first, each once, at most [`MAX_HITS`].
pub(crate) async fn channel(
    tx: &mut Transaction,
    channel: Channel,
    (scope, scope_key): (&ScopeId, i64),
    query: &Query,
) -> Result<Vec<Hit>, StoreError> {
    let statistics = statistics(tx, channel, (scope, scope_key), query).await?;
    let weighted = weights(query, &statistics);
    if weighted.is_empty() {
        return Ok(Vec::new());
    }
    let rows = match tx.engine() {
        Engine::Sqlite => candidates(tx, channel, scope_key, (query, &weighted)).await,
        Engine::OceanBase => oceanbase::candidates(tx, channel, (scope, scope_key), (query, &weighted)).await,
    }
    .map_err(StoreError::at("fulltext.channel"))?;
    let mut scored = Vec::with_capacity(rows.len());
    for row in &rows {
        scored.push(scored_hit(row, query, &statistics)?);
    }
    scored.sort_by(|(left, left_score), (right, right_score)| {
        right_score
            .total_cmp(left_score)
            .then_with(|| left.artifact_id.cmp(&right.artifact_id))
            .then_with(|| left.key.cmp(&right.key))
    });
    let mut hits: Vec<Hit> = Vec::with_capacity(MAX_HITS);
    for (hit, _) in scored {
        if hits.len() == MAX_HITS {
            break;
        }
        if hits.iter().all(|known| known.artifact_id != hit.artifact_id) {
            hits.push(hit);
        }
    }
    Ok(hits)
}

fn scored_hit(row: &Row, query: &Query, statistics: &Statistics) -> Result<(Hit, f64), StoreError> {
    let at = StoreError::at("fulltext.row");
    let artifact_id = ArtifactId::parse(row.text(1).map_err(&at)?)
        .map_err(|_| StoreError::invalid("an active record's artifact id is not an identity"))?;
    let terms = row.text(2).map_err(&at)?;
    let score = ranking::score(query.terms(), statistics, &terms);
    Ok((Hit { artifact_id, key: row.integer(0).map_err(&at)? }, score))
}

async fn candidates(
    tx: &mut Transaction,
    channel: Channel,
    scope_key: i64,
    (query, weighted): (&Query, &[WeightedTerm<'_>]),
) -> Result<Vec<Row>, DatabaseError> {
    let list: Vec<_> =
        weighted.iter().map(|term| json!([expression(scope_key, term.text), term.weight])).collect();
    let list = json!(list).to_string();
    match channel {
        Channel::TopicFts => tx.query(TOPIC_CANDIDATES, values![list, required(query), MAX_CANDIDATES]).await,
        Channel::DetailFts => {
            let parameters = values![list, required(query), MAX_CHUNKS_OF_ONE_TOPIC, MAX_CANDIDATES];
            tx.query(CHUNK_CANDIDATES, parameters).await
        }
    }
}

fn required(query: &Query) -> i64 {
    i64::try_from(query.required()).unwrap_or(i64::MAX)
}

async fn statistics(
    tx: &mut Transaction,
    channel: Channel,
    (scope, scope_key): (&ScopeId, i64),
    query: &Query,
) -> Result<Statistics, StoreError> {
    let at = StoreError::at("fulltext.statistics");
    let (documents, frequencies) = match channel {
        Channel::TopicFts => (TOPIC_DOCUMENTS, TOPIC_FREQUENCIES),
        Channel::DetailFts => (CHUNK_DOCUMENTS, CHUNK_FREQUENCIES),
    };
    let documents = tx.query_one(documents, values![scope.as_str()]).await.map_err(&at)?;
    let documents = documents.map_or(Ok(0), |row| row.integer(0)).map_err(&at)?;
    let rows = match tx.engine() {
        Engine::Sqlite => {
            let expressions: Vec<String> =
                query.terms().iter().map(|term| expression(scope_key, term)).collect();
            tx.query(frequencies, values![json!(expressions).to_string()]).await
        }
        Engine::OceanBase => oceanbase::frequencies(tx, channel, (scope, scope_key), query).await,
    }
    .map_err(&at)?;
    let mut document_frequency = Vec::with_capacity(rows.len());
    for row in &rows {
        document_frequency.push(u64::try_from(row.integer(0).map_err(&at)?).unwrap_or(0));
    }
    if document_frequency.len() != query.terms().len() {
        return Err(StoreError::invalid("a query term has no frequency"));
    }
    Ok(Statistics { documents: u64::try_from(documents).unwrap_or(0), document_frequency })
}

/// A query term that occurs at all; rarer terms weigh more.
struct WeightedTerm<'a> {
    text: &'a str,
    weight: i64,
}

fn weights<'a>(query: &'a Query, statistics: &Statistics) -> Vec<WeightedTerm<'a>> {
    let mut list = Vec::new();
    for (text, &frequency) in query.terms().iter().zip(&statistics.document_frequency) {
        if frequency == 0 {
            continue;
        }
        let weight = ranking::rarity(statistics.documents, frequency);
        list.push(WeightedTerm { text, weight: (weight * WEIGHT_SCALE) as i64 });
    }
    list
}

fn scoped_term(scope_key: i64, term: &str) -> String {
    format!("{scope_key}:{term}")
}

/// A match expression for exactly one stored term.
fn expression(scope_key: i64, term: &str) -> String {
    format!("\"{}\"", scoped_term(scope_key, term).replace('"', "\"\""))
}

const TOPIC_DOCUMENTS: &str = "SELECT topics FROM pc_topic_memory_scope_statistics WHERE scope_id = ?";
const CHUNK_DOCUMENTS: &str = "SELECT chunks FROM pc_topic_memory_scope_statistics WHERE scope_id = ?";

// `CROSS JOIN` keeps SQLite from turning the loops around, so each term is one lookup in the index.

pub(crate) const TOPIC_FREQUENCIES: &str = "SELECT (SELECT count(*) FROM pc_topic_memory_topic_fts AS fts \
    WHERE fts.pc_topic_memory_topic_fts MATCH term.value) FROM json_each(?) AS term ORDER BY term.id";

pub(crate) const CHUNK_FREQUENCIES: &str = "SELECT (SELECT count(*) FROM pc_topic_memory_chunk_fts AS fts \
    WHERE fts.pc_topic_memory_chunk_fts MATCH term.value) FROM json_each(?) AS term ORDER BY term.id";

pub(crate) const TOPIC_CANDIDATES: &str = "WITH hits AS ( \
      SELECT fts.rowid AS record, sum(term.value ->> 1) AS weight \
      FROM json_each(?) AS term CROSS JOIN pc_topic_memory_topic_fts AS fts \
      WHERE fts.pc_topic_memory_topic_fts MATCH term.value ->> 0 \
      GROUP BY fts.rowid HAVING count(*) >= ?), \
    best AS (SELECT record FROM hits ORDER BY weight DESC, record LIMIT ?) \
    SELECT topic.topic_key, topic.artifact_id, topic.terms \
    FROM best CROSS JOIN pc_topic_memory_active_topics AS topic ON topic.topic_key = best.record";

pub(crate) const CHUNK_CANDIDATES: &str = "WITH hits AS ( \
      SELECT fts.rowid AS record, sum(term.value ->> 1) AS weight \
      FROM json_each(?) AS term CROSS JOIN pc_topic_memory_chunk_fts AS fts \
      WHERE fts.pc_topic_memory_chunk_fts MATCH term.value ->> 0 \
      GROUP BY fts.rowid HAVING count(*) >= ?), \
    placed AS (SELECT record, weight, \
      row_number() OVER (PARTITION BY record >> 20 ORDER BY weight DESC, record) AS place FROM hits), \
    best AS (SELECT record FROM placed WHERE place <= ? ORDER BY weight DESC, record LIMIT ?) \
    SELECT chunk.chunk_key, chunk.artifact_id, chunk.terms \
    FROM best CROSS JOIN pc_topic_memory_active_chunks AS chunk ON chunk.chunk_key = best.record";
