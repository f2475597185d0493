//! Who works on which rows: every visit of every block exactly once in an epoch, however ranks come and go.
//!
//! ```text
//!   block 0   ├─ done ─┼─ taken by rank 0 ─┼──── held by rank 0 ────┤
//!   block 1   ├─ done ──────┼─ free (its rank has died) ─────────────┤   shared among those that are done
//! ```
//! A rank holds a stretch (its own block, if that is free) and takes its minibatches from it. What was taken
//! counts when its round is committed; until then it can be reverted.

use super::ranges::Ranges;
use crate::{Error, Lease, Position, Rank, Result, Totals, equal_ranges};
use std::{collections::BTreeMap, ops::Range};

/// The ledger of an epoch's visits, and the position that the committed ones amount to.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseBook {
    rows: usize,
    /// Blocks of a fresh epoch.
    of_blocks: usize,
    position: Position,
    /// By block, what nobody has taken, holds or has done.
    free: Vec<Ranges>,
    /// By rank.
    held: BTreeMap<usize, Held>,
}

/// What a rank has.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    /// The stretch that its next minibatches come from.
    stretch: Option<(usize, Range<usize>)>,
    /// Taken and not committed, by block.
    taken: BTreeMap<usize, Ranges>,
}

impl LeaseBook {
    /// Goes on over `rows` rows from `position`. An epoch that begins is cut into `of_blocks` blocks.
    ///
    /// # Errors
    /// [`Error::Message`] for a position that cannot be of so many rows.
    pub fn new(rows: usize, of_blocks: usize, position: Position) -> Result<Self> {
        let blocks = if position.at_epoch_start() { of_blocks.max(1) } else { position.cursors.len() };
        for (block, range) in equal_ranges(rows, blocks).into_iter().enumerate() {
            let end = position.cursors.get(block).and_then(|c| c.done().last()).map_or(0, |last| last.end);
            if end > range.len() {
                let reason = format!(
                    "block {block} of {blocks} has {} rows, the position tells of {end}; the rows are not those of its run",
                    range.len()
                );
                return Err(Error::Message { rank: Rank(block), what: "the position", reason });
            }
        }
        let mut book = Self { rows, of_blocks, position, free: Vec::new(), held: BTreeMap::new() };
        book.revert();
        Ok(book)
    }

    /// What is committed.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Rows of the whole training set.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Every visit of the epoch is committed.
    pub fn is_exhausted(&self) -> bool {
        self.position.left(self.rows, self.of_blocks).is_empty()
    }

    /// No visit of the epoch has been taken, by anybody.
    pub fn is_untouched(&self) -> bool {
        self.position.at_epoch_start() && self.held.values().all(|held| held.taken.is_empty())
    }

    /// The next visits for `rank`, at most `at_most`, where `live` ranks train. `None`: nothing is left that
    /// somebody else does not hold.
    pub fn take(&mut self, rank: Rank, at_most: usize, live: usize) -> Option<Lease> {
        if at_most == 0 {
            return None;
        }
        let held = self.held.entry(rank.0).or_default();
        if held.stretch.is_none() {
            held.stretch = next_stretch(&mut self.free, rank, at_most, live);
        }
        let (block, stretch) = held.stretch.take()?;
        let visits = stretch.start..stretch.end.min(stretch.start.saturating_add(at_most));
        if visits.end < stretch.end {
            held.stretch = Some((block, visits.end..stretch.end));
        }
        held.taken.entry(block).or_default().insert(visits.clone());
        Some(Lease { epoch: self.position.epoch, block, of_blocks: self.free.len(), visits })
    }

    /// The samples of these leases count.
    ///
    /// # Errors
    /// [`Error::Message`] if `rank` has not taken them, or their epoch is over; the book is as before.
    pub fn commit(&mut self, rank: Rank, leases: &[Lease]) -> Result<()> {
        let mut taken = self.held.get(&rank.0).map(|held| held.taken.clone()).unwrap_or_default();
        for lease in leases.iter().filter(|lease| !lease.is_empty()) {
            let here = lease.epoch == self.position.epoch && lease.of_blocks == self.free.len();
            match taken.get_mut(&lease.block) {
                Some(ranges) if here && ranges.contains(&lease.visits) => ranges.remove(&lease.visits),
                _ => {
                    let reason = format!(
                        "visits {:?} of block {} of {} in epoch {} are not leased to it",
                        lease.visits, lease.block, lease.of_blocks, lease.epoch
                    );
                    return Err(Error::Message { rank, what: "a round's samples", reason });
                }
            }
        }
        leases.iter().filter(|lease| !lease.is_empty()).for_each(|lease| self.position.close(lease));
        taken.retain(|_, ranges| !ranges.is_empty());
        if let Some(held) = self.held.get_mut(&rank.0) {
            held.taken = taken;
        }
        Ok(())
    }

    /// Counts what a round brought, whose leases are committed; `round` is the number of updates after it.
    pub fn count(&mut self, totals: Totals, round: u64) {
        self.position.round = round;
        self.position.totals = self.position.totals.plus(totals);
    }

