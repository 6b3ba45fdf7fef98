//! Answers the three stage questions with groups (`cluster`) and extracts (`compose`).
//!
//! The direct path binds at most one Topic: a slot is filled only when everything in the Window
//! belongs to it; otherwise each subject becomes a new Topic and coordination binds it later. Every
//! Source with a word in it is used exactly once; the others are not used at all.

use powercontext_core::stages::{
    EvidenceItem, GlobalInput, GlobalOutput, Probe, ProbeInput, ProbeOutput, ReconcileInput, ReconcileOutput,
    Slot,
};

use super::cluster::{Document, Lexicon, Profile, groups};
use super::compose::{Material, compose, visible};
use super::text::{Kind, Piece, pieces, readable};

/// Terms of a Probe: enough to be found by, few enough to need only some of them.
const PROBE_TERMS: usize = 8;
/// Terms of which a search needs only one.
const NAME_TERMS: usize = 2;
/// How much of a large Topic's beginning and end is read to recognise its subject, in bytes.
const RECOGNISED_BYTES: usize = 2_000;

/// Two Probes per subject of the Window: its most telling terms, of which a Topic must have some, and
/// the strongest name alone, so that a Topic is found that tells the same in other words.
pub(super) fn probe(input: &ProbeInput) -> ProbeOutput {
    let mut lexicon = Lexicon::default();
    let sources = read(&mut lexicon, &input.sources);
    let profiles: Vec<Profile> = sources.iter().map(|(_, source)| lexicon.profile([source])).collect();
    let mut probes = Vec::new();
    for group in groups(&lexicon, &profiles) {
        let profile = lexicon.profile(group.iter().map(|at| &sources[*at].1));
        let evidence_ids: Vec<String> = group.iter().map(|at| sources[*at].0.clone()).collect();
        let terms = query_terms(&lexicon, &profile);
        let name = &terms[..terms.len().min(NAME_TERMS)];
        if name.len() < terms.len() {
            probes.push(Probe { query: name.join(" "), evidence_ids: evidence_ids.clone() });
        }
        probes.push(Probe { query: terms.join(" "), evidence_ids });
    }
    ProbeOutput { probes }
}

/// One rewrite when all is about one given Topic, otherwise one new Topic per subject.
pub(super) fn global(input: &GlobalInput) -> GlobalOutput {
    let mut lexicon = Lexicon::default();
    let sources = read(&mut lexicon, &input.sources);
    let slots: Vec<Document> = input.slots.iter().map(|slot| recognise(&mut lexicon, slot)).collect();
    let subjects = subjects(&lexicon, &sources, &slots);
    let mut output = GlobalOutput { updates: vec![None; input.slots.len()], new_topics: Vec::new() };
    if let [Subject { slot: Some(at), members }] = &subjects[..] {
        let slot = &input.slots[*at];
        let whole = lexicon.read(topic_pieces(&slot.title, &slot.detail));
        output.updates[*at] = Some(compose(Material {
            lexicon: &lexicon,
            old: Some((slot, &whole)),
            new: members.iter().map(|at| &sources[*at].1).collect(),
            title: None,
            evidence_ids: ids_of(&sources, members),
        }));
    } else {
        output.new_topics.extend(subjects.iter().map(|subject| {
            // Under the known title and summary the second retrieval finds the Topic it belongs to.
            let slot = subject.slot.map(|at| &input.slots[at]);
            let title = slot.map(|slot| slot.title.as_str());
            let new = subject.members.iter().map(|at| &sources[*at].1).collect();
            let evidence_ids = ids_of(&sources, &subject.members);
            let mut draft = compose(Material { lexicon: &lexicon, old: None, new, title, evidence_ids });
            if let Some(slot) = slot {
                draft.summary = visible(&slot.summary);
            }
            draft
        }));
    }
    output
}

