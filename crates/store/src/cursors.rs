//! How far each binding has published, Scope by Scope (TM-021, TM-023).
//!
//! No row means position 0. Only the publish transaction moves a Cursor, by compare-and-set.

use powercontext_core::ids::{Position, Window};
use powercontext_core::work::WorkKey;

use crate::database::{Text, Transaction, Twin, values};
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
    position(tx, READ.into(), key).await
}

/// The Cursor, which stays where it is until this transaction ends.
///
/// A key without a row has nothing to lock; whoever decides on that holds the attempt or the Journal.
pub(crate) async fn lock(tx: &mut Transaction, key: &WorkKey) -> Result<Position, DatabaseError> {
    position(tx, LOCK.into(), key).await
}

async fn position(tx: &mut Transaction, text: Text, key: &WorkKey) -> Result<Position, DatabaseError> {
    let row = tx.query_one(text, values![key.scope.as_str(), key.binding.as_str()]).await?;
    row.map_or(Ok(Position::default()), |row| row.integer(0).map(Position::new))
}

pub(crate) const READ: &str =
    "SELECT position FROM pc_source_cursors WHERE scope_id = ? AND binding_name = ?";

/// A SQLite transaction excludes every other writer already; OceanBase locks the row.
const LOCK: Twin = Twin {
    sqlite: READ,
    oceanbase: "SELECT position FROM pc_source_cursors WHERE scope_id = ? AND binding_name = ? FOR UPDATE",
};

/// OceanBase has no `ON CONFLICT`; the row breaks no other rule that `IGNORE` could hide.
const FIRST: Twin = Twin {
    sqlite: "INSERT INTO pc_source_cursors (scope_id, binding_name, position) VALUES (?, ?, ?) \
        ON CONFLICT (scope_id, binding_name) DO NOTHING",
    oceanbase: "INSERT IGNORE INTO pc_source_cursors (scope_id, binding_name, position) VALUES (?, ?, ?)",
};

/// Moves the Cursor from the Window's start to its end; `false` means it is no longer at the start.
///
/// The row is made by the first Window alone, so an existing row makes that insert do nothing.
pub(crate) async fn advance(
    tx: &mut Transaction,
    key: &WorkKey,
    window: Window,
) -> Result<bool, DatabaseError> {
    let affected = if window.after == Position::default() {
        tx.execute(FIRST, values![key.scope.as_str(), key.binding.as_str(), window.through.get()]).await?
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
