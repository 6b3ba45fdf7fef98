//! What a frontier may still cost: attempts, provider requests and tokens (TM-059 to TM-078).
//!
//! Everything is committed before it is spent and nothing is ever given back; only the publish
//! transaction removes the row. Each function is one short fenced transaction (B-12) whose first
//! write is a compare-and-set on the row, so two writers never both get what only one may have; the
//! lease is locked last. What a call needs is estimated by the worker.

use powercontext_core::ids::{AttemptId, Position};
use powercontext_core::work::{ErrorCode, Fence, Frontier};

use crate::database::{Row, Transaction, Twin, Value, values};
use crate::{DatabaseError, Store, StoreError, cursors, leases};

/// Attempts a frontier gets, ever (TM-060).
pub const MAX_ATTEMPTS: i64 = 3;
/// Provider requests a frontier may reserve, ever (TM-060).
pub const MAX_REQUESTS: i64 = 512;
/// Token capacity a frontier may reserve, ever (TM-060).
pub const MAX_TOKENS: i64 = 64_000_000;

/// The right of one attempt to reserve and to publish: its term and that it is the newest (TM-075).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFence {
    /// The term.
    pub fence: Fence,
    /// What is worked on.
    pub frontier: Frontier,
    /// The attempt.
    pub attempt_id: AttemptId,
}

/// What came of asking for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptStart {
    /// The attempt is counted and may run.
    Started {
        /// 1, 2 or 3.
        attempt_number: u32,
    },
    /// The frontier takes no attempt until an operator repairs it (TM-066, TM-069).
    Terminal(ErrorCode),
    /// The term is over or the Cursor has moved; nothing was counted.
    Superseded(ErrorCode),
}

/// Capacity one generator call may need (TM-061).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Provider requests.
    pub requests: u32,
    /// Tokens.
    pub tokens: u64,
    /// The end of the chosen Window: how far the attempt aims (TM-073).
    pub through: Position,
}

/// What came of asking for capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The capacity is counted and may be used.
    Reserved,
    /// It would pass a limit; the frontier is now terminal (TM-067).
    Exhausted,
    /// The term is over or a newer attempt took over; nothing was counted.
    Superseded(ErrorCode),
}

/// The budget row of a frontier; it exists from the first attempt to the publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Attempts started.
    pub attempts: u32,
    /// Provider requests reserved so far.
    pub reserved_requests: u32,
    /// Token capacity reserved so far.
    pub reserved_tokens: u64,
    /// The newest attempt.
    pub attempt_id: AttemptId,
    /// The furthest Window end an attempt reserved for; one past the Cursor before that.
    pub furthest_through: Position,
    /// Why the newest attempt failed, once it said so.
    pub failure_code: Option<ErrorCode>,
}

impl Budget {
    /// Why the frontier takes no further attempt, if it does not.
    #[must_use]
    pub fn terminal(&self) -> Option<ErrorCode> {
        closed_by(i64::from(self.attempts), self.failure_code)
    }
}

/// Why a frontier with such a row takes no further attempt, if it does not (TM-066, TM-067).
pub(crate) fn closed_by(attempts: i64, failure: Option<ErrorCode>) -> Option<ErrorCode> {
    match failure {
        Some(code) if code.is_terminal() => Some(code),
        _ if attempts >= MAX_ATTEMPTS => Some(ErrorCode::WindowAttemptLimit),
        _ => None,
    }
}

/// The rows of one frontier; bound by [`of_frontier`].
macro_rules! in_frontier {
    () => {
        " WHERE scope_id = ? AND binding_name = ? AND source_after = ?"
    };
}

/// The row of one attempt; bound by [`of_attempt`].
macro_rules! in_attempt {
    () => {
        concat!(in_frontier!(), " AND attempt_id = ?")
    };
}

/// No code of the JSON list that is bound closes the frontier; OceanBase has no `json_each`.
macro_rules! still_open {
    (sqlite) => {
        " AND (failure_code IS NULL OR failure_code NOT IN (SELECT value FROM json_each(?)))"
    };
    (oceanbase) => {
        " AND (failure_code IS NULL OR instr(?, concat('\"', failure_code, '\"')) = 0)"
    };
}

macro_rules! next_attempt {
    ($engine:ident) => {
        concat!(
            "UPDATE pc_topic_memory_work_budgets \
             SET attempt_id = ?, attempts = attempts + 1, failure_code = NULL",
            in_frontier!(),
            " AND attempts < ?",
            still_open!($engine)
        )
    };
}

pub(crate) const NEXT_ATTEMPT: Twin =
    Twin { sqlite: next_attempt!(sqlite), oceanbase: next_attempt!(oceanbase) };

