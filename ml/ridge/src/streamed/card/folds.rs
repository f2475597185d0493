//! Cross-validation over folds on a card.
//!
//! ```text
//!   Z of all samples: its Gram matrix is Λ, whatever the features were
//!   a fold ─► rows of Z that it leaves out, about its training mean ─► Λ less their square ─► its own basis U and λ
//!          ─► H = rows · U ─► G = H'H of those it predicts ─► G over differences of λ, and what of G is close
//!   M of a block ─► m = U'M less H'y ─► P, Q ─► Σy, Σy², Σŷ, Σyŷ, Σŷ² of every penalty ─► scores
//! ```
//! Rotated features have the same ridge fits, so features themselves are needed no more once Z is there, and where samples
//! are fewer than features every fold is as small as they are. Sums of squared predictions of all penalties follow from one
//! product, as on the cores.

use super::{
    Decomposed,
    penalties::{close, shrink},
};
use crate::score::FLAT_VARIANCE;
use crate::spectrum::check_condition;
use crate::{CrossValidation, Error, Result, RidgeSettings, Score};
use std::ops::Range;
use voxelflow_cuda::{
    matrix::{self, Matrix, product},
    regression::{Close, Columns, FoldRows, FoldScores, FoldTargets, Kernels, Numbers},
};

/// A decomposed fold.
struct Fold {
    rows: FoldRows,
    /// What maps Z to the fold's own basis, `[n_values, n_values]`.
    basis: Matrix,
    /// Samples that are left out, in its basis and about its training mean, `[out + 1, n_values]`.
    h: Matrix,
    /// Column sums of those that are predicted.
    sums: Matrix,
    /// Their Gram matrix over differences of values.
    apart: Matrix,
    close: Close,
    /// See [`shrink`].
    shrink: Matrix,
}

/// All folds.
pub(super) struct Folds {
    folds: Vec<Fold>,
    score: i32,
    /// Targets at hand: what a fold leaves out of them, and in its basis.
    y: Matrix,
    targets: FoldTargets,
    /// `[n_alphas + 1, n_targets]`: sums over the folds that a target has a score in, and how many these are.
    scores: Matrix,
}

impl Folds {
    /// None for leave-one-out.
    pub fn of(
        kernels: &Kernels,
        settings: &RidgeSettings,
        (whole, lambdas): (&Decomposed, &[f64]),
    ) -> Result<Option<Self>> {
        let CrossValidation::Folds(folds) = &settings.cv else { return Ok(None) };
        let card = kernels.card();
        folds.check(whole.z.rows())?;
        let each = folds.each().map(|(held, besides)| {
            let rows = FoldRows::of(card, whole.z.rows(), held, besides).map_err(super::failed)?;
            Fold::of(kernels, whole, rows, &settings.alphas, lambdas)
        });
        let folds = each.collect::<Result<Vec<_>>>()?;
        let score = match settings.score {
            Score::NegMeanSquaredError => 0,
            Score::R2 => 1,
            Score::Pearson => 2,
        };
        let empty = || Matrix::zeros(card, 0, 0, "targets of a fold").map_err(super::failed);
        let targets = FoldTargets { m: empty()?, b: empty()?, apart: empty()?, close: empty()? };
        Ok(Some(Self { folds, score, y: empty()?, targets, scores: empty()? }))
    }

    /// Makes room for a pass over `count` targets, `largest` at once.
    pub fn begin(&mut self, kernels: &Kernels, count: usize, largest: usize) -> voxelflow_cuda::Result<()> {
        let Some(first) = self.folds.first() else { return Ok(()) };
        let (size, alphas) = (first.basis.rows(), first.shrink.columns() / 2);
        let rows = self.folds.iter().map(|fold| fold.rows.out() + 1).max().unwrap_or(1);
        let zeros = |rows, columns| Matrix::zeros(kernels.card(), rows, columns, "targets of a fold");
        let block = || zeros(size, largest);
        self.y = zeros(rows, largest)?;
        self.targets = FoldTargets { m: block()?, b: block()?, apart: block()?, close: block()? };
        self.scores = zeros(alphas + 1, count)?;
        Ok(())
    }

    /// Gives the room for a block back.
    pub fn end(&mut self, kernels: &Kernels) -> voxelflow_cuda::Result<()> {
        let empty = || Matrix::zeros(kernels.card(), 0, 0, "targets of a fold");
        self.targets = FoldTargets { m: empty()?, b: empty()?, apart: empty()?, close: empty()? };
        self.y = empty()?;
        Ok(())
    }

