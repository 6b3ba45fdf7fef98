//! Forms the related groups of one round: which new Topics go with which existing one.
//!
//! A new Topic is related only to existing Topics whose fused score reaches the threshold, and
//! through one of them to other new Topics (B-16). Every new Topic ends in exactly one group and
//! a group holds at most one existing identity, so two existing ones are never merged (TM-118).
//! Asking the model about a group is left to `reconcile`.

use std::collections::BTreeMap;

use powercontext_core::fusion::Fused;
use powercontext_core::ids::ArtifactId;

/// Some new Topics, and the one existing Topic they may belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The existing Topic; `None` for a new Topic without a relative.
    pub existing: Option<ArtifactId>,
    /// Places of the new Topics in the round's list, ascending; never empty.
    pub creates: Vec<usize>,
}

/// Groups the new Topics by their relatives.
///
/// `recalled` has one list per new Topic, scores on 0..=100. Each new Topic goes to the best of
/// its relatives; equal scores prefer the relative that more new Topics share, then the smaller
/// identity. One without a relative stays alone. Groups come in the order of their first member.
#[must_use]
pub fn groups(recalled: &[Vec<Fused>], threshold: f64) -> Vec<Group> {
    let mut shared: BTreeMap<&ArtifactId, usize> = BTreeMap::new();
    for hit in recalled.iter().flatten().filter(|hit| hit.score >= threshold) {
        *shared.entry(&hit.artifact_id).or_default() += 1;
    }
    let mut groups: Vec<Group> = Vec::new();
    for (index, hits) in recalled.iter().enumerate() {
        let best = hits
            .iter()
            .filter(|hit| hit.score >= threshold)
            .max_by(|left, right| {
                let by_share = |hit: &Fused| shared.get(&hit.artifact_id).copied();
                left.score
                    .total_cmp(&right.score)
                    .then_with(|| by_share(left).cmp(&by_share(right)))
                    .then_with(|| right.artifact_id.cmp(&left.artifact_id))
            })
            .map(|hit| hit.artifact_id.clone());
        let group = best
            .as_ref()
            .and_then(|best| groups.iter_mut().find(|group| group.existing.as_ref() == Some(best)));
        match group {
            Some(group) => group.creates.push(index),
            None => groups.push(Group { existing: best, creates: vec![index] }),
        }
    }
    groups
}

/// Cuts groups down to what `fits` one request; a new Topic that does not fit stays alone (B-16).
///
/// Members are taken in order. A new Topic alone needs no request and always fits.
#[must_use]
pub fn bounded(groups: Vec<Group>, fits: impl Fn(&Group) -> bool) -> Vec<Group> {
    let mut bounded = Vec::with_capacity(groups.len());
    for group in groups {
        let Some(existing) = group.existing else {
            bounded.push(group);
            continue;
        };
        let mut kept = Group { existing: Some(existing), creates: Vec::new() };
        let mut alone = Vec::new();
        for index in group.creates {
            kept.creates.push(index);
            if !fits(&kept) {
                kept.creates.pop();
                alone.push(index);
            }
        }
        if !kept.creates.is_empty() {
            bounded.push(kept);
        }
        bounded.extend(alone.into_iter().map(|index| Group { existing: None, creates: vec![index] }));
    }
    bounded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(name: &str) -> ArtifactId {
        ArtifactId::parse(name).unwrap()
    }

    fn hit(name: &str, score: f64) -> Fused {
        Fused { artifact_id: id(name), score, matched_by: Vec::new() }
    }

    #[test]
    fn new_topics_that_share_an_existing_one_form_one_group() {
        // TM-116: B + C + D
        let recalled = vec![vec![hit("d", 90.0)], vec![], vec![hit("e", 69.9), hit("d", 70.0)]];
        assert_eq!(
            groups(&recalled, 70.0),
            vec![
                Group { existing: Some(id("d")), creates: vec![0, 2] },
                Group { existing: None, creates: vec![1] },
            ]
        );
    }

    #[test]
    fn below_the_threshold_nothing_is_related_and_nothing_is_filled_up() {
        // B-16
        let recalled = vec![vec![hit("d", 69.999)], vec![hit("d", 50.0)]];
        assert!(
            groups(&recalled, 70.0).iter().all(|group| group.existing.is_none() && group.creates.len() == 1)
        );
    }

    #[test]
    fn a_new_topic_between_two_existing_ones_never_joins_them() {
        // TM-118
        let recalled = vec![vec![hit("d", 80.0), hit("e", 80.0)], vec![hit("e", 75.0)]];
        assert_eq!(groups(&recalled, 70.0), vec![Group { existing: Some(id("e")), creates: vec![0, 1] }]);
        let recalled = vec![vec![hit("d", 81.0), hit("e", 80.0)], vec![hit("e", 75.0)]];
        assert_eq!(groups(&recalled, 70.0).len(), 2);
    }

    #[test]
    fn what_does_not_fit_the_request_stays_a_new_topic() {
        // B-16
        let group = Group { existing: Some(id("d")), creates: vec![0, 1, 2] };
        let bounded = bounded(vec![group], |group| !group.creates.contains(&1) && group.creates.len() < 3);
        assert_eq!(
            bounded,
            vec![
                Group { existing: Some(id("d")), creates: vec![0, 2] },
                Group { existing: None, creates: vec![1] },
            ]
        );
    }

    proptest! {
        #[test]
        fn every_new_topic_is_in_exactly_one_group_with_at_most_one_identity(
            recalled in proptest::collection::vec(
                proptest::collection::btree_map("[a-e]", 0.0_f64..=100.0, 0..5), 0..12),
            size in 1_usize..5,
        ) {
            // TM-116, TM-118
            let recalled: Vec<Vec<Fused>> = recalled
                .into_iter()
                .map(|hits| hits.into_iter().map(|(name, score)| hit(&name, score)).collect())
                .collect();
            let groups = bounded(groups(&recalled, 70.0), |group| group.creates.len() <= size);
            let mut members: Vec<usize> = groups.iter().flat_map(|group| group.creates.clone()).collect();
            members.sort_unstable();
            prop_assert_eq!(members, (0..recalled.len()).collect::<Vec<_>>());
            let mut identities: Vec<&ArtifactId> =
                groups.iter().filter_map(|group| group.existing.as_ref()).collect();
            let all = identities.len();
            identities.sort_unstable();
            identities.dedup();
            prop_assert_eq!(identities.len(), all, "one group per existing Topic");
            for group in &groups {
                prop_assert!(!group.creates.is_empty());
                match &group.existing {
                    Some(existing) => for index in &group.creates {
                        prop_assert!(recalled[*index]
                            .iter()
                            .any(|hit| &hit.artifact_id == existing && hit.score >= 70.0));
                    },
                    None => prop_assert_eq!(group.creates.len(), 1),
                }
            }
        }
    }
}
