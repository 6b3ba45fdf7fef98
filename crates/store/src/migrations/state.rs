//! Tells how far the schema of a database is, and changes nothing.

use super::{Completeness, MIGRATIONS, applied, check_collations, compare, history, is_unfinished, newest};
use crate::Store;
use crate::database::Database;
use crate::error::StoreError;
use crate::options::{OpenError, StoreOptions};

/// How far the schema of a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaState {
    /// The newest migration the database has; 0 for none.
    pub current: i64,
    /// The newest migration this program knows.
    pub needed: i64,
    /// The migrations that a run would apply, each by its number and name, ascending.
    pub pending: Vec<(i64, &'static str)>,
    /// Every migration is applied, and a run would still write what follows them: the retrieval shape, the
    /// versions of the search records or the default Scope.
    pub unfinished: bool,
}

impl SchemaState {
    /// Whether a run would change nothing.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.pending.is_empty() && !self.unfinished
    }
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
    let opened = Database::open(&options.target(false)).await;
    let database = opened.map_err(OpenError::opening("migrations.state"))?;
    let store = Store { database };
    let state = state_of(&store.database).await;
    store.close().await;
    state
}

async fn state_of(database: &Database) -> Result<SchemaState, OpenError> {
    let at = StoreError::at("migrations.state");
    let mut reader = database.read().await.map_err(&at)?;
    let applied = match history::is_there(&mut reader).await? {
        true => applied(&mut reader).await.map_err(&at)?,
        false => Vec::new(),
    };
    compare((MIGRATIONS, database.engine()), &applied, Completeness::MayLag)?;
    let numbers: Vec<i64> = applied.iter().map(|row| row.number).collect();
    let mut state = state_after(&numbers);
    state.unfinished = state.pending.is_empty() && is_unfinished(&mut reader).await?;
    drop(reader);
    check_collations(database).await?;
    Ok(state)
}

fn state_after(applied: &[i64]) -> SchemaState {
    let pending = MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.number));
    SchemaState {
        current: applied.iter().copied().max().unwrap_or(0),
        needed: newest(MIGRATIONS),
        pending: pending.map(|migration| (migration.number, migration.name)).collect(),
        unfinished: false,
    }
}
