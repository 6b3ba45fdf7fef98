//! The Source Journal of each Scope: capture, replay and contiguous reads (TM-019 to TM-024).
//!
//! Positions are handed out by the Scope's Journal row, which a capture holds until its commit, so
//! they become visible in order and without gaps. A capture never generates anything: it only
//! raises `source_through` of each registered binding's Pending row.

use powercontext_core::ids::{Position, ScopeId, SourceId, SourceRef};
use powercontext_core::topic;

use crate::database::{Engine, Row, Text, Transaction, Twin, Value, values};
use crate::{DatabaseError, DatabaseErrorKind, Store, StoreError};

/// The bindings that every Source is Pending for.
pub const BINDINGS: &[&str] = &[topic::BINDING];

/// A Source to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSource {
    /// The Scope it belongs to.
    pub scope: ScopeId,
    /// Its identity in the Scope; capturing it again must be the same capture.
    pub source_id: SourceId,
    /// The content as JSON text.
    pub content_json: String,
    /// Digest of the content's canonical form; decides whether a replay has the same content.
    pub content_digest: String,
    /// The metadata as canonical JSON text; `None` for none.
    pub metadata_json: Option<String>,
}

/// Where a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The Source's position.
    pub position: Position,
    /// The Source had been captured before.
    pub replayed: bool,
}

/// Why a Source was not captured.
#[derive(Debug, thiserror::Error)]
pub enum AddSourceError {
    /// There is no such Scope.
    #[error("the scope does not exist")]
    ScopeNotFound,
    /// The identity belongs to a Source with other content or metadata.
    #[error("the source identity has different content")]
    Conflict,
    /// The store failed.
    #[error("failed to capture a source")]
    Store(#[from] StoreError),
}

/// Why Sources could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadSourcesError {
    /// There is no such Scope.
    #[error("the scope does not exist")]
    ScopeNotFound,
    /// The store failed.
    #[error("failed to read sources")]
    Store(#[from] StoreError),
}

/// A captured Source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its place in the Journal.
    pub position: Position,
    /// Its name.
    pub source_ref: SourceRef,
    /// The content as JSON text.
    pub content_json: String,
    /// Digest of the content's canonical form.
    pub content_digest: String,
    /// The metadata as canonical JSON text; `None` for none.
    pub metadata_json: Option<String>,
}

/// A Source that a Window may take in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowSource {
    /// Its place in the Journal.
    pub position: Position,
    /// Its name.
    pub source_ref: SourceRef,
    /// What it says; `None` for a `lineage_only` Source, which is never shown to a model and only
    /// moves the Cursor.
    pub text: Option<SourceText>,
}

/// What a Source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The content as JSON text.
    pub content_json: String,
    /// The metadata as canonical JSON text; `None` for none.
    pub metadata_json: Option<String>,
}

/// How much is read at once; bounds the memory that a read takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// Sources at most.
    pub sources: u32,
    /// Bytes of their texts together at most; the first Source is read whatever it has.
    pub bytes: u64,
}

/// One trip to the connection for the whole capture. A Scope without a Journal row makes every
/// statement touch nothing and yields no row; a known identity fails on the unique key.
const ADD: &str = "BEGIN IMMEDIATE; \
    UPDATE pc_source_journals SET head = head + 1 WHERE scope_id = ? RETURNING head; \
    INSERT INTO pc_sources (scope_id, position, source_type, source_id, content_digest, content, metadata) \
      SELECT scope_id, head, ?, ?, ?, ?, ? FROM pc_source_journals WHERE scope_id = ?; \
    INSERT INTO pc_artifact_processing_pending (binding_name, scope_id, source_through) \
      SELECT binding.value, scope_id, head FROM pc_source_journals, json_each(?) AS binding \
      WHERE scope_id = ? \
      ON CONFLICT (binding_name, scope_id) \
      DO UPDATE SET source_through = max(source_through, excluded.source_through); \
    COMMIT";

