//! Orders of samples that keep what must be kept.

use crate::{Error, Result};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::ops::Range;

/// How samples are rearranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearrangement {
    /// All samples freely, as the paper does. Series that are alike from volume to volume get p-values that are too
    /// small.
    Shuffle,
    /// Within each run, blocks of `length` neighbouring samples change places (a last shorter one too). Blocks should
    /// be longer than the likeness lasts: 10 volumes of 1.5 to 2 s are usual.
    Blocks {
        /// Samples of a block.
        length: usize,
    },
    /// Each run is turned by a number of samples of its own, at least `least` from where it was.
    CircularShift {
        /// Samples.
        least: usize,
    },
}

/// `count` orders of the samples of `runs` (the run of each sample; neighbours of equal number are one run).
///
/// Order b depends on `seed` and b alone.
///
/// # Errors
/// Runs that are too short for it, or fewer different orders than `count`.
pub fn rearrangements(runs: &[usize], how: Rearrangement, count: usize, seed: u64) -> Result<Vec<Vec<u32>>> {
    let wrong = |option, reason| Err(Error::Setting { option, reason });
    let runs = stretches(runs);
    match how {
        Rearrangement::Blocks { length: 0 } => {
            return wrong("length", "blocks of no samples; give 1 or more".into());
        }
        Rearrangement::CircularShift { least: 0 } => {
            return wrong("least", "a shift by 0 rearranges nothing; give 1 or more".into());
        }
        Rearrangement::CircularShift { least } => {
            if let Some(run) = runs.iter().find(|run| run.len() < 2 * least) {
                let reason = format!(
                    "a run of {} samples cannot be turned by at least {least} from where it was; give at most {}",
                    run.len(),
                    run.len() / 2
                );
                return wrong("least", reason);
            }
        }
        _ => {}
    }
    let different = different(&runs, how);
    if count == 0 || different < count as f64 {
        let reason = format!(
            "{count} are asked for, and there are {different} different ones; give a number from 1 to that, or shorter \
             blocks"
        );
        return wrong("rearrangements", reason);
    }
    let order = |number: usize| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(number as u64);
        draw(&runs, how, &mut random)
    };
    Ok((0..count).map(order).collect())
}

fn stretches(runs: &[usize]) -> Vec<Range<usize>> {
    let mut start = 0;
    let stretch = |run: &[usize]| {
        start += run.len();
        start - run.len()..start
    };
    runs.chunk_by(|a, b| a == b).map(stretch).collect()
}

/// How many different orders there are, less the one that changes nothing.
fn different(runs: &[Range<usize>], how: Rearrangement) -> f64 {
    let factorial = |n: usize| (1..=n).map(|i| i as f64).product::<f64>();
    let samples = runs.last().map_or(0, |run| run.end);
    match how {
        Rearrangement::Shuffle => factorial(samples) - 1.0,
        Rearrangement::Blocks { length } => {
            runs.iter().map(|run| factorial(run.len().div_ceil(length))).product::<f64>() - 1.0
        }
        Rearrangement::CircularShift { least } => {
            runs.iter().map(|run| (run.len() - 2 * least + 1) as f64).product()
        }
    }
}

fn draw(runs: &[Range<usize>], how: Rearrangement, random: &mut ChaCha8Rng) -> Vec<u32> {
    let samples = runs.last().map_or(0, |run| run.end) as u32;
    let mut order: Vec<u32> = (0..samples).collect();
    match how {
        Rearrangement::Shuffle => order.shuffle(random),
        Rearrangement::Blocks { length } => {
            for run in runs {
                let whole: Vec<u32> = (run.start as u32..run.end as u32).collect();
                let mut blocks: Vec<&[u32]> = whole.chunks(length).collect();
                blocks.shuffle(random);
                order[run.clone()].copy_from_slice(&blocks.concat());
            }
        }
        Rearrangement::CircularShift { least } => {
            for run in runs {
                let by = random.random_range(least..=run.len() - least);
                order[run.clone()].rotate_right(by);
            }
        }
    }
    order
}
