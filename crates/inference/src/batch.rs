//! Cuts a list of texts into the requests of an embedding endpoint: by count and by estimated tokens.

use std::ops::Range;

use powercontext_core::tokens::estimate;

/// Estimated tokens of one request at most; providers take 300,000 real ones, compatible servers less.
pub(crate) const MAX_BATCH_TOKENS: u64 = 100_000;

/// Consecutive ranges that cover all texts. None holds more than `count` texts or, unless a single
/// text does so alone, more than `tokens` estimated tokens.
pub(crate) fn batches(texts: &[String], count: usize, tokens: u64) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut sum) = (0, 0_u64);
    for (index, text) in texts.iter().enumerate() {
        let price = estimate(text);
        if index > start && (index - start >= count || sum.saturating_add(price) > tokens) {
            ranges.push(start..index);
            (start, sum) = (index, 0);
        }
        sum = sum.saturating_add(price);
    }
    if start < texts.len() {
        ranges.push(start..texts.len());
    }
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_over_the_limit_goes_alone() {
        let texts: Vec<String> = ["a", &"word ".repeat(100), "b", "c"].map(str::to_owned).into();
        assert_eq!(batches(&texts, 10, 5), [0..1, 1..2, 2..4]);
        assert_eq!(batches(&[], 10, 5), []);
    }

    proptest! {
        #[test]
        fn every_text_is_in_exactly_one_request_and_no_request_is_too_large(
            texts in prop::collection::vec("[a-z ]{1,40}", 0..40), count in 1_usize..9, tokens in 1_u64..60,
        ) {
            // TM-062
            let ranges = batches(&texts, count, tokens);
            let covered: Vec<usize> = ranges.iter().cloned().flatten().collect();
            prop_assert_eq!(covered, (0..texts.len()).collect::<Vec<_>>());
            for range in ranges {
                let sum: u64 = texts[range.clone()].iter().map(|text| estimate(text)).sum();
                prop_assert!(!range.is_empty() && range.len() <= count && (sum <= tokens || range.len() == 1));
            }
        }
    }
}
