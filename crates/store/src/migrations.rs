//! Numbered, forward-only schema changes and the check that a database has exactly the known ones.
//!
//! On SQLite each migration commits together with its row in `pc_schema_migrations`. On OceanBase
//! definitions commit one by one, so a run holds a lock of the server, every statement can be
//! repeated, and the row is written last: either way an interrupted run continues where it stopped.
//! A database that is newer than the program, or whose applied text differs, is refused. Programs
//! that only open a store never migrate.

mod lock;

use powercontext_core::ambient::IdSource;
use powercontext_core::content::digest;
use powercontext_core::ids::ScopeId;

use crate::database::{Database, Engine, Target, Transaction, Twin, oceanbase, values};
use crate::error::StoreError;
use crate::options::{OpenError, StoreOptions};
use crate::scopes::{self, NewScope};
use crate::{DatabaseError, DatabaseErrorKind, Store};

struct Migration {
    number: i64,
    name: &'static str,
    text: Twin,
}

impl Migration {
    const fn text(&self, engine: Engine) -> &'static str {
        match engine {
            Engine::Sqlite => self.text.sqlite,
            Engine::OceanBase => self.text.oceanbase,
        }
    }
}

const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "sources_topics_and_processing",
    text: Twin {
        sqlite: include_str!("../migrations/sqlite/0001_sources_topics_and_processing.sql"),
        oceanbase: include_str!("../migrations/oceanbase/0001_sources_topics_and_processing.sql"),
    },
}];

/// Column types differ: OceanBase cannot key a table by an unbounded text.
const HISTORY: Twin = Twin {
    sqlite: "CREATE TABLE IF NOT EXISTS pc_schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, \
        checksum TEXT NOT NULL, applied_at TEXT NOT NULL)",
    oceanbase: "CREATE TABLE IF NOT EXISTS pc_schema_migrations (number BIGINT PRIMARY KEY, \
        name VARCHAR(256) NOT NULL, checksum VARCHAR(128) NOT NULL, applied_at VARCHAR(32) NOT NULL) \
        DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
};

/// Each database formats its own clock. A row that is there already says the same.
const APPLIED: Twin = Twin {
    sqlite: "INSERT INTO pc_schema_migrations (number, name, checksum, applied_at) \
        VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
    oceanbase: "INSERT IGNORE INTO pc_schema_migrations (number, name, checksum, applied_at) \
        VALUES (?, ?, ?, date_format(utc_timestamp(6), '%Y-%m-%dT%H:%i:%s.%fZ'))",
};

/// Each database has its own catalogue.
const HAS_HISTORY: Twin = Twin {
    sqlite: "SELECT 1 FROM sqlite_master WHERE name = 'pc_schema_migrations'",
    oceanbase: "SELECT 1 FROM information_schema.tables \
        WHERE table_schema = database() AND table_name = 'pc_schema_migrations'",
};

/// Text columns that do not compare by bytes. OceanBase only; SQLite compares by bytes by default.
const OTHER_COLLATIONS: &str = "SELECT concat(table_name, '.', column_name), collation_name \
    FROM information_schema.columns WHERE table_schema = database() AND table_name LIKE 'pc\\_%' ESCAPE '\\' \
    AND collation_name IS NOT NULL AND collation_name <> 'utf8mb4_bin' ORDER BY 1";

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
/// default Scope. Running it again changes nothing, and of several runs at once one does the work.
///
/// # Errors
/// [`OpenError`]; what was applied before the failure stays applied.
pub async fn migrate(options: &StoreOptions, ids: &dyn IdSource) -> Result<MigrationReport, OpenError> {
    let database = open_or_create(&options.target(true)).await.map_err(StoreError::at("migrations.open"))?;
    let store = Store { database };
    let lock = lock::take(&store.database).await?;
    let applied = run(&store, ids).await;
    lock::release(lock).await;
    Ok(MigrationReport { applied: applied?, current: newest() })
}

