//! Leave-one-out on a card, with one penalty for all targets.
//!
//! ```text
//!   Σ M·Mᵀ over differences of λ, and what of it is close ─► rows of Z · that ─► squared errors of every penalty
//! ```

use super::{
    Decomposed,
    penalties::{close, shrink},
};
use crate::targets::blocks;
use voxelflow_cuda::{
    matrix::{self, Matrix, Part, product},
    regression::{Close, Kernels, Numbers, RowErrors},
};

/// Sums over targets that squared errors follow from.
pub(super) struct Sums {
    /// `Σ M·Mᵀ`, the lower triangle, `[n_values, n_values]`.
    square: Matrix,
    /// `Σ Y·Mᵀ`, `[n_samples, n_values]`.
    cross: Matrix,
    /// `Σ y²` of each sample.
    rows: Numbers<f64>,
}

impl Sums {
    /// Of no targets.
    pub fn zeros(kernels: &Kernels, n_samples: usize, n_values: usize) -> voxelflow_cuda::Result<Self> {
        const WHAT: &str = "sums over targets";
        let card = kernels.card();
        Ok(Self {
            square: Matrix::zeros(card, n_values, n_values, WHAT)?,
            cross: Matrix::zeros(card, n_samples, n_values, WHAT)?,
            rows: Numbers::zeros(card, n_samples, WHAT)?,
        })
    }

    /// Adds the first `count` columns of `y`, centred, and the same in the basis, `m`.
    pub fn add(
        &mut self,
        kernels: &Kernels,
        (y, count): (&Matrix, usize),
        m: Part<'_>,
    ) -> voxelflow_cuda::Result<()> {
        let card = kernels.card();
        matrix::add_square(card, (m, false), &mut self.square)?;
        let size = self.square.rows();
        product(card, (y.of_columns(0..count), false), (m, true), 1.0, &mut self.cross, 0..size)?;
        kernels.add_row_squares(y, count, &mut self.rows)
    }

    /// Squared errors, summed over samples and targets, of each of `alphas`; `at_once`: samples that are looked at together.
    pub fn errors(
        mut self,
        kernels: &Kernels,
        on_card: &Decomposed,
        alphas: &[f64],
        at_once: usize,
    ) -> voxelflow_cuda::Result<Vec<f64>> {
        const WHAT: &str = "errors";
        let (card, n, size) = (kernels.card(), on_card.z.rows(), on_card.z.columns());
        let lambdas = on_card.lambdas.get(card, 0..size)?;
        let mut near = Close::of(card, &close(&lambdas, 0))?;
        kernels.split(&mut self.square, &on_card.lambdas, &mut near)?;
        let shrink = Matrix::of(card, &shrink(&lambdas, 0, alphas), size, "penalties")?;
        let mut apart = Matrix::zeros(card, at_once, size, WHAT)?;
        let mut errors = Matrix::zeros(card, n, alphas.len(), WHAT)?;
        for rows in blocks(n, at_once) {
            let z = on_card.z.of_rows(rows.clone());
            // What is divided by differences changes its sign when it is transposed.
            product(card, (z, false), (self.square.whole(), true), 0.0, &mut apart, 0..size)?;
            let of = RowErrors {
                z: &on_card.z,
                apart: &apart,
                close: &near,
                cross: &self.cross,
                squares: &self.rows,
                shrink: &shrink,
            };
            kernels.row_errors(of, rows, &mut errors)?;
        }
        let all = errors.first_values(card, n * alphas.len())?;
        Ok(all.chunks_exact(n.max(1)).map(|each| each.iter().sum()).collect())
    }
}
