//! What a frontier may still cost: attempts, provider requests and tokens (TM-059 to TM-078).
//!
//! Everything is committed before it is spent and nothing is ever given back; only the publish
//! transaction removes the row. Each function is one short fenced transaction (B-12). What a call
//! needs is estimated by the worker.

use powercontext_core::ids::{AttemptId, Position};
use powercontext_core::work::{ErrorCode, Fence, Frontier};

use crate::database::{Row, Text, Transaction, Twin, values};
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
    /// The furthest position an attempt aimed at.
    pub furthest_through: Position,
    /// Why the newest attempt failed, once it said so.
    pub failure_code: Option<ErrorCode>,
}

impl Budget {
    /// Why the frontier takes no further attempt, if it does not.
    #[must_use]
    pub fn terminal(&self) -> Option<ErrorCode> {
        match self.failure_code {
            Some(code) if code.is_terminal() => Some(code),
            _ if i64::from(self.attempts) >= MAX_ATTEMPTS => Some(ErrorCode::WindowAttemptLimit),
            _ => None,
        }
    }
}

/// Counts an attempt of a frontier and takes the right to publish from every older one (TM-065,
/// TM-075). A process that dies right after it has used the attempt up.
///
/// # Errors
/// [`StoreError`] when the database cannot be used; then nothing is counted.
pub async fn start_attempt(
    store: &Store,
    fence: &Fence,
    frontier: &Frontier,
    wave_target: Position,
    attempt_id: &AttemptId,
) -> Result<AttemptStart, StoreError> {
    let attempt =
        AttemptFence { fence: fence.clone(), frontier: frontier.clone(), attempt_id: attempt_id.clone() };
    store.database.transact("budgets.start_attempt", |tx| start_in(tx, &attempt, wave_target)).await
}

async fn start_in(
    mut tx: Transaction,
    attempt: &AttemptFence,
    wave_target: Position,
) -> Result<AttemptStart, StoreError> {
    let at = StoreError::at("budgets.start_attempt");
    let AttemptFence { fence, frontier, attempt_id } = attempt;
    if !leases::is_current(&mut tx, fence).await.map_err(&at)? {
        return Ok(AttemptStart::Superseded(ErrorCode::Fenced));
    }
    // Without a row there is no attempt that could publish, so the Cursor stands still either way.
    let budget = lock(&mut tx, frontier).await?;
    if cursors::lock(&mut tx, &frontier.key).await.map_err(&at)? != frontier.source_after {
        return Ok(AttemptStart::Superseded(ErrorCode::CursorConflict));
    }
    if let Some(code) = budget.and_then(|budget| budget.terminal()) {
        return Ok(AttemptStart::Terminal(code));
    }
    tx.execute(
        COUNT_ATTEMPT,
        values![
            frontier.key.scope.as_str(),
            frontier.key.binding.as_str(),
            frontier.source_after.get(),
            wave_target.get(),
            attempt_id.as_str()
        ],
    )
    .await
    .map_err(&at)?;
    let counted = read(&mut tx, READ.into(), frontier)
        .await?
        .ok_or(StoreError::invalid("a budget row vanished while it was written"))?;
    if !leases::hold(&mut tx, fence).await.map_err(&at)? {
        return Ok(AttemptStart::Superseded(ErrorCode::Fenced));
    }
    tx.commit().await.map_err(&at)?;
    Ok(AttemptStart::Started { attempt_number: counted.attempts })
}

/// The upsert and the scalar maximum have other names on OceanBase.
const COUNT_ATTEMPT: Twin = Twin {
    sqlite: "INSERT INTO pc_topic_memory_work_budgets \
        (scope_id, binding_name, source_after, source_through, attempt_id, attempts) \
        VALUES (?, ?, ?, ?, ?, 1) \
        ON CONFLICT (scope_id, binding_name, source_after) DO UPDATE SET \
        source_through = max(source_through, excluded.source_through), \
        attempt_id = excluded.attempt_id, attempts = attempts + 1, failure_code = NULL",
    oceanbase: "INSERT INTO pc_topic_memory_work_budgets \
        (scope_id, binding_name, source_after, source_through, attempt_id, attempts) \
        VALUES (?, ?, ?, ?, ?, 1) \
        ON DUPLICATE KEY UPDATE source_through = greatest(source_through, values(source_through)), \
        attempt_id = values(attempt_id), attempts = attempts + 1, failure_code = NULL",
};

