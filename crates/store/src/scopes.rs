//! Scopes: creation under an idempotency key, relations, versions and the default one.
//!
//! Decided here: what a replay is, which relations are possible and when a version conflicts.
//! Field limits and the form of ids are the caller's. A Scope is made with its Journal row, so a
//! Scope exists exactly when its Journal does.

mod list;
mod relations;

use powercontext_core::content::digest;
use powercontext_core::ids::ScopeId;
use serde_json::json;

use crate::database::{Transaction, Twin, Value, placeholders, values};
use crate::{DatabaseError, Store, StoreError};

use relations::{Relations, check_relations, lock_tree};

pub use list::{ScopeField, ScopeFilter, list};

/// A link from a Scope to something outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalReference {
    /// What kind of thing.
    pub kind: String,
    /// Which one.
    pub value: String,
}

/// A Scope as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Its identity.
    pub scope_id: ScopeId,
    /// Its title.
    pub title: String,
    /// What it is about.
    pub summary: String,
    /// The Scope it lies in.
    pub parent_scope_id: Option<ScopeId>,
    /// Scopes whose context it also reads; ascending.
    pub context_references: Vec<ScopeId>,
    /// Links to the outside, in the given order.
    pub external_references: Vec<ExternalReference>,
    /// Starts at 1; every update adds 1.
    pub version: i64,
}

/// What a new Scope is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewScope {
    /// The identity it gets, unless the key already made a Scope.
    pub scope_id: ScopeId,
    /// Names the request: the same key with the same parameters answers the same Scope.
    pub idempotency_key: String,
    /// See [`Scope::title`].
    pub title: String,
    /// See [`Scope::summary`].
    pub summary: String,
    /// See [`Scope::parent_scope_id`].
    pub parent_scope_id: Option<ScopeId>,
    /// See [`Scope::context_references`]; each once.
    pub context_references: Vec<ScopeId>,
    /// See [`Scope::external_references`].
    pub external_references: Vec<ExternalReference>,
}

/// The complete new state of a Scope; nothing is kept from the old one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateScope {
    /// Which Scope.
    pub scope_id: ScopeId,
    /// The version the caller has seen.
    pub expected_version: i64,
    /// See [`Scope::title`].
    pub title: String,
    /// See [`Scope::summary`].
    pub summary: String,
    /// See [`Scope::parent_scope_id`].
    pub parent_scope_id: Option<ScopeId>,
    /// See [`Scope::context_references`]; each once.
    pub context_references: Vec<ScopeId>,
    /// See [`Scope::external_references`].
    pub external_references: Vec<ExternalReference>,
}

/// Why a Scope was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateScopeError {
    /// The key was used before with other parameters.
    #[error("the idempotency key belongs to a creation with other parameters")]
    IdempotencyConflict,
    /// The parent or a referenced Scope does not exist.
    #[error("a related scope does not exist")]
    ScopeNotFound,
    /// The Scope would be its own parent or refer to itself.
    #[error("a scope cannot be related to itself")]
    InvalidRelationship,
    /// The store failed.
    #[error("failed to create a scope")]
    Store(#[from] StoreError),
}

