//! Who trains on which rows in a gang whose ranks stay from the first round to the last: rank r has block r.
//!
//! Every rank keeps the same books, so nobody has to ask. A gang that takes up an epoch which another number of
//! ranks has begun shares what is left of it evenly.

use crate::{Lease, Position, Totals, equal_ranges};
use std::collections::VecDeque;

/// The books of one rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allotment {
    rows: usize,
    rank: usize,
    world: usize,
    position: Position,
    /// By rank, what is left of this epoch in closed rounds.
    left: Vec<VecDeque<Lease>>,
    /// Visits that this rank took and no closed round has counted yet.
    taken: usize,
}

impl Allotment {
    pub fn new(rank: usize, world: usize, rows: usize, position: Position) -> Self {
        let left = allot(&position, rows, world);
        Self { rows, rank, world, position, left, taken: 0 }
    }

    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The next rows of this rank, at most `at_most`.
    pub fn take(&mut self, at_most: usize) -> Option<Lease> {
        let mut skip = self.taken;
        for lease in self.left.get(self.rank)? {
            if skip >= lease.len() {
                skip -= lease.len();
                continue;
            }
            let start = lease.visits.start + skip;
            let visits = start..lease.visits.end.min(start.saturating_add(at_most));
            self.taken += visits.len();
            return Some(Lease { visits, ..lease.clone() });
        }
        None
    }

    /// A round has closed to which rank r brought `samples[r]`.
    pub fn close(&mut self, round: u64, samples: impl IntoIterator<Item = u64>, loss: f64) {
        let mut all = 0;
        for (rank, samples) in samples.into_iter().enumerate() {
            all += samples;
            self.close_rank(rank, usize::try_from(samples).unwrap_or(usize::MAX));
        }
        self.position.totals = self.position.totals.plus(Totals { samples: all, loss });
        self.position.round = round;
    }

    fn close_rank(&mut self, rank: usize, mut samples: usize) {
        if rank == self.rank {
            self.taken = self.taken.saturating_sub(samples);
        }
        let Some(left) = self.left.get_mut(rank) else { return };
        while samples > 0
            && let Some(mut lease) = left.pop_front()
        {
            let end = lease.visits.start + samples.min(lease.len());
            let rest = Lease { visits: end..lease.visits.end, ..lease.clone() };
            lease.visits.end = end;
            samples -= lease.len();
            self.position.close(&lease);
            if !rest.is_empty() {
                left.push_front(rest);
            }
        }
    }

    /// All ranks have come to the end of an epoch, at `round`, with `totals` that no closed round has told. A new
    /// epoch begins unless nobody has `begun` this one.
    pub fn synchronise(&mut self, round: u64, totals: Totals, begun: bool) -> Totals {
        self.position.totals = self.position.totals.plus(totals);
        self.position.round = round;
        let totals = self.position.totals;
        if begun || !self.position.at_epoch_start() {
            self.position.next_epoch();
            self.left = allot(&self.position, self.rows, self.world);
        }
        self.taken = 0;
        totals
    }
}

/// What is left of the epoch, by rank.
fn allot(position: &Position, rows: usize, world: usize) -> Vec<VecDeque<Lease>> {
    let left = position.left(rows, world);
    let mut shares = vec![VecDeque::new(); world];
    if left.iter().all(|lease| lease.of_blocks == world) {
        for lease in left {
            shares[lease.block].push_back(lease);
        }
        return shares;
    }
    let all = left.iter().map(Lease::len).sum();
    let ranges = equal_ranges(all, world);
    let mut first = 0;
    for lease in left {
        for (share, range) in shares.iter_mut().zip(&ranges) {
            let (from, to) = (range.start.max(first), range.end.min(first + lease.len()));
            if from < to {
                let start = lease.visits.start;
                share.push_back(Lease { visits: start + from - first..start + to - first, ..lease.clone() });
            }
        }
        first += lease.len();
    }
    shares
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Every visit once, whatever the ranks and the sizes of minibatches, also when another number of ranks takes up
    /// an epoch that was begun.
    fn visits_once(rows: usize, worlds: [usize; 2], minibatch: usize, rounds: u64) {
        let mut position = Position::default();
        let mut seen = BTreeSet::new();
        let mut round = 0;
        for (half, world) in worlds.into_iter().enumerate() {
            let mut ranks: Vec<_> =
                (0..world).map(|rank| Allotment::new(rank, world, rows, position.clone())).collect();
            loop {
                let taken: Vec<_> = ranks.iter_mut().map(|rank| rank.take(minibatch)).collect();
                if taken.iter().all(Option::is_none) || (half == 0 && round == rounds) {
                    break;
                }
                for lease in taken.iter().flatten() {
                    for visit in lease.visits.clone() {
                        assert!(seen.insert(lease.block_rows(rows).start + visit), "{lease:?}");
                    }
                }
                round += 1;
                let samples: Vec<u64> =
                    taken.iter().map(|t| t.as_ref().map_or(0, Lease::len) as u64).collect();
                ranks.iter_mut().for_each(|rank| rank.close(round, samples.clone(), 1.0));
            }
            position = ranks[0].position().clone();
            assert!(ranks.iter().all(|rank| *rank.position() == position));
        }
        assert_eq!(seen, (0..rows).collect());
        assert_eq!((position.totals.samples, position.round), (rows as u64, round));
    }

    proptest! {
        #[test]
        fn every_sample_of_an_epoch_counts_once(
            rows in 0_usize..60, first in 1_usize..6, second in 1_usize..6, minibatch in 1_usize..9, rounds in 0_u64..9,
        ) {
            visits_once(rows, [first, second], minibatch, rounds);
        }
    }

    #[test]
    fn an_epoch_that_nobody_began_goes_on() {
        let mut rank = Allotment::new(0, 1, 4, Position::default());
        let warm = Totals { samples: 3, loss: 1.0 };
        assert_eq!(rank.synchronise(3, warm, rank.taken > 0), warm);
        assert_eq!((rank.position().epoch, rank.position().round), (0, 3));
        assert_eq!(rank.take(9).unwrap().visits, 0..4);
        rank.close(4, [4], 2.0);
        assert_eq!(rank.synchronise(4, Totals::default(), false), Totals { samples: 7, loss: 3.0 });
        assert_eq!((rank.position().epoch, rank.position().previous.samples), (1, 7));
        assert_eq!(rank.take(3).unwrap(), Lease { epoch: 1, block: 0, of_blocks: 1, visits: 0..3 });
    }
}