    /// Scores the targets `range`: `y`, centred, and their products with Z, which stand in `products` from `at` on.
    pub fn add(
        &mut self,
        kernels: &Kernels,
        y: &Matrix,
        (products, at): (&Matrix, usize),
        (range, whole): (&Range<usize>, &Columns),
    ) -> voxelflow_cuda::Result<()> {
        let (card, count) = (kernels.card(), range.len());
        for fold in &self.folds {
            let (held, out, size) = (fold.rows.held(), fold.rows.out(), fold.basis.columns());
            kernels.fold_rows(y, count, &fold.rows, 1.0, &mut self.y)?;
            let FoldTargets { m, b, apart, .. } = &mut self.targets;
            let (all, predicted) = (products.of_columns(at..at + count), self.y.part(0..held, 0..count));
            product(card, (fold.h.of_rows(0..held), true), (predicted, false), 0.0, b, 0..count)?;
            product(card, (fold.basis.whole(), true), (all, false), 0.0, m, 0..count)?;
            let others = (fold.h.of_rows(held..out + 1), self.y.part(held..out + 1, 0..count));
            product(card, (others.0, true), (others.1, false), 1.0, m, 0..count)?;
            kernels.subtract(b, m, count)?;
            let own = m.part(0..size, 0..count);
            product(card, (fold.apart.whole(), false), (own, false), 0.0, apart, 0..count)?;
            kernels.close_products(&fold.close, &mut self.targets, count)?;
            let of =
                FoldScores { sums: &fold.sums, shrink: &fold.shrink, score: self.score, flat: FLAT_VARIANCE };
            let into = (&mut self.scores, range.start);
            kernels.fold_scores((&self.y, &fold.rows), &self.targets, of, (count, whole), into)?;
        }
        Ok(())
    }

    /// The scores of every target, NaN where it has none, and how many folds they are means over.
    pub fn scores(&self, kernels: &Kernels) -> voxelflow_cuda::Result<(Vec<Vec<f64>>, Vec<f64>)> {
        let (rows, count) = (self.scores.rows(), self.scores.columns());
        let flat = self.scores.first_values(kernels.card(), rows * count)?;
        let mean = |own: &[f64]| {
            let (folds, sums) = own.split_last()?;
            Some((sums.iter().map(|sum| sum / folds).collect(), *folds))
        };
        Ok(flat.chunks_exact(rows.max(1)).filter_map(mean).unzip())
    }
}

impl Fold {
    fn of(
        kernels: &Kernels,
        whole: &Decomposed,
        rows: FoldRows,
        alphas: &[f64],
        all: &[f64],
    ) -> Result<Self> {
        let (card, size) = (kernels.card(), all.len());
        let (held, out, train) = (rows.held(), rows.out(), whole.z.rows() - rows.out());
        let zeros = |rows, columns| Matrix::zeros(card, rows, columns, "a fold's features");
        let left_out = || {
            let mut raw = zeros(out + 1, size)?;
            kernels.fold_rows(&whole.z, size, &rows, -1.0, &mut raw)?;
            let mut square = zeros(size, size)?;
            matrix::add_square(card, (raw.of_rows(0..out), true), &mut square)?;
            kernels.remaining(&whole.lambdas, &raw, out, &mut square)?;
            Ok((raw, square))
        };
        let (raw, mut basis) = left_out().map_err(super::failed)?;
        let values = matrix::eigen(card, &mut basis).map_err(super::failed)?.ok_or(Error::Eigen { size })?;
        let values: Vec<f64> = values.into_iter().map(|value| value.max(0.0)).collect();
        check_condition(&values, train < size, f64::EPSILON, alphas)?;
        // Training samples have no part in directions of λ = 0, nor may noise have.
        let largest = all.last().copied().unwrap_or(0.0);
        let floor = largest * whole.z.rows().max(size) as f64 * f64::EPSILON;
        let useless = values.partition_point(|value| *value <= floor);
        let ranges = close(&values, useless);
        let mut decomposed = || {
            if useless > 0 {
                let scale: Vec<f64> = (0..size).map(|at| f64::from(u8::from(at >= useless))).collect();
                kernels.scale_columns(&mut basis, &Numbers::of(card, &scale, "eigenvalues")?)?;
            }
            let mut h = zeros(out + 1, size)?;
            product(card, (raw.whole(), false), (basis.whole(), false), 0.0, &mut h, 0..size)?;
            let ones = Matrix::of(card, &vec![1.0; held], held, "ones")?;
            let (mut sums, mut apart) = (zeros(size, 1)?, zeros(size, size)?);
            product(card, (h.of_rows(0..held), true), (ones.whole(), false), 0.0, &mut sums, 0..1)?;
            matrix::add_square(card, (h.of_rows(0..held), true), &mut apart)?;
            let mut close = Close::of(card, &ranges)?;
            kernels.split(&mut apart, &Numbers::of(card, &values, "eigenvalues")?, &mut close)?;
            let shrink = Matrix::of(card, &shrink(&values, useless, alphas), size, "penalties")?;
            card.wait()?;
            Ok((h, sums, apart, close, shrink))
        };
        let (h, sums, apart, close, shrink) = decomposed().map_err(super::failed)?;
        Ok(Self { rows, basis, h, sums, apart, close, shrink })
    }
}
