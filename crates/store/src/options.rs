//! Where the database is and how it is opened.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powercontext_core::secret::Secret;

use crate::database::oceanbase::OceanBaseServer;
use crate::database::sqlite::SqliteFile;
use crate::database::{DatabaseError, DatabaseErrorKind, Target};
use crate::error::StoreError;

/// The port OceanBase listens on unless the address names another one.
const DEFAULT_PORT: u16 = 2881;
/// The longest name of a database.
const MAX_DATABASE_CHARS: usize = 64;

/// What a query or a fragment of a URL begins with.
const QUERY: [char; 2] = ['?', '#'];

/// A database address that names a supported database.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(Address);

#[derive(Clone, PartialEq, Eq)]
enum Address {
    Sqlite(PathBuf),
    OceanBase { user: String, password: Secret, host: String, port: u16, database: String },
}

/// Why a text is not a database address. Never repeats the text: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// The part before `://` names no supported database.
    #[error("the database URL must start with sqlite:/// or mysql://")]
    Scheme,
    /// The file is missing or not absolute.
    #[error(
        "the database URL must name an absolute file, as in sqlite:///var/lib/powercontext/powercontext.db"
    )]
    Path,
    /// There is a `?` or a `#` behind the file or the database.
    #[error("the database URL must end with its file or database, without `?` or `#` behind it")]
    Query,
    /// No user stands before an `@`.
    #[error("the database URL must name a user, as in mysql://user:password@host:port/database")]
    User,
    /// User or password are not percent-encoded text.
    #[error("user and password in the database URL must have two hexadecimal digits behind each `%`")]
    Encoding,
    /// The host is missing or no name or address.
    #[error("the database URL must name a host after the `@`; an IPv6 address stands in brackets")]
    Host,
    /// The port is no number of a port.
    #[error("the port in the database URL must be a number from 1 to 65535")]
    Port,
    /// The database is missing, too long or has other characters.
    #[error(
        "the database URL must end with `/` and the name of a database: 1 to 64 letters, digits, `_`, `-` or `$`"
    )]
    Database,
}

impl DatabaseUrl {
    /// Accepts `sqlite:///absolute/file` and `mysql://user:password@host:port/database`.
    ///
    /// Password and port may be left out. User and password are percent-decoded; the user may hold
    /// `@tenant#cluster` as it is, because the last `@` ends the credentials.
    ///
    /// # Errors
    /// [`InvalidUrl`] says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        if let Some(server) = text.strip_prefix("mysql://") {
            return parse_server(server).map(Self);
        }
        let path = text.strip_prefix("sqlite://").ok_or(InvalidUrl::Scheme)?;
        if path.contains(QUERY) {
            return Err(InvalidUrl::Query);
        }
        let path = Path::new(path);
        if !path.is_absolute() || path.file_name().is_none() {
            return Err(InvalidUrl::Path);
        }
        Ok(Self::file(path))
    }

    /// The address of a database file.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self(Address::Sqlite(path.to_owned()))
    }

    /// The database file; `None` for a server.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Address::Sqlite(path) => Some(path),
            Address::OceanBase { .. } => None,
        }
    }

    /// Whether several processes on several machines may use the database at once.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self.0, Address::OceanBase { .. })
    }
}

/// The file, or the database and its server, as a person names it.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::Sqlite(path) => write!(out, "{}", path.display()),
            Address::OceanBase { host, port, database, .. } => write!(out, "{database} at {host}:{port}"),
        }
    }
}

/// The address without the password.
impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::Sqlite(path) => write!(out, "sqlite://{}", path.display()),
            Address::OceanBase { user, password, host, port, database } => {
                write!(out, "mysql://{user}:{password}@{host}:{port}/{database}")
            }
        }
    }
}

