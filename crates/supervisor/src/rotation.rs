//! Which page of Pending rows to read next, so that every key is seen again and again while no
//! single moment reads them all.
//!
//! Pages go around all rows in key order. A tick pays for a few pages; a wake pays for a whole
//! round, since nobody says which key was flushed. Both draw on one allowance of rows per tick, so
//! that flushes cannot turn a large table of unready rows into a busy loop. With automatic waves
//! half of the allowance is kept for the pages that those read.

use powercontext_core::work::WorkKey;

/// Pages that every tick reads at most when nothing else asks for rows.
const PAGES_PER_TICK: usize = 4;
/// Pages' worth of rows that may be read between two ticks, by rounds and automatic waves together.
pub const ALLOWANCE_PAGES: usize = 64;

/// One read to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Read rows behind this key; from the start when absent.
    pub after: Option<WorkKey>,
    /// Read at most this many rows.
    pub limit: usize,
}

/// What one round over all rows met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Keys with an unanswered flush.
    pub pending: u64,
    /// Those of them whose frontier is terminal.
    pub terminal: u64,
    /// Sources not yet covered, over all those keys.
    pub backlog: u64,
}

/// Where the rounds stand.
#[derive(Debug)]
pub struct Rotation {
    page_size: usize,
    after: Option<WorkKey>,
    owed_wraps: u8,
    owed_pages: usize,
    allowance: usize,
    allowance_per_tick: usize,
    current: Tally,
    last: Tally,
}

impl Rotation {
    /// Starts at the first row and owes one whole round; may read `allowance` rows per tick.
    #[must_use]
    pub fn new(page_size: usize, allowance: usize) -> Self {
        Self {
            page_size,
            after: None,
            owed_wraps: 1,
            owed_pages: 0,
            allowance,
            allowance_per_tick: allowance,
            current: Tally::default(),
            last: Tally::default(),
        }
    }

    /// A period has passed.
    pub fn tick(&mut self) {
        self.owed_pages = PAGES_PER_TICK;
        self.allowance = self.allowance_per_tick;
    }

    /// Any row may have changed: every row must be seen once more.
    pub fn wake(&mut self) {
        self.owed_wraps = if self.after.is_none() { 1 } else { 2 };
    }

    /// The next read, if one is due.
    #[must_use]
    pub fn wanted(&self) -> Option<PageRequest> {
        let owed = self.owed_wraps > 0 || self.owed_pages > 0;
        (owed && self.allowance > 0).then(|| PageRequest { after: self.after.clone(), limit: self.page_size })
    }

    /// Records a page that was read: its size, its last key and what it held.
    pub fn advance(&mut self, rows: usize, last: Option<WorkKey>, seen: Tally) {
        self.allowance = self.allowance.saturating_sub(rows.saturating_add(1));
        self.owed_pages = self.owed_pages.saturating_sub(1);
        self.current.pending = self.current.pending.saturating_add(seen.pending);
        self.current.terminal = self.current.terminal.saturating_add(seen.terminal);
        self.current.backlog = self.current.backlog.saturating_add(seen.backlog);
        if rows < self.page_size {
            self.after = None;
            self.owed_wraps = self.owed_wraps.saturating_sub(1);
            self.owed_pages = 0;
            self.last = std::mem::take(&mut self.current);
        } else {
            self.after = last;
        }
    }

    /// What the last whole round met.
    #[must_use]
    pub fn last_round(&self) -> Tally {
        self.last
    }
}
