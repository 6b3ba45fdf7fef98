//! The same data ranks the same on every database: documents, order, scores and snippets.

use powercontext_core::analyzer::Query;

use super::{TestDatabase, create, databases, prepared};
use crate::publish::TopicOperation;
use crate::topics::{self, TopicHit};

const WORDS: &[&str] = &[
    "kestrel",
    "osprey",
    "merlin",
    "can't",
    "3.14",
    "naïve",
    "straße",
    "租约",
    "围栏",
    "领导者",
    "リース",
    "임대",
    "lease",
    "fence",
    "cursor",
    "head",
    "worker",
    "window",
    "topic",
    "a_b",
    "ÉTÉ",
    "x-ray",
    "no.1",
    "the",
];

/// A fixed walk through the words, so that every run and every database sees the same texts.
struct Words(u64);

impl Words {
    fn next(&mut self) -> &'static str {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Squared, so that some words are frequent and some are rare.
        let part = (self.0 >> 40) as f64 / f64::from(1 << 24);
        WORDS[((part * part) * WORDS.len() as f64) as usize % WORDS.len()]
    }

    fn text(&mut self, words: usize) -> String {
        (0..words).map(|_| self.next()).collect::<Vec<_>>().join(" ")
    }
}

/// Identities without the Scope's, which differs from database to database.
fn seen(hits: &[TopicHit]) -> Vec<(String, i64, String, Option<String>)> {
    hits.iter()
        .map(|hit| {
            let fused = format!("{:.9} {:?}", hit.score, hit.matched_by);
            (hit.topic.artifact_id.to_string(), hit.topic.revision.get(), fused, hit.snippet.clone())
        })
        .collect()
}

async fn fill(database: &TestDatabase) -> powercontext_core::ids::ScopeId {
    let (other, scope) = (database.scope("other").await, database.scope("scope").await);
    let mut words = Words(7);
    for window in 0..6 {
        let mut operations: Vec<TopicOperation> = Vec::new();
        for number in 0..60 {
            let (title, summary) = (words.text(3), words.text(8));
            let detail = words.text(if number % 20 == 0 { 3_000 } else { 40 });
            operations.push(create(&format!("t{window}-{number}"), &title, &summary, &detail));
        }
        if window > 0 {
            let target = powercontext_core::topic::TopicRef {
                artifact_id: super::artifact(&format!("t0-{window}")),
                revision: powercontext_core::ids::Revision::new(1),
            };
            let topic = prepared(&words.text(3), &words.text(8), &words.text(500));
            operations.push(TopicOperation::Update { target, topic });
        }
        let noise = create(&format!("n{window}"), &words.text(3), &words.text(8), &words.text(90));
        database.publish(&other, vec![noise]).await;
        database.publish(&scope, operations).await;
    }
    scope
}

#[tokio::test]
async fn equal_data_gives_the_same_documents_in_the_same_order_on_every_database() {
    // TM-145 TM-153
    let mut queries: Vec<String> = WORDS.iter().map(|&word| word.to_owned()).collect();
    let mut words = Words(99);
    queries.extend((2..14).map(|count| words.text(count)));
    let mut answers: Vec<Vec<_>> = Vec::new();
    for database in databases().await {
        let scope = fill(&database).await;
        let mut found = Vec::new();
        for text in &queries {
            let Some(query) = Query::parse(text) else { continue };
            let recalled = topics::recall(&database.store, &scope, &query, 20).await.unwrap();
            let hits = topics::search(&database.store, &scope, &query, 20).await.unwrap();
            assert_eq!(recalled.len(), hits.len(), "{text}");
            found.push((text.clone(), seen(&hits)));
        }
        assert!(found.iter().filter(|(_, hits)| !hits.is_empty()).count() > 20);
        answers.push(found);
    }
    for other in &answers[1..] {
        for (expected, found) in answers[0].iter().zip(other) {
            assert_eq!(found, expected);
        }
    }
}