/// Why a Scope was not updated.
#[derive(Debug, thiserror::Error)]
pub enum UpdateScopeError {
    /// The Scope, its parent or a referenced Scope does not exist.
    #[error("the scope or a related one does not exist")]
    ScopeNotFound,
    /// The Scope has another version than the caller has seen.
    #[error("the scope is at version {current}")]
    VersionConflict {
        /// The version it has.
        current: i64,
    },
    /// The Scope would become its own ancestor or refer to itself.
    #[error("a scope cannot be related to itself")]
    InvalidRelationship,
    /// The store failed.
    #[error("failed to update a scope")]
    Store(#[from] StoreError),
}

/// Why another Scope did not become the default one.
#[derive(Debug, thiserror::Error)]
pub enum SetDefaultError {
    /// There is no such Scope.
    #[error("the scope does not exist")]
    ScopeNotFound,
    /// The store failed.
    #[error("failed to choose the default scope")]
    Store(#[from] StoreError),
}

/// Makes a Scope, or answers the current state of the one the same key and parameters made before.
///
/// The key stays bound to its first parameters, whatever later updates change.
///
/// # Errors
/// [`CreateScopeError`]; nothing is written then.
pub async fn create(store: &Store, new: &NewScope) -> Result<Scope, CreateScopeError> {
    create_in(store, new, false).await
}

/// Makes a Scope and the default one at once, unless there is a default Scope already; answers the
/// default one.
pub(crate) async fn create_default(store: &Store, new: &NewScope) -> Result<Scope, StoreError> {
    create_in(store, new, true).await.map_err(|error| match error {
        CreateScopeError::Store(error) => error,
        _ => StoreError::invalid("the default scope cannot be made"),
    })
}

/// Reads one Scope, or `None` when there is no such Scope.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn get(store: &Store, scope_id: &ScopeId) -> Result<Option<Scope>, StoreError> {
    let at = StoreError::at("scopes.get");
    let mut reader = store.database.snapshot().await.map_err(&at)?;
    load(&mut reader, scope_id.as_str()).await
}

/// Replaces a Scope's state and raises its version by 1, also when nothing differs.
///
/// # Errors
/// [`UpdateScopeError`]; nothing is written then.
pub async fn update(store: &Store, update: &UpdateScope) -> Result<Scope, UpdateScopeError> {
    store.database.transact("scopes.update", |tx| update_in(tx, update)).await
}

async fn update_in(mut tx: Transaction, update: &UpdateScope) -> Result<Scope, UpdateScopeError> {
    let at = StoreError::at("scopes.update");
    let id = update.scope_id.as_str();
    if update.parent_scope_id.is_some() {
        lock_tree(&mut tx).await.map_err(&at)?;
    }
    // The Scope's row is locked before anything is judged by what it and its relations say.
    let locked = tx.execute("UPDATE pc_scopes SET version = version WHERE scope_id = ?", values![id]).await;
    if locked.map_err(&at)? != 1 {
        return Err(UpdateScopeError::ScopeNotFound);
    }
    let Some(version) = version(&mut tx, id).await.map_err(&at)? else {
        return Err(UpdateScopeError::ScopeNotFound);
    };
    if version != update.expected_version {
        return Err(UpdateScopeError::VersionConflict { current: version });
    }
    let parent = update.parent_scope_id.as_ref();
    match check_relations(&mut tx, &update.scope_id, parent, &update.context_references).await? {
        Relations::Possible => {}
        Relations::Unknown => return Err(UpdateScopeError::ScopeNotFound),
        Relations::Impossible => return Err(UpdateScopeError::InvalidRelationship),
    }
    let affected = tx
        .execute(
            "UPDATE pc_scopes SET title = ?, summary = ?, parent_scope_id = ?, version = version + 1 \
             WHERE scope_id = ? AND version = ?",
            values![
                &update.title,
                &update.summary,
                update.parent_scope_id.as_ref().map(ScopeId::as_str),
                id,
                version
            ],
        )
        .await
        .map_err(&at)?;
    if affected != 1 {
        return Err(UpdateScopeError::VersionConflict { current: version });
    }
    for clear in [
        "DELETE FROM pc_scope_context_references WHERE scope_id = ?",
        "DELETE FROM pc_scope_external_references WHERE scope_id = ?",
    ] {
        tx.execute(clear, values![id]).await.map_err(&at)?;
    }
    insert_relations(&mut tx, id, &update.context_references, &update.external_references)
        .await
        .map_err(&at)?;
    let scope = load(&mut tx, id).await?.ok_or(StoreError::invalid("an updated scope vanished"))?;
    tx.commit().await.map_err(&at)?;
    Ok(scope)
}

/// The default Scope; `None` only in a database that was never completely migrated.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn default(store: &Store) -> Result<Option<Scope>, StoreError> {
    let at = StoreError::at("scopes.default");
    let mut reader = store.database.snapshot().await.map_err(&at)?;
    default_in(&mut reader).await
}

async fn default_in(tx: &mut Transaction) -> Result<Option<Scope>, StoreError> {
    let at = StoreError::at("scopes.default");
    let row = tx.query_one("SELECT scope_id FROM pc_default_scope", values![]).await.map_err(&at)?;
    match row {
        Some(row) => load(tx, &row.text(0).map_err(&at)?).await,
        None => Ok(None),
    }
}

/// Makes a Scope the default one; choosing it again changes nothing.
///
/// # Errors
/// [`SetDefaultError`]; nothing is written then.
pub async fn set_default(store: &Store, scope_id: &ScopeId) -> Result<Scope, SetDefaultError> {
    store.database.transact("scopes.set_default", |tx| set_default_in(tx, scope_id)).await
}

