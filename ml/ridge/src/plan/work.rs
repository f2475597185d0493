//! What each phase of a fit computes and holds.

use super::allocator::{EIGEN_COPIES, GRAM_ROWS, fresh, of_process};
use super::{Precision, Workload};
use crate::{CrossValidation, Score};

/// What is to be computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Multiplications and additions of Gram matrices `XᵀX`, in f64; half of a whole product's.
    pub gram: f64,
    /// Of kernels `XXᵀ`, in f64; half of a whole product's.
    pub kernel: f64,
    /// Of products `A · B` and `Aᵀ · B`.
    pub product: f64,
    /// Of products `A · Bᵀ`.
    pub outer: f64,
    /// Of `A · Aᵀ`; half of a whole product's.
    pub square: f64,
    /// Of products in f64, whatever the precision.
    pub wide: f64,
    /// Of sums over values, weighted for every penalty, in f64.
    pub penalties: f64,
    /// Sizes of the matrices whose eigenvectors are wanted.
    pub eigen: Vec<usize>,
    /// Numbers that are written or summed by passes over a matrix.
    pub pass: f64,
    /// Numbers of targets that are centred.
    pub centre: f64,
    /// Numbers that scores are summed over.
    pub score: f64,
    /// Bytes of matrices that are so large that the system gives their memory anew.
    pub fresh: f64,
}

/// A part of a fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// What it does.
    pub name: &'static str,
    /// What it computes.
    pub work: Work,
    /// The most that is held in it.
    pub bytes: u64,
}

/// Samples whose leave-one-out errors are looked at together.
const ROWS: f64 = 1024.0;
/// Sizes as numbers that do not overflow.
struct Sizes {
    n: f64,
    p: f64,
    /// Values of a decomposition.
    k: f64,
    t: f64,
    /// Targets of a block.
    b: f64,
    alphas: f64,
    /// Bytes of a number.
    s: f64,
}

impl Sizes {
    /// Blocks of targets.
    fn blocks(&self) -> f64 {
        (self.t / self.b.max(1.0)).ceil()
    }
}

impl Workload {
    /// The phases of a fit on this machine, in their order.
    pub fn phases(&self) -> Vec<Phase> {
        let settings = &self.settings;
        let [n, p, t] = [self.n_samples as f64, self.n_features as f64, self.n_targets as f64];
        let (b, alphas) = ((settings.block.max(1) as f64).min(t), settings.alphas.len() as f64);
        let z = Sizes { n, p, k: n.min(p), t, b, alphas, s: self.precision.bytes() as f64 };
        let mut phases = Vec::new();
        let mut add = |name, work, bytes: f64| {
            // What is freed at the end of a phase counts as made on the way.
            phases.push(Phase { name, work, bytes: of_process(0.0, bytes) });
        };
        let out: f64 = self.folds().iter().map(|(held, besides)| (held + besides) as f64).sum();
        // The caller's features, the centred ones, and the rows that folds hold out.
        let features = (2.0 * n + out) * p * z.s;
        let of_folds: f64 =
            self.folds().iter().map(|(held, besides)| fresh((held + besides) as f64 * p * z.s)).sum();
        let centred = Work {
            // Means, then differences from them; the same of rows that are held out.
            pass: 2.0 * (n + out) * p,
            fresh: fresh(n * p * z.s) + of_folds,
            ..Work::default()
        };
        add("features", centred, features);
        let (mut held, mut peak, work) = self.decompose(&z, features);
        if n >= p {
            let rows = n.min(GRAM_ROWS) * p * 8.0;
            peak = peak.max(features + p * p * 8.0 + rows);
        }
        add("decompositions", work, peak);
        held += features;
        let (work, more) = self.choose(&z);
        add("penalties", work, held + more);
        let kept = self.kept(&z);
        let (block, weights) = (fresh(z.k * z.b * z.s), fresh(z.p * z.b * z.s));
        let mut fit = Work {
            outer: 2.0 * t * p * z.k,
            pass: t * z.k,
            score: t * p,
            fresh: z.blocks() * (block + weights),
            ..Work::default()
        };
        let mut blocks = z.p * z.b + 2.0 * z.k * z.b;
        if kept == 0.0 {
            fit.product = 2.0 * t * (n * p + p * z.k);
            fit.centre = t * n;
            fit.fresh += fresh(n * z.b * z.s) + z.blocks() * (block + weights);
            // Products with the features are gone before coefficients, which are as many, are made.
            blocks += n * z.b;
        }
        add("coefficients", fit, held + kept + blocks * z.s + t * 24.0);
        phases
    }

