//! The schema of the database: who may change it, changing it, and telling its state.

use powercontext_core::ambient::SystemIds;
use powercontext_core::failure::chain;
use powercontext_program::{Failure, start};
use powercontext_settings::Settings;
use powercontext_store::{Claim, ClaimError, Store, StoreOptions};

/// Keeps every other server off the database until the claim is dropped.
pub fn claim(options: &StoreOptions) -> Result<Claim, Failure> {
    Store::claim(options).map_err(|error| {
        let hint = if matches!(error, ClaimError::Taken { .. }) { "; stop that one first" } else { "" };
        Failure::Environment(format!("{}{hint}", chain(&error)))
    })
}

/// `migrate`: brings the database to the schema of this program.
pub async fn migrate(settings: &Settings) -> Result<(), Failure> {
    let options = start::store_options(settings)?;
    let _claim = claim(&options)?;
    apply(&options).await
}

/// Applies what is missing.
pub async fn apply(options: &StoreOptions) -> Result<(), Failure> {
    let report = powercontext_store::migrate(options, &SystemIds)
        .await
        .map_err(|error| start::unusable(options, &error))?;
    if !report.applied.is_empty() {
        let (schema, applied) = (report.current, report.applied.len());
        tracing::info!(event = "database.migrated", schema, applied);
    }
    Ok(())
}
