//! Numbered, forward-only schema changes and the check that a database has exactly the known ones.
//!
//! Each migration commits together with its row in `pc_schema_migrations`, so an interrupted run
//! continues where it stopped. A database that is newer than the program, or whose applied text
//! differs, is refused. Programs that only open a store never migrate.

use powercontext_core::ambient::IdSource;
use powercontext_core::content::digest;
use powercontext_core::ids::ScopeId;
use powercontext_core::{analyzer, chunk};

use crate::database::{Database, Transaction, values};
use crate::error::StoreError;
use crate::options::{OpenError, SearchVersions, StoreOptions};
use crate::scopes::{self, NewScope};
use crate::{DatabaseError, Store};

pub(crate) struct Migration {
    pub(crate) number: i64,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "sources_topics_and_processing",
    text: include_str!("../migrations/sqlite/0001_sources_topics_and_processing.sql"),
}];

/// The retrieval shape this program keeps (TM-137, TM-149).
const SHAPE: &str = "fts";

/// What this program makes search records by.
const SEARCH: SearchVersions =
    SearchVersions { analyzer: analyzer::VERSION as i64, chunk_policy: chunk::POLICY_VERSION as i64 };

/// What a migration run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationReport {
    /// The numbers applied by this run, ascending; empty when the schema was already current.
    pub applied: Vec<i64>,
    /// The number the schema is at now.
    pub current: i64,
}

pub(crate) struct Applied {
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
    let applied = apply_missing(&database, MIGRATIONS).await?;
    let store = Store { database };
    keep_shape(&store).await?;
    ensure_default_scope(&store, ids).await?;
    store.close().await;
    Ok(MigrationReport { applied, current: newest(MIGRATIONS) })
}

/// Applies the known migrations that the database lacks, each in its own transaction.
pub(crate) async fn apply_missing(database: &Database, known: &[Migration]) -> Result<Vec<i64>, OpenError> {
    let at = StoreError::at("migrations.run");
    let mut applied_now = Vec::new();
    for migration in known {
        let mut tx = database.write().await.map_err(&at)?;
        tx.execute(
            "CREATE TABLE IF NOT EXISTS pc_schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, \
             checksum TEXT NOT NULL, applied_at TEXT NOT NULL)",
            values![],
        )
        .await
        .map_err(&at)?;
        let applied = applied(&mut tx).await.map_err(&at)?;
        compare(known, &applied, Completeness::MayLag)?;
        if applied.iter().any(|row| row.number == migration.number) {
            tx.roll_back().await;
            continue;
        }
        apply(&mut tx, migration).await.map_err(&at)?;
        tx.commit().await.map_err(&at)?;
        applied_now.push(migration.number);
    }
    Ok(applied_now)
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
    compare(MIGRATIONS, &applied(&mut reader).await.map_err(&at)?, Completeness::MustBeComplete)?;
    let kept = kept(&mut reader).await.map_err(&at)?;
    check_shape(kept.as_ref())?;
    check_search(kept.as_ref())
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completeness {
    MayLag,
    MustBeComplete,
}

fn newest(known: &[Migration]) -> i64 {
    known.last().map_or(0, |migration| migration.number)
}

/// Whether the applied migrations are the known ones, as far as the database has come.
pub(crate) fn compare(
    known: &[Migration],
    applied: &[Applied],
    completeness: Completeness,
) -> Result<(), OpenError> {
    let (found, needed) = (applied.iter().map(|row| row.number).max().unwrap_or(0), newest(known));
    if found > needed {
        return Err(OpenError::SchemaNewer { found, known: needed });
    }
    for migration in known {
        match applied.iter().find(|row| row.number == migration.number) {
            Some(row) if row.checksum != digest(migration.text) => {
                return Err(OpenError::MigrationChanged { number: migration.number });
            }
            Some(_) => {}
            None if completeness == Completeness::MayLag => {}
            None if found == 0 => return Err(OpenError::SchemaMissing),
            None => return Err(OpenError::SchemaBehind { found, needed }),
        }
    }
    Ok(())
}

pub(crate) async fn applied(tx: &mut Transaction) -> Result<Vec<Applied>, DatabaseError> {
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

/// What a database says of its search records.
struct Kept {
    shape: String,
    search: SearchVersions,
}

async fn kept(tx: &mut Transaction) -> Result<Option<Kept>, DatabaseError> {
    let text = "SELECT shape, analyzer_version, chunk_policy_version FROM pc_topic_memory_retrieval_shape";
    let row = tx.query_one(text, values![]).await?;
    row.map(|row| {
        let search = SearchVersions { analyzer: row.integer(1)?, chunk_policy: row.integer(2)? };
        Ok(Kept { shape: row.text(0)?, search })
    })
    .transpose()
}

fn check_shape(kept: Option<&Kept>) -> Result<(), OpenError> {
    match kept {
        Some(kept) if kept.shape == SHAPE => Ok(()),
        other => Err(OpenError::RetrievalShape {
            found: other.map_or("missing", |kept| kept.shape.as_str()).to_owned(),
            configured: SHAPE,
        }),
    }
}

fn check_search(kept: Option<&Kept>) -> Result<(), OpenError> {
    match kept {
        Some(kept) if kept.search != SEARCH => {
            Err(OpenError::SearchRecords { found: kept.search, needed: SEARCH })
        }
        _ => Ok(()),
    }
}

/// Writes the shape of a database that has none, and this program's versions, while there is no
/// Topic; refuses any other shape (B-20), and other versions once there are Topics.
async fn keep_shape(store: &Store) -> Result<(), OpenError> {
    let at = StoreError::at("migrations.keep_shape");
    let mut tx = store.database.write().await.map_err(&at)?;
    let kept = kept(&mut tx).await.map_err(&at)?;
    if kept.is_some() {
        check_shape(kept.as_ref())?;
    }
    let written = tx
        .execute(
            "INSERT INTO pc_topic_memory_retrieval_shape \
             (singleton, shape, analyzer_version, chunk_policy_version) SELECT 1, ?, ?, ? \
             WHERE NOT EXISTS (SELECT 1 FROM pc_topic_memory_revision_publications) \
             ON CONFLICT (singleton) DO UPDATE SET analyzer_version = excluded.analyzer_version, \
             chunk_policy_version = excluded.chunk_policy_version",
            values![SHAPE, SEARCH.analyzer, SEARCH.chunk_policy],
        )
        .await
        .map_err(&at)?;
    if written != 1 {
        check_shape(kept.as_ref())?;
        check_search(kept.as_ref())?;
    }
    tx.commit().await.map_err(&at)?;
    Ok(())
}

/// A new database has one Scope, "Default", and it is the default one. Whether there is one already
/// is decided inside the transaction that would make it, so two runs at once make one.
async fn ensure_default_scope(store: &Store, ids: &dyn IdSource) -> Result<(), OpenError> {
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
