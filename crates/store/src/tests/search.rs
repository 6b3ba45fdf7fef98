use powercontext_core::analyzer::{self, Query};
use powercontext_core::ids::Revision;
use powercontext_core::topic::{Channel, TopicRef};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::{artifact, create, databases, prepared};
use crate::database::{Engine, values};
use crate::publish::TopicOperation;
use crate::{fulltext, topics};

fn names(hits: &[topics::TopicHit]) -> Vec<&str> {
    hits.iter().map(|hit| hit.topic.artifact_id.as_str()).collect()
}

#[tokio::test]
async fn titles_and_details_are_searched_from_the_first_query() {
    // TM-134 TM-138 TM-141 TM-142 TM-147 TM-156 B-4
    for database in databases().await {
        let scope = database.scope("a").await;
        let deployment = "Run the kestrel job first. Then wait for the rollout.";
        database
            .publish(
                &scope,
                vec![
                    create("1", "Kestrel", "About the falcon.", "It hovers."),
                    create("2", "Deployment", "How the chart is deployed.", deployment),
                ],
            )
            .await;
        let hits = database.search(&scope, "falcon").await;
        assert_eq!(names(&hits), ["1"]);
        assert_eq!((hits[0].score, hits[0].snippet.clone()), (50.0, None));
        assert_eq!(hits[0].matched_by, [Channel::TopicFts]);
        let hits = database.search(&scope, "rollout").await;
        assert_eq!(names(&hits), ["2"]);
        assert_eq!((hits[0].score, hits[0].snippet.as_deref()), (50.0, Some(deployment)));
        assert_eq!(names(&database.search(&scope, "kestrel").await), ["1", "2"]);
        let hits = database.search(&scope, "deployed rollout").await;
        assert_eq!(names(&hits), ["2"]);
        assert_eq!(hits[0].score, 100.0);
        assert_eq!(hits[0].matched_by, [Channel::TopicFts, Channel::DetailFts]);
        assert!(database.search(&scope, "osprey").await.is_empty());
    }
}

#[tokio::test]
async fn chinese_japanese_korean_emoji_and_punctuation_queries_behave() {
    for database in databases().await {
        let scope = database.scope("a").await;
        database
            .publish(
                &scope,
                vec![
                    create("zh", "租约与围栏", "领导者如何失去写权限。", "租约到期以后旧的领导者不能提交。"),
                    create("ja", "リース更新", "ひらがなの説明", "サーバーはリースを更新します。"),
                    create("ko", "임대 갱신", "한국어 설명", "서버는 임대를 갱신합니다."),
                    create("en", "Lease \u{1F680} renewal", "About renewal.", "Plain text."),
                ],
            )
            .await;
        for (query, expected) in
            [("租约", "zh"), ("围栏", "zh"), ("リース", "ja"), ("임대", "ko"), ("renewal", "en")]
        {
            assert_eq!(names(&database.search(&scope, query).await), [expected], "{query}");
        }
        for nothing in ["", "   ", "?!...", "、。", "🦀"] {
            let hits = database.search(&scope, nothing).await;
            assert!(hits.is_empty(), "{nothing}: {hits:?}");
        }
    }
}

#[tokio::test]
async fn a_long_query_needs_a_share_of_its_terms_and_finds_nothing_by_one() {
    // TM-145
    for database in databases().await {
        let scope = database.scope("a").await;
        database
            .publish(
                &scope,
                vec![
                    create("1", "alpha", "summary", "detail"),
                    create("2", "alpha bravo", "summary", "detail"),
                    create("3", "alpha bravo charlie delta", "summary", "detail"),
                ],
            )
            .await;
        let query = Query::parse("alpha bravo charlie delta echo foxtrot golf hotel india").unwrap();
        assert_eq!(query.required(), 3);
        let hits = topics::search(&database.store, &scope, &query, 20).await.unwrap();
        assert_eq!(names(&hits), ["3"]);
        assert_eq!(database.search(&scope, "alpha").await.len(), 3);
    }
}

#[tokio::test]
async fn many_matching_chunks_of_one_topic_do_not_hide_other_topics() {
    // TM-139 TM-140 TM-277
    for database in databases().await {
        let scope = database.scope("a").await;
        let loud = "kestrel kestrel kestrel over the field. ".repeat(2_500);
        let mut operations = vec![create("loud", "Loud", "summary", &loud)];
        for number in 10..28 {
            let detail = format!("One quiet kestrel {}", "and many other words ".repeat(20));
            operations.push(create(&format!("quiet-{number}"), "Quiet", "summary", &detail));
        }
        database.publish(&scope, operations).await;
        let hits = database.search(&scope, "kestrel").await;
        assert_eq!(hits.len(), 19);
        assert_eq!(hits.iter().filter(|hit| hit.topic.artifact_id == artifact("loud")).count(), 1);
    }
}

