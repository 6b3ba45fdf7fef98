//! When a supervisor may act: how a term is won, kept and lost.
//!
//! A pure state machine without clock, task or database. On a database of its own a process begins
//! one term that lasts as long as the process (TM-185). On a shared one it is a candidate until the
//! database gives it the lease, and acts only while its own monotonic clock says that the lease
//! cannot have expired, counted from before the request that won or renewed it was sent. So a
//! process that was frozen, or whose renewals got no answer, stops by itself (TM-187). Publishes
//! are fenced in the database whatever is decided here. Who calls the database is left to `keeper`.

use std::time::Duration;

use powercontext_core::ambient::Monotonic;
use powercontext_core::ids::{HolderId, SupervisorGeneration};
use powercontext_core::work::Fence;

use crate::decide::Now;

/// The periods of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long an acquired or renewed lease lasts, by the database's clock.
    pub ttl: Duration,
    /// How long after a successful acquisition or renewal the next renewal is due.
    pub renewal: Duration,
    /// The longest time between two tries of a candidate.
    pub candidacy: Duration,
    /// How long before the lease may expire a leader stops acting.
    pub margin: Duration,
}

/// Periods of a lease that fit together: two renewals may fail before a leader has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSettings(LeaseTimes);

/// Why the periods of a lease do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLease {
    /// A period is zero.
    #[error("the periods of the lease must be longer than zero")]
    Zero,
    /// A single failed renewal would end the term.
    #[error("twice the renewal period and the margin must be shorter than the lease")]
    RenewalTooSlow,
    /// A released lease would stay free for longer than an expired one.
    #[error("candidates must try more often than a lease expires")]
    CandidacyTooSlow,
    /// The supervisor would look at the database less often than it renews its lease.
    #[error("the tick must not be longer than the renewal period")]
    TickTooSlow,
}

impl LeaseSettings {
    /// Accepts periods that fit together, for a supervisor that ticks every `tick`.
    ///
    /// # Errors
    /// [`InvalidLease`] says what does not fit.
    pub fn new(times: LeaseTimes, tick: Duration) -> Result<Self, InvalidLease> {
        let LeaseTimes { ttl, renewal, candidacy, margin } = times;
        if [ttl, renewal, candidacy, margin, tick].contains(&Duration::ZERO) {
            Err(InvalidLease::Zero)
        } else if renewal.saturating_mul(2).saturating_add(margin) >= ttl {
            Err(InvalidLease::RenewalTooSlow)
        } else if candidacy >= ttl {
            Err(InvalidLease::CandidacyTooSlow)
        } else if tick > renewal {
            Err(InvalidLease::TickTooSlow)
        } else {
            Ok(Self(times))
        }
    }

    /// The periods.
    #[must_use]
    pub const fn times(&self) -> LeaseTimes {
        self.0
    }

    /// How long an answer to one lease call is awaited: a renewal without an answer leaves time for
    /// a second one.
    #[must_use]
    pub fn patience(&self) -> Duration {
        let LeaseTimes { ttl, renewal, margin, .. } = self.0;
        ttl.saturating_sub(margin).saturating_sub(renewal) / 2
    }

    /// The time to the next try of a candidate: the candidacy period, or up to a fifth less.
    fn next_try(&self, random: u64) -> Duration {
        let thousandths = 800 + u32::try_from(random % 201).unwrap_or(0);
        self.0.candidacy.saturating_mul(thousandths) / 1000
    }
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self(LeaseTimes {
            ttl: Duration::from_secs(15),
            renewal: Duration::from_secs(5),
            candidacy: Duration::from_secs(3),
            margin: Duration::from_secs(2),
        })
    }
}

/// A call of the database that a tenure needs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseCall {
    /// Begin the embedded term.
    Begin,
    /// Try to take the lease.
    Acquire,
    /// Let the lease last longer.
    Renew(Fence),
    /// Give back a lease that is not used any more.
    Release(Fence),
}

/// What became of a [`LeaseCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The term began.
    Won(SupervisorGeneration),
    /// Another term is valid.
    Taken,
    /// The lease lasts longer, or was given back.
    Done,
    /// The term is over.
    Refused,
    /// No answer, or an error: it may have happened or not.
    Unknown,
}

/// Why a leader stepped down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The lease may have expired by the own clock.
    Expired,
    /// The database says that the term is over.
    Refused,
}

