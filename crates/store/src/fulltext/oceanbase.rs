//! The same lookups in OceanBase's full-text index.
//!
//! Its parser splits at more than spaces and folds letters by its own tables, so a term is stored in
//! letters it is known to keep: ASCII letters, digits, underscores and unified Han as they are,
//! anything else as a digest. A query asks for one term at a time, because only then is every record
//! that has it counted exactly once.

use std::collections::BTreeSet;

use powercontext_core::analyzer::Query;
use powercontext_core::content::digest;
use powercontext_core::ids::ScopeId;
use powercontext_core::topic::Channel;

use crate::DatabaseError;
use crate::database::{Row, Transaction, Value, values};

use super::{CHUNKS_PER_TOPIC, MAX_CANDIDATES, MAX_CHUNKS_OF_ONE_TOPIC, WeightedTerm, required};

/// How many hexadecimal digits of a digest stand for a term: 128 bits.
const DIGEST_DIGITS: usize = 32;

/// Index text in which every term carries the Scope's number, is exactly one token and stands once: a
/// lookup asks only whether a record has it.
pub(crate) fn postings(scope_key: i64, terms: &str) -> String {
    let distinct: BTreeSet<&str> = terms.split(' ').filter(|term| !term.is_empty()).collect();
    let mut text = String::new();
    for term in distinct {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&token(scope_key, term));
    }
    text
}

/// The token of one term: at most 19 digits, a mark and 64 characters, which the index takes.
pub(crate) fn token(scope_key: i64, term: &str) -> String {
    let kept = |character: char| matches!(character, 'a'..='z' | '0'..='9' | '_' | '\u{4e00}'..='\u{9fff}');
    if term.chars().all(kept) {
        return format!("{scope_key}x{term}");
    }
    let digest = digest(term);
    let digits = digest.strip_prefix("sha256:").unwrap_or(&digest);
    format!("{scope_key}h{}", digits.get(..DIGEST_DIGITS).unwrap_or(digits))
}

struct Table {
    name: &'static str,
    key: &'static str,
}

const fn table(channel: Channel) -> Table {
    match channel {
        Channel::TopicFts => Table { name: "pc_topic_memory_active_topics", key: "topic_key" },
        Channel::DetailFts => Table { name: "pc_topic_memory_active_chunks", key: "chunk_key" },
    }
}

/// How many records have each term, in the order of the query.
pub(super) async fn frequencies(
    tx: &mut Transaction,
    channel: Channel,
    (scope, scope_key): (&ScopeId, i64),
    query: &Query,
) -> Result<Vec<Row>, DatabaseError> {
    let mut parameters = Vec::with_capacity(query.terms().len() * 2);
    for term in query.terms() {
        parameters.extend(values![scope.as_str(), token(scope_key, term)]);
    }
    tx.query(frequencies_text(channel, query.terms().len()), parameters).await
}

pub(crate) fn frequencies_text(channel: Channel, terms: usize) -> String {
    let table = table(channel);
    let each: Vec<String> = (0..terms)
        .map(|place| {
            format!(
                "SELECT count(*) AS records, {place} AS place FROM {} \
                 WHERE scope_id = ? AND MATCH (postings) AGAINST (? IN BOOLEAN MODE)",
                table.name
            )
        })
        .collect();
    format!("SELECT records FROM ({}) AS counted ORDER BY place", each.join(" UNION ALL "))
}

/// The records with enough of the terms, the most promising ones: key, identity and terms.
pub(super) async fn candidates(
    tx: &mut Transaction,
    channel: Channel,
    (scope, scope_key): (&ScopeId, i64),
    (query, weighted): (&Query, &[WeightedTerm<'_>]),
) -> Result<Vec<Row>, DatabaseError> {
    let mut parameters: Vec<Value> = Vec::with_capacity(weighted.len() * 3 + 4);
    for term in weighted {
        parameters.extend(values![term.weight, scope.as_str(), token(scope_key, term.text)]);
    }
    parameters.push(required(query).into());
    if channel == Channel::DetailFts {
        parameters.push(MAX_CHUNKS_OF_ONE_TOPIC.into());
    }
    parameters.extend(values![MAX_CANDIDATES, scope.as_str()]);
    tx.query(candidates_text(channel, weighted.len()), parameters).await
}

pub(crate) fn candidates_text(channel: Channel, terms: usize) -> String {
    let Table { name, key } = table(channel);
    let each = format!(
        "SELECT {key} AS record, ? AS weight FROM {name} \
         WHERE scope_id = ? AND MATCH (postings) AGAINST (? IN BOOLEAN MODE)"
    );
    let hits = format!(
        "hits AS (SELECT record, sum(weight) AS weight FROM ({}) AS found \
         GROUP BY record HAVING count(*) >= ?)",
        vec![each; terms].join(" UNION ALL ")
    );
    let best = match channel {
        Channel::TopicFts => {
            "best AS (SELECT record FROM hits ORDER BY weight DESC, record LIMIT ?)".to_owned()
        }
        Channel::DetailFts => format!(
            "placed AS (SELECT record, weight, row_number() OVER ( \
               PARTITION BY record DIV {CHUNKS_PER_TOPIC} ORDER BY weight DESC, record) AS place FROM hits), \
             best AS (SELECT record FROM placed WHERE place <= ? ORDER BY weight DESC, record LIMIT ?)"
        ),
    };
    format!(
        "WITH {hits}, {best} SELECT active.{key}, active.artifact_id, active.terms FROM best \
         JOIN {name} AS active ON active.scope_id = ? AND active.{key} = best.record"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_becomes_one_token_of_known_letters_that_fits_the_index() {
        let longest = "漢".repeat(64);
        for term in
            ["kestrel", "a_1", "租约", "can't", "3.14", "straße", "ひら", "임대", "\u{1F980}", &longest]
        {
            let token = token(i64::MAX, term);
            assert!(token.chars().count() <= 84, "{token}");
            assert!(
                token.chars().all(|kept| kept.is_ascii_alphanumeric() || "_漢租约".contains(kept)),
                "{token}"
            );
        }
        assert_eq!(postings(7, "a can't 租约").split(' ').count(), 3);
        assert_eq!(postings(7, "b a b  a"), "7xa 7xb");
        assert_ne!(token(7, "can't"), token(7, "cant"));
        assert_ne!(token(7, "é"), token(7, "É"));
    }
}
