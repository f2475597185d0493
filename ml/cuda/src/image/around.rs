//! What goes around the products of convolutions of images: weights as kernels read them, sums of parts, ReLU's gradient.

use super::shape::Conv2dShape;
use crate::{Card, Error, Precision, Result, Values, launch::Launch, memory::Memory};

/// How weights lie for a kernel: `[tap][r][s]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lay {
    /// Filters are r and channels s, or the other way round.
    pub filters_first: bool,
    /// Taps column by column.
    pub by_columns: bool,
    /// Taps in the opposite order, along both axes.
    pub backwards: bool,
}

/// Threads of most blocks, and blocks of kernels that sum for every multiprocessor.
const THREADS: usize = 256;
const BLOCKS: usize = 8;

/// `weights`, float32 `[filter][channel][line][column]` → `out` as `lay` says.
pub(super) fn lay_weights(
    card: &Card,
    shape: &Conv2dShape,
    precision: Precision,
    lay: Lay,
    weights: u64,
    out: &Memory,
) -> Result<()> {
    let (filters, channels) =
        ((shape.filters, shape.channels * shape.taps()), (shape.channels, shape.taps()));
    let ((r, by_r), (s, by_s)) = if lay.filters_first { (filters, channels) } else { (channels, filters) };
    let launch = Launch::of_images(card, format!("image_lay_{}", precision.values().suffix()))
        .pointer(weights)
        .pointer(out.at(0))
        .int(shape.kernel[0])
        .int(shape.kernel[1])
        .int(r)
        .int(s)
        .int(by_r)
        .int(by_s)
        .int(lay.by_columns.into())
        .int(lay.backwards.into())
        .int((precision == Precision::Tf32).into());
    let blocks = shape.weights().div_ceil(THREADS).min(BLOCKS * card.multiprocessors());
    // SAFETY: `out` has room for the weights; the caller's word for `weights`.
    unsafe { launch.run([blocks, 1, 1], [THREADS, 1], 0) }
}

/// Sums `count` parts `[part][tap][r][s]` in their order, to `out`, where r and s are `by` values apart and taps one.
pub(super) fn sum_parts(
    card: &Card,
    parts: &Memory,
    out: u64,
    count: usize,
    [taps, r, s]: [usize; 3],
    by: [usize; 2],
) -> Result<()> {
    let launch = Launch::of_images(card, "image_sum")
        .pointer(parts.at(0))
        .pointer(out)
        .int(count)
        .int(taps)
        .int(r)
        .int(s)
        .int(by[0])
        .int(by[1]);
    // SAFETY: `parts` has that many; the caller's word for `out`.
    unsafe { launch.run([(r * s).div_ceil(32), 1, 1], [32, 8], 0) }
}

/// The sums over points of a gradient, which becomes zero where there is no output above zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub points: usize,
    pub channels: usize,
    pub values: Values,
}

impl Gate {
    fn vector(&self) -> usize {
        if self.channels.is_multiple_of(8) { 8 } else { 1 }
    }

    /// Blocks along points and channels, and vectors of a block.
    fn grid(&self, card: &Card) -> ([usize; 3], usize) {
        let vectors = self.channels / self.vector();
        let columns = vectors.min(THREADS);
        let across = vectors.div_ceil(columns);
        let most = (BLOCKS * card.multiprocessors()).div_ceil(across);
        ([self.points.div_ceil(THREADS / columns).clamp(1, most), across, 1], columns)
    }

    /// Parts of the sums at most, `[part][channels]`.
    pub fn parts(&self, card: &Card) -> usize {
        self.grid(card).0[0]
    }

    /// `dy` in place, by `y` if that is not null; parts of the sums to `partial`.
    pub fn run(&self, card: &Card, dy: u64, y: u64, partial: &Memory) -> Result<()> {
        let (grid, columns) = self.grid(card);
        let launch = Launch::of_images(card, format!("gate{}_{}", self.vector(), self.values.suffix()))
            .pointer(dy)
            .pointer(y)
            .pointer(partial.at(0))
            .int(self.points)
            .int(self.channels)
            .int(columns);
        // SAFETY: `partial` has room for as many parts; the caller's word for `dy` and `y`.
        unsafe { launch.run(grid, [THREADS, 1], 0) }
    }
}

/// # Errors
/// A buffer that is too small, or of other values.
pub(super) fn check(
    operation: &'static str,
    what: &str,
    memory: &Memory,
    values: Values,
    needed: usize,
) -> Result<()> {
    let wrong = |reason: String| Err(Error::Shape { what: operation, reason });
    if memory.kind() != values {
        return wrong(format!("{what} holds {:?}, {values:?} are needed", memory.kind()));
    }
    if memory.len() < needed {
        return wrong(format!("{what} holds {} values, {needed} are needed", memory.len()));
    }
    // The kernels count points and vectors in 32 bits.
    if i32::try_from(needed).is_err() {
        return wrong(format!(
            "{what} of {needed} values is more than kernels count; use a smaller minibatch"
        ));
    }
    Ok(())
}
