//! When a failing database is worth a line in the log: as it begins, once a minute while it lasts,
//! and as it ends. Whoever calls the database keeps one for each kind of call.

use std::time::Duration;

use powercontext_core::ambient::Monotonic;
use powercontext_core::failure::chain;

use crate::facts::FactsError;

/// The time between two lines about the same outage.
const AGAIN: Duration = Duration::from_secs(60);

/// Calls that fail, from the first failure to the next success.
#[derive(Debug, Default)]
pub struct Outage {
    told: Option<Monotonic>,
}

impl Outage {
    /// A call failed.
    pub fn failed(&mut self, error: &FactsError, now: Monotonic) {
        if self.is_due(now) {
            tracing::warn!(
                event = "database_unavailable",
                error = chain(error),
                "the supervisor waits for its database"
            );
        }
    }

    /// A call about the lease got no answer.
    pub fn unanswered(&mut self, now: Monotonic) {
        if self.is_due(now) {
            tracing::warn!(event = "database_unavailable", "no answer about the lease in time");
        }
    }

    /// A call succeeded.
    pub fn over(&mut self) {
        if self.told.take().is_some() {
            tracing::info!(event = "database_available", "the database answers the supervisor again");
        }
    }

    fn is_due(&mut self, now: Monotonic) -> bool {
        let due = self.told.is_none_or(|told| now.saturating_sub(told) >= AGAIN);
        if due {
            self.told = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_as_it_begins_and_once_a_minute_and_a_later_one_anew() {
        let mut outage = Outage::default();
        let due: Vec<u64> = (0..150).filter(|at| outage.is_due(Duration::from_secs(*at))).collect();
        assert_eq!(due, [0, 60, 120]);
        outage.over();
        assert!(outage.is_due(Duration::from_secs(121)));
    }
}
