//! One server per database file: a lock that the system gives back however its holder ends.
//! A shared database takes any number of servers.
//!
//! The lock lies on a file beside the database, because locks on the database file itself belong to
//! SQLite: beside the file that symbolic links lead to, so all of them meet there. Hard links would not,
//! and neither would the logs that SQLite keeps by name, so a file that has any is refused. Workers do not
//! take the lock; they are fenced by their term.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
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
    /// The database file has several names. Remove all but one of them.
    #[error("the database {database} has hard links; it must have one name only")]
    HardLinked {
        /// The database file.
        database: PathBuf,
    },
    /// The database file, or what a link leads to, cannot be looked at.
    #[error("the database {database} cannot be found")]
    Unreachable {
        /// The database file.
        database: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
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
        let real = real_file(database)?;
        if real.metadata().is_ok_and(|metadata| metadata.nlink() > 1) {
            return Err(ClaimError::HardLinked { database: real });
        }
        let file = lock_file(&real);
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

/// The file that a path leads to, whether it is there already or not.
fn real_file(database: &Path) -> Result<PathBuf, ClaimError> {
    let unreachable = |source| ClaimError::Unreachable { database: database.to_owned(), source };
    match database.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found.map_err(unreachable),
    }
    let missing = || unreachable(io::ErrorKind::NotFound.into());
    let (folder, name) = database.parent().zip(database.file_name()).ok_or_else(missing)?;
    let folder = match folder.canonicalize() {
        Ok(found) if found.is_dir() => found,
        _ => return Err(ClaimError::FolderMissing { folder: folder.to_owned() }),
    };
    // A link to a file that SQLite will make. The system refused a circle of links above.
    match database.read_link() {
        Ok(target) => real_file(&folder.join(target)),
        Err(_) => Ok(folder.join(name)),
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
    fn every_way_to_a_file_meets_the_same_claim() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let claim = |name: &str| Store::claim(&StoreOptions::new(DatabaseUrl::file(&at(name))));
        std::fs::create_dir(at("real")).unwrap();
        symlink(at("real"), at("folder")).unwrap();
        symlink("real/a.sqlite3", at("link")).unwrap();
        symlink("link", at("link-to-link")).unwrap();
        for there in [false, true] {
            if there {
                std::fs::write(at("real/a.sqlite3"), "").unwrap();
            }
            let ways = ["real/a.sqlite3", "folder/a.sqlite3", "link", "link-to-link", "real/../link"];
            for first in ways {
                let held = claim(first).unwrap();
                for second in ways {
                    let refused = claim(second);
                    assert!(matches!(refused, Err(ClaimError::Taken { .. })), "{first} {second}");
                }
                drop(held);
            }
        }
        symlink("circle", at("circle")).unwrap();
        assert!(matches!(claim("circle"), Err(ClaimError::Unreachable { .. })));
    }

    #[test]
    fn a_file_with_a_hard_link_is_refused_under_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let claim = |name: &str| Store::claim(&StoreOptions::new(DatabaseUrl::file(&at(name))));
        std::fs::write(at("a.sqlite3"), "").unwrap();
        let first = claim("a.sqlite3").unwrap();
        std::fs::hard_link(at("a.sqlite3"), at("b.sqlite3")).unwrap();
        let error = claim("b.sqlite3").unwrap_err().to_string();
        assert!(error.ends_with("b.sqlite3 has hard links; it must have one name only"), "{error}");
        drop(first);
        assert!(matches!(claim("a.sqlite3"), Err(ClaimError::HardLinked { .. })));
        std::fs::remove_file(at("b.sqlite3")).unwrap();
        claim("a.sqlite3").unwrap();
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
