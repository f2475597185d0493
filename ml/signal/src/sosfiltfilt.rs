//! Filtering forwards and backwards, without phase shift, as `scipy.signal.sosfiltfilt` with odd padding.
//!
//! The recurrence cannot be vectorised over time, so it runs over the eight series of a block at once.

use crate::{
    Butterworth, Section,
    lanes::{LANES, Lanes},
};

impl Butterworth {
    /// Filters a block of series, `[time_points][LANES]`, in place; `scratch` is room for the padded block.
    ///
    /// A block shorter than [`Butterworth::min_time_points`] is left as it is: callers check once, beforehand.
    pub fn filter(&self, block: &mut [Lanes], scratch: &mut Vec<Lanes>) {
        let (pad, n) = (self.padding, block.len());
        if n < self.min_time_points() {
            return;
        }
        let (first, last) = (block[0], block[n - 1]);
        scratch.clear();
        scratch.extend((1..=pad).rev().map(|t| reflect(&first, &block[t])));
        scratch.extend_from_slice(block);
        scratch.extend((1..=pad).map(|t| reflect(&last, &block[n - 1 - t])));

        let start = scratch[0];
        for section in &self.sections {
            run(section, &start, scratch.iter_mut());
        }
        let start = scratch[scratch.len() - 1];
        for section in &self.sections {
            run(section, &start, scratch.iter_mut().rev());
        }
        block.copy_from_slice(&scratch[pad..pad + n]);
    }
}

/// The point reflection of `x` at `at`.
fn reflect(at: &Lanes, x: &Lanes) -> Lanes {
    std::array::from_fn(|lane| 2.0 * at[lane] - x[lane])
}

/// Transposed direct form II, begun in the steady state of a step of height `start`.
#[inline]
fn run<'a>(section: &Section, start: &Lanes, block: impl Iterator<Item = &'a mut Lanes>) {
    let ([b0, b1, b2], [a1, a2]) = (section.b, section.a);
    let mut s0: Lanes = start.map(|x| x * section.steady_state[0]);
    let mut s1: Lanes = start.map(|x| x * section.steady_state[1]);
    for values in block {
        for lane in 0..LANES {
            let x = values[lane];
            let y = b0 * x + s0[lane];
            s0[lane] = b1 * x - a1 * y + s1[lane];
            s1[lane] = b2 * x - a2 * y;
            values[lane] = y;
        }
    }
}
