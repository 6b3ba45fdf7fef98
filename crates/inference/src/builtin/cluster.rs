//! Decides which texts are about the same subject.
//!
//! A text becomes a profile: its most telling terms, weighted by how often and where they stand, by
//! what the term can say at all (`words`) and by how few of the texts at hand share it. Profiles are
//! compared by cosine. What a group becomes is decided in `stages`.

use std::collections::HashMap;

use powercontext_core::analyzer;

use super::text::{Kind, Piece};
use super::words::{is_han, prior, stem};

/// Terms of a profile; bounds every comparison whatever the size of the text.
const PROFILE_TERMS: usize = 72;
/// How many texts of an imagined library are added to those at hand, so that a few texts about one
/// subject do not make its own words look common.
const LIBRARY: f32 = 60.0;
/// The cosine from which on short texts are about one subject, and what is added to it as texts grow:
/// long texts share words by chance. Adjacent Han characters hardly do, so they do not count here.
const SAME_SUBJECT: f32 = 0.1;
const SAME_SUBJECT_LONG: f32 = 0.16;
/// The number of words from which on a text is long.
const LONG_WORDS: f32 = 90.0;
/// A shared term counts as evidence from this weight of its own on.
const TELLING: f32 = 0.5;
/// The weight of a heading's term against one in a sentence.
const HEADING_WEIGHT: f32 = 3.0;
const CODE_WEIGHT: f32 = 0.4;

/// A sentence with the terms it can be judged by.
#[derive(Clone, Debug)]
pub(super) struct Sentence {
    pub(super) kind: Kind,
    /// Whether a paragraph or item begins here.
    pub(super) opens: bool,
    pub(super) text: String,
    /// Lexicon numbers, repeats kept, function words left out.
    pub(super) terms: Vec<u32>,
}

/// One text: its sentences in order, and how strongly it uses each term.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) sentences: Vec<Sentence>,
    /// Ascending by term.
    uses: Vec<(u32, f32)>,
    /// Whether there is a word to go by at all.
    pub(super) usable: bool,
}

/// The most telling terms of one or more texts, of unit length, ascending by term.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    weights: Vec<(u32, f32)>,
    /// How many telling words there were before the weakest were left out, Han pairs not counted.
    words: usize,
}

struct Word {
    surface: String,
    prior: f32,
    documents: u32,
}

/// Every term seen in one request.
#[derive(Default)]
pub(super) struct Lexicon {
    surfaces: HashMap<String, u32>,
    stems: HashMap<String, u32>,
    words: Vec<Word>,
    documents: u32,
}

impl Lexicon {
    /// Reads one text. Every text that is compared must be read before the first profile is made.
    pub(super) fn read(&mut self, pieces: Vec<Piece>) -> Document {
        let mut usable = false;
        let mut uses: HashMap<u32, f32> = HashMap::new();
        let mut sentences = Vec::with_capacity(pieces.len());
        for Piece { kind, opens, text } in pieces {
            let weight = match kind {
                Kind::Heading => HEADING_WEIGHT,
                Kind::Prose | Kind::Item => 1.0,
                Kind::Code => CODE_WEIGHT,
            };
            let mut terms = Vec::new();
            for term in analyzer::terms(&text) {
                let number = self.number(term.text);
                let word = &self.words[number as usize];
                if word.prior > 0.0 {
                    usable |= is_word(&word.surface);
                    *uses.entry(number).or_default() += weight;
                    terms.push(number);
                }
            }
            sentences.push(Sentence { kind, opens, text, terms });
        }
        let mut uses: Vec<_> = uses.into_iter().collect();
        uses.sort_unstable_by_key(|(number, _)| *number);
        for (number, _) in &uses {
            self.words[*number as usize].documents += 1;
        }
        self.documents += 1;
        Document { sentences, uses, usable }
    }

    fn number(&mut self, surface: String) -> u32 {
        if let Some(number) = self.surfaces.get(&surface) {
            return *number;
        }
        let next = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        let number = *self.stems.entry(stem(&surface).to_owned()).or_insert(next);
        if number == next {
            self.words.push(Word { surface: surface.clone(), prior: prior(&surface), documents: 0 });
        }
        self.surfaces.insert(surface, number);
        number
    }

