//! The values behind placeholders in one scenario, and the `repeat` macro.

use std::collections::BTreeMap;

use powercontext_core::ambient::{IdSource, SystemIds};
use serde_json::Value;

/// A placeholder such as `{{scope.a}}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placeholder {
    /// The part before the dot.
    pub kind: String,
    /// The part behind the dot.
    pub label: String,
}

impl Placeholder {
    /// Reads `kind.label` at the start of a text that must go on with `}}`; also says where the
    /// rest begins.
    fn read(text: &str) -> Option<(Self, &str)> {
        let (inside, rest) = text.split_once("}}")?;
        Some((Self::parse(inside)?, rest))
    }

    /// Reads `kind.label`.
    fn parse(text: &str) -> Option<Self> {
        let (kind, label) = text.split_once('.')?;
        let kind_is_valid = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase());
        let label_is_valid = !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        (kind_is_valid && label_is_valid).then(|| Self { kind: kind.to_owned(), label: label.to_owned() })
    }

    /// The one placeholder that a text consists of.
    #[must_use]
    pub fn whole(text: &str) -> Option<Self> {
        let (found, rest) = Self::read(text.strip_prefix("{{")?)?;
        rest.is_empty().then_some(found)
    }

    /// Whether any non-empty text will do, every time.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.kind == "any"
    }
}

/// The values bound so far.
#[derive(Clone, Debug, Default)]
pub struct Names {
    values: BTreeMap<Placeholder, String>,
}

impl Names {
    /// The names of a scenario that is about to start.
    #[must_use]
    pub fn new(base_url: &str) -> Self {
        let base = Placeholder { kind: "config".to_owned(), label: "base_url".to_owned() };
        Self { values: BTreeMap::from([(base, base_url.to_owned())]) }
    }

    /// Whether a value from the server would be seen for the first time.
    #[must_use]
    pub fn is_new(&self, name: &Placeholder) -> bool {
        name.kind != "fresh" && !self.values.contains_key(name)
    }

    /// Binds a value for the rest of the scenario.
    pub fn bind(&mut self, name: Placeholder, value: &str) {
        self.values.insert(name, value.to_owned());
    }

    /// Replaces the macro and every placeholder. A fresh text is made up at its first use.
    ///
    /// # Errors
    /// Names the placeholder that has no value.
    pub fn fill(&mut self, text: &str) -> Result<String, String> {
        let text = expand(text);
        let mut filled = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(start) = rest.find("{{") {
            filled.push_str(&rest[..start]);
            if let Some((name, behind)) = Placeholder::read(&rest[start + 2..]) {
                filled.push_str(self.known(name)?);
                rest = behind;
            } else {
                filled.push('{');
                rest = &rest[start + 1..];
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// [`Self::fill`] for every text value inside a JSON value.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn fill_json(&mut self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.fill_json(item)).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let mut filled = serde_json::Map::new();
                for (key, member) in members {
                    filled.insert(key.clone(), self.fill_json(member)?);
                }
                Value::Object(filled)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    /// Sorts rows of bound values by their first column and binds them to the rows from the top.
    ///
    /// # Errors
    /// Names a placeholder that has no value.
    pub fn sort_rows(&mut self, rows: &[Vec<String>]) -> Result<(), String> {
        let mut names = Vec::new();
        let mut values = Vec::new();
        for row in rows {
            let row: Vec<Placeholder> = row
                .iter()
                .map(|text| Placeholder::parse(text).ok_or(format!("`{text}` is no placeholder")))
                .collect::<Result<_, _>>()?;
            let bound: Vec<String> = row
                .iter()
                .map(|name| self.known(name.clone()).map(str::to_owned))
                .collect::<Result<_, _>>()?;
            names.push(row);
            values.push(bound);
        }
        values.sort_by(|one, other| one.first().cmp(&other.first()));
        for (row, bound) in names.into_iter().zip(values) {
            self.values.extend(row.into_iter().zip(bound));
        }
        Ok(())
    }

    fn known(&mut self, name: Placeholder) -> Result<&str, String> {
        if name.kind == "fresh" && !self.values.contains_key(&name) {
            let value = format!("replay-{}-{}", name.label, SystemIds.random().simple());
            self.values.insert(name.clone(), value);
        }
        self.values.get(&name).map(String::as_str).ok_or_else(|| {
            format!("{}.{} has no value; an earlier step must have failed", name.kind, name.label)
        })
    }
}

/// Writes out `{{repeat:COUNT:TEXT}}`; anything else stays as it is.
#[must_use]
pub fn expand(text: &str) -> String {
    const START: &str = "{{repeat:";
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(START) {
        let inside = &rest[start + START.len()..];
        let found = inside
            .split_once(':')
            .and_then(|(count, tail)| Some((count.parse::<usize>().ok()?, tail.split_once("}}")?)));
        if let Some((count, (repeated, behind))) = found {
            expanded.push_str(&rest[..start]);
            expanded.push_str(&repeated.repeat(count));
            rest = behind;
        } else {
            expanded.push_str(&rest[..start + START.len()]);
            rest = inside;
        }
    }
    expanded.push_str(rest);
    expanded
}
