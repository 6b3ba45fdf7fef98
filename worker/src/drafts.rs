//! What a model's answer must satisfy before any of it is used: the rules every stage shares.
//!
//! Shape is checked by strict parsing ([`parse`]), meaning by [`check_draft`] and [`check_ids`].
//! Whatever breaks a rule is refused and named by a [`Problem`]; nothing is repaired here (B-26).
//! Rules that depend on one stage (counts, coverage) stay in that stage's module.

use std::collections::HashSet;
use std::fmt;

use powercontext_core::stages::TopicDraft;
use powercontext_core::topic::{MAX_DETAIL_CHARS, MAX_SUMMARY_CHARS, MAX_TITLE_CHARS, TopicContent};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::{Value, json};

/// Why an answer was refused; the stable word of it in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Not one JSON object of the stage's shape: bad JSON, prose around it, duplicate, unknown or
    /// missing fields, wrong types.
    InvalidJson,
    /// A text is blank.
    BlankText,
    /// A text contains a control character other than a tab or a line feed.
    ControlCharacter,
    /// A text is over its limit.
    TooLong,
    /// An entry names no evidence.
    NoEvidence,
    /// An entry names evidence twice.
    RepeatedEvidence,
    /// An entry names evidence that the request did not have (TM-043).
    UnknownEvidence,
    /// A list has another number of entries than the request asks for.
    WrongCount,
    /// Evidence of the request is missing from the answer (TM-117).
    MissingEvidence,
}

impl Reason {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::BlankText => "blank_text",
            Self::ControlCharacter => "control_character",
            Self::TooLong => "too_long",
            Self::NoEvidence => "no_evidence",
            Self::RepeatedEvidence => "repeated_evidence",
            Self::UnknownEvidence => "unknown_evidence",
            Self::WrongCount => "wrong_count",
            Self::MissingEvidence => "missing_evidence",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The most characters (Unicode scalar values) of a [`Problem`]'s text.
pub const MAX_PROBLEM_CHARS: usize = 500;

/// A refused answer: the reason for logs and the words for the model's next try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is logged.
    pub reason: Reason,
    text: String,
}

impl Problem {
    /// A problem with its words: ours alone, nothing that the model wrote. What is longer than
    /// [`MAX_PROBLEM_CHARS`] is cut off.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if let Some((end, _)) = text.char_indices().nth(MAX_PROBLEM_CHARS) {
            text.truncate(end);
        }
        Self { reason, text }
    }

    /// What the model is told.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Reads one JSON document of exactly the type's shape.
///
/// The stage types refuse unknown, missing and repeated fields; anything before or after the
/// document is refused too.
///
/// # Errors
/// A [`Problem`] with [`Reason::InvalidJson`].
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|error| {
        Problem::new(
            Reason::InvalidJson,
            format!(
                "the answer is not exactly one JSON object of the schema: {} at line {} column {}",
                misread(&error),
                error.line(),
                error.column()
            ),
        )
    })
}

/// What kind of mistake the reader met. The reader's own message may quote the answer at any length,
/// so only its first words are looked at.
fn misread(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        Category::Io | Category::Syntax => "it is not valid JSON",
        Category::Eof => "it ends too early",
        Category::Data => {
            let message = error.to_string();
            let known = [
                ("unknown field", "it has a field that the schema does not have"),
                ("missing field", "it lacks a field of the schema"),
                ("duplicate field", "it repeats a field"),
                ("invalid type", "it has a value of the wrong type"),
            ];
            let met = known.iter().find(|(start, _)| message.starts_with(start));
            met.map_or("it has a value that the schema does not allow", |(_, words)| words)
        }
    }
}

/// Checks the texts of a draft and the evidence it cites (TM-043, B-26).
///
/// `place` says which entry it is, for the model.
///
/// # Errors
/// The first [`Problem`] found.
pub fn check_draft(place: &str, draft: &TopicDraft, known: &HashSet<&str>) -> Result<(), Problem> {
    check_text(place, "title", &draft.title, MAX_TITLE_CHARS)?;
    check_text(place, "summary", &draft.summary, MAX_SUMMARY_CHARS)?;
    check_text(place, "detail", &draft.detail, MAX_DETAIL_CHARS)?;
    check_ids(place, &draft.evidence_ids, known)
}

/// Checks that a text is usable: not blank, no control character but tab and line feed, within its
/// limit of characters.
///
/// # Errors
/// The [`Problem`] with the text.
pub fn check_text(place: &str, field: &str, text: &str, limit: usize) -> Result<(), Problem> {
    if text.trim().is_empty() {
        return Err(Problem::new(Reason::BlankText, format!("{place}: `{field}` must not be blank")));
    }
    if text.bytes().any(|byte| byte < b' ' && byte != b'\t' && byte != b'\n') {
        return Err(Problem::new(
            Reason::ControlCharacter,
            format!("{place}: `{field}` must have no control character but tab and line feed"),
        ));
    }
    if text.len() > limit && text.chars().count() > limit {
        return Err(Problem::new(
            Reason::TooLong,
            format!("{place}: `{field}` must have at most {limit} characters"),
        ));
    }
    Ok(())
}