    /// Held afterwards, the most that is held on the way, and what is computed.
    fn decompose(&self, z: &Sizes, features: f64) -> (f64, f64, Work) {
        let (mut held, mut peak, mut work) = (0.0, 0.0_f64, Work::default());
        let tall = z.n >= z.p;
        let whole = if tall { z.p * z.p * 8.0 } else { 0.0 };
        if tall {
            work.gram += z.n * z.p * z.p;
            work.pass += z.n * z.p + z.p * z.p;
            work.fresh += self.widened_rows(z.n);
        }
        let lone = (z.n, if self.settings.cv == CrossValidation::LeaveOneOut { z.n } else { 0.0 }, None);
        let folds = self.folds().into_iter().map(|(held, besides)| {
            let out = (held + besides) as f64;
            (z.n - out, held as f64, Some(out))
        });
        for (train, projected, out) in std::iter::once(lone).chain(folds) {
            let square = train.min(z.p).powi(2) * 8.0;
            work.eigen.push(train.min(z.p) as usize);
            let before = features + whole + held;
            if train >= z.p {
                // All samples' own matrix is `whole`; a fold has its own and what it holds out.
                let own = if out.is_some() { 2.0 * square } else { 0.0 };
                let after = z.p * z.p * (16.0 + z.s);
                peak = peak.max(before + own + (EIGEN_COPIES * square).max(after));
                if let Some(out) = out {
                    work.gram += out * z.p * z.p;
                    work.pass += out * z.p + 2.0 * z.p * z.p;
                    work.fresh += self.widened_rows(out) + 2.0 * fresh(square);
                }
                work.pass += 2.0 * z.p * z.p;
                work.fresh += (EIGEN_COPIES + 1.0) * fresh(square);
                held += z.p * z.p * z.s;
            } else {
                let copy = if out.is_some() { train * z.p * z.s } else { 0.0 };
                let widened = train * z.p * 8.0;
                let basis = z.p * train * z.s;
                let last = square * (1.0 + z.s / 8.0) + basis + square;
                let most = (square + widened).max(square * (1.0 + EIGEN_COPIES)).max(last);
                peak = peak.max(before + copy + most);
                work.kernel += train * train * z.p;
                work.product += 2.0 * train * train * z.p;
                work.pass += 2.0 * train * z.p + 4.0 * train * train;
                work.fresh +=
                    fresh(copy) + fresh(widened) + fresh(basis) + (EIGEN_COPIES + 2.0) * fresh(square);
                held += basis;
            }
            let values = train.min(z.p);
            work.product += 2.0 * projected * z.p * values;
            work.pass += if out.is_some() { 2.0 * projected * z.p } else { 0.0 };
            work.fresh += fresh(projected * values * z.s);
            held += projected * values * z.s;
            peak =
                peak.max(features + whole + held + if out.is_some() { projected * z.p * z.s } else { 0.0 });
        }
        (held, peak, work)
    }

    /// Bytes of targets in the basis, where they are kept.
    fn kept(&self, z: &Sizes) -> f64 {
        if self.settings.read_once { z.t * (z.k * z.s + 8.0) } else { 0.0 }
    }

