//! Numbered, forward-only schema changes and the check that a database has exactly the known ones.
//!
//! Each migration commits together with its row in `pc_schema_migrations`, so an interrupted run
//! continues where it stopped. A database that is newer than the program, or whose applied text
//! differs, is refused. Programs that only open a store never migrate.

use powercontext_core::ambient::IdSource;
use powercontext_core::content::digest;
use powercontext_core::ids::ScopeId;

use crate::database::{Database, Transaction, values};
use crate::error::StoreError;
use crate::options::{OpenError, StoreOptions};
use crate::scopes::{self, NewScope};
use crate::{DatabaseError, Store};

struct Migration {
    number: i64,
    name: &'static str,
    text: &'static str,
}

const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "sources_topics_and_processing",
    text: include_str!("../migrations/sqlite/0001_sources_topics_and_processing.sql"),
}];

/// The retrieval shape this program keeps (TM-137, TM-149).
const SHAPE: &str = "fts";

/// What a migration run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationReport {
    /// The numbers applied by this run, ascending; empty when the schema was already current.
    pub applied: Vec<i64>,
    /// The number the schema is at now.
    pub current: i64,
}

struct Applied {
    number: i64,
    checksum: String,
}

/// Brings a database, made if missing, to the schema this program needs, and gives a new one its
/// default Scope. Running it again changes nothing.
///
/// # Errors
/// [`OpenError`]; what was applied before the failure stays applied.
pub async fn migrate(options: &StoreOptions, ids: &dyn IdSource) -> Result<MigrationReport, OpenError> {
    let database = Store::connect(options, true).await?;
    let at = StoreError::at("migrations.run");
    let mut applied_now = Vec::new();
    for migration in MIGRATIONS {
        let mut tx = database.write().await.map_err(&at)?;
        tx.execute(
            "CREATE TABLE IF NOT EXISTS pc_schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, \
             checksum TEXT NOT NULL, applied_at TEXT NOT NULL)",
            values![],
        )
        .await
        .map_err(&at)?;
        let applied = applied(&mut tx).await.map_err(&at)?;
        compare(&applied, Completeness::MayLag)?;
        if applied.iter().any(|row| row.number == migration.number) {
            tx.roll_back().await;
            continue;
        }
        apply(&mut tx, migration).await.map_err(&at)?;
        tx.commit().await.map_err(&at)?;
        applied_now.push(migration.number);
    }
    let store = Store { database };
    keep_shape(&store).await?;
    ensure_default_scope(&store, ids).await?;
    store.close().await;
    Ok(MigrationReport { applied: applied_now, current: newest() })
}

/// Refuses a database whose schema is not exactly the known one.
pub(crate) async fn verify(database: &Database) -> Result<(), OpenError> {
    let at = StoreError::at("migrations.verify");
    let mut reader = database.snapshot().await.map_err(&at)?;
    let table = reader
        .query_one("SELECT 1 FROM sqlite_master WHERE name = 'pc_schema_migrations'", values![])
        .await
        .map_err(&at)?;
    if table.is_none() {
        return Err(OpenError::SchemaMissing);
    }
    compare(&applied(&mut reader).await.map_err(&at)?, Completeness::MustBeComplete)?;
    match shape(&mut reader).await.map_err(&at)? {
        Some(found) if found == SHAPE => Ok(()),
        found => Err(OpenError::RetrievalShape {
            found: found.unwrap_or_else(|| "missing".to_owned()),
            configured: SHAPE,
        }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Completeness {
    MayLag,
    MustBeComplete,
}

fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.number)
}

fn compare(applied: &[Applied], completeness: Completeness) -> Result<(), OpenError> {
    let found = applied.iter().map(|row| row.number).max().unwrap_or(0);
    if found > newest() {
        return Err(OpenError::SchemaNewer { found, known: newest() });
    }
    for migration in MIGRATIONS {
        match applied.iter().find(|row| row.number == migration.number) {
            Some(row) if row.checksum != digest(migration.text) => {
                return Err(OpenError::MigrationChanged { number: migration.number });
            }
            Some(_) => {}
            None if completeness == Completeness::MayLag => {}
            None if found == 0 => return Err(OpenError::SchemaMissing),
            None => return Err(OpenError::SchemaBehind { found, needed: newest() }),
        }
    }
    Ok(())
}

async fn applied(tx: &mut Transaction) -> Result<Vec<Applied>, DatabaseError> {
    let rows =
        tx.query("SELECT number, checksum FROM pc_schema_migrations ORDER BY number", values![]).await?;
    rows.iter().map(|row| Ok(Applied { number: row.integer(0)?, checksum: row.text(1)? })).collect()
}

async fn apply(tx: &mut Transaction, migration: &Migration) -> Result<(), DatabaseError> {
    tx.execute(migration.text.to_owned(), values![]).await?;
    tx.execute(
        "INSERT INTO pc_schema_migrations (number, name, checksum, applied_at) \
         VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
        values![migration.number, migration.name, digest(migration.text)],
    )
    .await?;
    Ok(())
}

async fn shape(tx: &mut Transaction) -> Result<Option<String>, DatabaseError> {
    let row = tx.query_one("SELECT shape FROM pc_topic_memory_retrieval_shape", values![]).await?;
    row.map(|row| row.text(0)).transpose()
}

/// Writes the shape of a database that has none and no Topic yet; refuses any other one (B-20).
async fn keep_shape(store: &Store) -> Result<(), OpenError> {
    let at = StoreError::at("migrations.keep_shape");
    let mut tx = store.database.write().await.map_err(&at)?;
    let found = shape(&mut tx).await.map_err(&at)?;
    if found.as_deref() == Some(SHAPE) {
        tx.roll_back().await;
        return Ok(());
    }
    let written = if found.is_none() {
        tx.execute(
            "INSERT INTO pc_topic_memory_retrieval_shape (singleton, shape) SELECT 1, ? \
             WHERE NOT EXISTS (SELECT 1 FROM pc_topic_memory_revision_publications)",
            values![SHAPE],
        )
        .await
        .map_err(&at)?
    } else {
        0
    };
    if written != 1 {
        return Err(OpenError::RetrievalShape {
            found: found.unwrap_or_else(|| "missing".to_owned()),
            configured: SHAPE,
        });
    }
    tx.commit().await.map_err(&at)?;
    Ok(())
}

/// A new database has one Scope, "Default", and it is the default one.
async fn ensure_default_scope(store: &Store, ids: &dyn IdSource) -> Result<(), OpenError> {
    if scopes::default(store).await?.is_some() {
        return Ok(());
    }
    let scope_id = ScopeId::generate(ids);
    let new = NewScope {
        idempotency_key: format!("default:{scope_id}"),
        scope_id,
        title: "Default".to_owned(),
        summary: "Default context".to_owned(),
        parent_scope_id: None,
        context_references: Vec::new(),
        external_references: Vec::new(),
    };
    scopes::create_default(store, &new).await?;
    Ok(())
}
