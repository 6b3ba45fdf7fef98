//! Reads what a Source says: its text fields, cut into headings, sentences, list items and code.
//!
//! Markdown is read as far as it separates sentences; block markers never reach a sentence, what is left
//! inside a line is `inline`'s. What a sentence is worth is decided in `cluster` and `compose`.

use serde_json::Value;

use super::inline::{close_code, is_inside, is_part, is_visible, plain, wholes};
use super::words::is_wide;

/// The most characters of a first line that stands alone and is taken for a heading.
const MAX_SUBJECT_CHARS: usize = 100;
/// The most characters of one sentence; longer runs are cut at a space or a comma.
const MAX_SENTENCE_CHARS: usize = 480;
/// Fields of a record that hold prose, in the order they are read.
const PROSE_FIELDS: [&str; 18] = [
    "title",
    "subject",
    "headline",
    "summary",
    "message",
    "question",
    "content",
    "text",
    "body",
    "description",
    "answer",
    "comment",
    "comments",
    "note",
    "notes",
    "messages",
    "parts",
    "diff_summary",
];
/// How many of [`PROSE_FIELDS`] become headings.
const HEADING_FIELDS: usize = 3;

/// What a piece of text is in its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A heading of any level.
    Heading,
    /// A sentence of a paragraph.
    Prose,
    /// A sentence of a list item.
    Item,
    /// A line of code or of a table.
    Code,
}

/// One piece of text without block markers, control characters or, outside code, repeated white space; never
/// blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    /// Whether a paragraph or item begins here.
    pub(super) opens: bool,
    pub(super) text: String,
}

/// The readable text of captured content; empty when there is none.
pub(super) fn readable(content: &Value) -> String {
    let mut out = String::new();
    read(content, &mut out);
    out
}

fn read(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            if !out.is_empty() {
                out.push_str("\n\n");
            }
            out.push_str(text);
        }
        Value::Array(items) => items.iter().for_each(|item| read(item, out)),
        Value::Object(fields) => {
            let before = out.len();
            for (place, name) in PROSE_FIELDS.iter().enumerate() {
                match fields.get(*name) {
                    Some(Value::String(text)) if place < HEADING_FIELDS && !text.contains('\n') => {
                        let heading = text.trim().trim_start_matches('#').trim();
                        if !heading.is_empty() {
                            read(&Value::String(format!("# {heading}")), out);
                        }
                    }
                    Some(field) => read(field, out),
                    None => {}
                }
            }
            if out.len() == before {
                fields.iter().for_each(|(_, field)| read_unnamed(field, out));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads a field of unknown meaning: only prose, not identities, hashes, addresses or roles.
fn read_unnamed(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            let wide = text.chars().any(is_wide);
            if wide || text.split_whitespace().nth(2).is_some() {
                read(value, out);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| read_unnamed(item, out)),
        Value::Object(_) => read(value, out),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cuts a text into its pieces, in order.
pub(super) fn pieces(text: &str) -> Vec<Piece> {
    let mut reader = Reader { pieces: Vec::new(), open: String::new(), kind: Kind::Prose };
    let mut fence: Option<&str> = None;
    let mut in_table = false;
    let (front, body) = front_matter(text);
    if let Some(title) = front {
        reader.single(Kind::Heading, title);
    }
    let body = headed(body);
    let mut lines = body.lines().peekable();
    while let Some(raw) = lines.next() {
        let line = raw.trim();
        let below = lines.peek().map_or("", |next| next.trim());
        in_table = !line.is_empty() && (in_table || line.contains('|') && is_ruler(below));
        if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark)) {
            reader.close();
            match fence {
                None => fence = Some(mark),
                Some(open) if open == mark => fence = None,
                Some(_) => reader.code(raw),
            }
        } else if fence.is_some() {
            reader.code(raw);
        } else if in_table || (line.len() > 1 && line.starts_with('|') && line.ends_with('|')) {
            reader.close();
            reader.code(line);
        } else if line.is_empty() || line.bytes().all(|b| matches!(b, b'-' | b'=' | b'*' | b'_')) {
            reader.close();
        } else if line.starts_with('[') && line.contains("]: http") {
            reader.close(); // where a named link leads
        } else if let Some(heading) = heading(line) {
            reader.close();
            reader.single(Kind::Heading, heading);
        } else if reader.open.is_empty() && is_underline(below) && item(line).is_none() {
            reader.single(Kind::Heading, line);
        } else if let Some(item) = item(line) {
            reader.close();
            reader.kind = Kind::Item;
            reader.open.push_str(item);
        } else {
            let line = line.trim_start_matches('>').trim_start();
            join(&mut reader.open, line);
        }
    }
    reader.close();
    reader.pieces
}

/// Marks a first line that stands alone over more text and ends like no sentence: the subject of a commit,
/// the title of a note.
fn headed(text: &str) -> std::borrow::Cow<'_, str> {
    let text = text.trim_start_matches(['\u{feff}', '\n', '\r']);
    let alone = text.split_once('\n').filter(|(first, rest)| {
        let blank = rest.lines().next().is_some_and(|line| line.trim().is_empty());
        let short = first.chars().nth(MAX_SUBJECT_CHARS).is_none();
        let ends = ['.', '!', '?', ':', ',', ';', '。', '！', '？', '：', '，', '；', '|', '>', '`', '…'];
        let marked = first.starts_with(['#', '-', '*', '+', '>', '|', '`', '~', ' ', '\t', '[', '<', '!']);
        blank && short && !rest.trim().is_empty() && !marked && !first.trim_end().ends_with(ends)
    });
    match alone.filter(|(first, _)| item(first).is_none() && !first.trim().is_empty()) {
        Some((first, rest)) => format!("# {first}\n{rest}").into(),
        None => text.into(),
    }
}

