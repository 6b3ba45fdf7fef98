//! Settings that are JSON objects: as a text everywhere, or as a table in the file.
//!
//! What the names inside mean is left to the providers.

use serde_json::{Map, Value};

/// Whether a text is one JSON object.
pub(crate) fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// The JSON text of a table of the file; `None` for what JSON does not have, such as a date.
pub(crate) fn of_table(table: &toml::Table) -> Option<String> {
    let has_date = |value: &toml::Value| matches!(value, toml::Value::Datetime(_));
    if table.values().any(has_date) {
        return None;
    }
    serde_json::to_string(table).ok()
}

/// The object as it may be logged: numbers, truth values and plain words, nothing else.
pub(crate) fn shown(text: &str) -> String {
    let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(text) else {
        return "[redacted]".to_owned();
    };
    for value in fields.values_mut() {
        let is_plain = match &*value {
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
            Value::String(word) => {
                word.len() <= 16 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            }
            Value::Array(_) | Value::Object(_) => false,
        };
        if !is_plain {
            *value = "[redacted]".into();
        }
    }
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_truth_values_and_plain_words_are_shown() {
        // TM-229
        let text =
            r#"{"temperature":0.2,"truncate":true,"tier":"flex","key":"sk-1","extra":{"a":"b"},"l":["x"]}"#;
        let expected = r#"{"temperature":0.2,"truncate":true,"tier":"flex","key":"[redacted]","extra":"[redacted]","l":"[redacted]"}"#;
        assert_eq!(shown(text), expected);
        assert_eq!(shown("sk-1"), "[redacted]");
    }

    #[test]
    fn a_table_of_the_file_is_the_same_object() {
        let table: toml::Table = "temperature = 0.2\nseed = 7\nservice_tier = 'flex'".parse().unwrap();
        let text = of_table(&table).unwrap();
        assert!(is_object(&text));
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, serde_json::json!({ "temperature": 0.2, "seed": 7, "service_tier": "flex" }));
        assert_eq!(of_table(&"day = 2026-01-01".parse().unwrap()), None);
        assert!(!is_object("[]") && !is_object("{} {}"));
    }
}