/// What a run does while it holds the lock.
async fn run(store: &Store, ids: &dyn IdSource) -> Result<Vec<i64>, OpenError> {
    let applied = apply_missing(&store.database).await?;
    check_collations(&store.database).await?;
    keep_shape(store).await?;
    ensure_default_scope(store, ids).await?;
    Ok(applied)
}

async fn open_or_create(target: &Target) -> Result<Database, DatabaseError> {
    match (Database::open(target).await, target) {
        (Err(error), Target::OceanBase(server)) if error.kind == DatabaseErrorKind::MissingDatabase => {
            oceanbase::create_database(server).await?;
            Database::open(target).await
        }
        (outcome, _) => outcome,
    }
}

async fn apply_missing(database: &Database) -> Result<Vec<i64>, OpenError> {
    let at = StoreError::at("migrations.run");
    let mut applied_now = Vec::new();
    for migration in MIGRATIONS {
        let mut tx = match database.engine() {
            Engine::Sqlite => database.write().await,
            Engine::OceanBase => database.session().await,
        }
        .map_err(&at)?;
        tx.execute(HISTORY, values![]).await.map_err(&at)?;
        let applied = applied(&mut tx).await.map_err(&at)?;
        compare(&applied, Completeness::MayLag, database.engine())?;
        if applied.iter().any(|row| row.number == migration.number) {
            continue;
        }
        let written = apply(&mut tx, migration).await.map_err(&at)?;
        if database.engine() == Engine::Sqlite {
            tx.commit().await.map_err(&at)?;
        }
        if written == 1 {
            applied_now.push(migration.number);
        }
    }
    Ok(applied_now)
}

/// Refuses a database whose schema is not exactly the known one.
pub(crate) async fn verify(database: &Database) -> Result<(), OpenError> {
    let at = StoreError::at("migrations.verify");
    let mut reader = database.snapshot().await.map_err(&at)?;
    if reader.query_one(HAS_HISTORY, values![]).await.map_err(&at)?.is_none() {
        return Err(OpenError::SchemaMissing);
    }
    let applied = applied(&mut reader).await.map_err(&at)?;
    compare(&applied, Completeness::MustBeComplete, database.engine())?;
    match shape(&mut reader).await.map_err(&at)? {
        Some(found) if found == SHAPE => {}
        found => {
            return Err(OpenError::RetrievalShape {
                found: found.unwrap_or_else(|| "missing".to_owned()),
                configured: SHAPE,
            });
        }
    }
    check_collations(database).await
}

/// Refuses a database in which two identities could count as one.
async fn check_collations(database: &Database) -> Result<(), OpenError> {
    let at = StoreError::at("migrations.check_collations");
    if database.engine() == Engine::Sqlite {
        return Ok(());
    }
    let mut reader = database.read().await.map_err(&at)?;
    match reader.query_one(OTHER_COLLATIONS, values![]).await.map_err(&at)? {
        None => Ok(()),
        Some(row) => Err(OpenError::Collation {
            column: row.text(0).map_err(&at)?,
            collation: row.text(1).map_err(&at)?,
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

fn compare(applied: &[Applied], completeness: Completeness, engine: Engine) -> Result<(), OpenError> {
    let found = applied.iter().map(|row| row.number).max().unwrap_or(0);
    if found > newest() {
        return Err(OpenError::SchemaNewer { found, known: newest() });
    }
    for migration in MIGRATIONS {
        match applied.iter().find(|row| row.number == migration.number) {
            Some(row) if row.checksum != digest(migration.text(engine)) => {
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

async fn apply(tx: &mut Transaction, migration: &Migration) -> Result<u64, DatabaseError> {
    let text = migration.text(tx.engine());
    match tx.engine() {
        Engine::Sqlite => {
            tx.execute(text.to_owned(), values![]).await?;
        }
        Engine::OceanBase => {
            for statement in statements(text) {
                tx.command(statement.to_owned()).await?;
            }
        }
    }
    tx.execute(APPLIED, values![migration.number, migration.name, digest(text)]).await
}

/// The statements of a migration; each ends with a semicolon at the end of its line.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").map(str::trim).filter(|statement| !statement.is_empty())
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
