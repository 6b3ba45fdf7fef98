//! How a wave of very many Scopes behaves, measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;
use crate::database::values;
use crate::sources;
use crate::tests::new_source;
use crate::tests::plans::bounded_on_oceanbase;

const PAGE: u32 = 256;

fn scope(number: usize) -> ScopeId {
    ScopeId::parse(format!("scp_{number:08}")).unwrap()
}

impl TestDatabase {
    /// Writes the rows of that many Scopes with one Source each that is not processed.
    async fn fill(&self, members: std::ops::Range<usize>) {
        let binding = key(&scope(0)).binding;
        let mut session = self.store.database.session().await.unwrap();
        let numbers: Vec<usize> = members.collect();
        for some in numbers.chunks(5000) {
            let rows = |row: &dyn Fn(ScopeId) -> String| {
                some.iter().map(|number| row(scope(*number))).collect::<Vec<_>>().join(", ")
            };
            let journals = rows(&|scope| format!("('{scope}', 1)"));
            let pending = rows(&|scope| format!("('{binding}', '{scope}', 1, 1)"));
            for text in [
                format!("INSERT INTO pc_source_journals (scope_id, head) VALUES {journals}"),
                format!(
                    "INSERT INTO pc_artifact_processing_pending \
                     (binding_name, scope_id, source_through, flush_generation) VALUES {pending}"
                ),
            ] {
                session.command(text).await.unwrap();
            }
        }
    }

    async fn count(&self, text: &'static str) -> i64 {
        let mut reader = self.store.database.read().await.unwrap();
        reader.query_one(text, values![]).await.unwrap().unwrap().integer(0).unwrap()
    }
}

/// The plan the server makes for these very values, which are put in place of the placeholders in order.
async fn plan(database: &TestDatabase, text: &str, parameters: &[&str]) -> String {
    let mut filled = String::new();
    let mut parts = text.split('?');
    filled.push_str(parts.next().unwrap());
    for (part, value) in parts.zip(parameters) {
        filled.push_str(value);
        filled.push_str(part);
    }
    let mut reader = database.store.database.read().await.unwrap();
    let rows = reader.query(format!("EXPLAIN {filled}"), values![]).await.unwrap();
    rows.iter().map(|row| row.text(0).unwrap()).collect::<Vec<_>>().join("\n")
}

/// That the server reads ranges and not tables, however many rows it knows of.
async fn plans_on_oceanbase(database: &TestDatabase, wave: &AutoWave) {
    let (id, binding) = (format!("'{}'", wave.id), format!("'{}'", wave.binding));
    let (id, binding) = (id.as_str(), binding.as_str());
    let after = "'scp_00040000'";
    let page = plan(database, pending::PAGE.oceanbase, &[binding, after, "256"]).await;
    bounded_on_oceanbase(&page);
    bounded_on_oceanbase(&plan(database, waves::TARGETS, &[id, binding, after, "256"]).await);
    bounded_on_oceanbase(&plan(database, waves::LATE, &[binding, after, "256", id]).await);
    let listed: Vec<String> = (1000..1256).map(|number| format!("'{}'", scope(number))).collect();
    let listed = listed.join(", ");
    let mark = format!("{} AND scope_id IN ({listed})", waves::MARK_COVERED);
    for (text, parameters) in [
        (mark.as_str(), [id, binding]),
        (waves::UNCOVERED, [id, binding]),
        (waves::REMOVE_SETTLED, [binding, id]),
        (waves::FREEZE.oceanbase, [id, binding]),
        (waves::FORGET, [id, binding]),
    ] {
        let plan = plan(database, text, &parameters).await;
        assert!(!plan.contains("FULL SCAN") && !plan.contains("PX "), "{plan}");
    }
}

/// What a series of calls took.
#[derive(Default)]
struct Took(Vec<Duration>);

impl Took {
    #[allow(clippy::disallowed_methods, reason = "measures real time")]
    async fn time<T>(&mut self, call: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let answer = call.await;
        self.0.push(start.elapsed());
        answer
    }

    fn tell(mut self, what: &str) {
        self.0.sort_unstable();
        let (calls, total) = (self.0.len(), self.0.iter().sum::<Duration>());
        let middle = self.0.get(calls / 2).copied().unwrap_or_default();
        let worst = self.0.last().copied().unwrap_or_default();
        println!(
            "  {what:<38} {calls:>5} calls, median {middle:>10.1?}, worst {worst:>10.1?}, together {total:.1?}"
        );
    }
}

