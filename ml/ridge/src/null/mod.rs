//! Is a prediction better than chance? Correlations on held-out samples against those of rearranged predictions.
//!
//! What is rearranged is the *predictions of the test set*, the fit stays: the question is whether held-out responses
//! follow the prediction, given a model that has not seen them. It costs `n·t` multiplications a permutation, no
//! decomposition and no product. The paper's other question, what a whole fit reaches on responses that do not belong
//! to the features, is asked with [`Permuted`] targets: one `RidgeCv`, decomposed once, chooses and fits as many of
//! them as are wanted.
//!
//! Neighbouring volumes are alike, so a free shuffle makes a null that is too narrow; blocks and circular shifts within
//! runs keep the likeness. All targets are rearranged alike, so the largest r over targets in each rearrangement is the
//! null of the largest (Nichols & Holmes 2002), and p-values of it hold for the whole family.

mod order;

pub use order::{Rearrangement, rearrangements};

use crate::{Error, Result, Scalar, Targets};
use faer::{Mat, MatMut, MatRef};
use rayon::prelude::*;
use std::ops::Range;

/// Targets that are worked on at once: their sums lie in registers.
const PANEL: usize = 16;
/// Differences of r that are rounding: what is nearer counts as equal, which only ever makes p larger.
const ROUNDING: f64 = 1e-12;

/// A test that takes targets block by block.
#[derive(Clone, Debug)]
pub struct NullTest {
    orders: Vec<Vec<u32>>,
    r: Vec<f64>,
    /// Rearrangements that reach r.
    reached: Vec<u32>,
    /// The largest r of each rearrangement.
    largest: Vec<f64>,
}

/// What a test found, by target. NaN for targets whose responses or predictions are constant or not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct NullResult {
    /// Pearson's r.
    pub r: Vec<f64>,
    /// One-sided: `(b + 1) / (m + 1)` where b of m rearrangements reach r.
    pub p: Vec<f64>,
    /// The same against the largest r over all targets: the chance that any target reaches r where none is predicted.
    pub p_family: Vec<f64>,
    /// p adjusted for the false discovery rate, see [`false_discovery`].
    pub q: Vec<f64>,
    /// m.
    pub rearrangements: usize,
}

impl NullTest {
    /// With the orders of [`rearrangements`] over the test samples.
    ///
    /// # Errors
    /// No orders, or some that are none of the same samples.
    pub fn new(orders: Vec<Vec<u32>>) -> Result<Self> {
        let samples = orders.first().map_or(0, Vec::len);
        for order in &orders {
            let mut seen = vec![false; samples];
            order.iter().for_each(|i| {
                if let Some(seen) = seen.get_mut(*i as usize) {
                    *seen = true
                }
            });
            if order.len() != samples || seen.contains(&false) {
                let reason =
                    format!("one is not an order of {samples} samples; make them with `rearrangements`");
                return Err(Error::Setting { option: "orders", reason });
            }
        }
        if samples < 3 {
            return Err(Error::Samples { what: "a rearrangement", found: samples, expected: 3 });
        }
        let largest = vec![f64::NEG_INFINITY; orders.len()];
        Ok(Self { orders, r: Vec::new(), reached: Vec::new(), largest })
    }

    /// Takes the next targets: responses and predictions of the test samples, `[n_samples, n_targets]`. The result does
    /// not depend on how targets are cut into blocks, nor on threads.
    ///
    /// # Errors
    /// Sizes that do not belong together.
    pub fn add<T: Scalar>(&mut self, actual: MatRef<'_, T>, predicted: MatRef<'_, T>) -> Result<()> {
        let expected = self.orders[0].len();
        for (what, m) in [("a target", actual), ("a prediction", predicted)] {
            if m.nrows() != expected {
                return Err(Error::Samples { what, found: m.nrows(), expected });
            }
        }
        if actual.ncols() != predicted.ncols() {
            let reason = format!("{} for {} targets", predicted.ncols(), actual.ncols());
            return Err(Error::Setting { option: "predictions", reason });
        }
        let panels: Vec<usize> = (0..actual.ncols()).step_by(PANEL).collect();
        let orders = &self.orders;
        let found: Vec<Panel> =
            panels.par_iter().map(|start| Panel::of(actual, predicted, *start, orders)).collect();
        for panel in found {
            self.r.extend(panel.r);
            self.reached.extend(panel.reached);
            self.largest.iter_mut().zip(panel.largest).for_each(|(all, own)| *all = all.max(own));
        }
        Ok(())
    }

    /// The largest r of each rearrangement so far: whoever has a share of the targets puts the largest of all shares
    /// here, before [`Self::finish`].
    pub fn largest_mut(&mut self) -> &mut [f64] {
        &mut self.largest
    }

