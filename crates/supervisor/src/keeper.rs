//! Keeps the leadership beside the loop, in a task of its own, so that a slow read or a long freeze
//! cannot cost a healthy leader its lease.
//!
//! What to call and when is decided by [`Tenure`]; here the database is called, each call for a
//! bounded time, and the loop is told where it stands.

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::ambient::{Clock, IdSource, Monotonic};
use powercontext_core::ids::HolderId;
use powercontext_core::work::Fence;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::decide::Now;
use crate::facts::{DurableFacts, FactsError};
use crate::lease::{LeaseAnswer, LeaseCall, Loss, Tenure, Turn};
use crate::outage::Outage;
use crate::settings::SupervisorSettings;

/// Where the process stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was heard of the database yet.
    Starting,
    /// Another supervisor leads, or may lead.
    Candidate,
    /// The database did not answer the last call.
    Unavailable,
    /// This process leads, and may act until that time of its own clock.
    Leading {
        /// The term.
        fence: Fence,
        /// The time.
        until: Monotonic,
    },
    /// No term follows any more.
    Over,
}

enum Order {
    StepDown(Fence, Loss),
    Resign,
}

/// Speaks to the task that keeps the leadership. When it is dropped, the term is given back.
#[derive(Debug)]
pub struct Keeper {
    standing: watch::Receiver<Standing>,
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Starts the task. Must be called inside a runtime.
    pub fn start(
        facts: Arc<dyn DurableFacts>,
        ambient: (Arc<dyn Clock>, Arc<dyn IdSource>),
        holder: HolderId,
        settings: &SupervisorSettings,
    ) -> Self {
        let (clock, ids) = ambient;
        // An embedded term does not expire, so nothing hurries its begin.
        let (tenure, patience) = if facts.is_shared() {
            (Tenure::elected(holder, settings.lease, settings.tick), settings.lease.patience())
        } else {
            (Tenure::embedded(holder, settings.tick), Duration::MAX)
        };
        let (told, standing) = watch::channel(Standing::Starting);
        let (orders, ordered) = mpsc::unbounded_channel();
        let ttl = settings.lease.times().ttl;
        let outage = Outage::default();
        let keeping = Keeping { facts, clock, ids, tenure, told, outage, patience, ttl };
        Self { standing, orders, task: tokio::spawn(keeping.run(ordered)) }
    }

    /// Where the process stands, now and later.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Says that the term is not used any more; candidacy goes on.
    pub fn step_down(&self, fence: &Fence, loss: Loss) {
        // A closed channel means that no term is kept any more.
        let _ = self.orders.send(Order::StepDown(fence.clone(), loss));
    }

    /// Gives the lease back and ends; waits at most `patience` for it.
    pub async fn resign(self, patience: Duration) {
        let _ = self.orders.send(Order::Resign);
        // What is not given back in time expires.
        let _ = timeout(patience, self.task).await;
    }
}

struct Keeping {
    facts: Arc<dyn DurableFacts>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    tenure: Tenure,
    told: watch::Sender<Standing>,
    outage: Outage,
    patience: Duration,
    ttl: Duration,
}

impl Keeping {
    async fn run(mut self, mut ordered: mpsc::UnboundedReceiver<Order>) {
        loop {
            let now = self.now();
            let turn = self.tenure.elapsed(now);
            self.turned(turn);
            if let Some(call) = self.tenure.wanted(now.at) {
                self.make(&call).await;
                continue;
            }
            let Some(next) = self.next_look(now.at) else {
                self.told.send_replace(Standing::Over);
                return;
            };
            let order = tokio::select! {
                biased;
                order = ordered.recv() => order.unwrap_or(Order::Resign),
                () = sleep(next) => continue,
            };
            match order {
                Order::StepDown(fence, loss) => {
                    let turn = self.tenure.step_down(&fence, loss, self.now());
                    self.turned(turn);
                }
                Order::Resign => self.tenure.resign(),
            }
        }
    }

    /// How long nothing has to be done; `None` when nothing is left to do at all.
    fn next_look(&self, now: Monotonic) -> Option<Duration> {
        match self.tenure.next_look() {
            Some(next) => Some(next.saturating_sub(now)),
            None => self.tenure.fence().map(|_| Duration::MAX),
        }
    }

    async fn make(&mut self, call: &LeaseCall) {
        let sent = self.clock.monotonic();
        let left = self.tenure.act_until().unwrap_or(Duration::MAX).saturating_sub(sent);
        let answer = match timeout(self.patience.min(left), self.call(call)).await {
            Ok(Ok(answer)) => {
                self.outage.over();
                answer
            }
            Ok(Err(error)) => {
                self.outage.failed(&error, self.now().at);
                LeaseAnswer::Unknown
            }
            Err(_) => {
                self.outage.unanswered(self.now().at);
                LeaseAnswer::Unknown
            }
        };
        let turn = self.tenure.answered(call, sent, answer, self.now());
        if turn.is_none() && self.tenure.fence().is_none() && !matches!(call, LeaseCall::Release(_)) {
            let unknown = answer == LeaseAnswer::Unknown;
            self.tell(if unknown { Standing::Unavailable } else { Standing::Candidate });
        }
        self.turned(turn);
    }

    async fn call(&self, call: &LeaseCall) -> Result<LeaseAnswer, FactsError> {
        let done = |done| if done { LeaseAnswer::Done } else { LeaseAnswer::Refused };
        match call {
            LeaseCall::Begin => self.facts.begin_term(self.tenure.holder()).await.map(LeaseAnswer::Won),
            LeaseCall::Acquire => {
                let won = self.facts.acquire(self.tenure.holder(), self.ttl).await?;
                Ok(won.map_or(LeaseAnswer::Taken, LeaseAnswer::Won))
            }
            LeaseCall::Renew(fence) => self.facts.renew(fence, self.ttl).await.map(done),
            LeaseCall::Release(fence) => {
                let answer = self.facts.release(fence).await.map(done)?;
                let generation = fence.generation.get();
                tracing::info!(
                    event = "lease_released",
                    supervisor_generation = generation,
                    "lease given back"
                );
                Ok(answer)
            }
        }
    }

    fn turned(&self, turn: Option<Turn>) {
        if let Some(Turn::Lost(fence, loss)) = &turn {
            tracing::warn!(
                event = "stepped_down",
                supervisor_generation = fence.generation.get(),
                reason = loss.as_str(),
                "this supervisor leads no more"
            );
            self.tell(Standing::Candidate);
        }
        if let (Some(fence), Some(until)) = (self.tenure.fence(), self.tenure.act_until()) {
            self.tell(Standing::Leading { fence: fence.clone(), until });
        }
    }

    fn tell(&self, standing: Standing) {
        self.told.send_if_modified(|told| {
            let changed = *told != standing;
            if changed && standing == Standing::Candidate {
                tracing::info!(event = "candidate", "waiting to lead");
            }
            *told = standing;
            changed
        });
    }

    fn now(&self) -> Now {
        Now { at: self.clock.monotonic(), random: self.ids.random().as_u64_pair().1 }
    }
}
