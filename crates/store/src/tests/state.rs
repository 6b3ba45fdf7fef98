//! How far a schema is, told without changing it.

use powercontext_core::ambient::SystemIds;

use super::databases;
use crate::database::values;
use crate::migrations::MIGRATIONS;
use crate::{OpenError, SchemaState, migrate, schema_state};

#[tokio::test]
async fn the_state_of_a_schema_names_what_a_migration_would_apply() {
    for database in databases().await {
        let newest = MIGRATIONS.last().unwrap();
        let needed = newest.number;
        let state = schema_state(&database.options).await.unwrap();
        assert_eq!(state, SchemaState { current: needed, needed, pending: Vec::new() });
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
