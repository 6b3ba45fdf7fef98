//! Decides which texts are about the same subject.
//!
//! A text becomes a profile: its most telling terms, weighted by how often and where they stand, by
//! what the term can say at all (`words`) and by how few of the texts at hand share it. Profiles are
//! compared by cosine. What a group becomes is decided in `stages`.

use std::collections::HashMap;

use powercontext_core::analyzer;

use super::inline::plain;
use super::names::compounds;
use super::remark::{is_chatter, unlabelled};
use super::text::{Kind, Piece};
use super::words::{is_han, prior, stem};

/// Terms of a profile; bounds every comparison whatever the size of the text.
const PROFILE_TERMS: usize = 72;
/// How many texts of an imagined library are added to those at hand, so that a few texts about one
/// subject do not make its own words look common.
const LIBRARY: f32 = 60.0;
/// The cosine from which on short texts are about one subject, and what is added to it as texts grow:
/// long texts share words by chance. Adjacent Han characters hardly do, so they do not count here.
const SAME_SUBJECT: f32 = 0.09;
const SAME_SUBJECT_LONG: f32 = 0.15;
/// The numbers of words up to which a text is short, and from which on it is long.
const SHORT_WORDS: f32 = 18.0;
const LONG_WORDS: f32 = 32.0;
/// A shared term counts as evidence from this weight of its own on.
const TELLING: f32 = 0.5;
/// Telling terms up to which a text is a line or two.
const FEW_TERMS: usize = 12;
/// The weight of a heading's term against one in a sentence.
const HEADING_WEIGHT: f32 = 3.0;
const CODE_WEIGHT: f32 = 0.4;
/// What a name of several parts is worth against a word.
const COMPOUND_WORTH: f32 = 2.0;

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
    /// The same with Han pairs.
    telling: usize,
}

struct Word {
    surface: String,
    prior: f32,
    /// A name of several parts that an index does not know as one term.
    compound: bool,
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
            let shown = if kind == Kind::Code { text.clone() } else { plain(&text) };
            let spoken = if kind == Kind::Code { &shown[..] } else { unlabelled(&shown) };
            let remark = is_chatter(spoken);
            for term in analyzer::terms(spoken) {
                let number = self.number(term.text);
                let word = &self.words[number as usize];
                if word.prior > 0.0 {
                    usable |= is_word(&word.surface) && !remark;
                    *uses.entry(number).or_default() += weight;
                    terms.push(number);
                }
            }
            for compound in compounds(spoken) {
                let number = self.number(compound);
                let word = &mut self.words[number as usize];
                (word.compound, word.prior) = (true, COMPOUND_WORTH);
                *uses.entry(number).or_default() += weight;
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
            self.words.push(Word {
                surface: surface.clone(),
                prior: prior(&surface),
                compound: false,
                documents: 0,
            });
        }
        self.surfaces.insert(surface, number);
        number
    }

    /// The term that a word as written stands for, when it was read.
    pub(super) fn number_of(&self, word: &str) -> Option<u32> {
        self.surfaces.get(&word.to_lowercase()).copied()
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

    /// Whether an index knows the term.
    pub(super) fn is_indexed(&self, term: u32) -> bool {
        !self.words[term as usize].compound
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
        let telling = weights.iter().filter(|(term, _)| self.tells(*term)).count();
        let words = weights.iter().filter(|(term, _)| self.tells(*term) && self.is_spelled(*term)).count();
        weights.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        weights.truncate(PROFILE_TERMS);
        let length = weights.iter().map(|(_, weight)| weight * weight).sum::<f32>().sqrt();
        if length > 0.0 {
            weights.iter_mut().for_each(|(_, weight)| *weight /= length);
        }
        weights.sort_unstable_by_key(|(term, _)| *term);
        Profile { weights, words, telling }
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
            // Of a line or two, one shared name is a large part whatever it is about.
            1 if a.telling.min(b.telling) < FEW_TERMS => 0.4 * cosine,
            1 => 0.7 * cosine,
            _ => cosine,
        };
        #[allow(clippy::cast_precision_loss, reason = "compared with a small number")]
        let words = a.words.min(b.words) as f32;
        let length = ((words - SHORT_WORDS) / (LONG_WORDS - SHORT_WORDS)).clamp(0.0, 1.0);
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
        let joined_sums = sums[b].clone();
        for (other, added) in joined_sums.into_iter().enumerate() {
            sums[a][other] += added;
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
    use super::super::text::pieces;
    use super::*;

    fn sorted(texts: &[&str]) -> Vec<Vec<usize>> {
        let mut lexicon = Lexicon::default();
        let documents: Vec<_> = texts.iter().map(|text| lexicon.read(pieces(text))).collect();
        let profiles: Vec<_> = documents.iter().map(|document| lexicon.profile([document])).collect();
        groups(&lexicon, &profiles)
    }

    #[test]
    fn texts_are_grouped_by_their_subject_not_by_their_function_words() {
        let texts = [
            "The leader renews its lease every five seconds and gives it up on shutdown.",
            "What we should do about the image cache is to give it a size, every time it is asked for.",
            "When the lease of a leader expires, another candidate becomes leader.",
        ];
        assert_eq!(sorted(&texts), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn chinese_is_grouped_by_pairs_not_by_single_characters() {
        let texts = [
            "租约续期失败以后，领导者必须停止派发。",
            "我们约好后期停止续费。",
            "租约过期之前，领导者要续期。",
        ];
        assert_eq!(sorted(&texts), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn one_shared_name_alone_does_not_make_one_subject() {
        let texts = [
            "Redis evicts sessions under memory pressure.",
            "Upgrading Redis broke the deployment pipeline.",
        ];
        assert_eq!(sorted(&texts).len(), 2);
    }

    #[test]
    fn a_text_of_numbers_and_signs_has_nothing_to_go_by() {
        for text in [
            "",
            " \n",
            "?!",
            "42 7 -- 3.14",
            "the of and",
            "🙂",
            "ok thanks",
            "lol 👍",
            "好的",
            "收到，谢谢！",
        ] {
            assert!(!Lexicon::default().read(pieces(text)).usable, "{text:?}");
        }
        for text in ["lease", "租约", "窗", "リース"] {
            assert!(Lexicon::default().read(pieces(text)).usable, "{text:?}");
        }
    }
}
