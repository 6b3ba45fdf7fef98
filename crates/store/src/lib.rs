//! The database behind every program: one module per aggregate, named transactions, migrations.
//!
//! Each public function is one promise kept in one transaction; what it takes and answers are
//! domain types of `powercontext_core`. Only [`database`](self) knows the driver. No policy lives
//! here: who may run, what a Window is and what a Topic says is decided elsewhere.
//!
//! Lock order of every transaction: journal, attempt, cursor, heads, pending, lease.

mod active;
mod database;
mod error;
mod fulltext;
mod migrations;
mod options;
mod ownership;

pub mod budgets;
pub mod cursors;
pub mod leases;
pub mod pending;
pub mod publish;
pub mod scopes;
pub mod sources;
pub mod topics;
pub mod waves;

#[cfg(test)]
mod tests;

pub use database::{DatabaseError, DatabaseErrorKind};
pub use error::StoreError;
pub use migrations::{MigrationReport, migrate};
pub use options::{DatabaseUrl, InvalidUrl, OpenError, SearchVersions, StoreOptions};
pub use ownership::{Claim, ClaimError};

use database::{Database, SqliteFile, values};

/// An open database whose schema is exactly the one this program needs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens a migrated database; never changes its schema.
    ///
    /// # Errors
    /// [`OpenError`] tells a missing, older, newer or changed schema from an unusable database.
    pub async fn open(options: &StoreOptions) -> Result<Self, OpenError> {
        if !options.url.path().exists() {
            return Err(OpenError::SchemaMissing);
        }
        let database = Self::connect(options, false).await?;
        migrations::verify(&database).await?;
        Ok(Self { database })
    }

    /// Whether other processes may use this database too.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        false
    }

    /// Proves that the database answers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let at = StoreError::at("store.ping");
        let mut reader = self.database.read().await.map_err(&at)?;
        reader.query("SELECT 1 FROM pc_default_scope", values![]).await.map_err(&at)?;
        Ok(())
    }

    /// Waits for transactions under way, closes all connections, and refuses new work. The last
    /// connection of all processes moves the write-ahead log into the database file.
    pub async fn close(&self) {
        self.database.close().await;
    }

    async fn connect(options: &StoreOptions, create: bool) -> Result<Database, StoreError> {
        let file = SqliteFile {
            path: options.url.path().to_owned(),
            create,
            readers: options.readers,
            busy_timeout: options.busy_timeout,
        };
        Database::open(&file).await.map_err(StoreError::at("store.open"))
    }
}
