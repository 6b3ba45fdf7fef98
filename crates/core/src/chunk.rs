//! Cuts a Topic's detail into the pieces that full text and embeddings index (TM-130..133, B-7).
//!
//! Decides where a chunk may begin and end and how long it is. A chunk is exactly a part of the
//! detail and has no identity of its own; what is indexed of it is decided in `projection`, what is
//! shown of it in `snippet`. Sizes are constants of [`POLICY_VERSION`], never settings.
//!
//! Blocks are headings, paragraphs, list items and fenced code; a block over the target is made of
//! its sentences. Neighbours are packed up to the target. Only a single block over the maximum is
//! cut by windows, and only those overlap. When a detail would need more than [`MAX_CHUNKS`], all
//! sizes grow until it does not, so no text is dropped.

mod blocks;

use blocks::{Block, blocks};

/// The version of the policy; a change requires rebuilding every projection (TM-132).
pub const POLICY_VERSION: u32 = 1;
/// The most chunks one Topic has (TM-133).
pub const MAX_CHUNKS: usize = 200;

/// Sizes in Unicode scalar values.
#[derive(Clone, Copy)]
struct Sizes {
    target: usize,
    maximum: usize,
    tail: usize,
}

const SIZES: Sizes = Sizes { target: 1_200, maximum: 2_000, tail: 300 };

/// One piece of a detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Counts from 0 in the order of the detail.
    pub ordinal: u32,
    /// Where the chunk starts, in Unicode scalar values of the detail.
    pub position: usize,
    /// Exactly that part of the detail; neither end is white space.
    pub text: String,
}

/// The chunks of `detail` in order; none for a blank one. White space alone is left out.
#[must_use]
pub fn chunks(detail: &str) -> Vec<Chunk> {
    let mut sizes = SIZES;
    let spans = loop {
        let spans = cut(detail, sizes);
        if spans.len() <= MAX_CHUNKS {
            break spans;
        }
        sizes =
            Sizes { target: sizes.target * 5 / 4, maximum: sizes.maximum * 5 / 4, tail: sizes.tail * 5 / 4 };
    };
    (0..)
        .zip(spans)
        .map(|(ordinal, span)| Chunk {
            ordinal,
            position: span.first_char,
            text: detail[span.start..span.end].to_owned(),
        })
        .collect()
}

fn cut(detail: &str, sizes: Sizes) -> Vec<Block> {
    let mut spans: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    let blocks = blocks(detail, sizes.target);
    let mut rest = blocks.as_slice();
    while let Some((unit, after)) = next_unit(rest, sizes) {
        rest = after;
        if let Some(current) = open {
            let joined = current.through(&unit);
            if joined.chars() <= sizes.target {
                open = Some(joined);
                continue;
            }
            close(&mut spans, current, sizes);
        }
        open = None;
        if unit.chars() > sizes.maximum {
            spans.extend(windows(detail, &unit, sizes));
        } else {
            open = Some(unit);
        }
    }
    if let Some(current) = open {
        close(&mut spans, current, sizes);
    }
    spans
}

/// The next block, or a heading with the block it introduces where both fit one chunk.
fn next_unit(blocks: &[Block], sizes: Sizes) -> Option<(Block, &[Block])> {
    let (first, rest) = blocks.split_first()?;
    if let (true, Some((second, after))) = (first.heading, rest.split_first()) {
        let joined = first.through(second);
        if joined.chars() <= sizes.maximum {
            return Some((joined, after));
        }
    }
    Some((*first, rest))
}

/// Ends a chunk; a short one joins the chunk before it where the maximum allows.
fn close(spans: &mut Vec<Block>, span: Block, sizes: Sizes) {
    if let Some(last) = spans.last_mut() {
        let joined = last.through(&span);
        if span.chars() < sizes.tail && joined.chars() <= sizes.maximum {
            *last = joined;
            return;
        }
    }
    spans.push(span);
}

