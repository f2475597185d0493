//! What streamed ridge asks of a back end, on a card.

use super::{HeldOut, OnCard, Pass, alone::Sums, failed};
use crate::streamed::backend::{Backend, Staging};
use crate::streamed::plan::{FoldSizes, StreamShape};
use crate::{Coefficients, Evidence, Result, Scalar, Score};
use faer::MatRef;
use std::ops::Range;
use voxelflow_cuda::{
    matrix::{Matrix, product},
    regression::{Blocks, Columns, HostNumber, Numbers, PinnedBlock},
};

struct Locked<T>(PinnedBlock<T>);

impl<T: HostNumber> Staging<T> for Locked<T> {
    fn values(&mut self) -> Result<&mut [T]> {
        self.0.values().map_err(failed)
    }
}

impl<T: Scalar + HostNumber> Backend<T> for OnCard<T> {
    fn staging(&self, len: usize) -> Result<Box<dyn Staging<T>>> {
        Ok(Box::new(Locked(PinnedBlock::zeros(self.kernels.card(), len).map_err(failed)?)))
    }

    fn limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    fn begin(&mut self, count: usize, largest: usize) -> Result<()> {
        self.pass = None;
        let Self { kernels, settings, folds, n_samples: n, .. } = self;
        let (card, n, size) = (kernels.card(), *n, self.on_card.z.columns());
        let mut begun = || {
            card.wait()?;
            let shape = StreamShape {
                n_samples: n,
                n_features: self.x_means.len(),
                n_targets: count,
                block: largest,
                n_alphas: settings.alphas.len(),
                n_held_out: 0,
                folds: FoldSizes::of(&settings.cv),
                number_bytes: size_of::<T>(),
            };
            let [all, beside] = [true, false].map(|whole| shape.on_card(true, whole));
            let keeps = beside <= card.memory()?.0 as u64 && all <= self.limit;
            let zeros = |rows, columns, what| Matrix::zeros(card, rows, columns, what);
            let sums = match folds {
                Some(folds) => {
                    folds.begin(kernels, count, largest)?;
                    None
                }
                None => Some(Sums::zeros(kernels, n, size)?),
            };
            Ok(Pass {
                blocks: Blocks::new(card, n * largest)?,
                // Scores of folds are of each target by itself.
                by_variance: sums.is_some() && settings.score == Score::R2,
                found: Columns::zeros(card, count)?,
                y: zeros(n, largest, "centred targets")?,
                products: zeros(size, if keeps { count } else { largest }, "products of targets")?,
                keeps,
                complete: false,
                sums,
                fitted: None,
            })
        };
        self.pass = Some(begun().map_err(failed)?);
        Ok(())
    }

    fn add(&mut self, range: Range<usize>, values: &[T]) -> Result<()> {
        self.add_block(&range, values).map_err(failed)
    }

    fn finish(&mut self) -> Result<f64> {
        let card = self.kernels.card();
        let Some(pass) = &mut self.pass else { return Ok(0.0) };
        pass.complete = pass.keeps;
        pass.blocks.finish(card).map_err(failed)
    }

    fn evidence(&mut self) -> Result<(Evidence<T>, Vec<f64>)> {
        let (evidence, mean_scores) = self.found().map_err(failed)?;
        self.end_choice().map_err(failed)?;
        Ok((evidence, mean_scores))
    }

    fn has_products(&self) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.complete)
    }

    fn hold_out(&mut self, x: MatRef<'_, T>) -> Result<()> {
        let card = self.kernels.card();
        let rows = x.nrows();
        let of = |(column, mean): (faer::ColRef<'_, T>, &f64)| {
            let mean = *mean;
            column.iter().map(move |value| value.wide() - mean).collect::<Vec<_>>()
        };
        let centred: Vec<f64> = x.col_iter().zip(&self.x_means).flat_map(of).collect();
        let projected = || {
            let x = Matrix::of(card, &centred, rows, "held-out features")?;
            let size = self.on_card.basis.columns();
            let mut z = Matrix::zeros(card, rows, size, "held-out features")?;
            product(card, (x.whole(), false), (self.on_card.basis.whole(), false), 0.0, &mut z, 0..size)?;
            card.wait()?;
            Ok(HeldOut { z, predicted: Matrix::zeros(card, 0, 0, "predictions")? })
        };
        self.held_out = Some(projected().map_err(failed)?);
        Ok(())
    }

    fn fit(&mut self, range: Range<usize>, alphas: &[f64], values: Option<&[T]>) -> Result<Coefficients<T>> {
        self.coefficients(range, alphas, values).map_err(failed)
    }

    fn correlations(&mut self, actual: &[T]) -> Result<Vec<f64>> {
        let card = self.kernels.card();
        let (Some(held_out), Some(Pass { fitted: Some(fitted), .. })) = (&mut self.held_out, &self.pass)
        else {
            return Ok(Vec::new());
        };
        let rows = held_out.z.rows();
        let count = actual.len() / rows.max(1);
        let mut correlated = || {
            if held_out.predicted.columns() < count {
                held_out.predicted = Matrix::zeros(card, rows, count, "predictions")?;
            }
            let shrunk = fitted.shrunk.of_columns(0..count);
            product(
                card,
                (held_out.z.whole(), false),
                (shrunk, false),
                0.0,
                &mut held_out.predicted,
                0..count,
            )?;
            let actual = Numbers::of(card, actual, "held-out targets")?;
            let mut found = Numbers::zeros(card, count, "correlations")?;
            self.kernels.correlate(&actual, &held_out.predicted, count, &mut found)?;
            found.get(card, 0..count)
        };
        correlated().map_err(failed)
    }
}
