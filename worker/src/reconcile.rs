//! The backstop against doubles: second retrieval for new Topics and their coordination (TM-115).
//!
//! Each new Topic is searched for with its complete text (B-6); the ones related to an existing
//! Topic are put to the model in one group with it. A Topic that this round already rewrites takes
//! part with that rewrite, so one Head changes once (B-16). Forming groups is decided in
//! `grouping`; without a new Topic nothing happens here (TM-119).

use std::collections::{BTreeMap, HashSet};

use powercontext_core::ids::{ArtifactId, ScopeId};
use powercontext_core::stages::{ReconcileInput, ReconcileOutput, Slot, Stage, TopicDraft};
use powercontext_core::work::ErrorCode;
use serde_json::{Value, json};

use crate::drafts::{self, Problem, Reason};
use crate::failure::WindowError;
use crate::generation::{Asker, Question};
use crate::global::{Plan, PlannedUpdate, slot};
use crate::grouping::{self, Group};
use crate::history::{self, Current};

/// The prompt text of this stage.
pub const INSTRUCTIONS: &str = include_str!("reconcile.md");

/// The JSON schema of [`ReconcileOutput`].
#[must_use]
pub fn schema() -> Value {
    drafts::object(json!({
        "update": drafts::nullable(drafts::schema()),
        "creates": { "type": "array", "items": drafts::schema() },
    }))
}

/// The question about one related group.
///
/// # Errors
/// [`WindowError`] when the drafts have no JSON form.
pub fn question(input: &ReconcileInput) -> Result<Question, WindowError> {
    Question::new(Stage::Reconcile, INSTRUCTIONS, schema(), input)
}

/// Checks an answer: usable drafts, no more new Topics than before, and exactly the evidence of
/// the input (TM-117).
///
/// # Errors
/// The first [`Problem`] found.
pub fn check(output: &ReconcileOutput, input: &ReconcileInput) -> Result<(), Problem> {
    let known: HashSet<&str> = ids_of(&input.creates).collect();
    if output.creates.len() > input.creates.len() {
        return Err(Problem::new(
            Reason::WrongCount,
            format!("`creates` must have at most {} entries", input.creates.len()),
        ));
    }
    if let Some(update) = &output.update {
        drafts::check_draft("`update`", update, &known)?;
    }
    for (index, draft) in output.creates.iter().enumerate() {
        drafts::check_draft(&format!("`creates` entry {}", index + 1), draft, &known)?;
    }
    let covered: HashSet<&str> = ids_of(output.update.as_slice()).chain(ids_of(&output.creates)).collect();
    if covered != known {
        return Err(Problem::new(
            Reason::MissingEvidence,
            "every evidence id of the input must appear in at least one entry",
        ));
    }
    Ok(())
}

fn ids_of(drafts: &[TopicDraft]) -> impl Iterator<Item = &str> {
    drafts.iter().flat_map(|draft| draft.evidence_ids.iter().map(String::as_str))
}

/// Coordinates the new Topics of a plan; `seen` are the Topics already read in this run.
pub(crate) async fn run(
    asker: &Asker<'_>,
    scope: &ScopeId,
    seen: Vec<Current>,
    plan: Plan,
) -> Result<Plan, WindowError> {
    if plan.creates.is_empty() {
        return Ok(plan);
    }
    let mut recalled = Vec::with_capacity(plan.creates.len());
    for draft in &plan.creates {
        let text = format!("{}\n{}\n{}", draft.title, draft.summary, draft.detail);
        recalled.push(history::recall(asker.store, scope, &text).await?);
    }
    let groups = grouping::groups(&recalled, asker.settings.history.threshold);
    let mut round = Round { targets: targets(asker, scope, seen, &groups).await?, plan };
    let groups = grouping::bounded(groups, |group| {
        round
            .input(group)
            .and_then(|input| question(&input).ok())
            .is_some_and(|asked| asked.fits(asker.settings))
    });
    let mut creates = Vec::new();
    for group in &groups {
        match round.input(group) {
            None => creates.extend(round.drafts(group)),
            Some(input) => {
                let output = asker.ask(&question(&input)?, |output| check(output, &input)).await?;
                creates.extend(round.apply(group, output));
            }
        }
    }
    Ok(Plan { updates: round.plan.updates, creates })
}

