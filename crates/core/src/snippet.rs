//! The short text a search result shows of a detail (TM-131, TM-143).
//!
//! Decides the size, where the window lies and how it is marked as cut. Works on any text: given the
//! complete detail the window may reach beyond the chunk that was found. Whether a result has a
//! snippet at all is decided by the search.

use std::collections::HashMap;

use crate::analyzer::{self, Query};

/// The longest snippet, in Unicode scalar values, ellipses included.
pub const MAX_SNIPPET_CHARS: usize = 480;

/// Stands for text that was cut off.
const ELLIPSIS: char = '…';

/// A stretch of a detail, and whether the detail goes on at either end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excerpt<'a> {
    /// The stretch.
    pub text: &'a str,
    /// Text stands before it.
    pub cut_before: bool,
    /// Text follows it.
    pub cut_after: bool,
}

/// The part of a complete `text` around its best hit of `query`; see [`around_hit_in`].
#[must_use]
pub fn around_hit(text: &str, query: &Query) -> String {
    around_hit_in(Excerpt { text, cut_before: false, cut_after: false }, query)
}

/// The part of an excerpt around its best hit of `query`, white space collapsed to single spaces.
///
/// The best hit is the first one with the most distinct query terms around it (TM-140); without any
/// hit the excerpt's beginning is shown. An excerpt that reaches [`MAX_SNIPPET_CHARS`] beyond the hit
/// on both sides gives what the complete detail would give.
#[must_use]
pub fn around_hit_in(excerpt: Excerpt<'_>, query: &Query) -> String {
    let collapsed = excerpt.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let bytes: Vec<usize> = collapsed.char_indices().map(|(at, _)| at).collect();
    let (start, end) = if bytes.len() <= MAX_SNIPPET_CHARS {
        (0, bytes.len())
    } else {
        let center = best_center(&hits(&collapsed, &bytes, query));
        let start = center.saturating_sub(MAX_SNIPPET_CHARS / 2).min(bytes.len() - MAX_SNIPPET_CHARS);
        (start, start + MAX_SNIPPET_CHARS)
    };
    let before = start > 0 || excerpt.cut_before;
    let after = end < bytes.len() || excerpt.cut_after;
    let first = (start + usize::from(before)).min(end);
    let last = end.saturating_sub(usize::from(after)).max(first);
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(collapsed.len());
    let mut snippet = String::with_capacity(byte(last) - byte(first) + 2 * ELLIPSIS.len_utf8());
    snippet.extend(before.then_some(ELLIPSIS));
    snippet.push_str(&collapsed[byte(first)..byte(last)]);
    snippet.extend(after.then_some(ELLIPSIS));
    snippet
}

struct Hit {
    /// Which query term.
    term: usize,
    /// The middle of the hit, in characters.
    center: usize,
}

fn hits(text: &str, bytes: &[usize], query: &Query) -> Vec<Hit> {
    let asked: HashMap<&str, usize> = query.terms().iter().map(String::as_str).zip(0..).collect();
    let char_at = |byte: usize| bytes.partition_point(|&at| at < byte);
    analyzer::terms(text)
        .into_iter()
        .filter_map(|term| {
            let index = *asked.get(term.text.as_str())?;
            Some(Hit { term: index, center: usize::midpoint(char_at(term.start), char_at(term.end)) })
        })
        .collect()
}

