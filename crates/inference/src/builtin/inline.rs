//! Decides what of a line is Markdown syntax: which parts belong together and what a reader sees.
//!
//! Read tolerantly and never refused: a mark without its partner is dropped. Blocks (headings, items,
//! fences) are told apart in `text`.

use std::ops::Range;

use super::words::is_wide;

/// Tags that only format; others stay, since `Vec<u8>` is no tag.
const TAGS: [&str; 22] = [
    "a", "b", "br", "code", "dd", "details", "div", "dl", "dt", "em", "hr", "i", "img", "kbd", "li", "p",
    "span", "strong", "sub", "summary", "sup", "u",
];
/// Bytes after which an open mark is taken for a lone one; bounds the reading of hostile text.
const MAX_WHOLE_BYTES: usize = 1_000;
/// Characters whose Markdown meaning a backslash takes away.
const ESCAPED: &str = "\\`*_{}[]<>#|~";
const PAIRS: [(char, char); 9] = [
    ('(', ')'),
    ('[', ']'),
    ('（', '）'),
    ('“', '”'),
    ('「', '」'),
    ('『', '』'),
    ('《', '》'),
    ('【', '】'),
    ('〔', '〕'),
];

/// The parts that nothing may cut, ascending: code spans, links, addresses.
pub(super) fn wholes(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let whole = match c {
            '`' => code_span(text, at).map(|(_, end)| end),
            '[' => link(text, at).map(|(_, end)| end),
            'h' if address_length(&text[at..]) > 0 => Some(at + address_length(&text[at..])),
            _ => None,
        };
        match whole {
            Some(end) => {
                found.push(at..end);
                at = end;
            }
            None if c == '`' => at += run(text, at, '`'),
            None => at += c.len_utf8(),
        }
    }
    found
}

/// Whether a cut at `at` would go through one of the parts.
pub(super) fn is_inside(wholes: &[Range<usize>], at: usize) -> bool {
    let next = wholes.partition_point(|whole| whole.end <= at);
    wholes.get(next).is_some_and(|whole| whole.start < at)
}

/// Whether the byte at `at` belongs to one of the parts.
pub(super) fn is_part(wholes: &[Range<usize>], at: usize) -> bool {
    let next = wholes.partition_point(|whole| whole.end <= at);
    wholes.get(next).is_some_and(|whole| whole.start <= at)
}

/// What a reader sees of a line: no emphasis, no code marks, no link targets, no table bars.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    write_plain(row(text).as_deref().unwrap_or(text), &mut out);
    spaced(&out)
}

/// One space between words and none around them.
fn spaced(text: &str) -> String {
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |line, word| line + " " + word)
}

/// The cells of a table row, separated by commas.
fn row(text: &str) -> Option<String> {
    let cells = text.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
    let ruled = |cell: &&str| !cell.is_empty() && !cell.bytes().all(|b| matches!(b, b'-' | b':'));
    Some(cells.filter(ruled).collect::<Vec<_>>().join(", "))
}

fn write_plain(text: &str, out: &mut String) {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        at = match c {
            '\\' if rest.chars().next().is_some_and(|next| ESCAPED.contains(next)) => {
                out.extend(rest.chars().next());
                at + 2
            }
            '`' => match code_span(text, at) {
                Some((inside, end)) => {
                    out.push_str(text[inside].trim());
                    end
                }
                None => at + run(text, at, '`'),
            },
            '!' if rest.starts_with('[') && link(text, at + 1).is_some() => at + 1,
            '[' => match link(text, at) {
                Some((label, end)) => {
                    write_plain(&text[label], out);
                    end
                }
                None if rest.starts_with('^') => rest.find(']').map_or(at + 1, |end| at + 1 + end + 1),
                None => {
                    out.push('[');
                    at + 1
                }
            },
            '<' => match tag(rest) {
                Some(length) => {
                    out.push_str(if rest.starts_with("br") || rest.starts_with("!--") { " " } else { "" });
                    at + 1 + length
                }
                None => {
                    out.push('<');
                    at + 1
                }
            },
            'h' if address_length(&text[at..]) > 0 => {
                let end = at + address_length(&text[at..]);
                out.push_str(&text[at..end]);
                end
            }
            '>' if out.ends_with(is_address_end) && text[..at].contains("<http") => at + 1,
            '*' | '_' | '~' => {
                let end = at + run(text, at, c);
                if is_literal(text, at, end, c) {
                    out.push_str(&text[at..end]);
                }
                end
            }
            _ => {
                out.push(c);
                at + c.len_utf8()
            }
        };
    }
}

