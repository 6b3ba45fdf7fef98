//! How far a schema is, told without changing it.

use powercontext_core::ambient::SystemIds;

use super::databases;
use crate::database::{Database, Engine, values};
use crate::migrations::{self, MIGRATIONS};
use crate::{OpenError, SchemaState, Store, migrate, schema_state};

#[tokio::test]
async fn the_state_of_a_schema_names_what_a_migration_would_apply() {
    for database in databases().await {
        let newest = MIGRATIONS.last().unwrap();
        let needed = newest.number;
        let state = schema_state(&database.options).await.unwrap();
        assert_eq!(state, SchemaState { current: needed, needed, pending: Vec::new(), unfinished: false });
        let forget = |number: i64| {
            let store = database.store.clone();
            async move {
                let mut tx = store.database.write().await.unwrap();
                tx.execute("DELETE FROM pc_schema_migrations WHERE number >= ?", values![number])
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            }
        };
        forget(needed).await;
        let state = schema_state(&database.options).await.unwrap();
        assert_eq!((state.current, state.pending), (needed - 1, vec![(needed, newest.name)]));
        forget(0).await;
        let state = schema_state(&database.options).await.unwrap();
        assert_eq!((state.current, state.pending.len()), (0, MIGRATIONS.len()));
        let before = database.dump().await;
        schema_state(&database.options).await.unwrap();
        assert_eq!(database.dump().await, before);
    }
}

#[tokio::test]
async fn a_schema_that_no_migration_could_bring_up_to_date_is_refused() {
    for database in databases().await {
        let later = "INSERT INTO pc_schema_migrations (number, name, checksum, applied_at) VALUES (9999, 'x', 'x', 'x')";
        let mut tx = database.store.database.write().await.unwrap();
        tx.execute(later, values![]).await.unwrap();
        tx.commit().await.unwrap();
        let refused = schema_state(&database.options).await;
        assert!(matches!(refused, Err(OpenError::SchemaNewer { found: 9999, .. })), "{refused:?}");
        assert!(migrate(&database.options, &SystemIds).await.is_err());
    }
}

#[tokio::test]
async fn a_migration_that_died_before_its_last_writes_is_told_refused_and_finished_by_the_next() {
    // TM-077 TM-257
    for database in databases().await {
        let needed = MIGRATIONS.last().unwrap().number;
        let unfinished = Ok(SchemaState { current: needed, needed, pending: Vec::new(), unfinished: true });
        for lost in [
            "DELETE FROM pc_topic_memory_retrieval_shape",
            "DELETE FROM pc_default_scope",
            "UPDATE pc_topic_memory_retrieval_shape SET analyzer_version = analyzer_version + 1",
        ] {
            database.run(lost).await;
            let state = schema_state(&database.options).await.map_err(|error| error.to_string());
            assert_eq!(state, unfinished, "{lost}");
            let refused = Store::open(&database.options).await;
            match lost.starts_with("UPDATE") {
                false => assert!(matches!(refused, Err(OpenError::Unfinished)), "{refused:?}"),
                true => assert!(matches!(refused, Err(OpenError::SearchRecords { .. })), "{refused:?}"),
            }
            assert!(migrate(&database.options, &SystemIds).await.unwrap().applied.is_empty());
            assert!(schema_state(&database.options).await.unwrap().is_current());
            Store::open(&database.options).await.unwrap().close().await;
        }
        database.run("DELETE FROM pc_default_scope").await;
        database.run("UPDATE pc_topic_memory_retrieval_shape SET shape = 'hybrid'").await;
        let refused = schema_state(&database.options).await;
        assert!(matches!(refused, Err(OpenError::RetrievalShape { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_history_with_a_gap_is_refused_and_nothing_is_applied() {
    for database in databases().await {
        let newest = MIGRATIONS.last().unwrap().number;
        database.run("DELETE FROM pc_schema_migrations WHERE number = 1").await;
        let before = database.dump().await;
        for refused in [
            Store::open(&database.options).await.map(drop),
            migrate(&database.options, &SystemIds).await.map(drop),
            schema_state(&database.options).await.map(drop),
        ] {
            assert!(
                matches!(refused, Err(OpenError::MigrationMissing { number: 1, found }) if found == newest),
                "{refused:?}"
            );
        }
        assert_eq!(database.dump().await, before);
    }
}

#[tokio::test]
async fn tables_of_another_program_are_refused_by_name_and_left_alone() {
    for database in databases().await {
        let (options, _place) = database.beside("foreign.db");
        let foreign = migrations::open_or_create(&options.target(true)).await.unwrap();
        let run = async |text: &str| {
            foreign.session().await.unwrap().command(text.to_owned()).await.unwrap();
        };
        run("CREATE TABLE pc_scopes (name VARCHAR(9) PRIMARY KEY)").await;
        run("CREATE TABLE pc_schema_migrations (version VARCHAR(9) PRIMARY KEY)").await;
        let mut left = vec!["pc_schema_migrations", "pc_scopes"];
        while let Some(first) = left.first() {
            for refused in [
                migrate(&options, &SystemIds).await.map(drop),
                Store::open(&options).await.map(drop),
                schema_state(&options).await.map(drop),
            ] {
                let Err(OpenError::ForeignTable { table }) = &refused else { panic!("{refused:?}") };
                assert_eq!(table, first);
            }
            assert_eq!(tables(&foreign).await, left);
            run(&format!("DROP TABLE {first}")).await;
            left.remove(0);
        }
        if database.engine() == Engine::OceanBase {
            // All that a run leaves which dies at its beginning.
            run("CREATE TABLE pc_schema_lock (singleton BIGINT PRIMARY KEY)").await;
        }
        migrate(&options, &SystemIds).await.unwrap();
        foreign.close().await;
    }
}

async fn tables(database: &Database) -> Vec<String> {
    let mut reader = database.read().await.unwrap();
    let rows = reader.query(super::TABLES, values![]).await.unwrap();
    rows.iter().map(|row| row.text(0).unwrap()).collect()
}