/// The line between a table's head and its rows.
fn is_ruler(line: &str) -> bool {
    line.contains('|') && line.contains('-') && line.bytes().all(|b| matches!(b, b'|' | b'-' | b':' | b' '))
}

/// The line under a heading.
fn is_underline(line: &str) -> bool {
    line.len() >= 3 && (line.bytes().all(|b| b == b'=') || line.bytes().all(|b| b == b'-'))
}

/// Takes the front matter off a text; of its fields only the title is text.
fn front_matter(text: &str) -> (Option<&str>, &str) {
    let fenced = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    let Some((fields, body)) = fenced else { return (None, text) };
    if fields.lines().any(|line| !line.trim().is_empty() && !line.contains(':')) {
        return (None, text);
    }
    let title = fields.lines().find_map(|line| line.strip_prefix("title:"));
    (title.map(|title| title.trim().trim_matches('"')), body)
}

/// Appends a text after another the way its script is written: a space, except beside wide characters.
pub(super) fn join(out: &mut String, next: &str) {
    if !out.is_empty() && !next.is_empty() && !is_wide_edge(out, next) {
        out.push(' ');
    }
    out.push_str(next);
}

/// Whether no space is written where `next` follows `before`. Quotation marks are as wide as their text.
pub(super) fn is_wide_edge(before: &str, next: &str) -> bool {
    let quoting = |c: &char| matches!(c, '“' | '”' | '…');
    let last = before.chars().rev().find(|c| !quoting(c));
    let first = next.chars().find(|c| !quoting(c));
    last.is_some_and(is_wide) || first.is_some_and(is_wide)
}

struct Reader {
    pieces: Vec<Piece>,
    open: String,
    kind: Kind,
}

impl Reader {
    fn single(&mut self, kind: Kind, line: &str) {
        let text = clean(line);
        self.push(kind, bounded(&text));
    }

    fn code(&mut self, line: &str) {
        let visible = |c: char| if c == '\t' { ' ' } else { c };
        let line: String = line.chars().map(visible).filter(|c| is_visible(*c)).collect();
        let line = line.trim_end();
        if !line.is_empty() {
            let letters: Vec<char> = line.chars().collect();
            let parts = letters.chunks(MAX_SENTENCE_CHARS).map(|part| part.iter().collect::<String>());
            self.pieces.extend(parts.map(|text| Piece { kind: Kind::Code, opens: true, text }));
        }
    }

