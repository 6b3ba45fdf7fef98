//! Connections of one kind: opened when first needed, kept, lent one by one in turn.
//!
//! Decided here: waiting while other processes prepare a new file, how long a server's connection is
//! waited for, and that a connection in an unknown state is never used again. What a connection does
//! is in [`link`](super::link); transactions and their retries are the parent's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::link::Link;
use super::oceanbase::{self, ANSWER_LIMIT, OceanBaseServer};
use super::{DatabaseError, DatabaseErrorKind, Target, sqlite};

/// How often opening a file is tried again while others prepare it, and how long between.
const CONNECT_RETRIES: u32 = 100;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    Reader,
}

/// How a new connection is made.
pub(super) enum Opener {
    Sqlite(Box<SqliteConnectOptions>),
    OceanBase(Box<OceanBaseServer>, Role),
}

impl Opener {
    pub(super) fn new(target: &Target, role: Role) -> Self {
        match target {
            Target::Sqlite(file) => Self::Sqlite(Box::new(sqlite::connect_options(file, role))),
            Target::OceanBase(server) => Self::OceanBase(Box::new(server.clone()), role),
        }
    }

    async fn open(&self) -> Result<Link, DatabaseError> {
        Ok(match self {
            Self::Sqlite(options) => Link::Sqlite(open_file(options).await?),
            Self::OceanBase(server, role) => {
                Link::OceanBase(oceanbase::connect(server, *role).await?, ANSWER_LIMIT)
            }
        })
    }
}

/// Opens a connection. Where several processes open a new file at once, SQLite refuses the change
/// to write-ahead mode without waiting, so this waits instead, a little and only so often.
async fn open_file(options: &SqliteConnectOptions) -> Result<SqliteConnection, DatabaseError> {
    let mut retries = 0;
    loop {
        match SqliteConnection::connect_with(options).await.map_err(DatabaseError::from) {
            Err(error) if error.kind == DatabaseErrorKind::Busy && retries < CONNECT_RETRIES => {
                retries += 1;
                tokio::time::sleep(CONNECT_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// A fair queue for at most `size` connections.
pub(super) struct Pool {
    opener: Opener,
    idle: Mutex<Vec<Link>>,
    permits: Arc<Semaphore>,
    size: u32,
}

impl Pool {
    pub(super) fn new(opener: Opener, size: u32) -> Self {
        let size = size.max(1);
        let permits = Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(1)));
        Self { opener, idle: Mutex::new(Vec::new()), permits, size }
    }

    /// Waits until no connection is on loan, closes all of them, and stays closed.
    pub(super) async fn close(&self) {
        let all = self.permits.acquire_many(self.size).await;
        for link in self.take_idle() {
            link.close().await;
        }
        self.permits.close();
        drop(all);
    }

    pub(super) async fn take(self: &Arc<Self>) -> Result<Lent, DatabaseError> {
        let permit = self.permit().await?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let link = match idle {
            Some(link) => link,
            None => self.opener.open().await?,
        };
        Ok(Lent { link: Some(link), pool: Arc::clone(self), _permit: permit })
    }

    /// Whose turn it is. A file's writers wait for each other however long it takes; a server that does
    /// not answer must not make callers wait for one another as well.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, DatabaseError> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = match self.opener {
            Opener::Sqlite(_) => permit.await,
            Opener::OceanBase(..) => {
                tokio::time::timeout(ANSWER_LIMIT, permit).await.map_err(|_| sqlx::Error::PoolTimedOut)?
            }
        };
        Ok(permit.map_err(|_| sqlx::Error::PoolClosed)?)
    }

    fn take_idle(&self) -> Vec<Link> {
        std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection on loan; dropping it gives it back before the permit is free again.
pub(super) struct Lent {
    /// `None` once the connection was thrown away.
    pub(super) link: Option<Link>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Lent {
    /// Throws a lost connection away, and the idle ones with it: what broke this one broke them.
    pub(super) fn lose(&mut self) {
        self.link = None;
        drop(self.pool.take_idle());
    }

    /// Replaces the connection by a new one.
    pub(super) async fn renew(&mut self) -> Result<(), DatabaseError> {
        self.link = None;
        self.link = Some(self.pool.opener.open().await?);
        Ok(())
    }

    /// Undoes the open transaction. A connection that answers with an error may still be inside
    /// it, so it is closed instead of being given back; so is one whose undoing is cut short.
    pub(super) fn roll_back(mut self) -> impl Future<Output = ()> + Send {
        let link = self.link.take();
        async move {
            let (mut lent, Some(mut link)) = (self, link) else { return };
            match link.command("ROLLBACK".to_owned()).await {
                Ok(()) => lent.link = Some(link),
                Err(error) => tracing::debug!(?error, "a connection that could not roll back is closed"),
            }
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        }
    }
}
