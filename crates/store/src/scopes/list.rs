//! Pages of Scopes, ascending by identity, narrowed by a filter.

use powercontext_core::ids::ScopeId;

use crate::database::{Engine, Value, values};
use crate::{Store, StoreError};

use super::{Scope, load_all};

/// Which field a text is searched in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeField {
    /// The identity.
    ScopeId,
    /// The title.
    Title,
    /// The summary.
    Summary,
    /// The value of any external reference.
    ExternalReferenceValue,
}

/// What a listed Scope must fulfil; everything given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeFilter {
    /// Lies directly in this Scope.
    pub parent_scope_id: Option<ScopeId>,
    /// Has an external reference of this kind.
    pub external_reference_kind: Option<String>,
    /// The field contains the text; ASCII letters match in either case.
    pub query: Option<(ScopeField, String)>,
}

/// At most `limit` Scopes behind `after`, ascending. An unknown parent has no children.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn list(
    store: &Store,
    filter: &ScopeFilter,
    after: Option<&ScopeId>,
    limit: u32,
) -> Result<Vec<Scope>, StoreError> {
    let at = StoreError::at("scopes.list");
    let mut text = String::from("SELECT scope_id FROM pc_scopes AS scope WHERE scope_id > ?");
    let mut parameters = values![after.map_or("", ScopeId::as_str)];
    if let Some(parent) = &filter.parent_scope_id {
        text.push_str(" AND parent_scope_id = ?");
        parameters.push(Value::from(parent.as_str()));
    }
    if let Some(kind) = &filter.external_reference_kind {
        text.push_str(
            " AND EXISTS (SELECT 1 FROM pc_scope_external_references AS reference \
             WHERE reference.scope_id = scope.scope_id AND reference.kind = ?)",
        );
        parameters.push(Value::from(kind));
    }
    if let Some((field, query)) = &filter.query {
        let (column, in_references) = match field {
            ScopeField::ScopeId => ("scope_id", false),
            ScopeField::Title => ("title", false),
            ScopeField::Summary => ("summary", false),
            ScopeField::ExternalReferenceValue => ("reference.value", true),
        };
        let (condition, pattern) = match store.database.engine() {
            Engine::Sqlite => (format!("{column} LIKE ? ESCAPE '!'"), containing(query)),
            // LIKE compares by bytes there, and lower() would fold more than ASCII.
            Engine::OceanBase => (format!("regexp_like({column}, ?, 'c')"), either_case(query)),
        };
        text.push_str(&if in_references {
            format!(
                " AND EXISTS (SELECT 1 FROM pc_scope_external_references AS reference \
                 WHERE reference.scope_id = scope.scope_id AND {condition})"
            )
        } else {
            format!(" AND {condition}")
        });
        parameters.push(Value::Text(pattern));
    }
    text.push_str(" ORDER BY scope_id LIMIT ?");
    parameters.push(Value::Integer(i64::from(limit)));
    let mut reader = store.database.snapshot().await.map_err(&at)?;
    let rows = reader.query(text, parameters).await.map_err(&at)?;
    let mut ids = Vec::with_capacity(rows.len());
    for row in &rows {
        ids.push(Value::Text(row.text(0).map_err(&at)?));
    }
    if ids.is_empty() { Ok(Vec::new()) } else { load_all(&mut reader, &ids).await }
}

/// A pattern for texts that contain `query` literally.
fn containing(query: &str) -> String {
    let mut pattern = String::with_capacity(query.len() + 2);
    pattern.push('%');
    for character in query.chars() {
        if matches!(character, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

/// A regular expression for texts that contain `query`, with ASCII letters in either case.
fn either_case(query: &str) -> String {
    let mut pattern = String::with_capacity(query.len() * 4);
    for character in query.chars() {
        if character.is_ascii_alphabetic() {
            pattern.extend(['[', character.to_ascii_lowercase(), character.to_ascii_uppercase(), ']']);
        } else if character.is_alphanumeric() {
            pattern.push(character);
        } else {
            pattern.push_str(&format!("\\x{{{:x}}}", u32::from(character)));
        }
    }
    pattern
}
