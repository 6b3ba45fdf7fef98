//! What decides on the edge: the clock, a statement that fails, a reply that is lost.

use super::*;
use crate::database::{Twin, values};

/// Seconds since the recorded completion, by the database's clock.
const AGE: Twin = Twin {
    sqlite: "SELECT CAST(unixepoch('now') - unixepoch(last_auto_wave_completed_at) AS INTEGER) \
        FROM pc_artifact_processing_binding_states",
    oceanbase: "SELECT timestampdiff(second, last_auto_wave_completed_at, utc_timestamp(6)) \
        FROM pc_artifact_processing_binding_states",
};

impl TestDatabase {
    async fn age(&self) -> Option<i64> {
        let mut reader = self.store.database.read().await.unwrap();
        reader.query_one(AGE, values![]).await.unwrap().and_then(|row| row.optional_integer(0).unwrap())
    }

    /// Makes this kind of change of the table fail.
    async fn break_at(&self, table: &str, event: &str) {
        let broken = match self.engine() {
            Engine::Sqlite => "BEGIN SELECT RAISE(ABORT, 'broken'); END",
            Engine::OceanBase => "FOR EACH ROW BEGIN SIGNAL SQLSTATE '45000'; END",
        };
        self.run(&format!("CREATE TRIGGER broken BEFORE {event} ON {table} {broken}")).await;
    }

    /// A wave `w` whose one target is covered, and its Scope.
    async fn covered_wave(&self, fence: &Fence) -> ScopeId {
        let scope = self.scope("one").await;
        self.capture(&scope, 1).await;
        assert_eq!(self.freeze(fence, "w").await, Freeze::Frozen { members: 1 });
        self.cover(fence, &scope, WorkMode::Automatic).await;
        scope
    }
}

#[tokio::test]
async fn the_clock_of_the_database_decides_to_the_second_when_a_binding_is_due() {
    // TM-191 TM-192 TM-203 TM-204
    for database in databases().await {
        let fence = database.term().await;
        let scope = database.covered_wave(&fence).await;
        assert_eq!(database.age().await, None, "a wave that is not complete sets no time");
        database.complete(&fence, "w").await;
        assert!((0..30).contains(&database.age().await.unwrap()), "{:?}", database.age().await);
        database.capture(&scope, 1).await;
        // Completed exactly one interval ago, or longer.
        database.pass(60).await;
        assert_eq!(database.freeze(&fence, "v").await, Freeze::Frozen { members: 1 });
        let hour = Duration::from_secs(3600);
        let early = waves::freeze(&database.store, &fence, &wave("v"), hour).await.unwrap();
        let Freeze::NotDue { remaining } = early else { panic!("{early:?}") };
        let expected = Duration::from_secs(3510)..=Duration::from_secs(3540);
        assert!(expected.contains(&remaining), "{remaining:?}");
        assert_eq!(database.targets("v", 9).await.len(), 1, "a refusal leaves the targets");
        database
            .run("UPDATE pc_artifact_processing_binding_states SET last_auto_wave_completed_at = NULL")
            .await;
        assert_eq!(database.freeze(&fence, "u").await, Freeze::Frozen { members: 1 });
    }
}

#[tokio::test]
async fn a_completion_in_the_future_delays_by_one_interval_at_most() {
    // TM-204
    for database in databases().await {
        let fence = database.term().await;
        let scope = database.covered_wave(&fence).await;
        database.complete(&fence, "w").await;
        database.capture(&scope, 1).await;
        let ahead = match database.engine() {
            Engine::Sqlite => "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 day')",
            Engine::OceanBase => "timestampadd(day, 1, utc_timestamp(6))",
        };
        database
            .run(&format!(
                "UPDATE pc_artifact_processing_binding_states SET last_auto_wave_completed_at = {ahead}"
            ))
            .await;
        assert_eq!(database.freeze(&fence, "v").await, Freeze::NotDue { remaining: MINUTE });
    }
}

