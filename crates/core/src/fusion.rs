//! Merges ranked lists into one by rank alone (reciprocal rank fusion), on a scale of 0 to 100.
//!
//! Raw scores of different channels are never compared (TM-141). Collapsing hits by Topic and
//! cutting a channel to its cap happen before (TM-139), in the store; choosing by score happens
//! after, in `history` and in the search limit.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::ArtifactId;
use crate::topic::Channel;

/// The constant that softens the weight of the first ranks (B-4).
pub const RRF_K: u32 = 60;
/// The most Topics that one channel, and one fused list, yields (TM-139, TM-144).
pub const MAX_HITS: usize = 20;

/// One Topic of a fused list.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    /// The Topic.
    pub artifact_id: ArtifactId,
    /// 0 to 100; 100 is rank 1 in every enabled channel.
    pub score: f64,
    /// The channels that hit, ascending, each once (TM-142).
    pub matched_by: Vec<Channel>,
}

/// Fuses channels, each best first, into one list: best score first, ties by identity.
///
/// A Topic's score is `100 x sum of 1 / (k + rank)` over the channels that hit, divided by
/// `enabled / (k + 1)` (B-4). `enabled` counts the channels the deployment offers, hit or not; it
/// is never taken as less than the number of lists. A Topic that a list names twice counts once,
/// by its better rank. The order of the lists does not matter.
#[must_use]
pub fn fuse(channels: &[(Channel, Vec<ArtifactId>)], enabled: usize) -> Vec<Fused> {
    let mut ordered: Vec<_> = channels.iter().collect();
    // Adding up in one fixed order keeps the sum the same to the last bit.
    ordered.sort_by_key(|(channel, _)| *channel);
    let mut found: BTreeMap<&ArtifactId, (f64, Vec<Channel>)> = BTreeMap::new();
    for (channel, ids) in ordered {
        let mut seen = BTreeSet::new();
        for (rank, id) in (1_u32..).zip(ids) {
            if !seen.insert(id) {
                continue;
            }
            let (sum, matched_by) = found.entry(id).or_default();
            // 1 for rank 1, so that rank 1 everywhere adds up to exactly the number of channels.
            *sum += f64::from(RRF_K + 1) / f64::from(RRF_K.saturating_add(rank));
            if matched_by.last() != Some(channel) {
                matched_by.push(*channel);
            }
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a handful of channels")]
    let enabled = enabled.max(channels.len()) as f64;
    sorted(found.into_iter().map(|(id, (sum, matched_by))| Fused {
        artifact_id: id.clone(),
        score: 100.0 * sum / enabled,
        matched_by,
    }))
}

/// Merges the results of several queries about one content: the best score per Topic, the union of
/// its channels (B-6). Sorted like [`fuse`].
#[must_use]
pub fn combine(lists: &[Vec<Fused>]) -> Vec<Fused> {
    let mut best: BTreeMap<&ArtifactId, (f64, BTreeSet<Channel>)> = BTreeMap::new();
    for fused in lists.iter().flatten() {
        let (score, matched_by) = best.entry(&fused.artifact_id).or_default();
        *score = score.max(fused.score);
        matched_by.extend(&fused.matched_by);
    }
    sorted(best.into_iter().map(|(id, (score, matched_by))| Fused {
        artifact_id: id.clone(),
        score,
        matched_by: matched_by.into_iter().collect(),
    }))
}

fn sorted(fused: impl Iterator<Item = Fused>) -> Vec<Fused> {
    let mut fused: Vec<Fused> = fused.collect();
    fused.sort_by(|one, other| {
        other.score.total_cmp(&one.score).then_with(|| one.artifact_id.cmp(&other.artifact_id))
    });
    fused
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(number: u32) -> ArtifactId {
        ArtifactId::parse(format!("top_{number:03}")).unwrap()
    }

    fn ids(numbers: &[u32]) -> Vec<ArtifactId> {
        numbers.iter().copied().map(id).collect()
    }

    fn score_of(fused: &[Fused], number: u32) -> f64 {
        fused.iter().find(|hit| hit.artifact_id == id(number)).map_or(0.0, |hit| hit.score)
    }

    #[test]
    fn rank_one_in_every_channel_scores_exactly_one_hundred() {
        // B-4, TM-091
        let fused = fuse(&[(Channel::TopicFts, ids(&[1, 2])), (Channel::DetailFts, ids(&[1]))], 2);
        assert_eq!(fused[0].score.to_bits(), 100.0_f64.to_bits());
        assert_eq!(fused[0].matched_by, [Channel::TopicFts, Channel::DetailFts]);
    }

    #[test]
    fn a_topic_hit_in_one_of_two_channels_reaches_at_most_fifty() {
        // B-4
        let fused = fuse(&[(Channel::TopicFts, ids(&[1, 2])), (Channel::DetailFts, vec![])], 2);
        assert_eq!(fused[0].score.to_bits(), 50.0_f64.to_bits());
        assert!((fused[1].score - 50.0 * 61.0 / 62.0).abs() < 1e-12);
        assert_eq!(fused, fuse(&[(Channel::TopicFts, ids(&[1, 2]))], 2), "a silent channel still counts");
    }

    #[test]
    fn equal_scores_are_ordered_by_identity() {
        // B-4
        let fused = fuse(&[(Channel::TopicFts, ids(&[9, 1])), (Channel::DetailFts, ids(&[1, 9]))], 2);
        assert_eq!(fused.iter().map(|hit| hit.artifact_id.clone()).collect::<Vec<_>>(), ids(&[1, 9]));
        assert_eq!(fused[0].score.to_bits(), fused[1].score.to_bits());
    }

    #[test]
    fn combined_queries_keep_the_best_score_and_every_channel() {
        // B-6
        let first = fuse(&[(Channel::DetailFts, ids(&[2, 1]))], 2);
        let second = fuse(&[(Channel::TopicFts, ids(&[1]))], 2);
        let combined = combine(&[first, second]);
        assert_eq!(combined.len(), 2);
        assert_eq!(combined[0].artifact_id, id(1));
        assert_eq!(combined[0].score.to_bits(), 50.0_f64.to_bits());
        assert_eq!(combined[0].matched_by, [Channel::TopicFts, Channel::DetailFts]);
    }

    fn ranking() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(0_u32..40, 0..20).prop_map(|numbers| {
            let mut seen = BTreeSet::new();
            numbers.into_iter().filter(|number| seen.insert(*number)).collect()
        })
    }

    proptest! {
        // TM-141, TM-142, B-4
        #[test]
        fn fused_scores_stay_in_bounds_and_in_order_with_every_topic_once(
            topic in ranking(), detail in ranking(), extra in 0_usize..3,
        ) {
            let channels = [(Channel::TopicFts, ids(&topic)), (Channel::DetailFts, ids(&detail))];
            let fused = fuse(&channels, 2 + extra);
            let expected: BTreeSet<_> = topic.iter().chain(&detail).copied().map(id).collect();
            prop_assert_eq!(fused.len(), expected.len());
            prop_assert_eq!(fused.iter().map(|hit| hit.artifact_id.clone()).collect::<BTreeSet<_>>(), expected);
            for hit in &fused {
                prop_assert!(hit.score > 0.0 && hit.score <= 100.0);
                for (channel, ids) in &channels {
                    prop_assert_eq!(hit.matched_by.contains(channel), ids.contains(&hit.artifact_id));
                }
            }
            for pair in fused.windows(2) {
                prop_assert!(pair[0].score > pair[1].score
                    || (pair[0].score == pair[1].score && pair[0].artifact_id < pair[1].artifact_id));
            }
            let swapped = [channels[1].clone(), channels[0].clone()];
            prop_assert_eq!(&fused, &fuse(&swapped, 2 + extra));
        }

        // B-4
        #[test]
        fn a_better_rank_never_lowers_a_score(topic in ranking(), detail in ranking(), at in 1_usize..20) {
            prop_assume!(at < topic.len());
            let before = fuse(&[(Channel::TopicFts, ids(&topic)), (Channel::DetailFts, ids(&detail))], 2);
            let mut moved = topic.clone();
            moved.swap(at - 1, at);
            let after = fuse(&[(Channel::TopicFts, ids(&moved)), (Channel::DetailFts, ids(&detail))], 2);
            prop_assert!(score_of(&after, topic[at]) > score_of(&before, topic[at]));
            prop_assert!(score_of(&after, topic[at - 1]) < score_of(&before, topic[at - 1]));
        }
    }
}
