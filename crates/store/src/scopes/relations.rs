//! Which parents and references a Scope may have: existing ones, never itself, never a circle.

use powercontext_core::ids::ScopeId;

use crate::database::{Engine, Transaction, values};
use crate::{DatabaseError, StoreError};

use super::version;

/// The largest number of steps a chain of parents is followed.
const MAX_PARENT_STEPS: i64 = 10_000;

/// Lets one transaction at a time make Scopes and move them below others, so that two together never use
/// one key or close a circle. On SQLite there is only one; on OceanBase the one row that always exists stands for all.
pub(super) async fn lock_tree(tx: &mut Transaction) -> Result<(), DatabaseError> {
    if tx.engine() == Engine::OceanBase {
        tx.query("SELECT 1 FROM pc_default_scope WHERE singleton = 1 FOR UPDATE", values![]).await?;
    }
    Ok(())
}

/// Whether a Scope may have the relations it asks for.
pub(super) enum Relations {
    Possible,
    Unknown,
    Impossible,
}

/// Looks for related Scopes that do not exist, and for circles.
pub(super) async fn check_relations(
    tx: &mut Transaction,
    scope_id: &ScopeId,
    parent: Option<&ScopeId>,
    references: &[ScopeId],
) -> Result<Relations, StoreError> {
    let at = StoreError::at("scopes.check_relations");
    if parent == Some(scope_id) || references.contains(scope_id) {
        return Ok(Relations::Impossible);
    }
    for related in parent.into_iter().chain(references) {
        if version(tx, related.as_str()).await.map_err(&at)?.is_none() {
            return Ok(Relations::Unknown);
        }
    }
    let Some(parent) = parent else { return Ok(Relations::Possible) };
    // The cast gives the column the type of the identities that follow, whatever a server makes of a bound
    // value; it compares by bytes like the session. The hint, a comment to SQLite, keeps OceanBase from reading all Scopes in every step.
    // A chain of parents has no circle, since one writer at a time changes it, so following it ends;
    // what reaches the bound is damaged and is refused instead of being taken for a chain.
    let row = tx
        .query_one(
            "WITH RECURSIVE ancestors (scope_id, steps) AS ( \
               SELECT CAST(? AS CHAR(256)), 0 UNION ALL \
               SELECT /*+ LEADING(ancestors parent) USE_NL(parent) */ \
                 parent.parent_scope_id, ancestors.steps + 1 FROM ancestors \
               JOIN pc_scopes AS parent ON parent.scope_id = ancestors.scope_id \
               WHERE parent.parent_scope_id IS NOT NULL AND ancestors.steps < ?) \
             SELECT max(scope_id = ?), max(steps) FROM ancestors",
            values![parent.as_str(), MAX_PARENT_STEPS, scope_id.as_str()],
        )
        .await
        .map_err(&at)?
        .ok_or(StoreError::invalid("a chain of parents cannot be read"))?;
    if row.integer(0).map_err(&at)? != 0 {
        return Ok(Relations::Impossible);
    }
    if row.integer(1).map_err(&at)? >= MAX_PARENT_STEPS {
        return Err(StoreError::invalid("a chain of parents has no end"));
    }
    Ok(Relations::Possible)
}