    /// Nobody holds or has taken anything: what is not committed is free again.
    pub fn revert(&mut self) {
        self.held.clear();
        let blocks =
            if self.position.at_epoch_start() { self.of_blocks } else { self.position.cursors.len() };
        self.free = vec![Ranges::default(); blocks.max(1)];
        for lease in self.position.left(self.rows, self.of_blocks) {
            if let Some(free) = self.free.get_mut(lease.block) {
                free.insert(lease.visits);
            }
        }
    }

    /// What `rank` holds or has taken is free again.
    pub fn give_back(&mut self, rank: Rank) {
        let Some(held) = self.held.remove(&rank.0) else { return };
        if let Some((block, range)) = held.stretch {
            self.free[block].insert(range);
        }
        for (block, ranges) in held.taken {
            ranges.iter().for_each(|range| self.free[block].insert(range));
        }
    }

    /// The epoch is over, unless none of it was taken; gives what it amounted to.
    pub fn end_epoch(&mut self) -> Totals {
        let totals = self.position.totals;
        if !self.is_untouched() {
            self.position.next_epoch();
        }
        self.revert();
        totals
    }
}

/// A free stretch: of the rank's own block all of it, of another block a share, so that those who are done do not
/// wait for one rank that took all.
fn next_stretch(
    free: &mut [Ranges],
    rank: Rank,
    at_least: usize,
    live: usize,
) -> Option<(usize, Range<usize>)> {
    let share = free.iter().map(Ranges::len).sum::<usize>().div_ceil(live.max(1)).max(at_least);
    let own = free.get(rank.0).is_some_and(|ranges| !ranges.is_empty());
    let block = if own { rank.0 } else { free.iter().position(|ranges| !ranges.is_empty())? };
    let mut stretch = free[block].first()?;
    if !own {
        stretch.end = stretch.end.min(stretch.start.saturating_add(share));
    }
    free[block].remove(&stretch);
    Some((block, stretch))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn book(rows: usize, of_blocks: usize) -> LeaseBook {
        LeaseBook::new(rows, of_blocks, Position::default()).unwrap()
    }

    #[test]
    fn each_rank_works_through_its_own_block() {
        let mut book = book(10, 3);
        let take = |book: &mut LeaseBook, rank| book.take(Rank(rank), 2, 3).map(|l| (l.block, l.visits));
        assert_eq!(take(&mut book, 1), Some((1, 0..2)));
        assert_eq!(take(&mut book, 0), Some((0, 0..2)));
        assert_eq!(take(&mut book, 2), Some((2, 0..2)));
        assert_eq!(take(&mut book, 2), Some((2, 2..3)));
        assert_eq!(take(&mut book, 2), None, "the others hold their blocks");
        assert_eq!(take(&mut book, 0), Some((0, 2..4)));
    }

    #[test]
    fn the_block_of_a_lost_rank_is_shared() {
        let mut book = book(30, 3);
        for rank in 0..3 {
            book.take(Rank(rank), 4, 3).unwrap();
        }
        book.give_back(Rank(2));
        let mut blocks = Vec::new();
        for _ in 0..10 {
            for rank in [0, 1] {
                blocks.extend(book.take(Rank(rank), 4, 2).map(|l| (rank, l.block, l.visits)));
            }
        }
        let shared: Vec<_> = blocks.into_iter().filter(|(_, block, _)| *block == 2).collect();
        assert_eq!(shared, [(0, 2, 0..4), (1, 2, 5..9), (0, 2, 4..5), (1, 2, 9..10)]);
    }

    #[test]
    fn what_was_not_taken_is_not_committed() {
        let mut book = book(10, 2);
        let lease = book.take(Rank(0), 3, 2).unwrap();
        let before = book.clone();
        let other = Lease { visits: 2..4, ..lease.clone() };
        for wrong in
            [vec![other], vec![lease.clone(), lease.clone()], vec![Lease { epoch: 1, ..lease.clone() }]]
        {
            assert!(matches!(book.commit(Rank(0), &wrong), Err(Error::Message { rank: Rank(0), .. })));
            assert_eq!(book, before);
        }
        assert!(book.commit(Rank(1), std::slice::from_ref(&lease)).is_err());
        book.commit(Rank(0), &[Lease { visits: 1..2, ..lease.clone() }]).unwrap();
        book.commit(Rank(0), &[Lease { visits: 0..1, ..lease.clone() }, Lease { visits: 2..3, ..lease }])
            .unwrap();
        assert_eq!(book.position().cursors[0].done(), std::slice::from_ref(&(0..3)));
    }

    #[test]
    fn a_position_of_other_rows_is_refused() {
        let mut book = book(10, 2);
        let lease = book.take(Rank(0), 5, 2).unwrap();
        book.commit(Rank(0), &[lease]).unwrap();
        let error = LeaseBook::new(8, 2, book.position().clone()).unwrap_err();
        assert!(error.to_string().contains("block 0 of 2 has 4 rows, the position tells of 5"), "{error}");
    }

    #[test]
    fn an_epoch_of_which_nothing_was_taken_goes_on() {
        let mut book = book(4, 2);
        book.count(Totals { samples: 3, loss: 1.5 }, 1);
        assert_eq!(book.end_epoch(), Totals { samples: 3, loss: 1.5 });
        assert_eq!((book.position().epoch, book.position().round), (0, 1));
        assert!(book.take(Rank(0), 1, 2).is_some());
        book.end_epoch();
        assert_eq!((book.position().epoch, book.position().previous.samples), (1, 3));
        assert_eq!(book.position().left(4, 2).len(), 2);
    }

    /// What may happen to a ledger.
    #[derive(Clone, Debug)]
    enum Deed {
        Take { rank: usize, at_most: usize },
        Commit { rank: usize, part: usize },
        Revert,
        GiveBack { rank: usize },
        Resume { ranks: usize },
    }

    fn deed() -> impl Strategy<Value = Deed> {
        let rank = 0_usize..7;
        prop_oneof![
            6 => (rank.clone(), 0_usize..6).prop_map(|(rank, at_most)| Deed::Take { rank, at_most }),
            4 => (rank.clone(), 0_usize..6).prop_map(|(rank, part)| Deed::Commit { rank, part }),
            1 => Just(Deed::Revert),
            1 => rank.clone().prop_map(|rank| Deed::GiveBack { rank }),
            1 => rank.prop_map(|ranks| Deed::Resume { ranks: ranks + 1 }),
        ]
    }

    /// A ledger beside a naive one that counts how often each row was trained on.
    struct Checked {
        book: LeaseBook,
        rows: usize,
        counts: Vec<u32>,
        taken: BTreeMap<usize, Vec<Lease>>,
    }

    impl Checked {
        fn count(&mut self, lease: &Lease) {
            let first = lease.block_rows(self.rows).start;
            lease.visits.clone().for_each(|visit| self.counts[first + visit] += 1);
        }

        fn take(&mut self, rank: usize, at_most: usize, live: usize) {
            let Some(lease) = self.book.take(Rank(rank), at_most, live) else { return };
            assert!(!lease.is_empty() && lease.len() <= at_most);
            let overlaps = |other: &Lease| {
                other.block == lease.block
                    && other.visits.start < lease.visits.end
                    && lease.visits.start < other.visits.end
            };
            assert!(!self.taken.values().flatten().any(overlaps), "{lease:?} is leased twice");
            self.taken.entry(rank).or_default().push(lease);
        }

        /// The first `part` visits of the oldest lease.
        fn commit(&mut self, rank: usize, part: usize) {
            let Some(leases) = self.taken.get_mut(&rank).filter(|leases| !leases.is_empty()) else { return };
            let lease = leases.remove(0);
            let cut = lease.visits.end.min(lease.visits.start + part);
            let done = Lease { visits: lease.visits.start..cut, ..lease.clone() };
            if cut < lease.visits.end {
                leases.insert(0, Lease { visits: cut..lease.visits.end, ..lease });
            }
            self.book.commit(Rank(rank), std::slice::from_ref(&done)).unwrap();
            self.count(&done);
        }

        fn apply(&mut self, deed: Deed) {
            match deed {
                Deed::Take { rank, at_most } => self.take(rank, at_most, 3),
                Deed::Commit { rank, part } => self.commit(rank, part),
                Deed::Revert => {
                    self.book.revert();
                    self.taken.clear();
                }
                Deed::GiveBack { rank } => {
                    self.book.give_back(Rank(rank));
                    self.taken.remove(&rank);
                }
                Deed::Resume { ranks } => {
                    self.book = LeaseBook::new(self.rows, ranks, self.book.position().clone()).unwrap();
                    self.taken.clear();
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_visit_of_an_epoch_counts_once(
            rows in 0_usize..40, blocks in 1_usize..7, ranks in 1_usize..6,
            epochs in prop::collection::vec(prop::collection::vec(deed(), 0..60), 1..4),
        ) {
            let mut checked =
                Checked { book: book(rows, blocks), rows, counts: vec![0; rows], taken: BTreeMap::new() };
            for (epoch, deeds) in epochs.into_iter().enumerate() {
                deeds.into_iter().for_each(|deed| checked.apply(deed));
                // Whoever is left finishes: those that hold something but do not come are taken for lost.
                for rank in 0..8 {
                    checked.apply(Deed::GiveBack { rank });
                }
                let mut rounds = 0;
                while !checked.book.is_exhausted() {
                    for rank in 0..ranks {
                        checked.take(rank, 3, ranks);
                    }
                    for rank in 0..ranks {
                        checked.commit(rank, 3);
                    }
                    rounds += 1;
                    prop_assert!(rounds <= rows, "the epoch does not end");
                }
                prop_assert_eq!(&checked.counts, &vec![epoch as u32 + 1; rows]);
                prop_assert!((0..8).all(|rank| checked.book.take(Rank(rank), 1, 2).is_none()));
                checked.book.end_epoch();
                prop_assert_eq!(checked.book.position().epoch, if rows == 0 { 0 } else { epoch as u64 + 1 });
            }
        }
    }
}