/// Captures a Source at the next position and marks every binding's Pending row (TM-024, TM-164).
///
/// # Errors
/// [`AddSourceError`]; nothing is written then.
pub async fn add(store: &Store, new: &NewSource) -> Result<Added, AddSourceError> {
    let added = match store.database.engine() {
        Engine::Sqlite => add_at_once(store, new).await,
        Engine::OceanBase => store.database.transact("sources.add", |tx| add_in(tx, new)).await,
    };
    match added {
        Err(Refused::Taken) => replay(store, new).await,
        Err(Refused::Add(error)) => Err(error),
        Ok(position) => Ok(Added { position, replayed: false }),
    }
}

async fn add_at_once(store: &Store, new: &NewSource) -> Result<Position, Refused> {
    let scope = new.scope.as_str();
    let mut parameters = values![scope];
    parameters.extend(source_values(new));
    parameters.extend(values![scope, bindings_json(), scope]);
    let rows = store.database.write_batch(ADD, parameters).await.map_err(refused)?;
    let row = rows.first().ok_or(AddSourceError::ScopeNotFound)?;
    Ok(Position::new(row.integer(0).map_err(StoreError::at("sources.add"))?))
}

/// The same capture, statement by statement: OceanBase has no `RETURNING` and prepares one at a time.
/// The identity is looked up while the Journal is held, because the server's error for a key that is taken
/// repeats the identity and may cut it inside a character, which the driver cannot read.
async fn add_in(mut tx: Transaction, new: &NewSource) -> Result<Position, Refused> {
    let at = StoreError::at("sources.add");
    let scope = new.scope.as_str();
    let text = "UPDATE pc_source_journals SET head = head + 1 WHERE scope_id = ?";
    if !tx.engine().tells_apart(scope) || tx.execute(text, values![scope]).await.map_err(&at)? != 1 {
        return Err(AddSourceError::ScopeNotFound.into());
    }
    let known = values![SourceRef::CONTENT, new.source_id.as_str(), scope];
    let row = tx.query_one(HEAD_AND_KNOWN, known).await.map_err(&at)?;
    let row = row.ok_or(StoreError::invalid("a journal vanished while it was held"))?;
    if row.optional_integer(1).map_err(&at)?.is_some() {
        return Err(Refused::Taken);
    }
    let position = Position::new(row.integer(0).map_err(&at)?);
    let mut parameters = values![scope, position.get()];
    parameters.extend(source_values(new));
    tx.execute(
        "INSERT INTO pc_sources \
         (scope_id, position, source_type, source_id, content_digest, content, metadata) \
         VALUES (?, ?, ?, ?, ?, ?, ?)",
        parameters,
    )
    .await
    .map_err(&at)?;
    for binding in BINDINGS {
        tx.execute(
            "INSERT INTO pc_artifact_processing_pending (binding_name, scope_id, source_through) \
             VALUES (?, ?, ?) \
             ON DUPLICATE KEY UPDATE source_through = greatest(source_through, values(source_through))",
            values![*binding, scope, position.get()],
        )
        .await
        .map_err(&at)?;
    }
    tx.commit().await.map_err(&at)?;
    Ok(position)
}

/// Where a held Journal is, and the position of the Source that has the identity already.
const HEAD_AND_KNOWN: &str = "SELECT journal.head, (SELECT known.position FROM pc_sources AS known \
      WHERE known.scope_id = journal.scope_id AND known.source_type = ? AND known.source_id = ?) \
    FROM pc_source_journals AS journal WHERE journal.scope_id = ?";

/// Type, identity, digest, content and metadata.
fn source_values(new: &NewSource) -> Vec<Value> {
    values![
        SourceRef::CONTENT,
        new.source_id.as_str(),
        &new.content_digest,
        &new.content_json,
        new.metadata_json.as_ref(),
    ]
}

/// Why a capture wrote nothing.
#[derive(Debug, thiserror::Error)]
enum Refused {
    /// The identity is taken: a replay or a conflict.
    #[error("the source identity is taken")]
    Taken,
    #[error(transparent)]
    Add(#[from] AddSourceError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Add(error.into())
    }
}

fn refused(error: DatabaseError) -> Refused {
    match error.kind {
        DatabaseErrorKind::UniqueViolation => Refused::Taken,
        _ => StoreError::at("sources.add")(error).into(),
    }
}

fn bindings_json() -> String {
    serde_json::json!(BINDINGS).to_string()
}

