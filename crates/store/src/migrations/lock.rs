//! One migration run at a time: a named lock of the OceanBase server.
//!
//! It belongs to a connection of its own, so a run that dies gives it back. SQLite needs none,
//! because its transactions exclude each other and hold whole migrations.

use std::time::Duration;

use crate::database::{Database, Engine, Transaction, values};
use crate::error::StoreError;

/// How often a run asks for the lock, each time for a second, before it gives up.
const TRIES: u32 = 300;
/// How long a run waits before it asks again.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until no other run is at work on this database.
pub(super) async fn take(database: &Database) -> Result<Option<Transaction>, StoreError> {
    let at = StoreError::at("migrations.lock");
    if database.engine() == Engine::Sqlite {
        return Ok(None);
    }
    let mut session = database.session().await.map_err(&at)?;
    for _ in 0..TRIES {
        let text = "SELECT get_lock(concat('powercontext.migrate.', database()), 1)";
        let row = session.query_one(text, values![]).await.map_err(&at)?;
        if row.map_or(Ok(None), |row| row.optional_integer(0)).map_err(&at)? == Some(1) {
            return Ok(Some(session));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(StoreError::invalid("another migration of this database did not end in time"))
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