/// The existing Topics of the groups at the Revision this run reads; one read before is not read
/// again, so that it cannot change within the run.
async fn targets(
    asker: &Asker<'_>,
    scope: &ScopeId,
    seen: Vec<Current>,
    groups: &[Group],
) -> Result<BTreeMap<ArtifactId, Current>, WindowError> {
    let mut targets: BTreeMap<ArtifactId, Current> =
        seen.into_iter().map(|current| (current.topic.artifact_id.clone(), current)).collect();
    let unread: Vec<ArtifactId> = groups
        .iter()
        .filter_map(|group| group.existing.clone())
        .filter(|id| !targets.contains_key(id))
        .collect();
    for current in history::load(asker.store, scope, &unread).await? {
        targets.insert(current.topic.artifact_id.clone(), current);
    }
    if unread.iter().any(|id| !targets.contains_key(id)) {
        return Err(ErrorCode::DataInvalid.into());
    }
    Ok(targets)
}

/// One round of coordination: what is known and what will be written.
struct Round {
    targets: BTreeMap<ArtifactId, Current>,
    plan: Plan,
}

impl Round {
    /// The model's input for a group, or `None` when the group needs no call.
    fn input(&self, group: &Group) -> Option<ReconcileInput> {
        let id = group.existing.as_ref()?;
        Some(ReconcileInput { creates: self.drafts(group), existing: self.existing(id)? })
    }

    fn drafts(&self, group: &Group) -> Vec<TopicDraft> {
        group.creates.iter().filter_map(|index| self.plan.creates.get(*index)).cloned().collect()
    }

    /// The existing Topic, as this round already rewrote it or as it is.
    fn existing(&self, id: &ArtifactId) -> Option<Slot> {
        let planned = self.plan.updates.iter().find(|update| &update.target.topic.artifact_id == id);
        match planned {
            Some(PlannedUpdate { draft, .. }) => Some(slot(1, &draft.title, &draft.summary, &draft.detail)),
            None => self.targets.get(id).map(|current| {
                slot(1, &current.content.title, &current.content.summary, &current.content.detail)
            }),
        }
    }

    /// Takes a checked answer over and returns the Topics that stay new.
    fn apply(&mut self, group: &Group, output: ReconcileOutput) -> Vec<TopicDraft> {
        if let (Some(id), Some(update)) = (&group.existing, output.update) {
            self.update(id, update);
        }
        output.creates
    }

    /// Folds a rewrite into the one this round already has, keeping both evidences; otherwise it is
    /// a rewrite of its own. One that leaves the Topic as it is stored is dropped (TM-122).
    fn update(&mut self, id: &ArtifactId, update: TopicDraft) {
        let updates = &mut self.plan.updates;
        let place = updates.iter().position(|planned| &planned.target.topic.artifact_id == id);
        let planned = place.map(|place| updates.remove(place));
        let Some(target) = planned.as_ref().map(|planned| &planned.target).or(self.targets.get(id)) else {
            return;
        };
        if drafts::content(&update) == target.content {
            return;
        }
        let mut evidence_ids =
            planned.as_ref().map_or_else(Vec::new, |planned| planned.draft.evidence_ids.clone());
        evidence_ids.extend(update.evidence_ids);
        let mut seen = HashSet::new();
        evidence_ids.retain(|id| seen.insert(id.clone()));
        let draft = TopicDraft { evidence_ids, ..update };
        let update = PlannedUpdate { target: target.clone(), draft };
        updates.insert(place.unwrap_or(updates.len()), update);
    }
}

#[cfg(test)]
mod tests {
    use powercontext_core::ids::Revision;
    use powercontext_core::topic::{TopicContent, TopicRef};
    use proptest::prelude::*;

    use super::*;