/// OceanBase has no `ON CONFLICT`; the row breaks no other rule that `IGNORE` could hide.
pub(crate) const FIRST_ATTEMPT: Twin = Twin {
    sqlite: "INSERT INTO pc_topic_memory_work_budgets \
        (scope_id, binding_name, source_after, source_through, attempt_id, attempts) \
        VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT (scope_id, binding_name, source_after) DO NOTHING",
    oceanbase: "INSERT IGNORE INTO pc_topic_memory_work_budgets \
        (scope_id, binding_name, source_after, source_through, attempt_id, attempts) \
        VALUES (?, ?, ?, ?, ?, 1)",
};

/// The scalar maximum has another name on OceanBase.
macro_rules! reserve {
    ($engine:ident, $largest:literal) => {
        concat!(
            "UPDATE pc_topic_memory_work_budgets SET reserved_requests = reserved_requests + ?, \
             reserved_tokens = reserved_tokens + ?, source_through = ",
            $largest,
            "(source_through, ?)",
            in_attempt!(),
            " AND reserved_requests <= ? AND reserved_tokens <= ?",
            still_open!($engine)
        )
    };
}

pub(crate) const RESERVE: Twin =
    Twin { sqlite: reserve!(sqlite, "max"), oceanbase: reserve!(oceanbase, "greatest") };

macro_rules! fail {
    ($engine:ident) => {
        concat!(
            "UPDATE pc_topic_memory_work_budgets SET failure_code = ?",
            in_attempt!(),
            still_open!($engine)
        )
    };
}

pub(crate) const FAIL: Twin = Twin { sqlite: fail!(sqlite), oceanbase: fail!(oceanbase) };

pub(crate) const CLAIM: &str =
    concat!("UPDATE pc_topic_memory_work_budgets SET attempt_id = attempt_id", in_attempt!());

pub(crate) const REMOVE: &str = concat!("DELETE FROM pc_topic_memory_work_budgets", in_attempt!());

pub(crate) const READ: &str = concat!(
    "SELECT attempts, reserved_requests, reserved_tokens, attempt_id, source_through, failure_code \
     FROM pc_topic_memory_work_budgets",
    in_frontier!()
);

/// The code is one of the JSON list that is bound; the list is read as in `still_open`. The rows are cut
/// before anything is joined to them, and the hint keeps OceanBase from reading whole tables for the joins.
macro_rules! count_closed {
    ($is_terminal:literal) => {
        concat!(
            "SELECT /*+ LEADING(budget place pending) USE_NL(place pending) */ count(*) FROM \
             (SELECT scope_id, binding_name, source_after FROM pc_topic_memory_work_budgets \
               WHERE attempts >= ? OR ",
            $is_terminal,
            " LIMIT ?) AS budget \
             LEFT JOIN pc_source_cursors AS place \
               ON place.scope_id = budget.scope_id AND place.binding_name = budget.binding_name \
             LEFT JOIN pc_artifact_processing_pending AS pending \
               ON pending.binding_name = budget.binding_name AND pending.scope_id = budget.scope_id \
             WHERE budget.source_after = coalesce(place.position, 0) \
             AND pending.source_through > budget.source_after"
        )
    };
}

pub(crate) const COUNT_CLOSED: Twin = Twin {
    sqlite: count_closed!("failure_code IN (SELECT value FROM json_each(?))"),
    oceanbase: count_closed!("instr(?, concat('\"', failure_code, '\"')) > 0"),
};

fn of_frontier(frontier: &Frontier) -> Vec<Value> {
    values![frontier.key.scope.as_str(), frontier.key.binding.as_str(), frontier.source_after.get()]
}

fn of_attempt(attempt: &AttemptFence) -> Vec<Value> {
    joined([of_frontier(&attempt.frontier), values![attempt.attempt_id.as_str()]])
}

fn joined<const N: usize>(parts: [Vec<Value>; N]) -> Vec<Value> {
    parts.into_iter().flatten().collect()
}

/// The codes that close a frontier, as a JSON list.
fn terminal_codes() -> String {
    serde_json::json!(ErrorCode::terminal().map(ErrorCode::as_str).collect::<Vec<_>>()).to_string()
}

