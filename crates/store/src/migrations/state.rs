//! Tells how far the schema of a database is, and changes nothing.

use super::{Completeness, HAS_HISTORY, MIGRATIONS, applied, check_collations, compare, newest, verify};
use crate::database::{Database, values};
use crate::error::StoreError;
use crate::options::{OpenError, StoreOptions};
use crate::{DatabaseErrorKind, Store};

/// How far the schema of a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaState {
    /// The newest migration the database has; 0 for none.
    pub current: i64,
    /// The newest migration this program knows.
    pub needed: i64,
    /// The migrations that a run would apply, each by its number and name, ascending.
    pub pending: Vec<(i64, &'static str)>,
}

/// Tells how far the schema of a database is, without changing anything.
///
/// # Errors
/// [`OpenError`] for a database that a run could not bring to the needed schema, or that cannot be
/// used. A file that does not exist yet is no error; a server's database is.
pub async fn schema_state(options: &StoreOptions) -> Result<SchemaState, OpenError> {
    if options.url.path().is_some_and(|path| !path.exists()) {
        return Ok(state_after(&[]));
    }
    let database = match Database::open(&options.target(false)).await {
        Ok(database) => database,
        Err(error) if error.kind == DatabaseErrorKind::MissingDatabase => {
            return Err(OpenError::DatabaseMissing);
        }
        Err(error) => return Err(StoreError::at("migrations.state")(error).into()),
    };
    let store = Store { database };
    let state = state_of(&store.database).await;
    store.close().await;
    state
}

async fn state_of(database: &Database) -> Result<SchemaState, OpenError> {
    let at = StoreError::at("migrations.state");
    let mut reader = database.read().await.map_err(&at)?;
    let applied = match reader.query_one(HAS_HISTORY, values![]).await.map_err(&at)? {
        Some(_) => applied(&mut reader).await.map_err(&at)?,
        None => Vec::new(),
    };
    drop(reader);
    compare((MIGRATIONS, database.engine()), &applied, Completeness::MayLag)?;
    let numbers: Vec<i64> = applied.iter().map(|row| row.number).collect();
    let state = state_after(&numbers);
    if state.pending.is_empty() {
        verify(database).await?;
    } else {
        check_collations(database).await?;
    }
    Ok(state)
}

fn state_after(applied: &[i64]) -> SchemaState {
    let pending = MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.number));
    SchemaState {
        current: applied.iter().copied().max().unwrap_or(0),
        needed: newest(MIGRATIONS),
        pending: pending.map(|migration| (migration.number, migration.name)).collect(),
    }
}
