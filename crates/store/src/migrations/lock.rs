//! One migration run at a time: a named lock of the OceanBase server.
//!
//! It belongs to a connection of its own, so a run that dies gives it back. SQLite needs none,
//! because its transactions exclude each other and hold whole migrations.

use crate::database::{Database, Engine, Transaction, values};
use crate::error::StoreError;

/// How long a run waits for another one, in seconds.
const WAIT_SECONDS: i64 = 300;

/// Waits until no other run is at work on this database.
pub(super) async fn take(database: &Database) -> Result<Option<Transaction>, StoreError> {
    let at = StoreError::at("migrations.lock");
    if database.engine() == Engine::Sqlite {
        return Ok(None);
    }
    let mut session = database.session().await.map_err(&at)?;
    let row = session
        .query_one("SELECT get_lock(concat('powercontext.migrate.', database()), ?)", values![WAIT_SECONDS])
        .await
        .map_err(&at)?;
    let taken = row.map_or(Ok(None), |row| row.optional_integer(0)).map_err(&at)?;
    if taken == Some(1) {
        Ok(Some(session))
    } else {
        Err(StoreError::invalid("another migration of this database did not end in time"))
    }
}

/// Lets the next run begin.
pub(super) async fn release(lock: Option<Transaction>) {
    if let Some(mut session) = lock {
        let text = "SELECT release_lock(concat('powercontext.migrate.', database()))";
        let released = session.query(text, values![]).await;
        // A lock that cannot be given back ends with its connection.
        tracing::debug!(ok = released.is_ok(), "released the migration lock");
    }
}
