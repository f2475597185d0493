//! Scaling of series: z-scores and percent signal change, as `nilearn.signal.standardize_signal`.

use crate::{
    Standardize,
    lanes::{LANES, Lanes, add, mean, scale, subtract},
};

/// Standardises a block of series, `[time_points][LANES]`.
///
/// `original_mean` is given when a step before has removed the mean, so that percent signal change still
/// refers to it.
pub(crate) fn standardize(block: &mut [Lanes], how: Standardize, original_mean: Option<&Lanes>) {
    let n = block.len();
    match how {
        Standardize::None => {}
        Standardize::ZscoreSample => zscore(block, n.saturating_sub(1)),
        Standardize::Zscore => zscore(block, n),
        Standardize::Psc => {
            if let Some(original) = original_mean {
                add(block, original);
            }
            percent_signal_change(block);
        }
    }
}

/// `(x − x̄) / √(Σ(x − x̄)² / divisor)`; a deviation under the machine epsilon counts as 1.
fn zscore(block: &mut [Lanes], divisor: usize) {
    subtract(block, &mean(block));
    // The mean of what is left is subtracted once more in the variance only, as numpy's `std` does.
    let rest = mean(block);
    let mut squares = [0.0; LANES];
    for values in block.iter() {
        for ((s, x), m) in squares.iter_mut().zip(values).zip(&rest) {
            *s += (x - m) * (x - m);
        }
    }
    let divisor = divisor.max(1) as f64;
    scale(
        block,
        &squares.map(|s| {
            let deviation = (s / divisor).sqrt();
            if deviation < f64::EPSILON { 1.0 } else { deviation.recip() }
        }),
    );
}

/// `100 (x − x̄) / |x̄|`; series without a mean become zero.
fn percent_signal_change(block: &mut [Lanes]) {
    let mean = mean(block);
    subtract(block, &mean);
    scale(block, &mean.map(|m| if m.abs() < f64::EPSILON { 0.0 } else { 100.0 / m.abs() }));
}

/// One series in place, with divisor `n − 1`; a deviation under the machine epsilon counts as 1.
pub(crate) fn zscore_one(column: &mut [f64]) {
    let n = column.len() as f64;
    let mean = column.iter().sum::<f64>() / n;
    column.iter_mut().for_each(|x| *x -= mean);
    let deviation = (column.iter().map(|x| x * x).sum::<f64>() / (n - 1.0)).sqrt();
    if deviation >= f64::EPSILON {
        column.iter_mut().for_each(|x| *x /= deviation);
    }
}
