//! Only OceanBase elects: acquisition, renewal, expiry and what a worker of an older term may do.

use std::time::Duration;

use powercontext_core::ids::{HolderId, Position};
use powercontext_core::work::{ErrorCode, Fence};

use super::{TestDatabase, create, key, oceanbase, request, sqlite};
use crate::budgets::{self, Reservation, Reserve};
use crate::publish::{PublishError, publish};
use crate::{leases, pending};

const LONG: Duration = Duration::from_secs(600);

fn holder(name: &str) -> HolderId {
    HolderId::parse(name).unwrap()
}

/// Lets the lease be over by the database's clock, as if its time had passed.
async fn expire(database: &TestDatabase) {
    database
        .run(
            "UPDATE pc_artifact_processing_leases \
             SET lease_expires_at = timestampadd(second, -1, utc_timestamp(6))",
        )
        .await;
}

async fn won(database: &TestDatabase, name: &str) -> Fence {
    let generation = leases::acquire(&database.store, &holder(name), LONG).await.unwrap();
    Fence { holder: holder(name), generation: generation.unwrap() }
}

#[tokio::test]
async fn a_term_is_won_when_none_is_valid_and_only_winning_raises_the_generation() {
    // TM-180 TM-182 TM-183 TM-188
    let Some(database) = oceanbase().await else { return };
    let store = &database.store;
    let first = won(&database, "a").await;
    for name in ["a", "b"] {
        assert_eq!(leases::acquire(store, &holder(name), LONG).await.unwrap(), None, "{name}");
    }
    for _ in 0..3 {
        assert!(leases::renew(store, &first, LONG).await.unwrap());
    }
    assert_eq!(leases::current(store).await.unwrap(), Some(first.clone()));
    expire(&database).await;
    assert!(!leases::renew(store, &first, LONG).await.unwrap(), "an expired term is not renewed");
    let second = won(&database, "b").await;
    assert_eq!(second.generation, first.generation.next());
    assert!(!leases::renew(store, &first, LONG).await.unwrap());
    assert!(!leases::release(store, &first).await.unwrap());
    assert!(leases::renew(store, &second, LONG).await.unwrap());
    assert!(leases::release(store, &second).await.unwrap());
    let third = won(&database, "a").await;
    assert_eq!(third.generation, second.generation.next(), "a returning holder gets a later term");
    let forged = Fence { holder: holder("a"), generation: first.generation };
    assert!(!leases::renew(store, &forged, LONG).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_candidates_exactly_one_wins_each_term() {
    // TM-183 TM-188
    let Some(database) = oceanbase().await else { return };
    for round in 1..=5 {
        let mut candidates = Vec::new();
        for number in 0..8 {
            let store = if number % 2 == 0 { database.store.clone() } else { database.reopened().await };
            candidates.push(tokio::spawn(async move {
                leases::acquire(&store, &holder(&format!("c{number}")), LONG).await.unwrap()
            }));
        }
        let mut winners = Vec::new();
        for candidate in candidates {
            winners.extend(candidate.await.unwrap());
        }
        assert_eq!(winners.iter().map(|term| term.get()).collect::<Vec<_>>(), [round]);
        expire(&database).await;
    }
}

#[tokio::test]
async fn a_worker_of_an_expired_or_lost_term_commits_nothing() {
    // TM-184 TM-194 TM-272
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    database.capture(&scope, 1).await;
    let old = won(&database, "a").await;
    let attempt = database.attempt(&old, &key(&scope), 0).await;
    pending::flush(&database.store, &key(&scope)).await.unwrap();
    for takeover in [false, true] {
        expire(&database).await;
        if takeover {
            won(&database, "b").await;
        }
        let before = database.dump().await;
        let operations = vec![create("one", "One", "S", "kestrel")];
        let published = publish(&database.store, &request(attempt.clone(), 1, operations)).await;
        assert!(matches!(published, Err(PublishError::Fenced)), "{published:?}");
        let small = Reservation { requests: 1, tokens: 1, through: Position::new(1) };
        let reserved = budgets::reserve(&database.store, &attempt, small).await.unwrap();
        assert_eq!(reserved, Reserve::Superseded(ErrorCode::Fenced));
        assert!(!budgets::record_failure(&database.store, &attempt, ErrorCode::InvalidOutput).await.unwrap());
        let settled = pending::settle(&database.store, &old, &key(&scope)).await;
        assert!(matches!(settled, Err(pending::SettleError::Fenced)));
        assert_eq!(database.dump().await, before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_publish_that_holds_the_lease_row_keeps_the_next_term_waiting_until_its_commit() {
    // TM-157 TM-184
    let Some(database) = oceanbase().await else { return };
    let fence = won(&database, "a").await;
    let mut tx = database.store.database.write().await.unwrap();
    assert!(leases::hold(&mut tx, &fence).await.unwrap());
    let store = database.reopened().await;
    let release = tokio::spawn({
        let (store, fence) = (store.clone(), fence.clone());
        async move { leases::release(&store, &fence).await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!release.is_finished(), "the row is held");
    assert!(leases::is_current(&mut tx, &fence).await.unwrap());
    tx.commit().await.unwrap();
    assert!(release.await.unwrap());
    assert!(leases::acquire(&store, &holder("b"), LONG).await.unwrap().is_some());
}

#[tokio::test]
async fn an_embedded_term_and_an_elected_one_are_each_refused_by_the_other_database() {
    // TM-179 TM-185
    let on_file = sqlite().await;
    assert!(leases::acquire(&on_file.store, &holder("a"), LONG).await.is_err());
    assert!(!on_file.store.is_shared());
    let Some(database) = oceanbase().await else { return };
    assert!(leases::begin_embedded_term(&database.store, &holder("a")).await.is_err());
    assert!(database.store.is_shared());
}

#[tokio::test]
async fn a_lease_is_renewed_and_given_back_while_every_writing_connection_is_taken() {
    // TM-187
    let Some(database) = oceanbase().await else { return };
    let store = &database.store;
    let fence = won(&database, "a").await;
    let _taken = [store.database.write().await.unwrap(), store.database.write().await.unwrap()];
    let full = tokio::time::timeout(Duration::from_millis(200), store.database.write()).await;
    assert!(full.is_err(), "the pool of this test has two writers");
    let soon = Duration::from_secs(10);
    assert!(tokio::time::timeout(soon, leases::renew(store, &fence, LONG)).await.unwrap().unwrap());
    assert!(tokio::time::timeout(soon, leases::release(store, &fence)).await.unwrap().unwrap());
}
