//! Where a gang stands between two rounds, and which rows a rank may take next.
//!
//! ```text
//!   rows 0…N−1 ─cut into─► block 0 │ block 1 │ … │ block B−1        equal ranges, B = ranks at the start
//!                             │ visits 0…n−1: the block's rows in the order of the epoch (a seeded permutation)
//!                             ▼
//!   Lease { block, visits a..b } ─► one rank ─► its contribution ─► the round closes ─► Cursor of the block
//! ```
//! A lease belongs to one rank only. It counts as done when the round that it was contributed to has closed; until
//! then it returns to the others if its rank is lost. So every sample of an epoch counts once.

use crate::equal_ranges;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Sums over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Samples trained on.
    pub samples: u64,
    /// Loss summed over them.
    pub loss: f64,
}

impl Totals {
    /// Both sums.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { samples: self.samples + other.samples, loss: self.loss + other.loss }
    }
}

/// A rank's place among those that train now: its share of work that is split evenly, such as validation rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// From 0, by rank. The rank in place 0 leads: it warms up alone and writes checkpoints.
    pub index: usize,
    /// Ranks that train now.
    pub of: usize,
}

impl Place {
    /// True for the rank that warms up alone and writes checkpoints.
    pub fn leads(&self) -> bool {
        self.index == 0
    }

    /// This place's share of `n` things.
    pub fn share(&self, n: usize) -> Range<usize> {
        equal_ranges(n, self.of).get(self.index).cloned().unwrap_or(n..n)
    }
}

/// Rows that one rank may train on, and nobody else in this epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Epoch, from 0.
    pub epoch: u64,
    /// The block that the rows are of.
    pub block: usize,
    /// Blocks that the rows are cut into.
    pub of_blocks: usize,
    /// Positions in the block's order of this epoch.
    pub visits: Range<usize>,
}

impl Lease {
    /// The rows of the whole block, out of `rows`.
    pub fn block_rows(&self, rows: usize) -> Range<usize> {
        equal_ranges(rows, self.of_blocks).get(self.block).cloned().unwrap_or(rows..rows)
    }

    /// Number of visits.
    pub fn len(&self) -> usize {
        self.visits.len()
    }

    /// True without any visit.
    pub fn is_empty(&self) -> bool {
        self.visits.is_empty()
    }
}

/// What of one block has been visited in closed rounds of the current epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Range<usize>>", into = "Vec<Range<usize>>")]
pub struct Cursor {
    /// Ascending, with gaps between them.
    done: Vec<Range<usize>>,
}

impl From<Cursor> for Vec<Range<usize>> {
    fn from(cursor: Cursor) -> Self {
        cursor.done
    }
}

impl From<Vec<Range<usize>>> for Cursor {
    fn from(ranges: Vec<Range<usize>>) -> Self {
        let mut cursor = Self::default();
        ranges.into_iter().for_each(|range| cursor.add(range));
        cursor
    }
}

impl Cursor {
    /// Visits that are done, ascending, with gaps between the ranges.
    pub fn done(&self) -> &[Range<usize>] {
        &self.done
    }

    /// Adds `visits` to what is done.
    pub fn add(&mut self, visits: Range<usize>) {
        if visits.is_empty() {
            return;
        }
        self.done.push(visits);
        self.done.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(self.done.len());
        for range in self.done.drain(..) {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        self.done = merged;
    }

    /// Visits of a block of `length` that are not done, ascending.
    pub fn left(&self, length: usize) -> Vec<Range<usize>> {
        let mut left = Vec::new();
        let mut next = 0;
        for range in &self.done {
            if range.start.min(length) > next {
                left.push(next..range.start.min(length));
            }
            next = next.max(range.end);
        }
        if next < length {
            left.push(next..length);
        }
        left
    }
}

/// Where a gang stands between two rounds: equal on all ranks, and with the parameters and the optimizer's memory
/// enough to go on from, with any number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Passes over the rows that are done.
    pub epoch: u64,
    /// Rounds that have closed, warm-up included (async and ssp: steps of the rank that did most).
    pub round: u64,
    /// Of this epoch so far, all ranks.
    pub totals: Totals,
    /// Of the epoch before.
    pub previous: Totals,
    /// By block, what was visited in this epoch; empty at an epoch's start, when the rows may be cut anew.
    pub cursors: Vec<Cursor>,
}

