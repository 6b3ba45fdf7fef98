//! What a shared server adds: lost connections, locks that are held, two transactions at once.

use std::io::ErrorKind;
use std::time::Duration;

use powercontext_core::ids::{AttemptId, Position};
use powercontext_core::work::Frontier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{
    SERVER, TestDatabase, create, cut_off, databases, key, new_scope, new_source, oceanbase, request,
};
use crate::budgets::{self, AttemptFence, start_attempt};
use crate::database::{Transaction, values};
use crate::publish::{PublishError, publish};
use crate::{
    DatabaseErrorKind, DatabaseUrl, OpenError, Store, StoreError, StoreOptions, cursors, pending, scopes,
    sources, topics,
};

/// What becomes of the bytes between a store and its server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Works,
    /// Every connection ends at once, as while a server restarts.
    Refuses,
    /// Connections are taken and nothing is ever answered, as behind a broken network.
    Silent,
    /// Every connection ends once the server has committed, before the answer arrives.
    LosesCommits,
}

/// A line to the server of a database that a test can cut.
struct Wire {
    line: watch::Sender<Line>,
    store: Store,
    options: StoreOptions,
}

impl Wire {
    async fn to(database: &TestDatabase) -> Self {
        let base = std::env::var(SERVER).unwrap();
        let (user, server) = base.trim_end_matches('/').rsplit_once('@').unwrap();
        let (server, database_name) = (server.to_owned(), database.name());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{user}@{}/{database_name}", listener.local_addr().unwrap());
        let (line, watched) = watch::channel(Line::Works);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), watched.clone()));
            }
        });
        let options = StoreOptions { url: DatabaseUrl::parse(&url).unwrap(), ..database.options.clone() };
        let store = Store::open(&options).await.unwrap();
        Self { line, store, options }
    }
}

async fn carry(mut client: TcpStream, server: String, mut line: watch::Receiver<Line>) {
    if *line.borrow() == Line::Refuses {
        return;
    }
    let Ok(mut upstream) = TcpStream::connect(server).await else { return };
    loop {
        let now = *line.borrow_and_update();
        let ended = match now {
            Line::Refuses => true,
            Line::Silent => line.changed().await.is_err(),
            Line::Works => tokio::select! {
                _ = copy_bidirectional(&mut client, &mut upstream) => true,
                changed = line.changed() => changed.is_err(),
            },
            Line::LosesCommits => lose_commit(&mut client, &mut upstream).await.is_err(),
        };
        if ended {
            return;
        }
    }
}