/// Answers a capture whose identity is taken: the same capture has its first position.
async fn replay(store: &Store, new: &NewSource) -> Result<Added, AddSourceError> {
    let known = get(store, &new.scope, &SourceRef::content(new.source_id.clone()))
        .await
        .map_err(|error| match error {
            ReadSourcesError::ScopeNotFound => AddSourceError::ScopeNotFound,
            ReadSourcesError::Store(error) => AddSourceError::Store(error),
        })?
        .ok_or(StoreError::invalid("a conflicting source cannot be found"))?;
    if known.content_digest == new.content_digest && known.metadata_json == new.metadata_json {
        Ok(Added { position: known.position, replayed: true })
    } else {
        Err(AddSourceError::Conflict)
    }
}

/// The first Sources of `(after, through]` that keep the limit, ascending by position. Contents
/// beyond it are not read.
///
/// # Errors
/// [`ReadSourcesError`].
pub async fn page(
    store: &Store,
    scope: &ScopeId,
    (after, through): (Position, Position),
    limit: ReadLimit,
) -> Result<Vec<Source>, ReadSourcesError> {
    let at = StoreError::at("sources.page");
    let mut reader = store.database.snapshot().await.map_err(&at)?;
    if journal_head(&mut reader, scope).await.map_err(&at)?.is_none() {
        return Err(ReadSourcesError::ScopeNotFound);
    }
    let last = last_within(&mut reader, scope, (after, through), limit).await?;
    let rows = reader
        .query(
            "SELECT position, source_type, source_id, content, metadata, content_digest FROM pc_sources \
             WHERE scope_id = ? AND position > ? AND position <= ? ORDER BY position",
            values![scope.as_str(), after.get(), last.get()],
        )
        .await
        .map_err(&at)?;
    Ok(rows.iter().map(source).collect::<Result<_, _>>()?)
}

/// The position of the newest Source; 0 when the Scope has none.
///
/// # Errors
/// [`ReadSourcesError`].
pub async fn head(store: &Store, scope: &ScopeId) -> Result<Position, ReadSourcesError> {
    let at = StoreError::at("sources.head");
    let mut reader = store.database.read().await.map_err(&at)?;
    journal_head(&mut reader, scope).await.map_err(&at)?.ok_or(ReadSourcesError::ScopeNotFound)
}

/// One Source, or `None` when the Scope has no such Source.
///
/// # Errors
/// [`ReadSourcesError`].
pub async fn get(
    store: &Store,
    scope: &ScopeId,
    source_ref: &SourceRef,
) -> Result<Option<Source>, ReadSourcesError> {
    let at = StoreError::at("sources.get");
    let (id, engine) = (source_ref.source_id.as_str(), store.database.engine());
    let mut reader = store.database.snapshot().await.map_err(&at)?;
    let row = reader
        .query_one(
            "SELECT position, source_type, source_id, content, metadata, content_digest FROM pc_sources \
             WHERE scope_id = ? AND source_type = ? AND source_id = ?",
            values![scope.as_str(), &source_ref.source_type, id],
        )
        .await
        .map_err(&at)?;
    match row.filter(|_| engine.tells_apart(scope.as_str()) && engine.tells_apart(id)) {
        Some(row) => Ok(Some(source(&row)?)),
        None if journal_head(&mut reader, scope).await.map_err(&at)?.is_some() => Ok(None),
        None => Err(ReadSourcesError::ScopeNotFound),
    }
}