async fn set_default_in(mut tx: Transaction, scope_id: &ScopeId) -> Result<Scope, SetDefaultError> {
    let at = StoreError::at("scopes.set_default");
    let Some(scope) = load(&mut tx, scope_id.as_str()).await? else {
        return Err(SetDefaultError::ScopeNotFound);
    };
    put_default(&mut tx, scope_id).await.map_err(&at)?;
    tx.commit().await.map_err(&at)?;
    Ok(scope)
}

async fn put_default(tx: &mut Transaction, scope_id: &ScopeId) -> Result<(), DatabaseError> {
    tx.execute(PUT_DEFAULT, values![scope_id.as_str()]).await?;
    Ok(())
}

/// The upsert has another form on OceanBase.
const PUT_DEFAULT: Twin = Twin {
    sqlite: "INSERT INTO pc_default_scope (singleton, scope_id) VALUES (1, ?) \
        ON CONFLICT (singleton) DO UPDATE SET scope_id = excluded.scope_id",
    oceanbase: "INSERT INTO pc_default_scope (singleton, scope_id) VALUES (1, ?) \
        ON DUPLICATE KEY UPDATE scope_id = values(scope_id)",
};

async fn create_in(store: &Store, new: &NewScope, as_default: bool) -> Result<Scope, CreateScopeError> {
    store.database.transact("scopes.create", |tx| create_once(tx, new, as_default)).await
}

/// Whether key and identity are free is looked up while no other Scope can be made, so that it is never
/// learnt from an error of the database, whose text repeats them. Of the first Scope of all there is no
/// row to lock; it is made by a migration, and those wait for each other.
async fn create_once(
    mut tx: Transaction,
    new: &NewScope,
    as_default: bool,
) -> Result<Scope, CreateScopeError> {
    let at = StoreError::at("scopes.create");
    lock_tree(&mut tx).await.map_err(&at)?;
    if as_default && let Some(known) = default_in(&mut tx).await? {
        return Ok(known);
    }
    let creation = creation_digest(new);
    let known = tx
        .query_one(
            "SELECT scope_id, creation_digest FROM pc_scopes WHERE idempotency_key = ?",
            values![&new.idempotency_key],
        )
        .await
        .map_err(&at)?;
    if let Some(known) = known {
        if known.text(1).map_err(&at)? != creation {
            return Err(CreateScopeError::IdempotencyConflict);
        }
        let scope = load(&mut tx, &known.text(0).map_err(&at)?).await?;
        return Ok(scope.ok_or(StoreError::invalid("a scope vanished while it was read"))?);
    }
    if version(&mut tx, new.scope_id.as_str()).await.map_err(&at)?.is_some() {
        return Err(StoreError::invalid("a new scope's identity is taken").into());
    }
    let parent = new.parent_scope_id.as_ref();
    match check_relations(&mut tx, &new.scope_id, parent, &new.context_references).await? {
        Relations::Possible => {}
        Relations::Unknown => return Err(CreateScopeError::ScopeNotFound),
        Relations::Impossible => return Err(CreateScopeError::InvalidRelationship),
    }
    insert(&mut tx, new, creation).await.map_err(&at)?;
    if as_default {
        put_default(&mut tx, &new.scope_id).await.map_err(&at)?;
    }
    let scope = load(&mut tx, new.scope_id.as_str()).await?;
    tx.commit().await.map_err(&at)?;
    Ok(scope.ok_or(StoreError::invalid("a new scope vanished"))?)
}

/// What the key is bound to. The order of context references carries no meaning, so it does not count.
fn creation_digest(new: &NewScope) -> String {
    let mut references: Vec<&str> = new.context_references.iter().map(ScopeId::as_str).collect();
    references.sort_unstable();
    let external: Vec<[&str; 2]> =
        new.external_references.iter().map(|reference| [&*reference.kind, &*reference.value]).collect();
    let parent = new.parent_scope_id.as_ref().map(ScopeId::as_str);
    digest(&json!([new.title, new.summary, parent, references, external]).to_string())
}

async fn insert(tx: &mut Transaction, new: &NewScope, creation: String) -> Result<(), DatabaseError> {
    let id = new.scope_id.as_str();
    tx.execute(
        "INSERT INTO pc_scopes (scope_id, title, summary, parent_scope_id, version, idempotency_key, \
         creation_digest) VALUES (?, ?, ?, ?, 1, ?, ?)",
        values![
            id,
            &new.title,
            &new.summary,
            new.parent_scope_id.as_ref().map(ScopeId::as_str),
            &new.idempotency_key,
            creation
        ],
    )
    .await?;
    tx.execute("INSERT INTO pc_source_journals (scope_id, head) VALUES (?, 0)", values![id]).await?;
    insert_relations(tx, id, &new.context_references, &new.external_references).await
}

