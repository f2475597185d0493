//! Targets that are read block by block, since all of them may be larger than memory.

use crate::columns::{each_column, numbers};
use crate::scalar::resized;
use crate::score::flat;
use crate::{Error, Result, Scalar};
use faer::{ColMut, Mat, MatMut, MatRef};
use rayon::prelude::*;
use std::ops::Range;

/// Where targets come from. They are read to choose a penalty, and again to fit, unless the first pass keeps what the fit
/// needs ([`crate::RidgeSettings::read_once`]).
pub trait Targets<T> {
    /// Samples of each target.
    fn samples(&self) -> usize;
    /// How many targets there are.
    fn count(&self) -> usize;
    /// Puts the targets `range` into the columns of `into`, `[samples, range.len()]`.
    ///
    /// # Errors
    /// Storage that fails.
    fn read(&mut self, range: Range<usize>, into: MatMut<'_, T>) -> Result<()>;
}

impl<T: Scalar> Targets<T> for MatRef<'_, T> {
    fn samples(&self) -> usize {
        self.nrows()
    }
    fn count(&self) -> usize {
        self.ncols()
    }
    fn read(&mut self, range: Range<usize>, mut into: MatMut<'_, T>) -> Result<()> {
        into.copy_from(self.subcols(range.start, range.len()));
        Ok(())
    }
}

/// A block of centred targets.
#[derive(Clone, Debug)]
pub(crate) struct TargetBlock<T> {
    /// Which targets these are.
    pub range: Range<usize>,
    /// `[n_samples, n_targets]`, centred. Targets that cannot be fitted are zero.
    pub values: Mat<T>,
    /// Their means; NaN where a target has NaN or infinity.
    pub means: Vec<f64>,
    /// `Σ (y − ȳ)²`. Zero: constant, or not finite.
    pub squares: Vec<f64>,
    /// The variance up to which some of a target's samples count as constant.
    pub flat: Vec<f64>,
}

impl<T: Scalar> TargetBlock<T> {
    /// Without targets, to be filled.
    pub fn empty() -> Self {
        let (values, means, squares, flat) = (Mat::new(), Vec::new(), Vec::new(), Vec::new());
        Self { range: 0..0, values, means, squares, flat }
    }

    /// Reads and centres `range`.
    pub fn read(targets: &mut dyn Targets<T>, range: Range<usize>) -> Result<Self> {
        Self::gather(targets, &[range])
    }

    /// Reads and centres `ranges`, one behind the other; the block's own range is from the first to the last of them.
    pub fn gather(targets: &mut dyn Targets<T>, ranges: &[Range<usize>]) -> Result<Self> {
        let mut block = Self::empty();
        block.refill(targets, ranges)?;
        Ok(block)
    }

    /// The same in the memory of this block.
    pub fn refill(&mut self, targets: &mut dyn Targets<T>, ranges: &[Range<usize>]) -> Result<()> {
        let count = ranges.iter().map(ExactSizeIterator::len).sum();
        resized(&mut self.values, targets.samples(), count);
        let mut start = 0;
        for range in ranges {
            targets.read(range.clone(), self.values.as_mut().subcols_mut(start, range.len()))?;
            start += range.len();
        }
        self.range = ranges.first().map_or(0, |r| r.start)..ranges.last().map_or(0, |r| r.end);
        let centred = |column: ColMut<'_, T>| centre(numbers(column));
        let found: Vec<_> = self.values.par_col_iter_mut().map(centred).collect();
        self.means = found.iter().map(|(mean, ..)| *mean).collect();
        self.squares = found.iter().map(|(_, square, _)| *square).collect();
        self.flat = found.into_iter().map(|(.., flat)| flat).collect();
        Ok(())
    }

    /// Divides every target by the root of its sum of squares; those without one stay zero.
    pub fn standardize(&mut self) {
        let squares = &self.squares;
        each_column(&mut self.values, |target, column| {
            let scale = if squares[target] > 0.0 { 1.0 / squares[target].sqrt() } else { 1.0 };
            column.iter_mut().for_each(|value| *value = T::of(value.wide() * scale));
        });
    }
}

/// Takes the mean away, in two passes; gives it, the sum of squares, and the variance up to which some of the samples count as
/// constant. A target that is constant or not finite becomes zero: it must not spread to the others.
fn centre<T: Scalar>(values: &mut [T]) -> (f64, f64, f64) {
    let n = values.len().max(1) as f64;
    let constant = values.windows(2).all(|pair| pair[0] == pair[1]);
    let mean = values.iter().map(|v| v.wide()).sum::<f64>() / n;
    let (mut square, mut largest) = (0.0, 0.0_f64);
    for value in values.iter_mut() {
        largest = largest.max(value.wide().abs());
        let centred = value.wide() - mean;
        square += centred * centred;
        *value = T::of(centred);
    }
    // What was constant before it was filtered or scaled may vary by the last digit.
    if constant || !square.is_finite() || square <= n * (largest * T::EPSILON).powi(2) {
        values.fill(T::of(0.0));
        square = 0.0;
    }
    (mean, square, flat(square / n, largest, T::EPSILON))
}

/// Ranges of at most `size` that make up `0..count`.
pub(crate) fn blocks(count: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    let size = size.max(1);
    (0..count.div_ceil(size)).map(move |block| block * size..count.min((block + 1) * size))
}

/// # Errors
/// Targets of another number of samples.
pub(crate) fn check_samples<T>(targets: &dyn Targets<T>, expected: usize) -> Result<()> {
    let found = targets.samples();
    if found == expected { Ok(()) } else { Err(Error::Samples { what: "a target", found, expected }) }
}
