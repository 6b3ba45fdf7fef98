//! One migration run at a time: a locked row of the OceanBase database.
//!
//! The lock is a transaction on a connection of its own, so a run that dies gives it back. SQLite
//! needs none, because its transactions exclude each other and hold whole migrations.

use crate::database::{Database, Engine, Transaction, values};
use crate::error::StoreError;

/// Waits until no other run is at work on this database.
pub(super) async fn take(database: &Database) -> Result<Option<Transaction>, StoreError> {
    let at = StoreError::at("migrations.lock");
    if database.engine() == Engine::Sqlite {
        return Ok(None);
    }
    let mut session = database.session().await.map_err(&at)?;
    for text in [
        "CREATE TABLE IF NOT EXISTS pc_schema_lock (singleton BIGINT PRIMARY KEY)",
        "INSERT INTO pc_schema_lock (singleton) VALUES (1) ON DUPLICATE KEY UPDATE singleton = singleton",
        "START TRANSACTION",
    ] {
        session.command(text.to_owned()).await.map_err(&at)?;
    }
    let text = "SELECT singleton FROM pc_schema_lock WHERE singleton = 1 FOR UPDATE";
    match session.query_one(text, values![]).await.map_err(&at)? {
        Some(_) => Ok(Some(session)),
        None => Err(StoreError::invalid("the row that migrations lock vanished")),
    }
}

/// Lets the next run begin.
pub(super) async fn release(lock: Option<Transaction>) {
    if let Some(session) = lock {
        session.roll_back().await;
    }
}