#[tokio::test]
async fn a_channel_yields_at_most_twenty_topics_and_ties_are_ordered_by_identity() {
    // TM-144 B-4
    for database in databases().await {
        let scope = database.scope("a").await;
        let mut operations: Vec<TopicOperation> =
            (10..40).map(|number| create(&format!("t{number}"), "Kestrel", "same", "same")).collect();
        operations.reverse();
        database.publish(&scope, operations).await;
        let hits = database.search(&scope, "kestrel").await;
        let expected: Vec<String> = (10..30).map(|number| format!("t{number}")).collect();
        assert_eq!(names(&hits), expected);
        let query = Query::parse("kestrel").unwrap();
        let recalled = topics::recall(&database.store, &scope, &query, 5).await.unwrap();
        assert_eq!(recalled.len(), 5);
        assert_eq!(topics::search(&database.store, &scope, &query, 500).await.unwrap(), hits);
    }
}

#[tokio::test]
async fn an_update_leaves_no_posting_of_the_old_revision() {
    // TM-146 TM-156
    for database in databases().await {
        let scope = database.scope("a").await;
        let long = "kestrel hovers. ".repeat(500);
        database.publish(&scope, vec![create("1", "Falcon", "falcon", &long)]).await;
        let target = TopicRef { artifact_id: artifact("1"), revision: Revision::new(1) };
        let topic = prepared("Heron", "heron", "It wades.");
        database.publish(&scope, vec![TopicOperation::Update { target, topic }]).await;
        for old in ["kestrel", "falcon", "hovers"] {
            assert!(database.search(&scope, old).await.is_empty(), "{old}");
        }
        let hits = database.search(&scope, "heron").await;
        assert_eq!(hits[0].topic.revision, Revision::new(2));
        let dump = database.dump().await;
        assert_eq!(dump["pc_topic_memory_active_chunks"].len(), 1);
        let statistics = &dump["pc_topic_memory_scope_statistics"][0];
        if database.engine() == Engine::OceanBase {
            assert!(statistics.ends_with("|'1'|'1'|'1'"), "{statistics}");
            continue;
        }
        let mut reader = database.store.database.read().await.unwrap();
        for table in ["topic", "chunk"] {
            let text = format!("SELECT count(*) FROM pc_topic_memory_{table}_fts_docsize");
            let count = reader.query_one(text, values![]).await.unwrap().unwrap().integer(0).unwrap();
            assert_eq!(count, 1, "{table}");
        }
        assert!(statistics.ends_with("|1|1"), "{statistics}");
    }
}

#[tokio::test]
async fn another_scopes_data_changes_neither_results_nor_scores() {
    // TM-016
    for database in databases().await {
        let (a, b) = (database.scope("a").await, database.scope("b").await);
        database
            .publish(
                &a,
                vec![
                    create("1", "Kestrel osprey", "falcon", "kestrel detail"),
                    create("2", "Osprey", "falcon falcon", "osprey detail"),
                ],
            )
            .await;
        let before = database.search(&a, "kestrel osprey falcon").await;
        assert_eq!(before.len(), 2);
        let many = (0..50)
            .map(|number| create(&format!("b{number}"), "Kestrel", "osprey falcon", "kestrel kestrel"))
            .collect();
        database.publish(&b, many).await;
        assert_eq!(database.search(&a, "kestrel osprey falcon").await, before);
        assert_eq!(database.search(&b, "kestrel").await.len(), 20);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_term_of_the_analyzer_is_exactly_one_token_of_the_index_on_sqlite(texts in prop::collection::vec("\\PC{1,60}", 1..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for database in [super::sqlite().await] {
                let mut tx = database.store.database.write().await.unwrap();
                tx.execute(
                    "CREATE VIRTUAL TABLE tokens USING fts5vocab('pc_topic_memory_topic_fts', 'row')",
                    values![],
                ).await.unwrap();
                let mut expected = std::collections::BTreeSet::new();
                for (text, row) in texts.iter().zip(1_i64..) {
                    let punctuated = format!("{text} a!b#c$d'e\"f`g A-Z_9 ~x~ 汉字 かな カナ 한글 🚀 é ß");
                    let terms = analyzer::index_text(&punctuated);
                    let scoped = fulltext::scoped_terms(7, &terms);
                    expected.extend(scoped.split(' ').map(str::to_owned));
                    tx.execute(
                        "INSERT INTO pc_topic_memory_topic_fts (rowid, terms) VALUES (?, ?)",
                        values![row, scoped],
                    ).await.unwrap();
                }
                let rows = tx.query("SELECT term FROM tokens", values![]).await.unwrap();
                let stored: std::collections::BTreeSet<String> =
                    rows.iter().map(|row| row.text(0).unwrap()).collect();
                assert_eq!(stored, expected);
            }
        });
    }
}

