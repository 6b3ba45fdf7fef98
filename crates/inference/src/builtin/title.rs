//! Names a Topic: a heading where there is one, the beginning of a sentence that can stand alone, or the key
//! phrase of the texts. A title is what a reader sees: one line, no Markdown, ending at a word.

use super::cluster::{Document, Lexicon, Profile, Sentence};
use super::compose::centrality;
use super::inline::{balanced, is_inside, plain, wholes};
use super::remark::{is_agreement, is_chatter, to_the_point};
use super::text::Kind;
use super::words::{is_function_word, is_wide};

const MAX_TITLE_CHARS: usize = 80;
/// A clause shorter than this many narrow characters is no title.
const MIN_CLAUSE_WIDTH: usize = 18;
/// Sentences of one text that may become its title.
const TITLE_CANDIDATES: usize = 120;
const MAX_PHRASE_WORDS: usize = 4;
/// A sentence's beginning below this standing gives way to a key phrase.
const STANDS_ALONE: f32 = 0.6;

/// Words with which a sentence leans on the one before it, or on the clause that was cut off.
const LEANING_EN: [&str; 62] = [
    "a",
    "after",
    "all",
    "also",
    "although",
    "and",
    "as",
    "because",
    "before",
    "both",
    "but",
    "by",
    "during",
    "each",
    "finally",
    "first",
    "for",
    "from",
    "he",
    "here",
    "however",
    "i",
    "if",
    "in",
    "instead",
    "it",
    "its",
    "me",
    "my",
    "next",
    "no",
    "nothing",
    "on",
    "once",
    "one",
    "or",
    "our",
    "she",
    "since",
    "so",
    "some",
    "still",
    "that",
    "then",
    "there",
    "therefore",
    "these",
    "they",
    "this",
    "those",
    "though",
    "to",
    "unless",
    "until",
    "we",
    "what",
    "when",
    "where",
    "whenever",
    "while",
    "yes",
    "you",
];
const LEANING_ZH: [&str; 24] = [
    "我们", "他们", "你们", "这", "那", "它", "如果", "因为", "由于", "但", "所以", "然后", "当", "其中",
    "同时", "另外", "于是", "而且", "并", "即使", "虽然", "为了", "之后", "只要",
];

/// The title of new texts.
pub(super) fn title(lexicon: &Lexicon, profile: &Profile, documents: &[&Document]) -> String {
    let mut best: Option<Candidate> = None;
    for document in documents {
        for (place, sentence) in document.sentences.iter().take(TITLE_CANDIDATES).enumerate() {
            let found = candidate(profile, place, sentence);
            if !found.text.is_empty() && best.as_ref().is_none_or(|best| found.score > best.score) {
                best = Some(found);
            }
        }
    }
    match best {
        Some(best) if best.stands >= STANDS_ALONE => best.text,
        best => phrase(lexicon, profile, documents).or(best.map(|best| best.text)).unwrap_or_default(),
    }
}

struct Candidate {
    text: String,
    score: f32,
    /// How well it can be read by itself, up to 1.
    stands: f32,
}

fn candidate(profile: &Profile, place: usize, sentence: &Sentence) -> Candidate {
    let heading = sentence.kind == Kind::Heading;
    let place = match sentence.kind {
        Kind::Heading if place == 0 => 5.0,
        Kind::Heading => 2.5,
        Kind::Prose if place == 0 => 1.2,
        Kind::Prose | Kind::Item => 1.0,
        Kind::Code => 0.1,
    };
    let text = clause(&sentence.text, heading);
    let stands = match sentence.kind {
        Kind::Heading => 1.0,
        Kind::Prose | Kind::Item => standing(&text),
        Kind::Code => 0.1,
    };
    let whole = sentence.text.chars().count().max(1);
    #[allow(clippy::cast_precision_loss, reason = "a sentence is short")]
    let share = (text.chars().count() as f32 / whole as f32).min(1.0).sqrt();
    Candidate { score: place * stands * share * centrality(profile, sentence), text, stands }
}

/// How well the beginning of a sentence is read by itself.
fn standing(text: &str) -> f32 {
    let first = text.split(' ').next().unwrap_or_default();
    let word = first.trim_end_matches(|c: char| !c.is_alphanumeric());
    let lower = word.split(['\'', '’']).next().unwrap_or_default().to_lowercase();
    let leans =
        LEANING_EN.contains(&lower.as_str()) || LEANING_ZH.iter().any(|start| text.starts_with(start));
    let torn = text.ends_with('…');
    let remark = is_agreement(text) || is_chatter(text);
    let lower = text.starts_with(char::is_lowercase);
    [(leans, 0.5), (torn, 0.5), (lower, 0.55), (remark, 0.2)]
        .iter()
        .fold(1.0, |all, (is, by)| if *is { all * by } else { all })
}

