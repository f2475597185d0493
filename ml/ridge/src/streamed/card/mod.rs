//! The back end on an NVIDIA card, in double precision throughout.
//!
//! ```text
//!   X ─► centred ─► XᵀX ─► V, λ ─► Z = XV                                  X is dropped
//!   Y, a block ─copy─► centred ─► M = ZᵀY ─► Σ M·Mᵀ   Σ Y·Mᵀ   Σ y²        copies run beside the products
//!   leave-one-out: both sums ─► squared errors of every penalty             see `alone`; then they are dropped
//!   folds: M and Y of a block ─► scores of every target in every fold      see `folds`
//!   M, kept if it fits ─► D M ─► V D M, back to this machine               and Z_test D M beside it
//! ```

mod alone;
mod folds;
mod penalties;
mod steps;
mod upload;

use crate::spectrum::check_condition;
use crate::{Coefficients, Error, Evidence, Result, RidgeSettings, Scalar, Score};
use alone::Sums;
use faer::{Mat, MatRef};
use folds::Folds;
use rayon::prelude::*;
use std::{ops::Range, sync::Arc};
use upload::upload;
use voxelflow_cuda::{
    Card,
    matrix::{self, Matrix, product},
    regression::{Blocks, Columns, HostNumber, Kernels, Numbers, PinnedBlock},
};

/// Decomposed features on a card.
pub(super) struct OnCard<T> {
    kernels: Kernels,
    settings: RidgeSettings,
    n_samples: usize,
    x_means: Vec<f64>,
    on_card: Decomposed,
    /// None for leave-one-out.
    folds: Option<Folds>,
    pass: Option<Pass<T>>,
    /// Bytes of the card that are used at most, if there is a choice.
    limit: u64,
    held_out: Option<HeldOut>,
}

struct Decomposed {
    /// What maps features to Z, `[n_features, n_values]`.
    basis: Matrix,
    z: Matrix,
    lambdas: Numbers<f64>,
    /// `[n_features, 1]`.
    x_means: Matrix,
}

/// What is on the card during a pass over the targets, and after it.
struct Pass<T> {
    blocks: Blocks<T>,
    by_variance: bool,
    found: Columns,
    /// Of the block at hand, centred.
    y: Matrix,
    /// `ZᵀY`, of all targets if there is room, else of a block.
    products: Matrix,
    keeps: bool,
    complete: bool,
    /// For leave-one-out.
    sums: Option<Sums>,
    fitted: Option<Fitted<T>>,
}

/// Room for the coefficients of a block.
struct Fitted<T> {
    shrunk: Matrix,
    weights: Matrix,
    offsets: Matrix,
    scratch: Numbers<T>,
    host: PinnedBlock<T>,
    columns: usize,
}

struct HeldOut {
    z: Matrix,
    predicted: Matrix,
}

pub(super) fn failed(error: voxelflow_cuda::Error) -> Error {
    Error::Device { reason: error.to_string(), input: error.is_input() }
}

impl<T: Scalar + HostNumber> OnCard<T> {
    pub fn new(card: Arc<Card>, x: MatRef<'_, T>, settings: &RidgeSettings) -> Result<Self> {
        let kernels = Kernels::load(card).map_err(failed)?;
        let card = kernels.card();
        let (n, p) = (x.nrows(), x.ncols());
        let (centred, means) = upload(&kernels, x)?;
        let squared = |of_columns: bool| {
            let mut square = Matrix::zeros(card, n.min(p), n.min(p), "the features' Gram matrix")?;
            matrix::add_square(card, (centred.whole(), of_columns), &mut square)?;
            Ok(square)
        };
        // Where features outnumber the samples the decomposition is of XXᵀ = UΛUᵀ, and V = XᵀU Λ^(−½).
        let wide = n < p;
        let mut basis = squared(!wide).map_err(failed)?;
        let size = basis.rows();
        let lambdas = matrix::eigen(card, &mut basis).map_err(failed)?.ok_or(Error::Eigen { size })?;
        let lambdas: Vec<f64> = lambdas.into_iter().map(|value| value.max(0.0)).collect();
        check_condition(&lambdas, wide, f64::EPSILON, &settings.alphas)?;
        let decomposed = || {
            let mut z = Matrix::zeros(card, n, size, "Z")?;
            if wide {
                let floor = lambdas.last().copied().unwrap_or(0.0) * n as f64 * f64::EPSILON;
                let root = |l: &f64| if *l > floor { 1.0 / l.sqrt() } else { 0.0 };
                let roots = Numbers::of(card, &lambdas.iter().map(root).collect::<Vec<_>>(), "eigenvalues")?;
                let mut mapped = Matrix::zeros(card, p, size, "V")?;
                product(card, (centred.whole(), true), (basis.whole(), false), 0.0, &mut mapped, 0..size)?;
                kernels.scale_columns(&mut mapped, &roots)?;
                basis = mapped;
            }
            product(card, (centred.whole(), false), (basis.whole(), false), 0.0, &mut z, 0..size)?;
            let x_means = Matrix::of(card, &means, p, "means")?;
            let on_card = Numbers::of(card, &lambdas, "eigenvalues")?;
            card.wait()?;
            Ok(Decomposed { basis, z, lambdas: on_card, x_means })
        };
        let on_card = decomposed().map_err(failed)?;
        drop(centred);
        let folds = Folds::of(&kernels, settings, (&on_card, &lambdas))?;
        Ok(Self {
            kernels,
            settings: settings.clone(),
            n_samples: n,
            x_means: means,
            on_card,
            folds,
            pass: None,
            limit: u64::MAX,
            held_out: None,
        })
    }

