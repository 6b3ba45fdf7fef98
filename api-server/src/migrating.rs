//! The schema of the database: who may change it, changing it, and telling its state.

use std::process::ExitCode;

use powercontext_core::ambient::SystemIds;
use powercontext_core::failure::chain;
use powercontext_program::{Failure, print, start};
use powercontext_settings::Settings;
use powercontext_store::{
    Claim, ClaimError, MigrationReport, OpenError, SchemaState, Store, StoreOptions, schema_state,
};

/// The exit status of a check that found something to migrate.
const PENDING: u8 = 3;

/// Keeps every other server off the database until the claim is dropped.
pub fn claim(options: &StoreOptions) -> Result<Claim, Failure> {
    Store::claim(options).map_err(|error| {
        let hint = if matches!(error, ClaimError::Taken { .. }) { "; stop that one first" } else { "" };
        Failure::Environment(format!("{}{hint}", chain(&error)))
    })
}

/// `migrate`: brings the database to the schema of this program, and prints what that took.
pub async fn migrate(settings: &Settings) -> Result<(), Failure> {
    let options = start::store_options(settings)?;
    let _claim = claim(&options)?;
    let MigrationReport { applied, current } = apply(&options).await?;
    print(&match applied.len() {
        0 => format!("the database schema is current at {current}; nothing was changed"),
        count => format!("the database schema is now at {current}; migrations applied: {count}"),
    })
}

/// Applies what is missing.
pub async fn apply(options: &StoreOptions) -> Result<MigrationReport, Failure> {
    let report = powercontext_store::migrate(options, &SystemIds)
        .await
        .map_err(|error| start::unusable(options, &error))?;
    if !report.applied.is_empty() {
        let (schema, applied) = (report.current, report.applied.len());
        tracing::info!(event = "database.migrated", schema, applied);
    }
    Ok(report)
}

/// `migrate --check`: prints the state of the schema and changes nothing. Needs no claim, so a
/// server may run meanwhile.
pub async fn check(settings: &Settings) -> Result<ExitCode, Failure> {
    let options = start::store_options(settings)?;
    let (text, status) = match schema_state(&options).await {
        Ok(state) if state.is_current() => (line(&state), ExitCode::SUCCESS),
        Ok(state) => (line(&state), ExitCode::from(PENDING)),
        Err(OpenError::DatabaseMissing) => {
            let text = "the server has no such database; a migration makes it if the user may";
            (text.to_owned(), ExitCode::from(PENDING))
        }
        Err(error) => return Err(start::unusable(&options, &error)),
    };
    print(&text)?;
    Ok(status)
}

fn line(state: &SchemaState) -> String {
    let SchemaState { current, needed, pending, unfinished } = state;
    if *unfinished {
        return format!(
            "the database schema is at {current} and its migration was interrupted; pending: the end of it"
        );
    }
    if pending.is_empty() {
        return format!("the database schema is current at {current}");
    }
    let names: Vec<String> = pending.iter().map(|(number, name)| format!("{number:04}_{name}")).collect();
    format!(
        "the database schema is at {current} and this program needs {needed}; pending: {}",
        names.join(", ")
    )
}
