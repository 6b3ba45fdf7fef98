//! Reads a database from outside the product: whole-table dumps to compare before and after, and the
//! invariants that must hold once a Scope is caught up. A SQLite file or a database on OceanBase.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::mysql::MySqlPool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Column, Row, TypeInfo, ValueRef};

use crate::engine;

/// Every row of every product table as text, by table.
pub type Dump = BTreeMap<String, Vec<String>>;

/// A database to read from.
#[derive(Clone, Debug)]
pub enum Tables {
    /// A file, opened for each read.
    File(PathBuf),
    /// A database on a server.
    Server(MySqlPool),
}

impl From<&Path> for Tables {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<&PathBuf> for Tables {
    fn from(path: &PathBuf) -> Self {
        Self::File(path.clone())
    }
}

impl From<&Tables> for Tables {
    fn from(tables: &Tables) -> Self {
        tables.clone()
    }
}

impl Tables {
    /// What an address of the settings names.
    #[must_use]
    pub fn at(url: &str) -> Self {
        match url.strip_prefix("sqlite://") {
            Some(path) => Self::File(PathBuf::from(path)),
            None => Self::Server(engine::connect(url)),
        }
    }

    /// Rows of texts; every column must be a text or null, which reads as `null`.
    ///
    /// # Errors
    /// [`sqlx::Error`] when the database does not answer or refuses.
    pub async fn try_rows(&self, sql: &str) -> Result<Vec<Vec<String>>, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        let null = || "null".to_owned();
        match self {
            Self::File(path) => {
                let pool = open(path).await;
                let rows = sqlx::query(sql).fetch_all(&pool).await;
                pool.close().await;
                let cell = |row: &sqlx::sqlite::SqliteRow, at| {
                    Ok(row.try_get::<Option<String>, _>(at)?.unwrap_or_else(null))
                };
                rows?.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect()).collect()
            }
            Self::Server(pool) => {
                // Texts that compare by bytes are marked as binary, so they are read unchecked.
                let cell = |row: &sqlx::mysql::MySqlRow, at| {
                    Ok(row.try_get_unchecked::<Option<String>, _>(at)?.unwrap_or_else(null))
                };
                let rows = sqlx::query(sql).fetch_all(pool).await?;
                rows.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect()).collect()
            }
        }
    }

    /// As [`Tables::try_rows`].
    ///
    /// # Panics
    /// When the statement fails.
    pub async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        self.try_rows(sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"))
    }

    /// One whole number.
    ///
    /// # Panics
    /// When the statement fails or gives no row.
    pub async fn number(&self, sql: &str) -> i64 {
        match self {
            Self::File(path) => {
                let pool = open(path).await;
                let row = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&pool).await.expect("one row");
                pool.close().await;
                row.get(0)
            }
            Self::Server(_) => {
                let rows = self.rows(&format!("SELECT cast(({sql}) AS CHAR)")).await;
                rows[0][0].parse().unwrap_or_else(|_| panic!("{} is no number: {sql}", rows[0][0]))
            }
        }
    }

    /// Every row of every product table as text; full-text shadow tables of SQLite included.
    ///
    /// # Panics
    /// When the database cannot be read.
    pub async fn dump(&self) -> Dump {
        match self {
            Self::File(path) => dump_file(path).await,
            Self::Server(_) => self.dump_server().await,
        }
    }

    async fn dump_server(&self) -> Dump {
        let mut columns: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let named = "SELECT c.table_name, c.column_name FROM information_schema.columns c \
             JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name \
             WHERE c.table_schema = database() AND t.table_type = 'BASE TABLE' ORDER BY 1, c.ordinal_position";
        for row in self.rows(named).await {
            let [table, column] = row.try_into().expect("two columns");
            columns.entry(table).or_default().push(column);
        }
        let mut tables = Dump::new();
        for (table, columns) in columns {
            let cells: Vec<String> =
                columns.iter().map(|column| format!("'{column}=', quote(`{column}`)")).collect();
            let sql = format!("SELECT concat({}) FROM {table} ORDER BY 1", cells.join(", '|', "));
            tables.insert(table, self.rows(&sql).await.concat());
        }
        tables
    }
}