impl Position {
    /// True when no row of this epoch has been trained on.
    pub fn at_epoch_start(&self) -> bool {
        self.cursors.iter().all(|cursor| cursor.done.is_empty())
    }

    /// What is left of this epoch, block by block; at an epoch's start `rows` are cut into `blocks`.
    pub fn left(&self, rows: usize, blocks: usize) -> Vec<Lease> {
        let fresh = Cursor::default();
        let of_blocks = if self.at_epoch_start() { blocks.max(1) } else { self.cursors.len() };
        let ranges = equal_ranges(rows, of_blocks).into_iter().enumerate();
        let lease = |block, visits| Lease { epoch: self.epoch, block, of_blocks, visits };
        ranges
            .flat_map(|(block, range)| {
                let left = self.cursors.get(block).unwrap_or(&fresh).left(range.len());
                left.into_iter().map(move |visits| lease(block, visits))
            })
            .collect()
    }

    /// Counts `visits` of a lease as done.
    pub fn close(&mut self, lease: &Lease) {
        if self.at_epoch_start() {
            self.cursors = vec![Cursor::default(); lease.of_blocks];
        }
        if let Some(cursor) = self.cursors.get_mut(lease.block) {
            cursor.add(lease.visits.clone());
        }
    }

    /// The next epoch begins.
    pub fn next_epoch(&mut self) {
        self.epoch += 1;
        self.previous = std::mem::take(&mut self.totals);
        self.cursors.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fresh_epoch_is_cut_into_equal_blocks() {
        let left = Position::default().left(7, 3);
        let visits: Vec<_> = left.iter().map(|l| (l.block, l.visits.clone(), l.block_rows(7))).collect();
        assert_eq!(visits, [(0, 0..3, 0..3), (1, 0..2, 3..5), (2, 0..2, 5..7)]);
        assert!(Position::default().left(0, 3).is_empty());
    }

    #[test]
    fn blocks_stay_for_the_rest_of_an_epoch() {
        let mut position = Position::default();
        let lease = Lease { visits: 0..2, ..position.left(10, 2)[1].clone() };
        position.close(&lease);
        let left: Vec<_> =
            position.left(10, 4).into_iter().map(|l| (l.block, l.of_blocks, l.visits)).collect();
        assert_eq!(left, [(0, 2, 0..5), (1, 2, 2..5)]);
        position.totals.samples = 2;
        position.next_epoch();
        assert_eq!((position.epoch, position.previous.samples, position.totals.samples), (1, 2, 0));
        assert_eq!(position.left(10, 4).len(), 4);
    }

    proptest! {
        #[test]
        fn done_and_left_tile_the_block(
            ranges in proptest::collection::vec((0_usize..50, 0_usize..20), 0..12), length in 0_usize..60,
        ) {
            let mut cursor = Cursor::default();
            let mut naive = [false; 80];
            for (start, n) in ranges {
                cursor.add(start..start + n);
                naive[start..start + n].fill(true);
            }
            let mut left = vec![true; length];
            cursor.left(length).into_iter().for_each(|range| left[range].fill(false));
            prop_assert_eq!(&left[..], &naive[..length]);
            prop_assert!(cursor.done().windows(2).all(|w| w[0].end < w[1].start));
        }

        #[test]
        fn a_foreign_cursor_never_panics(text in "\\[(\\{\"start\":[0-9]{1,3},\"end\":[0-9]{1,3}\\},?){0,3}\\]") {
            if let Ok(cursor) = serde_json::from_str::<Cursor>(&text) {
                let left: usize = cursor.left(100).iter().map(ExactSizeIterator::len).sum();
                prop_assert!(left <= 100);
            }
        }
    }
}
