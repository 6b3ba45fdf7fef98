//! A connection lent out, usually with a transaction open on it.
//!
//! Dropping it undoes the transaction before anyone else gets the connection. A server connection
//! that was lost, or dropped while a statement was on its way, is closed instead: the server then
//! undoes its transaction.

use std::sync::Arc;
use std::time::Duration;

use super::link::{Done, Link, Wanted};
use super::oceanbase::{self, CONNECT_LIMIT};
use super::pool::{Lent, Pool};
use super::{DatabaseError, Engine, Row, Text, Value};

/// See the module.
pub struct Transaction {
    lent: Option<Lent>,
    state: State,
    /// A statement is on its way.
    running: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Every statement stands alone and may be asked again on a new connection.
    Reading,
    /// A transaction is open.
    Open,
    /// Session settings were changed: the connection is not given back.
    Session,
    /// Nothing is open.
    Finished,
}

impl Transaction {
    /// Starts a transaction; a connection that was lost while idle is replaced once.
    pub(super) async fn begin(pool: &Arc<Pool>, text: &'static str) -> Result<Self, DatabaseError> {
        let mut transaction = Self::lend(pool, State::Open).await?;
        let started = match transaction.start(text).await {
            Err(error) if error.is_end_of_connection() => {
                transaction.renew().await?;
                transaction.start(text).await
            }
            outcome => outcome,
        };
        if started.is_err() {
            transaction.state = State::Finished;
            // A server may have begun all the same; a file has not.
            if transaction.engine() == Engine::OceanBase
                && let Some(lent) = transaction.lent.as_mut()
            {
                lent.link = None;
            }
        }
        started.map(|()| transaction)
    }

    /// The first statement of a transaction, which a server answers at once or not at all.
    async fn start(&mut self, text: &'static str) -> Result<(), DatabaseError> {
        if self.engine() == Engine::Sqlite {
            return self.command(text.to_owned()).await;
        }
        match tokio::time::timeout(CONNECT_LIMIT, self.command(text.to_owned())).await {
            Ok(outcome) => outcome,
            Err(_) => self.answered(Err(DatabaseError::silence())),
        }
    }

    pub(super) async fn reading(pool: &Arc<Pool>) -> Result<Self, DatabaseError> {
        Self::lend(pool, State::Reading).await
    }

    pub(super) async fn session(pool: &Arc<Pool>) -> Result<Self, DatabaseError> {
        let mut session = Self::lend(pool, State::Session).await?;
        session.renew().await?;
        if session.engine() == Engine::OceanBase {
            session.widen(oceanbase::migration_session(), oceanbase::MIGRATION_LIMIT).await?;
        }
        Ok(session)
    }

    /// Starts a transaction of OceanBase whose statements may take a minute.
    pub(super) async fn long(pool: &Arc<Pool>) -> Result<Self, DatabaseError> {
        let mut session = Self::lend(pool, State::Session).await?;
        session.renew().await?;
        session.widen(oceanbase::wave_session(), oceanbase::WAVE_ANSWER_LIMIT).await?;
        session.command("START TRANSACTION".to_owned()).await?;
        Ok(session)
    }

    /// Changes the limits of the session, and the patience of this side with it.
    async fn widen(&mut self, text: String, answer: Duration) -> Result<(), DatabaseError> {
        self.command(text).await?;
        if let Ok(Link::OceanBase(_, limit)) = self.link() {
            *limit = answer;
        }
        Ok(())
    }

    /// Runs a text that begins and commits by itself.
    pub(super) async fn batch(
        pool: &Arc<Pool>,
        text: &'static str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, DatabaseError> {
        let mut transaction = Self::lend(pool, State::Open).await?;
        match transaction.query(text, parameters).await {
            Ok(rows) => {
                transaction.state = State::Finished;
                Ok(rows)
            }
            Err(error) => {
                transaction.roll_back().await;
                Err(error)
            }
        }
    }

    /// Which database this is.
    pub fn engine(&self) -> Engine {
        let link = self.lent.as_ref().and_then(|lent| lent.link.as_ref());
        link.map_or(Engine::OceanBase, Link::engine)
    }