    /// What a term is worth among the texts read so far.
    pub(super) fn worth(&self, term: u32) -> f32 {
        let word = &self.words[term as usize];
        #[allow(clippy::cast_precision_loss, reason = "counts of texts are small")]
        let (documents, all) = (word.documents as f32, self.documents as f32);
        word.prior * ((all + LIBRARY) / (documents + 0.5)).ln()
    }

    /// The first form in which a term was seen, as an index knows it.
    pub(super) fn surface(&self, term: u32) -> &str {
        &self.words[term as usize].surface
    }

    /// Whether a term can name a subject by itself.
    pub(super) fn tells(&self, term: u32) -> bool {
        self.words[term as usize].prior >= TELLING
    }

    fn is_spelled(&self, term: u32) -> bool {
        !self.words[term as usize].surface.starts_with(is_han)
    }

    /// The common profile of some texts.
    pub(super) fn profile<'a>(&self, documents: impl IntoIterator<Item = &'a Document>) -> Profile {
        let mut sums: HashMap<u32, f32> = HashMap::new();
        for document in documents {
            for (term, uses) in &document.uses {
                *sums.entry(*term).or_default() += uses;
            }
        }
        let mut weights: Vec<_> = sums
            .into_iter()
            .map(|(term, uses)| (term, self.worth(term) * if uses > 1.0 { 1.0 + uses.ln() } else { uses }))
            .collect();
        let words = weights.iter().filter(|(term, _)| self.tells(*term) && self.is_spelled(*term)).count();
        weights.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        weights.truncate(PROFILE_TERMS);
        let length = weights.iter().map(|(_, weight)| weight * weight).sum::<f32>().sqrt();
        if length > 0.0 {
            weights.iter_mut().for_each(|(_, weight)| *weight /= length);
        }
        weights.sort_unstable_by_key(|(term, _)| *term);
        Profile { weights, words }
    }

    /// How much two texts are about one subject; from 1 on they are. One shared name alone is little.
    pub(super) fn similarity(&self, a: &Profile, b: &Profile) -> f32 {
        let (mut left, mut right) = (a.weights.iter().peekable(), b.weights.iter().peekable());
        let (mut cosine, mut telling) = (0.0, 0);
        while let (Some((x, p)), Some((y, q))) = (left.peek(), right.peek()) {
            match x.cmp(y) {
                std::cmp::Ordering::Less => {
                    left.next();
                }
                std::cmp::Ordering::Greater => {
                    right.next();
                }
                std::cmp::Ordering::Equal => {
                    cosine += p * q;
                    telling += usize::from(self.tells(*x));
                    left.next();
                    right.next();
                }
            }
        }
        let trusted = match telling {
            0 => 0.2 * cosine,
            1 => 0.7 * cosine,
            _ => cosine,
        };
        #[allow(clippy::cast_precision_loss, reason = "compared with a small number")]
        let length = (a.words.min(b.words) as f32 / LONG_WORDS).min(1.0);
        trusted / (SAME_SUBJECT + SAME_SUBJECT_LONG * length)
    }
}

impl Profile {
    /// How central a term is; zero outside the profile.
    pub(super) fn weight(&self, term: u32) -> f32 {
        self.weights.binary_search_by_key(&term, |(known, _)| *known).map_or(0.0, |at| self.weights[at].1)
    }

    /// The terms, most telling first.
    pub(super) fn strongest(&self) -> Vec<u32> {
        let mut terms = self.weights.clone();
        terms.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        terms.into_iter().map(|(term, _)| term).collect()
    }
}

fn is_word(surface: &str) -> bool {
    let mut characters = surface.chars();
    match (characters.next(), characters.next()) {
        (Some(only), None) => is_han(only),
        _ => surface.chars().any(char::is_alphabetic),
    }
}