/// The beginning of `(after, through]` that keeps the limit, without a gap; empty only when nothing
/// is there.
///
/// # Errors
/// [`StoreError`] when the database cannot be read, or when positions are missing.
pub async fn window_candidates(
    store: &Store,
    scope: &ScopeId,
    (after, through): (Position, Position),
    limit: ReadLimit,
) -> Result<Vec<WindowSource>, StoreError> {
    let at = StoreError::at("sources.window_candidates");
    let mut reader = store.database.read().await.map_err(&at)?;
    let last = last_within(&mut reader, scope, (after, through), limit).await?;
    // A Journal is only ever added to, so these are the Sources whose lengths were read.
    let rows = reader
        .query(
            "SELECT position, source_type, source_id, \
               CASE WHEN lineage_only = 0 THEN content END, CASE WHEN lineage_only = 0 THEN metadata END \
             FROM pc_sources WHERE scope_id = ? AND position > ? AND position <= ? ORDER BY position",
            values![scope.as_str(), after.get(), last.get()],
        )
        .await
        .map_err(&at)?;
    let mut candidates = Vec::with_capacity(rows.len());
    for row in &rows {
        let metadata_json = row.optional_text(4).map_err(&at)?;
        let text = row.optional_text(3).map_err(&at)?;
        candidates.push(WindowSource {
            position: Position::new(row.integer(0).map_err(&at)?),
            source_ref: source_ref(row)?,
            text: text.map(|content_json| SourceText { content_json, metadata_json }),
        });
    }
    Ok(candidates)
}

/// The last position of the beginning of `(after, through]` that keeps the limit; `after` when nothing
/// is there. Lengths stand in the rows' headers, so long texts stay where they are.
async fn last_within(
    reader: &mut Transaction,
    scope: &ScopeId,
    (after, through): (Position, Position),
    limit: ReadLimit,
) -> Result<Position, StoreError> {
    let at = StoreError::at("sources.last_within");
    let lengths = reader
        .query(
            "SELECT position, octet_length(content) + coalesce(octet_length(metadata), 0) FROM pc_sources \
             WHERE scope_id = ? AND position > ? AND position <= ? ORDER BY position LIMIT ?",
            values![scope.as_str(), after.get(), through.get(), i64::from(limit.sources)],
        )
        .await
        .map_err(&at)?;
    let mut last = after;
    let mut total = 0_u64;
    for row in &lengths {
        let position = Position::new(row.integer(0).map_err(&at)?);
        if position != last.next() {
            return Err(StoreError::invalid("the source journal has a gap"));
        }
        total = total.saturating_add(u64::try_from(row.integer(1).map_err(&at)?).unwrap_or(0));
        if total > limit.bytes && last != after {
            break;
        }
        last = position;
    }
    Ok(last)
}

/// The Journal's head as a transaction sees it; `None` when there is no such Scope.
pub(crate) async fn journal_head(
    tx: &mut Transaction,
    scope: &ScopeId,
) -> Result<Option<Position>, DatabaseError> {
    read_head(tx, HEAD.into(), scope).await
}

/// The Journal's head, which no capture moves until this transaction ends.
pub(crate) async fn lock_journal(
    tx: &mut Transaction,
    scope: &ScopeId,
) -> Result<Option<Position>, DatabaseError> {
    read_head(tx, LOCK_HEAD.into(), scope).await
}

async fn read_head(
    tx: &mut Transaction,
    text: Text,
    scope: &ScopeId,
) -> Result<Option<Position>, DatabaseError> {
    if !tx.engine().tells_apart(scope.as_str()) {
        return Ok(None);
    }
    let row = tx.query_one(text, values![scope.as_str()]).await?;
    row.map(|row| row.integer(0).map(Position::new)).transpose()
}

const HEAD: &str = "SELECT head FROM pc_source_journals WHERE scope_id = ?";

/// A SQLite transaction excludes every other writer already; OceanBase locks the row.
const LOCK_HEAD: Twin =
    Twin { sqlite: HEAD, oceanbase: "SELECT head FROM pc_source_journals WHERE scope_id = ? FOR UPDATE" };

fn source(row: &Row) -> Result<Source, StoreError> {
    let at = StoreError::at("sources.row");
    Ok(Source {
        position: Position::new(row.integer(0).map_err(&at)?),
        source_ref: source_ref(row)?,
        content_json: row.text(3).map_err(&at)?,
        metadata_json: row.optional_text(4).map_err(&at)?,
        content_digest: row.text(5).map_err(&at)?,
    })
}

fn source_ref(row: &Row) -> Result<SourceRef, StoreError> {
    let at = StoreError::at("sources.row");
    let source_id = SourceId::parse(row.text(2).map_err(&at)?)
        .map_err(|_| StoreError::invalid("a stored source id is not an identity"))?;
    Ok(SourceRef { source_type: row.text(1).map_err(&at)?, source_id })
}