    /// Runs one writing statement and returns how many rows it affected: on both databases the rows
    /// that matched, also when nothing in them changed.
    pub async fn execute(
        &mut self,
        text: impl Into<Text>,
        parameters: Vec<Value>,
    ) -> Result<u64, DatabaseError> {
        Ok(self.run(text.into(), parameters, Wanted::Affected).await?.affected)
    }

    /// Runs a statement and returns all of its rows.
    pub async fn query(
        &mut self,
        text: impl Into<Text>,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, DatabaseError> {
        Ok(self.run(text.into(), parameters, Wanted::Rows).await?.rows)
    }

    /// Runs a statement that yields at most one row.
    pub async fn query_one(
        &mut self,
        text: impl Into<Text>,
        parameters: Vec<Value>,
    ) -> Result<Option<Row>, DatabaseError> {
        Ok(self.query(text, parameters).await?.into_iter().next())
    }

    /// Runs a text without parameters that cannot be prepared.
    pub async fn command(&mut self, text: String) -> Result<(), DatabaseError> {
        self.running = true;
        let outcome = match self.link() {
            Ok(link) => link.command(text).await,
            Err(error) => Err(error),
        };
        self.answered(outcome)
    }

    /// Makes everything since the start durable and visible.
    pub async fn commit(mut self) -> Result<(), DatabaseError> {
        let engine = self.engine();
        self.command("COMMIT".to_owned()).await.map_err(|error| error.while_committing(engine))?;
        if self.state != State::Session {
            self.state = State::Finished;
        }
        Ok(())
    }

    /// Undoes everything since the start. Cannot fail: closing the connection undoes it as well.
    pub async fn roll_back(mut self) {
        if self.state == State::Session {
            let undone = self.command("ROLLBACK".to_owned()).await;
            tracing::trace!(ok = undone.is_ok(), "rolled back");
        } else if let Some(lent) = self.lent.take() {
            lent.roll_back().await;
        }
    }

    async fn run(
        &mut self,
        text: Text,
        parameters: Vec<Value>,
        wanted: Wanted,
    ) -> Result<Done, DatabaseError> {
        let again = (self.state == State::Reading && self.engine() == Engine::OceanBase)
            .then(|| (text.clone(), parameters.clone()));
        self.running = true;
        let outcome = self.link()?.run(text, parameters, wanted).await;
        match (self.answered(outcome), again) {
            (Err(error), Some((text, parameters))) if error.is_end_of_connection() => {
                self.renew().await?;
                self.running = true;
                let outcome = self.link()?.run(text, parameters, wanted).await;
                self.answered(outcome)
            }
            (outcome, _) => outcome,
        }
    }

    /// Notes that the connection is quiet again, and throws it away if it was lost.
    fn answered<T>(&mut self, outcome: Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        self.running = false;
        if let (Err(error), Some(lent)) = (&outcome, self.lent.as_mut())
            && error.is_end_of_connection()
        {
            lent.lose();
        }
        outcome
    }

    async fn lend(pool: &Arc<Pool>, state: State) -> Result<Self, DatabaseError> {
        Ok(Self { lent: Some(pool.take().await?), state, running: false })
    }

    async fn renew(&mut self) -> Result<(), DatabaseError> {
        match self.lent.as_mut() {
            Some(lent) => lent.renew().await,
            None => Err(DatabaseError::gone()),
        }
    }

    fn link(&mut self) -> Result<&mut Link, DatabaseError> {
        self.lent.as_mut().and_then(|lent| lent.link.as_mut()).ok_or_else(DatabaseError::gone)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let Some(mut lent) = self.lent.take() else { return };
        let Some(link) = lent.link.as_mut() else { return };
        let interrupted = self.running && link.engine() == Engine::OceanBase;
        if interrupted || self.state == State::Session {
            lent.link = None;
            return;
        }
        if self.state != State::Open {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(lent.roll_back());
            }
            // Without a runtime the connection is closed instead, which undoes its transaction.
            Err(_) => lent.link = None,
        }
    }
}
