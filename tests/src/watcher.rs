//! Watches the lease row all the time, by the database's clock, and judges what it saw.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::tables::Tables;

/// Times are compared as texts of one length, as the database formats them. A sample is one statement,
/// so its clock and its row belong together.
const SAMPLE: &str = "SELECT holder_id, cast(supervisor_generation AS CHAR), \
    date_format(lease_expires_at, '%Y-%m-%d %H:%i:%s.%f'), date_format(utc_timestamp(6), '%Y-%m-%d %H:%i:%s.%f') \
    FROM pc_artifact_processing_leases";
const PAUSE: Duration = Duration::from_millis(15);

/// The lease row at one time of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Whose term it is.
    pub holder: String,
    /// Which term it is.
    pub generation: i64,
    /// When it ends unless it is renewed.
    pub expires: String,
    /// The database's clock.
    pub now: String,
}

impl Sample {
    /// Whether somebody leads.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.expires > self.now
    }
}

/// The lease row now; `None` before the first term and while the database does not answer.
pub async fn sample(tables: &Tables) -> Option<Sample> {
    let row = tables.try_rows(SAMPLE).await.ok()?.into_iter().next()?;
    let [holder, generation, expires, now] = row.try_into().ok()?;
    Some(Sample { holder, generation: generation.parse().ok()?, expires, now })
}

/// A running watch.
#[derive(Debug)]
pub struct Watcher {
    samples: Arc<Mutex<Vec<Sample>>>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Begins to watch; a database that is away is asked again.
    #[must_use]
    pub fn start(tables: Tables) -> Self {
        let samples = Arc::new(Mutex::new(Vec::<Sample>::new()));
        let kept = samples.clone();
        let task = tokio::spawn(async move {
            loop {
                // A server that was killed may leave the driver waiting.
                let seen = tokio::time::timeout(Duration::from_secs(2), sample(&tables)).await;
                if let Ok(Some(seen)) = seen {
                    keep(&mut kept.lock().expect("the samples"), seen);
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { samples, task }
    }

    /// Ends the watch and returns what it saw: of equal rows in a row the first and the last.
    ///
    /// # Panics
    /// When the watch itself panicked.
    #[must_use]
    pub fn finish(self) -> Vec<Sample> {
        self.task.abort();
        self.samples.lock().expect("the samples").clone()
    }
}

fn keep(samples: &mut Vec<Sample>, seen: Sample) {
    let same = |kept: &Sample| kept.generation == seen.generation && kept.expires == seen.expires;
    if samples.len() >= 2 && samples[samples.len() - 2..].iter().all(same) {
        samples.pop();
    }
    samples.push(seen);
}

/// What is wrong with a watched lease: a term that began while the one before was still valid and was
/// not `released`, a term that is not newer than the one before, or one with two holders (TM-182, TM-183).
#[must_use]
pub fn faults(samples: &[Sample], released: &[i64]) -> Vec<String> {
    let mut said = Vec::new();
    for pair in samples.windows(2) {
        let [before, after] = pair else { continue };
        if after.generation < before.generation {
            said.push(format!("the generation went back: {before:?}, then {after:?}"));
        }
        if after.generation == before.generation && after.holder != before.holder {
            said.push(format!("one term has two holders: {before:?}, then {after:?}"));
        }
        let early = after.generation > before.generation && after.now < before.expires;
        if early && !released.contains(&before.generation) {
            said.push(format!("a term began before the one before had expired: {before:?}, then {after:?}"));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(holder: &str, generation: i64, expires: &str, now: &str) -> Sample {
        let time = |text: &str| format!("2026-01-01 00:00:{text}.000000");
        Sample { holder: holder.to_owned(), generation, expires: time(expires), now: time(now) }
    }

    #[test]
    fn a_takeover_after_expiry_is_right_and_one_before_it_is_seen() {
        let right = [at("a", 1, "05", "00"), at("a", 1, "08", "03"), at("b", 2, "13", "08")];
        assert_eq!(faults(&right, &[]), Vec::<String>::new());
        let early = [at("a", 1, "05", "00"), at("b", 2, "09", "04")];
        assert_eq!(faults(&early, &[]).len(), 1);
        assert_eq!(faults(&early, &[1]), Vec::<String>::new(), "it was released");
        assert_eq!(faults(&[at("a", 2, "05", "00"), at("b", 1, "09", "06")], &[]).len(), 1, "back");
        assert_eq!(faults(&[at("a", 2, "05", "00"), at("b", 2, "09", "06")], &[]).len(), 1, "two holders");
    }

    #[test]
    fn equal_rows_keep_their_first_and_last_sample() {
        let mut kept = Vec::new();
        for now in ["00", "01", "02", "03"] {
            keep(&mut kept, at("a", 1, "05", now));
        }
        keep(&mut kept, at("a", 1, "08", "04"));
        let nows: Vec<&str> = kept.iter().map(|sample| &sample.now[17..19]).collect();
        assert_eq!(nows, ["00", "03", "04"]);
    }
}