#[tokio::test]
async fn every_term_of_the_analyzer_is_exactly_one_token_of_the_index_on_oceanbase() {
    let Some(database) = super::oceanbase().await else { return };
    let scope = database.scope("a").await;
    let mut runner = TestRunner::deterministic();
    let mut expected = std::collections::BTreeMap::new();
    let mut tx = database.store.database.write().await.unwrap();
    for number in 1..=60_i64 {
        let text = "\\PC{1,60}".new_tree(&mut runner).unwrap().current();
        let terms =
            analyzer::index_text(&format!("{text} a!b#c$d'e\"f`g A-Z_9 ~x~ 汉字 かな カナ 한글 🚀 é ß"));
        for term in terms.split(' ').collect::<std::collections::BTreeSet<_>>() {
            *expected.entry(fulltext::oceanbase::token(7, term)).or_insert(0_i64) += 1;
        }
        let postings = fulltext::postings(7, &terms);
        tx.execute(
            "INSERT INTO pc_topic_memory_active_topics (scope_id, topic_key, artifact_id, revision, title, \
             summary, source_count, terms, postings) VALUES (?, ?, ?, 1, '', '', 1, ?, ?)",
            values![scope.as_str(), number, number.to_string(), terms, postings],
        )
        .await
        .unwrap();
    }
    tx.commit().await.unwrap();
    let mut reader = database.store.database.read().await.unwrap();
    for (token, records) in &expected {
        let text = "SELECT count(*) FROM pc_topic_memory_active_topics \
                    WHERE scope_id = ? AND MATCH (postings) AGAINST (? IN BOOLEAN MODE)";
        let row = reader.query_one(text, values![scope.as_str(), token]).await.unwrap().unwrap();
        assert_eq!(row.integer(0).unwrap(), *records, "{token}");
    }
    assert!(expected.len() > 300, "{}", expected.len());
}

#[tokio::test]
async fn a_recall_merges_by_topic_in_each_channel_before_it_fuses_and_sees_only_what_is_current() {
    // TM-089
    for database in databases().await {
        let (scope, other) = (database.scope("a").await, database.scope("b").await);
        let loud = "The kestrel hovers over the field. ".repeat(400);
        database
            .publish(
                &scope,
                vec![create("1", "Kestrel", "The falcon.", &loud), create("2", "Owl", "A bird.", "osprey")],
            )
            .await;
        database.publish(&other, vec![create("3", "Kestrel", "The falcon.", "kestrel")]).await;
        let target = TopicRef { artifact_id: artifact("2"), revision: Revision::new(1) };
        let topic = prepared("Owl", "A bird.", "One kestrel is seen.");
        database.publish(&scope, vec![TopicOperation::Update { target, topic }]).await;
        let recall = async |text: &str| {
            let query = Query::parse(text).unwrap();
            let found = topics::recall(&database.store, &scope, &query, 20).await.unwrap();
            let name = |id: &powercontext_core::ids::ArtifactId| id.as_str().to_owned();
            found
                .iter()
                .map(|one| (name(&one.artifact_id), one.score, one.matched_by.clone()))
                .collect::<Vec<_>>()
        };
        let found = recall("kestrel").await;
        assert_eq!(found.len(), 2, "many chunks are one Topic, and another Scope's is none: {found:?}");
        assert_eq!(found[0].0, "1");
        assert_eq!(found[0].2, [Channel::TopicFts, Channel::DetailFts]);
        assert_eq!((found[1].0.as_str(), &found[1].2[..]), ("2", &[Channel::DetailFts][..]));
        assert!(found[0].1 > found[1].1 && found[1].1 <= 50.0, "{found:?}");
        assert!(recall("osprey").await.is_empty(), "an old Revision is not recalled");
    }
}
