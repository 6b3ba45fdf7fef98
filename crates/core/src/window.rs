//! Chooses which Journal positions one run processes: the longest contiguous prefix behind the
//! Cursor that satisfies every limit (TM-025).
//!
//! Two kinds of first Source are isolated as a Window of their own instead: one that alone exceeds
//! a budget, and one that breaks the complexity limits. Measuring a Source is left to `evidence`;
//! reading Sources and what happens to an isolated one are left to the worker.

use crate::ids::{Position, Window};

/// The most Sources a Window may hold, whatever the configuration says (TM-027).
pub const MAX_WINDOW_SOURCES: u32 = 100;

/// The most characters (Unicode scalar values) the canonical evidence of a Window may total (TM-029).
pub const MAX_WINDOW_CHARS: u64 = 4_194_304;

/// The limits of one Window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPolicy {
    /// The most Sources; [`select`] brings it into `1..=`[`MAX_WINDOW_SOURCES`].
    pub source_limit: u32,
    /// The most estimated tokens.
    pub token_limit: u64,
    /// The most characters (Unicode scalar values) of canonical evidence.
    pub char_limit: u64,
}

impl WindowPolicy {
    /// The policy for a generation model: four fifths of its context window, a fixed share (TM-028,
    /// TM-034), and the fixed character limit.
    #[must_use]
    pub const fn new(source_limit: u32, context_window_tokens: u64) -> Self {
        Self {
            source_limit,
            token_limit: context_window_tokens - context_window_tokens.div_ceil(5),
            char_limit: MAX_WINDOW_CHARS,
        }
    }

    fn holds(&self, size: Size) -> bool {
        size.tokens <= self.token_limit && size.chars <= self.char_limit
    }
}

/// How much of a Window's budgets evidence takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Estimated tokens.
    pub tokens: u64,
    /// Characters (Unicode scalar values) of the canonical form.
    pub chars: u64,
}

impl Size {
    /// Both figures added up; saturates, so that a huge sum stays over every limit.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            chars: self.chars.saturating_add(other.chars),
        }
    }
}

/// What the selector knows of one Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateSize {
    /// Eligible, within the complexity limits.
    Fits(Size),
    /// Marked `lineage_only`: takes a place and a position, no budget (TM-036, B-10).
    LineageOnly,
    /// Eligible, but beyond the complexity limits; never part of a longer Window (TM-035).
    TooComplex,
}

/// One Source of the Journal behind the Cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its place in the Journal.
    pub position: Position,
    /// What it takes.
    pub size: CandidateSize,
}

/// What kind of Window was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionKind {
    /// Every limit holds.
    Ordinary,
    /// The first Source alone exceeds the token or character budget (TM-031).
    Oversized,
    /// The first Source alone breaks the complexity limits; to be recorded, not processed (TM-040).
    TooComplex,
}

/// A chosen Window, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The positions; exactly one unless the kind is ordinary.
    pub window: Window,
    /// Whether the Window holds the limits, and which it breaks if not.
    pub kind: SelectionKind,
}