    fn close(&mut self) {
        let text = clean(&std::mem::take(&mut self.open));
        let kind = std::mem::replace(&mut self.kind, Kind::Prose);
        self.push(kind, sentences(&text).into_iter().flat_map(bounded).collect());
    }

    fn push(&mut self, kind: Kind, parts: Vec<&str>) {
        let shown = parts.into_iter().filter(|part| !plain(part).is_empty()).enumerate();
        self.pieces.extend(shown.map(|(place, part)| Piece {
            kind,
            opens: place == 0 || kind == Kind::Heading,
            text: part.to_owned(),
        }));
    }
}

fn heading(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let text = rest.trim();
    // Closing marks stand apart: `C#` is a name.
    let unclosed = text.trim_end_matches('#');
    let text = if unclosed.is_empty() || unclosed.ends_with(' ') { unclosed.trim() } else { text };
    let bold = line.strip_prefix("**").and_then(|rest| rest.strip_suffix("**"));
    match bold {
        Some(text) if !text.contains("**") && !text.is_empty() => Some(text),
        _ => ((1..=6).contains(&level) && (rest.starts_with(' ') || rest.is_empty())).then_some(text),
    }
}

fn item(line: &str) -> Option<&str> {
    let marked = ["- ", "* ", "+ ", "• "].iter().find_map(|marker| line.strip_prefix(marker));
    let rest = marked.or_else(|| {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &line[digits..];
        let rest =
            rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") ")).or_else(|| rest.strip_prefix('、'));
        if (1..=3).contains(&digits) { rest } else { None }
    })?;
    let rest = rest.trim_start();
    let unboxed = ["[ ] ", "[x] ", "[X] "].iter().find_map(|marker| rest.strip_prefix(marker));
    Some(unboxed.unwrap_or(rest).trim())
}

/// Collapses white space, drops control characters, strong emphasis and marks without a partner.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut gap = false;
    for c in text.chars() {
        if c.is_whitespace() || c.is_control() {
            gap = !out.is_empty();
        } else if is_visible(c) {
            if std::mem::take(&mut gap) {
                out.push(' ');
            }
            out.push(c);
        }
    }
    let out = if out.contains('`') { close_code(&out) } else { out };
    if out.contains("**") { without_strong(&out) } else { out }
}

/// Drops `**` outside code.
fn without_strong(text: &str) -> String {
    let spans = wholes(text);
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (at, mark) in text.match_indices("**") {
        if !is_part(&spans, at) {
            out.push_str(&text[from..at]);
            from = at + mark.len();
        }
    }
    out + &text[from..]
}

/// Cuts a paragraph behind its full stops, never inside code, a link or an address.
fn sentences(text: &str) -> Vec<&str> {
    let spans = wholes(text);
    let mut found = Vec::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        let mut end = at + c.len_utf8();
        let stop = match c {
            '。' | '！' | '？' | '；' => {
                !text[end..].chars().next().is_some_and(|next| "”」』）。！？".contains(next))
            }
            '”' | '」' | '』' | '）' => text[..at].ends_with(['。', '！', '？']),
            '.' | '!' | '?' => {
                let closing = |c: char| matches!(c, '"' | '\'' | ')' | ']' | '*' | '_' | '”' | '’');
                let rest = text[end..].trim_start_matches(closing);
                let closed = text.len() - rest.len();
                let stop = (rest.is_empty() || rest.starts_with(' '))
                    && !(c == '.' && at >= start && abbreviated(&text[start..at], rest));
                end = if stop { closed } else { end };
                stop && !(c != '.' && rest.trim_start().starts_with(char::is_lowercase))
            }
            _ => false,
        };
        if stop && at >= start && !is_inside(&spans, at) && !is_inside(&spans, end) {
            push_trimmed(&mut found, &text[start..end]);
            start = end;
        }
    }
    push_trimmed(&mut found, &text[start..]);
    found
}

