//! What is said of a server that does not let the program in: one line each, without a secret.

use std::time::Duration;

use powercontext_core::ambient::SystemIds;
use powercontext_core::failure::chain;

use super::{SERVER, TestDatabase, oceanbase};
use crate::{DatabaseUrl, OpenError, Store, StoreOptions, migrate, schema_state};

/// What every way to the database says of it, which is the same.
async fn refusal(url: &str) -> OpenError {
    let options = StoreOptions::new(DatabaseUrl::parse(url).unwrap());
    let migrated = migrate(&options, &SystemIds).await.map(drop).unwrap_err();
    for other in [
        Store::open(&options).await.map(drop).unwrap_err(),
        schema_state(&options).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(chain(&other), chain(&migrated));
    }
    migrated
}

fn address(database: &TestDatabase) -> String {
    let base = std::env::var(SERVER).unwrap();
    let (_, place) = base.trim_end_matches('/').rsplit_once('@').unwrap();
    format!("{place}/{}", database.name())
}

/// Makes a user without rights. A busy seekdb refuses definitions of users now and then.
async fn user(database: &TestDatabase) -> String {
    let user = format!("u{}", &database.name()[8..28]);
    for _ in 0..50 {
        let mut session = database.store.database.session().await.unwrap();
        let made = session.command(format!("CREATE USER {user} IDENTIFIED BY 'hunter2'")).await;
        if made.is_ok() {
            return user;
        }
        database.run(&format!("DROP USER IF EXISTS {user}")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the engine makes no user");
}

#[tokio::test]
async fn an_unknown_user_a_wrong_password_and_a_missing_right_are_one_line() {
    // TM-228
    let Some(database) = oceanbase().await else { return };
    let user = user(&database).await;
    let place = address(&database);
    for login in ["nobody", &format!("{user}:hunter3"), &format!("{user}:hunter2")] {
        let refused = refusal(&format!("mysql://{login}@{place}")).await;
        assert!(matches!(refused, OpenError::AccessDenied), "{login}: {refused:?}");
        let line = chain(&refused);
        assert!(!line.contains('\n') && !line.contains("hunter"), "{line}");
    }
    database.run(&format!("GRANT ALL ON {}.* TO {user}", database.name())).await;
    let options = StoreOptions::new(DatabaseUrl::parse(&format!("mysql://{user}:hunter2@{place}")).unwrap());
    // The right takes a moment to be known on a busy engine.
    let mut opened = Store::open(&options).await;
    for _ in 0..50 {
        if !matches!(opened, Err(OpenError::AccessDenied)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        opened = Store::open(&options).await;
    }
    opened.unwrap().close().await;
    database.run(&format!("DROP USER IF EXISTS {user}")).await;
}

#[tokio::test]
async fn a_host_that_is_not_there_or_not_known_is_one_line() {
    for (place, reason) in [("127.0.0.1:1", "Connection refused"), ("nowhere.invalid", "")] {
        let refused = refusal(&format!("mysql://u:hunter2@{place}/x")).await;
        let line = chain(&refused);
        assert!(line.starts_with("no server answers there: ") && line.contains(reason), "{line}");
        assert!(!line.contains("hunter2") && !line.contains('\n'), "{line}");
    }
}
