use powercontext_core::ids::{Position, Revision, ScopeId, SourceId, SourceRef};
use powercontext_core::topic::TopicRef;

use super::{artifact, create, databases, key, new_scope, new_source};
use crate::database::Engine;
use crate::pending::{self, FlushError};
use crate::scopes::{
    self, CreateScopeError, ExternalReference, NewScope, Scope, ScopeField, ScopeFilter, SetDefaultError,
    UpdateScope, UpdateScopeError,
};
use crate::sources::{self, AddSourceError, ReadLimit, ReadSourcesError};
use crate::{StoreError, topics};

const EVERYTHING: ReadLimit = ReadLimit { sources: 9, bytes: 9_999 };

fn unchanged(scope: &Scope) -> UpdateScope {
    UpdateScope {
        scope_id: scope.scope_id.clone(),
        expected_version: scope.version,
        title: scope.title.clone(),
        summary: scope.summary.clone(),
        parent_scope_id: scope.parent_scope_id.clone(),
        context_references: scope.context_references.clone(),
        external_references: scope.external_references.clone(),
    }
}

fn reference(kind: &str, value: &str) -> ExternalReference {
    ExternalReference { kind: kind.to_owned(), value: value.to_owned() }
}

#[tokio::test]
async fn a_key_stays_bound_to_its_first_parameters_after_updates() {
    for database in databases().await {
        let store = &database.store;
        let new = new_scope("k");
        let made = scopes::create(store, &new).await.unwrap();
        assert_eq!(made.version, 1);
        let replay = NewScope { scope_id: new_scope("x").scope_id, ..new.clone() };
        assert_eq!(scopes::create(store, &replay).await.unwrap(), made);
        let renamed = UpdateScope { title: "Renamed".to_owned(), ..unchanged(&made) };
        let renamed = scopes::update(store, &renamed).await.unwrap();
        assert_eq!(scopes::create(store, &new).await.unwrap(), renamed);
        let mut other = new.clone();
        other.title = "Renamed".to_owned();
        assert!(matches!(scopes::create(store, &other).await, Err(CreateScopeError::IdempotencyConflict)));
        let mut other = new;
        other.external_references.push(reference("git", "x"));
        assert!(matches!(scopes::create(store, &other).await, Err(CreateScopeError::IdempotencyConflict)));
    }
}

#[tokio::test]
async fn relations_are_sorted_checked_and_never_circular() {
    for database in databases().await {
        let store = &database.store;
        let a = scopes::create(store, &new_scope("a")).await.unwrap();
        let mut child = new_scope("b");
        child.parent_scope_id = Some(a.scope_id.clone());
        let b = scopes::create(store, &child).await.unwrap();
        let mut grandchild = new_scope("c");
        grandchild.parent_scope_id = Some(b.scope_id.clone());
        grandchild.context_references = vec![b.scope_id.clone(), a.scope_id.clone()];
        grandchild.external_references = vec![reference("git", "z"), reference("git", "a")];
        let c = scopes::create(store, &grandchild).await.unwrap();
        assert_eq!(c.context_references, [a.scope_id.clone(), b.scope_id.clone()]);
        assert_eq!(c.external_references, [reference("git", "z"), reference("git", "a")]);
        assert_eq!(scopes::get(store, &c.scope_id).await.unwrap(), Some(c.clone()));
        for parent in [&a, &b, &c] {
            let update = UpdateScope { parent_scope_id: Some(parent.scope_id.clone()), ..unchanged(&a) };
            let updated = scopes::update(store, &update).await;
            assert!(matches!(updated, Err(UpdateScopeError::InvalidRelationship)), "{updated:?}");
        }
        let itself = UpdateScope { context_references: vec![a.scope_id.clone()], ..unchanged(&a) };
        assert!(matches!(scopes::update(store, &itself).await, Err(UpdateScopeError::InvalidRelationship)));
        let missing = ScopeId::parse("missing").unwrap();
        let unknown = UpdateScope { context_references: vec![missing.clone()], ..unchanged(&a) };
        assert!(matches!(scopes::update(store, &unknown).await, Err(UpdateScopeError::ScopeNotFound)));
        let mut orphan = new_scope("d");
        orphan.parent_scope_id = Some(missing.clone());
        assert!(matches!(scopes::create(store, &orphan).await, Err(CreateScopeError::ScopeNotFound)));
        let moved = UpdateScope { parent_scope_id: Some(a.scope_id.clone()), ..unchanged(&c) };
        assert_eq!(scopes::update(store, &moved).await.unwrap().version, 2);
        let gone = UpdateScope { scope_id: missing, ..unchanged(&a) };
        assert!(matches!(scopes::update(store, &gone).await, Err(UpdateScopeError::ScopeNotFound)));
    }
}

