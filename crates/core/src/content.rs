//! The canonical form of captured JSON and its digest.
//!
//! Canonical is RFC 8785: equal values have equal bytes whatever the order of their keys was. What
//! may be captured is left to the caller; text with lone surrogates never gets this far, because a
//! Rust string cannot hold one.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The largest integer that every JSON reader keeps exactly: 2^53 - 1.
pub const MAX_INTEGER: u64 = 9_007_199_254_740_991;

/// The deepest nesting of arrays and objects that has a canonical form; keeps the walk off the end
/// of the thread's stack.
pub const MAX_DEPTH: usize = 256;

/// Why a value has no canonical form. Never carries the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// An integer that other readers would round.
    #[error("an integer lies beyond 2^53")]
    Integer,
    /// A number that is not finite.
    #[error("a number is not finite")]
    NotFinite,
    /// Arrays and objects nested deeper than [`MAX_DEPTH`].
    #[error("the value is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// The canonical text of a value (RFC 8785).
///
/// # Errors
/// [`NotCanonical`] when a number cannot be kept exactly or the value is nested too deep.
pub fn canonical(value: &Value) -> Result<String, NotCanonical> {
    check(value)?;
    // After the check a non-finite number is all the serializer could still refuse.
    serde_json_canonicalizer::to_string(value).map_err(|_| NotCanonical::NotFinite)
}

/// The digest of a canonical text: `sha256:` and 64 lower-case hexadecimal digits.
#[must_use]
pub fn digest(canonical: &str) -> String {
    use std::fmt::Write as _;

    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    for byte in Sha256::digest(canonical.as_bytes()) {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn check(root: &Value) -> Result<(), NotCanonical> {
    let mut open = vec![(root, 0_usize)];
    while let Some((value, depth)) = open.pop() {
        match value {
            Value::Number(number) => {
                let integer = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
                if integer.is_some_and(|integer| integer > MAX_INTEGER) {
                    return Err(NotCanonical::Integer);
                }
                if !number.as_f64().is_some_and(f64::is_finite) {
                    return Err(NotCanonical::NotFinite);
                }
            }
            Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => return Err(NotCanonical::TooDeep),
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|member| (member, depth + 1))),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn digest_of(value: &Value) -> String {
        digest(&canonical(value).unwrap())
    }

    #[test]
    fn digests_equal_those_of_the_recorded_contract() {
        // TM-019
        let recorded = [
            (json!("hello source"), "512af26e52b83421c7e3ad1e4832dd5a3b1f1ca4d8517f40a7101bd13aa56473"),
            (json!(""), "12ae32cb1ec02d01eda3581b127c1fee3b0dc53572ed6baf239721a03d82e126"),
            (json!(5), "ef2d127de37b942baad06145e54b0c619a1f22327b2ebbcfbec78f5564afe39d"),
            (json!(2.5), "b8736b999909049671d0ea075a42b308a5fbe2df1854899123fe09eb0ee9de61"),
            (json!(true), "b5bea41b6c623f7c09f1bf24dcae58ebab3c0cdd90ad966bc43a45b44867e12b"),
            (json!(null), "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
            (
                json!([1, "two", null, {"three": 3}]),
                "c244a2b5b1ae6af2fd5b68e220afde98973c5e56487bf62d9895a44ef4f539da",
            ),
            (json!("a\0b\u{7}c\u{1b}d"), "7087bbac71c89209bc28e250009cd819a4a640c37f71a0d087f0283a93f33f74"),
            (
                json!("\u{ffff} \u{fdd0} \u{10ffff}"),
                "9d8a821fd8b5246ce788f088e9b3233f7338399ce8ec20cab567e9925702cfec",
            ),
            (json!("x".repeat(200_001)), "baf73ab61bb73072294620b0d0706e8a8cc9f1e0d8012e51c688f2cf0288fb77"),
            (json!("漢".repeat(200_000)), "60fa3f61cee2ca03bff1fbe9e5e9e0a419c99de8c791849835d9d10f96fc2f41"),
        ];
        for (value, expected) in recorded {
            assert_eq!(digest_of(&value), format!("sha256:{expected}"));
        }
    }

    #[test]
    fn the_order_of_keys_does_not_change_the_digest() {
        let one = json!({"b": 1, "a": [true, "漢"], "c": {"z": 0, "y": ""}});
        let other = json!({"c": {"y": "", "z": 0}, "a": [true, "漢"], "b": 1});
        assert_ne!(one.to_string(), other.to_string(), "the values keep their own order");
        assert_eq!(
            digest_of(&one),
            "sha256:70a54093244b9814229b6be718f664fe2ddd183f686e1bb91c20c9fd536e0e92"
        );
        assert_eq!(digest_of(&one), digest_of(&other));
    }

    #[test]
    fn an_integer_that_others_would_round_has_no_canonical_form() {
        assert_eq!(canonical(&json!(MAX_INTEGER)).as_deref(), Ok("9007199254740991"));
        assert_eq!(canonical(&json!(-9_007_199_254_740_991_i64)).as_deref(), Ok("-9007199254740991"));
        assert_eq!(canonical(&json!(MAX_INTEGER + 1)), Err(NotCanonical::Integer));
        assert_eq!(canonical(&json!({"a": [i64::MIN]})), Err(NotCanonical::Integer));
        assert_eq!(canonical(&json!(u64::MAX)), Err(NotCanonical::Integer));
    }

    #[test]
    fn a_very_deep_value_is_refused_without_exhausting_the_stack() {
        let nest = |depth| (0..depth).fold(json!([]), |inner, _| Value::Array(vec![inner]));
        assert!(canonical(&nest(MAX_DEPTH - 1)).is_ok());
        assert_eq!(canonical(&nest(MAX_DEPTH)), Err(NotCanonical::TooDeep));
        let deep = nest(200_000);
        assert_eq!(canonical(&deep), Err(NotCanonical::TooDeep));
        std::mem::forget(deep); // dropping it would recurse
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-1_000_000_i64..1_000_000).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_canonical_text_reads_back_as_the_same_canonical_text(value in any_json()) {
            let text = canonical(&value).unwrap();
            let again: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(serde_json_canonicalizer::to_string(&again).unwrap(), text);
        }
    }
}