async fn insert_relations(
    tx: &mut Transaction,
    id: &str,
    context: &[ScopeId],
    external: &[ExternalReference],
) -> Result<(), DatabaseError> {
    for reference in context {
        tx.execute(
            "INSERT INTO pc_scope_context_references (scope_id, referenced_scope_id) VALUES (?, ?)",
            values![id, reference.as_str()],
        )
        .await?;
    }
    for (reference, ordinal) in external.iter().zip(0_i64..) {
        tx.execute(
            "INSERT INTO pc_scope_external_references (scope_id, ordinal, kind, value) VALUES (?, ?, ?, ?)",
            values![id, ordinal, &reference.kind, &reference.value],
        )
        .await?;
    }
    Ok(())
}

async fn version(tx: &mut Transaction, id: &str) -> Result<Option<i64>, DatabaseError> {
    if !tx.engine().tells_apart(id) {
        return Ok(None);
    }
    let row = tx.query_one("SELECT version FROM pc_scopes WHERE scope_id = ?", values![id]).await?;
    row.map(|row| row.integer(0)).transpose()
}

async fn load(tx: &mut Transaction, id: &str) -> Result<Option<Scope>, StoreError> {
    if !tx.engine().tells_apart(id) {
        return Ok(None);
    }
    Ok(load_all(tx, &[Value::from(id)]).await?.pop())
}

/// Loads Scopes by identity with three statements, however many there are; ascending by identity.
async fn load_all(tx: &mut Transaction, ids: &[Value]) -> Result<Vec<Scope>, StoreError> {
    let at = StoreError::at("scopes.load");
    let marks = placeholders(ids.len());
    let rows = tx
        .query(
            format!(
                "SELECT scope_id, title, summary, parent_scope_id, version FROM pc_scopes \
                 WHERE scope_id IN ({marks}) ORDER BY scope_id"
            ),
            ids.to_vec(),
        )
        .await
        .map_err(&at)?;
    let mut scopes = Vec::with_capacity(rows.len());
    for row in &rows {
        scopes.push(Scope {
            scope_id: stored_id(row.text(0).map_err(&at)?)?,
            title: row.text(1).map_err(&at)?,
            summary: row.text(2).map_err(&at)?,
            parent_scope_id: row.optional_text(3).map_err(&at)?.map(stored_id).transpose()?,
            context_references: Vec::new(),
            external_references: Vec::new(),
            version: row.integer(4).map_err(&at)?,
        });
    }
    let context = tx
        .query(
            format!(
                "SELECT scope_id, referenced_scope_id FROM pc_scope_context_references \
                 WHERE scope_id IN ({marks}) ORDER BY scope_id, referenced_scope_id"
            ),
            ids.to_vec(),
        )
        .await
        .map_err(&at)?;
    for row in &context {
        let owner = row.text(0).map_err(&at)?;
        let reference = stored_id(row.text(1).map_err(&at)?)?;
        if let Some(scope) = owned_by(&mut scopes, &owner) {
            scope.context_references.push(reference);
        }
    }
    let external = tx
        .query(
            format!(
                "SELECT scope_id, kind, value FROM pc_scope_external_references \
                 WHERE scope_id IN ({marks}) ORDER BY scope_id, ordinal"
            ),
            ids.to_vec(),
        )
        .await
        .map_err(&at)?;
    for row in &external {
        let owner = row.text(0).map_err(&at)?;
        let reference =
            ExternalReference { kind: row.text(1).map_err(&at)?, value: row.text(2).map_err(&at)? };
        if let Some(scope) = owned_by(&mut scopes, &owner) {
            scope.external_references.push(reference);
        }
    }
    Ok(scopes)
}

fn owned_by<'a>(scopes: &'a mut [Scope], id: &str) -> Option<&'a mut Scope> {
    let place = scopes.binary_search_by(|scope| scope.scope_id.as_str().cmp(id)).ok()?;
    scopes.get_mut(place)
}

fn stored_id(text: String) -> Result<ScopeId, StoreError> {
    ScopeId::parse(text).map_err(|_| StoreError::invalid("a stored scope id is not an identity"))
}
