//! Pages of Scopes, ascending by identity, narrowed by a filter.

use powercontext_core::ids::ScopeId;

use crate::database::{Value, values};
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
    /// The field contains the text, letter for letter: upper and lower case differ.
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
    let parent = filter.parent_scope_id.as_ref();
    if parent.is_some_and(|parent| !store.database.engine().tells_apart(parent.as_str())) {
        return Ok(Vec::new());
    }
    let mut text = String::from("SELECT scope_id FROM pc_scopes AS scope WHERE scope_id > ?");
    let mut parameters = values![after.map_or("", ScopeId::as_str)];
    if let Some(parent) = parent {
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
        text.push_str(match field {
            ScopeField::ScopeId => " AND instr(scope_id, ?) > 0",
            ScopeField::Title => " AND instr(title, ?) > 0",
            ScopeField::Summary => " AND instr(summary, ?) > 0",
            ScopeField::ExternalReferenceValue => {
                " AND EXISTS (SELECT 1 FROM pc_scope_external_references AS reference \
                 WHERE reference.scope_id = scope.scope_id AND instr(reference.value, ?) > 0)"
            }
        });
        parameters.push(Value::from(query));
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