fn parse_server(text: &str) -> Result<Address, InvalidUrl> {
    let (credentials, place) = text.rsplit_once('@').ok_or(InvalidUrl::User)?;
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let decoded = |part| percent_decoded(part).ok_or(InvalidUrl::Encoding);
    let (user, password) = (decoded(user)?, decoded(password)?);
    let (address, database) = place.split_once('/').unwrap_or((place, ""));
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !address.ends_with(']') => (host, port.parse().ok()),
        _ => (address, Some(DEFAULT_PORT)),
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let strange = |character: char| {
        character.is_whitespace()
            || matches!(character, '[' | ']' | '/' | '?' | '#')
            || bracketed.is_none() && character == ':'
    };
    let named = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '$');
    let host = bracketed.unwrap_or(host);
    let port = port.filter(|port| *port != 0);
    match port {
        _ if user.is_empty() => Err(InvalidUrl::User),
        _ if host.is_empty() || host.contains(strange) => Err(InvalidUrl::Host),
        None => Err(InvalidUrl::Port),
        _ if database.contains(QUERY) => Err(InvalidUrl::Query),
        _ if !(1..=MAX_DATABASE_CHARS).contains(&database.len()) || !database.chars().all(named) => {
            Err(InvalidUrl::Database)
        }
        Some(port) => Ok(Address::OceanBase {
            user,
            password: Secret::new(password),
            host: host.to_owned(),
            port,
            database: database.to_owned(),
        }),
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Which database.
    pub url: DatabaseUrl,
    /// The largest number of reading connections; on OceanBase also of writing ones.
    pub readers: u32,
    /// How long one statement waits for another process; on OceanBase at most 2 seconds.
    pub busy_timeout: Duration,
}

impl StoreOptions {
    /// The usual settings for a database: 4 readers, a busy timeout of 5 seconds.
    #[must_use]
    pub const fn new(url: DatabaseUrl) -> Self {
        Self { url, readers: 4, busy_timeout: Duration::from_secs(5) }
    }