/// The center of the first hit with the most distinct terms within half a snippet; 0 without hits.
fn best_center(hits: &[Hit]) -> usize {
    let reach = MAX_SNIPPET_CHARS / 2 - 1;
    let mut near: HashMap<usize, usize> = HashMap::new();
    let (mut from, mut to) = (0, 0);
    let mut best = (0, 0);
    for hit in hits {
        while let Some(next) = hits.get(to).filter(|next| next.center <= hit.center + reach) {
            *near.entry(next.term).or_default() += 1;
            to += 1;
        }
        while let Some(old) = hits.get(from).filter(|old| old.center + reach < hit.center) {
            if let Some(count) = near.get_mut(&old.term) {
                *count -= 1;
                if *count == 0 {
                    near.remove(&old.term);
                }
            }
            from += 1;
        }
        if near.len() > best.0 {
            best = (near.len(), hit.center);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOREM: &str = "lorem ipsum dolor sit amet ";

    fn snippet(text: &str, query: &str) -> String {
        around_hit(text, &Query::parse(query).unwrap())
    }

    // TM-143
    #[test]
    fn white_space_is_collapsed() {
        assert_eq!(
            snippet("First line.\n\n  kestrel   here\tnow.", "kestrel"),
            "First line. kestrel here now."
        );
    }

    // TM-143
    #[test]
    fn a_long_detail_is_cut_to_480_characters_around_the_hit() {
        let (l8, l40) = (LOREM.repeat(8), LOREM.repeat(40));
        assert_eq!(
            snippet(&format!("{l40}osprey dives {l40}"), "osprey"),
            format!("…psum dolor sit amet {l8}osprey dives {l8}lorem ipsum d…")
        );
    }

    // TM-143
    #[test]
    fn a_hit_at_either_end_fills_the_window_from_that_end() {
        let (l17, l40) = (LOREM.repeat(17), LOREM.repeat(40));
        assert_eq!(snippet(&format!("falcon starts {l40}"), "falcon"), format!("falcon starts {l17}lorem …"));
        assert_eq!(
            snippet(&format!("{l40}ends with merlin"), "merlin"),
            format!("…met {l17}ends with merlin")
        );
    }

    // TM-131
    #[test]
    fn an_excerpt_that_reaches_far_enough_gives_the_snippet_of_the_whole_detail() {
        let l40 = LOREM.repeat(40);
        let detail = format!("{l40}osprey dives {l40}");
        let query = Query::parse("osprey").unwrap();
        let text = &detail[540..540 + 1_100];
        let excerpt = Excerpt { text, cut_before: true, cut_after: true };
        assert_eq!(around_hit_in(excerpt, &query), around_hit(&detail, &query));
        let short = Excerpt { text: "the osprey dives", cut_before: true, cut_after: true };
        assert_eq!(around_hit_in(short, &query), "…he osprey dive…");
    }

    // TM-131, TM-140
    #[test]
    fn the_window_lies_where_most_distinct_terms_are() {
        let l40 = LOREM.repeat(40);
        let text = format!("osprey osprey {l40}the osprey dives {l40}dives");
        assert!(snippet(&text, "osprey dives").contains("the osprey dives"));
        assert!(snippet(&text, "absent").starts_with("osprey osprey"));
    }

    // TM-143
    #[test]
    fn a_hit_in_text_without_spaces_is_shown() {
        let text = format!("{}数据库备份{}", "缓存过期策略。".repeat(200), "一二三四五".repeat(200));
        let snippet = snippet(&text, "备份");
        assert!(snippet.contains("数据库备份"));
        assert_eq!(snippet.chars().count(), MAX_SNIPPET_CHARS);
    }

    proptest! {
        // TM-143
        #[test]
        fn a_snippet_is_bounded_and_shows_a_hit(before in "([a-e]{1,9}[ \n。数🙂]{1,3}){0,120}", after in "([a-e]{1,9}[ \n。数🙂]{1,3}){0,120}") {
            let text = format!("{before} osprey {after}");
            let snippet = snippet(&text, "osprey");
            prop_assert!(snippet.chars().count() <= MAX_SNIPPET_CHARS);
            prop_assert!(snippet.contains("osprey"));
            prop_assert!(!snippet.contains("  ") && !snippet.contains('\n'));
        }

        // TM-143
        #[test]
        fn any_text_gives_a_bounded_snippet(text in any::<String>(), times in 1..40_usize) {
            prop_assert!(snippet(&text.repeat(times), "a b 数").chars().count() <= MAX_SNIPPET_CHARS);
        }
    }
}
