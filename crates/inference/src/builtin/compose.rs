//! Writes a Topic's title, summary and detail out of sentences that were captured.
//!
//! Nothing is rephrased: sentences are chosen and put in order. An update keeps the title and the whole
//! older body and appends what is new; only a body over its limit loses its least central sentences.

use std::collections::HashSet;

use powercontext_core::stages::{Slot, TopicDraft};

use super::cluster::{Document, Lexicon, Profile, Sentence};
use super::inline::{balanced, is_visible, plain};
use super::text::{Kind, is_wide_edge, join};
use super::title::{cut, title};
use super::words::is_wide;

const MAX_SUMMARY_CHARS: usize = 400;
const MAX_SUMMARY_SENTENCES: usize = 3;
const MAX_DETAIL_CHARS: usize = 12_000;
/// A text up to this size is kept whole.
const WHOLE_CHARS: usize = 1_200;
/// The most characters one piece of evidence adds.
const MAX_EXTRACT_CHARS: usize = 4_000;
/// How much more a new sentence is worth than an equally central older one.
const NEWS: f32 = 1.4;

/// What a Topic is written from: the existing one, if any, and the new texts in Journal order.
pub(super) struct Material<'a> {
    pub(super) lexicon: &'a Lexicon,
    pub(super) old: Option<(&'a Slot, &'a Document)>,
    pub(super) new: Vec<&'a Document>,
    /// A title that is given and not chosen.
    pub(super) title: Option<&'a str>,
    pub(super) evidence_ids: Vec<String>,
}

/// Writes the complete content.
pub(super) fn compose(material: Material<'_>) -> TopicDraft {
    let old = material.old;
    let everything = old.iter().map(|(_, document)| *document).chain(material.new.iter().copied());
    let profile = material.lexicon.profile(everything);
    let kept = old.map(|(slot, _)| slot.title.trim()).filter(|title| keeps_title(&material, title));
    let title = match material.title.or(kept) {
        Some(given) => visible(given),
        None => title(material.lexicon, &profile, &material.new),
    };
    let named = key(&title);
    let mut seen: HashSet<String> = HashSet::new();
    let older: Vec<&Sentence> = old.iter().flat_map(|(_, document)| &document.sentences).collect();
    seen.extend(older.iter().map(|sentence| key(&sentence.text)));
    let mut newer = Vec::new();
    for document in &material.new {
        // The title stands above the detail already, where it was a heading.
        let above = |sentence: &Sentence, key: &str| sentence.kind == Kind::Heading && key == named;
        let fresh = document.sentences.iter().filter(|sentence| {
            let key = key(&sentence.text);
            !above(sentence, &key) && seen.insert(key)
        });
        newer.extend(extract(&profile, fresh.collect()));
    }
    if newer.is_empty() && older.is_empty() {
        // Every sentence says what the title says.
        newer.extend(material.new.iter().flat_map(|document| &document.sentences).take(1));
    }
    let summary = summary(&profile, &named, &older, &newer);
    let detail = detail(&profile, old.map(|(slot, _)| slot.detail.as_str()), &older, &newer);
    TopicDraft { title, summary, detail, evidence_ids: material.evidence_ids }
}

/// Whether a title still names the subject: any of its words is still central, or it has none.
fn keeps_title(material: &Material<'_>, title: &str) -> bool {
    let Some((_, document)) = material.old else { return false };
    let named = |sentence: &&Sentence| sentence.kind == Kind::Heading && sentence.text == title;
    let words = document.sentences.iter().find(named).map_or(&[][..], |sentence| &sentence.terms);
    let profile = material.lexicon.profile(material.new.iter().copied().chain([document]));
    !title.is_empty() && (words.is_empty() || words.iter().any(|term| profile.weight(*term) > 0.0))
}

/// How much of the subject one sentence carries.
pub(super) fn centrality(profile: &Profile, sentence: &Sentence) -> f32 {
    let mut terms = sentence.terms.clone();
    terms.sort_unstable();
    terms.dedup();
    let carried: f32 = terms.iter().map(|term| profile.weight(*term)).sum();
    #[allow(clippy::cast_precision_loss, reason = "a sentence has few terms")]
    let length = (terms.len() as f32 + 6.0).sqrt();
    let kind = if sentence.kind == Kind::Code { 0.5 } else { 1.0 };
    kind * carried / length
}