#[tokio::test]
async fn a_statement_that_fails_undoes_the_whole_freeze_mark_or_completion() {
    // TM-207 TM-214 TM-215
    let (targets, leases) = ("pc_artifact_processing_auto_wave_targets", "pc_artifact_processing_leases");
    for database in databases().await {
        let (store, fence) = (&database.store, database.term().await);
        let scope = database.covered_wave(&fence).await;
        for (table, event) in [(targets, "INSERT"), (targets, "DELETE"), (leases, "UPDATE")] {
            database.break_at(table, event).await;
            let before = database.dump().await;
            let failed = waves::freeze(store, &fence, &wave("v"), MINUTE).await;
            assert!(matches!(failed, Err(WaveError::Store(_))), "{table} {event}: {failed:?}");
            assert_eq!(database.dump().await, before, "{table} {event}");
            database.run("DROP TRIGGER broken").await;
        }
        database.break_at(leases, "UPDATE").await;
        let before = database.dump().await;
        let scopes = [scope.clone()];
        assert!(waves::mark_covered(store, &fence, &wave("w"), &scopes).await.is_err());
        assert!(waves::clear(store, &fence).await.is_err());
        assert_eq!(database.dump().await, before);
        database.run("DROP TRIGGER broken").await;
        let states = "pc_artifact_processing_binding_states";
        for (table, event) in
            [("pc_artifact_processing_pending", "DELETE"), (states, "INSERT"), (leases, "UPDATE")]
        {
            database.break_at(table, event).await;
            let before = database.dump().await;
            let failed = waves::complete(store, &fence, &wave("w")).await;
            assert!(matches!(failed, Err(WaveError::Store(_))), "{table} {event}: {failed:?}");
            assert_eq!(database.dump().await, before, "{table} {event}");
            database.run("DROP TRIGGER broken").await;
        }
        assert_eq!(database.complete(&fence, "w").await, Completion::Completed { removed: 1 });
    }
}

#[tokio::test]
async fn targets_that_a_completed_wave_leaves_behind_remove_nothing_and_go_with_the_next_freeze() {
    // TM-170 TM-206 TM-214
    for database in databases().await {
        let fence = database.term().await;
        let scope = database.covered_wave(&fence).await;
        let table = "pc_artifact_processing_auto_wave_targets";
        database.break_at(table, "DELETE").await;
        assert_eq!(database.complete(&fence, "w").await, Completion::Completed { removed: 1 });
        assert_eq!(database.dump().await[table].len(), 1);
        database.capture(&scope, 1).await;
        database.pass(30).await;
        assert_eq!(database.complete(&fence, "w").await, Completion::Completed { removed: 0 });
        assert!(database.age().await.unwrap() < 30, "the time is that of the last answer");
        assert_eq!(database.pending(&scope).await.unwrap().source_through, Position::new(2));
        database.run("DROP TRIGGER broken").await;
        database.pass(60).await;
        assert_eq!(database.freeze(&fence, "v").await, Freeze::Frozen { members: 1 });
        assert_eq!(database.complete(&fence, "w").await, Completion::Gone);
        assert_eq!(database.targets("v", 9).await, [(scope, 2)]);
    }
}

#[tokio::test]
async fn a_lease_whose_time_is_over_changes_nothing_of_a_wave() {
    // TM-184 TM-194 TM-272
    for database in databases().await.into_iter().filter(|database| database.engine() == Engine::OceanBase) {
        let (store, fence) = (&database.store, database.term().await);
        let scopes = [database.covered_wave(&fence).await];
        let over = "UPDATE pc_artifact_processing_leases \
            SET lease_expires_at = timestampadd(second, -1, utc_timestamp(6))";
        database.run(over).await;
        let before = database.dump().await;
        let wave = wave("w");
        for refused in [
            waves::clear(store, &fence).await.map(drop),
            waves::freeze(store, &fence, &wave, MINUTE).await.map(drop),
            waves::mark_covered(store, &fence, &wave, &scopes).await.map(drop),
            waves::complete(store, &fence, &wave).await.map(drop),
        ] {
            assert!(matches!(refused, Err(WaveError::Fenced)), "{refused:?}");
        }
        assert_eq!(database.dump().await, before);
    }
}

#[tokio::test]
async fn a_term_that_ends_while_a_wave_is_changed_undoes_the_change() {
    // TM-184 TM-186 TM-194 TM-214
    let targets = "pc_artifact_processing_auto_wave_targets";
    for database in databases().await {
        let (store, fence) = (&database.store, database.term().await);
        let scopes = [database.covered_wave(&fence).await];
        for (table, event) in [
            (targets, "UPDATE"),
            (targets, "DELETE"),
            (targets, "INSERT"),
            ("pc_artifact_processing_pending", "DELETE"),
        ] {
            let row = if database.engine() == Engine::Sqlite { "" } else { "FOR EACH ROW " };
            let next =
                "UPDATE pc_artifact_processing_leases SET supervisor_generation = supervisor_generation + 1";
            database
                .run(&format!("CREATE TRIGGER broken BEFORE {event} ON {table} {row}BEGIN {next}; END"))
                .await;
            let before = database.dump().await;
            let changed = match (table == targets, event) {
                (true, "UPDATE") => waves::mark_covered(store, &fence, &wave("w"), &scopes).await.map(drop),
                (true, "DELETE") => waves::clear(store, &fence).await.map(drop),
                (true, _) => waves::freeze(store, &fence, &wave("v"), MINUTE).await.map(drop),
                (false, _) => waves::complete(store, &fence, &wave("w")).await.map(drop),
            };
            assert!(matches!(changed, Err(WaveError::Fenced)), "{table} {event}: {changed:?}");
            assert_eq!(database.dump().await, before, "{table} {event}");
            database.run("DROP TRIGGER broken").await;
        }
    }
}
