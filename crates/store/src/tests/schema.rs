use powercontext_core::ambient::SystemIds;

use super::databases;
use crate::database::Engine;
use crate::{OpenError, Store, StoreOptions, migrate, scopes};

#[tokio::test]
async fn migrating_again_changes_nothing() {
    // TM-077
    for database in databases().await {
        let before = database.dump().await;
        let report = migrate(&database.options, &SystemIds).await.unwrap();
        assert_eq!((report.applied, report.current), (Vec::new(), 1));
        assert_eq!(database.dump().await, before);
    }
}

#[tokio::test]
async fn a_fresh_database_has_the_default_scope_and_nothing_else() {
    for database in databases().await {
        let default = scopes::default(&database.store).await.unwrap().unwrap();
        assert_eq!((default.title.as_str(), default.summary.as_str()), ("Default", "Default context"));
        let all = scopes::list(&database.store, &Default::default(), None, 10).await.unwrap();
        assert_eq!(all, [default]);
    }
}

#[tokio::test]
async fn a_missing_database_is_refused_and_not_made() {
    for database in databases().await {
        let path = database.options.url.path().map(|path| path.with_file_name("missing.db"));
        let url = match &path {
            Some(path) => crate::DatabaseUrl::file(path),
            None => super::server_url().unwrap().0,
        };
        let options = StoreOptions { url, ..database.options.clone() };
        for _ in 0..2 {
            assert!(matches!(Store::open(&options).await, Err(OpenError::SchemaMissing)));
        }
        assert!(path.is_none_or(|path| !path.exists()));
    }
}

#[tokio::test]
async fn a_newer_a_changed_and_an_older_schema_are_each_refused_by_name() {
    for database in databases().await {
        database
            .run("INSERT INTO pc_schema_migrations VALUES (99, 'later', 'x', '2030-01-01T00:00:00.000Z')")
            .await;
        assert!(matches!(
            Store::open(&database.options).await,
            Err(OpenError::SchemaNewer { found: 99, known: 1 })
        ));
        assert!(matches!(
            migrate(&database.options, &SystemIds).await,
            Err(OpenError::SchemaNewer { found: 99, known: 1 })
        ));
        database.run("DELETE FROM pc_schema_migrations WHERE number = 99").await;
        database.run("UPDATE pc_schema_migrations SET checksum = 'other'").await;
        assert!(matches!(
            Store::open(&database.options).await,
            Err(OpenError::MigrationChanged { number: 1 })
        ));
        database.run("DELETE FROM pc_schema_migrations").await;
        assert!(matches!(Store::open(&database.options).await, Err(OpenError::SchemaMissing)));
    }
}

#[tokio::test]
async fn another_retrieval_shape_is_refused_and_a_missing_one_is_written_only_without_topics() {
    // TM-149 TM-257 B-20
    for database in databases().await {
        database.run("UPDATE pc_topic_memory_retrieval_shape SET shape = 'hybrid'").await;
        assert!(matches!(Store::open(&database.options).await, Err(OpenError::RetrievalShape { .. })));
        assert!(matches!(
            migrate(&database.options, &SystemIds).await,
            Err(OpenError::RetrievalShape { .. })
        ));
        database.run("DELETE FROM pc_topic_memory_retrieval_shape").await;
        migrate(&database.options, &SystemIds).await.unwrap();
        Store::open(&database.options).await.unwrap();
        let scope = database.scope("a").await;
        database.publish(&scope, vec![super::create("t", "Title", "Summary", "Detail")]).await;
        database.run("DELETE FROM pc_topic_memory_retrieval_shape").await;
        assert!(matches!(
            migrate(&database.options, &SystemIds).await,
            Err(OpenError::RetrievalShape { .. })
        ));
    }
}

#[tokio::test]
async fn an_identity_column_that_does_not_compare_by_bytes_is_refused() {
    for database in databases().await {
        if database.engine() == Engine::Sqlite {
            continue;
        }
        database
            .run("CREATE TABLE pc_later (scope_id VARCHAR(256) COLLATE utf8mb4_general_ci PRIMARY KEY)")
            .await;
        let column = "pc_later.scope_id";
        for refused in [
            Store::open(&database.options).await.map(|_| ()),
            migrate(&database.options, &SystemIds).await.map(|_| ()),
        ] {
            assert!(
                matches!(&refused, Err(OpenError::Collation { column: found, .. }) if found == column),
                "{refused:?}"
            );
        }
        database.run("DROP TABLE pc_later").await;
        Store::open(&database.options).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_migrations_at_once_one_does_the_work_and_all_succeed() {
    // TM-077
    // A SQLite file has one process and so one run.
    let server = super::server_url();
    if let Some((url, _)) = server.clone() {
        let options = super::test_options(url);
        let mut runs = Vec::new();
        for _ in 0..3 {
            let options = options.clone();
            runs.push(tokio::spawn(async move { migrate(&options, &SystemIds).await }));
        }
        let mut applied = 0;
        for run in runs {
            applied += run.await.unwrap().unwrap().applied.len();
        }
        assert_eq!(applied, 1);
        let store = Store::open(&options).await.unwrap();
        assert_eq!(scopes::list(&store, &Default::default(), None, 10).await.unwrap().len(), 1);
    }
    drop(server.map(|(url, name)| super::Place::Server(super::test_options(url), name)));
}

#[tokio::test]
async fn a_migration_that_was_interrupted_continues() {
    for database in databases().await {
        if database.engine() == Engine::Sqlite {
            continue;
        }
        let before = database.dump().await;
        for table in ["pc_topic_memory_active_chunks", "pc_sources", "pc_default_scope"] {
            database.run(&format!("DROP TABLE {table}")).await;
        }
        database.run("DELETE FROM pc_scopes").await;
        database.run("DELETE FROM pc_source_journals").await;
        database.run("DELETE FROM pc_schema_migrations").await;
        assert!(matches!(Store::open(&database.options).await, Err(OpenError::SchemaMissing)));
        assert_eq!(migrate(&database.options, &SystemIds).await.unwrap().applied, [1]);
        let tables = |dump: &std::collections::BTreeMap<String, Vec<String>>| {
            dump.iter().map(|(table, rows)| (table.clone(), rows.len())).collect::<Vec<_>>()
        };
        assert_eq!(tables(&database.dump().await), tables(&before));
    }
}
