//! Sums over values, weighted for every penalty: products with as few columns as there are penalties, for which libraries of
//! large products are slow, and whose other factor is made on the way, so that it is never in memory.

use faer::{Mat, MatRef};
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

/// Rows whose sums for some ten penalties stay in the first cache.
const ROWS: usize = 256;
/// Values that are added at once, so that sums are loaded and stored that many times less.
const TOGETHER: usize = 4;

/// `Σⱼ tᵢⱼ dⱼₐ`, `[rows, n_alphas]`, with d `[n_values, n_alphas]`; `fill(j, first, into)` puts `tᵢⱼ` of the rows from `first` on
/// into a slice. Every sum is in the order of the values, whichever thread makes it.
pub(crate) fn sums_by_penalty(
    rows: usize,
    d: MatRef<'_, f64>,
    fill: impl Fn(usize, usize, &mut [f64]) + Sync,
) -> Mat<f64> {
    let (arch, fill) = (Arch::new(), &fill);
    let chunk = |first: usize| arch.dispatch(Chunk { first, count: ROWS.min(rows - first), d, fill });
    let chunks: Vec<Vec<f64>> = (0..rows.div_ceil(ROWS)).into_par_iter().map(|at| chunk(at * ROWS)).collect();
    let mut found = Mat::zeros(rows, d.ncols());
    for (at, sums) in chunks.iter().enumerate() {
        let count = ROWS.min(rows - at * ROWS);
        for (column, sums) in found.col_iter_mut().zip(sums.chunks_exact(count)) {
            let own = column.subrows_mut(at * ROWS, count);
            own.iter_mut().zip(sums).for_each(|(to, sum)| *to = *sum);
        }
    }
    found
}

/// Rows whose sums are made together.
struct Chunk<'a, F> {
    first: usize,
    count: usize,
    d: MatRef<'a, f64>,
    fill: &'a F,
}

impl<F: Fn(usize, usize, &mut [f64])> NullaryFnOnce for Chunk<'_, F> {
    type Output = Vec<f64>;

    /// The sums, penalty by penalty. In line, or it would not be compiled for the vectors of the machine.
    #[inline(always)]
    fn call(self) -> Vec<f64> {
        let Self { first, count, d, fill } = self;
        let (values, alphas) = (d.nrows(), d.ncols());
        let mut sums = vec![0.0; count * alphas];
        let mut terms = vec![0.0; count * TOGETHER];
        for from in (0..values).step_by(TOGETHER) {
            let here = TOGETHER.min(values - from);
            for (at, into) in terms.chunks_exact_mut(count).enumerate().take(here) {
                fill(from + at, first, into);
            }
            for (alpha, sums) in sums.chunks_exact_mut(count).enumerate() {
                let weight = |at: usize| if at < here { d[(from + at, alpha)] } else { 0.0 };
                add(sums, &terms, [weight(0), weight(1), weight(2), weight(3)]);
            }
        }
        sums
    }
}

#[inline(always)]
fn add(sums: &mut [f64], terms: &[f64], weights: [f64; TOGETHER]) {
    let (a, rest) = terms.split_at(sums.len());
    let (b, rest) = rest.split_at(sums.len());
    let (c, d) = rest.split_at(sums.len());
    for ((((sum, a), b), c), d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *sum += (weights[0] * a + weights[1] * b) + (weights[2] * c + weights[3] * d);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_a_product() {
        for (rows, values, alphas) in
            [(1, 1, 1), (255, 3, 2), (256, 4, 11), (700, 41, 11), (5, 0, 3), (0, 7, 2)]
        {
            let t = Mat::from_fn(rows, values, |i, j| ((i * 31 + j * 17) % 101) as f64 - 50.0);
            let d = Mat::from_fn(values, alphas, |j, a| 1.0 / (j + a + 1) as f64);
            let found = sums_by_penalty(rows, d.as_ref(), |j, first, into| {
                into.iter_mut().enumerate().for_each(|(i, into)| *into = t[(first + i, j)]);
            });
            let expected = &t * &d;
            for a in 0..alphas {
                for i in 0..rows {
                    assert!(
                        (found[(i, a)] - expected[(i, a)]).abs() < 1e-10,
                        "{rows} {values} {alphas}: {i} {a}"
                    );
                }
            }
        }
    }
}
