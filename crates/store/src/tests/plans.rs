use super::{oceanbase, sqlite};
use crate::database::values;
use crate::{fulltext, pending};
use powercontext_core::topic::Channel;

/// Statements that run for every request, Window or supervisor pass, as the modules have them.
const HOT: &[&str] = &[
    "UPDATE pc_source_journals SET head = head + 1 WHERE scope_id = ? RETURNING head",
    "SELECT position FROM pc_sources WHERE scope_id = ? AND position > ? ORDER BY position LIMIT ?",
    "SELECT position FROM pc_sources WHERE scope_id = ? AND source_type = ? AND source_id = ?",
    "SELECT position FROM pc_source_cursors WHERE scope_id = ? AND binding_name = ?",
    "SELECT 1 FROM pc_artifact_processing_leases WHERE supervisor_group = ? AND holder_id = ?",
    "DELETE FROM pc_artifact_processing_pending WHERE binding_name = ? AND scope_id = ? AND source_through <= ?",
    "UPDATE pc_artifact_heads SET revision = ? WHERE scope_id = ? AND family = ? AND artifact_id = ?",
    "DELETE FROM pc_topic_memory_active_chunks WHERE chunk_key BETWEEN ? AND ?",
    "SELECT scope_id FROM pc_scopes WHERE scope_id > ? ORDER BY scope_id LIMIT ?",
    "SELECT scope_id FROM pc_scopes WHERE scope_id > ? AND parent_scope_id = ? ORDER BY scope_id LIMIT ?",
    "SELECT scope_id FROM pc_scopes WHERE idempotency_key = ?",
    pending::PAGE.sqlite,
    fulltext::TOPIC_FREQUENCIES,
    fulltext::CHUNK_FREQUENCIES,
    fulltext::TOPIC_CANDIDATES,
    fulltext::CHUNK_CANDIDATES,
];

#[tokio::test]
async fn no_hot_statement_scans_a_table() {
    for database in [sqlite().await] {
        let mut reader = database.store.database.read().await.unwrap();
        for statement in HOT {
            let rows = reader.query(format!("EXPLAIN QUERY PLAN {statement}"), values![]).await.unwrap();
            for row in &rows {
                let step = row.text(3).unwrap();
                // A posting list that is looked up, a list of bound values, an inner result that is
                // bounded already, or the index of unanswered flushes alone.
                let harmless = [
                    "json_each",
                    ":M",
                    "SCAN term",
                    "SCAN hits",
                    "SCAN best",
                    "SCAN placed",
                    "SCAN (subquery",
                    "_asked",
                ];
                let scans = step.starts_with("SCAN") && !harmless.iter().any(|known| step.contains(known));
                assert!(!scans, "{statement}: {step}");
            }
        }
    }
}

#[tokio::test]
async fn the_page_of_unanswered_flushes_walks_its_own_index_without_sorting() {
    for database in [sqlite().await] {
        let mut reader = database.store.database.read().await.unwrap();
        let rows = reader.query(format!("EXPLAIN QUERY PLAN {}", pending::PAGE.sqlite), values![]).await;
        let plan: Vec<String> = rows.unwrap().iter().map(|row| row.text(3).unwrap()).collect();
        assert!(plan.iter().any(|step| step.contains("pc_artifact_processing_pending_asked")), "{plan:?}");
        assert!(plan.iter().all(|step| !step.contains("TEMP B-TREE")), "{plan:?}");
    }
}

/// Statements that run for every request, Window or supervisor pass, on OceanBase.
const HOT_ON_OCEANBASE: &[&str] = &[
    "SELECT head FROM pc_source_journals WHERE scope_id = 'a' FOR UPDATE",
    "SELECT position FROM pc_sources WHERE scope_id = 'a' AND position > 1 ORDER BY position LIMIT 9",
    "SELECT position FROM pc_sources WHERE scope_id = 'a' AND source_type = 'b' AND source_id = 'c'",
    "SELECT position FROM pc_source_cursors WHERE scope_id = 'a' AND binding_name = 'b' FOR UPDATE",
    "SELECT revision FROM pc_artifact_heads WHERE scope_id = 'a' AND family = 'b' AND artifact_id IN ('c', 'd')",
    "SELECT revision FROM pc_topic_memory_active_topics WHERE scope_id = 'a' AND artifact_id IN ('c', 'd')",
    "DELETE FROM pc_topic_memory_active_chunks WHERE scope_id = 'a' AND chunk_key BETWEEN 1 AND 2",
    "SELECT scope_id FROM pc_scopes WHERE idempotency_key = 'a'",
];

#[tokio::test]
async fn no_hot_statement_scans_a_table_on_oceanbase() {
    let Some(database) = oceanbase().await else { return };
    let mut built: Vec<String> = HOT_ON_OCEANBASE.iter().map(|&text| text.to_owned()).collect();
    for channel in [Channel::TopicFts, Channel::DetailFts] {
        built.push(fulltext::oceanbase::frequencies_text(channel, 3));
        built.push(fulltext::oceanbase::candidates_text(channel, 3));
    }
    built.push(pending::PAGE.oceanbase.to_owned());
    let mut reader = database.store.database.read().await.unwrap();
    for text in built {
        let rows = reader.query(format!("EXPLAIN {}", filled(&text)), values![]).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.text(0).unwrap()).collect();
        let plan = plan.join("\n");
        assert!(!plan.contains("TABLE FULL SCAN"), "{text}\n{plan}");
        let retrievals = plan.matches("TEXT RETRIEVAL SCAN").count();
        assert_eq!(retrievals, text.matches("MATCH").count(), "{text}\n{plan}");
    }
}

/// The statement with a value in place of every placeholder.
fn filled(text: &str) -> String {
    text.replace("LIMIT ?", "LIMIT 9").replace(">= ?", ">= 2").replace("<= ?", "<= 8").replace('?', "'7xfoo'")
}
