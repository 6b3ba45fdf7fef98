//! Whatever was captured, the built-in model's answers keep the output contract of their stage.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::time::Duration;

use powercontext_core::stages::{
    EvidenceItem, GlobalInput, GlobalOutput, ProbeInput, ProbeOutput, ReconcileInput, ReconcileOutput, Slot,
    Stage, TopicDraft,
};
use powercontext_core::topic::{MAX_DETAIL_CHARS, MAX_SUMMARY_CHARS, MAX_TITLE_CHARS};
use powercontext_inference::{Generation, GenerationConfig, GenerationRequest, generator};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

fn ask(stage: Stage, input: &impl Serialize) -> Generation {
    let config = GenerationConfig::new("builtin:extractive");
    let input = serde_json::to_value(input).unwrap();
    let schema = json!({});
    let request = GenerationRequest {
        stage,
        instructions: "x",
        input: &input,
        schema: &schema,
        correction: None,
        max_output_tokens: 1,
    };
    let model = generator(&config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(model.generate(&request)).unwrap()
}

fn probes(sources: &[EvidenceItem]) -> ProbeOutput {
    serde_json::from_str(&ask(Stage::Probe, &ProbeInput { sources: sources.to_vec() }).text).unwrap()
}

fn global(sources: &[EvidenceItem], slots: &[Slot]) -> GlobalOutput {
    let input = GlobalInput { sources: sources.to_vec(), slots: slots.to_vec() };
    serde_json::from_str(&ask(Stage::Global, &input).text).unwrap()
}

fn sources(contents: &[Value]) -> Vec<EvidenceItem> {
    let item = |(at, content): (usize, &Value)| EvidenceItem {
        evidence_id: format!("s{}", at + 1),
        content: content.clone(),
        metadata: None,
    };
    contents.iter().enumerate().map(item).collect()
}

fn holds(draft: &TopicDraft) {
    for (text, limit) in [
        (&draft.title, MAX_TITLE_CHARS),
        (&draft.summary, MAX_SUMMARY_CHARS),
        (&draft.detail, MAX_DETAIL_CHARS),
    ] {
        assert!(!text.trim().is_empty(), "blank field in {draft:?}");
        assert!(text.chars().count() <= limit);
        let control = |byte: u8| byte < b' ' && byte != b'\t' && byte != b'\n';
        assert!(!text.bytes().any(control), "control character in {draft:?}");
    }
    assert!(!draft.title.contains('\n'));
}

/// The ids of several drafts, each at most once.
fn ids<'a>(drafts: impl IntoIterator<Item = &'a TopicDraft>) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for id in drafts.into_iter().flat_map(|draft| &draft.evidence_ids) {
        assert!(ids.insert(id.clone()), "{id} is used twice");
    }
    ids
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ \\n#*>|`.0-9-]{0,30}",
        "(#{1,3} )?([a-z]{1,9}( |, |\\. |\\n|\\n\\n- )){0,40}",
        "[租约续期失败灰度发布的了是，。；：！\\n]{0,80}",
        "(```\\n)?[a-z(){};_ \\n]{0,60}(\\n```)?",
        "\\PC{0,400}",
        "(```\n)?[a-z\\x00-\\x1f .`]{1,60}(\n```)?",
    ]
}

fn content() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => text().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => text().prop_map(|text| json!({ "role": "user", "content": text })),
        1 => (text(), text()).prop_map(|(a, b)| json!({ "title": a, "files": [b], "n": 3, "message": { "text": a } })),
        1 => text().prop_map(|text| json!([{ "type": "text", "text": text }, 7, [text]])),
    ]
}