    /// Centres a block and multiplies it with Z; says where among the products it went.
    fn products(&mut self, range: &Range<usize>, values: &[T]) -> voxelflow_cuda::Result<usize> {
        let Self { kernels, on_card, pass: Some(pass), .. } = self else { return Ok(0) };
        let card = kernels.card();
        let to = if pass.keeps { range.start } else { 0 };
        let found = (&mut pass.found, range.start);
        let block = pass.blocks.copy(card, values)?;
        let epsilon = <T as HostNumber>::EPSILON;
        kernels.centre(block, range.len(), (&mut pass.y, 0), found, pass.by_variance, epsilon)?;
        pass.blocks.release(card)?;
        let y = pass.y.of_columns(0..range.len());
        product(card, (on_card.z.whole(), true), (y, false), 0.0, &mut pass.products, to..to + range.len())?;
        Ok(to)
    }

    fn add_block(&mut self, range: &Range<usize>, values: &[T]) -> voxelflow_cuda::Result<()> {
        let to = self.products(range, values)?;
        let Self { kernels, folds, pass: Some(Pass { sums, y, products, blocks, found, .. }), .. } = self
        else {
            return Ok(());
        };
        let card = kernels.card();
        if let Some(folds) = folds {
            folds.add(kernels, y, (products, to), (range, found))?;
        }
        if let Some(sums) = sums {
            sums.add(kernels, (y, range.len()), products.of_columns(to..to + range.len()))?;
        }
        blocks.done(card)
    }

    /// What the targets that passed say about the penalties, and the mean score of each penalty.
    fn found(&mut self) -> voxelflow_cuda::Result<(Evidence<T>, Vec<f64>)> {
        let Self { kernels, pass: Some(Pass { found, .. }), .. } = self else {
            return Ok((Evidence::default(), Vec::new()));
        };
        let squares = found.squares.get(kernels.card(), 0..found.squares.len())?;
        let count = squares.len();
        let unfit: Vec<usize> = (0..count).filter(|target| squares[*target] == 0.0).collect();
        let mut evidence = Evidence::default();
        (evidence.count, evidence.unfit) = (count, unfit);
        if let Some(folds) = &self.folds {
            let (scores, n_scored) = folds.scores(&self.kernels)?;
            let means = means(&scores, &n_scored, &squares, self.settings.alphas.len());
            evidence.scores = scores;
            return Ok((evidence, means));
        }
        let fitted = (count - evidence.unfit.len()) as f64;
        let errors = self.errors()?;
        let score = |sum: f64| match self.settings.score {
            Score::R2 => 1.0 - sum / fitted,
            Score::NegMeanSquaredError | Score::Pearson => -sum / fitted / self.n_samples as f64,
        };
        Ok((evidence, errors.into_iter().map(score).collect()))
    }

    /// Squared errors of leave-one-out, summed over samples and targets, by penalty.
    fn errors(&mut self) -> voxelflow_cuda::Result<Vec<f64>> {
        let Self { kernels, settings, on_card, pass: Some(pass), n_samples: n, .. } = self else {
            return Ok(Vec::new());
        };
        let Some(sums) = pass.sums.take() else { return Ok(Vec::new()) };
        // As many rows at once as the centred targets, which are of no more use, had values.
        let at_once = (pass.y.rows() * pass.y.columns() / on_card.z.columns().max(1)).clamp(1, *n);
        pass.y = Matrix::zeros(kernels.card(), 0, 0, "centred targets")?;
        sums.errors(kernels, on_card, &settings.alphas, at_once)
    }