/// Captures one Source after the other into random members, until told to stop.
async fn capture(database: &TestDatabase, members: usize, stop: &AtomicBool, seed: usize) -> Took {
    let store = database.reopened().await;
    let mut took = Took::default();
    let mut number = seed;
    while !stop.load(Ordering::Relaxed) {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let new = new_source(&scope((number >> 20) % members), &format!("{seed}-{}", took.0.len()), "text");
        took.time(sources::add(&store, &new)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    took
}

/// One whole wave over all Pending rows, with captures while it completes.
async fn whole_wave(database: &TestDatabase, fence: &Fence, members: usize) {
    println!("{:?}, {members} members", database.engine());
    let store = &database.store;
    let wave =
        AutoWave { binding: key(&scope(0)).binding, id: WaveId::parse(format!("wave-{members}")).unwrap() };

    let (mut took, mut seen, mut after) = (Took::default(), 0, None);
    loop {
        let page = took.time(pending::page(store, after.as_ref(), PAGE)).await.unwrap();
        let Some(last) = page.last() else { break };
        (seen, after) = (seen + page.len(), Some(last.key.clone()));
    }
    assert_eq!(seen, members);
    took.tell("page of unanswered flushes");
    database
        .run("UPDATE pc_artifact_processing_pending SET handled_flush_generation = flush_generation")
        .await;

    let mut took = Took::default();
    let frozen = took.time(waves::freeze(store, fence, &wave, Duration::ZERO)).await.unwrap();
    assert_eq!(frozen, Freeze::Frozen { members: members as u64 });
    took.tell("freeze");

    let (mut took, mut scopes): (_, Vec<ScopeId>) = (Took::default(), Vec::new());
    loop {
        let page = took.time(waves::targets(store, &wave, scopes.last(), PAGE)).await.unwrap();
        if page.is_empty() {
            break;
        }
        scopes.extend(page.into_iter().map(|row| row.fact.key.scope));
    }
    assert_eq!(scopes.len(), members);
    took.tell("page of open targets");

    let (mut took, mut seen, mut after) = (Took::default(), 0, None);
    loop {
        let page = took.time(waves::late(store, &wave, after.as_ref(), PAGE)).await.unwrap();
        let Some(last) = page.last() else { break };
        (seen, after) = (seen + page.len(), Some(last.fact.key.scope.clone()));
    }
    assert_eq!(seen, members);
    took.tell("page of live rows");

    let cover = "INSERT INTO pc_source_cursors (scope_id, binding_name, position) \
        SELECT scope_id, binding_name, source_through FROM pc_artifact_processing_pending";
    database.run(cover).await;
    let (mut took, mut marked) = (Took::default(), 0);
    let half = scopes.len() / 2;
    for some in scopes[..half].chunks(PAGE as usize) {
        marked += took.time(waves::mark_covered(store, fence, &wave, some)).await.unwrap();
    }
    assert_eq!(marked, half as u64);
    took.tell("mark a page as covered");
    let mut took = Took::default();
    let page = took.time(waves::targets(store, &wave, None, PAGE)).await.unwrap();
    assert_eq!(page.first().map(|row| &row.fact.key.scope), scopes.get(half));
    took.tell("first open page behind the marked half");

    if database.engine() == Engine::OceanBase {
        plans_on_oceanbase(database, &wave).await;
    }
    let stop = AtomicBool::new(false);
    let completed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut took = Took::default();
        let completed = took.time(waves::complete(store, fence, &wave)).await;
        stop.store(true, Ordering::Relaxed);
        took.tell("complete, while others capture");
        completed.unwrap()
    };
    let (completed, one, two) =
        tokio::join!(completed, capture(database, members, &stop, 1), capture(database, members, &stop, 2));
    let mut captures = one;
    captures.0.extend(two.0);
    captures.tell("capture meanwhile");
    println!("  {completed:?}, {} transactions began again", store.busy_retries());
    assert!(matches!(completed, Completion::Completed { .. }));
    let lost = "SELECT count(*) FROM pc_source_journals AS journal \
        LEFT JOIN pc_source_cursors AS place ON place.scope_id = journal.scope_id \
        LEFT JOIN pc_artifact_processing_pending AS pending ON pending.scope_id = journal.scope_id \
        WHERE coalesce(place.position, 0) < journal.head AND coalesce(pending.source_through, 0) <> journal.head";
    assert_eq!(database.count(lost).await, 0);
    assert_eq!(database.count("SELECT count(*) FROM pc_artifact_processing_auto_wave_targets").await, 0);
}

/// Prints how long the statements over a large wave take: `-- --ignored --nocapture wave_of_very_many`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "a measurement"]
async fn a_wave_of_very_many_scopes() {
    // TM-207 TM-208
    for database in databases().await {
        let fence = database.term().await;
        // A small wave first: the server keeps the plans it made for it.
        for members in [50, 100_000] {
            for table in ["pc_source_journals", "pc_source_cursors", "pc_artifact_processing_pending"] {
                database.run(&format!("DELETE FROM {table}")).await;
            }
            database.fill(0..members).await;
            whole_wave(&database, &fence, members).await;
        }
    }
}