/// Whether a full stop belongs to the word before it.
fn abbreviated(before: &str, after: &str) -> bool {
    let word = before.rsplit([' ', '(', '[']).next().unwrap_or("");
    let known = [
        "e.g", "i.e", "etc", "vs", "cf", "approx", "fig", "mr", "mrs", "ms", "dr", "prof", "st", "bzw", "z.b",
    ];
    let next = after.trim_start().chars().next();
    let counted = word.eq_ignore_ascii_case("no") && next.is_some_and(|c| c.is_ascii_digit());
    let initial = word.len() == 1 && word.bytes().all(|b| b.is_ascii_uppercase());
    word.is_empty()
        || next.is_some_and(char::is_lowercase)
        || counted
        || initial
        || known.contains(&word.to_lowercase().as_str())
        || (word.len() <= 2 && word.bytes().all(|b| b.is_ascii_digit()))
}

fn push_trimmed<'a>(found: &mut Vec<&'a str>, text: &'a str) {
    let text = text.trim();
    if !text.is_empty() {
        found.push(text);
    }
}

/// Cuts a run that is too long for a sentence, behind a space or comma where there is one, and inside code,
/// a link or an address only when that alone is too long.
fn bounded(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((limit, _)) = rest.char_indices().nth(MAX_SENTENCE_CHARS) {
        let spans = wholes(&rest[..rest.floor_char_boundary(2 * limit)]);
        let places = rest[..limit].char_indices().rev().filter_map(|(at, c)| match c {
            ' ' | '，' | '、' | '：' | '；' => Some(at + c.len_utf8()),
            _ => None,
        });
        let free = |place: &usize| !is_inside(&spans, *place);
        let cut = places.clone().find(free).or_else(|| places.clone().next()).unwrap_or(limit);
        push_trimmed(&mut parts, &rest[..cut]);
        rest = &rest[cut..];
    }
    push_trimmed(&mut parts, rest);
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(text: &str) -> Vec<String> {
        pieces(text).into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn markdown_is_cut_into_headings_sentences_and_items_without_markers() {
        let found = pieces(
            "# Lease\n\nIt expires. It is\nrenewed e.g. by hand.\n\n- one\n- [x] two\n\n```\nlet a = 1;\n```\n> said **so**.",
        );
        let shown: Vec<_> = found.iter().map(|piece| (piece.kind, piece.text.as_str())).collect();
        assert_eq!(
            shown,
            [
                (Kind::Heading, "Lease"),
                (Kind::Prose, "It expires."),
                (Kind::Prose, "It is renewed e.g. by hand."),
                (Kind::Item, "one"),
                (Kind::Item, "two"),
                (Kind::Code, "let a = 1;"),
                (Kind::Prose, "said so."),
            ]
        );
    }

    #[test]
    fn chinese_is_cut_behind_its_full_stops_and_joined_without_spaces() {
        assert_eq!(
            texts("先看租约。\n再看“续约失败。”然后\n处理！"),
            ["先看租约。", "再看“续约失败。”", "然后处理！"]
        );
    }

    #[test]
    fn a_record_is_read_by_its_prose_fields_and_never_by_its_identities() {
        let turn = json!({ "role": "user", "content": [{ "type": "text", "text": "Renew it." }] });
        assert_eq!(readable(&turn), "Renew it.");
        let commit = json!({ "sha": "9f31c2", "title": "Fix lease", "body": "It flapped.", "url": "https://x.test/a b c" });
        assert_eq!(readable(&commit), "# Fix lease\n\nIt flapped.");
        let unknown = json!({ "id": "a-1", "finding": "The lease was never renewed", "ok": true });
        assert_eq!(readable(&unknown), "The lease was never renewed");
    }

    #[test]
    fn a_run_without_full_stops_is_cut_to_bounded_pieces() {
        let found = texts(&"词".repeat(2000));
        assert!(found.len() > 1 && found.iter().all(|text| text.chars().count() <= MAX_SENTENCE_CHARS));
        assert_eq!(found.concat().chars().count(), 2000);
    }
}