/// Counts capacity for one generator call before it is made (TM-061, TM-064).
///
/// # Errors
/// [`StoreError`] when the database cannot be used; then nothing is counted.
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
    let budget = match lock(&mut tx, &attempt.frontier).await? {
        Some(budget) if budget.attempt_id == attempt.attempt_id => budget,
        _ => return Ok(Reserve::Superseded(ErrorCode::AttemptSuperseded)),
    };
    let requests = i64::from(budget.reserved_requests).saturating_add(i64::from(reservation.requests));
    let tokens = i64::try_from(budget.reserved_tokens.saturating_add(reservation.tokens)).unwrap_or(i64::MAX);
    let exhausted = requests > MAX_REQUESTS
        || tokens > MAX_TOKENS
        || budget.failure_code.is_some_and(ErrorCode::is_terminal);
    if exhausted {
        let code = budget.failure_code.filter(|code| code.is_terminal());
        let code = code.unwrap_or(ErrorCode::WindowProviderBudgetExceeded);
        put_failure(&mut tx, attempt, code).await?;
    } else {
        let affected = tx
            .execute(
                "UPDATE pc_topic_memory_work_budgets SET reserved_requests = ?, reserved_tokens = ? \
                 WHERE scope_id = ? AND binding_name = ? AND source_after = ? AND attempt_id = ?",
                values![
                    requests,
                    tokens,
                    attempt.frontier.key.scope.as_str(),
                    attempt.frontier.key.binding.as_str(),
                    attempt.frontier.source_after.get(),
                    attempt.attempt_id.as_str()
                ],
            )
            .await
            .map_err(&at)?;
        if affected != 1 {
            return Ok(Reserve::Superseded(ErrorCode::AttemptSuperseded));
        }
    }
    if !leases::hold(&mut tx, &attempt.fence).await.map_err(&at)? {
        return Ok(Reserve::Superseded(ErrorCode::Fenced));
    }
    tx.commit().await.map_err(&at)?;
    Ok(if exhausted { Reserve::Exhausted } else { Reserve::Reserved })
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
    let known = match lock(&mut tx, &attempt.frontier).await? {
        Some(budget) if budget.attempt_id == attempt.attempt_id => budget.failure_code,
        _ => return Ok(false),
    };
    if !known.is_some_and(ErrorCode::is_terminal) && !put_failure(&mut tx, attempt, code).await? {
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
    read(&mut reader, READ.into(), frontier).await
}

/// Whether the attempt is the newest of its frontier, and stays it until this transaction ends.
pub(crate) async fn claim(tx: &mut Transaction, attempt: &AttemptFence) -> Result<bool, StoreError> {
    let budget = lock(tx, &attempt.frontier).await?;
    Ok(budget.is_some_and(|budget| budget.attempt_id == attempt.attempt_id))
}

/// Removes the budget of a published frontier; `false` means the attempt was taken over (TM-076).
pub(crate) async fn remove(tx: &mut Transaction, attempt: &AttemptFence) -> Result<bool, DatabaseError> {
    let affected = tx
        .execute(
            "DELETE FROM pc_topic_memory_work_budgets \
             WHERE scope_id = ? AND binding_name = ? AND source_after = ? AND attempt_id = ?",
            values![
                attempt.frontier.key.scope.as_str(),
                attempt.frontier.key.binding.as_str(),
                attempt.frontier.source_after.get(),
                attempt.attempt_id.as_str()
            ],
        )
        .await?;
    Ok(affected == 1)
}

async fn put_failure(
    tx: &mut Transaction,
    attempt: &AttemptFence,
    code: ErrorCode,
) -> Result<bool, StoreError> {
    let at = StoreError::at("budgets.put_failure");
    let affected = tx
        .execute(
            "UPDATE pc_topic_memory_work_budgets SET failure_code = ? \
             WHERE scope_id = ? AND binding_name = ? AND source_after = ? AND attempt_id = ?",
            values![
                code_text(code)?,
                attempt.frontier.key.scope.as_str(),
                attempt.frontier.key.binding.as_str(),
                attempt.frontier.source_after.get(),
                attempt.attempt_id.as_str()
            ],
        )
        .await
        .map_err(&at)?;
    Ok(affected == 1)
}

/// The budget of a frontier, which nobody else changes until this transaction ends.
async fn lock(tx: &mut Transaction, frontier: &Frontier) -> Result<Option<Budget>, StoreError> {
    read(tx, LOCK.into(), frontier).await
}

async fn read(tx: &mut Transaction, text: Text, frontier: &Frontier) -> Result<Option<Budget>, StoreError> {
    let at = StoreError::at("budgets.read");
    let key = &frontier.key;
    let row = tx
        .query_one(text, values![key.scope.as_str(), key.binding.as_str(), frontier.source_after.get()])
        .await
        .map_err(&at)?;
    row.as_ref().map(budget).transpose()
}

const READ: &str = "SELECT attempts, reserved_requests, reserved_tokens, attempt_id, source_through, \
    failure_code FROM pc_topic_memory_work_budgets \
    WHERE scope_id = ? AND binding_name = ? AND source_after = ?";

/// A SQLite transaction excludes every other writer already; OceanBase locks the row.
const LOCK: Twin = Twin {
    sqlite: READ,
    oceanbase: "SELECT attempts, reserved_requests, reserved_tokens, attempt_id, source_through, \
        failure_code FROM pc_topic_memory_work_budgets \
        WHERE scope_id = ? AND binding_name = ? AND source_after = ? FOR UPDATE",
};

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
        failure_code: code.map(|code| parse_code(&code)).transpose()?,
    })
}

/// The stable name of a code, as stored.
pub(crate) fn code_text(code: ErrorCode) -> Result<String, StoreError> {
    match serde_json::to_value(code) {
        Ok(serde_json::Value::String(text)) => Ok(text),
        _ => Err(StoreError::invalid("an error code has no name")),
    }
}

fn parse_code(text: &str) -> Result<ErrorCode, StoreError> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| StoreError::invalid("a budget row has an unknown failure code"))
}
