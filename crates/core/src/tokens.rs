//! Estimates how many model tokens a text takes, without a tokenizer (B-8).
//!
//! Decides one conservative price per kind of character, used alike for Windows, stage inputs and
//! reservations, so all of them agree. What the provider really charged is left to its answer.

/// The version of every price below.
pub const ESTIMATOR_VERSION: u32 = 1;

/// Prices are whole parts of a token, so sums are exact.
const PARTS: u64 = 12;
/// Longer unbroken ASCII letters and digits are data (keys, base64), not words.
const WORD_BYTES: u64 = 24;

/// An upper estimate of the tokens of `text`, in tokens; 0 only for the empty text.
///
/// Deterministic, and never smaller for a text than for a beginning of it.
#[must_use]
pub fn estimate(text: &str) -> u64 {
    let mut parts = 0_u64;
    let mut word = 0_u64;
    for c in text.chars() {
        word = if c.is_ascii_alphanumeric() { word + 1 } else { 0 };
        parts += if word > WORD_BYTES { PARTS } else { price(c) };
    }
    parts.div_ceil(PARTS)
}

fn price(c: char) -> u64 {
    match c {
        ' ' => 1,
        'a'..='z' => 4,
        'A'..='Z' => 6,
        '0'..='9' => 9,
        _ => match c.len_utf8() {
            1 | 2 => PARTS,
            3 => PARTS * 3 / 2,
            _ => PARTS * 3,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prices_stay_above_common_tokenizers() {
        assert_eq!(estimate(""), 0);
        assert_eq!(estimate("a"), 1);
        assert_eq!(estimate("Deploy the chart before the rollout."), 12);
        assert_eq!(estimate("数据库备份"), 8);
        assert_eq!(estimate("🙂"), 3);
        assert_eq!(estimate(&"a".repeat(124)), 108);
    }

    proptest! {
        // B-8
        #[test]
        fn a_longer_text_never_costs_less(a in ".{0,80}", b in ".{0,80}") {
            let whole = estimate(&format!("{a}{b}"));
            prop_assert!(whole >= estimate(&a));
            prop_assert_eq!(whole, estimate(&format!("{a}{b}")));
        }

        // B-8
        #[test]
        fn parts_between_spaces_cost_at_least_the_whole(parts in prop::collection::vec("[a-zA-Z0-9 数é🙂.]{0,60}", 0..8)) {
            let whole = estimate(&parts.join(" "));
            let apart: u64 = parts.iter().map(|part| estimate(part)).sum();
            prop_assert!(whole <= apart + parts.len() as u64);
            prop_assert!(apart <= whole + parts.len() as u64);
        }

        // B-8
        #[test]
        fn a_text_costs_at_most_three_tokens_a_character(text in any::<String>()) {
            prop_assert!(estimate(&text) <= 3 * text.chars().count() as u64);
        }
    }
}
