//! Asks for final content: a rewrite of at most one selected Topic, and new Topics (TM-095).
//!
//! Selected Topics are given as slots; the place in the answer is the only name of a target, so
//! the model chooses no identity (TM-127, design: slots). More than one changed slot means that
//! targets are not bound uniquely, and the whole result is discarded (TM-096).

use std::collections::HashSet;

use powercontext_core::stages::{GlobalInput, GlobalOutput, Slot, Stage, TopicDraft};
use powercontext_core::work::ErrorCode;
use serde_json::{Value, json};

use crate::drafts::{self, Problem, Reason};
use crate::evidence::EvidenceSet;
use crate::failure::WindowError;
use crate::generation::{Asker, Question};
use crate::history::Current;
use crate::progress::count;

/// The prompt text of this stage.
pub const INSTRUCTIONS: &str = include_str!("global.md");

/// What one round will write, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Complete rewrites, each of another Topic.
    pub updates: Vec<PlannedUpdate>,
    /// Topics that did not exist before.
    pub creates: Vec<TopicDraft>,
}

/// A rewrite bound to the exact Revision it is based on (TM-045).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedUpdate {
    /// The Topic as it was read.
    pub target: Current,
    /// Its new content.
    pub draft: TopicDraft,
}

/// The JSON schema of [`GlobalOutput`].
#[must_use]
pub fn schema() -> Value {
    drafts::object(json!({
        "updates": { "type": "array", "items": drafts::nullable(drafts::schema()) },
        "new_topics": { "type": "array", "items": drafts::schema() },
    }))
}

/// A selected Topic as the model sees it, without its identity.
#[must_use]
pub fn slot(number: usize, title: &str, summary: &str, detail: &str) -> Slot {
    Slot {
        slot: count(number),
        title: title.to_owned(),
        summary: summary.to_owned(),
        detail: detail.to_owned(),
    }
}

/// The question about one Window and the selected Topics.
///
/// # Errors
/// [`WindowError`] when the material has no JSON form.
pub fn question(evidence: &EvidenceSet, history: &[Current]) -> Result<Question, WindowError> {
    let slots = history
        .iter()
        .enumerate()
        .map(|(index, current)| {
            let content = &current.content;
            slot(index + 1, &content.title, &content.summary, &content.detail)
        })
        .collect();
    let input = GlobalInput { sources: evidence.items().to_vec(), slots };
    Question::new(Stage::Global, INSTRUCTIONS, schema(), &input)
}

/// Checks an answer against the number of slots and the known evidence.
///
/// # Errors
/// The first [`Problem`] found.
pub fn check(output: &GlobalOutput, slots: usize, known: &HashSet<&str>) -> Result<(), Problem> {
    if output.updates.len() != slots {
        return Err(Problem::new(
            Reason::WrongCount,
            format!("`updates` must have exactly {slots} entries, one for each slot in order"),
        ));
    }
    for (index, draft) in output.updates.iter().enumerate() {
        if let Some(draft) = draft {
            drafts::check_draft(&format!("`updates` entry {}", index + 1), draft, known)?;
        }
    }
    for (index, draft) in output.new_topics.iter().enumerate() {
        drafts::check_draft(&format!("`new_topics` entry {}", index + 1), draft, known)?;
    }
    Ok(())
}

/// Binds a checked answer to its targets by place; a rewrite that changes nothing is dropped.
///
/// # Errors
/// `ambiguous_targets` when more than one Topic would change (TM-096).
pub fn bind(output: GlobalOutput, history: &[Current]) -> Result<Plan, WindowError> {
    let updates: Vec<PlannedUpdate> = history
        .iter()
        .zip(output.updates)
        .filter_map(|(target, draft)| Some(PlannedUpdate { target: target.clone(), draft: draft? }))
        .filter(|update| drafts::content(&update.draft) != update.target.content)
        .collect();
    if updates.len() > 1 {
        return Err(ErrorCode::AmbiguousTargets.into());
    }
    Ok(Plan { updates, creates: output.new_topics })
}

pub(crate) async fn ask(
    asker: &Asker<'_>,
    evidence: &EvidenceSet,
    history: &[Current],
) -> Result<Plan, WindowError> {
    let known = evidence.known();
    let question = question(evidence, history)?;
    let output: GlobalOutput = asker.ask(&question, |output| check(output, history.len(), &known)).await?;
    bind(output, history)
}

#[cfg(test)]
mod tests {
    use powercontext_core::ids::{ArtifactId, Revision};
    use powercontext_core::topic::{TopicContent, TopicRef};

    use super::*;

    fn current(name: &str) -> Current {
        let content = TopicContent { title: name.into(), summary: "s".into(), detail: "d".into() };
        let topic = TopicRef { artifact_id: ArtifactId::parse(name).unwrap(), revision: Revision::new(3) };
        Current { topic, content }
    }

    fn draft(title: &str) -> TopicDraft {
        TopicDraft {
            title: title.into(),
            summary: "s".into(),
            detail: "d".into(),
            evidence_ids: vec!["s1".into()],
        }
    }

    #[test]
    fn the_place_of_an_entry_names_its_target() {
        // TM-095, TM-127
        let output =
            GlobalOutput { updates: vec![None, Some(draft("new"))], new_topics: vec![draft("other")] };
        let plan = bind(output, &[current("a"), current("b")]).unwrap();
        assert_eq!(plan.updates, [PlannedUpdate { target: current("b"), draft: draft("new") }]);
        assert_eq!(plan.creates, [draft("other")]);
    }

    #[test]
    fn two_changed_slots_are_ambiguous_and_an_unchanged_one_is_not_counted() {
        // TM-096, TM-122
        let two = GlobalOutput { updates: vec![Some(draft("x")), Some(draft("y"))], new_topics: vec![] };
        let error = bind(two, &[current("a"), current("b")]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::AmbiguousTargets);
        let same = GlobalOutput { updates: vec![Some(draft("a")), Some(draft("y"))], new_topics: vec![] };
        assert_eq!(bind(same, &[current("a"), current("b")]).unwrap().updates.len(), 1);
        let nothing = GlobalOutput { updates: vec![Some(draft("a"))], new_topics: vec![] };
        assert_eq!(bind(nothing, &[current("a")]).unwrap(), Plan::default());
    }

    #[test]
    fn updates_must_match_the_slots_in_number() {
        // TM-096
        let known = HashSet::from(["s1"]);
        let output = |updates| GlobalOutput { updates, new_topics: vec![] };
        assert!(check(&output(vec![None, None]), 2, &known).is_ok());
        for wrong in [vec![], vec![None], vec![None, None, None]] {
            assert_eq!(
                check(&output(wrong), 2, &known).map_err(|problem| problem.reason),
                Err(Reason::WrongCount)
            );
        }
    }
}
