//! Analyzer v1: which terms a text has, and which of them a query asks for.
//!
//! Decides normalisation (NFKC, then full case folding; accents stay), where a word ends, how text
//! without spaces between words is cut, and how many of its terms a query must find. One analyzer
//! serves the index, the queries and the check of written projections, so a change of any rule here
//! is a new [`VERSION`] and a rebuild of every projection. How well a text matches is decided in
//! `ranking`; how terms are stored is left to the store.
//!
//! Words are those of Unicode segmentation, cut further at every apostrophe, dot and colon, with an
//! underscore joining what stands on both of its sides. Runs of Han give every character and every
//! adjacent pair. Runs of other scripts that write words without spaces (kana, Hangul, Thai and their
//! like) give the run and its adjacent pairs. Emoji and punctuation give nothing.

use std::collections::HashSet;
use std::sync::LazyLock;

use caseless::Caseless;
use unicode_normalization::char::{canonical_combining_class, decompose_compatible, is_combining_mark};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};
use unicode_script::{Script, UnicodeScript};

/// The version of every rule in this module; stored projections carry it.
pub const VERSION: u32 = 1;
/// The longest query text, in Unicode scalar values (TM-145).
pub const MAX_QUERY_CHARS: usize = 8192;
/// The most distinct terms one query may have (TM-145).
pub const MAX_QUERY_TERMS: usize = 64;
/// The longest term, in Unicode scalar values; of a longer word or run the beginning counts.
pub const MAX_TERM_CHARS: usize = 64;

/// Marks kept after one base character; with them an adjacent pair still fits a term.
const MAX_MARKS: usize = 15;

/// Lower-case, one per line, sorted.
static FUNCTION_WORDS: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| include_str!("english_function_words.txt").lines().collect());

/// One occurrence of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The normalised text that is compared.
    pub text: String,
    /// Where the occurrence starts, in bytes of the text as given.
    pub start: usize,
    /// Where it ends (exclusive), in bytes of the text as given.
    pub end: usize,
}

/// Every term of `text`, ordered by where it starts; repeats are kept.
#[must_use]
pub fn terms(text: &str) -> Vec<Term> {
    let mut runs = Runs::default();
    let mut piece = Piece::default();
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        if matches!(c, '\u{FE0F}' | '\u{20E3}') {
            piece.shown_as_emoji();
        } else if is_ignorable(c) {
            // Neither a letter nor a border: a soft hyphen does not split its word.
        } else if starts_piece(c) {
            runs.take(&mut piece);
            piece.start_with(c, at, end);
        } else {
            piece.extend_with(c, at, end);
        }
    }
    runs.take(&mut piece);
    runs.close();
    runs.terms
}

/// The terms of `text` joined by one space, repeats kept: what an index stores.
#[must_use]
pub fn index_text(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for term in terms(text) {
        if !joined.is_empty() {
            joined.push(' ');
        }
        joined.push_str(&term.text);
    }
    joined
}

/// The distinct terms a search asks for, and how many of them a text must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    terms: Vec<String>,
    required: usize,
}

impl Query {
    /// The query that `text` states, or `None` when it has no term (an emoji, punctuation).
    ///
    /// Function words do not count unless nothing else is there. Of more than [`MAX_QUERY_TERMS`]
    /// distinct terms the first are used, and only the first [`MAX_QUERY_CHARS`] characters are read;
    /// a caller that must refuse longer text does so before.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let end = text.char_indices().nth(MAX_QUERY_CHARS).map_or(text.len(), |(at, _)| at);
        let mut asked = asked_terms(&text[..end]);
        asked.truncate(MAX_QUERY_TERMS);
        Self::of(asked)
    }

    /// The distinct terms in the order of their first occurrence, at least one.
    #[must_use]
    pub fn terms(&self) -> &[String] {
        &self.terms
    }

    /// How many distinct terms a text must have to be found: one of at most two, else a quarter
    /// (rounded up) and at least two.
    #[must_use]
    pub fn required(&self) -> usize {
        self.required
    }

    /// The same terms, found by any one of them: for a caller that wants the nearest there is.
    #[must_use]
    pub fn any(self) -> Self {
        Self { required: 1, ..self }
    }

    fn of(terms: Vec<String>) -> Option<Self> {
        let required = match terms.len() {
            0 => return None,
            1 | 2 => 1,
            n => n.div_ceil(4).max(2),
        };
        Some(Self { terms, required })
    }
}