/// Whether a run of `*`, `_` or `~` is text and no mark.
fn is_literal(text: &str, at: usize, end: usize, mark: char) -> bool {
    let (before, after) = (text[..at].chars().next_back(), text[end..].chars().next());
    let word = |c: Option<char>| c.is_some_and(|c| (c.is_alphanumeric() || c == '_') && !is_wide(c));
    let gap = |c: Option<char>| c.is_none_or(char::is_whitespace);
    if gap(before) && gap(after) {
        return true;
    }
    match mark {
        '~' => end - at == 1,
        '*' => {
            let path = |c: Option<char>| matches!(c, Some('/' | '.' | '('));
            end - at == 1 && (word(before) && word(after) || path(before) || matches!(after, Some('.' | '/')))
        }
        _ if word(before) && word(after) => true,
        _ => {
            // `__init__` and `_private` are names; `_so_` and `__so very__` are emphasised.
            let marks = &text[at..end];
            let inside = if word(after) {
                next_mark(text, end, marks).filter(|(_, opens)| !opens).map(|(place, _)| &text[end..place])
            } else {
                let opened = last_mark(text, at, marks).filter(|(_, opens)| *opens);
                opened.map(|(place, _)| &text[place + marks.len()..at])
            };
            inside.is_none_or(|inside| marks.len() > 1 && !inside.contains(' '))
        }
    }
}

/// The nearest mark behind `from`, and whether it opens.
fn next_mark(text: &str, from: usize, marks: &str) -> Option<(usize, bool)> {
    let places = text[from..].match_indices(marks).map(|(place, _)| from + place);
    places.filter_map(|place| Some((place, opens(text, place, marks)?))).next()
}

/// The nearest mark before `to`, and whether it opens.
fn last_mark(text: &str, to: usize, marks: &str) -> Option<(usize, bool)> {
    let places = text[..to].rmatch_indices(marks);
    places.filter_map(|(place, _)| Some((place, opens(text, place, marks)?))).next()
}

/// Whether a mark opens or closes; a mark inside a name does neither.
fn opens(text: &str, at: usize, marks: &str) -> Option<bool> {
    let word = |c: Option<char>| c.is_some_and(|c| (c.is_alphanumeric() || c == '_') && !is_wide(c));
    let before = word(text[..at].chars().next_back());
    let after = word(text[at + marks.len()..].chars().next());
    (before != after).then_some(after)
}

/// The inside and the end of the code span that begins at a backtick.
fn code_span(text: &str, at: usize) -> Option<(Range<usize>, usize)> {
    let length = run(text, at, '`');
    let start = at + length;
    let mut place = start;
    while let Some(found) = text[place..].find('`') {
        let close = place + found;
        let closing = run(text, close, '`');
        if close - start > MAX_WHOLE_BYTES {
            return None;
        }
        if closing == length {
            return Some((start..close, close + closing));
        }
        place = close + closing;
    }
    None
}

/// The label and the end of `[label](target)` or `[label][name]`.
fn link(text: &str, at: usize) -> Option<(Range<usize>, usize)> {
    let close = closing(text, at, b'[', b']')?;
    let end = match text.as_bytes().get(close + 1)? {
        b'(' => closing(text, close + 1, b'(', b')')?,
        b'[' => closing(text, close + 1, b'[', b']')?,
        _ => return None,
    };
    Some((at + 1..close, end + 1))
}

/// Where the bracket at `at` is closed.
fn closing(text: &str, at: usize, open: u8, close: u8) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, byte) in text.bytes().enumerate().skip(at).take(MAX_WHOLE_BYTES) {
        depth += usize::from(byte == open);
        if byte == close {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(place);
            }
        }
    }
    None
}

/// The length of a comment or formatting tag behind its `<`, or of the `<` alone before an address.
fn tag(rest: &str) -> Option<usize> {
    if let Some(comment) = rest.strip_prefix("!--") {
        return Some(3 + comment.find("-->").map_or(comment.len(), |end| end + 3));
    }
    if address_length(rest) > 0 {
        return Some(0);
    }
    let inside = &rest[..rest.bytes().take(MAX_WHOLE_BYTES).position(|byte| byte == b'>')?];
    let name = inside.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
    TAGS.contains(&name.to_ascii_lowercase().as_str()).then_some(inside.len() + 1)
}

