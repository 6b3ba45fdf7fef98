//! Chooses which existing Topics a Window may evolve, from what its Probes recalled.
//!
//! Each Probe chooses for itself; the Window takes the union, bounded by best score (B-5). Recall
//! and fusion come before; whether the chosen Topics fit a request is left to the worker.

use std::collections::BTreeMap;

use crate::fusion::{Fused, MAX_HITS};
use crate::ids::ArtifactId;

/// The most Topics a Probe, and a Window, may choose whatever the configuration says (TM-144, B-5).
pub const MAX_CANDIDATES: usize = MAX_HITS;

/// How many recalled Topics a Probe chooses (TM-090).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryPolicy {
    /// The most Topics that reach the threshold; never more than [`MAX_CANDIDATES`].
    pub max_candidates: usize,
    /// The fused score, 0 to 100, from which a Topic is chosen for itself.
    pub threshold: f64,
    /// How many are chosen at least, by rank, if so many were recalled; never more than the maximum.
    pub min_candidates: usize,
}

impl Default for HistoryPolicy {
    fn default() -> Self {
        Self { max_candidates: 20, threshold: 70.0, min_candidates: 5 }
    }
}

/// The Topics chosen for a Window, best first, ties by identity; at most [`MAX_CANDIDATES`].
#[must_use]
pub fn select(per_probe: &[Vec<Fused>], policy: &HistoryPolicy) -> Vec<ArtifactId> {
    let mut best: BTreeMap<&ArtifactId, f64> = BTreeMap::new();
    for recalled in per_probe {
        for fused in chosen(recalled, policy) {
            let score = best.entry(&fused.artifact_id).or_insert(fused.score);
            *score = score.max(fused.score);
        }
    }
    let mut union: Vec<_> = best.into_iter().collect();
    union.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(other.0)));
    union.truncate(MAX_CANDIDATES);
    union.into_iter().map(|(id, _)| id.clone()).collect()
}

/// One Probe's choice: those at or above the threshold, then by rank up to the minimum.
fn chosen<'a>(recalled: &'a [Fused], policy: &HistoryPolicy) -> Vec<&'a Fused> {
    let mut ranked: Vec<&Fused> = recalled.iter().collect();
    ranked.sort_by(|one, other| {
        other.score.total_cmp(&one.score).then_with(|| one.artifact_id.cmp(&other.artifact_id))
    });
    let most = policy.max_candidates.min(MAX_CANDIDATES);
    let reached = ranked.iter().take_while(|fused| fused.score >= policy.threshold).count();
    ranked.truncate(reached.max(policy.min_candidates).min(most));
    ranked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topic::Channel;

    fn recalled(scores: &[(u32, f64)]) -> Vec<Fused> {
        scores
            .iter()
            .map(|(number, score)| Fused {
                artifact_id: id(*number),
                score: *score,
                matched_by: vec![Channel::TopicFts],
            })
            .collect()
    }

    fn id(number: u32) -> ArtifactId {
        ArtifactId::parse(format!("top_{number:03}")).unwrap()
    }

    fn numbers(ids: &[u32]) -> Vec<ArtifactId> {
        ids.iter().copied().map(id).collect()
    }

    #[test]
    fn the_defaults_are_twenty_candidates_a_threshold_of_seventy_and_a_minimum_of_five() {
        // TM-090
        assert_eq!(
            HistoryPolicy::default(),
            HistoryPolicy { max_candidates: 20, threshold: 70.0, min_candidates: 5 }
        );
    }

    #[test]
    fn topics_that_reach_the_threshold_are_chosen_up_to_the_maximum() {
        // TM-091
        let many: Vec<_> = (0..30).map(|number| (number, 100.0 - f64::from(number) / 2.0)).collect();
        let found = select(&[recalled(&many)], &HistoryPolicy::default());
        assert_eq!(found, (0..20).map(id).collect::<Vec<_>>());
        let exact = recalled(&[(1, 70.0), (2, 70.0), (3, 69.999)]);
        let strict = HistoryPolicy { min_candidates: 1, ..HistoryPolicy::default() };
        assert_eq!(select(&[exact], &strict), numbers(&[1, 2]));
    }

    #[test]
    fn too_few_are_filled_by_rank_up_to_the_minimum() {
        // TM-092
        let found = select(
            &[recalled(&[(1, 90.0), (2, 50.0), (3, 49.0), (4, 48.0), (5, 47.0), (6, 46.0)])],
            &HistoryPolicy::default(),
        );
        assert_eq!(found, numbers(&[1, 2, 3, 4, 5]));
    }

    #[test]
    fn all_are_used_when_fewer_than_the_minimum_exist() {
        // TM-092
        assert_eq!(select(&[recalled(&[(2, 3.0), (1, 2.0)])], &HistoryPolicy::default()), numbers(&[2, 1]));
        assert!(select(&[vec![], vec![]], &HistoryPolicy::default()).is_empty());
        assert!(select(&[], &HistoryPolicy::default()).is_empty());
    }

    #[test]
    fn a_window_takes_the_union_of_its_probes_by_best_score_and_at_most_twenty() {
        // TM-144, B-5
        let one = recalled(&[(1, 90.0), (2, 80.0)]);
        let other = recalled(&[(3, 85.0), (1, 75.0), (2, 100.0)]);
        assert_eq!(select(&[one, other], &HistoryPolicy::default()), numbers(&[2, 1, 3]));
        let probes: Vec<_> = (0..10)
            .map(|probe| recalled(&(0..5).map(|at| (probe * 5 + at, 80.0)).collect::<Vec<_>>()))
            .collect();
        assert_eq!(select(&probes, &HistoryPolicy::default()), (0..20).map(id).collect::<Vec<_>>());
    }

    proptest! {
        // TM-091, TM-092
        #[test]
        fn one_probe_chooses_as_many_as_the_counts_say_and_no_better_topic_is_left_out(
            scores in prop::collection::vec(0.0_f64..100.0, 0..40),
            max in 1_usize..=20, min in 1_usize..=20, threshold in 0.0_f64..100.0,
        ) {
            prop_assume!(min <= max);
            let listed: Vec<_> = (0..).zip(scores.iter().copied()).collect();
            let policy = HistoryPolicy { max_candidates: max, threshold, min_candidates: min };
            let found = select(&[recalled(&listed)], &policy);
            let reached = scores.iter().filter(|score| **score >= threshold).count();
            let expected = if reached >= min { reached.min(max) } else { min.min(scores.len()) };
            prop_assert_eq!(found.len(), expected);
            let score_of = |wanted: &ArtifactId| {
                listed.iter().find(|(number, _)| id(*number) == *wanted).unwrap().1
            };
            let worst = found.iter().map(score_of).fold(f64::INFINITY, f64::min);
            for (number, score) in &listed {
                prop_assert!(found.contains(&id(*number)) || *score <= worst);
            }
        }
    }
}