/// Queries within both limits that together ask for every distinct term of `text` (B-6).
///
/// The terms keep their order and are shared out evenly, so no query is a short rest that one
/// common word could satisfy. Function words do not count, as in [`Query::parse`].
#[must_use]
pub fn bounded_queries(text: &str) -> Vec<Query> {
    let asked = asked_terms(text);
    let queries = asked.len().div_ceil(MAX_QUERY_TERMS).max(1);
    let each = asked.len().div_ceil(queries).max(1);
    asked.chunks(each).filter_map(|share| Query::of(share.to_vec())).collect()
}

/// The distinct terms in order, without function words unless those are all there is.
fn asked_terms(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut distinct: Vec<String> = Vec::new();
    for term in terms(text) {
        if !seen.contains(&term.text) {
            seen.insert(term.text.clone());
            distinct.push(term.text);
        }
    }
    if distinct.iter().any(|term| !FUNCTION_WORDS.contains(term.as_str())) {
        distinct.retain(|term| !FUNCTION_WORDS.contains(term.as_str()));
    }
    distinct
}

/// The shortest stretch of text that can be normalised on its own.
#[derive(Default)]
struct Piece {
    text: String,
    start: usize,
    end: usize,
    emoji: bool,
}

impl Piece {
    fn start_with(&mut self, c: char, start: usize, end: usize) {
        self.text.clear();
        self.text.push(c);
        self.start = start;
        self.end = end;
        self.emoji = is_pictograph(c);
    }

    fn extend_with(&mut self, c: char, start: usize, end: usize) {
        if self.text.is_empty() {
            self.start_with(c, start, end);
        } else {
            self.text.push(c);
            self.end = end;
        }
    }

    /// A selector or keycap turns a digit or a symbol into an emoji, never a letter of a word.
    fn shown_as_emoji(&mut self) {
        let base = self.text.chars().next();
        self.emoji |= base.is_some_and(|c| c.is_ascii_digit() || ('\u{2000}'..='\u{33FF}').contains(&c));
    }
}

/// Which rule cuts a run of characters into terms.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// One term.
    Word,
    /// Every character and every adjacent pair.
    Han,
    /// The run and every adjacent pair.
    Unspaced(Script),
    /// A leading prolonged sound mark: it joins the kana that follow.
    Prolonged,
}

#[derive(Clone, Copy)]
struct Letter {
    c: char,
    start: usize,
    end: usize,
    mark: bool,
}

/// Collects normalised characters into runs of one class and turns every run into terms.
#[derive(Default)]
struct Runs {
    terms: Vec<Term>,
    class: Option<Class>,
    letters: Vec<Letter>,
    marks: usize,
}

impl Runs {
    /// Normalises the piece, adds its characters and leaves it empty.
    fn take(&mut self, piece: &mut Piece) {
        let (start, end) = (piece.start, piece.end);
        if piece.emoji {
            self.close();
        } else if let Some(c) = already_normal(&piece.text) {
            self.push(c, start, end);
        } else if !piece.text.is_empty() {
            for c in normalise(&piece.text).chars() {
                self.push(c, start, end);
            }
        }
        piece.text.clear();
        piece.emoji = false;
    }

    fn push(&mut self, c: char, start: usize, end: usize) {
        if !c.is_ascii() && is_combining_mark(c) {
            if !self.letters.is_empty() && self.marks < MAX_MARKS {
                self.marks += 1;
                self.append(Letter { c, start, end, mark: true });
            }
            return;
        }
        let Some(class) = self.class_of(c) else {
            self.close();
            return;
        };
        if self.class != Some(class) {
            self.close();
            self.class = Some(class);
        }
        if c == '_' && self.letters.is_empty() {
            return;
        }
        self.marks = 0;
        self.append(Letter { c, start, end, mark: false });
    }

    /// Only the beginning of a word counts, so the rest of a very long one costs nothing.
    fn append(&mut self, letter: Letter) {
        if self.class != Some(Class::Word) || self.letters.len() < MAX_TERM_CHARS {
            self.letters.push(letter);
        }
    }

