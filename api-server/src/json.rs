//! Reads a request body as JSON: what is refused before any field is looked at.
//!
//! One pass over the bytes finds nesting that is too deep and integers that a number type would
//! round, before anything recursive or lossy touches them. Fields are left to `schema`.

use powercontext_core::content::{MAX_DEPTH, MAX_INTEGER};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::error::{ApiError, Problem};

/// A parsed body.
#[derive(Debug)]
pub struct Document {
    /// The value; of equal keys the last one counts.
    pub value: Value,
    /// Whether an integer beyond 2^53 - 1 stands anywhere in it.
    pub has_huge_integer: bool,
}

/// Parses a body.
///
/// # Errors
/// 400 when it is not UTF-8 or nested deeper than [`MAX_DEPTH`]; 422 when it is no JSON text,
/// which includes lone surrogates and numbers that are not finite.
pub fn parse(body: &[u8]) -> Result<Document, ApiError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if body.is_empty() {
        let rule = "a JSON body is required".to_owned();
        return Err(ApiError::invalid(&[Problem { loc: vec![json!("body")], kind: "missing", rule }]));
    }
    let text = std::str::from_utf8(body).map_err(|_| ApiError::unreadable())?;
    let scan = scan(text.as_bytes());
    if scan.depth > MAX_DEPTH {
        return Err(ApiError::unreadable());
    }
    let invalid = |error: serde_json::Error| invalid(text, &error);
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit(); // the scan above has bounded the depth
    let value = Value::deserialize(&mut reader).map_err(invalid)?;
    reader.end().map_err(invalid)?;
    Ok(Document { value, has_huge_integer: scan.has_huge_integer })
}

/// Says where a text stops being JSON, in characters from its start, and nothing of what stands there.
fn invalid(text: &str, error: &serde_json::Error) -> ApiError {
    let (at, rule) = if error.is_eof() {
        (text.chars().count(), "must be valid JSON; the text ends too early".to_owned())
    } else {
        let line = error.line().saturating_sub(1);
        let before: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let byte = before + error.column().saturating_sub(1);
        let at = text.char_indices().take_while(|(start, _)| *start < byte).count();
        (at, format!("must be valid JSON; the mistake is at character {at}, counted from 0"))
    };
    ApiError::not_json(Problem { loc: vec![json!("body"), json!(at)], kind: "json_invalid", rule })
}

#[derive(Default)]
struct Scan {
    depth: usize,
    has_huge_integer: bool,
}

/// Looks at the tokens of a text that may or may not be JSON.
fn scan(text: &[u8]) -> Scan {
    let mut found = Scan::default();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                found.depth = found.depth.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = end_of_string(text, at),
            b'0'..=b'9' => {
                let rest = text.get(at - 1..).unwrap_or_default();
                let length = rest
                    .iter()
                    .take_while(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                    .count();
                let token = rest.get(..length).unwrap_or_default();
                found.has_huge_integer |= is_huge_integer(token);
                at += length.saturating_sub(1);
            }
            _ => {}
        }
    }
    found
}

/// The place behind the closing quotation mark of a string whose inside starts at `at`.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

fn is_huge_integer(token: &[u8]) -> bool {
    if !token.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let digits = std::str::from_utf8(token).unwrap_or_default().trim_start_matches('0');
    digits.len() > 16 || digits.parse::<u64>().is_ok_and(|number| number > MAX_INTEGER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;

    fn status(body: &[u8]) -> u16 {
        parse(body).map_or_else(|error| error.into_response().status().as_u16(), |_| 200)
    }

    #[test]
    fn what_is_not_json_is_refused_by_kind() {
        for (body, expected) in [
            (&b""[..], 422),
            (b"\xef\xbb\xbf{}", 200),
            (b"{\"a\":\"\xff\"}", 400),
            (b"{\"a\":", 422),
            (b"{}{}", 422),
            (b"{\"a\":1,}", 422),
            (b"{'a':1}", 422),
            (b"{\"a\":NaN}", 422),
            (b"{\"a\":1e400}", 422),
            (br#"{"a":"\ud800"}"#, 422),
            (br#"{"a":"\ud83d\ude42"}"#, 200),
            (br#"{"a":"\u0000"}"#, 200),
        ] {
            assert_eq!(status(body), expected, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn nesting_is_bounded_before_it_is_parsed() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(status(nested(256).as_bytes()), 200);
        assert_eq!(status(nested(257).as_bytes()), 400);
        assert_eq!(status("[".repeat(1_000_000).as_bytes()), 400);
        assert_eq!(status(format!("\"{}\"", "[".repeat(1_000)).as_bytes()), 200, "brackets in a text");
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        assert_eq!(parse(br#"{"a":1,"a":2}"#).unwrap().value, json!({"a": 2}));
    }

    #[test]
    fn integers_that_would_be_rounded_are_noticed() {
        for (text, huge) in [
            ("9007199254740991", false),
            ("9007199254740992", true),
            ("[-9007199254740992]", true),
            ("99999999999999999999999", true),
            ("1e300", false),
            ("9007199254740993.5", false),
            ("\"9007199254740993\"", false),
            ("\"\\\"9007199254740993\"", false),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().has_huge_integer, huge, "{text}");
        }
    }

    #[test]
    fn fractions_keep_their_exact_value() {
        let text = "[0.1,1.7976931348623157e308,5e-324,2.2250738585072011e-308,123456789.12345678]";
        let parsed = parse(text.as_bytes()).unwrap().value;
        let expected = [0.1, f64::MAX, 5e-324, 2.225_073_858_507_201e-308, 123_456_789.123_456_78];
        for (index, number) in expected.iter().enumerate() {
            assert_eq!(parsed[index].as_f64(), Some(*number));
        }
    }
}
