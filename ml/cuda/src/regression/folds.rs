//! What cross-validation over folds does on a card between its products: one function a kernel of `folds.cu`.

use super::numbers::{Columns, Indices, Numbers, short};
use super::{COLUMN_THREADS, Kernels, Of, THREADS};
use crate::matrix::Matrix;
use crate::{Card, Result};
use std::ops::Range;

/// Samples that a fold does not train on.
#[derive(Debug)]
pub struct FoldRows {
    /// Positions of those that are predicted, then of those that are left out besides.
    rows: Indices,
    held: usize,
    out: usize,
    train: usize,
}

impl FoldRows {
    /// Of `samples`; `held`: those that are predicted, `besides`: those that are left out too.
    ///
    /// # Errors
    /// A card without room for them, or that fails.
    pub fn of(card: &Card, samples: usize, held: &[usize], besides: &[usize]) -> Result<Self> {
        let rows = [held, besides].concat();
        if rows.iter().any(|row| *row >= samples) || rows.len() >= samples {
            return short("samples of a fold", samples, rows.len() + 1);
        }
        let (held, out) = (held.len(), rows.len());
        Ok(Self { rows: Indices::of(card, &rows, "samples of a fold")?, held, out, train: samples - out })
    }

    /// Samples that are predicted.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Samples that the fold does not train on.
    pub fn out(&self) -> usize {
        self.out
    }

    fn samples(&self) -> usize {
        self.train + self.out
    }
}

/// Which of ascending values are close to which.
#[derive(Debug)]
pub struct Close {
    first: Indices,
    offsets: Indices,
    values: Numbers<f64>,
    size: usize,
}

impl Close {
    /// `ranges`: to each value the values that it is close to, itself among them; none of a value that is of no use.
    ///
    /// # Errors
    /// Ranges that lead elsewhere; a card without room for them, or that fails.
    pub fn of(card: &Card, ranges: &[Range<usize>]) -> Result<Self> {
        let size = ranges.len();
        if ranges.iter().any(|range| range.end > size) {
            return short("values that are close", size, ranges.iter().map(|r| r.end).max().unwrap_or(0));
        }
        let firsts: Vec<usize> = ranges.iter().map(|range| range.start).collect();
        let mut offsets = vec![0; size + 1];
        for (at, range) in ranges.iter().enumerate() {
            offsets[at + 1] = offsets[at] + range.len();
        }
        let values = Numbers::zeros(card, offsets[size].max(1), "values that are close")?;
        let first = Indices::of(card, &firsts, "values that are close")?;
        Ok(Self { first, offsets: Indices::of(card, &offsets, "values that are close")?, values, size })
    }

    /// Values among which they are.
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

/// A block of targets in a fold's basis, `[n_values, n_targets]` each.
#[derive(Debug)]
pub struct FoldTargets {
    /// Of the training samples.
    pub m: Matrix,
    /// Of the samples that are predicted.
    pub b: Matrix,
    /// Products of m with values that are apart.
    pub apart: Matrix,
    /// Products of m with values that are close.
    pub close: Matrix,
}

/// How a fold's predictions are scored.
#[derive(Clone, Copy, Debug)]
pub struct FoldScores<'a> {
    /// Column sums of the samples that are predicted, `[n_values, 1]`.
    pub sums: &'a Matrix,
    /// `[n_values, 2 · n_alphas]`: `1 / (λ + α)`, then the same up to a number for each penalty, with digits that are left
    /// when they are subtracted. Zero for values that are of no use.
    pub shrink: &'a Matrix,
    /// 0: minus the mean squared error; 1: R²; 2: Pearson's r.
    pub score: i32,
    /// Part of a target's variance up to which samples of it count as constant.
    pub flat: f64,
}