    /// Room of what chose the penalties is given back; a block of targets keeps its own if they will be centred again.
    fn end_choice(&mut self) -> voxelflow_cuda::Result<()> {
        let Self { kernels, folds, pass: Some(pass), n_samples, .. } = self else { return Ok(()) };
        if let Some(folds) = folds {
            folds.end(kernels)?;
        }
        let columns = if pass.keeps { 0 } else { pass.products.columns() };
        if pass.y.columns() != columns {
            pass.y = Matrix::zeros(kernels.card(), *n_samples, columns, "centred targets")?;
        }
        Ok(())
    }

    fn coefficients(
        &mut self,
        range: Range<usize>,
        alphas: &[f64],
        values: Option<&[T]>,
    ) -> voxelflow_cuda::Result<Coefficients<T>> {
        let at = match values {
            Some(values) => self.products(&range, values)?,
            None => range.start,
        };
        let Self { kernels, on_card, pass: Some(pass), .. } = self else {
            return Err(voxelflow_cuda::Error::failed("a fit", "no targets were read"));
        };
        let (card, count) = (kernels.card(), range.len());
        let (p, size) = (on_card.basis.rows(), on_card.basis.columns());
        if pass.fitted.as_ref().is_none_or(|fitted| fitted.columns < count) {
            pass.fitted = Some(Fitted {
                shrunk: Matrix::zeros(card, size, count, "coefficients")?,
                weights: Matrix::zeros(card, p, count, "coefficients")?,
                offsets: Matrix::zeros(card, count, 1, "coefficients")?,
                scratch: Numbers::zeros(card, p * count, "coefficients")?,
                host: PinnedBlock::zeros(card, p * count)?,
                columns: count,
            });
        }
        let Some(fitted) = &mut pass.fitted else { unreachable!("it was made") };
        let penalties = Numbers::of(card, alphas, "penalties")?;
        let scales = (&pass.found.scales, range.start);
        let from = (&pass.products, at);
        kernels.shrink(from, &on_card.lambdas, &penalties, scales, count, &mut fitted.shrunk)?;
        let shrunk = fitted.shrunk.of_columns(0..count);
        product(card, (on_card.basis.whole(), false), (shrunk, false), 0.0, &mut fitted.weights, 0..count)?;
        let weights = fitted.weights.of_columns(0..count);
        product(card, (weights, true), (on_card.x_means.whole(), false), 0.0, &mut fitted.offsets, 0..1)?;
        if values.is_some() {
            pass.blocks.done(card)?;
        }
        let flat = &mut fitted.host.values()?[..p * count];
        kernels.to_host(&fitted.weights, count, &mut fitted.scratch, flat)?;
        let host = owned(flat, p);
        let offsets = fitted.offsets.first_values(card, count)?;
        let means = pass.found.means.get(card, range.clone())?;
        let intercepts = means.iter().zip(&offsets).map(|(mean, offset)| mean - offset).collect();
        Ok(Coefficients { range, weights: host, intercepts, scores: Vec::new() })
    }
}

/// The mean score of each penalty over all folds of targets that are not constant, as many of each as it has a score in.
fn means(scores: &[Vec<f64>], folds: &[f64], squares: &[f64], alphas: usize) -> Vec<f64> {
    let (mut sums, mut fitted) = (vec![0.0; alphas], 0.0);
    for ((own, folds), _) in scores.iter().zip(folds).zip(squares).filter(|(_, square)| **square > 0.0) {
        if own.iter().all(|score| score.is_finite()) {
            sums.iter_mut().zip(own).for_each(|(sum, score)| *sum += folds * score);
            fitted += folds;
        }
    }
    sums.into_iter().map(|sum| sum / fitted).collect()
}

/// A matrix of `values`, column by column; its columns are written by all threads, since fresh pages cost most.
pub(super) fn owned<T: Scalar>(values: &[T], rows: usize) -> Mat<T> {
    let mut matrix = Mat::zeros(rows, values.len() / rows.max(1));
    matrix.par_col_iter_mut().zip(values.par_chunks_exact(rows.max(1))).for_each(|(into, from)| {
        into.iter_mut().zip(from).for_each(|(into, from)| *into = *from);
    });
    matrix
}