/// Checks that evidence ids are there, known and not repeated (TM-043).
///
/// # Errors
/// The [`Problem`] with the ids.
pub fn check_ids(place: &str, ids: &[String], known: &HashSet<&str>) -> Result<(), Problem> {
    if ids.is_empty() {
        return Err(Problem::new(
            Reason::NoEvidence,
            format!("{place}: `evidence_ids` must name at least one record"),
        ));
    }
    let mut seen = HashSet::with_capacity(ids.len());
    for id in ids {
        if !known.contains(id.as_str()) {
            return Err(Problem::new(
                Reason::UnknownEvidence,
                format!("{place}: `evidence_ids` may only use ids of the input"),
            ));
        }
        if !seen.insert(id.as_str()) {
            return Err(Problem::new(
                Reason::RepeatedEvidence,
                format!("{place}: `evidence_ids` must not repeat an id"),
            ));
        }
    }
    Ok(())
}

/// The content of a draft, exactly as the model wrote it.
#[must_use]
pub fn content(draft: &TopicDraft) -> TopicContent {
    TopicContent { title: draft.title.clone(), summary: draft.summary.clone(), detail: draft.detail.clone() }
}

/// The JSON schema of a [`TopicDraft`], in the subset that strict structured output supports.
#[must_use]
pub fn schema() -> Value {
    object(json!({
        "title": { "type": "string" },
        "summary": { "type": "string" },
        "detail": { "type": "string" },
        "evidence_ids": evidence_ids_schema(),
    }))
}

/// The JSON schema of a list of evidence ids.
#[must_use]
pub fn evidence_ids_schema() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

