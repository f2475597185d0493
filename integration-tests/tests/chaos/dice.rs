//! Random numbers that a seed repeats.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    time::Duration,
};

/// SplitMix64 (Steele, Lea and Flood 2014).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that nobody has chosen; short, because people copy it.
    pub fn seed() -> u64 {
        RandomState::new().build_hasher().finish() % 1_000_000_000
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times` throws.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A moment between these shares of `whole`, in percent.
    pub fn moment(&mut self, whole: Duration, from: u64, to: u64) -> Duration {
        whole.mul_f64((from as f64 + (to - from) as f64 * self.below(1000) as f64 / 1000.0) / 100.0)
    }

    /// The numbers below `count` in an order of its own.
    pub fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            numbers.swap(last, self.below(last as u64 + 1) as usize);
        }
        numbers
    }
}