/// Windows of the target size over one block, each sharing a tenth with the one before it.
fn windows(detail: &str, block: &Block, sizes: Sizes) -> Vec<Block> {
    let text = &detail[block.start..block.end];
    let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let count = bytes.len() - 1;
    let step = sizes.target - sizes.target / 10;
    let mut spans = Vec::new();
    let mut from = 0;
    loop {
        let to = if count - from < sizes.target + sizes.tail { count } else { from + sizes.target };
        spans.extend(Block::trimmed(
            detail,
            block.start + bytes[from],
            block.start + bytes[to],
            block.first_char + from,
        ));
        if to == count {
            return spans;
        }
        from += step;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(detail: &str) -> Vec<Chunk> {
        let chunks = chunks(detail);
        let chars: Vec<char> = detail.chars().collect();
        let mut covered = 0;
        let mut before = None;
        for (ordinal, chunk) in chunks.iter().enumerate() {
            let text: Vec<char> = chunk.text.chars().collect();
            let end = chunk.position + text.len();
            assert_eq!(chunk.ordinal as usize, ordinal);
            assert_eq!(&chars[chunk.position..end], text, "a chunk is its part of the detail");
            assert!(!chunk.text.trim().is_empty());
            assert!(before.is_none_or(|before| before < chunk.position), "positions increase");
            assert!(end > covered, "every chunk adds text");
            if covered < chunk.position {
                assert!(chars[covered..chunk.position].iter().all(|c| c.is_whitespace()), "nothing is lost");
            }
            covered = end;
            before = Some(chunk.position);
        }
        assert!(chars[covered..].iter().all(|c| c.is_whitespace()), "nothing is lost at the end");
        assert!(chunks.len() <= MAX_CHUNKS);
        chunks
    }

    fn sizes_of(chunks: &[Chunk]) -> Vec<usize> {
        chunks.iter().map(|chunk| chunk.text.chars().count()).collect()
    }

    // TM-130
    #[test]
    fn neighbouring_blocks_are_packed_to_the_target() {
        let detail = vec!["x".repeat(500); 5].join("\n\n");
        assert_eq!(sizes_of(&checked(&detail)), [1002, 1002, 500]);
        assert!(chunks(" \n\t ").is_empty());
    }

    // TM-130
    #[test]
    fn a_short_tail_joins_the_chunk_before_it() {
        let detail = format!("{}\n\n{}", "x".repeat(1100), "y".repeat(299));
        assert_eq!(sizes_of(&checked(&detail)), [1401]);
        let detail = format!("{}\n\n{}", "x".repeat(1100), "y".repeat(300));
        assert_eq!(sizes_of(&checked(&detail)), [1100, 300]);
    }

    // TM-130
    #[test]
    fn a_heading_stays_with_the_text_it_introduces() {
        let detail = format!("{}\n\n# Rollout\n{}", "x".repeat(1100), "y".repeat(900));
        let chunks = checked(&detail);
        assert_eq!(chunks.len(), 2);
        assert!(chunks[1].text.starts_with("# Rollout\nyyy"));
    }

    // TM-130
    #[test]
    fn a_long_paragraph_is_cut_between_sentences_of_any_language() {
        for sentence in [
            "The job runs first and then it waits. ",
            "数据库备份每天执行一次并且通知值班人员。",
            "「本当に速い！」",
        ] {
            let chunks = checked(&sentence.repeat(200));
            assert!(chunks.len() > 1);
            for chunk in &chunks {
                assert!(chunk.text.ends_with(sentence.trim_end()), "{}", chunk.text);
                assert!(chunk.text.chars().count() <= SIZES.maximum);
            }
        }
    }

    // TM-130
    #[test]
    fn only_a_single_block_over_the_maximum_is_cut_with_a_tenth_of_overlap() {
        assert_eq!(sizes_of(&checked(&"x".repeat(2000))), [2000]);
        let chunks = checked(&"x".repeat(2600));
        assert_eq!(sizes_of(&chunks), [1200, 1200, 440]);
        assert_eq!(chunks.iter().map(|chunk| chunk.position).collect::<Vec<_>>(), [0, 1080, 2160]);
    }

    // TM-130
    #[test]
    fn fenced_code_is_one_block_and_its_lines_are_no_headings() {
        let code = format!("```\n# not a heading\n\n{}\n```", "let a = b. c\n".repeat(80));
        let detail = format!("{}\n\n{code}\n\n{}", "x".repeat(600), "y".repeat(600));
        assert!(checked(&detail).iter().any(|chunk| chunk.text == code));
    }

    // TM-132
    #[test]
    fn the_policy_is_versioned_and_its_sizes_are_constant() {
        assert_eq!((POLICY_VERSION, SIZES.target, SIZES.maximum, SIZES.tail), (1, 1200, 2000, 300));
    }

    // TM-133
    #[test]
    fn adversarial_markdown_stays_within_the_cap_and_loses_nothing() {
        for unit in [
            "# \n",
            "- ",
            "```\n",
            "> ",
            "\n\n.",
            "a\n\n",
            "。",
            "#",
            "1. x\n",
            "~~~\n# a\n\n",
            " x ",
            "\r\n\u{2028}e\u{301}",
        ] {
            checked(&unit.repeat(125_000 / unit.chars().count()));
        }
        let spread = format!("a{}b", " ".repeat(9000));
        assert_eq!(sizes_of(&checked(&spread)), [1, 1]);
        checked(&vec!["x".repeat(650); 3000].join("\n\n"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        // TM-130
        #[test]
        fn every_character_is_in_a_chunk_and_no_chunk_is_over_the_maximum(
            parts in prop::collection::vec(("(# |- |12\\. |```\n|~~~|> |\t|)", "[a-z数。.!?\"」 \n\r\u{301}🙂]{0,40}", 1..60_usize, "(\n|\n\n|\r\n| |)"), 0..20)
        ) {
            let detail: String = parts.iter().map(|(start, body, times, end)| format!("{start}{}{end}", body.repeat(*times))).collect();
            let chunks = checked(&detail);
            for chunk in &chunks {
                prop_assert!(chunk.text.chars().count() <= SIZES.maximum);
            }
            prop_assert_eq!(&chunks, &super::chunks(&detail));
        }
    }
}
