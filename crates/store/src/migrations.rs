//! Numbered, forward-only schema changes and the check that a database has exactly the known ones.
//!
//! On SQLite each migration commits together with its row in `pc_schema_migrations`. On OceanBase
//! definitions commit one by one, so a run holds a lock of the server, every statement can be
//! repeated, and the row is written last: either way an interrupted run continues where it stopped.
//! A database that is newer than the program, whose applied text differs or whose tables are others' is
//! refused. Programs that only open a store never migrate.

mod history;
mod lock;
mod state;

pub use state::{SchemaState, schema_state};

use powercontext_core::ambient::IdSource;
use powercontext_core::content::digest;
use powercontext_core::ids::ScopeId;
use powercontext_core::{analyzer, chunk};

use crate::database::{Database, Engine, Target, Transaction, Twin, oceanbase, values};
use crate::error::StoreError;
use crate::options::{OpenError, SearchVersions, StoreOptions};
use crate::scopes::{self, NewScope};
use crate::{DatabaseError, DatabaseErrorKind, Store};

pub(crate) struct Migration {
    pub(crate) number: i64,
    pub(crate) name: &'static str,
    pub(crate) text: Twin,
}

pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "sources_topics_and_processing",
        text: Twin {
            sqlite: include_str!("../migrations/sqlite/0001_sources_topics_and_processing.sql"),
            oceanbase: include_str!("../migrations/oceanbase/0001_sources_topics_and_processing.sql"),
        },
    },
    Migration {
        number: 2,
        name: "automatic_waves",
        text: Twin {
            sqlite: include_str!("../migrations/sqlite/0002_automatic_waves.sql"),
            oceanbase: include_str!("../migrations/oceanbase/0002_automatic_waves.sql"),
        },
    },
];

