use powercontext_core::ambient::SystemIds;

use super::databases;
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
        let path = database.options.url.path().with_file_name("missing.db");
        let options = StoreOptions { url: crate::DatabaseUrl::file(&path), ..database.options.clone() };
        assert!(matches!(Store::open(&options).await, Err(OpenError::SchemaMissing)));
        assert!(!path.exists());
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
