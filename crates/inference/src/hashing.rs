//! The built-in embedding model: deterministic, offline, no model at all. It knows words, no meaning.
//!
//! Each term of a text is hashed to one coordinate and a sign, so texts with the same words have
//! vectors that point the same way, and a synonym has none of it. It exists so that a deployment with
//! vectors works on a fresh machine and in tests.

use async_trait::async_trait;
use powercontext_core::analyzer::terms;
use powercontext_core::tokens::estimate;

use crate::embedder::{Embedder, EmbeddingError, EmbeddingFailure, Embeddings, Spent};
use crate::generator::Usage;

/// `builtin:hashing`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hashing;

impl Hashing {
    /// The name it is configured by.
    pub(crate) const MODEL: &'static str = "builtin:hashing";
    /// The only dimension it has.
    pub(crate) const DIMENSION: usize = 256;
}

#[async_trait]
impl Embedder for Hashing {
    fn model(&self) -> &str {
        Self::MODEL
    }

    fn dimension(&self) -> usize {
        Self::DIMENSION
    }

    async fn embed(&self, texts: &[String]) -> Result<Embeddings, EmbeddingError> {
        if let Some(place) = texts.iter().position(|text| text.trim().is_empty()) {
            let cause = EmbeddingFailure::BlankText { place };
            return Err(EmbeddingError { spent: Spent::default(), cause });
        }
        let input_tokens = texts.iter().map(|text| estimate(text)).fold(0, u64::saturating_add);
        let spent = Spent {
            requests: u32::try_from(texts.len()).unwrap_or(u32::MAX),
            usage: Usage { input_tokens, output_tokens: 0 },
        };
        Ok(Embeddings { vectors: texts.iter().map(|text| vector(text)).collect(), spent })
    }
}

/// A unit vector; the same text always has the same one, on every machine.
fn vector(text: &str) -> Vec<f32> {
    let mut sums = [0_i32; Hashing::DIMENSION];
    for term in terms(text) {
        add(&mut sums, &term.text);
    }
    if sums.iter().all(|sum| *sum == 0) {
        // No term, or terms that cancel out: the text as a whole still has its own direction.
        add(&mut sums, text);
    }
    let length = sums.iter().map(|sum| f64::from(*sum) * f64::from(*sum)).sum::<f64>().sqrt();
    #[allow(clippy::cast_possible_truncation, reason = "a number between -1 and 1")]
    sums.iter().map(|sum| (f64::from(*sum) / length) as f32).collect()
}

fn add(sums: &mut [i32; Hashing::DIMENSION], term: &str) {
    let hash = fnv1a(term);
    let place = usize::from(hash.to_le_bytes()[0]);
    let sign = if hash >> 63 == 0 { 1 } else { -1 };
    if let Some(sum) = sums.get_mut(place) {
        *sum = sum.saturating_add(sign);
    }
}

/// FNV-1a with its last bits mixed once more, so that one byte of it is spread evenly.
fn fnv1a(term: &str) -> u64 {
    let hash = term.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn similarity(a: &str, b: &str) -> f32 {
        vector(a).iter().zip(vector(b)).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn texts_with_the_same_words_are_nearer_than_others() {
        let lease = "the leader renews its lease every five seconds";
        let near = similarity(lease, "a lease that the leader renews");
        let far = similarity(lease, "bundle size of the start page went down");
        assert!(near > far + 0.2, "{near} {far}");
        assert!(similarity("租约续期失败", "租约续期成功") > similarity("租约续期失败", "灰度发布观察"));
        assert!((similarity(lease, lease) - 1.0).abs() < 1e-5);
    }

    #[test]
    fn the_vector_of_a_text_never_changes() {
        // A stored vector must stay comparable: this pins the hash, the place and the sign.
        let vector = vector("lease");
        let set: Vec<(usize, f32)> =
            vector.into_iter().enumerate().filter(|(_, number)| *number != 0.0).collect();
        assert_eq!(set, PINNED);
    }

    const PINNED: [(usize, f32); 1] = [(79, -1.0)];

    proptest! {
        #[test]
        fn every_text_has_a_finite_vector_of_length_one(text in "\\PC{1,200}") {
            let vector = vector(&text);
            prop_assert_eq!(vector.len(), Hashing::DIMENSION);
            let length: f32 = vector.iter().map(|number| number * number).sum();
            prop_assert!((length - 1.0).abs() < 1e-4);
        }
    }
}