/// Joins the new Topics that belong to the existing one or to each other.
pub(super) fn reconcile(input: &ReconcileInput) -> ReconcileOutput {
    let mut lexicon = Lexicon::default();
    let creates: Vec<Document> =
        input.creates.iter().map(|draft| lexicon.read(topic_pieces(&draft.title, &draft.detail))).collect();
    let slot = &input.existing;
    let existing = recognise(&mut lexicon, slot);
    let profiles: Vec<Profile> = creates.iter().map(|create| lexicon.profile([create])).collect();
    let target = lexicon.profile([&existing]);
    let belongs = |at: &usize| {
        visible(&slot.title) == input.creates[*at].title || lexicon.similarity(&profiles[*at], &target) >= 1.0
    };
    let (bound, free): (Vec<usize>, Vec<usize>) = (0..creates.len()).partition(belongs);
    let ids = |members: &[usize]| {
        let mut ids: Vec<String> = Vec::new();
        for id in members.iter().flat_map(|at| &input.creates[*at].evidence_ids) {
            if !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        ids
    };
    let free_profiles: Vec<Profile> = free.iter().map(|at| profiles[*at].clone()).collect();
    let mut output = ReconcileOutput { update: None, creates: Vec::new() };
    for group in groups(&lexicon, &free_profiles) {
        let members: Vec<usize> = group.into_iter().map(|at| free[at]).collect();
        let draft = if let [only] = members[..] {
            input.creates[only].clone()
        } else {
            let new = members.iter().map(|at| &creates[*at]).collect();
            compose(Material { lexicon: &lexicon, old: None, new, title: None, evidence_ids: ids(&members) })
        };
        output.creates.push(draft);
    }
    if !bound.is_empty() {
        let whole = lexicon.read(topic_pieces(&slot.title, &slot.detail));
        let new = bound.iter().map(|at| &creates[*at]).collect();
        let old = Some((slot, &whole));
        output.update =
            Some(compose(Material { lexicon: &lexicon, old, new, title: None, evidence_ids: ids(&bound) }));
    }
    output
}

/// The Window's Sources that have words, in Journal order, by evidence id.
fn read(lexicon: &mut Lexicon, sources: &[EvidenceItem]) -> Vec<(String, Document)> {
    let documents = sources.iter().map(|source| {
        let document = lexicon.read(pieces(&readable(&source.content)));
        (source.evidence_id.clone(), document)
    });
    documents.filter(|(_, document)| document.usable).collect()
}

fn topic_pieces(title: &str, detail: &str) -> Vec<Piece> {
    let title = title.trim().to_owned();
    let heading = Piece { kind: Kind::Heading, opens: true, text: title };
    std::iter::once(heading).filter(|heading| !heading.text.is_empty()).chain(pieces(detail)).collect()
}

/// Reads as much of a Topic as its subject needs.
fn recognise(lexicon: &mut Lexicon, slot: &Slot) -> Document {
    let detail = &slot.detail;
    if detail.len() <= 2 * RECOGNISED_BYTES {
        return lexicon.read(topic_pieces(&slot.title, detail));
    }
    let head = &detail[..detail.floor_char_boundary(RECOGNISED_BYTES)];
    let tail = &detail[detail.ceil_char_boundary(detail.len() - RECOGNISED_BYTES)..];
    let mut read = topic_pieces(&slot.title, head);
    read.extend(pieces(&slot.summary));
    read.extend(pieces(tail));
    lexicon.read(read)
}

struct Subject {
    slot: Option<usize>,
    members: Vec<usize>,
}

/// Sorts the Sources by subject, those of one given Topic together.
fn subjects(lexicon: &Lexicon, sources: &[(String, Document)], slots: &[Document]) -> Vec<Subject> {
    let profiles: Vec<Profile> = sources.iter().map(|(_, source)| lexicon.profile([source])).collect();
    let known: Vec<Profile> = slots.iter().map(|slot| lexicon.profile([slot])).collect();
    let nearest = |profile: &Profile, known: &[Profile]| {
        let scored = known.iter().enumerate().map(|(at, slot)| (lexicon.similarity(profile, slot), at));
        scored.filter(|(score, _)| *score >= 1.0).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
    };
    let mut of_slot: Vec<Vec<usize>> = vec![Vec::new(); slots.len()];
    let mut free = Vec::new();
    for (at, profile) in profiles.iter().enumerate() {
        match nearest(profile, &known) {
            Some((_, slot)) => of_slot[slot].push(at),
            None => free.push(at),
        }
    }
    // A Source that resembles no Topic by itself may resemble what joined one in this Window.
    let grown = slots.iter().zip(&of_slot).map(|(slot, members)| {
        lexicon.profile(std::iter::once(slot).chain(members.iter().map(|at| &sources[*at].1)))
    });
    let grown: Vec<Profile> = grown.collect();
    let free_profiles: Vec<Profile> = free.iter().map(|at| profiles[*at].clone()).collect();
    let mut subjects = Vec::new();
    for group in groups(lexicon, &free_profiles) {
        let members: Vec<usize> = group.into_iter().map(|at| free[at]).collect();
        let profile = lexicon.profile(members.iter().map(|at| &sources[*at].1));
        match nearest(&profile, &grown) {
            Some((_, slot)) => of_slot[slot].extend(members),
            None => subjects.push(Subject { slot: None, members }),
        }
    }
    for (slot, mut members) in of_slot.into_iter().enumerate().filter(|(_, members)| !members.is_empty()) {
        members.sort_unstable();
        subjects.push(Subject { slot: Some(slot), members });
    }
    subjects.sort_by_key(|subject| subject.members.first().copied());
    subjects
}

fn ids_of(sources: &[(String, Document)], members: &[usize]) -> Vec<String> {
    members.iter().map(|at| sources[*at].0.clone()).collect()
}

/// The most telling terms, none of which overlaps another by a Han character.
fn query_terms<'a>(lexicon: &'a Lexicon, profile: &Profile) -> Vec<&'a str> {
    let strongest = profile.strongest();
    let telling = strongest.iter().filter(|term| lexicon.tells(**term) && lexicon.is_indexed(**term));
    let mut chosen: Vec<&str> = Vec::new();
    for term in telling {
        let surface = lexicon.surface(*term);
        let wide = |c: char| !c.is_ascii();
        let overlaps = surface.contains(wide)
            && chosen.iter().any(|known| known.chars().any(|c| wide(c) && surface.contains(c)));
        if !overlaps {
            chosen.push(surface);
        }
        if chosen.len() == PROBE_TERMS {
            break;
        }
    }
    if chosen.is_empty() {
        let indexed = strongest.iter().filter(|term| lexicon.is_indexed(**term));
        chosen.extend(indexed.take(PROBE_TERMS).map(|term| lexicon.surface(*term)));
    }
    if chosen.is_empty() {
        chosen.extend(strongest.first().map(|term| lexicon.surface(*term)));
    }
    chosen
}
