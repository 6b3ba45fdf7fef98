//! Whose tables a database has: this program's, known by their history, or another one's.

use crate::StoreError;
use crate::database::{Transaction, Twin, values};
use crate::options::OpenError;

/// Each database has its own catalogue. A table of this name with other columns is not the history.
macro_rules! history_columns {
    ($columns:literal) => {
        concat!("SELECT count(*) FROM ", $columns, " IN ('number', 'name', 'checksum', 'applied_at')")
    };
}

const HISTORY_COLUMNS: Twin = Twin {
    sqlite: history_columns!("pragma_table_info('pc_schema_migrations') WHERE name"),
    oceanbase: history_columns!(
        "information_schema.columns WHERE table_schema = database() \
         AND table_name = 'pc_schema_migrations' AND column_name"
    ),
};

/// A table that a program without a history has not made; the lock is made before the history.
const OTHERS: Twin = Twin {
    sqlite: "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND substr(name, 1, 3) = 'pc_' \
        ORDER BY name LIMIT 1",
    oceanbase: "SELECT table_name FROM information_schema.tables WHERE table_schema = database() \
        AND substr(table_name, 1, 3) = 'pc_' AND table_name <> 'pc_schema_lock' ORDER BY table_name LIMIT 1",
};

/// Whether the database has a history of this program's migrations.
///
/// A database without one and with a table of such a name is refused. The tables are looked at first: a run
/// elsewhere makes the history before any of them.
pub(super) async fn is_there(reader: &mut Transaction) -> Result<bool, OpenError> {
    let at = StoreError::at("migrations.history");
    let other = reader.query_one(OTHERS, values![]).await.map_err(&at)?;
    let columns = reader.query_one(HISTORY_COLUMNS, values![]).await.map_err(&at)?;
    let columns = columns.map_or(Ok(0), |row| row.integer(0)).map_err(&at)?;
    match other {
        _ if columns == 4 => Ok(true),
        None => Ok(false),
        Some(row) => Err(OpenError::ForeignTable { table: row.text(0).map_err(&at)? }),
    }
}