impl Loss {
    /// The stable name in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Refused => "refused",
        }
    }
}

/// What changed for whoever acts under a tenure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A term began.
    Began(Fence),
    /// The term ended; nothing may be done under it any more.
    Lost(Fence, Loss),
}

/// The leadership of one process.
#[derive(Clone, Debug)]
pub struct Tenure {
    holder: HolderId,
    /// Absent when the term is embedded.
    settings: Option<LeaseSettings>,
    /// The time between two tries of a call that failed.
    retry: Duration,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// No term. A lease that this process holds but must not use is given back first.
    Candidate { next: Monotonic, unused: Option<Fence> },
    /// A term. `limit` is absent when it does not expire.
    Leading { fence: Fence, limit: Option<Limit> },
    /// No term, and none is wanted any more.
    Over { unused: Option<Fence> },
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    renew_at: Monotonic,
    act_until: Monotonic,
}

impl Tenure {
    /// The only supervisor of its database; a failed begin is tried again after `retry`.
    #[must_use]
    pub const fn embedded(holder: HolderId, retry: Duration) -> Self {
        Self { holder, settings: None, retry, state: State::Candidate { next: Duration::ZERO, unused: None } }
    }

    /// One of several candidates; a failed renewal is tried again after `retry`.
    #[must_use]
    pub const fn elected(holder: HolderId, settings: LeaseSettings, retry: Duration) -> Self {
        let state = State::Candidate { next: Duration::ZERO, unused: None };
        Self { holder, settings: Some(settings), retry, state }
    }

    /// Whose tenure it is; the same for the whole life of the process (TM-181).
    #[must_use]
    pub const fn holder(&self) -> &HolderId {
        &self.holder
    }

    /// The term, if there is one.
    #[must_use]
    pub const fn fence(&self) -> Option<&Fence> {
        match &self.state {
            State::Leading { fence, .. } => Some(fence),
            State::Candidate { .. } | State::Over { .. } => None,
        }
    }

    /// The time from which the term must not be used any more; `None` without a term, the largest
    /// time when the term does not expire.
    #[must_use]
    pub fn act_until(&self) -> Option<Monotonic> {
        match &self.state {
            State::Leading { limit, .. } => Some(limit.map_or(Duration::MAX, |limit| limit.act_until)),
            State::Candidate { .. } | State::Over { .. } => None,
        }
    }

    /// Whether anything may be dispatched or written now.
    #[must_use]
    pub fn may_act(&self, now: Monotonic) -> bool {
        self.act_until().is_some_and(|until| now < until)
    }

    /// The call that is due now. Asking again gives the same call until it is answered.
    #[must_use]
    pub fn wanted(&self, now: Monotonic) -> Option<LeaseCall> {
        match &self.state {
            State::Candidate { unused: Some(fence), .. } | State::Over { unused: Some(fence) } => {
                Some(LeaseCall::Release(fence.clone()))
            }
            State::Candidate { next, unused: None } if *next <= now => {
                Some(if self.settings.is_some() { LeaseCall::Acquire } else { LeaseCall::Begin })
            }
            State::Leading { fence, limit: Some(limit) }
                if limit.renew_at <= now && now < limit.act_until =>
            {
                Some(LeaseCall::Renew(fence.clone()))
            }
            State::Candidate { .. } | State::Leading { .. } | State::Over { .. } => None,
        }
    }

    /// When to look again at the latest; `None` when time changes nothing.
    #[must_use]
    pub fn next_look(&self) -> Option<Monotonic> {
        match &self.state {
            State::Candidate { unused: Some(_), .. } | State::Over { unused: Some(_) } => {
                Some(Duration::ZERO)
            }
            State::Candidate { next, .. } => Some(*next),
            State::Leading { limit, .. } => limit.map(|limit| limit.renew_at.min(limit.act_until)),
            State::Over { .. } => None,
        }
    }

    /// Learns that time has passed.
    pub fn elapsed(&mut self, now: Now) -> Option<Turn> {
        let State::Leading { fence, limit: Some(limit) } = &self.state else { return None };
        if now.at < limit.act_until {
            return None;
        }
        let fence = fence.clone();
        self.step_down(&fence, Loss::Expired, now)
    }

