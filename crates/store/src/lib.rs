//! The database behind every program: one module per aggregate, named transactions, migrations.
//!
//! Each public function is one promise kept in one transaction; what it takes and answers are
//! domain types of `powercontext_core`. Only [`database`](self) knows the driver. No policy lives
//! here: who may run, what a Window is and what a Topic says is decided elsewhere.
//!
//! SQLite lets one transaction write at a time. On OceanBase each transaction locks the rows it
//! decides on, always in this order, because the server does not detect deadlocks: Scope tree, journal,
//! attempt, cursor, heads, search counts, pending, targets of an automatic wave, binding state, lease.
//! Nothing is decided on a row that was only read, but for a Cursor that covers something, because
//! Cursors only grow, and for what is due and frozen, because one leader alone starts and completes waves.

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
pub use migrations::{MigrationReport, SchemaState, migrate, schema_state};
pub use options::{DatabaseUrl, InvalidUrl, OpenError, SearchVersions, StoreOptions};
pub use ownership::{Claim, ClaimError};

use database::{Database, Engine, values};

/// An open database whose schema is exactly the one this program needs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens a migrated database; never changes its schema.
    ///
    /// # Errors
    /// [`OpenError`] tells a missing, older, newer or changed schema, and a missing database, from an
    /// unusable one.
    pub async fn open(options: &StoreOptions) -> Result<Self, OpenError> {
        if options.url.path().is_some_and(|path| !path.exists()) {
            return Err(OpenError::SchemaMissing);
        }
        let opened = Database::open(&options.target(false)).await;
        let database = opened.map_err(OpenError::opening("store.open"))?;
        migrations::verify(&database).await?;
        Ok(Self { database })
    }

    /// Whether several processes share the database, so that its supervisor is elected
    /// ([`leases::acquire`]) instead of embedded ([`leases::begin_embedded_term`]) (TM-179).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.database.engine() == Engine::OceanBase
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
    /// connection of all processes to a file moves the write-ahead log into it.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// How often a transaction had to start over, or to wait again, because others kept the database
    /// busy or the connection was lost.
    #[must_use]
    pub fn busy_retries(&self) -> u64 {
        self.database.retries()
    }
}