/// The most telling sentences of one text in their order; a short text whole.
fn extract<'a>(profile: &Profile, sentences: Vec<&'a Sentence>) -> Vec<&'a Sentence> {
    let size: usize = sentences.iter().map(|sentence| sentence.text.chars().count()).sum();
    let budget = (WHOLE_CHARS + size.saturating_sub(WHOLE_CHARS) / 4).min(MAX_EXTRACT_CHARS);
    if size <= budget {
        return sentences;
    }
    let scores = sentences.iter().enumerate().map(|(place, sentence)| {
        let lead = if place < 3 { 1.3 } else { 1.0 };
        lead * centrality(profile, sentence)
    });
    let scores: Vec<f32> = scores.collect();
    strongest(&sentences, &scores, budget)
}

/// The best sentences that fit, in their order. A heading stays with what it stands over.
fn strongest<'a>(sentences: &[&'a Sentence], scores: &[f32], budget: usize) -> Vec<&'a Sentence> {
    let mut ranked: Vec<usize> =
        (0..sentences.len()).filter(|at| sentences[*at].kind != Kind::Heading).collect();
    if ranked.is_empty() {
        ranked = (0..sentences.len()).collect();
    }
    ranked.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    let mut left = budget;
    let mut chosen = vec![false; sentences.len()];
    for at in ranked {
        let heading = (0..at).rev().take_while(|above| sentences[*above].kind == Kind::Heading);
        let headings: Vec<usize> = heading.filter(|above| !chosen[*above]).collect();
        // Two for a line break or a list marker.
        let cost = |at: usize| sentences[at].text.chars().count() + 6;
        let needed = cost(at) + headings.iter().map(|above| cost(*above)).sum::<usize>();
        if needed <= left {
            left -= needed;
            headings.into_iter().chain([at]).for_each(|place| chosen[place] = true);
        }
    }
    sentences.iter().zip(chosen).filter_map(|(sentence, keep)| keep.then_some(*sentence)).collect()
}

fn detail(profile: &Profile, old: Option<&str>, older: &[&Sentence], newer: &[&Sentence]) -> String {
    let addition = render(newer);
    let body = match old.map(str::trim).filter(|body| !body.is_empty()) {
        None => addition,
        Some(body) if addition.is_empty() => visible(body),
        Some(body) => format!("{}\n\n{addition}", visible(body)),
    };
    // A body that was written larger keeps its size.
    let limit = MAX_DETAIL_CHARS.max(old.map_or(0, |body| body.chars().count()));
    if body.chars().count() <= limit {
        return body;
    }
    let all: Vec<&Sentence> = older.iter().chain(newer).copied().collect();
    let news = std::iter::repeat_n(1.0, older.len()).chain(std::iter::repeat(NEWS));
    let scores: Vec<f32> =
        all.iter().zip(news).map(|(sentence, news)| news * centrality(profile, sentence)).collect();
    render(&strongest(&all, &scores, limit - limit / 20))
}