#[tokio::test]
async fn an_update_needs_the_current_version_and_replaces_everything() {
    for database in databases().await {
        let store = &database.store;
        let mut new = new_scope("a");
        new.external_references = vec![reference("git", "x")];
        let a = scopes::create(store, &new).await.unwrap();
        for version in [0, 2] {
            let stale = UpdateScope { expected_version: version, ..unchanged(&a) };
            let updated = scopes::update(store, &stale).await;
            assert!(matches!(updated, Err(UpdateScopeError::VersionConflict { current: 1 })));
        }
        let bare = UpdateScope { external_references: Vec::new(), ..unchanged(&a) };
        let bare = scopes::update(store, &bare).await.unwrap();
        assert_eq!((bare.version, bare.external_references.len()), (2, 0));
        assert_eq!(scopes::update(store, &unchanged(&bare)).await.unwrap().version, 3);
    }
}

#[tokio::test]
async fn lists_are_ascending_bounded_and_narrowed_by_every_filter() {
    for database in databases().await {
        let store = &database.store;
        let parent = database.scope("p").await;
        let mut ids = Vec::new();
        for name in ["a", "b", "c"] {
            let mut new = new_scope(name);
            new.parent_scope_id = Some(parent.clone());
            new.title = format!("Title 100% {name}");
            new.external_references = vec![reference("git", &format!("Repo/{name}"))];
            ids.push(scopes::create(store, &new).await.unwrap().scope_id);
        }
        ids.sort();
        let children = ScopeFilter { parent_scope_id: Some(parent.clone()), ..ScopeFilter::default() };
        let listed = |scopes: Vec<Scope>| scopes.into_iter().map(|scope| scope.scope_id).collect::<Vec<_>>();
        assert_eq!(listed(scopes::list(store, &children, None, 2).await.unwrap()), ids[..2]);
        assert_eq!(listed(scopes::list(store, &children, Some(&ids[1]), 2).await.unwrap()), ids[2..]);
        let by =
            |field, text: &str| ScopeFilter { query: Some((field, text.to_owned())), ..Default::default() };
        for (filter, count) in [
            (by(ScopeField::Title, "Title 100%"), 3),
            (by(ScopeField::Title, "title"), 0),
            (by(ScopeField::Title, "def"), 0),
            (by(ScopeField::Title, "efault"), 1),
            (by(ScopeField::Title, "100_"), 0),
            (by(ScopeField::ExternalReferenceValue, "Repo/b"), 1),
            (by(ScopeField::ExternalReferenceValue, "repo/b"), 0),
            (by(ScopeField::Summary, "One test"), 0),
            (by(ScopeField::ScopeId, ids[0].as_str()), 1),
            (by(ScopeField::Summary, "one test"), 4),
            (ScopeFilter { external_reference_kind: Some("git".to_owned()), ..Default::default() }, 3),
            (ScopeFilter { external_reference_kind: Some("doc".to_owned()), ..Default::default() }, 0),
        ] {
            assert_eq!(scopes::list(store, &filter, None, 100).await.unwrap().len(), count, "{filter:?}");
        }
    }
}

#[tokio::test]
async fn the_default_scope_can_be_chosen_among_existing_ones() {
    for database in databases().await {
        let a = database.scope("a").await;
        for _ in 0..2 {
            assert_eq!(scopes::set_default(&database.store, &a).await.unwrap().scope_id, a);
        }
        assert_eq!(scopes::default(&database.store).await.unwrap().unwrap().scope_id, a);
        let missing = ScopeId::parse("missing").unwrap();
        let chosen = scopes::set_default(&database.store, &missing).await;
        assert!(matches!(chosen, Err(SetDefaultError::ScopeNotFound)));
    }
}

#[tokio::test]
async fn a_chain_of_parents_without_an_end_is_an_error_and_never_a_possible_relation() {
    for database in databases().await {
        let store = &database.store;
        let (a, b) = (database.scope("a").await, database.scope("b").await);
        let c = scopes::create(store, &new_scope("c")).await.unwrap();
        for (child, parent) in [(&a, &b), (&b, &a)] {
            database
                .run(&format!("UPDATE pc_scopes SET parent_scope_id = '{parent}' WHERE scope_id = '{child}'"))
                .await;
        }
        let before = database.dump().await;
        let under = UpdateScope { parent_scope_id: Some(a.clone()), ..unchanged(&c) };
        let updated = scopes::update(store, &under).await;
        assert!(matches!(updated, Err(UpdateScopeError::Store(StoreError::Invalid { .. }))), "{updated:?}");
        let new = NewScope { parent_scope_id: Some(a), ..new_scope("d") };
        let created = scopes::create(store, &new).await;
        assert!(matches!(created, Err(CreateScopeError::Store(StoreError::Invalid { .. }))), "{created:?}");
        assert_eq!(database.dump().await, before);
    }
}

#[tokio::test]
async fn an_update_locks_its_scope_before_it_looks_at_anything() {
    for database in databases().await {
        let scope = scopes::create(&database.store, &new_scope("a")).await.unwrap();
        let refused = match database.engine() {
            Engine::Sqlite => {
                "CREATE TRIGGER locked BEFORE UPDATE ON pc_scopes WHEN NEW.version = OLD.version \
                 BEGIN SELECT RAISE(ABORT, 'locked'); END"
            }
            Engine::OceanBase => {
                "CREATE TRIGGER locked BEFORE UPDATE ON pc_scopes FOR EACH ROW \
                 BEGIN IF NEW.version = OLD.version THEN SIGNAL SQLSTATE '45000'; END IF; END"
            }
        };
        database.run(refused).await;
        let stale = UpdateScope { expected_version: 9, ..unchanged(&scope) };
        let updated = scopes::update(&database.store, &stale).await;
        assert!(matches!(updated, Err(UpdateScopeError::Store(_))), "the lock comes first: {updated:?}");
    }
}