    fn class_of(&mut self, c: char) -> Option<Class> {
        if c.is_ascii() {
            return (c.is_ascii_alphanumeric() || c == '_').then_some(Class::Word);
        }
        if !c.is_alphanumeric() {
            return None;
        }
        if c == '\u{30FC}' {
            let kana = [Class::Unspaced(Script::Hiragana), Class::Unspaced(Script::Katakana)];
            return Some(self.class.filter(|class| kana.contains(class)).unwrap_or(Class::Prolonged));
        }
        Some(match c.script() {
            Script::Han => Class::Han,
            script @ (Script::Hiragana | Script::Katakana) => {
                let class = Class::Unspaced(script);
                if self.class == Some(Class::Prolonged) {
                    self.class = Some(class);
                }
                class
            }
            script @ (Script::Hangul
            | Script::Thai
            | Script::Lao
            | Script::Khmer
            | Script::Myanmar
            | Script::Bopomofo
            | Script::Yi) => Class::Unspaced(script),
            _ => Class::Word,
        })
    }

    /// Ends the current run and emits its terms.
    fn close(&mut self) {
        let letters = std::mem::take(&mut self.letters);
        match self.class.take() {
            Some(Class::Han) => self.emit_han(&letters),
            Some(Class::Unspaced(_) | Class::Prolonged) => self.emit_unspaced(&letters),
            Some(Class::Word) => {
                let kept = letters.iter().rposition(|letter| letter.c != '_').map_or(0, |last| last + 1);
                self.emit(&letters[..kept]);
            }
            None => {}
        }
        self.letters = letters;
        self.letters.clear();
        self.marks = 0;
    }

    fn emit_han(&mut self, letters: &[Letter]) {
        let mut from = 0;
        while from < letters.len() {
            let middle = unit_end(letters, from);
            self.emit(&letters[from..middle]);
            if middle < letters.len() {
                self.emit(&letters[from..unit_end(letters, middle)]);
            }
            from = middle;
        }
    }

    fn emit_unspaced(&mut self, letters: &[Letter]) {
        self.emit(&letters[..letters.len().min(MAX_TERM_CHARS)]);
        let mut from = 0;
        while from < letters.len() {
            let middle = unit_end(letters, from);
            if middle == letters.len() {
                break;
            }
            let end = unit_end(letters, middle);
            if end - from < letters.len() {
                self.emit(&letters[from..end]);
            }
            from = middle;
        }
    }

    fn emit(&mut self, letters: &[Letter]) {
        if let (Some(first), Some(last)) = (letters.first(), letters.last()) {
            let text = letters.iter().map(|letter| letter.c).collect();
            self.terms.push(Term { text, start: first.start, end: last.end });
        }
    }
}

/// Where the character at `from` ends, its marks included.
fn unit_end(letters: &[Letter], from: usize) -> usize {
    let marks = letters[from + 1..].iter().take_while(|letter| letter.mark).count();
    from + 1 + marks
}

/// Whether nothing before `c` can combine with it under NFKC.
fn starts_piece(c: char) -> bool {
    if c < '\u{300}' {
        return true;
    }
    let mut first = None;
    decompose_compatible(c, |part| {
        first.get_or_insert(part);
    });
    let first = first.unwrap_or(c);
    canonical_combining_class(first) == 0 && is_nfkc_quick(std::iter::once(first)) == IsNormalized::Yes
}

/// The one character of a piece that the long way would return unchanged, lower-cased if ASCII.
fn already_normal(text: &str) -> Option<char> {
    let mut chars = text.chars();
    let c = chars.next()?;
    let common = c.is_ascii() || matches!(c, '\u{4E00}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}');
    (common && chars.next().is_none()).then(|| c.to_ascii_lowercase())
}

/// NFKC and full case folding, repeated until nothing changes (twice is enough in practice).
fn normalise(text: &str) -> String {
    let mut current = text.to_owned();
    for _ in 0..4 {
        let next: String = current.nfkc().default_case_fold().nfkc().collect();
        if next == current {
            break;
        }
        current = next;
    }
    current
}

/// Characters Unicode says to ignore when comparing. The zero width space is not one: it splits words.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200C}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Pictographs, enclosed letters included, are symbols even where they decompose to letters.
fn is_pictograph(c: char) -> bool {
    matches!(c, '\u{1F000}'..='\u{1FAFF}')
}

#[cfg(test)]
mod tests;
