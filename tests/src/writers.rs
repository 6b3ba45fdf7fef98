//! Writers that know exactly what was acknowledged, whatever happens to the servers they write to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::{Answer, Client};

/// What the servers have promised.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Positions of acknowledged Sources, by Scope and Source id.
    pub acknowledged: BTreeMap<String, BTreeMap<String, i64>>,
    /// Answers a client must never get: neither a capture, nor a refusal for the moment.
    pub wrong: Vec<String>,
    /// Requests that got no answer or were refused for the moment, and were sent again.
    pub repeated: usize,
}

impl Ledger {
    /// How many Sources were acknowledged.
    #[must_use]
    pub fn total(&self) -> usize {
        self.acknowledged.values().map(BTreeMap::len).sum()
    }
}

/// How writers write.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Between two captures of one writer.
    pub pause: Duration,
    /// A flush after every so many captures; 0 for none.
    pub flush_every: usize,
}

/// Running writers, one for each Scope; they ask the servers in turn.
#[derive(Debug)]
pub struct Writers {
    stop: watch::Sender<bool>,
    ledger: Arc<Mutex<Ledger>>,
    tasks: Vec<JoinHandle<()>>,
}

struct Writer {
    scope: String,
    servers: Vec<Client>,
    pace: Pace,
    ledger: Arc<Mutex<Ledger>>,
    stop: watch::Receiver<bool>,
}

impl Writers {
    /// Starts one writer per Scope over these servers.
    #[must_use]
    pub fn start(servers: &[Client], scopes: &[String], pace: &Pace) -> Self {
        let stop = watch::Sender::new(false);
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let start = |scope: &String| {
            let writer = Writer {
                scope: scope.clone(),
                servers: servers.to_vec(),
                pace: pace.clone(),
                ledger: ledger.clone(),
                stop: stop.subscribe(),
            };
            tokio::spawn(writer.run())
        };
        let tasks = scopes.iter().map(start).collect();
        Self { stop, ledger, tasks }
    }

    /// How many Sources have been acknowledged so far.
    ///
    /// # Panics
    /// When a writer panicked.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ledger.lock().expect("the ledger").total()
    }

    /// Waits until `more` further Sources were acknowledged: the fleet takes writes.
    ///
    /// # Panics
    /// When that takes more than 60 seconds.
    pub async fn until_acknowledged(&self, more: usize) {
        let wanted = self.total() + more;
        for _ in 0..1_200 {
            if self.total() >= wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{} of {wanted} Sources were acknowledged within a minute", self.total());
    }

    /// Lets every writer finish the Source it is at, and returns what was acknowledged.
    ///
    /// # Panics
    /// When a writer panicked or cannot finish within a minute.
    pub async fn finish(self) -> Ledger {
        self.stop.send_replace(true);
        for task in self.tasks {
            tokio::time::timeout(Duration::from_secs(60), task)
                .await
                .expect("a writer's last Source is acknowledged within a minute")
                .expect("a writer ends");
        }
        self.ledger.lock().expect("the ledger").clone()
    }
}

impl Writer {
    async fn run(mut self) {
        let mut number = 0;
        while !*self.stop.borrow() {
            self.capture(number).await;
            number += 1;
            if self.pace.flush_every > 0 && number % self.pace.flush_every == 0 {
                self.flush(number).await;
            }
            let _ = tokio::time::timeout(self.pace.pause, self.stop.changed()).await;
        }
    }

    /// Sends one Source until some server acknowledges it. A repetition is the same Source, so it gets
    /// the same position.
    async fn capture(&self, number: usize) {
        let source = format!("s{number:05}");
        let body = json!({"scope_id": self.scope, "source_id": source, "content": text(number)});
        for attempt in 0.. {
            let server = &self.servers[(number + attempt) % self.servers.len()];
            let answer = server.try_post("/v1/sources/content", &body).await;
            if self.is_settled(&source, answer) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Notes an answer; `false` asks to send the Source again.
    fn is_settled(&self, source: &str, answer: Option<Answer>) -> bool {
        let mut ledger = self.ledger.lock().expect("the ledger");
        let Some(answer) = answer.filter(|answer| answer.status != 503) else {
            ledger.repeated += 1;
            return false;
        };
        match (answer.status, answer.body["position"].as_i64()) {
            (202, Some(position)) => {
                ledger
                    .acknowledged
                    .entry(self.scope.clone())
                    .or_default()
                    .insert(source.to_owned(), position);
            }
            (status, _) => ledger.wrong.push(format!("capture of {source}: {status} {}", answer.body)),
        }
        true
    }

    /// Asks once; a flush that was lost is followed by others.
    async fn flush(&self, number: usize) {
        let server = &self.servers[number % self.servers.len()];
        let answer = server.try_post("/v1/topic-memory/flush", &json!({"scope_id": self.scope})).await;
        if let Some(answer) = answer.filter(|answer| !matches!(answer.status, 200 | 503)) {
            let said = format!("flush of `{}`: {} {}", self.scope, answer.status, answer.body);
            self.ledger.lock().expect("the ledger").wrong.push(said);
        }
    }
}

/// A text that becomes a Topic or joins one: a few subjects, a fact of its own in each.
fn text(number: usize) -> String {
    let subject = ["checkout database", "invoice export", "search index", "ingress gateway"][number % 4];
    format!(
        "Deployment note {number} of the {subject}: release {number} of the {subject} waits for the migration \
         of the {subject}, and the {subject} was measured at {} requests per second.",
        100 + number
    )
}
