//! Who does what: decompositions are dealt out, and ranks that have more of them get fewer targets.
//!
//! Costs are multiply-adds of matrix products; an eigendecomposition counts as that many products of its size as it
//! takes the time of.

use crate::message::Number;
use std::ops::Range;
use voxelflow_ridge::Prepared;

/// Multiply-adds in f64 that take as long as an eigendecomposition of a matrix of m rows, in m³: much of it is no matrix
/// product.
const EIGEN: f64 = 7.0;

/// What a fit costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    /// Samples, features, the smaller of both.
    pub n: f64,
    pub p: f64,
    pub v: f64,
    pub alphas: f64,
    /// Folds; 0 for leave-one-out.
    pub folds: usize,
    /// Leave-one-out with one penalty for all targets, without predictions.
    pub without_predictions: bool,
    /// How many multiply-adds of the fit's own type take as long as one in f64.
    pub wide: f64,
}

impl Costs {
    pub fn of<T: Number>(prepared: &Prepared<T>, alphas: usize, without_predictions: bool) -> Self {
        let [n, p] = prepared.shape();
        let folds = prepared.decompositions() - 1;
        let (n, p, alphas) = (n as f64, p as f64, alphas as f64);
        Self { n, p, v: n.min(p), alphas, folds, without_predictions, wide: 8.0 / T::BYTES as f64 }
    }

    fn decomposition(&self, number: usize) -> f64 {
        let (k, wide) =
            (self.folds.max(1) as f64, if self.n < self.p { self.n * self.n * self.p } else { 0.0 });
        let eigen = EIGEN * self.wide * self.v.powi(3) + wide;
        match (number, self.folds) {
            (0, 0) => eigen + self.n * self.p * self.v,
            (0, _) => eigen,
            // The Gram matrix of what is held out, and its samples in the basis.
            _ => eigen + self.n / k * self.p * (self.p / 2.0 + self.v),
        }
    }

    /// Of a target that is read once.
    fn target(&self) -> f64 {
        let Self { n, p, v, alphas, .. } = *self;
        let fit = p * v;
        fit + match (self.folds, self.without_predictions) {
            (0, true) => 2.0 * n * v + v * v / 2.0,
            (0, false) => (1.0 + alphas) * n * v,
            (k, _) => 2.0 * n * p + p * v + n * v + k as f64 * (p * v + self.wide * v * v),
        }
    }

    /// The targets of each rank.
    pub fn shares(&self, targets: usize, world: usize) -> Vec<Range<usize>> {
        let mut own = vec![0.0; world];
        for number in 0..=self.folds {
            own[number % world] += self.decomposition(number);
        }
        level(targets, self.target(), &own)
    }
}

/// Ranges of `targets`, each of which costs `each`, after which all have done as much as can be; `own`: what they do
/// besides.
fn level(targets: usize, each: f64, own: &[f64]) -> Vec<Range<usize>> {
    let all = targets as f64 * each;
    let mut order: Vec<f64> = own.to_vec();
    order.sort_unstable_by(f64::total_cmp);
    // Water finds its level: as many of those with least as it takes to hold all.
    let (mut below, mut height) = (0.0, f64::INFINITY);
    for (taken, next) in order.iter().enumerate() {
        if height <= *next {
            break;
        }
        below += next;
        height = (all + below) / (taken + 1) as f64;
    }
    let (mut done, mut end) = (0.0, 0);
    let ranges = own.iter().enumerate().map(|(rank, own)| {
        done += (height - own).max(0.0) / each;
        let start = end;
        end = if rank + 1 == order.len() { targets } else { (done.round() as usize).clamp(start, targets) };
        start..end
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_decomposes_has_fewer_targets() {
        assert_eq!(level(10, 1.0, &[0.0, 0.0]), [0..5, 5..10]);
        assert_eq!(level(10, 1.0, &[4.0, 0.0]), [0..3, 3..10]);
        assert_eq!(level(10, 1.0, &[40.0, 0.0, 0.0]), [0..0, 0..5, 5..10]);
        assert_eq!(level(0, 1.0, &[1.0, 0.0]), [0..0, 0..0]);
        assert_eq!(level(7, 2.0, &[0.0]).first(), Some(&(0..7)));
    }

    #[test]
    fn shares_tile_the_targets() {
        let costs = Costs {
            n: 800.0,
            p: 200.0,
            v: 200.0,
            alphas: 11.0,
            folds: 0,
            without_predictions: true,
            wide: 2.0,
        };
        for (targets, world) in [(20_000, 4), (3, 4), (1, 1), (0, 2)] {
            let shares = costs.shares(targets, world);
            assert_eq!(shares.len(), world);
            assert_eq!((shares[0].start, shares[world - 1].end), (0, targets));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
        let shares = costs.shares(20_000, 4);
        assert!(shares[0].len() < shares[3].len() && !shares[0].is_empty(), "{shares:?}");
        let folds = Costs { folds: 3, without_predictions: false, ..costs };
        let shares = folds.shares(8_000, 4);
        assert!(shares.iter().all(|share| (1_900..2_100).contains(&share.len())), "{shares:?}");
    }
}