/// Returns the next Window behind `after`, or `None` when nothing up to `wave_target` is offered.
///
/// `candidates` are the Journal from `after + 1` on; the first gap ends them. The result depends on
/// the arguments alone, so a retry from the same Cursor with the same policy starts where the
/// failed run started.
#[must_use]
pub fn select(
    after: Position,
    wave_target: Position,
    candidates: &[Candidate],
    policy: &WindowPolicy,
) -> Option<Selection> {
    let places = policy.source_limit.clamp(1, MAX_WINDOW_SOURCES) as usize;
    let mut through = after;
    let mut total = Size::default();
    for candidate in candidates.iter().take(places) {
        if candidate.position != through.next() || candidate.position > wave_target {
            break;
        }
        let isolated = match candidate.size {
            CandidateSize::LineageOnly => None,
            CandidateSize::TooComplex => Some(SelectionKind::TooComplex),
            CandidateSize::Fits(size) => {
                total = total.plus(size);
                (!policy.holds(total)).then_some(SelectionKind::Oversized)
            }
        };
        match isolated {
            None => through = candidate.position,
            Some(kind) if through == after => {
                return Some(Selection { window: Window { after, through: candidate.position }, kind });
            }
            Some(_) => break,
        }
    }
    (through > after)
        .then_some(Selection { window: Window { after, through }, kind: SelectionKind::Ordinary })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAR: Position = Position::new(1_000_000);

    fn fits(tokens: u64, chars: u64) -> CandidateSize {
        CandidateSize::Fits(Size { tokens, chars })
    }

    fn journal(after: i64, sizes: &[CandidateSize]) -> Vec<Candidate> {
        (after + 1..)
            .zip(sizes)
            .map(|(position, size)| Candidate { position: Position::new(position), size: *size })
            .collect()
    }

    fn policy(source_limit: u32, token_limit: u64, char_limit: u64) -> WindowPolicy {
        WindowPolicy { source_limit, token_limit, char_limit }
    }

    /// The chosen end and kind behind Cursor 0 without a near wave target.
    fn chosen(sizes: &[CandidateSize], policy: WindowPolicy) -> Option<(i64, SelectionKind)> {
        let selection = select(Position::new(0), FAR, &journal(0, sizes), &policy)?;
        assert_eq!(selection.window.after, Position::new(0));
        Some((selection.window.through.get(), selection.kind))
    }

    #[test]
    fn the_default_token_limit_is_four_fifths_of_the_context_window() {
        // TM-028, TM-029, TM-034
        let policy = WindowPolicy::new(10, 125_000);
        assert_eq!((policy.token_limit, policy.char_limit), (100_000, 4_194_304));
        assert_eq!(WindowPolicy::new(10, 7).token_limit, 5);
        assert_eq!(WindowPolicy::new(10, u64::MAX).token_limit, u64::MAX / 5 * 4);
    }

    #[test]
    fn a_window_holds_at_most_the_configured_number_of_sources() {
        // TM-026
        assert_eq!(
            chosen(&[fits(1, 1); 30], WindowPolicy::new(10, 125_000)),
            Some((10, SelectionKind::Ordinary))
        );
    }

    #[test]
    fn a_window_holds_at_most_a_hundred_sources_whatever_the_configuration_says() {
        // TM-027, B-2
        assert_eq!(
            chosen(&[fits(1, 1); 300], policy(5_000, 1_000, 1_000)),
            Some((100, SelectionKind::Ordinary))
        );
    }

    #[test]
    fn a_source_that_would_exceed_a_budget_is_left_for_the_next_window() {
        // TM-030, TM-032
        let tokens = [fits(60, 1), fits(40, 1), fits(1, 1)];
        assert_eq!(chosen(&tokens, policy(10, 100, 1_000)), Some((2, SelectionKind::Ordinary)));
        let chars = [fits(1, 60), fits(1, 41)];
        assert_eq!(chosen(&chars, policy(10, 1_000, 100)), Some((1, SelectionKind::Ordinary)));
        let next = select(Position::new(2), FAR, &journal(2, &tokens[2..]), &policy(10, 100, 1_000));
        assert_eq!(next.map(|found| found.window.through.get()), Some(3));
    }

    #[test]
    fn a_first_source_over_a_budget_becomes_a_window_of_its_own() {
        // TM-031
        let sizes = [fits(101, 1), fits(1, 1)];
        assert_eq!(chosen(&sizes, policy(10, 100, 1_000)), Some((1, SelectionKind::Oversized)));
        assert_eq!(chosen(&[fits(1, 1_001)], policy(10, 100, 1_000)), Some((1, SelectionKind::Oversized)));
        assert_eq!(chosen(&[fits(100, 1_000)], policy(10, 100, 1_000)), Some((1, SelectionKind::Ordinary)));
    }

    #[test]
    fn a_later_source_over_a_budget_waits_for_its_own_window() {
        // TM-030, TM-031
        let sizes = [CandidateSize::LineageOnly, fits(101, 1)];
        assert_eq!(chosen(&sizes, policy(10, 100, 1_000)), Some((1, SelectionKind::Ordinary)));
        assert_eq!(chosen(&sizes[1..], policy(10, 100, 1_000)), Some((1, SelectionKind::Oversized)));
    }

    #[test]
    fn an_earliest_source_that_is_too_complex_is_isolated_and_a_later_one_ends_the_prefix() {
        // TM-035, TM-040
        let first = [CandidateSize::TooComplex, fits(1, 1)];
        assert_eq!(chosen(&first, policy(10, 100, 1_000)), Some((1, SelectionKind::TooComplex)));
        let later = [fits(1, 1), CandidateSize::LineageOnly, CandidateSize::TooComplex, fits(1, 1)];
        assert_eq!(chosen(&later, policy(10, 100, 1_000)), Some((2, SelectionKind::Ordinary)));
    }

    #[test]
    fn lineage_only_sources_take_places_but_no_budget() {
        // TM-036, TM-037, B-10
        let sizes = [CandidateSize::LineageOnly; 12];
        assert_eq!(chosen(&sizes, policy(10, 1, 1)), Some((10, SelectionKind::Ordinary)));
        let mixed = [CandidateSize::LineageOnly, fits(1, 1), CandidateSize::LineageOnly, fits(1, 1)];
        assert_eq!(chosen(&mixed, policy(10, 1, 1)), Some((3, SelectionKind::Ordinary)));
    }

    #[test]
    fn a_window_ends_at_the_wave_target_and_at_a_gap() {
        // TM-022
        let wide = policy(10, 100, 100);
        let candidates = journal(4, &[fits(1, 1); 5]);
        let at = |target| select(Position::new(4), Position::new(target), &candidates, &wide);
        assert_eq!(at(6).map(|found| found.window.through.get()), Some(6));
        assert_eq!(at(4), None);
        assert_eq!(select(Position::new(4), FAR, &[], &wide), None);
        assert_eq!(select(Position::new(3), FAR, &candidates, &wide), None);
        let gap = [candidates[0], candidates[2]];
        let found = select(Position::new(4), FAR, &gap, &wide);
        assert_eq!(found.map(|found| found.window.through.get()), Some(5));
    }

    fn any_size() -> impl Strategy<Value = CandidateSize> {
        prop_oneof![
            8 => (0_u64..60, 0_u64..60).prop_map(|(tokens, chars)| fits(tokens, chars)),
            1 => Just(fits(u64::MAX, u64::MAX)),
            2 => Just(CandidateSize::LineageOnly),
            1 => Just(CandidateSize::TooComplex),
        ]
    }

    /// Whether the first `count` sizes form an ordinary Window under `policy`.
    fn is_ordinary(sizes: &[CandidateSize], count: usize, policy: &WindowPolicy) -> bool {
        let mut total = Size::default();
        for size in &sizes[..count] {
            match size {
                CandidateSize::Fits(size) => total = total.plus(*size),
                CandidateSize::LineageOnly => {}
                CandidateSize::TooComplex => return false,
            }
        }
        let places = policy.source_limit.clamp(1, 100) as usize;
        count <= places && total.tokens <= policy.token_limit && total.chars <= policy.char_limit
    }

    proptest! {
        // TM-025, TM-030, TM-031, TM-032, TM-035
        #[test]
        fn a_window_is_the_longest_prefix_that_holds_every_limit(
            after in 0_i64..50,
            ahead in 0_i64..160,
            sizes in prop::collection::vec(any_size(), 0..150),
            limits in (0_u32..130, 0_u64..400, 0_u64..400),
        ) {
            let policy = policy(limits.0, limits.1, limits.2);
            let candidates = journal(after, &sizes);
            let (after, target) = (Position::new(after), Position::new(after + ahead));
            let found = select(after, target, &candidates, &policy);
            prop_assert_eq!(found, select(after, target, &candidates, &policy), "deterministic");

            let within = sizes.len().min(usize::try_from(ahead).unwrap());
            // Ordinary prefixes are closed under shortening, so the longest one decides.
            let longest = (0..=within).rev().find(|count| is_ordinary(&sizes, *count, &policy)).unwrap();
            let expected = if longest > 0 {
                Some((longest, SelectionKind::Ordinary))
            } else if within == 0 {
                None
            } else if sizes[0] == CandidateSize::TooComplex {
                Some((1, SelectionKind::TooComplex))
            } else {
                Some((1, SelectionKind::Oversized))
            };
            let actual = found.map(|found| {
                assert_eq!(found.window.after, after);
                (usize::try_from(found.window.through.get() - after.get()).unwrap(), found.kind)
            });
            prop_assert_eq!(actual, expected);
        }

        // TM-025
        #[test]
        fn windows_one_after_another_cover_the_journal_once(
            sizes in prop::collection::vec(any_size(), 0..60),
            source_limit in 1_u32..12,
        ) {
            let policy = policy(source_limit, 100, 100);
            let candidates = journal(0, &sizes);
            let mut after = Position::new(0);
            while let Some(found) = select(after, FAR, &candidates[after.get() as usize..], &policy) {
                prop_assert_eq!(found.window.after, after);
                prop_assert!(found.window.through > after);
                after = found.window.through;
            }
            prop_assert_eq!(after.get() as usize, sizes.len());
        }
    }
}