fn address_length(text: &str) -> usize {
    if !(text.starts_with("http://") || text.starts_with("https://")) {
        return 0;
    }
    let end = text.find(|c| !is_address_end(c)).unwrap_or(text.len());
    text[..end].trim_end_matches(['.', ',', ';', ':', '!', '?', '*']).len()
}

fn is_address_end(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '<' | '>' | ')' | '`' | '"')
}

fn run(text: &str, at: usize, mark: char) -> usize {
    text[at..].chars().take_while(|c| *c == mark).count()
}

/// Drops backticks that have no partner.
pub(super) fn close_code(text: &str) -> String {
    let spans = wholes(text);
    text.char_indices().filter(|(at, c)| *c != '`' || is_part(&spans, *at)).map(|(_, c)| c).collect()
}

/// Drops brackets and quotation marks that have no partner.
pub(super) fn balanced(text: &str) -> String {
    let mut lone: Vec<usize> = Vec::new();
    for (open, close) in PAIRS {
        let mut opened = Vec::new();
        for (at, c) in text.char_indices() {
            if c == open {
                opened.push(at);
            } else if c == close && opened.pop().is_none() {
                lone.push(at);
            }
        }
        lone.extend(opened);
    }
    let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
    if quotes.len() % 2 == 1 {
        lone.extend(quotes.last());
    }
    let kept: String = text.char_indices().filter(|(at, _)| !lone.contains(at)).map(|(_, c)| c).collect();
    spaced(&kept)
}

/// Whether a character may stand in a Topic: no control characters, nothing that reorders or hides text.
pub(super) fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::text::{pieces, readable};
    use super::super::title::cut;
    use super::*;

    proptest! {
        #[test]
        fn any_mixture_of_marks_is_read(text in "[`*_~\\[\\]()<>!|#\\\\ a1.é租。hp:/\"“\n\u{0}\u{202e}-]{0,120}") {
            for piece in pieces(&readable(&serde_json::Value::from(text))) {
                let shown = balanced(&plain(&piece.text));
                prop_assert!(piece.text.chars().all(is_visible) && shown.chars().all(is_visible));
                prop_assert!(cut(&shown, 20).chars().count() <= 20);
                prop_assert!(!shown.contains("  ") && wholes(&shown).iter().all(|whole| whole.start < whole.end));
            }
        }

        #[test]
        fn addresses_and_code_are_kept_whole(text in "(a b\\. |`c\\. D`|https://x\\.test/a\\. |\\[e\\. F\\]\\(g\\) ){1,40}") {
            let cut = pieces(&text);
            prop_assert!(cut.iter().all(|piece| piece.text.matches('`').count() % 2 == 0), "{cut:?}");
            prop_assert!(cut.iter().all(|piece| piece.text.matches('[').count() == piece.text.matches("](g)").count()));
        }
    }

    #[test]
    fn a_reader_sees_words_and_no_markdown() {
        for (text, seen) in [
            ("**Bold** and *so* and __very so__ and ~~gone~~", "Bold and so and very so and gone"),
            ("see [the `guide`](https://x.test/a_(b)) or [one][two]", "see the guide or one"),
            ("![a chart](c.png) and [![CI](b.svg)](https://ci.test)", "a chart and CI"),
            ("`database.rs` there and `a * b`", "database.rs there and a * b"),
            ("an open ` and **bold", "an open and bold"),
            ("snake_case, __init__, _private and _so_", "snake_case, __init__, _private and so"),
            ("5 * 3, a*b, *.rs, crates/*", "5 * 3, a*b, *.rs, crates/*"),
            ("a<br>b <!-- no --> <b>c</b> Vec<u8>", "a b c Vec<u8>"),
            (
                "<https://x.test/a_b_c> and https://x.test/_d_.",
                "https://x.test/a_b_c and https://x.test/_d_.",
            ),
            ("noted[^1] and \\*so\\*", "noted and *so*"),
            ("| a | `b` |", "a, b"),
            ("|---|:-:|", ""),
            ("租约**到期**以后", "租约到期以后"),
        ] {
            assert_eq!(plain(text), seen, "{text}");
        }
    }

    #[test]
    fn only_marks_without_a_partner_are_dropped() {
        assert_eq!(balanced("a (b) c) “d \"e"), "a (b) c d e");
        assert_eq!(close_code("`a` and ` b"), "`a` and  b");
        assert_eq!(close_code("``a ` b``"), "``a ` b``");
    }
}