/// How many frontiers take no further attempt although Sources are pending behind them, whoever asked for
/// them (TM-069). A third attempt counts from its start, because its row looks the same.
///
/// Goes through the rows of frontiers that failed or are being worked on, there are none of any other, and
/// looks at no more than `most` that are closed.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn count_closed(store: &Store, most: u32) -> Result<u64, StoreError> {
    let at = StoreError::at("budgets.count_closed");
    let mut reader = store.database.read().await.map_err(&at)?;
    let parameters = values![MAX_ATTEMPTS, terminal_codes(), i64::from(most)];
    let row = reader.query_one(COUNT_CLOSED, parameters).await.map_err(&at)?;
    let count = row.map_or(Ok(0), |row| row.integer(0)).map_err(&at)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Counts an attempt of a frontier and takes the right to publish from every older one (TM-065,
/// TM-075). A process that dies right after it has used the attempt up.
///
/// # Errors
/// [`StoreError`] when the database cannot be used; then nothing is counted, unless the answer to the
/// commit was lost.
pub async fn start_attempt(
    store: &Store,
    fence: &Fence,
    frontier: &Frontier,
    attempt_id: &AttemptId,
) -> Result<AttemptStart, StoreError> {
    store.database.transact("budgets.start_attempt", |tx| start_in(tx, fence, frontier, attempt_id)).await
}

async fn start_in(
    mut tx: Transaction,
    fence: &Fence,
    frontier: &Frontier,
    attempt_id: &AttemptId,
) -> Result<AttemptStart, StoreError> {
    let at = StoreError::at("budgets.start_attempt");
    if !leases::is_current(&mut tx, fence).await.map_err(&at)? {
        return Ok(AttemptStart::Superseded(ErrorCode::Fenced));
    }
    let counted = count_attempt(&mut tx, frontier, attempt_id).await.map_err(&at)?;
    // Only now: whoever holds the row excludes a publish of this frontier, so the Cursor stays.
    if cursors::read(&mut tx, &frontier.key).await.map_err(&at)? != frontier.source_after {
        return Ok(AttemptStart::Superseded(ErrorCode::CursorConflict));
    }
    let budget = read(&mut tx, frontier)
        .await?
        .ok_or(StoreError::invalid("a budget row vanished while it was written"))?;
    if !counted {
        let code = budget.terminal().ok_or(StoreError::invalid("an open frontier took no attempt"))?;
        return Ok(AttemptStart::Terminal(code));
    }
    if !leases::hold(&mut tx, fence).await.map_err(&at)? {
        return Ok(AttemptStart::Superseded(ErrorCode::Fenced));
    }
    tx.commit().await.map_err(&at)?;
    Ok(AttemptStart::Started { attempt_number: budget.attempts })
}

/// Raises the count of an open frontier or makes its row; `false` means that the row there is
/// takes no attempt. A row that another transaction made in between is met on the second look.
pub(crate) async fn count_attempt(
    tx: &mut Transaction,
    frontier: &Frontier,
    attempt_id: &AttemptId,
) -> Result<bool, DatabaseError> {
    let next = joined([
        values![attempt_id.as_str()],
        of_frontier(frontier),
        values![MAX_ATTEMPTS, terminal_codes()],
    ]);
    if tx.execute(NEXT_ATTEMPT, next.clone()).await? == 1 {
        return Ok(true);
    }
    let least = frontier.source_after.get().saturating_add(1);
    let first = joined([of_frontier(frontier), values![least, attempt_id.as_str()]]);
    if tx.execute(FIRST_ATTEMPT, first).await? == 1 {
        return Ok(true);
    }
    Ok(tx.execute(NEXT_ATTEMPT, next).await? == 1)
}

/// Counts capacity for one generator call before it is made (TM-061, TM-064).
///
/// # Errors
/// [`StoreError`] when the database cannot be used; then nothing is counted, unless the answer to the
/// commit was lost.
pub async fn reserve(
    store: &Store,
    attempt: &AttemptFence,
    reservation: Reservation,
) -> Result<Reserve, StoreError> {
    store.database.transact("budgets.reserve", |tx| reserve_in(tx, attempt, reservation)).await
}

async fn reserve_in(
    mut tx: Transaction,
    attempt: &AttemptFence,
    reservation: Reservation,
) -> Result<Reserve, StoreError> {
    let at = StoreError::at("budgets.reserve");
    if !leases::is_current(&mut tx, &attempt.fence).await.map_err(&at)? {
        return Ok(Reserve::Superseded(ErrorCode::Fenced));
    }
    let requests = i64::from(reservation.requests);
    let tokens = i64::try_from(reservation.tokens).unwrap_or(i64::MAX);
    let parameters = joined([
        values![requests, tokens, reservation.through.get()],
        of_attempt(attempt),
        values![MAX_REQUESTS - requests, MAX_TOKENS.saturating_sub(tokens), terminal_codes()],
    ]);
    let reserved = tx.execute(RESERVE, parameters).await.map_err(&at)? == 1;
    if !reserved {
        // Either it would pass a limit, or the attempt is not the newest one.
        let code = ErrorCode::WindowProviderBudgetExceeded;
        if !put_failure(&mut tx, attempt, code).await? && !is_newest(&mut tx, attempt).await? {
            return Ok(Reserve::Superseded(ErrorCode::AttemptSuperseded));
        }
    }
    if !leases::hold(&mut tx, &attempt.fence).await.map_err(&at)? {
        return Ok(Reserve::Superseded(ErrorCode::Fenced));
    }
    tx.commit().await.map_err(&at)?;
    Ok(if reserved { Reserve::Reserved } else { Reserve::Exhausted })
}

/// Notes why the attempt failed; `false` when it is not the newest one or its term is over. A
/// terminal code stays.
///
/// # Errors
/// [`StoreError`] when the database cannot be used.
pub async fn record_failure(
    store: &Store,
    attempt: &AttemptFence,
    code: ErrorCode,
) -> Result<bool, StoreError> {
    store.database.transact("budgets.record_failure", |tx| record_in(tx, attempt, code)).await
}

async fn record_in(mut tx: Transaction, attempt: &AttemptFence, code: ErrorCode) -> Result<bool, StoreError> {
    let at = StoreError::at("budgets.record_failure");
    if !leases::is_current(&mut tx, &attempt.fence).await.map_err(&at)? {
        return Ok(false);
    }
    if !put_failure(&mut tx, attempt, code).await? && !is_newest(&mut tx, attempt).await? {
        return Ok(false);
    }
    if !leases::hold(&mut tx, &attempt.fence).await.map_err(&at)? {
        return Ok(false);
    }
    tx.commit().await.map_err(&at)?;
    Ok(true)
}

/// The budget of a frontier, or `None` when no attempt was started since its last publish.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn get(store: &Store, frontier: &Frontier) -> Result<Option<Budget>, StoreError> {
    let at = StoreError::at("budgets.get");
    let mut reader = store.database.read().await.map_err(&at)?;
    read(&mut reader, frontier).await
}