/// Carries one request and its answer; fails instead of handing over the answer to a commit.
async fn lose_commit(client: &mut TcpStream, upstream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    tokio::select! {
        read = client.read(&mut bytes) => {
            let sent = bytes.get(..read?).filter(|sent| !sent.is_empty()).ok_or(ErrorKind::UnexpectedEof)?;
            let commits = sent.ends_with(b"COMMIT");
            upstream.write_all(sent).await?;
            if commits {
                upstream.readable().await?;
                return Err(ErrorKind::ConnectionReset.into());
            }
        }
        answer = upstream.readable() => {
            answer?;
            let read = upstream.read(&mut bytes).await?;
            let answer = bytes.get(..read).filter(|answer| !answer.is_empty());
            client.write_all(answer.ok_or(ErrorKind::UnexpectedEof)?).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_commit_without_an_answer_is_never_repeated_and_asking_again_finds_what_it_did() {
    // TM-065 TM-184 TM-273
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    let fence = database.term().await;
    let wire = Wire::to(&database).await;
    let unknown = |error: &(dyn std::error::Error + 'static)| {
        assert_eq!(crate::database::kind_of(error), Some(DatabaseErrorKind::CommitUnknown), "{error:?}");
    };
    let new = new_source(&scope, "s", "text");
    let attempt_id = AttemptId::parse("one").unwrap();
    let frontier = Frontier { key: key(&scope), source_after: Position::default() };
    let attempt = AttemptFence { fence: fence.clone(), frontier: frontier.clone(), attempt_id };

    wire.line.send(Line::LosesCommits).unwrap();
    unknown(&sources::add(&wire.store, &new).await.unwrap_err());
    unknown(&pending::flush(&wire.store, &key(&scope)).await.unwrap_err());
    unknown(&start_attempt(&wire.store, &fence, &frontier, &attempt.attempt_id).await.unwrap_err());
    let window = request(attempt.clone(), 1, vec![create("t", "Kestrel", "Summary", "Detail")]);
    let fact = pending::get(&database.store, &key(&scope)).await.unwrap().unwrap();
    assert_eq!((fact.source_through.get(), fact.flush_generation.get()), (1, 1));
    let budget = budgets::get(&database.store, &frontier).await.unwrap().unwrap();
    assert_eq!(budget.attempts, 1, "counted once");
    unknown(&publish(&wire.store, &window).await.unwrap_err());
    assert_eq!(wire.store.busy_retries(), 0);

    wire.line.send(Line::Works).unwrap();
    let again = sources::add(&wire.store, &new).await.unwrap();
    assert_eq!((again.position.get(), again.replayed), (1, true));
    let again = publish(&wire.store, &window).await;
    assert!(matches!(again, Err(PublishError::AttemptSuperseded)), "{again:?}");
    assert_eq!(cursors::get(&wire.store, &key(&scope)).await.unwrap().get(), 1);
    assert_eq!(database.search(&scope, "kestrel").await.len(), 1);
}

#[tokio::test]
async fn a_server_that_is_away_is_an_error_at_once_and_the_same_store_works_when_it_is_back() {
    // TM-184
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    let wire = Wire::to(&database).await;
    let mut written = 0;
    for _ in 0..3 {
        wire.line.send(Line::Refuses).unwrap();
        for number in 0..5 {
            let new = new_source(&scope, &format!("s{number}"), "text");
            let (added, head, ping) = timeout(Duration::from_secs(3), async {
                let added = sources::add(&wire.store, &new).await;
                (added, sources::head(&wire.store, &scope).await, wire.store.ping().await)
            })
            .await
            .expect("a refused connection is not waited for");
            let refused = added.map(drop).is_err() && head.is_err();
            assert!(refused && matches!(ping, Err(StoreError::Unavailable { .. })), "{ping:?}");
        }
        let opened = Store::open(&wire.options).await.map(drop);
        assert!(matches!(opened, Err(OpenError::Unreachable { .. })), "{opened:?}");
        wire.line.send(Line::Works).unwrap();
        sources::add(&wire.store, &new_source(&scope, &format!("w{written}"), "text")).await.unwrap();
        written += 1;
        assert_eq!(sources::head(&wire.store, &scope).await.unwrap().get(), written);
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up_in_bounded_time() {
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    let wire = Wire::to(&database).await;
    wire.line.send(Line::Silent).unwrap();
    let calls = (0..6).map(|number| {
        let (store, new) = (wire.store.clone(), new_source(&scope, &format!("s{number}"), "text"));
        tokio::spawn(async move { sources::add(&store, &new).await.is_err() })
    });
    let calls: Vec<_> = calls.collect();
    for call in calls {
        assert!(timeout(Duration::from_secs(40), call).await.expect("no call waits for ever").unwrap());
    }
    wire.line.send(Line::Works).unwrap();
    assert_eq!(sources::add(&wire.store, &new_source(&scope, "s", "text")).await.unwrap().position.get(), 1);
}

#[tokio::test]
async fn idle_connections_that_were_cut_off_are_replaced_unseen() {
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    for _ in 0..3 {
        cut_off(&database.store.database).await;
        database.capture(&scope, 1).await;
        cut_off(&database.store.database).await;
        cursors::get(&database.store, &key(&scope)).await.unwrap();
        cut_off(&database.store.database).await;
        assert!(database.search(&scope, "kestrel").await.is_empty());
        cut_off(&database.store.database).await;
        database.store.ping().await.unwrap();
    }
    assert_eq!(sources::head(&database.store, &scope).await.unwrap().get(), 3);
}

#[tokio::test]
async fn a_transaction_that_was_cut_off_leaves_nothing_and_says_so() {
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    let before = database.dump().await;
    let mut tx = database.store.database.write().await.unwrap();
    tx.execute("UPDATE pc_source_journals SET head = 7 WHERE scope_id = ?", values![scope.as_str()])
        .await
        .unwrap();
    cut_off(&database.store.database).await;
    let error = tx.execute("UPDATE pc_source_journals SET head = 8", values![]).await.unwrap_err();
    assert_eq!(error.kind, DatabaseErrorKind::Lost, "{error:?}");
    drop(tx);
    assert_eq!(database.dump().await, before);
    database.capture(&scope, 1).await;
}

#[tokio::test]
async fn a_lock_that_stays_held_ends_in_a_counted_bounded_wait_and_then_an_error() {
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    let mut tx = database.store.database.write().await.unwrap();
    sources::lock_journal(&mut tx, &scope).await.unwrap();
    let store = database.reopened().await;
    let refused = sources::add(&store, &new_source(&scope, "s", "text")).await;
    let Err(sources::AddSourceError::Store(StoreError::Unavailable { source, .. })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(source.kind, DatabaseErrorKind::Busy, "{source:?}");
    assert_eq!(store.busy_retries(), 3);
    tx.roll_back().await;
    assert_eq!(sources::add(&store, &new_source(&scope, "s", "text")).await.unwrap().position.get(), 1);
}

/// What the server says of a session's limit on transactions, in seconds.
async fn transaction_limit(tx: &mut Transaction) -> i64 {
    let row = tx.query_one("SELECT @@session.ob_trx_timeout", values![]).await.unwrap().unwrap();
    row.integer(0).unwrap() / 1_000_000
}

#[tokio::test]
async fn every_transaction_is_limited_on_the_server_and_only_waves_and_migrations_last_longer() {
    let Some(database) = oceanbase().await else { return };
    let store = &database.store.database;
    assert_eq!(transaction_limit(&mut store.write().await.unwrap()).await, 15);
    assert_eq!(transaction_limit(&mut store.read().await.unwrap()).await, 15);
    assert_eq!(transaction_limit(&mut store.snapshot().await.unwrap()).await, 15);
    assert_eq!(transaction_limit(&mut store.session().await.unwrap()).await, 600);
    let limit = |mut tx: Transaction| async move { Ok::<_, StoreError>(transaction_limit(&mut tx).await) };
    assert_eq!(store.transact("test", limit).await.unwrap(), 15);
    assert_eq!(store.transact_lease("test", limit).await.unwrap(), 15);
    assert_eq!(store.transact_long("test", limit).await.unwrap(), 300);
    assert_eq!(store.transact("test", limit).await.unwrap(), 15, "a wave's limit stays on its connection");
}

#[tokio::test]
async fn a_process_that_falls_silent_in_a_transaction_loses_its_locks_at_the_limit_and_may_begin_again() {
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    let mut silent = database.store.database.session().await.unwrap();
    for text in ["SET SESSION ob_trx_timeout = 1000000", "START TRANSACTION"] {
        silent.command(text.to_owned()).await.unwrap();
    }
    sources::lock_journal(&mut silent, &scope).await.unwrap();
    let store = database.reopened().await;
    let added = sources::add(&store, &new_source(&scope, "s", "text")).await.unwrap();
    assert_eq!(added.position.get(), 1);
    let error = sources::lock_journal(&mut silent, &scope).await.unwrap_err();
    assert_eq!(error.kind, DatabaseErrorKind::Busy, "{error:?}");
    let mut slow = database.store.database.write().await.unwrap();
    slow.command("SET SESSION ob_query_timeout = 10000".to_owned()).await.unwrap();
    let error = slow.query("SELECT sleep(1)", values![]).await.map(drop).unwrap_err();
    assert_eq!(error.kind, DatabaseErrorKind::Other, "one slow statement is not asked again: {error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flush_waits_for_a_capture_that_has_not_committed_and_covers_it() {
    // TM-165
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    database.capture(&scope, 1).await;
    let mut tx = database.store.database.write().await.unwrap();
    sources::lock_journal(&mut tx, &scope).await.unwrap();
    let flush = tokio::spawn({
        let (store, key) = (database.reopened().await, key(&scope));
        async move { pending::flush(&store, &key).await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!flush.is_finished());
    tx.execute("UPDATE pc_source_journals SET head = 2 WHERE scope_id = ?", values![scope.as_str()])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(flush.await.unwrap(), pending::Flush::Accepted);
    let page = pending::page(&database.store, None, 10).await.unwrap();
    assert_eq!(page[0].source_through.get(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_key_used_by_many_creations_at_once_makes_one_scope() {
    for database in databases().await {
        let long = ["é", "aé", "词", "a词", "aa词"].map(|key| key.repeat(512 / key.chars().count()));
        let stores = [database.reopened().await, database.reopened().await, database.store.clone()];
        for key in ["same".to_owned()].into_iter().chain(long) {
            let creations: Vec<_> = stores
                .iter()
                .chain(&stores)
                .map(|store| {
                    let (store, new) = (store.clone(), new_scope(&key));
                    tokio::spawn(async move { scopes::create(&store, &new).await.unwrap().scope_id })
                })
                .collect();
            let mut made = Vec::new();
            for creation in creations {
                made.push(creation.await.unwrap());
            }
            made.dedup();
            assert_eq!(made.len(), 1, "{made:?}");
        }
    }
}

#[tokio::test]
async fn an_error_of_the_server_about_a_value_does_not_repeat_it() {
    let Some(database) = oceanbase().await else { return };
    let scope = database.scope("a").await;
    let identity = "someone@example.com";
    database.run("CREATE TABLE pc_numbers (number BIGINT PRIMARY KEY)").await;
    let source = "INSERT INTO pc_sources (scope_id, position, source_type, source_id, content_digest, \
                  content) VALUES (?, ?, 'content', ?, 'd', 'c')";
    let mut tx = database.store.database.write().await.unwrap();
    tx.execute(source, values![scope.as_str(), 1, identity]).await.unwrap();
    let taken = tx.execute(source, values![scope.as_str(), 2, identity]).await.unwrap_err();
    assert_eq!(taken.kind, DatabaseErrorKind::UniqueViolation);
    let wrong = tx.execute("INSERT INTO pc_numbers VALUES (?)", values![identity]).await.unwrap_err();
    for (error, number) in [(taken, "1062"), (wrong, "1366")] {
        let error = StoreError::at("test")(error);
        let told = format!("{error:?} {}", powercontext_core::failure::chain(&error));
        assert!(!told.contains("someone") && told.matches(number).count() == 2, "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_scopes_moved_below_each_other_at_once_never_close_a_circle() {
    for database in databases().await {
        for round in 0..5 {
            let a = scopes::create(&database.store, &new_scope(&format!("a{round}"))).await.unwrap();
            let b = scopes::create(&database.store, &new_scope(&format!("b{round}"))).await.unwrap();
            let below = |child: &scopes::Scope, parent: &scopes::Scope| scopes::UpdateScope {
                scope_id: child.scope_id.clone(),
                expected_version: child.version,
                title: child.title.clone(),
                summary: child.summary.clone(),
                parent_scope_id: Some(parent.scope_id.clone()),
                context_references: Vec::new(),
                external_references: Vec::new(),
            };
            let (one, two) = (below(&a, &b), below(&b, &a));
            let other = database.reopened().await;
            let (one, two) =
                tokio::join!(scopes::update(&database.store, &one), scopes::update(&other, &two));
            assert_ne!(one.is_ok(), two.is_ok(), "{one:?} {two:?}");
        }
    }
}

#[tokio::test]
async fn a_reading_transaction_sees_one_state_of_the_database() {
    for database in databases().await {
        let scope = database.scope("a").await;
        let mut reader = database.store.database.snapshot().await.unwrap();
        let head = sources::journal_head(&mut reader, &scope).await.unwrap();
        database.capture(&scope, 2).await;
        assert_eq!(sources::journal_head(&mut reader, &scope).await.unwrap(), head);
        drop(reader);
        assert_eq!(sources::head(&database.store, &scope).await.unwrap().get(), 2);
        assert!(topics::current(&database.store, &scope, &[]).await.unwrap().is_empty());
    }
}
