use powercontext_core::ids::{Position, SourceRef};

use super::{databases, new_source};
use crate::sources::{self, AddSourceError, Added, ReadLimit, ReadSourcesError};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_in_two_processes_get_contiguous_positions_and_lose_nothing() {
    // TM-020
    for database in databases().await {
        let scope = database.scope("a").await;
        let other = database.reopened().await;
        let mut writers = Vec::new();
        for writer in 0..8 {
            let store = if writer % 2 == 0 { database.store.clone() } else { other.clone() };
            let scope = scope.clone();
            writers.push(tokio::spawn(async move {
                let mut positions = Vec::new();
                for number in 0..50 {
                    let new = new_source(&scope, &format!("w{writer}-{number}"), "text");
                    positions.push(sources::add(&store, &new).await.unwrap().position.get());
                }
                assert!(positions.is_sorted());
                positions
            }));
        }
        let mut all = Vec::new();
        for writer in writers {
            all.extend(writer.await.unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, (1..=400).collect::<Vec<_>>());
        let candidates =
            sources::window_candidates(&database.store, &scope, EVERYTHING, limit(1000, u64::MAX))
                .await
                .unwrap();
        assert_eq!(candidates.len(), 400);
        assert_eq!(sources::head(&database.store, &scope).await.unwrap(), Position::new(400));
    }
}

#[tokio::test]
async fn a_replay_keeps_its_position_and_other_content_or_metadata_conflicts() {
    // TM-019
    for database in databases().await {
        let scope = database.scope("a").await;
        let mut new = new_source(&scope, "turn", "hello");
        new.metadata_json = Some("{\"k\":1}".to_owned());
        let first = sources::add(&database.store, &new).await.unwrap();
        assert_eq!(first, Added { position: Position::new(1), replayed: false });
        database.capture(&scope, 1).await;
        let before = database.dump().await;
        let again = sources::add(&database.store, &new).await.unwrap();
        assert_eq!(again, Added { position: Position::new(1), replayed: true });
        for other in [new_source(&scope, "turn", "hello"), {
            let mut other = new_source(&scope, "turn", "hello!");
            other.metadata_json = new.metadata_json.clone();
            other
        }] {
            assert!(matches!(sources::add(&database.store, &other).await, Err(AddSourceError::Conflict)));
        }
        assert_eq!(database.dump().await, before);
        assert_eq!(
            database.capture(&scope, 1).await,
            Position::new(3),
            "a refused capture takes no position"
        );
    }
}

#[tokio::test]
async fn the_same_source_id_is_free_in_another_scope_and_journals_are_apart() {
    // TM-016 TM-020
    for database in databases().await {
        let (a, b) = (database.scope("a").await, database.scope("b").await);
        for scope in [&a, &b] {
            let added = sources::add(&database.store, &new_source(scope, "turn", "x")).await.unwrap();
            assert_eq!(added.position, Position::new(1));
        }
    }
}

#[tokio::test]
async fn an_unknown_scope_takes_no_source_and_has_none() {
    for database in databases().await {
        let scope = super::new_scope("never").scope_id;
        let before = database.dump().await;
        let added = sources::add(&database.store, &new_source(&scope, "s", "x")).await;
        assert!(matches!(added, Err(AddSourceError::ScopeNotFound)));
        assert_eq!(database.dump().await, before);
        let through = (Position::default(), Position::new(9));
        assert!(matches!(
            sources::page(&database.store, &scope, through, page(9)).await,
            Err(ReadSourcesError::ScopeNotFound)
        ));
        let source_ref = SourceRef::content(new_source(&scope, "s", "x").source_id);
        assert!(matches!(
            sources::get(&database.store, &scope, &source_ref).await,
            Err(ReadSourcesError::ScopeNotFound)
        ));
        assert!(matches!(sources::head(&database.store, &scope).await, Err(ReadSourcesError::ScopeNotFound)));
    }
}

fn page(items: u32) -> ReadLimit {
    ReadLimit { sources: items, bytes: u64::MAX }
}

#[tokio::test]
async fn a_page_ends_before_its_contents_become_too_large_and_never_empty() {
    for database in databases().await {
        let scope = database.scope("a").await;
        for (name, length) in [("s1", 98), ("s2", 198), ("s3", 98), ("s4", 3)] {
            sources::add(&database.store, &new_source(&scope, name, &"é".repeat(length / 2))).await.unwrap();
        }
        let all = Position::new(9);
        for (after, bytes, expected) in [
            (0, 1_000, vec![1, 2, 3, 4]),
            (0, 400, vec![1, 2, 3]),
            (0, 399, vec![1, 2]),
            (1, 10, vec![2]),
            (0, 0, vec![1]),
        ] {
            let bounds = ReadLimit { sources: 9, bytes };
            let found =
                sources::page(&database.store, &scope, (Position::new(after), all), bounds).await.unwrap();
            let found: Vec<i64> = found.iter().map(|source| source.position.get()).collect();
            assert_eq!(found, expected, "after {after}, {bytes} bytes");
        }
    }
}

#[tokio::test]
async fn a_list_stays_inside_its_range_and_a_large_content_comes_back_whole() {
    for database in databases().await {
        let scope = database.scope("a").await;
        let text = "漢☂é".repeat(60_000);
        let new = new_source(&scope, "large", &text);
        sources::add(&database.store, &new).await.unwrap();
        database.capture(&scope, 4).await;
        let listed = sources::page(&database.store, &scope, (Position::new(1), Position::new(4)), page(2))
            .await
            .unwrap();
        assert_eq!(listed.iter().map(|source| source.position.get()).collect::<Vec<_>>(), [2, 3]);
        let source_ref = SourceRef::content(new.source_id.clone());
        let read = sources::get(&database.store, &scope, &source_ref).await.unwrap().unwrap();
        assert_eq!((read.content_json, read.content_digest), (new.content_json, new.content_digest));
    }
}

#[tokio::test]
async fn a_cancelled_capture_leaves_the_writer_usable() {
    for database in databases().await {
        let scope = database.scope("a").await;
        for number in 0..50 {
            let new = new_source(&scope, &format!("s{number}"), "x");
            let capture = sources::add(&database.store, &new);
            // Polled for a moment only, so it is dropped at every stage of its way.
            let _ = tokio::time::timeout(std::time::Duration::from_micros(number * 10), capture).await;
        }
        let head = database.capture(&scope, 1).await.get();
        let all = sources::window_candidates(&database.store, &scope, EVERYTHING, limit(100, u64::MAX))
            .await
            .unwrap();
        assert_eq!(all.len(), usize::try_from(head).unwrap());
    }
}

#[tokio::test]
async fn window_candidates_are_read_up_to_a_number_of_bytes_but_never_none() {
    // TM-025, TM-026, TM-166
    for database in databases().await {
        let scope = database.scope("a").await;
        for number in 0..100 {
            let content = "x".repeat(1 << 20);
            sources::add(&database.store, &new_source(&scope, &format!("s{number}"), &content))
                .await
                .unwrap();
        }
        let read = async |after, through, limit| {
            let range = (Position::new(after), Position::new(through));
            let found = sources::window_candidates(&database.store, &scope, range, limit).await.unwrap();
            let bytes: usize =
                found.iter().flat_map(|one| &one.text).map(|text| text.content_json.len()).sum();
            assert!(found.len() <= 1 || u64::try_from(bytes).unwrap() <= limit.bytes);
            found.iter().map(|one| one.position.get()).collect::<Vec<_>>()
        };
        assert_eq!(read(0, 100, limit(100, 0)).await, [1]);
        assert_eq!(read(0, 100, limit(100, 1 << 20)).await, [1], "quotes take room too");
        assert_eq!(read(7, 100, limit(100, 4 << 20)).await, [8, 9, 10]);
        assert_eq!(read(7, 100, limit(2, 4 << 20)).await, [8, 9]);
        assert_eq!(read(97, 99, limit(100, 4 << 20)).await, [98, 99]);
        assert_eq!(read(99, 99, limit(100, 4 << 20)).await, [0; 0]);
        assert_eq!(read(100, 200, limit(100, 4 << 20)).await, [0; 0]);
    }
}

const EVERYTHING: (Position, Position) = (Position::new(0), Position::new(i64::MAX));

fn limit(sources: u32, bytes: u64) -> ReadLimit {
    ReadLimit { sources, bytes }
}

/// Identities as long as they may be, of characters of two, three and four bytes and a plain one, so that
/// any text of a server that is cut at some length is cut inside a character of one of them.
fn long_identities() -> impl Iterator<Item = String> {
    ["é", "词", "🦅"].into_iter().flat_map(|character| {
        (0..character.len()).map(move |plain| "a".repeat(plain) + &character.repeat(256 - plain))
    })
}

#[tokio::test]
async fn a_long_identity_of_any_script_is_replayed_and_conflicts_like_any_other() {
    // TM-019
    for database in databases().await {
        let scope = database.scope("a").await;
        for (id, position) in long_identities().zip(1..) {
            let new = new_source(&scope, &id, "hello");
            let position = Position::new(position);
            for replayed in [false, true, true] {
                let added = sources::add(&database.store, &new).await.unwrap();
                assert_eq!(added, Added { position, replayed }, "{id}");
            }
            let other = new_source(&scope, &id, "hello!");
            let refused = sources::add(&database.store, &other).await;
            assert!(matches!(refused, Err(AddSourceError::Conflict)), "{refused:?}");
        }
        assert_eq!(database.store.busy_retries(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_long_identity_captured_by_many_at_once_gets_one_position() {
    // TM-019
    for database in databases().await {
        let scope = database.scope("a").await;
        let other = database.reopened().await;
        for (id, position) in long_identities().zip(1..) {
            let captures = (0..4).map(|number| {
                let store = if number % 2 == 0 { database.store.clone() } else { other.clone() };
                let new = new_source(&scope, &id, "hello");
                tokio::spawn(async move { sources::add(&store, &new).await.unwrap() })
            });
            let captures: Vec<_> = captures.collect();
            let mut first = 0;
            for capture in captures {
                let added = capture.await.unwrap();
                assert_eq!(added.position, Position::new(position), "{id}");
                first += i32::from(!added.replayed);
            }
            assert_eq!(first, 1, "{id}");
        }
    }
}
