//! Keeps the last line of an endless stream in bounded memory.

/// The longest line that is kept, in bytes; the largest outcome there is.
pub const LINE_LIMIT: usize = 4096;

/// The last complete, non-blank line seen so far. Longer lines than [`LINE_LIMIT`] count as
/// unreadable and leave nothing.
#[derive(Debug, Default)]
pub struct LastLine {
    current: Vec<u8>,
    overlong: bool,
    last: Vec<u8>,
}

impl LastLine {
    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            if self.current.len() + text.len() > LINE_LIMIT {
                self.overlong = true;
                self.current.clear();
            } else if !self.overlong {
                self.current.extend_from_slice(text);
            }
            if ends {
                self.end_line();
            }
        }
    }

    /// The last line; an unfinished one counts.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.end_line();
        self.last
    }

    fn end_line(&mut self) {
        let overlong = std::mem::take(&mut self.overlong);
        let line = std::mem::take(&mut self.current);
        if overlong || !line.trim_ascii().is_empty() {
            self.last = line;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_of(pieces: &[&[u8]]) -> Vec<u8> {
        let mut lines = LastLine::default();
        pieces.iter().for_each(|piece| lines.feed(piece));
        lines.finish()
    }

    #[test]
    fn the_last_line_is_found_across_pieces_and_blank_lines() {
        assert_eq!(last_of(&[b"one\ntw", b"o\n", b"\n  \n"]), b"two");
        assert_eq!(last_of(&[b"one\ntwo"]), b"two");
    }

    #[test]
    fn an_overlong_last_line_leaves_nothing_and_costs_no_memory() {
        let long = vec![b'x'; LINE_LIMIT];
        assert_eq!(last_of(&[&long]), long);
        assert_eq!(last_of(&[b"one\n", &long, &long, b"tail"]), b"");
        assert_eq!(last_of(&[&long, &long, b"\ntwo\n"]), b"two");
    }
}