/// Groups texts by subject: the most similar groups are joined first, by the average similarity of
/// their members, until none is similar enough. Groups and members keep the order of the texts.
pub(super) fn groups(lexicon: &Lexicon, profiles: &[Profile]) -> Vec<Vec<usize>> {
    let count = profiles.len();
    let mut groups: Vec<Vec<usize>> = (0..count).map(|member| vec![member]).collect();
    // Sums of pairwise similarities between groups; `[a][b]` with a < b.
    let mut sums = vec![vec![0.0f32; count]; count];
    for a in 0..count {
        for b in a + 1..count {
            sums[a][b] = lexicon.similarity(&profiles[a], &profiles[b]);
            sums[b][a] = sums[a][b];
        }
    }
    while let Some((a, b)) = closest(&groups, &sums) {
        let joined = std::mem::take(&mut groups[b]);
        groups[a].extend(joined);
        for other in 0..count {
            sums[a][other] += sums[b][other];
            sums[other][a] = sums[a][other];
        }
    }
    groups.retain(|group| !group.is_empty());
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups.sort_unstable();
    groups
}

fn closest(groups: &[Vec<usize>], sums: &[Vec<f32>]) -> Option<(usize, usize)> {
    let live: Vec<usize> = (0..groups.len()).filter(|at| !groups[*at].is_empty()).collect();
    let mut best: Option<(f32, usize, usize)> = None;
    for (place, &a) in live.iter().enumerate() {
        for &b in &live[place + 1..] {
            #[allow(clippy::cast_precision_loss, reason = "a Window has at most 100 Sources")]
            let average = sums[a][b] / (groups[a].len() * groups[b].len()) as f32;
            if average >= 1.0 && best.is_none_or(|(found, _, _)| average > found) {
                best = Some((average, a, b));
            }
        }
    }
    best.map(|(_, a, b)| (a, b))
}

#[cfg(test)]
mod tests {
    use super::super::text::{pieces, readable};
    use super::*;
    #[test]
    fn distribution() {
        let mut notes = Vec::new();
        let mut subjects: Vec<String> = vec![];
        for dir in ["/../../examples/notes/en", "/../../examples/notes/zh"] {
            let mut names: Vec<_> = std::fs::read_dir(format!("{}{dir}", env!("CARGO_MANIFEST_DIR"))).unwrap().map(|e| e.unwrap().path()).collect();
            names.sort();
            for name in names {
                let stem = name.file_stem().unwrap().to_str().unwrap().rsplit_once('-').unwrap().0.to_owned() + dir;
                if !subjects.contains(&stem) { subjects.push(stem.clone()); }
                let s = subjects.iter().position(|x| *x == stem).unwrap();
                notes.push((s, readable(&serde_json::Value::String(std::fs::read_to_string(name).unwrap()))));
            }
        }
        let names = &subjects;
        println!("{subjects:?}");
        let mut lexicon = Lexicon::default();
        let docs: Vec<_> = notes.iter().map(|(_, t)| lexicon.read(pieces(t))).collect();
        let profiles: Vec<_> = docs.iter().map(|d| lexicon.profile([d])).collect();
        let (mut same, mut diff) = (vec![], vec![]);
        for a in 0..notes.len() { for b in a+1..notes.len() {
            let s = lexicon.similarity(&profiles[a], &profiles[b]);
            if notes[a].0 == notes[b].0 { same.push((s, a, b)) } else { diff.push((s, a, b)) }
        }}
        same.sort_by(|a, b| a.0.total_cmp(&b.0)); diff.sort_by(|a, b| b.0.total_cmp(&a.0));
        println!("same low {:?}", same.iter().map(|x| format!("{:.3} {}/{}", x.0, x.1, x.2)).collect::<Vec<_>>());
        println!("diff high {:?}", diff.iter().take(40).map(|x| format!("{:.3} {}/{}", x.0, x.1, x.2)).collect::<Vec<_>>());
        for g in groups(&lexicon, &profiles) { println!("{:?}", g.iter().map(|m| notes[*m].0).collect::<Vec<_>>()); }
        // leave-one-out: note vs the rest of its subject, against other subjects
        for a in 0..notes.len() {
            let mut row = vec![];
            for s in 0..names.len() {
                let p = lexicon.profile(docs.iter().enumerate().filter(|(i, _)| *i != a && notes[*i].0 == s).map(|x| x.1));
                row.push((lexicon.similarity(&profiles[a], &p), s));
            }
            let own = row[notes[a].0].0;
            let other = row.iter().filter(|r| r.1 != notes[a].0).map(|r| r.0).fold(0.0, f32::max);
            println!("{a:2} subject {} own {own:.3} other {other:.3}", notes[a].0);
        }
    }
}