impl Kernels {
    /// Rows of `from`, whose columns sum to zero, that a fold leaves out, less the mean of the others; rows that are not
    /// predicted are multiplied with `sign`. One row more, behind them, is that mean times the root of the number of samples.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn fold_rows(
        &self,
        from: &Matrix,
        columns: usize,
        rows: &FoldRows,
        sign: f64,
        into: &mut Matrix,
    ) -> Result<()> {
        let fits = from.columns() >= columns && into.columns() >= columns && into.rows() > rows.out();
        if from.rows() != rows.samples() || !fits {
            return short("rows of a fold", into.rows(), rows.out() + 1);
        }
        let arguments = [
            self.whole(from),
            Of::Long(from.rows()),
            self.index(&rows.rows, 0),
            Of::Long(rows.held),
            Of::Long(rows.out()),
            Of::Long(rows.train),
            Of::Double(sign),
            self.whole(into),
            Of::Long(into.rows()),
        ];
        // SAFETY: sizes were checked, and positions where they were made.
        unsafe { self.launch("fold_rows", columns, COLUMN_THREADS, &arguments) }
    }

    /// The lower triangle of a fold's Gram matrix in the place of that of its rows: `Λ + mean·meanᵀ − square`, the mean from
    /// row `row` of what [`Self::fold_rows`] gave.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn remaining(
        &self,
        lambdas: &Numbers<f64>,
        rows: &Matrix,
        row: usize,
        square: &mut Matrix,
    ) -> Result<()> {
        let size = square.rows();
        if square.columns() != size || lambdas.len() < size || rows.columns() != size || rows.rows() <= row {
            return short("a fold's Gram matrix", lambdas.len(), size);
        }
        let Of::At(first) = self.whole(rows) else { return short("rows of a fold", 0, 1) };
        let arguments = [
            self.at(lambdas, 0),
            Of::At(first + (row * size_of::<f64>()) as u64),
            Of::Long(rows.rows()),
            self.whole(square),
            Of::Long(size),
        ];
        // SAFETY: sizes were checked.
        unsafe { self.each("remaining", size * size, &arguments) }
    }

    /// Takes the values that are close out of the lower triangle `square`, and divides the others in their place, both
    /// triangles, by the differences of their eigenvalues.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn split(&self, square: &mut Matrix, lambdas: &Numbers<f64>, close: &mut Close) -> Result<()> {
        let size = square.rows();
        if square.columns() != size || lambdas.len() < size || close.size != size {
            return short("values that are close", close.size, size);
        }
        let [values, first, offsets] = self.pattern(close);
        let taken = [self.whole(square), first, offsets, values, Of::Long(size)];
        let divided = [self.whole(square), self.at(lambdas, 0), first, offsets, Of::Long(size)];
        // SAFETY: sizes were checked; the pattern is within them where it was made.
        unsafe {
            self.each("close_values", size, &taken)?;
            self.each("apart", size * size, &divided)
        }
    }

    /// `close = C · m` of the first `columns`.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn close_products(&self, close: &Close, targets: &mut FoldTargets, columns: usize) -> Result<()> {
        let size = close.size;
        let FoldTargets { m, close: into, .. } = targets;
        if m.rows() != size || into.rows() != size || m.columns().min(into.columns()) < columns {
            return short("targets of a fold", into.columns(), columns);
        }
        let [values, first, offsets] = self.pattern(close);
        let arguments =
            [values, first, offsets, self.whole(m), self.whole(into), Of::Long(size), Of::Long(columns)];
        // SAFETY: sizes were checked.
        unsafe { self.each("close_products", size * columns, &arguments) }
    }

    /// `into −= from`, of the first `columns`.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn subtract(&self, from: &Matrix, into: &mut Matrix, columns: usize) -> Result<()> {
        if from.rows() != into.rows() || from.columns().min(into.columns()) < columns {
            return short("columns to subtract", from.columns().min(into.columns()), columns);
        }
        let count = from.rows() * columns;
        let arguments = [self.whole(from), self.whole(into), Of::Long(count)];
        // SAFETY: sizes were checked.
        unsafe { self.each("subtract", count, &arguments) }
    }

    /// Adds the scores of `columns` targets with every penalty to `scores`, `[n_alphas + 1, n_targets]`, from target `to` on, and
    /// 1 to the last row; nothing where a target can have no score. `y`: what [`Self::fold_rows`] gave of `rows`; `whole`: what is
    /// known of all targets.
    ///
    /// # Errors
    /// Shapes that do not match; a card that fails.
    pub fn fold_scores(
        &self,
        (y, rows): (&Matrix, &FoldRows),
        targets: &FoldTargets,
        of: FoldScores<'_>,
        (columns, whole): (usize, &Columns),
        (scores, to): (&mut Matrix, usize),
    ) -> Result<()> {
        let (size, alphas) = (of.shrink.rows(), of.shrink.columns() / 2);
        let FoldTargets { m, b, apart, close } = targets;
        let all = [m, b, apart, close];
        let same = all.iter().all(|one| one.rows() == size && one.columns() >= columns);
        let fits = y.rows() > rows.out() && y.columns() >= columns && of.sums.rows() == size;
        let known = whole.squares.len().min(whole.flat.len()) >= to + columns;
        if !same || !fits || !known || scores.rows() != alphas + 1 || scores.columns() < to + columns {
            return short("scores of a fold", scores.columns(), to + columns);
        }
        let arguments = [
            self.whole(y),
            Of::Long(y.rows()),
            Of::Long(rows.held()),
            Of::Long(rows.out()),
            Of::Long(rows.samples()),
            self.whole(m),
            self.whole(b),
            self.whole(apart),
            self.whole(close),
            self.whole(of.sums),
            self.whole(of.shrink),
            Of::Long(size),
            Of::Long(alphas),
            Of::Int(of.score),
            self.at(&whole.squares, to),
            self.at(&whole.flat, to),
            Of::Double(of.flat),
            Of::At(scores.column(&self.card, to)),
        ];
        // SAFETY: sizes were checked.
        unsafe { self.launch("fold_scores", columns, THREADS, &arguments) }
    }

    /// Values that are close, and of each row where its first is, among values and here.
    pub(super) fn pattern(&self, close: &Close) -> [Of; 3] {
        [self.at(&close.values, 0), self.index(&close.first, 0), self.index(&close.offsets, 0)]
    }

    fn index(&self, indices: &Indices, at: usize) -> Of {
        Of::At(indices.at(&self.card, at))
    }
}