/// What differs between two dumps, for messages; empty when they are equal.
#[must_use]
pub fn difference(before: &Dump, after: &Dump) -> Vec<String> {
    let none = Vec::new();
    let mut said = Vec::new();
    for table in before.keys().chain(after.keys().filter(|table| !before.contains_key(*table))) {
        let (old, new) = (before.get(table).unwrap_or(&none), after.get(table).unwrap_or(&none));
        said.extend(old.iter().filter(|row| !new.contains(row)).map(|row| format!("- {table}: {row}")));
        said.extend(new.iter().filter(|row| !old.contains(row)).map(|row| format!("+ {table}: {row}")));
    }
    said
}

/// Opens a database file for reading.
async fn open(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    SqlitePoolOptions::new().max_connections(1).connect_with(options).await.expect("the database opens")
}

/// One number of a database file.
///
/// # Panics
/// When the statement fails.
pub async fn number(path: &Path, sql: &str) -> i64 {
    Tables::from(path).number(sql).await
}

/// Every row of every product table of a database file.
///
/// # Panics
/// When the database cannot be read.
pub async fn dump(path: &Path) -> Dump {
    Tables::from(path).dump().await
}

async fn dump_file(path: &Path) -> Dump {
    let pool = open(path).await;
    let names = sqlx::query("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .fetch_all(&pool)
        .await
        .expect("the table names");
    let mut tables = Dump::new();
    for name in names {
        let name: String = name.get(0);
        let rows = sqlx::query(AssertSqlSafe(format!("SELECT * FROM \"{name}\"")))
            .fetch_all(&pool)
            .await
            .unwrap_or_default();
        let mut texts: Vec<String> = rows.iter().map(row_text).collect();
        texts.sort();
        tables.insert(name, texts);
    }
    pool.close().await;
    tables
}

fn row_text(row: &sqlx::sqlite::SqliteRow) -> String {
    let cells = row.columns().iter().map(|column| {
        let raw = row.try_get_raw(column.ordinal()).expect("a cell");
        let value = match raw.type_info().name() {
            _ if raw.is_null() => "null".to_owned(),
            "INTEGER" | "BOOLEAN" => row.get::<i64, _>(column.ordinal()).to_string(),
            "REAL" => row.get::<f64, _>(column.ordinal()).to_string(),
            "BLOB" => format!("{:?}", row.get::<Vec<u8>, _>(column.ordinal())),
            _ => row.get::<String, _>(column.ordinal()),
        };
        format!("{}={value}", column.name())
    });
    cells.collect::<Vec<_>>().join("|")
}

/// What must be zero once every captured Source of a Scope has been processed, and what it means when
/// it is not.
const FAULTS: [(&str, &str); 12] = [
    (
        "SELECT (SELECT count(*) FROM pc_sources WHERE scope_id = $scope) \
         - (SELECT coalesce(max(position), 0) FROM pc_sources WHERE scope_id = $scope)",
        "positions are not contiguous",
    ),
    (
        "SELECT (SELECT head FROM pc_source_journals WHERE scope_id = $scope) \
         - (SELECT coalesce(max(position), 0) FROM pc_source_cursors WHERE scope_id = $scope)",
        "the Cursor is not at the head",
    ),
    ("SELECT count(*) FROM pc_topic_memory_work_budgets WHERE scope_id = $scope", "a frontier is open"),
    (
        "SELECT count(*) FROM (SELECT source_id FROM pc_artifact_lineage_sources \
         WHERE scope_id = $scope GROUP BY source_id HAVING count(*) > 1) t",
        "a Source was published twice",
    ),
    (
        "SELECT count(*) FROM pc_artifact_heads h WHERE scope_id = $scope AND revision <> \
         (SELECT count(*) FROM pc_artifacts a WHERE a.scope_id = h.scope_id AND a.family = h.family \
         AND a.artifact_id = h.artifact_id)",
        "a Topic lacks a Revision up to its Head",
    ),
    (
        "SELECT count(*) FROM pc_artifact_heads h WHERE scope_id = $scope AND revision <> \
         (SELECT max(a.revision) FROM pc_artifacts a WHERE a.scope_id = h.scope_id AND a.family = h.family \
         AND a.artifact_id = h.artifact_id)",
        "a Head is not the newest Revision",
    ),
    (
        "SELECT count(*) FROM pc_artifact_heads h WHERE h.scope_id = $scope AND NOT EXISTS \
         (SELECT 1 FROM pc_topic_memory_active_topics t WHERE t.scope_id = h.scope_id \
         AND t.artifact_id = h.artifact_id AND t.revision = h.revision)",
        "the active projection of a Topic is not its Head",
    ),
    (
        "SELECT (SELECT count(*) FROM pc_topic_memory_active_topics WHERE scope_id = $scope) \
         - (SELECT count(*) FROM pc_artifact_heads WHERE scope_id = $scope)",
        "there are more or fewer active projections than Topics",
    ),
    (
        "SELECT count(*) FROM pc_topic_memory_active_chunks c WHERE c.scope_id = $scope AND NOT EXISTS \
         (SELECT 1 FROM pc_artifact_heads h WHERE h.scope_id = c.scope_id AND h.artifact_id = c.artifact_id \
         AND h.revision = c.revision)",
        "an active chunk is not of a Head",
    ),
    (
        "SELECT (SELECT count(*) FROM pc_artifacts WHERE scope_id = $scope) \
         - (SELECT count(*) FROM pc_topic_memory_revision_publications WHERE scope_id = $scope)",
        "a Revision has no time of publication, or a time has no Revision",
    ),
    (
        "SELECT (SELECT count(*) FROM pc_topic_memory_active_topics WHERE scope_id = $scope) \
         - (SELECT coalesce(max(topics), 0) FROM pc_topic_memory_scope_statistics WHERE scope_id = $scope)",
        "the statistics miscount Topics",
    ),
    (
        "SELECT (SELECT count(*) FROM pc_topic_memory_active_chunks WHERE scope_id = $scope) \
         - (SELECT coalesce(max(chunks), 0) FROM pc_topic_memory_scope_statistics WHERE scope_id = $scope)",
        "the statistics miscount chunks",
    ),
];

/// Checks what must hold when every captured Source of a Scope has been processed: positions are
/// contiguous, the Cursor is at the head, nothing is pending or budgeted, no Source stands in the direct
/// lineage of two Revisions (so no Window was published twice), Heads are the newest Revisions and the
/// active projections are the Heads'. Returns how many Sources stand in a lineage.
///
/// # Panics
/// When one of these does not hold.
pub async fn assert_caught_up(place: impl Into<Tables>, scope: &str) -> i64 {
    let tables = place.into();
    let quoted = format!("'{}'", scope.replace('\'', "''"));
    let one = async |sql: &str| tables.number(&sql.replace("$scope", &quoted)).await;
    // A flush that came during the last Window is answered by the supervisor's next look (TM-170).
    let pending = "SELECT count(*) FROM pc_artifact_processing_pending WHERE scope_id = $scope";
    for _ in 0..200 {
        if one(pending).await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(one(pending).await, 0, "scope `{scope}`: something is pending");
    for (sql, meaning) in FAULTS {
        assert_eq!(one(sql).await, 0, "scope `{scope}`: {meaning}");
    }
    one("SELECT count(DISTINCT source_id) FROM pc_artifact_lineage_sources WHERE scope_id = $scope").await
}