#[tokio::test]
async fn a_scope_is_never_found_by_its_identity_with_a_space_behind_it() {
    // TM-016
    for database in databases().await {
        let store = &database.store;
        let scope = database.scope("a").await;
        database.publish(&scope, vec![create("t", "Kestrel", "Summary", "Detail")]).await;
        let made = sources::page(store, &scope, (Position::default(), Position::new(1)), EVERYTHING).await;
        let source = made.unwrap().remove(0).source_ref;
        let behind = |text: &str| format!("{text} ");
        let other = ScopeId::parse(behind(scope.as_str())).unwrap();
        let before = database.dump().await;

        assert_eq!(scopes::get(store, &other).await.unwrap(), None);
        let known = scopes::get(store, &scope).await.unwrap().unwrap();
        let update = UpdateScope { scope_id: other.clone(), ..unchanged(&known) };
        assert!(matches!(scopes::update(store, &update).await, Err(UpdateScopeError::ScopeNotFound)));
        let below = NewScope { parent_scope_id: Some(other.clone()), ..new_scope("b") };
        assert!(matches!(scopes::create(store, &below).await, Err(CreateScopeError::ScopeNotFound)));
        let beside = NewScope { context_references: vec![other.clone()], ..new_scope("b") };
        assert!(matches!(scopes::create(store, &beside).await, Err(CreateScopeError::ScopeNotFound)));
        assert!(matches!(scopes::set_default(store, &other).await, Err(SetDefaultError::ScopeNotFound)));

        let added = sources::add(store, &new_source(&other, "s", "text")).await;
        assert!(matches!(added, Err(AddSourceError::ScopeNotFound)), "{added:?}");
        assert!(matches!(sources::head(store, &other).await, Err(ReadSourcesError::ScopeNotFound)));
        let found = sources::get(store, &other, &source).await;
        assert!(matches!(found, Err(ReadSourcesError::ScopeNotFound)), "{found:?}");
        let id = SourceId::parse(behind(source.source_id.as_str())).unwrap();
        assert_eq!(sources::get(store, &scope, &SourceRef::content(id)).await.unwrap(), None);
        let flushed = pending::flush(store, &key(&other)).await;
        assert!(matches!(flushed, Err(FlushError::ScopeNotFound)), "{flushed:?}");

        assert_eq!(database.search(&scope, "kestrel").await.len(), 1);
        assert!(database.search(&other, "kestrel").await.is_empty());
        let topic = |name: &str| TopicRef { artifact_id: artifact(name), revision: Revision::new(1) };
        assert!(topics::get(store, &scope, &topic("t")).await.unwrap().is_some());
        assert_eq!(topics::get(store, &other, &topic("t")).await.unwrap(), None);
        assert_eq!(topics::get(store, &scope, &topic("t ")).await.unwrap(), None);
        assert_eq!(database.dump().await, before);

        let child = NewScope { parent_scope_id: Some(scope.clone()), ..new_scope("c") };
        scopes::create(store, &child).await.unwrap();
        for (parent, children) in [(scope, 1), (other, 0)] {
            let filter = ScopeFilter { parent_scope_id: Some(parent), ..ScopeFilter::default() };
            assert_eq!(scopes::list(store, &filter, None, 9).await.unwrap().len(), children, "{filter:?}");
        }
    }
}

#[tokio::test]
async fn a_circle_is_found_whatever_the_lengths_of_the_identities_in_it() {
    for database in databases().await {
        let store = &database.store;
        let mut parent = None;
        let mut made = Vec::new();
        let longest = |last: &str| "🦅".repeat(255) + last;
        let ids =
            ["x".repeat(200), longest("x"), "x".to_owned(), longest("é"), "词".repeat(90), longest("X")];
        for id in ids {
            let new = NewScope {
                scope_id: ScopeId::parse(id.clone()).unwrap(),
                parent_scope_id: parent,
                ..new_scope(&id)
            };
            made.push(scopes::create(store, &new).await.unwrap());
            parent = made.last().map(|scope: &Scope| scope.scope_id.clone());
        }
        for below in &made[1..] {
            let circle = UpdateScope { parent_scope_id: Some(below.scope_id.clone()), ..unchanged(&made[0]) };
            let refused = scopes::update(store, &circle).await;
            assert!(matches!(refused, Err(UpdateScopeError::InvalidRelationship)), "{refused:?}");
        }
        // None of its ancestors differs from these but in the last character.
        for last in ["y", "É", "e"] {
            let new = NewScope {
                scope_id: ScopeId::parse(longest(last)).unwrap(),
                parent_scope_id: Some(made[5].scope_id.clone()),
                ..new_scope(&longest(last))
            };
            scopes::create(store, &new).await.unwrap();
        }
    }
}
