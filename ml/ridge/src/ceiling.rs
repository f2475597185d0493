//! How well any model could do: what repeats of the same stimulus have in common.
//!
//! With N repeats `R₁ … R_N` of a response and their mean `R̄` (variances over samples, with n − 1):
//!
//! - signal power `SP = (Var(Σ R) − Σ Var(R)) / (N·(N − 1))` (Sahani & Linden 2003; Hsu, Borst & Theunissen 2004);
//! - `CC_max = √(SP / Var(R̄))`, the largest r that a prediction can have with R̄, and `CC_norm = cov(ŷ, R̄) / √(Var(ŷ)·SP)`
//!   (Schoppe et al. 2016);
//! - explainable variance `Var(R̄) / mean Var(R)` of z-scored repeats, less its bias `(1 − EV) / (N − 1)`, as in the
//!   voxelwise tutorials of the Gallant laboratory;
//! - split-half reliability `2r / (1 + r)` (Spearman–Brown), r between the means of the odd and of the even repeats.

use crate::targets::blocks;
use crate::{Error, Result, Scalar, Targets};
use faer::{Mat, MatRef};

/// What repeats have in common, by target. NaN for a target that is constant or not finite in a repeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NoiseCeiling {
    /// SP, in the targets' units squared. It may be below zero where there is no signal.
    pub signal_power: Vec<f64>,
    /// `CC_max`, from 0 to 1: a ceiling of Pearson's r, not of R². Zero where the signal power is not over zero.
    pub cc_max: Vec<f64>,
    /// Explainable variance, a ceiling of R² of a single z-scored repeat. It may be below zero.
    pub explainable_variance: Vec<f64>,
    /// Spearman–Brown's reliability of the mean of all repeats. It may be below zero.
    pub split_half: Vec<f64>,
}

/// The noise ceiling of targets that were measured once for each of `repeats`, `block` targets at a time; `None`
/// (unavailable) where there are fewer than two repeats.
///
/// # Errors
/// Repeats of unlike size; targets that cannot be read.
pub fn noise_ceiling<T: Scalar>(
    repeats: &mut [&mut dyn Targets<T>],
    block: usize,
) -> Result<Option<NoiseCeiling>> {
    let Some((first, others)) = repeats.split_first() else { return Ok(None) };
    let (samples, count) = (first.samples(), first.count());
    for other in others {
        if other.samples() != samples {
            return Err(Error::Samples { what: "a repeat", found: other.samples(), expected: samples });
        }
        if other.count() != count {
            let reason = format!(
                "one has {} targets, the first has {count}; give the same targets in each",
                other.count()
            );
            return Err(Error::Setting { option: "repeats", reason });
        }
    }
    if repeats.len() < 2 {
        return Ok(None);
    }
    if samples < 3 {
        return Err(Error::Samples { what: "a repeat", found: samples, expected: 3 });
    }
    let mut ceiling = NoiseCeiling::default();
    for range in blocks(count, block) {
        let mut values = Vec::with_capacity(repeats.len());
        for repeat in &mut *repeats {
            let mut own = Mat::<T>::zeros(samples, range.len());
            repeat.read(range.clone(), own.as_mut())?;
            values.push(own);
        }
        (0..range.len()).for_each(|j| {
            let column = |m: &Mat<T>| column(m.as_ref(), j);
            ceiling.push(&values.iter().map(column).collect::<Vec<_>>());
        });
    }
    Ok(Some(ceiling))
}

fn column<T: Scalar>(m: MatRef<'_, T>, j: usize) -> Vec<f64> {
    m.col(j).iter().map(|v| v.wide()).collect()
}

/// With n − 1.
fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

fn sum_of<'a>(repeats: impl Iterator<Item = &'a Vec<f64>>, samples: usize) -> Vec<f64> {
    repeats.fold(vec![0.0; samples], |mut sum, repeat| {
        sum.iter_mut().zip(repeat).for_each(|(s, v)| *s += v);
        sum
    })
}

fn z_score(values: &[f64]) -> Vec<f64> {
    let n = values.len() as f64;
    let (mean, spread) = (values.iter().sum::<f64>() / n, (variance(values) * (n - 1.0) / n).sqrt());
    values.iter().map(|v| (v - mean) / spread).collect()
}

impl NoiseCeiling {
    fn push(&mut self, repeats: &[Vec<f64>]) {
        let (n, samples) = (repeats.len() as f64, repeats[0].len());
        let own: Vec<f64> = repeats.iter().map(|repeat| variance(repeat)).collect();
        let unfit = |(repeat, v): (&Vec<f64>, &f64)| !v.is_finite() || repeat.iter().all(|v| *v == repeat[0]);
        if repeats.iter().zip(&own).any(unfit) {
            let all = [
                &mut self.signal_power,
                &mut self.cc_max,
                &mut self.explainable_variance,
                &mut self.split_half,
            ];
            all.into_iter().for_each(|values| values.push(f64::NAN));
            return;
        }
        let total = variance(&sum_of(repeats.iter(), samples));
        let power = (total - own.iter().sum::<f64>()) / (n * (n - 1.0));
        self.signal_power.push(power);
        self.cc_max.push(if power > 0.0 { (power / (total / (n * n))).sqrt().min(1.0) } else { 0.0 });
        let scored: Vec<Vec<f64>> = repeats.iter().map(|repeat| z_score(repeat)).collect();
        let each = scored.iter().map(|repeat| variance(repeat)).sum::<f64>() / n;
        let explained = variance(&sum_of(scored.iter(), samples)) / (n * n) / each;
        self.explainable_variance.push(explained - (1.0 - explained) / (n - 1.0));
        let odd = sum_of(repeats.iter().step_by(2), samples);
        let even = sum_of(repeats.iter().skip(1).step_by(2), samples);
        let r = crate::pearson(&odd, &even);
        self.split_half.push(2.0 * r / (1.0 + r));
    }

    /// `CC_norm` of a target: Pearson's r between `predicted` and the mean of the repeats, as a share of what any
    /// prediction could reach; NaN where the signal power is not over zero.
    pub fn cc_norm(&self, target: usize, predicted: &[f64], mean_of_repeats: &[f64]) -> f64 {
        match self.cc_max.get(target) {
            Some(most) if *most > 0.0 => crate::pearson(mean_of_repeats, predicted) / most,
            _ => f64::NAN,
        }
    }
}
