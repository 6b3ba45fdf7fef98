//! How well a text found by a query matches it, next to others of one channel.
//!
//! Decides the formula: BM25 over the statistics of one Scope. The average length is a constant, so a
//! score depends on the text, the query and that Scope alone and another Scope's data never moves a
//! ranking. Which texts qualify is decided by [`crate::analyzer::Query::required`]; channels are never
//! compared by these scores (TM-141) but fused by rank in `fusion`.

use std::collections::HashMap;

const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;
/// In terms: about one chunk of the target size.
const AVERAGE_LENGTH: f64 = 200.0;

/// What is known of one channel within one Scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// How many texts the channel has.
    pub documents: u64,
    /// How many of them have each query term, parallel to the query's terms; a missing one counts 0.
    pub document_frequency: Vec<u64>,
}

/// Scores a text, given as [`crate::analyzer::index_text`], for distinct `query_terms`.
///
/// Greater is better; 0 when nothing matches, otherwise positive and finite.
#[must_use]
pub fn score(query_terms: &[String], stats: &Statistics, document_terms: &str) -> f64 {
    let mut counts: HashMap<&str, u32> = query_terms.iter().map(|term| (term.as_str(), 0)).collect();
    let mut length = 0_u32;
    for term in document_terms.split(' ').filter(|term| !term.is_empty()) {
        length = length.saturating_add(1);
        if let Some(count) = counts.get_mut(term) {
            *count = count.saturating_add(1);
        }
    }
    let norm = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * f64::from(length) / AVERAGE_LENGTH);
    let mut score = 0.0;
    for (index, term) in query_terms.iter().enumerate() {
        let count = f64::from(counts.get(term.as_str()).copied().unwrap_or(0));
        if count > 0.0 {
            let frequency = stats.document_frequency.get(index).copied().unwrap_or(0);
            score += rarity(stats.documents, frequency) * count * (SATURATION + 1.0) / (count + norm);
        }
    }
    score
}

/// How much a term weighs that `frequency` of `documents` texts have: the rarer, the more.
///
/// Positive even for a term that every text has, and for statistics older than the text.
#[must_use]
pub fn rarity(documents: u64, frequency: u64) -> f64 {
    let have = as_float(frequency.min(documents));
    let lack = as_float(documents) - have;
    (1.0 + (lack + 0.5) / (have + 0.5)).ln()
}

/// Counts beyond 32 bits rank like the largest one.
fn as_float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn query(terms: &[&str]) -> Vec<String> {
        terms.iter().map(|term| (*term).to_owned()).collect()
    }

    #[test]
    fn of_texts_with_the_term_once_the_shorter_is_better() {
        let stats = Statistics { documents: 4, document_frequency: vec![4] };
        let texts = ["kestrel a", "kestrel a b c d e f", "kestrel a b c d e f g h i j"];
        let scores: Vec<f64> = texts.map(|text| score(&query(&["kestrel"]), &stats, text)).to_vec();
        assert!(scores[0] > scores[1] && scores[1] > scores[2] && scores[2] > 0.0, "{scores:?}");
    }

    #[test]
    fn a_rare_term_and_a_repeated_term_count_more() {
        let stats = Statistics { documents: 100, document_frequency: vec![1, 90] };
        let query = query(&["rare", "common"]);
        let rare = score(&query, &stats, "rare x");
        let common = score(&query, &stats, "common x");
        assert!(rare > common);
        assert!(score(&query, &stats, "common common") > common);
        for other in ["rarely x", ""] {
            assert!(score(&query, &stats, other).abs() < f64::EPSILON, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_matching_text_has_a_positive_finite_score(documents in any::<u64>(), frequency in any::<u64>(), words in "([ab] ){0,30}") {
            let stats = Statistics { documents, document_frequency: vec![frequency] };
            let score = score(&query(&["a"]), &stats, words.trim_end());
            prop_assert!(score.is_finite() && (score > 0.0) == words.contains('a'));
        }
    }
}
