//! How far each binding has published, Scope by Scope (TM-021, TM-023).
//!
//! No row means position 0. Only the publish transaction moves a Cursor, by compare-and-set.

use powercontext_core::ids::{Position, Window};
use powercontext_core::work::WorkKey;

use crate::database::{Transaction, values};
use crate::{DatabaseError, Store, StoreError};

/// The Cursor of a key; 0 before its first Window.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn get(store: &Store, key: &WorkKey) -> Result<Position, StoreError> {
    let at = StoreError::at("cursors.get");
    let mut reader = store.database.read().await.map_err(&at)?;
    read(&mut reader, key).await.map_err(&at)
}

/// The Cursor as a transaction sees it.
pub(crate) async fn read(tx: &mut Transaction, key: &WorkKey) -> Result<Position, DatabaseError> {
    let row = tx
        .query_one(
            "SELECT position FROM pc_source_cursors WHERE scope_id = ? AND binding_name = ?",
            values![key.scope.as_str(), key.binding.as_str()],
        )
        .await?;
    row.map_or(Ok(Position::default()), |row| row.integer(0).map(Position::new))
}

/// Moves the Cursor from the Window's start to its end; `false` means it is no longer at the start.
///
/// The row is made by the first Window alone, so an existing row makes that insert do nothing.
pub(crate) async fn advance(
    tx: &mut Transaction,
    key: &WorkKey,
    window: Window,
) -> Result<bool, DatabaseError> {
    let affected = if window.after == Position::default() {
        tx.execute(
            "INSERT INTO pc_source_cursors (scope_id, binding_name, position) VALUES (?, ?, ?) \
             ON CONFLICT (scope_id, binding_name) DO NOTHING",
            values![key.scope.as_str(), key.binding.as_str(), window.through.get()],
        )
        .await?
    } else {
        tx.execute(
            "UPDATE pc_source_cursors SET position = ? \
             WHERE scope_id = ? AND binding_name = ? AND position = ?",
            values![window.through.get(), key.scope.as_str(), key.binding.as_str(), window.after.get()],
        )
        .await?
    };
    Ok(affected == 1)
}
