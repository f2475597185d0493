//! How much of a score each band brings.

use crate::spectrum::product;
use crate::{Error, Result, Scalar};
use faer::MatRef;

/// Scores of samples that no fit has seen, by band, `[n_bands][n_targets]`. NaN for a target that is constant.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitScores {
    /// Parts of R²; see [`r2_split`].
    pub r2: Vec<Vec<f64>>,
    /// Parts of Pearson's r; see [`pearson_split`].
    pub pearson: Vec<Vec<f64>>,
}

fn centred(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|v| v - mean).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The sum of the bands' predictions, about its mean.
fn joint(bands: &[Vec<f64>]) -> Vec<f64> {
    let samples = bands.first().map_or(0, Vec::len);
    (0..samples).map(|i| bands.iter().map(|band| band[i]).sum()).collect()
}

/// The part of each band in R², by the product measure: `Σ(2·y·ŷ_b − ŷ_b·ŷ) / Σy²` with `ŷ = Σ ŷ_b`; the parts sum to
/// R². himalaya's `r2_score_split`, except that y and every ŷ_b are taken about their means over the samples: himalaya
/// asks for data of zero mean. NaN where y is constant.
pub fn r2_split(actual: &[f64], bands: &[Vec<f64>]) -> Vec<f64> {
    let y = centred(actual);
    let bands: Vec<Vec<f64>> = bands.iter().map(|band| centred(band)).collect();
    let (all, total) = (joint(&bands), dot(&y, &y));
    bands
        .iter()
        .map(|band| if total > 0.0 { (2.0 * dot(&y, band) - dot(band, &all)) / total } else { f64::NAN })
        .collect()
}

/// The part of each band in Pearson's r: `cov(y, ŷ_b) / (σ_y·σ_ŷ)` with `ŷ = Σ ŷ_b`; the parts sum to r. himalaya's
/// `correlation_score_split`. NaN where y or ŷ is constant.
pub fn pearson_split(actual: &[f64], bands: &[Vec<f64>]) -> Vec<f64> {
    let y = centred(actual);
    let bands: Vec<Vec<f64>> = bands.iter().map(|band| centred(band)).collect();
    let all = joint(&bands);
    let scale = (dot(&y, &y) * dot(&all, &all)).sqrt();
    bands.iter().map(|band| if scale > 0.0 { dot(&y, band) / scale } else { f64::NAN }).collect()
}

/// Scores of `weights` `[n_features, n_targets]` on samples that the fit has not seen: features `x`
/// `[n_samples, n_features]` with `bands` columns each, targets `y` `[n_samples, n_targets]`.
///
/// # Errors
/// Sizes that do not belong together.
pub fn split_scores<T: Scalar>(
    x: MatRef<'_, T>,
    bands: &[usize],
    weights: MatRef<'_, T>,
    y: MatRef<'_, T>,
) -> Result<SplitScores> {
    let columns: usize = bands.iter().sum();
    if columns != x.ncols() || weights.nrows() != x.ncols() || weights.ncols() != y.ncols() {
        let reason = format!(
            "{bands:?} are {columns} features, the features have {} columns, the coefficients are {} × {} and there are {} \
             targets",
            x.ncols(),
            weights.nrows(),
            weights.ncols(),
            y.ncols()
        );
        return Err(Error::Setting { option: "bands", reason });
    }
    if x.nrows() != y.nrows() {
        return Err(Error::Samples { what: "a target", found: y.nrows(), expected: x.nrows() });
    }
    let mut start = 0;
    let predict = |size: &usize| {
        let band = product(x.subcols(start, *size), weights.subrows(start, *size));
        start += size;
        band
    };
    let predicted: Vec<_> = bands.iter().map(predict).collect();
    let mut scores = SplitScores {
        r2: vec![Vec::with_capacity(y.ncols()); bands.len()],
        pearson: vec![Vec::with_capacity(y.ncols()); bands.len()],
    };
    for target in 0..y.ncols() {
        let column = |m: MatRef<'_, T>| m.col(target).iter().map(|v| v.wide()).collect::<Vec<f64>>();
        let (actual, parts) = (column(y), predicted.iter().map(|p| column(p.as_ref())).collect::<Vec<_>>());
        let into =
            |to: &mut Vec<Vec<f64>>, from: Vec<f64>| to.iter_mut().zip(from).for_each(|(t, f)| t.push(f));
        into(&mut scores.r2, r2_split(&actual, &parts));
        into(&mut scores.pearson, pearson_split(&actual, &parts));
    }
    Ok(scores)
}
