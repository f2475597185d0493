//! From a lease to rows: every block has an order of its own for every pass, drawn from the seed.

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use voxelflow_stage::TrainSettings;
use voxelflow_sync::{Lease, equal_ranges};

/// The orders of all blocks.
#[derive(Debug)]
pub(crate) struct Visits {
    rows: usize,
    shuffle: bool,
    seed: u64,
    /// The order that was asked for last: block, blocks, pass.
    last: Option<([u64; 3], Vec<usize>)>,
}

impl Visits {
    pub fn new(rows: usize, settings: &TrainSettings) -> Self {
        Self { rows, shuffle: settings.shuffle, seed: settings.seed, last: None }
    }

    /// The rows of a lease, in the order of their visits.
    pub fn of(&mut self, lease: &Lease) -> Vec<usize> {
        self.rows(lease.block, lease.of_blocks, lease.epoch, lease.visits.clone())
    }

    /// The rows that follow those of a lease in its block, `most` at most: probably the next lease.
    pub fn after(&mut self, lease: &Lease, most: usize) -> Vec<usize> {
        let length = lease.block_rows(self.rows).len();
        let start = lease.visits.end.min(length);
        self.rows(lease.block, lease.of_blocks, lease.epoch, start..length.min(start + most))
    }

    /// Step `step` of a warm-up: minibatches of the first of `of` blocks, passes counted down from the last number,
    /// which no epoch will reach.
    pub fn of_warm_up(&mut self, step: u64, of: usize, minibatch: usize) -> Vec<usize> {
        let length = equal_ranges(self.rows, of).first().map_or(0, Range::len);
        let steps = length.div_ceil(minibatch) as u64;
        let (Some(pass), Some(step)) = (step.checked_div(steps), step.checked_rem(steps)) else {
            return Vec::new();
        };
        let start = step as usize * minibatch;
        self.rows(0, of, u64::MAX - pass, start..length.min(start + minibatch))
    }

    fn rows(&mut self, block: usize, of_blocks: usize, pass: u64, visits: Range<usize>) -> Vec<usize> {
        let key = [block as u64, of_blocks as u64, pass];
        if self.last.as_ref().is_none_or(|(last, _)| *last != key) {
            let rows = equal_ranges(self.rows, of_blocks).get(block).cloned().unwrap_or_default();
            self.last = Some((key, self.order(rows, block as u64, pass)));
        }
        let order = self.last.as_ref().map_or(&[][..], |(_, order)| order);
        order.get(visits).unwrap_or_default().to_vec()
    }

    fn order(&self, rows: Range<usize>, block: u64, pass: u64) -> Vec<usize> {
        let mut order: Vec<usize> = rows.collect();
        if self.shuffle {
            let mut hasher = blake3::Hasher::new();
            for part in [self.seed, block, pass] {
                hasher.update(&part.to_le_bytes());
            }
            order.shuffle(&mut ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(epoch: u64, block: usize, visits: Range<usize>) -> Lease {
        Lease { epoch, block, of_blocks: 3, visits }
    }

    #[test]
    fn each_pass_has_an_order_of_its_own_that_is_the_same_everywhere() {
        let settings = TrainSettings { seed: 5, ..TrainSettings::default() };
        let (mut here, mut there) = (Visits::new(100, &settings), Visits::new(100, &settings));
        let whole = here.of(&lease(0, 1, 0..33));
        assert_eq!([there.of(&lease(0, 1, 0..9)), there.of(&lease(0, 1, 9..33))].concat(), whole);
        assert_ne!(here.of(&lease(1, 1, 0..33)), whole);
        assert_eq!(here.after(&lease(0, 1, 0..9), 4), whole[9..13]);
        assert_eq!(here.after(&lease(0, 1, 9..30), 4), whole[30..]);
        assert!(here.after(&lease(0, 1, 30..40), 4).is_empty());
        let mut sorted = whole;
        sorted.sort_unstable();
        assert_eq!(sorted, (34..67).collect::<Vec<_>>());
        assert!(here.of(&lease(0, 1, 30..40)).is_empty(), "a lease of another number of rows");
    }

    #[test]
    fn warm_up_goes_around_the_first_block() {
        let settings = TrainSettings { shuffle: false, ..TrainSettings::default() };
        let mut visits = Visits::new(10, &settings);
        let rows: Vec<_> = (0..4).map(|step| visits.of_warm_up(step, 2, 2)).collect();
        assert_eq!(rows, [vec![0, 1], vec![2, 3], vec![4], vec![0, 1]]);
        assert!(Visits::new(0, &settings).of_warm_up(3, 2, 2).is_empty());
    }
}