    /// What choosing penalties computes, and holds beside what decompositions are held.
    fn choose(&self, z: &Sizes) -> (Work, f64) {
        let settings = &self.settings;
        // Every block is centred when it is read.
        let (centre, block) = (z.n * z.t, fresh(z.n * z.b * z.s));
        // 32 bits are widened where differences are taken.
        let narrow = self.precision == Precision::F32;
        let widened = |numbers: f64| if narrow { numbers } else { 0.0 };
        if settings.cv != CrossValidation::LeaveOneOut {
            return self.choose_by_folds(z, widened);
        }
        // Leverages: a product with all penalties.
        let mut work =
            Work { centre, fresh: block, penalties: 2.0 * z.alphas * z.n * z.k, ..Work::default() };
        if settings.alpha_per_target || settings.score == Score::Pearson {
            work.product += 2.0 * z.t * z.n * z.k;
            work.outer += 2.0 * z.alphas * z.t * z.n * z.k;
            work.pass += z.t * z.alphas * z.k;
            work.score += z.t * z.alphas * z.n;
            let each = block + fresh(z.k * z.b * z.s);
            work.fresh += z.blocks() * (fresh(z.k * z.b * z.s) + z.alphas * each);
            let bytes = (2.0 * z.n * z.b + 2.0 * z.k * z.b) * z.s + z.alphas * z.n * 8.0 + self.scores(z);
            return (work, bytes + self.kept(z));
        }
        // M, and Y·Mᵀ summed in f64; M·Mᵀ.
        work.product += 4.0 * z.t * z.n * z.k;
        work.square += z.t * z.k * z.k;
        // What the errors follow from: predictions by one product for all penalties, and sums over values.
        work.wide += 2.0 * z.n * z.k * z.k;
        work.penalties += 6.0 * z.alphas * z.n * z.k;
        let scaled = if settings.score == Score::R2 { z.t * (z.n + z.k) } else { 0.0 };
        work.pass += scaled + z.n * z.t + widened(z.blocks() * z.n * z.k);
        work.pass += 2.0 * z.n * z.k + 3.0 * z.k * z.k;
        work.fresh +=
            z.blocks() * fresh(z.k * z.b * z.s) + fresh(z.n * z.k * 8.0) + fresh(widened(z.n * z.k * z.s));
        work.fresh += 3.0 * fresh(z.k * z.k * 8.0);
        let sums = z.k * z.k * z.s + z.n * z.k * 8.0 + widened(z.n * z.k * z.s);
        let total = z.k * z.k * 8.0 + (z.alphas + 1.0) * z.n * 8.0;
        let block = (z.n * z.b + z.k * z.b) * z.s;
        let last = total + z.k * z.k * 8.0 + ROWS.min(z.n) * z.k * 8.0 * 4.0;
        (work, (sums + block.max(total)).max(last) + self.kept(z))
    }

    fn choose_by_folds(&self, z: &Sizes, widened: impl Fn(f64) -> f64) -> (Work, f64) {
        let kept = self.kept(z);
        let (of_features, of_values) = (fresh(z.p * z.b * z.s), fresh(z.k * z.b * z.s));
        let mut work = Work {
            product: 2.0 * z.n * z.p * z.t + if kept > 0.0 { 2.0 * z.t * z.p * z.k } else { 0.0 },
            centre: z.n * z.t,
            fresh: fresh(z.n * z.b * z.s) + z.blocks() * (of_features + of_values),
            ..Work::default()
        };
        let (mut most, mut squares) = (0.0_f64, 0.0);
        for (held, besides) in self.folds() {
            let (held, out) = (held as f64, (held + besides) as f64);
            let k = (z.n - out).min(z.p);
            work.product += 2.0 * z.t * (out * z.p + z.p * k + held * k);
            // Predictions' squares: one product for all penalties. Then sums over values.
            work.gram += held * k * k;
            work.wide += 2.0 * z.t * k * k;
            work.penalties += 8.0 * z.alphas * z.t * k;
            work.pass += z.t * (2.0 * out + z.p + held + 2.0 * k) + widened(z.t * k + z.blocks() * k * k);
            work.pass += held * k + 3.0 * k * k;
            work.score += z.t * held;
            let (rows, values) = (fresh(out * z.b * z.s) + fresh(held * z.b * z.s), fresh(k * z.b * z.s));
            work.fresh += z.blocks() * (rows + 2.0 * of_features + 2.0 * values + 4.0 * fresh(k * z.b * 8.0));
            work.fresh += fresh(k * k * z.s) + fresh(k * k * 8.0);
            squares += k * k * z.s;
            let train = (out + 2.0 * z.p) * z.b * z.s;
            let wide = 8.0 * (3.0 * k * z.b + widened(k * z.b + k * k));
            most = most.max(train.max((out + held + 2.0 * k) * z.b * z.s + wide)).max(2.0 * k * k * 8.0);
        }
        let own = if kept > 0.0 { z.k * z.b } else { 0.0 };
        let bytes = (z.n * z.b + z.p * z.b + own) * z.s + squares + most + self.scores(z) + kept;
        (work, bytes)
    }

    /// Bytes of widened rows of a Gram matrix, piece by piece.
    fn widened_rows(&self, rows: f64) -> f64 {
        let row = self.n_features as f64 * 8.0;
        if fresh(GRAM_ROWS * row) > 0.0 { fresh(rows * row) } else { 0.0 }
    }

    /// Scores that are kept of every target.
    fn scores(&self, z: &Sizes) -> f64 {
        z.t * (z.alphas * 8.0 + 24.0) + z.b * z.alphas * 8.0
    }
}
