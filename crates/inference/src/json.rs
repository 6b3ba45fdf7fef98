//! Reads one flat JSON object from a setting, in order, refusing a name that is given twice.
//!
//! What the names and values mean is left to the modules that ask.

use std::fmt;

use serde::Deserialize;
use serde::de::{Error, MapAccess, Visitor};
use serde_json::Value;

/// The fields of one object in the order they were written.
pub(crate) struct Fields(pub(crate) Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Fields;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields: Vec<(String, Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom("a name is given twice"));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Reader)
    }
}

/// The fields of the object; `None` when the text is not one JSON object with distinct names.
pub(crate) fn fields(text: &str) -> Option<Vec<(String, Value)>> {
    serde_json::from_str::<Fields>(text).ok().map(|Fields(fields)| fields)
}

/// A name from a setting, short enough and plain enough to be told in a message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_object_with_distinct_names_is_read() {
        assert_eq!(
            fields(r#"{"b":1,"a":null}"#).unwrap(),
            [("b".into(), 1.into()), ("a".into(), Value::Null)]
        );
        for text in ["", "[]", "1", r#"{"a":1,"a":1}"#, r#"{"a":1} {}"#, "{'a':1}"] {
            assert!(fields(text).is_none(), "{text}");
        }
    }
}