    fn draft(title: &str, ids: &[&str]) -> TopicDraft {
        TopicDraft {
            title: title.into(),
            summary: "s".into(),
            detail: "d".into(),
            evidence_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    fn input() -> ReconcileInput {
        ReconcileInput {
            creates: vec![draft("b", &["s1", "s2"]), draft("c", &["s3"])],
            existing: slot(1, "d", "s", "d"),
        }
    }

    fn reason(output: ReconcileOutput) -> Option<Reason> {
        check(&output, &input()).err().map(|problem| problem.reason)
    }

    fn current(name: &str) -> Current {
        let content = TopicContent { title: name.into(), summary: "s".into(), detail: "d".into() };
        let topic = TopicRef { artifact_id: ArtifactId::parse(name).unwrap(), revision: Revision::new(1) };
        Current { topic, content }
    }

    fn round(plan: Plan) -> Round {
        let target = current("d");
        Round { targets: BTreeMap::from([(target.topic.artifact_id.clone(), target)]), plan }
    }

    #[test]
    fn the_answer_carries_exactly_the_evidence_of_the_group() {
        // TM-117
        let all = ReconcileOutput { update: Some(draft("d2", &["s1", "s2", "s3"])), creates: vec![] };
        assert_eq!(reason(all), None);
        let split =
            ReconcileOutput { update: Some(draft("d2", &["s1", "s2"])), creates: vec![draft("c", &["s3"])] };
        assert_eq!(reason(split), None);
        let lost = ReconcileOutput { update: Some(draft("d2", &["s1", "s3"])), creates: vec![] };
        assert_eq!(reason(lost), Some(Reason::MissingEvidence));
        let nothing = ReconcileOutput { update: None, creates: vec![] };
        assert_eq!(reason(nothing), Some(Reason::MissingEvidence));
        let invented =
            ReconcileOutput { update: Some(draft("d2", &["s1", "s2", "s3", "s4"])), creates: vec![] };
        assert_eq!(reason(invented), Some(Reason::UnknownEvidence));
    }

    #[test]
    fn an_answer_cannot_multiply_topics() {
        // TM-117, TM-118
        let more = vec![draft("x", &["s1"]), draft("y", &["s2"]), draft("z", &["s3"])];
        assert_eq!(reason(ReconcileOutput { update: None, creates: more }), Some(Reason::WrongCount));
    }

    #[test]
    fn a_rewrite_of_this_round_takes_the_new_topic_in_and_keeps_both_evidences() {
        // B-16, TM-117
        let planned = PlannedUpdate { target: current("d"), draft: draft("d1", &["s4", "s1"]) };
        let mut round = round(Plan { updates: vec![planned], creates: vec![draft("b", &["s1", "s2"])] });
        let group = Group { existing: Some(current("d").topic.artifact_id), creates: vec![0] };
        assert_eq!(round.input(&group).unwrap().existing.title, "d1");
        let output = ReconcileOutput { update: Some(draft("d2", &["s2", "s1"])), creates: vec![] };
        assert!(round.apply(&group, output).is_empty());
        assert_eq!(round.plan.updates.len(), 1);
        assert_eq!(round.plan.updates[0].draft, draft("d2", &["s4", "s1", "s2"]));
    }

    #[test]
    fn a_rewrite_that_changes_nothing_is_no_update() {
        // TM-122
        let mut round = round(Plan { updates: vec![], creates: vec![draft("b", &["s1"])] });
        let group = Group { existing: Some(current("d").topic.artifact_id), creates: vec![0] };
        let output = ReconcileOutput { update: Some(draft("d", &["s1"])), creates: vec![] };
        assert!(round.apply(&group, output).is_empty());
        assert!(round.plan.updates.is_empty());
    }

    #[test]
    fn a_folded_rewrite_that_leaves_the_topic_as_it_is_stored_is_no_update() {
        // B-16, TM-122
        let other = PlannedUpdate { target: current("e"), draft: draft("e1", &["s3"]) };
        let planned = PlannedUpdate { target: current("d"), draft: draft("d1", &["s4"]) };
        let plan = Plan { updates: vec![planned, other.clone()], creates: vec![draft("b", &["s1"])] };
        let mut round = round(plan);
        let group = Group { existing: Some(current("d").topic.artifact_id), creates: vec![0] };
        let output = ReconcileOutput { update: Some(draft("d", &["s1"])), creates: vec![] };
        assert!(round.apply(&group, output).is_empty());
        assert_eq!(round.plan.updates, [other]);
    }

    proptest! {
        #[test]
        fn an_answer_passes_only_with_the_exact_union_of_evidence(
            update in proptest::option::of(proptest::collection::btree_set(1_u8..5, 1..4)),
            creates in proptest::collection::vec(proptest::collection::btree_set(1_u8..5, 1..4), 0..4),
        ) {
            // TM-117
            let names = |ids: &std::collections::BTreeSet<u8>| -> Vec<String> { ids.iter().map(|id| format!("s{id}")).collect() };
            let with = |ids| TopicDraft { evidence_ids: names(ids), ..draft("t", &[]) };
            let union: std::collections::BTreeSet<u8> =
                update.iter().chain(&creates).flatten().copied().collect();
            let expected = union == std::collections::BTreeSet::from([1, 2, 3]) && creates.len() <= 2;
            let output = ReconcileOutput {
                update: update.as_ref().map(with),
                creates: creates.iter().map(with).collect(),
            };
            prop_assert_eq!(check(&output, &input()).is_ok(), expected);
        }
    }
}
