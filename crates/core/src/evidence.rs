//! Names the Sources of a Window for a model and bounds what one Source may be.
//!
//! The limits are limits of Topic processing (TM-039): a Source beyond them is still captured and
//! kept. They are checked while walking, before anything is serialized. Which Sources share a
//! Window is left to `window`; what an isolated Source leads to is left to the worker.

use serde_json::Value;

use crate::content::canonical;
use crate::stages::EvidenceItem;
use crate::tokens;
use crate::window::Size;

/// The most values and keys of one Source, metadata included (TM-038).
pub const MAX_VISITED: usize = 65_536;
/// The deepest nesting of arrays and objects (TM-038); a text alone has depth 0.
pub const MAX_DEPTH: usize = 32;
/// The most characters (Unicode scalar values) of texts and keys, and of the canonical form (TM-038).
pub const MAX_CHARS: usize = 4_194_304;

/// What the object around one item's content takes in a request, in tokens, at least.
const ENVELOPE_TOKENS: u64 = 24;

/// Which limit a Source breaks; recorded as `source_complexity_limit` (TM-040).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ComplexityLimit {
    /// More than [`MAX_VISITED`] values and keys.
    #[error("more than {MAX_VISITED} values and keys")]
    Visited,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    Depth,
    /// Texts and keys have more than [`MAX_CHARS`] characters.
    #[error("more than {MAX_CHARS} characters of text")]
    TextChars,
    /// The canonical form has more than [`MAX_CHARS`] characters.
    #[error("more than {MAX_CHARS} characters when serialized")]
    SerializedChars,
    /// There is no canonical form. Capture refuses such values, so the stored data was changed.
    #[error("no canonical form")]
    NotCanonical,
}

/// Measures one Source: its content and metadata together.
///
/// Characters are those of the canonical forms; tokens also count what surrounds an item in a
/// request, so that the sizes of a Window's Sources add up to a safe estimate of the Window.
///
/// # Errors
/// [`ComplexityLimit`] names the first limit that is broken; nothing larger than the limits is ever
/// built, and deep nesting does not use the thread's stack.
pub fn measure(content: &Value, metadata: Option<&Value>) -> Result<Size, ComplexityLimit> {
    let mut tally = Tally::default();
    for root in [Some(content), metadata].into_iter().flatten() {
        tally.walk(root)?;
    }
    let mut size = Size { tokens: ENVELOPE_TOKENS, chars: 0 };
    for root in [Some(content), metadata].into_iter().flatten() {
        let text = canonical(root).map_err(|_| ComplexityLimit::NotCanonical)?;
        size = size.plus(Size { tokens: tokens::estimate(&text), chars: text.chars().count() as u64 });
    }
    if size.chars > MAX_CHARS as u64 { Err(ComplexityLimit::SerializedChars) } else { Ok(size) }
}

/// The operation-local name of the eligible Source at a 0-based `index`: `s1`, `s2`, ... (TM-042).
#[must_use]
pub fn evidence_id(index: usize) -> String {
    format!("s{}", index.saturating_add(1))
}

/// One Source as a model sees it; metadata that is null or empty is left out.
#[must_use]
pub fn item(evidence_id: String, content: Value, metadata: Option<Value>) -> EvidenceItem {
    let says_something =
        |value: &Value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty());
    EvidenceItem { evidence_id, content, metadata: metadata.filter(says_something) }
}

/// What a walk has seen so far.
#[derive(Default)]
struct Tally {
    visited: usize,
    text_chars: usize,
}

