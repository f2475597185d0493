//! The suites that every [`Communicator`](crate::Communicator) and every
//! [`GradientSync`](crate::GradientSync) must pass, in process or over a network.
//!
//! Each case takes a factory, so that it starts from a fresh gang, and panics where a promise is broken.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

pub mod collectives;
pub mod gradient_sync;

use std::thread;

/// Runs `f` on a thread per rank and gives what came of it, by rank. A rank's end of the gang is dropped
/// when its `f` returns, as it is in a process that ends.
pub fn on_every_rank<R: Send, T: Send>(ranks: Vec<R>, f: impl Fn(usize, R) -> T + Sync) -> Vec<T> {
    let f = &f;
    thread::scope(|scope| {
        let threads: Vec<_> =
            ranks.into_iter().enumerate().map(|(r, rank)| scope.spawn(move || f(r, rank))).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Reproducible values in −1..1 (splitmix64), so that the suite needs no random number crate.
pub fn values(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64 * 2.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    //! The in-process transports pass the suites that every other one will have to pass.
    use super::*;
    use crate::{in_process_communicators, in_process_gang};
    use proptest::prelude::*;

    #[test]
    fn collectives_in_process() {
        collectives::all(&in_process_communicators, &[1, 2, 3, 4, 5], &[0, 1, 3, 7, 64, 101]);
    }

    #[test]
    fn gradient_sync_in_process() {
        gradient_sync::all(&in_process_gang);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn collectives_equal_the_naive_ones(world in 1_usize..=5, length in 0_usize..40, seed in 0_u64..1000) {
            collectives::reductions(&in_process_communicators, world, length, seed);
            collectives::movements(&in_process_communicators, world, length, seed);
        }
    }
}
