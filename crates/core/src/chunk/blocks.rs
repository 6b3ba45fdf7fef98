//! Finds the indivisible blocks of a Markdown text.
//!
//! Decides only where a block begins and ends; sizes and packing are decided by the parent module.
//! This is no Markdown parser: what it misreads costs a worse border, never text.

/// A part of the detail; neither end is white space.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// First byte.
    pub start: usize,
    /// Past the last byte.
    pub end: usize,
    /// First character.
    pub first_char: usize,
    end_char: usize,
    /// Introduces the block after it.
    pub heading: bool,
}

impl Block {
    /// The given bytes without white space at the ends, or `None` when nothing is left.
    pub fn trimmed(detail: &str, start: usize, end: usize, first_char: usize) -> Option<Self> {
        let text = &detail[start..end];
        let body = text.trim_start();
        let skipped = &text[..text.len() - body.len()];
        let body = body.trim_end();
        let start = start + skipped.len();
        let first_char = first_char + skipped.chars().count();
        let end_char = first_char + body.chars().count();
        (!body.is_empty()).then_some(Self {
            start,
            end: start + body.len(),
            first_char,
            end_char,
            heading: false,
        })
    }

    /// From the start of this block to the end of `last`.
    pub fn through(&self, last: &Self) -> Self {
        Self { end: last.end, end_char: last.end_char, heading: false, ..*self }
    }

    pub fn chars(&self) -> usize {
        self.end_char - self.first_char
    }
}

/// The blocks of `detail` in order; one over `target` characters is given as its sentences.
pub(super) fn blocks(detail: &str, target: usize) -> Vec<Block> {
    let mut found = Found { detail, target, blocks: Vec::new(), byte: 0, char: 0 };
    let mut at = 0;
    let mut fence: Option<&str> = None;
    for line in detail.split_inclusive('\n') {
        let next = at + line.len();
        let content = line.trim();
        if let Some(mark) = fence {
            if content.starts_with(mark) && content.trim_start_matches(&mark[..1]).is_empty() {
                found.close(next, Kind::Code);
                fence = None;
            }
        } else if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| content.starts_with(mark)) {
            found.close(at, Kind::Text);
            fence = Some(mark);
        } else if content.is_empty() {
            found.close(at, Kind::Text);
        } else if is_heading(content) {
            found.close(at, Kind::Text);
            found.close(next, Kind::Heading);
        } else if is_list_item(content) {
            found.close(at, Kind::Text);
        }
        at = next;
    }
    found.close(at, if fence.is_some() { Kind::Code } else { Kind::Text });
    found.blocks
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Heading,
    Code,
}

struct Found<'a> {
    detail: &'a str,
    target: usize,
    blocks: Vec<Block>,
    byte: usize,
    char: usize,
}

impl Found<'_> {
    /// Ends a block before byte `end`; blank text is no block.
    fn close(&mut self, end: usize, kind: Kind) {
        let text = &self.detail[self.byte..end];
        let chars = text.chars().count();
        if chars > self.target && kind == Kind::Text {
            let (mut from, mut first_char) = (0, self.char);
            for to in sentence_ends(text) {
                self.blocks.extend(Block::trimmed(self.detail, self.byte + from, self.byte + to, first_char));
                first_char += text[from..to].chars().count();
                from = to;
            }
        } else if let Some(block) = Block::trimmed(self.detail, self.byte, end, self.char) {
            self.blocks.push(Block { heading: kind == Kind::Heading, ..block });
        }
        self.byte = end;
        self.char += chars;
    }
}

fn is_heading(line: &str) -> bool {
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    (1..=6).contains(&level) && (title.is_empty() || title.starts_with([' ', '\t']))
}

fn is_list_item(line: &str) -> bool {
    let digits = line.bytes().take(9).take_while(u8::is_ascii_digit).count();
    let mut after = line[digits..].chars();
    let marked = match after.next() {
        Some('.' | ')') => digits > 0,
        Some('-' | '*' | '+') => digits == 0,
        _ => false,
    };
    marked && after.next().is_some_and(char::is_whitespace)
}

/// Where sentences end, in bytes, the end of the text included.
fn sentence_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut ended: Option<Stop> = None;
    for (at, c) in text.char_indices() {
        ended = match (c, ended) {
            ('。' | '！' | '？' | '．' | '｡' | '…', _) => Some(Stop::Anywhere),
            ('.' | '!' | '?', None) => Some(Stop::BeforeSpace),
            ('.' | '!' | '?', stop) => stop,
            ('"' | '\'' | ')' | ']' | '”' | '’' | '」' | '』' | '）' | '】' | '》', stop) => stop,
            (_, Some(Stop::Anywhere)) => {
                ends.push(at);
                None
            }
            (c, Some(Stop::BeforeSpace)) if c.is_whitespace() => {
                ends.push(at);
                None
            }
            _ => None,
        };
    }
    ends.push(text.len());
    ends
}

#[derive(Clone, Copy)]
enum Stop {
    /// Punctuation that ends a sentence whatever follows.
    Anywhere,
    /// Punctuation that is part of a word unless white space follows.
    BeforeSpace,
}