/// The rest of an array or object that the walk is inside of.
enum Open<'a> {
    Items(std::slice::Iter<'a, Value>),
    Members(serde_json::map::Iter<'a>),
}

impl Tally {
    /// Visits every value and key of `root` in order. The list of open containers is the walk's
    /// whole memory and never longer than [`MAX_DEPTH`].
    fn walk(&mut self, root: &Value) -> Result<(), ComplexityLimit> {
        let mut open: Vec<Open<'_>> = Vec::new();
        let mut next = Some(root);
        loop {
            if let Some(value) = next {
                self.visit()?;
                let container = match value {
                    Value::Array(items) => Some(Open::Items(items.iter())),
                    Value::Object(members) => Some(Open::Members(members.iter())),
                    Value::String(text) => {
                        self.read(text)?;
                        None
                    }
                    Value::Null | Value::Bool(_) | Value::Number(_) => None,
                };
                if let Some(container) = container {
                    if open.len() == MAX_DEPTH {
                        return Err(ComplexityLimit::Depth);
                    }
                    open.push(container);
                }
            } else {
                open.pop();
            }
            next = match open.last_mut() {
                None => return Ok(()),
                Some(Open::Items(items)) => items.next(),
                Some(Open::Members(members)) => match members.next() {
                    None => None,
                    Some((key, value)) => {
                        self.visit()?;
                        self.read(key)?;
                        Some(value)
                    }
                },
            };
        }
    }

    fn visit(&mut self) -> Result<(), ComplexityLimit> {
        self.visited += 1;
        if self.visited > MAX_VISITED { Err(ComplexityLimit::Visited) } else { Ok(()) }
    }

    fn read(&mut self, text: &str) -> Result<(), ComplexityLimit> {
        self.text_chars += text.chars().count();
        if self.text_chars > MAX_CHARS { Err(ComplexityLimit::TextChars) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `depth` arrays around `inner`.
    fn nested(depth: usize, inner: Value) -> Value {
        (0..depth).fold(inner, |inner, _| Value::Array(vec![inner]))
    }

    #[test]
    fn a_size_counts_the_canonical_form_of_content_and_metadata_in_characters() {
        // TM-029, TM-038, TM-039, B-30
        let plain = measure(&json!("漢字\n"), None).unwrap();
        assert_eq!(plain.chars, 6, "two quotes, two characters, one escape of two");
        let with = measure(&json!("漢字\n"), Some(&json!({"b": 1, "a": 2}))).unwrap();
        assert_eq!(with.chars, 6 + 13);
        assert!(with.tokens > plain.tokens && plain.tokens > 0);
    }

    #[test]
    fn values_and_keys_are_limited_in_total_with_metadata() {
        // TM-038, TM-039
        let nulls = |count: usize| Value::Array(vec![Value::Null; count]);
        assert!(measure(&nulls(MAX_VISITED - 1), None).is_ok());
        assert_eq!(measure(&nulls(MAX_VISITED), None), Err(ComplexityLimit::Visited));
        assert_eq!(measure(&nulls(MAX_VISITED - 1), Some(&json!(1))), Err(ComplexityLimit::Visited));
        let members = |count: usize| {
            Value::Object((0..count).map(|number| (number.to_string(), Value::Null)).collect())
        };
        assert!(measure(&members((MAX_VISITED - 1) / 2), None).is_ok());
        assert_eq!(measure(&members(MAX_VISITED / 2), None), Err(ComplexityLimit::Visited), "keys count");
    }

    #[test]
    fn depth_is_limited_in_content_and_in_metadata() {
        // TM-038, TM-039
        assert!(measure(&nested(MAX_DEPTH, json!(1)), None).is_ok());
        assert_eq!(measure(&nested(MAX_DEPTH + 1, json!(1)), None), Err(ComplexityLimit::Depth));
        let inside = json!({"k": nested(MAX_DEPTH, json!(1))});
        assert_eq!(measure(&json!("x"), Some(&inside)), Err(ComplexityLimit::Depth));
    }

    #[test]
    fn very_deep_content_is_measured_without_exhausting_the_stack() {
        // TM-038
        let deep = nested(300_000, json!(1));
        assert_eq!(measure(&deep, None), Err(ComplexityLimit::Depth));
        std::mem::forget(deep); // dropping it would recurse
    }

    #[test]
    fn text_is_limited_in_characters_over_values_keys_and_metadata() {
        // TM-038, B-30
        let fits = "漢".repeat(MAX_CHARS - 2);
        assert_eq!(measure(&json!(fits), None).map(|size| size.chars), Ok(MAX_CHARS as u64));
        let one_more = json!([fits, "abc"]);
        assert_eq!(measure(&one_more, None), Err(ComplexityLimit::TextChars));
        assert_eq!(measure(&json!(fits), Some(&json!({"abc": 1}))), Err(ComplexityLimit::TextChars));
    }

    #[test]
    fn the_serialized_form_must_hold_the_character_limit_too() {
        // TM-038
        assert_eq!(measure(&json!("x".repeat(MAX_CHARS - 1)), None), Err(ComplexityLimit::SerializedChars));
        assert_eq!(measure(&json!("\n".repeat(MAX_CHARS / 2)), None), Err(ComplexityLimit::SerializedChars));
    }

    #[test]
    fn evidence_is_named_in_journal_order_from_one() {
        // TM-042
        assert_eq!((0..3).map(evidence_id).collect::<Vec<_>>(), ["s1", "s2", "s3"]);
    }

    #[test]
    fn an_item_leaves_out_metadata_that_says_nothing() {
        let metadata = |value| item("s1".to_owned(), json!("x"), Some(value)).metadata;
        assert_eq!(metadata(json!(null)), None);
        assert_eq!(metadata(json!({})), None);
        assert_eq!(metadata(json!({"a": 1})), Some(json!({"a": 1})));
    }
}