/// The beginning of a sentence that can stand alone, without its full stop, as a reader sees it.
fn clause(text: &str, whole: bool) -> String {
    let shown = plain(text);
    let part = if whole && shown.chars().count() <= MAX_TITLE_CHARS {
        shown.clone()
    } else {
        plain(beginning(to_the_point(text)))
    };
    let short = cut(balanced(part.trim_start_matches(['#', '>', '-', '•', ' '])).trim(), MAX_TITLE_CHARS);
    let title = bare(&short);
    // What a remark or a label stood before begins the line now.
    if shown.starts_with(title) { title.to_owned() } else { capital(title) }
}

/// Everything before the first break that leaves enough.
fn beginning(text: &str) -> &str {
    let breaks =
        |c: char| matches!(c, '，' | '；' | '：' | ',' | ';' | ':' | '。' | '？' | '?' | '—' | '(' | '（');
    let spans = wholes(text);
    // A wide character says about as much as three others.
    let mut width = 0;
    let end = text.char_indices().find(|(at, c)| {
        let enough = width >= MIN_CLAUSE_WIDTH;
        width += if is_wide(*c) { 3 } else { 1 };
        let apart =
            c.len_utf8() > 1 || text[at + 1..].starts_with(' ') || (*c == '(' && text[..*at].ends_with(' '));
        enough && breaks(*c) && apart && !is_inside(&spans, *at)
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// Without the marks a title does not end with; a title that was cut keeps its ellipsis.
fn bare(text: &str) -> &str {
    let ends = ['.', '。', '！', '!', ',', '，', ';', '；', ':', '：', '、', ' ', '-', '—', '|'];
    text.trim_end_matches(ends).trim()
}

/// At most `limit` characters, ending behind a word, with an ellipsis where something is missing.
pub(super) fn cut(text: &str, limit: usize) -> String {
    let text = text.trim();
    if text.chars().nth(limit).is_none() {
        return text.to_owned();
    }
    let end = text.char_indices().nth(limit.saturating_sub(1)).map_or(text.len(), |(end, _)| end);
    let narrow = |c: Option<char>| c.is_some_and(|c| !c.is_whitespace() && !is_wide(c));
    let splits =
        |at: &usize| !(narrow(text[..*at].chars().next_back()) && narrow(text[*at..].chars().next()));
    let word = (end / 2..=end).rev().filter(|at| text.is_char_boundary(*at)).find(splits);
    let mut head = &text[..word.unwrap_or(end)];
    // A function word says that something follows.
    while let Some((before, last)) = head.trim_end().rsplit_once(' ') {
        if before.is_empty() || !is_function_word(last.trim_end_matches([',', ';', ':'])) {
            break;
        }
        head = before;
    }
    format!("{}…", bare(head))
}

/// The run of telling words that says most about the texts, as it stands in them; in scripts that part words.
fn phrase(lexicon: &Lexicon, profile: &Profile, documents: &[&Document]) -> Option<String> {
    let mut best: Option<(f32, String)> = None;
    for sentence in documents.iter().flat_map(|document| document.sentences.iter().take(TITLE_CANDIDATES)) {
        if sentence.kind == Kind::Code {
            continue;
        }
        let shown = plain(&sentence.text);
        let mut open: Vec<(&str, f32)> = Vec::new();
        for word in shown.split(' ') {
            let name = word.trim_matches(|c: char| !c.is_alphanumeric());
            let weight = lexicon.number_of(name).filter(|term| lexicon.tells(*term));
            let weight = weight.map_or(0.0, |term| profile.weight(term));
            if weight == 0.0 || !word.starts_with(name) {
                open.clear();
            }
            if weight > 0.0 {
                open.push((name, weight));
            }
            for start in open.len().saturating_sub(MAX_PHRASE_WORDS)..open.len().saturating_sub(1) {
                let run = &open[start..];
                let sum: f32 = run.iter().map(|(_, weight)| weight).sum();
                #[allow(clippy::cast_precision_loss, reason = "a phrase has few words")]
                let score = sum / (run.len() as f32).sqrt();
                if best.as_ref().is_none_or(|(found, _)| score > *found) {
                    let words: Vec<&str> = run.iter().map(|(name, _)| *name).collect();
                    best = Some((score, words.join(" ")));
                }
            }
            if !word.ends_with(name) {
                open.clear();
            }
        }
    }
    best.map(|(_, words)| capital(&words)).filter(|words| words.chars().count() <= MAX_TITLE_CHARS)
}

/// A plain word at the beginning gets a capital; a name in code keeps its form.
fn capital(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(letter) if first.chars().all(char::is_lowercase) => {
            letter.to_uppercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}