fn slot() -> impl Strategy<Value = Slot> {
    (text(), text(), text())
        .prop_filter("a stored Topic has no blank field", |(a, b, c)| {
            [a, b, c].iter().all(|text| !text.trim().is_empty())
        })
        .prop_map(|(title, summary, detail)| {
            let title = title.chars().filter(|c| !c.is_control()).take(512).collect::<String>();
            Slot { slot: 1, title: format!("t{title}"), summary, detail }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_captured_content_yields_answers_that_keep_the_contract(
        contents in prop::collection::vec(content(), 0..8),
        slots in prop::collection::vec(slot(), 0..4),
    ) {
        // TM-043 TM-126 TM-127
        let sources = sources(&contents);
        let known: BTreeSet<String> = sources.iter().map(|source| source.evidence_id.clone()).collect();
        let mut probed = BTreeSet::new();
        for probe in probes(&sources).probes {
            prop_assert!(!probe.query.trim().is_empty() && !probe.evidence_ids.is_empty());
            probed.extend(probe.evidence_ids);
        }
        prop_assert!(probed.is_subset(&known));
        let output = global(&sources, &slots);
        prop_assert_eq!(output.updates.len(), slots.len());
        let filled: Vec<&TopicDraft> = output.updates.iter().flatten().collect();
        prop_assert!(filled.len() + usize::from(!output.new_topics.is_empty()) <= 1);
        filled.iter().copied().chain(&output.new_topics).for_each(holds);
        prop_assert_eq!(ids(filled.iter().copied().chain(&output.new_topics)), probed);

        let creates = output.new_topics;
        let Some(existing) = slots.first().cloned().filter(|_| !creates.is_empty()) else {
            return Ok(());
        };
        let given = ids(&creates);
        let input = ReconcileInput { creates, existing };
        let output: ReconcileOutput = serde_json::from_str(&ask(Stage::Reconcile, &input).text).unwrap();
        output.update.iter().chain(&output.creates).for_each(holds);
        prop_assert_eq!(ids(output.update.iter().chain(&output.creates)), given);
    }
}

const LEASE: &str = "# Leader lease\n\nThe leader renews its lease every five seconds. A candidate takes the lease over when it expired.";
const LEASE_NEWS: &str = "The leader now gives its lease up on shutdown, so a candidate takes over at once.";
const BUNDLE: &str = "首页的打包体积从两兆降到八百千字节，去掉了整包引入的图表库。";

fn as_slot(draft: &TopicDraft) -> Slot {
    let TopicDraft { title, summary, detail, .. } = draft.clone();
    Slot { slot: 1, title, summary, detail }
}

#[test]
fn an_update_keeps_the_title_and_what_was_known_and_adds_what_is_new() {
    // TM-121 TM-123
    let first = global(&sources(&[LEASE.into()]), &[]).new_topics.remove(0);
    assert_eq!(first.title, "Leader lease");
    let output = global(&sources(&[LEASE_NEWS.into()]), &[as_slot(&first)]);
    let update = output.updates[0].clone().unwrap();
    assert!(output.new_topics.is_empty());
    assert_eq!(update.title, "Leader lease");
    assert_eq!(update.detail, format!("{}\n\n{LEASE_NEWS}", first.detail));
    let again = global(&sources(&[LEASE_NEWS.into()]), &[as_slot(&update)]).updates.remove(0).unwrap();
    assert_eq!(again.detail, update.detail, "what is known already is not repeated");
}

#[test]
fn two_subjects_in_one_window_fill_no_slot_and_are_bound_by_coordination() {
    // TM-096 TM-116
    let first = global(&sources(&[LEASE.into()]), &[]).new_topics.remove(0);
    let slot = as_slot(&first);
    let output = global(&sources(&[LEASE_NEWS.into(), BUNDLE.into()]), std::slice::from_ref(&slot));
    assert_eq!(output.updates, [None]);
    assert_eq!(output.new_topics.len(), 2);
    let input = ReconcileInput { creates: output.new_topics, existing: slot };
    let output: ReconcileOutput = serde_json::from_str(&ask(Stage::Reconcile, &input).text).unwrap();
    let update = output.update.unwrap();
    assert_eq!(update.evidence_ids, ["s1"]);
    assert!(update.detail.contains("every five seconds") && update.detail.contains("on shutdown"));
    assert_eq!(output.creates.len(), 1);
    assert_eq!(output.creates[0].evidence_ids, ["s2"]);
}

#[test]
fn a_correction_goes_to_the_topic_that_shares_its_rarest_term() {
    // TM-116
    let topic = |text: &str| as_slot(&global(&sources(&[text.into()]), &[]).new_topics[0]);
    let near = topic("The wiki box ran out of memory overnight. Memory of the box was doubled.");
    let meant = topic("All php-fpm workers were busy. Raised pm.max_children to 20 and reloaded php-fpm.");
    let correction = "Correction: pm.max_children of 20 no longer holds, the box ran out of memory overnight. It is set to 12.";
    for (slots, at) in [([near.clone(), meant.clone()], 1), ([meant, near], 0)] {
        let slots = [Slot { slot: 1, ..slots[0].clone() }, Slot { slot: 2, ..slots[1].clone() }];
        let output = global(&sources(&[correction.into()]), &slots);
        assert!(output.updates[at].as_ref().is_some_and(|update| update.detail.contains("set to 12")));
    }
}

#[test]
fn a_source_without_a_word_is_not_evidence_of_anything() {
    // TM-044 TM-122
    let sources = sources(&["".into(), "12, 34 ...".into(), json!({ "id": 7 }), LEASE.into()]);
    let output = global(&sources, &[]);
    assert_eq!(output.new_topics.len(), 1);
    assert_eq!(output.new_topics[0].evidence_ids, ["s4"]);
    assert!(probes(&sources[..3]).probes.is_empty());
}

#[test]
fn a_topic_that_grows_for_long_stays_bounded_and_keeps_its_newest_information() {
    let mut slot = as_slot(&global(&sources(&[LEASE.into()]), &[]).new_topics[0]);
    for round in 0..60 {
        let note = format!(
            "In round {round} the leader lease was renewed by candidate c{round}x before it expired. \
             The leader kept the lease for round {round} with holder h{round}x and generation g{round}x. {}",
            format!("Lease observation o{round}x was made by the leader. ").repeat(3)
        );
        let update = global(&sources(&[note.into()]), &[slot.clone()]).updates.remove(0).unwrap();
        assert!(update.detail.chars().count() <= 12_000 && update.summary.chars().count() <= 400);
        assert!(update.detail.contains(&format!("candidate c{round}x")));
        assert_eq!(update.title, "Leader lease");
        slot = Slot { slot: 1, ..as_slot(&update) };
    }
}

#[test]
fn the_same_question_has_the_same_answer_and_costs_what_the_estimator_says() {
    let input = ProbeInput { sources: sources(&[LEASE.into(), BUNDLE.into(), LEASE_NEWS.into()]) };
    let (first, second) = (ask(Stage::Probe, &input), ask(Stage::Probe, &input));
    assert_eq!(first, second);
    assert_eq!(first.usage.output_tokens, powercontext_core::tokens::estimate(&first.text));
    assert!(first.usage.input_tokens > 0);
}

/// Prints how long large inputs take; run it with an optimised build: `cargo test --release -- --ignored`.
#[test]
#[ignore = "a measurement, not an assertion"]
#[allow(clippy::disallowed_methods, reason = "measures real time")]
fn measure() {
    let paragraph = |n: usize| {
        format!(
            "Observation {n}: the leader w{n}x renewed lease l{}y while candidate c{n}z waited for shard {n}. ",
            n % 7
        )
    };
    let words = |from: usize, bytes: usize| {
        (from..)
            .map(paragraph)
            .scan(0, |size, text| {
                *size += text.len();
                (*size <= bytes).then_some(text)
            })
            .collect::<String>()
    };
    let small: Vec<Value> = (0..10).map(|n| words(n * 1000, 2048).into()).collect();
    let large: Vec<Value> = vec![words(0, 200_000).into()];
    let chinese: Vec<Value> =
        vec!["租约续期失败以后，领导者必须停止派发任务。灰度发布期间观察错误率和延迟！".repeat(1900).into()];
    let slots: Vec<Slot> = (0..20)
        .map(|n| Slot {
            slot: n + 1,
            title: format!("Topic {n}"),
            summary: words(n as usize, 300),
            detail: words(n as usize * 77, 8000),
        })
        .collect();
    for (name, contents, slots) in [
        ("10 x 2 KB, 20 slots", &small, &slots[..]),
        ("200 KB", &large, &[]),
        ("200 KB Chinese", &chinese, &[]),
    ] {
        let sources = sources(contents);
        let mut best = [Duration::MAX; 2];
        for _ in 0..10 {
            let start = std::time::Instant::now();
            probes(&sources);
            let probe = start.elapsed();
            global(&sources, slots);
            best = [best[0].min(probe), best[1].min(start.elapsed() - probe)];
        }
        println!("{name}: probe {:?}, global {:?} (best of 10)", best[0], best[1]);
    }
}
