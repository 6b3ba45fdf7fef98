//! Reads a SQLite database from outside the product: whole-table dumps to compare before and
//! after, and the invariants that must hold once a Scope is caught up.

use std::collections::BTreeMap;
use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Column, Row, TypeInfo, ValueRef};

/// Opens a database file for reading.
///
/// # Panics
/// When it cannot be opened.
pub async fn open(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    SqlitePoolOptions::new().max_connections(1).connect_with(options).await.expect("the database opens")
}

/// One number.
///
/// # Panics
/// When the statement fails.
pub async fn number(path: &Path, sql: &str) -> i64 {
    let pool = open(path).await;
    let row = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&pool).await.expect("one row");
    pool.close().await;
    row.get(0)
}

/// Every row of every product table as text, by table; full-text shadow tables included.
///
/// # Panics
/// When the database cannot be read.
pub async fn dump(path: &Path) -> BTreeMap<String, Vec<String>> {
    let pool = open(path).await;
    let names = sqlx::query("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .fetch_all(&pool)
        .await
        .expect("the table names");
    let mut tables = BTreeMap::new();
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

/// Checks what must hold when every captured Source of a Scope has been processed: the Cursor is at
/// the head, nothing is pending or budgeted, positions are contiguous, and no Source stands in the
/// direct lineage of two Revisions (so no Window was published twice). Returns how many Sources
/// stand in a lineage.
///
/// # Panics
/// When one of these does not hold.
pub async fn assert_caught_up(path: &Path, scope: &str) -> i64 {
    let quoted = scope.replace('\'', "''");
    let one = async |sql: &str| number(path, &sql.replace("$scope", &format!("'{quoted}'"))).await;
    let head = one("SELECT coalesce(max(position), 0) FROM pc_sources WHERE scope_id = $scope").await;
    assert_eq!(
        one("SELECT count(*) FROM pc_sources WHERE scope_id = $scope").await,
        head,
        "positions are contiguous"
    );
    let cursor =
        one("SELECT coalesce(max(position), 0) FROM pc_source_cursors WHERE scope_id = $scope").await;
    assert_eq!(cursor, head, "the Cursor is at the head");
    // A flush that came during the last Window is answered by the supervisor's next look (TM-170).
    let pending = "SELECT count(*) FROM pc_artifact_processing_pending WHERE scope_id = $scope";
    for _ in 0..200 {
        if one(pending).await == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(one(pending).await, 0, "nothing is pending");
    let budgets = one("SELECT count(*) FROM pc_topic_memory_work_budgets WHERE scope_id = $scope").await;
    assert_eq!(budgets, 0, "no frontier is open");
    let twice = one("SELECT count(*) FROM (SELECT source_id FROM pc_artifact_lineage_sources \
         WHERE scope_id = $scope GROUP BY source_id HAVING count(*) > 1)")
    .await;
    assert_eq!(twice, 0, "no Source was published twice");
    let gaps = one("SELECT count(*) FROM pc_artifact_heads h WHERE scope_id = $scope AND revision <> \
         (SELECT count(*) FROM pc_artifacts a WHERE a.scope_id = h.scope_id AND a.family = h.family \
         AND a.artifact_id = h.artifact_id)")
    .await;
    assert_eq!(gaps, 0, "every Revision up to the Head exists once");
    one("SELECT count(DISTINCT source_id) FROM pc_artifact_lineage_sources WHERE scope_id = $scope").await
}