/// Locks the attempt's row for the rest of the transaction; `false` means that a newer attempt
/// took over or that the frontier was published.
pub(crate) async fn claim(tx: &mut Transaction, attempt: &AttemptFence) -> Result<bool, DatabaseError> {
    Ok(tx.execute(CLAIM, of_attempt(attempt)).await? == 1)
}

/// Removes the budget of a published frontier; `false` means the attempt was taken over (TM-076).
pub(crate) async fn remove(tx: &mut Transaction, attempt: &AttemptFence) -> Result<bool, DatabaseError> {
    Ok(tx.execute(REMOVE, of_attempt(attempt)).await? == 1)
}

/// Writes the code unless a terminal one is there; `false` means that nothing was written.
async fn put_failure(
    tx: &mut Transaction,
    attempt: &AttemptFence,
    code: ErrorCode,
) -> Result<bool, StoreError> {
    let parameters = joined([values![code.as_str()], of_attempt(attempt), values![terminal_codes()]]);
    let affected = tx.execute(FAIL, parameters).await.map_err(StoreError::at("budgets.put_failure"))?;
    Ok(affected == 1)
}

async fn is_newest(tx: &mut Transaction, attempt: &AttemptFence) -> Result<bool, StoreError> {
    let budget = read(tx, &attempt.frontier).await?;
    Ok(budget.is_some_and(|budget| budget.attempt_id == attempt.attempt_id))
}

async fn read(tx: &mut Transaction, frontier: &Frontier) -> Result<Option<Budget>, StoreError> {
    let row = tx.query_one(READ, of_frontier(frontier)).await.map_err(StoreError::at("budgets.read"))?;
    row.as_ref().map(budget).transpose()
}

fn budget(row: &Row) -> Result<Budget, StoreError> {
    let at = StoreError::at("budgets.row");
    let invalid = "a budget row has an impossible value";
    let code = row.optional_text(5).map_err(&at)?;
    Ok(Budget {
        attempts: u32::try_from(row.integer(0).map_err(&at)?).map_err(|_| StoreError::invalid(invalid))?,
        reserved_requests: u32::try_from(row.integer(1).map_err(&at)?)
            .map_err(|_| StoreError::invalid(invalid))?,
        reserved_tokens: u64::try_from(row.integer(2).map_err(&at)?)
            .map_err(|_| StoreError::invalid(invalid))?,
        attempt_id: AttemptId::parse(row.text(3).map_err(&at)?).map_err(|_| StoreError::invalid(invalid))?,
        furthest_through: Position::new(row.integer(4).map_err(&at)?),
        failure_code: code
            .map(|name| {
                known_code(&name).ok_or(StoreError::invalid("a budget row has an unknown failure code"))
            })
            .transpose()?,
    })
}

/// The code behind a stored name; `None` for a name that this program does not write.
pub(crate) fn known_code(name: &str) -> Option<ErrorCode> {
    ErrorCode::ALL.into_iter().find(|code| code.as_str() == name)
}
