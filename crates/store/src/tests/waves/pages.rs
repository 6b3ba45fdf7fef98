//! Pages of targets and of live rows: in one order, bounded, whatever the Scopes are called.

use super::*;
use crate::scopes::{self, NewScope};

/// Names that a collation other than bytes would mix up or sort otherwise.
const NAMES: [&str; 18] = [
    "A",
    "a",
    "Z",
    "z",
    "a b",
    "a%",
    "a_b",
    "a\\b",
    "a'\"b",
    "ss",
    "\u{df}",
    "\u{e9}",
    "e\u{301}",
    "\u{e5}",
    "\u{79df}\u{7ea6}",
    "\u{fffd}",
    "\u{1f600}",
    "\u{10ffff}",
];

async fn named_scopes(database: &TestDatabase) -> Vec<ScopeId> {
    let longest = "\u{79df}".repeat(256);
    let mut made = Vec::new();
    for name in NAMES.into_iter().chain([longest.as_str()]) {
        let scope_id = ScopeId::parse(name).unwrap();
        let new = NewScope { scope_id: scope_id.clone(), ..crate::tests::new_scope(name) };
        scopes::create(&database.store, &new).await.unwrap();
        database.capture(&scope_id, 1).await;
        made.push(scope_id);
    }
    made.sort();
    made
}

/// Reads page after page until one is empty.
macro_rules! all_pages {
    ($limit:expr, |$after:ident| $page:expr, $scope:expr) => {{
        let mut seen: Vec<ScopeId> = Vec::new();
        loop {
            let $after = seen.last();
            let page = $page.await.unwrap();
            assert!(page.len() <= $limit as usize);
            if page.is_empty() {
                break seen;
            }
            seen.extend(page.into_iter().map($scope));
        }
    }};
}

#[tokio::test]
async fn pages_follow_the_bytes_of_the_scopes_and_hold_each_once() {
    // TM-207 TM-212
    for database in databases().await {
        let (store, fence) = (&database.store, database.term().await);
        let scopes = named_scopes(&database).await;
        assert_eq!(database.freeze(&fence, "w").await, Freeze::Frozen { members: scopes.len() as u64 });
        for limit in [1, 2, 7, 100] {
            let open = all_pages!(limit, |after| waves::targets(store, &wave("w"), after, limit), |row| {
                row.fact.key.scope
            });
            assert_eq!(open, scopes, "{:?} {limit}", database.engine());
            let live = all_pages!(limit, |after| waves::late(store, &wave("w"), after, limit), |row| row
                .fact
                .key
                .scope);
            assert_eq!(live, scopes, "{:?} {limit}", database.engine());
        }
    }
}

#[tokio::test]
async fn a_page_holds_open_targets_alone_however_many_are_completed() {
    // TM-207 TM-208 TM-210
    for database in databases().await {
        let (store, fence) = (&database.store, database.term().await);
        let scopes = named_scopes(&database).await;
        database.freeze(&fence, "w").await;
        let (covered, open) = scopes.split_at(scopes.len() - 3);
        for scope in covered {
            database.cover(&fence, scope, WorkMode::Automatic).await;
        }
        for page in scopes.chunks(5) {
            waves::mark_covered(store, &fence, &wave("w"), page).await.unwrap();
        }
        let rows = waves::targets(store, &wave("w"), None, 2).await.unwrap();
        assert_eq!(rows.iter().map(|row| &row.fact.key.scope).collect::<Vec<_>>(), [&open[0], &open[1]]);
        let rows = waves::late(store, &wave("w"), None, 100).await.unwrap();
        for row in rows {
            assert_eq!(row.held, open.contains(&row.fact.key.scope), "{}", row.fact.key.scope);
        }
        let marked = waves::mark_covered(store, &fence, &wave("w"), covered).await.unwrap();
        assert_eq!(marked, 0, "each is marked once");
    }
}

#[tokio::test]
async fn a_target_without_a_pending_row_reads_as_answered_up_to_its_target() {
    // TM-171 TM-210
    for database in databases().await {
        let (store, fence) = (&database.store, database.term().await);
        let scope = database.scope("one").await;
        database.capture(&scope, 3).await;
        pending::flush(store, &key(&scope)).await.unwrap();
        database.freeze(&fence, "w").await;
        let before = waves::targets(store, &wave("w"), None, 9).await.unwrap();
        assert_eq!(before[0].fact, pending::get(store, &key(&scope)).await.unwrap().unwrap());
        let attempt = database.attempt(&fence, &key(&scope), 0).await;
        let generation = before[0].fact.flush_generation;
        let explicit = PublishRequest { claimed_flush_generation: generation, ..request(attempt, 3, vec![]) };
        publish(store, &explicit).await.unwrap();
        let [row] = &waves::targets(store, &wave("w"), None, 9).await.unwrap()[..] else { panic!("one") };
        assert_eq!((row.target.get(), row.fact.source_through.get(), row.fact.cursor.get()), (3, 3, 3));
        assert_eq!(row.fact.flush_generation, row.fact.handled_flush_generation);
        assert_eq!(waves::late(store, &wave("w"), None, 9).await.unwrap(), []);
        assert_eq!(database.complete(&fence, "w").await, Completion::Completed { removed: 0 });
    }
}