/// The JSON schema of a value or null.
#[must_use]
pub fn nullable(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// The JSON schema of an object that has exactly these properties.
#[must_use]
pub fn object(properties: Value) -> Value {
    let required: Vec<&String> =
        properties.as_object().map(|fields| fields.keys().collect()).unwrap_or_default();
    json!({
        "type": "object",
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}

#[cfg(test)]
mod tests {
    use powercontext_core::stages::{GlobalOutput, ProbeOutput, ReconcileOutput};
    use proptest::prelude::*;

    use super::*;

    fn draft(ids: &[&str]) -> TopicDraft {
        TopicDraft {
            title: "Title".into(),
            summary: "Summary".into(),
            detail: "Detail".into(),
            evidence_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    fn reason(draft: &TopicDraft) -> Option<Reason> {
        check_draft("entry", draft, &HashSet::from(["s1", "s2"])).err().map(|problem| problem.reason)
    }

    fn refused<T: DeserializeOwned>(text: &str) -> bool {
        parse::<T>(text).is_err_and(|problem| problem.reason == Reason::InvalidJson)
    }

    #[test]
    fn only_one_json_object_of_the_exact_shape_is_read() {
        // TM-126
        assert!(parse::<ProbeOutput>(r#" {"probes":[]} "#).is_ok());
        for text in [
            "",
            "null",
            "[]",
            "{}",
            r#"Here you are: {"probes":[]}"#,
            r#"{"probes":[]} Done."#,
            "```json\n{\"probes\":[]}\n```",
            r#"{"probes":[]}{"probes":[]}"#,
            r#"{"probes":[],"probes":[]}"#,
            r#"{"probes":[],"note":""}"#,
            r#"{"probes":null}"#,
            r#"{"probes":[{"query":"q"}]}"#,
            r#"{"probes":[{"query":"q","query":"r","evidence_ids":["s1"]}]}"#,
            r#"{"probes":[{"query":1,"evidence_ids":["s1"]}]}"#,
            r#"{"probes":[{"query":"q","evidence_ids":["s1"],"artifact_id":"top_1"}]}"#,
        ] {
            assert!(refused::<ProbeOutput>(text), "{text}");
        }
    }

    #[test]
    fn a_nullable_field_must_still_be_written() {
        // TM-126
        assert!(refused::<ReconcileOutput>(r#"{"creates":[]}"#));
        assert!(parse::<ReconcileOutput>(r#"{"update":null,"creates":[]}"#).is_ok());
        assert!(parse::<GlobalOutput>(r#"{"updates":[null,null],"new_topics":[]}"#).is_ok());
    }

    #[test]
    fn a_model_can_name_no_target_operation_or_revision() {
        // TM-127
        let text = r#"{"updates":[{"title":"t","summary":"s","detail":"d","evidence_ids":["s1"],"artifact_id":"top_1"}],"new_topics":[]}"#;
        assert!(refused::<GlobalOutput>(text));
    }

    #[test]
    fn a_draft_needs_text_in_every_field() {
        // B-26, TM-043
        assert_eq!(reason(&draft(&["s1"])), None);
        for blank in ["", " \n\t", "\u{3000}"] {
            assert_eq!(
                reason(&TopicDraft { title: blank.into(), ..draft(&["s1"]) }),
                Some(Reason::BlankText)
            );
            assert_eq!(
                reason(&TopicDraft { summary: blank.into(), ..draft(&["s1"]) }),
                Some(Reason::BlankText)
            );
            assert_eq!(
                reason(&TopicDraft { detail: blank.into(), ..draft(&["s1"]) }),
                Some(Reason::BlankText)
            );
        }
    }

    #[test]
    fn no_text_holds_a_control_character_but_tab_and_line_feed() {
        // B-26
        type Field = fn(TopicDraft, String) -> TopicDraft;
        let fields: [Field; 3] = [
            |draft, text| TopicDraft { title: text, ..draft },
            |draft, text| TopicDraft { summary: text, ..draft },
            |draft, text| TopicDraft { detail: text, ..draft },
        ];
        for code in 0_u8..32 {
            let expected = (!matches!(code, b'\t' | b'\n')).then_some(Reason::ControlCharacter);
            for field in fields {
                let text = format!("a{}b", char::from(code));
                assert_eq!(reason(&field(draft(&["s1"]), text)), expected, "{code}");
            }
        }
    }

    #[test]
    fn a_problem_is_short_and_quotes_nothing_of_the_answer() {
        // TM-033, TM-228
        let long = "zephyrine".repeat(100_000);
        for (text, words) in [
            (format!(r#"{{"{long}":1}}"#), "a field that the schema does not have"),
            (format!(r#"{{"probes":"{long}"}}"#), "a value of the wrong type"),
            (format!(r#"{{"probes":[{{"query":"q","{long}":1}}]}}"#), "a field that"),
            (format!(r#"{{"probes":[{{"query":"{long}"}}]}}"#), "lacks a field"),
            (format!("{long} {{}}"), "not valid JSON"),
            (format!(r#"{{"{long}"#), "ends too early"),
            (r#"{"probes":[],"probes":[]}"#.into(), "repeats a field"),
        ] {
            let problem = parse::<ProbeOutput>(&text).unwrap_err();
            assert!(problem.text().chars().count() <= MAX_PROBLEM_CHARS, "{}", problem.text());
            assert!(!problem.text().contains("zephyrine"), "{}", problem.text());
            assert!(problem.text().contains(words), "{}", problem.text());
        }
        assert_eq!(Problem::new(Reason::TooLong, "漢".repeat(501)).text(), "漢".repeat(500));
    }

    #[test]
    fn limits_are_counted_in_characters() {
        for (limit, set) in [
            (
                MAX_TITLE_CHARS,
                (|text| TopicDraft { title: text, ..draft(&["s1"]) }) as fn(String) -> TopicDraft,
            ),
            (MAX_SUMMARY_CHARS, |text| TopicDraft { summary: text, ..draft(&["s1"]) }),
            (MAX_DETAIL_CHARS, |text| TopicDraft { detail: text, ..draft(&["s1"]) }),
        ] {
            assert_eq!(reason(&set("漢".repeat(limit))), None);
            assert_eq!(reason(&set("漢".repeat(limit + 1))), Some(Reason::TooLong));
        }
    }

    #[test]
    fn evidence_must_be_there_known_and_named_once() {
        // TM-043
        assert_eq!(reason(&draft(&[])), Some(Reason::NoEvidence));
        assert_eq!(reason(&draft(&["s1", "s1"])), Some(Reason::RepeatedEvidence));
        for id in ["s3", "S1", "", "s1 ", "s01"] {
            assert_eq!(reason(&draft(&["s1", id])), Some(Reason::UnknownEvidence), "{id}");
        }
    }

    #[test]
    fn schemas_stay_in_the_strict_subset() {
        fn check(schema: &Value) {
            match schema {
                Value::Object(fields) => {
                    if fields.get("type") == Some(&json!("object")) {
                        let properties: Vec<&String> = fields["properties"]
                            .as_object()
                            .map(|all| all.keys().collect())
                            .unwrap_or_default();
                        assert_eq!(fields["required"], json!(properties));
                        assert_eq!(fields["additionalProperties"], json!(false));
                    }
                    for word in
                        ["minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "default"]
                    {
                        assert!(!fields.contains_key(word), "{word}");
                    }
                    fields.values().for_each(check);
                }
                Value::Array(items) => items.iter().for_each(check),
                _ => {}
            }
        }
        for schema in [crate::probe::schema(), crate::global::schema(), crate::reconcile::schema()] {
            check(&schema);
        }
    }

    proptest! {
        #[test]
        fn evidence_passes_exactly_when_it_is_a_non_empty_set_of_known_ids(
            ids in proptest::collection::vec("s[0-5]", 0..6), known in 0_usize..5,
        ) {
            // TM-043
            let names: Vec<String> = (1..=known).map(|index| format!("s{index}")).collect();
            let known: HashSet<&str> = names.iter().map(String::as_str).collect();
            let distinct: HashSet<&String> = ids.iter().collect();
            let expected = !ids.is_empty()
                && distinct.len() == ids.len()
                && ids.iter().all(|id| known.contains(id.as_str()));
            prop_assert_eq!(check_ids("entry", &ids, &known).is_ok(), expected);
        }

        #[test]
        fn parsing_never_panics(text in ".{0,200}") {
            let _ = parse::<GlobalOutput>(&text);
        }
    }
}
