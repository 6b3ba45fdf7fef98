//! The lease row of the model database.

use std::time::Duration;

use powercontext_core::ids::{HolderId, SupervisorGeneration};
use powercontext_core::work::Fence;
use powercontext_supervisor::lease::{LeaseAnswer, LeaseCall};

use crate::database::Database;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    pub holder: Option<HolderId>,
    pub generation: i64,
    /// By the database's clock; absent when the term does not expire.
    pub expires: Option<Duration>,
}

impl Lease {
    pub fn is_valid(&self, clock: Duration) -> bool {
        self.generation > 0 && self.expires.is_none_or(|expires| expires > clock)
    }

    pub fn names(&self, fence: &Fence) -> bool {
        self.generation == fence.generation.get() && self.holder.as_ref() == Some(&fence.holder)
    }

    pub fn current(&self) -> Option<Fence> {
        let generation = SupervisorGeneration::new(self.generation);
        self.holder.clone().map(|holder| Fence { holder, generation })
    }
}

impl Database {
    pub fn lease_call(&mut self, holder: &HolderId, call: &LeaseCall, ttl: Duration) -> LeaseAnswer {
        match call {
            LeaseCall::Begin => self.begin(holder, None),
            LeaseCall::Acquire if self.lease.is_valid(self.clock) => LeaseAnswer::Taken,
            LeaseCall::Acquire => self.begin(holder, Some(self.clock + ttl)),
            LeaseCall::Renew(fence) => self.extend(fence, self.clock + ttl),
            LeaseCall::Release(fence) => self.extend(fence, self.clock - Duration::from_secs(1)),
        }
    }

    fn begin(&mut self, holder: &HolderId, expires: Option<Duration>) -> LeaseAnswer {
        let generation = self.lease.generation + 1;
        self.lease = Lease { holder: Some(holder.clone()), generation, expires };
        LeaseAnswer::Won(SupervisorGeneration::new(generation))
    }

    fn extend(&mut self, fence: &Fence, until: Duration) -> LeaseAnswer {
        if !self.holds(fence) {
            return LeaseAnswer::Refused;
        }
        self.lease.expires = Some(until);
        LeaseAnswer::Done
    }
}