/// Column types differ: OceanBase cannot key a table by an unbounded text.
pub(crate) const HISTORY: Twin = Twin {
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

/// The upsert has another form on OceanBase. Writes nothing when there are Topics.
const KEEP_SHAPE: Twin = Twin {
    sqlite: "INSERT INTO pc_topic_memory_retrieval_shape \
        (singleton, shape, analyzer_version, chunk_policy_version) SELECT 1, ?, ?, ? \
        WHERE NOT EXISTS (SELECT 1 FROM pc_topic_memory_revision_publications) \
        ON CONFLICT (singleton) DO UPDATE SET analyzer_version = excluded.analyzer_version, \
        chunk_policy_version = excluded.chunk_policy_version",
    oceanbase: "INSERT INTO pc_topic_memory_retrieval_shape \
        (singleton, shape, analyzer_version, chunk_policy_version) SELECT 1, ?, ?, ? FROM dual \
        WHERE NOT EXISTS (SELECT 1 FROM pc_topic_memory_revision_publications) \
        ON DUPLICATE KEY UPDATE analyzer_version = values(analyzer_version), \
        chunk_policy_version = values(chunk_policy_version)",
};

/// Text columns that do not compare by bytes. OceanBase only; SQLite compares by bytes by default.
const OTHER_COLLATIONS: &str = "SELECT concat(table_name, '.', column_name), collation_name \
    FROM information_schema.columns WHERE table_schema = database() AND table_name LIKE 'pc\\_%' ESCAPE '\\' \
    AND collation_name IS NOT NULL AND collation_name <> 'utf8mb4_bin' ORDER BY 1";

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
/// default Scope. Running it again changes nothing, and of several runs at once one does the work.
///
/// # Errors
/// [`OpenError`]; what was applied before the failure stays applied.
pub async fn migrate(options: &StoreOptions, ids: &dyn IdSource) -> Result<MigrationReport, OpenError> {
    let opened = open_or_create(&options.target(true)).await;
    let store = Store { database: opened.map_err(OpenError::opening("migrations.open"))? };
    let applied = run_alone(&store, ids).await;
    store.close().await;
    Ok(MigrationReport { applied: applied?, current: newest(MIGRATIONS) })
}

/// Writes nothing, not even the lock, to a database of others.
async fn run_alone(store: &Store, ids: &dyn IdSource) -> Result<Vec<i64>, OpenError> {
    let mut reader = store.database.read().await.map_err(StoreError::at("migrations.open"))?;
    history::is_there(&mut reader).await?;
    drop(reader);
    let lock = lock::take(&store.database).await?;
    let applied = run(store, ids).await;
    lock::release(lock).await;
    applied
}

/// What a run does while it holds the lock.
async fn run(store: &Store, ids: &dyn IdSource) -> Result<Vec<i64>, OpenError> {
    let applied = apply_missing(&store.database, MIGRATIONS).await?;
    check_collations(&store.database).await?;
    keep_shape(store).await?;
    ensure_default_scope(store, ids).await?;
    Ok(applied)
}

pub(crate) async fn open_or_create(target: &Target) -> Result<Database, DatabaseError> {
    match (Database::open(target).await, target) {
        (Err(error), Target::OceanBase(server)) if error.kind == DatabaseErrorKind::MissingDatabase => {
            oceanbase::create_database(server).await?;
            Database::open(target).await
        }
        (outcome, _) => outcome,
    }
}

/// Applies the known migrations that the database lacks.
pub(crate) async fn apply_missing(database: &Database, known: &[Migration]) -> Result<Vec<i64>, OpenError> {
    let at = StoreError::at("migrations.run");
    let mut applied_now = Vec::new();
    for migration in known {
        let mut tx = match database.engine() {
            Engine::Sqlite => database.write().await,
            Engine::OceanBase => database.session().await,
        }
        .map_err(&at)?;
        tx.execute(HISTORY, values![]).await.map_err(&at)?;
        let applied = applied(&mut tx).await.map_err(&at)?;
        compare((known, database.engine()), &applied, Completeness::MayLag)?;
        if applied.iter().any(|row| row.number == migration.number) {
            tx.roll_back().await;
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
    if !history::is_there(&mut reader).await? {
        return Err(OpenError::SchemaMissing);
    }
    let applied = applied(&mut reader).await.map_err(&at)?;
    compare((MIGRATIONS, database.engine()), &applied, Completeness::MustBeComplete)?;
    check_search(kept(&mut reader).await.map_err(&at)?.as_ref())?;
    if is_unfinished(&mut reader).await? {
        return Err(OpenError::Unfinished);
    }
    drop(reader);
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
pub(crate) enum Completeness {
    MayLag,
    MustBeComplete,
}

fn newest(known: &[Migration]) -> i64 {
    known.last().map_or(0, |migration| migration.number)
}

/// Whether the applied migrations are the known ones, as far as the database has come.
pub(crate) fn compare(
    (known, engine): (&[Migration], Engine),
    applied: &[Applied],
    completeness: Completeness,
) -> Result<(), OpenError> {
    let (found, needed) = (applied.iter().map(|row| row.number).max().unwrap_or(0), newest(known));
    if found > needed {
        return Err(OpenError::SchemaNewer { found, known: needed });
    }
    for migration in known {
        match applied.iter().find(|row| row.number == migration.number) {
            Some(row) if row.checksum != digest(migration.text.of(engine)) => {
                return Err(OpenError::MigrationChanged { number: migration.number });
            }
            Some(_) => {}
            None if migration.number < found => {
                return Err(OpenError::MigrationMissing { number: migration.number, found });
            }
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

async fn apply(tx: &mut Transaction, migration: &Migration) -> Result<u64, DatabaseError> {
    let text = migration.text.of(tx.engine());
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
pub(crate) fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").map(str::trim).filter(|statement| !statement.is_empty())
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

/// Whether a database that has every migration lacks what a run writes after them: the shape, the versions
/// of the search records or the default Scope. Refuses what no run would repair.
async fn is_unfinished(tx: &mut Transaction) -> Result<bool, OpenError> {
    let at = StoreError::at("migrations.is_unfinished");
    let kept = kept(tx).await.map_err(&at)?;
    let topics = "SELECT 1 FROM pc_topic_memory_revision_publications LIMIT 1";
    let has_topics = tx.query_one(topics, values![]).await.map_err(&at)?.is_some();
    if kept.is_some() || has_topics {
        check_shape(kept.as_ref())?;
    }
    if has_topics {
        check_search(kept.as_ref())?;
    }
    let scope = tx.query_one("SELECT 1 FROM pc_default_scope", values![]).await.map_err(&at)?;
    Ok(kept.is_none_or(|kept| kept.search != SEARCH) || scope.is_none())
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
    let written =
        tx.execute(KEEP_SHAPE, values![SHAPE, SEARCH.analyzer, SEARCH.chunk_policy]).await.map_err(&at)?;
    if written == 0 {
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