    /// What the database module opens; `create` makes a file that is missing.
    pub(crate) fn target(&self, create: bool) -> Target {
        match &self.url.0 {
            Address::Sqlite(path) => Target::Sqlite(SqliteFile {
                path: path.clone(),
                create,
                readers: self.readers,
                busy_timeout: self.busy_timeout,
            }),
            Address::OceanBase { user, password, host, port, database } => {
                Target::OceanBase(OceanBaseServer {
                    user: user.clone(),
                    password: password.clone(),
                    host: host.clone(),
                    port: *port,
                    database: database.clone(),
                    connections: self.readers,
                    busy_timeout: self.busy_timeout,
                })
            }
        }
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
    /// A migration applied everything and did not come to its end. Run it again.
    #[error("a migration of the database was interrupted; run `powercontext-api-server migrate`")]
    Unfinished,
    /// Another program's tables are in the way. Use a database of its own.
    #[error("the database has a table `{table}` that this program did not make; use another database")]
    ForeignTable {
        /// Which table.
        table: String,
    },
    /// No server answers at the address. Retrying later may help.
    #[error("no server answers there: {reason}")]
    Unreachable {
        /// What the system said.
        reason: String,
    },
    /// The server refuses the user. Correct the user, the password or the user's rights.
    #[error("the server refuses this user: the name, the password or the right to use the database is wrong")]
    AccessDenied,
    /// The server has no database of that name. Run the migration, which makes it, or correct the address.
    #[error("the server has no such database; run `powercontext-api-server migrate`")]
    DatabaseMissing,
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
    /// A migration is missing before one that was applied: the history was changed by hand. Restore it.
    #[error("migration {number} of the database is missing although {found} was applied")]
    MigrationMissing {
        /// Which migration.
        number: i64,
        /// The newest migration the database has.
        found: i64,
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
    /// A text column compares otherwise than by bytes, so identities could be confused.
    #[error("column `{column}` of the database has collation `{collation}` instead of `utf8mb4_bin`")]
    Collation {
        /// Table and column.
        column: String,
        /// The collation it has.
        collation: String,
    },
    /// The database could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    /// What it means that a database could not be opened.
    pub(crate) fn opening(operation: &'static str) -> impl Fn(DatabaseError) -> Self {
        move |error| match error.kind {
            DatabaseErrorKind::MissingDatabase => Self::DatabaseMissing,
            DatabaseErrorKind::AccessDenied => Self::AccessDenied,
            DatabaseErrorKind::Lost | DatabaseErrorKind::Silent => {
                Self::Unreachable { reason: error.root().to_string() }
            }
            _ => StoreError::at(operation)(error).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absolute_sqlite_file_is_a_database_address() {
        assert_eq!(DatabaseUrl::parse("sqlite:///a/b.db").unwrap().path(), Some(Path::new("/a/b.db")));
        for (text, error) in [
            ("postgres://x/y", InvalidUrl::Scheme),
            ("sqlite://a.db", InvalidUrl::Path),
            ("sqlite:///", InvalidUrl::Path),
            ("sqlite:///a.db?mode=ro", InvalidUrl::Query),
        ] {
            assert_eq!(DatabaseUrl::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_server_address_is_taken_apart_and_never_shows_its_password() {
        // TM-228
        let parts = |text: &str| match DatabaseUrl::parse(text).unwrap().0 {
            Address::OceanBase { user, password, host, port, database } => {
                (user, password.reveal().to_owned(), host, port, database)
            }
            Address::Sqlite(_) => panic!("{text} is no file"),
        };
        let owned = |user: &str, password: &str, host: &str, port, database: &str| {
            (user.to_owned(), password.to_owned(), host.to_owned(), port, database.to_owned())
        };
        for (text, expected) in [
            ("mysql://root@127.0.0.1:2882/test", owned("root", "", "127.0.0.1", 2882, "test")),
            ("mysql://u@t#c:p%40ss%3A@db/power-1", owned("u@t#c", "p@ss:", "db", 2881, "power-1")),
            ("mysql://u:p@[::1]:2881/x", owned("u", "p", "::1", 2881, "x")),
            ("mysql://u:a@b@[::1]/x", owned("u", "a@b", "::1", 2881, "x")),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
        let url = DatabaseUrl::parse("mysql://u:hunter2@h:1/x").unwrap();
        let shown = format!("{url:?} {:?} {:?}", StoreOptions::new(url.clone()), {
            StoreOptions::new(url.clone()).target(false)
        });
        assert!(!shown.contains("hunter2") && shown.contains("[redacted]"), "{shown}");
        assert_eq!(url.to_string(), "x at h:1");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named_and_nothing_of_it_repeated() {
        // TM-228
        for (place, error) in [
            ("mysqls://u:hunter2@h/x", InvalidUrl::Scheme),
            ("mysql://h/x", InvalidUrl::User),
            ("mysql://@h/x", InvalidUrl::User),
            ("mysql://:hunter2@h/x", InvalidUrl::User),
            ("mysql://u:%zz@h/x", InvalidUrl::Encoding),
            ("mysql://u:hunter2%f@h/x", InvalidUrl::Encoding),
            ("mysql://u:%ff@h/x", InvalidUrl::Encoding),
            ("mysql://u:hunter2@/x", InvalidUrl::Host),
            ("mysql://u:hunter2@:2881/x", InvalidUrl::Host),
            ("mysql://u:hunter2@[]/x", InvalidUrl::Host),
            ("mysql://u:hunter2@::1/x", InvalidUrl::Host),
            ("mysql://u:hunter2@a b:1/x", InvalidUrl::Host),
            ("mysql://u:hunter2@h:x/x", InvalidUrl::Port),
            ("mysql://u:hunter2@h:/x", InvalidUrl::Port),
            ("mysql://u:hunter2@h:0/x", InvalidUrl::Port),
            ("mysql://u:hunter2@[::1]:65536/x", InvalidUrl::Port),
            ("mysql://u:hunter2@h/x?tls=1", InvalidUrl::Query),
            ("mysql://u:hunter2@h", InvalidUrl::Database),
            ("mysql://u:hunter2@h:1/", InvalidUrl::Database),
            ("mysql://u:hunter2@h/`", InvalidUrl::Database),
            ("mysql://u:hunter2@h/x/y", InvalidUrl::Database),
        ] {
            let refused = DatabaseUrl::parse(place);
            assert_eq!(refused, Err(error), "{place}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let long = |chars| DatabaseUrl::parse(&format!("mysql://u@h/{}", "x".repeat(chars))).map(drop);
        assert_eq!((long(64), long(65)), (Ok(()), Err(InvalidUrl::Database)));
    }
}
