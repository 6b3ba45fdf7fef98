//! Commits the attempt before any Source is read (TM-065).
//!
//! A new attempt takes away the right of every older one to publish (TM-075). How many there may
//! be is decided in the store.

use powercontext_core::ambient::IdSource;
use powercontext_core::ids::AttemptId;
use powercontext_core::work::{ErrorCode, Frontier, WorkAssignment};
use powercontext_store::Store;
use powercontext_store::budgets::{self, AttemptFence, AttemptStart};

use crate::failure::WindowError;

/// A committed attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The right to reserve and to publish.
    pub(crate) fence: AttemptFence,
    /// Which attempt of the frontier it is, from 1.
    pub(crate) number: u32,
}

pub(crate) async fn start(
    store: &Store,
    assignment: &WorkAssignment,
    frontier: Frontier,
    ids: &dyn IdSource,
) -> Result<Attempt, WindowError> {
    let attempt_id =
        AttemptId::parse(format!("att_{}", ids.random().simple())).map_err(|_| ErrorCode::DataInvalid)?;
    let started = budgets::start_attempt(store, &assignment.fence, &frontier, &attempt_id).await?;
    match started {
        AttemptStart::Started { attempt_number } => {
            let fence = AttemptFence { fence: assignment.fence.clone(), frontier, attempt_id };
            Ok(Attempt { fence, number: attempt_number })
        }
        AttemptStart::Terminal(code) | AttemptStart::Superseded(code) => Err(code.into()),
    }
}
