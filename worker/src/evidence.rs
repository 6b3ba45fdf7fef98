//! Names the Sources of a Window for the model and maps those names back (TM-042, TM-043).
//!
//! The Window bounds what the model may read; it is nobody's evidence by itself (TM-041). Sources
//! marked `lineage_only` get no name and are never shown (TM-036).

use std::collections::HashSet;

use powercontext_core::evidence;
use powercontext_core::ids::SourceRef;
use powercontext_core::stages::EvidenceItem;

use crate::select::WindowSourceContent;

/// The evidence of one Window: items for the model, and the exact Source behind each.
#[derive(Clone, Debug, Default)]
pub struct EvidenceSet {
    items: Vec<EvidenceItem>,
    sources: Vec<SourceRef>,
}

impl EvidenceSet {
    /// Names the eligible Sources `s1`, `s2`, ... in Journal order.
    #[must_use]
    pub fn new(sources: Vec<WindowSourceContent>) -> Self {
        let mut set = Self::default();
        for source in sources {
            if let Some(material) = source.material {
                let id = evidence::evidence_id(set.items.len());
                set.items.push(evidence::item(id, material.content, material.metadata));
                set.sources.push(source.source_ref);
            }
        }
        set
    }

    /// What the model reads.
    #[must_use]
    pub fn items(&self) -> &[EvidenceItem] {
        &self.items
    }

    /// Whether no Source of the Window may be shown to a model (TM-037).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The ids a model may name.
    #[must_use]
    pub fn known(&self) -> HashSet<&str> {
        self.items.iter().map(|item| item.evidence_id.as_str()).collect()
    }

    /// The exact Sources behind validated ids, each once, in Journal order (TM-044).
    #[must_use]
    pub fn sources_of(&self, ids: &[String]) -> Vec<SourceRef> {
        let named: HashSet<&str> = ids.iter().map(String::as_str).collect();
        self.items
            .iter()
            .zip(&self.sources)
            .filter(|(item, _)| named.contains(item.evidence_id.as_str()))
            .map(|(_, source)| source.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use powercontext_core::ids::SourceId;
    use serde_json::json;

    use super::*;
    use crate::select::Material;

    fn source(name: &str, lineage_only: bool) -> WindowSourceContent {
        let material = (!lineage_only).then(|| Material { content: json!(name), metadata: None });
        WindowSourceContent { source_ref: SourceRef::content(SourceId::parse(name).unwrap()), material }
    }

    #[test]
    fn only_eligible_sources_get_a_name_and_names_lead_back_to_them() {
        // TM-036, TM-042, TM-044
        let set = EvidenceSet::new(vec![source("a", false), source("b", true), source("c", false)]);
        assert_eq!(set.known(), HashSet::from(["s1", "s2"]));
        let names = |ids: &[&str]| -> Vec<String> {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            set.sources_of(&ids).into_iter().map(|source| source.source_id.to_string()).collect()
        };
        assert_eq!(names(&["s2"]), ["c"]);
        assert_eq!(names(&["s2", "s1"]), ["a", "c"]);
    }

    #[test]
    fn a_window_of_lineage_only_sources_has_no_evidence() {
        // TM-037
        assert!(EvidenceSet::new(vec![source("a", true)]).is_empty());
    }
}
