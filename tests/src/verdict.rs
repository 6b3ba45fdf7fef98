//! The final checks after faults: what was acknowledged is there, everything was processed exactly once,
//! and terms followed each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::events::Event;
use crate::fleet::Fleet;
use crate::tables::{self, Tables};
use crate::watcher::{self, Sample};
use crate::writers::Ledger;

/// A Window that a log says was published.
type Window = (i64, i64);

/// Checks a fleet at rest: every Scope is caught up, everything in the ledger is stored where it was
/// acknowledged and stands in a Topic, logged Windows do not overlap, no frontier was closed, and terms
/// grew and did not overlap.
///
/// # Panics
/// With everything that does not hold.
pub async fn assert_sound(fleet: &Fleet, ledger: &Ledger, samples: &[Sample]) {
    let events = fleet.events();
    let mut said = ledger.wrong.clone();
    said.extend(closed_frontiers(&events));
    assert!(said.is_empty(), "{}", said.join("\n"));
    for scope in ledger.acknowledged.keys() {
        let in_lineage = tables::assert_caught_up(&fleet.tables, scope).await;
        let stored = stored(&fleet.tables, scope).await;
        if in_lineage != i64::try_from(stored.len()).expect("few Sources") {
            said.push(format!("scope `{scope}`: {in_lineage} of {} Sources stand in a Topic", stored.len()));
        }
        said.extend(lost(scope, &ledger.acknowledged[scope], &stored));
        said.extend(overlaps(scope, &windows(&events, scope)));
    }
    said.extend(terms(&events));
    said.extend(watcher::faults(samples, &released(&events)));
    said.extend(panics(&events));
    assert!(said.is_empty(), "{}", said.join("\n"));
}

async fn stored(tables: &Tables, scope: &str) -> BTreeMap<String, i64> {
    let sql = format!("SELECT source_id, cast(position AS CHAR) FROM pc_sources WHERE scope_id = '{scope}'");
    let rows = tables.rows(&sql).await;
    rows.into_iter().map(|row| (row[0].clone(), row[1].parse().expect("a position"))).collect()
}

/// Acknowledged Sources that are not stored, or at another position (TM-019, TM-020).
fn lost(scope: &str, promised: &BTreeMap<String, i64>, stored: &BTreeMap<String, i64>) -> Vec<String> {
    promised
        .iter()
        .filter(|(source, position)| stored.get(*source) != Some(*position))
        .map(|(source, position)| {
            format!(
                "scope `{scope}`: {source} was acknowledged at {position}, is at {:?}",
                stored.get(source)
            )
        })
        .collect()
}

/// The Windows of a Scope that any log says were published. A worker that was killed between its commit
/// and its log line is missing, so there may be gaps.
fn windows(events: &[Event], scope: &str) -> BTreeSet<Window> {
    events
        .iter()
        .filter(|event| matches!(event.name.as_str(), "worker_done" | "window_published"))
        .filter(|event| event.text("scope") == scope)
        .filter_map(|event| Some((event.number("source_after")?, event.number("source_through")?)))
        .filter(|(after, through)| through > after)
        .collect()
}

/// Windows that share a Source (TM-004).
fn overlaps(scope: &str, windows: &BTreeSet<Window>) -> Vec<String> {
    let windows: Vec<Window> = windows.iter().copied().collect();
    windows
        .windows(2)
        .filter(|pair| pair[1].0 < pair[0].1)
        .map(|pair| format!("scope `{scope}`: the Windows {:?} and {:?} overlap", pair[0], pair[1]))
        .collect()
}

/// Frontiers that were closed, with what happened to their Scopes before.
fn closed_frontiers(events: &[Event]) -> Vec<String> {
    let closed = events.iter().filter(|event| event.name == "frontier_terminal");
    closed
        .map(|closed| {
            let history: Vec<String> = events
                .iter()
                .filter(|event| event.text("scope") == closed.text("scope") && event.at <= closed.at)
                .filter(|event| event.name.starts_with("worker_") || event.name.starts_with("window_"))
                .map(|event| format!("    {} {}: {}", event.at, event.by, event.fields))
                .collect();
            let last = &history[history.len().saturating_sub(12)..];
            format!("a frontier was closed: {}\n{}", closed.fields, last.join("\n"))
        })
        .collect()
}

/// Terms must grow in the order of their starts, each with one start (TM-182, TM-183).
fn terms(events: &[Event]) -> Vec<String> {
    let started: Vec<(&Event, i64)> = events
        .iter()
        .filter(|event| event.name == "term_started")
        .filter_map(|event| Some((event, event.number("supervisor_generation")?)))
        .collect();
    started
        .windows(2)
        .filter(|pair| pair[1].1 <= pair[0].1)
        .map(|pair| format!("term {} of {} began after term {}", pair[1].1, pair[1].0.by, pair[0].1))
        .collect()
}

/// Terms that their leader ended itself, or says that it left.
fn released(events: &[Event]) -> Vec<i64> {
    events
        .iter()
        .filter(|event| matches!(event.name.as_str(), "lease_released" | "stepped_down"))
        .filter_map(|event| event.number("supervisor_generation"))
        .collect()
}

fn panics(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .filter(|event| event.name == "process.panic")
        .map(|event| format!("{} panicked: {}", event.by, event.fields))
        .collect()
}