    /// Learns what became of a call that was sent at `sent`.
    ///
    /// A lease counts from before its request was sent, so it can never seem longer than it is. A
    /// win or a renewal that comes too late to be used is no win.
    pub fn answered(
        &mut self,
        call: &LeaseCall,
        sent: Monotonic,
        answer: LeaseAnswer,
        now: Now,
    ) -> Option<Turn> {
        let expired = self.elapsed(now);
        if expired.is_some() {
            return expired;
        }
        match (call, answer) {
            (LeaseCall::Begin | LeaseCall::Acquire, LeaseAnswer::Won(generation)) => {
                self.won(generation, sent, now)
            }
            (LeaseCall::Begin | LeaseCall::Acquire, _) => {
                let pause = self.settings.map_or(self.retry, |settings| settings.next_try(now.random));
                if let State::Candidate { next, .. } = &mut self.state {
                    *next = now.at.saturating_add(pause);
                }
                None
            }
            (LeaseCall::Renew(asked), answer) => self.renewed(asked, sent, answer, now),
            (LeaseCall::Release(asked), _) => {
                if let State::Candidate { unused, .. } | State::Over { unused } = &mut self.state
                    && unused.as_ref() == Some(asked)
                {
                    *unused = None;
                }
                None
            }
        }
    }

    /// Ends the term of `fence` because its user stopped using it: the database refused a write, or
    /// the user's own look at the clock came too late.
    pub fn step_down(&mut self, fence: &Fence, loss: Loss, now: Now) -> Option<Turn> {
        if self.fence() != Some(fence) {
            return None;
        }
        if self.settings.is_none() {
            // Whoever began a newer embedded term is the one legal supervisor now.
            self.state = State::Over { unused: None };
        } else {
            // The database may still hold the lease for this process; given back, it is free at once.
            self.stand(now, (loss == Loss::Expired).then(|| fence.clone()));
        }
        Some(Turn::Lost(fence.clone(), loss))
    }

    /// Gives the term up for good; what is left to do is to give the lease back.
    pub fn resign(&mut self) {
        let unused = match std::mem::replace(&mut self.state, State::Over { unused: None }) {
            State::Leading { fence, limit: Some(_) } => Some(fence),
            State::Candidate { unused, .. } | State::Over { unused } => unused,
            State::Leading { limit: None, .. } => None,
        };
        self.state = State::Over { unused };
    }

    fn won(&mut self, generation: SupervisorGeneration, sent: Monotonic, now: Now) -> Option<Turn> {
        let fence = Fence { holder: self.holder.clone(), generation };
        let limit = self.settings.map(|settings| limit(settings, sent));
        match &mut self.state {
            State::Candidate { .. } if limit.is_none_or(|limit| now.at < limit.act_until) => {
                self.state = State::Leading { fence: fence.clone(), limit };
                Some(Turn::Began(fence))
            }
            State::Candidate { .. } => {
                self.stand(now, Some(fence));
                None
            }
            State::Over { unused } => {
                *unused = limit.map(|_| fence);
                None
            }
            State::Leading { .. } => None,
        }
    }

    fn renewed(&mut self, asked: &Fence, sent: Monotonic, answer: LeaseAnswer, now: Now) -> Option<Turn> {
        let (Some(settings), State::Leading { fence, limit: Some(kept) }) = (self.settings, &mut self.state)
        else {
            return None;
        };
        if fence != asked {
            return None;
        }
        match answer {
            LeaseAnswer::Done => *kept = limit(settings, sent),
            LeaseAnswer::Refused | LeaseAnswer::Taken => return self.step_down(asked, Loss::Refused, now),
            LeaseAnswer::Unknown | LeaseAnswer::Won(_) => kept.renew_at = now.at.saturating_add(self.retry),
        }
        None
    }

    /// Is a candidate from now on, and tries again after a candidacy period.
    fn stand(&mut self, now: Now, unused: Option<Fence>) {
        let pause = self.settings.map_or(self.retry, |settings| settings.next_try(now.random));
        self.state = State::Candidate { next: now.at.saturating_add(pause), unused };
    }
}

fn limit(settings: LeaseSettings, sent: Monotonic) -> Limit {
    let LeaseTimes { ttl, renewal, margin, .. } = settings.times();
    Limit {
        renew_at: sent.saturating_add(renewal),
        act_until: sent.saturating_add(ttl.saturating_sub(margin)),
    }
}

#[cfg(test)]
mod tests;