    /// After the last target.
    pub fn finish(self) -> NullResult {
        let m = self.orders.len() as f64;
        let mut sorted = self.largest;
        sorted.sort_unstable_by(f64::total_cmp);
        let family = |r: &f64| {
            let below = sorted.partition_point(|largest| *largest < r - ROUNDING);
            if r.is_nan() { f64::NAN } else { ((sorted.len() - below) as f64 + 1.0) / (m + 1.0) }
        };
        let own =
            |(r, b): (&f64, &u32)| if r.is_nan() { f64::NAN } else { (f64::from(*b) + 1.0) / (m + 1.0) };
        let p: Vec<f64> = self.r.iter().zip(&self.reached).map(own).collect();
        let (p_family, q) = (self.r.iter().map(family).collect(), false_discovery(&p));
        NullResult { r: self.r, p, p_family, q, rearrangements: sorted.len() }
    }
}

/// Some neighbouring targets under all rearrangements.
struct Panel {
    r: Vec<f64>,
    reached: Vec<u32>,
    largest: Vec<f64>,
}

impl Panel {
    fn of<T: Scalar>(y: MatRef<'_, T>, p: MatRef<'_, T>, start: usize, orders: &[Vec<u32>]) -> Self {
        let width = PANEL.min(y.ncols() - start);
        let (y, p) = (unit_columns(y, start, width), unit_columns(p, start, width));
        let correlate = |order: &mut dyn Iterator<Item = usize>| {
            let mut sums = [0.0; PANEL];
            for (y, from) in y.iter().zip(order) {
                sums.iter_mut().zip(y).zip(&p[from]).for_each(|((sum, y), p)| *sum += y * p);
            }
            sums
        };
        let r = correlate(&mut (0..y.len()));
        let (mut reached, mut largest) = (vec![0; width], Vec::with_capacity(orders.len()));
        for order in orders {
            let null = correlate(&mut order.iter().map(|i| *i as usize));
            let of_panel = null.iter().zip(&r).zip(&mut reached);
            of_panel.for_each(|((null, r), reached)| *reached += u32::from(*null >= r - ROUNDING));
            // `max` passes NaN over.
            largest.push(null[..width].iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
        Self { r: r[..width].to_vec(), reached, largest }
    }
}

/// Columns less their means and divided by their lengths, sample by sample; NaN where a column is constant.
fn unit_columns<T: Scalar>(m: MatRef<'_, T>, start: usize, width: usize) -> Vec<[f64; PANEL]> {
    let mut rows = vec![[0.0; PANEL]; m.nrows()];
    for j in 0..width {
        let column = m.col(start + j);
        let first = column[0];
        let constant = column.iter().all(|v| *v == first);
        let mean = column.iter().map(|v| v.wide()).sum::<f64>() / m.nrows() as f64;
        let length = column.iter().map(|v| (v.wide() - mean).powi(2)).sum::<f64>().sqrt();
        let scale = if constant || length == 0.0 { f64::NAN } else { 1.0 / length };
        rows.iter_mut().zip(column.iter()).for_each(|(row, v)| row[j] = (v.wide() - mean) * scale);
    }
    rows
}

/// p-values adjusted for the false discovery rate (Benjamini & Hochberg 1995): those of at most `q` together have an
/// expected share of at most `q` false ones, where tests are independent or positively dependent. NaN stays and is no
/// test.
pub fn false_discovery(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).filter(|i| !p[*i].is_nan()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut least: f64 = 1.0;
    for (rank, i) in order.iter().enumerate().rev() {
        least = least.min(p[*i] * order.len() as f64 / (rank + 1) as f64);
        adjusted[*i] = least;
    }
    adjusted
}

/// Targets with their samples in another order: what a fit reaches on responses that do not belong to the features.
pub struct Permuted<'a, T> {
    targets: &'a mut dyn Targets<T>,
    order: &'a [u32],
}

impl<'a, T: Scalar> Permuted<'a, T> {
    /// Sample i becomes what was sample `order[i]`.
    ///
    /// # Errors
    /// An order of another number of samples.
    pub fn new(targets: &'a mut dyn Targets<T>, order: &'a [u32]) -> Result<Self> {
        let (found, expected) = (order.len(), targets.samples());
        if found != expected || order.iter().any(|i| *i as usize >= expected) {
            return Err(Error::Samples { what: "a rearrangement", found, expected });
        }
        Ok(Self { targets, order })
    }
}

impl<T: Scalar> Targets<T> for Permuted<'_, T> {
    fn samples(&self) -> usize {
        self.targets.samples()
    }
    fn count(&self) -> usize {
        self.targets.count()
    }
    fn read(&mut self, range: Range<usize>, mut into: MatMut<'_, T>) -> Result<()> {
        let mut own = Mat::zeros(self.targets.samples(), range.len());
        self.targets.read(range, own.as_mut())?;
        for (to, from) in into.as_mut().col_iter_mut().zip(own.col_iter()) {
            to.iter_mut().zip(self.order).for_each(|(to, i)| *to = from[*i as usize]);
        }
        Ok(())
    }
}