/// Markdown: paragraphs, list items and fenced code as they were, headings of one level.
fn render(sentences: &[&Sentence]) -> String {
    let mut out = String::new();
    let mut previous: Option<Kind> = None;
    for (at, sentence) in sentences.iter().enumerate() {
        let kind = match sentence.kind {
            Kind::Heading if sentences[at + 1..].iter().all(|next| next.kind == Kind::Heading) => Kind::Prose,
            kind => kind,
        };
        if previous == Some(Kind::Code) && kind != Kind::Code {
            out.push_str("\n```");
        }
        match (kind, previous) {
            (Kind::Code, Some(Kind::Code)) => out.push('\n'),
            (Kind::Item, Some(Kind::Item)) if sentence.opens => out.push('\n'),
            (Kind::Prose | Kind::Item, Some(before)) if before == kind && !sentence.opens => {}
            (_, Some(_)) => out.push_str("\n\n"),
            (_, None) => {}
        }
        match kind {
            Kind::Heading => out.push_str(&format!("### {}", sentence.text)),
            Kind::Code if previous != Some(Kind::Code) => out.push_str(&format!("```\n{}", sentence.text)),
            Kind::Item if sentence.opens || previous != Some(Kind::Item) => {
                out.push_str(&format!("- {}", sentence.text))
            }
            Kind::Prose if sentence.opens || previous != Some(Kind::Prose) => out.push_str(&sentence.text),
            Kind::Prose | Kind::Item => {
                if !is_wide_edge(&out, &sentence.text) {
                    out.push(' ');
                }
                out.push_str(&sentence.text);
            }
            Kind::Code => out.push_str(&sentence.text),
        }
        previous = Some(kind);
    }
    if previous == Some(Kind::Code) {
        out.push_str("\n```");
    }
    out
}

/// The most central sentences, at least one of them new, in their order, as a reader sees them.
fn summary(profile: &Profile, title: &str, older: &[&Sentence], newer: &[&Sentence]) -> String {
    let all: Vec<&Sentence> = older.iter().chain(newer).copied().collect();
    let spoken = |at: &usize| matches!(all[*at].kind, Kind::Prose | Kind::Item);
    let worth = |at: usize| {
        // What announces a list says little without it, and the title is read already.
        let announces = all[at].text.ends_with([':', '：']);
        let repeats = key(&all[at].text) == title;
        centrality(profile, all[at]) * if announces || repeats { 0.4 } else { 1.0 }
    };
    let mut ranked: Vec<(f32, usize)> = (0..all.len()).filter(spoken).map(|at| (worth(at), at)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let news = ranked.iter().find(|(_, at)| *at >= older.len()).map(|(_, at)| *at);
    let mut chosen: Vec<usize> = Vec::new();
    let mut left = MAX_SUMMARY_CHARS;
    for at in news.into_iter().chain(ranked.iter().map(|(_, at)| *at)) {
        let size = said(&all[at].text).chars().count() + 1;
        let known: HashSet<u32> = chosen.iter().flat_map(|at| all[*at].terms.iter().copied()).collect();
        let repeated = all[at].terms.iter().filter(|term| known.contains(term)).count();
        if size <= left && repeated * 3 <= all[at].terms.len() * 2 && !chosen.contains(&at) {
            left -= size;
            chosen.push(at);
        }
        if chosen.len() == MAX_SUMMARY_SENTENCES {
            break;
        }
    }
    chosen.sort_unstable();
    let mut out = String::new();
    chosen.iter().for_each(|at| join(&mut out, &said(&all[*at].text)));
    if out.is_empty() {
        let any = ranked.first().map(|(_, at)| all[*at]);
        let any = any.or_else(|| all.iter().copied().find(|sentence| !plain(&sentence.text).is_empty()));
        out = any.map_or_else(String::new, |sentence| cut(&plain(&sentence.text), MAX_SUMMARY_CHARS));
    }
    out
}

/// A sentence as a reader sees it, ended, so that another can follow.
fn said(text: &str) -> String {
    let mut said = balanced(&plain(text));
    let open = said.trim_end_matches([':', '：', ',', '，', ';', '；', '、', '-', '—', ' ']).len();
    said.truncate(open);
    let bare = said.trim_end_matches(['"', '\'', ')', ']', '”', '’', '」', '』', '）']);
    if !bare.is_empty() && !bare.ends_with(['.', '!', '?', '…', '。', '！', '？', '；']) {
        let wide = said.chars().next_back().is_some_and(is_wide);
        said.push(if wide { '。' } else { '.' });
    }
    said
}

/// A text that was written before, without what no Topic may hold.
pub(super) fn visible(text: &str) -> String {
    text.chars().filter(|c| is_visible(*c) || *c == '\n').collect()
}

/// What makes two sentences the same: the letters and digits a reader sees.
fn key(text: &str) -> String {
    let letters: String =
        plain(text).chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    if letters.is_empty() { text.to_owned() } else { letters }
}
