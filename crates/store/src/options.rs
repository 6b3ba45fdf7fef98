//! Where the database is and how it is opened.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::StoreError;

/// A database address that names a supported database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseUrl {
    path: PathBuf,
}

/// Why a text is not a database address. Never repeats the text: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// The part before `://` names no supported database.
    #[error("the database URL must start with sqlite:///")]
    Scheme,
    /// The file is missing or not absolute.
    #[error(
        "the database URL must name an absolute file, as in sqlite:///var/lib/powercontext/powercontext.db"
    )]
    Path,
}

impl DatabaseUrl {
    /// Accepts `sqlite:///absolute/file`.
    ///
    /// # Errors
    /// [`InvalidUrl`] says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        let path = text.strip_prefix("sqlite://").ok_or(InvalidUrl::Scheme)?;
        let query_or_fragment = path.contains(['?', '#']);
        let path = Path::new(path);
        if !path.is_absolute() || path.file_name().is_none() || query_or_fragment {
            return Err(InvalidUrl::Path);
        }
        Ok(Self { path: path.to_owned() })
    }

    /// The address of a database file.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Which database.
    pub url: DatabaseUrl,
    /// The largest number of reading connections.
    pub readers: u32,
    /// How long one statement waits for another process.
    pub busy_timeout: Duration,
}

impl StoreOptions {
    /// The usual settings for a database: 4 readers, a busy timeout of 5 seconds.
    #[must_use]
    pub const fn new(url: DatabaseUrl) -> Self {
        Self { url, readers: 4, busy_timeout: Duration::from_secs(5) }
    }
}

/// What search records are made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchVersions {
    /// The version of the analyzer that makes terms.
    pub analyzer: i64,
    /// The version of the policy that cuts chunks.
    pub chunk_policy: i64,
}

impl fmt::Display for SearchVersions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "analyzer {} and chunk policy {}", self.analyzer, self.chunk_policy)
    }
}

/// Why a store cannot be opened or migrated.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no database, or one that was never migrated. Run the migration.
    #[error("the database has no schema; run `powercontext-api-server migrate`")]
    SchemaMissing,
    /// The schema is older than this program needs. Run the migration.
    #[error(
        "the database schema is at {found} and this program needs {needed}; run `powercontext-api-server migrate`"
    )]
    SchemaBehind {
        /// The newest migration the database has.
        found: i64,
        /// The newest migration this program knows.
        needed: i64,
    },
    /// The schema is newer than this program. Use the newer program.
    #[error("the database schema is at {found}, newer than the {known} this program knows")]
    SchemaNewer {
        /// The newest migration the database has.
        found: i64,
        /// The newest migration this program knows.
        known: i64,
    },
    /// A migration that was applied has another text than the one in this program.
    #[error("migration {number} of the database differs from the one this program knows")]
    MigrationChanged {
        /// Which migration.
        number: i64,
    },
    /// The stored retrieval shape is missing or is not the configured one (TM-257).
    #[error("the database's retrieval shape is {found} and the configured one is {configured}")]
    RetrievalShape {
        /// What the database says, `missing` if nothing.
        found: String,
        /// What this program is configured for.
        configured: &'static str,
    },
    /// The stored terms and chunks were made by another analyzer or chunk policy, so searches would
    /// miss Topics. A migration adopts the program's versions while there is no Topic.
    #[error(
        "the database's search records were made by {found} and this program has {needed}; \
         only a database without Topics can be migrated to them"
    )]
    SearchRecords {
        /// What made the stored records.
        found: SearchVersions,
        /// What this program makes them by.
        needed: SearchVersions,
    },
    /// The database could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absolute_sqlite_file_is_a_database_address() {
        assert_eq!(DatabaseUrl::parse("sqlite:///a/b.db").unwrap().path(), Path::new("/a/b.db"));
        for (text, error) in [
            ("postgres://x/y", InvalidUrl::Scheme),
            ("sqlite://a.db", InvalidUrl::Path),
            ("sqlite:///", InvalidUrl::Path),
            ("sqlite:///a.db?mode=ro", InvalidUrl::Path),
        ] {
            assert_eq!(DatabaseUrl::parse(text), Err(error), "{text}");
        }
    }
}
