//! One server per database file: a lock that the system gives back however its holder ends.
//! A shared database takes any number of servers.
//!
//! The lock lies on a file beside the database, because locks on the database file itself belong to
//! SQLite. Workers do not take it; they are fenced by their term.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::{Store, StoreOptions};

/// Holds a database for one server; dropping it lets go.
#[derive(Debug)]
pub enum Claim {
    /// A file, and the lock beside it.
    File(LockedFile),
    /// A database that servers share: there is nothing to hold, its leader is elected.
    Shared,
}

/// The locked file.
#[derive(Debug)]
pub struct LockedFile {
    _file: File,
}

/// Why a database was not claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process holds it. Stop that one first.
    #[error("the database {database} is in use by another server")]
    Taken {
        /// The database file.
        database: PathBuf,
    },
    /// The folder of the database is not there. Make it or correct the setting.
    #[error("the folder {folder} of the database does not exist")]
    FolderMissing {
        /// The folder.
        folder: PathBuf,
    },
    /// The lock file cannot be made or locked.
    #[error("the lock file {file} cannot be used")]
    Unusable {
        /// The lock file.
        file: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Store {
    /// Claims a database for this process, whether it exists already or not. Never waits.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim(options: &StoreOptions) -> Result<Claim, ClaimError> {
        let Some(database) = options.url.path() else { return Ok(Claim::Shared) };
        if let Some(folder) = database.parent().filter(|folder| !folder.is_dir()) {
            return Err(ClaimError::FolderMissing { folder: folder.to_owned() });
        }
        let file = lock_file(database);
        let unusable = |source| ClaimError::Unusable { file: file.clone(), source };
        let locked = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&file)
            .map_err(unusable)?;
        match locked.try_lock() {
            Ok(()) => Ok(Claim::File(LockedFile { _file: locked })),
            Err(TryLockError::WouldBlock) => Err(ClaimError::Taken { database: database.to_owned() }),
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }
}

fn lock_file(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatabaseUrl;

    #[test]
    fn a_claim_excludes_others_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::new(DatabaseUrl::file(&folder.path().join("a.sqlite3")));
        let other = StoreOptions::new(DatabaseUrl::file(&folder.path().join("b.sqlite3")));
        let claim = Store::claim(&options).unwrap();
        assert!(matches!(Store::claim(&options), Err(ClaimError::Taken { .. })));
        assert!(Store::claim(&other).is_ok());
        drop(claim);
        assert!(Store::claim(&options).is_ok());
    }

    #[test]
    fn a_shared_database_takes_any_number_of_servers() {
        // TM-179
        let options = StoreOptions::new(DatabaseUrl::parse("mysql://u@localhost/powercontext").unwrap());
        let claims = [Store::claim(&options), Store::claim(&options)];
        assert!(claims.iter().all(|claim| matches!(claim, Ok(Claim::Shared))), "{claims:?}");
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error =
            Store::claim(&StoreOptions::new(DatabaseUrl::file(&missing.join("a.sqlite3")))).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the folder {} of the database does not exist", missing.display())
        );
    }

    #[tokio::test]
    async fn a_closed_store_leaves_one_complete_file() {
        use powercontext_core::ambient::SystemIds;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sqlite3");
        let options = StoreOptions::new(DatabaseUrl::file(&path));
        let alone = || std::fs::read_dir(folder.path()).unwrap().count() == 1;
        crate::migrate(&options, &SystemIds).await.unwrap();
        assert!(alone(), "a migration cleans up behind itself");
        let store = Store::open(&options).await.unwrap();
        let (first, second) = tokio::join!(crate::scopes::default(&store), store.ping());
        assert!(first.unwrap().is_some() && second.is_ok());
        assert!(!alone());
        store.close().await;
        assert!(alone());
        assert!(store.ping().await.is_err(), "a closed store stays closed");
        let copy = StoreOptions::new(DatabaseUrl::file(&folder.path().join("copy.sqlite3")));
        std::fs::copy(&path, copy.url.path().unwrap()).unwrap();
        assert!(crate::scopes::default(&Store::open(&copy).await.unwrap()).await.unwrap().is_some());
    }
}
