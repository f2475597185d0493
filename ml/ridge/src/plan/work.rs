//! What each phase of a fit computes and holds.

use super::allocator::{EIGEN_COPIES, GRAM_ROWS, fresh, of_process};
use super::{Precision, Workload};
use crate::{CrossValidation, Score, leave_one_out};

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
const ROWS: f64 = leave_one_out::ROWS as f64;
/// Columns of a square whose sums are made together there.
const COLUMNS: f64 = leave_one_out::COLUMNS as f64;
/// Pairs of values that are summed in 64 bits where numbers have 32, as a part of all.
pub(super) const BETWEEN: f64 = 0.2;

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

/// Predictions' squares of `t` targets for all penalties, by one product with `k` values.
pub(super) fn squares_of(t: f64, k: f64, precision: Precision) -> Work {
    let all = 2.0 * t * k * k;
    match precision {
        Precision::F32 => Work { product: all, wide: BETWEEN * all, ..Work::default() },
        Precision::F64 => Work { wide: all, ..Work::default() },
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
        // They are centred where they are.
        let features = n * p * z.s;
        // Means, then differences from them.
        let centred = Work { pass: 2.0 * n * p, ..Work::default() };
        add("features", centred, features);
        let (mut held, mut peak, work) = self.decompose(&z, features);
        if n >= p {
            let rows = n.min(GRAM_ROWS) * p * 8.0;
            peak = peak.max(features + p * p * 8.0 + rows);
        }
        add("decompositions", work, peak);
        // Leave-one-out has them in the basis, and drops them as they were.
        let alone = self.settings.cv == CrossValidation::LeaveOneOut;
        if !alone {
            held += features;
        }
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
        // Products with the features are gone before coefficients, which are as many, are made.
        let mut blocks = z.p * z.b + 2.0 * z.k * z.b;
        if kept == 0.0 {
            fit.product = 2.0 * t * if alone { n * z.k } else { n * p + p * z.k };
            fit.centre = t * n;
            fit.fresh += fresh(n * z.b * z.s) + z.blocks() * (block + if alone { 0.0 } else { weights });
            blocks += n * z.b;
        }
        if settings.scores_alone() {
            // Predictions of each sample without it, beside its targets.
            fit.outer += 2.0 * t * n * z.k;
            fit.score += t * n;
            fit.fresh += z.blocks() * fresh(n * z.b * z.s);
            blocks += n * z.b;
            if kept > 0.0 {
                fit.centre = t * n;
                fit.fresh += fresh(n * z.b * z.s);
                blocks += n * z.b;
            }
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
            (z.n - out, out, Some(out))
        });
        for (train, projected, out) in std::iter::once(lone).chain(folds) {
            let square = train.min(z.p).powi(2) * 8.0;
            work.eigen.push(train.min(z.p) as usize);
            // A fold's copy of the rows that it holds out.
            let rows = out.unwrap_or(0.0) * z.p;
            work.pass += 3.0 * rows;
            work.fresh += fresh(rows * z.s);
            let before = features + whole + held + rows * z.s;
            if train >= z.p {
                // All samples' own matrix is `whole`; a fold has its own and what it holds out.
                let own = if out.is_some() { 2.0 * square } else { 0.0 };
                let after = z.p * z.p * (16.0 + z.s);
                peak = peak.max(before + own + (EIGEN_COPIES * square).max(after));
                if let Some(out) = out {
                    work.gram += out * z.p * z.p;
                    work.pass += rows + 2.0 * z.p * z.p;
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
            work.fresh += fresh(projected * values * z.s);
            held += projected * values * z.s;
            peak = peak.max(features + whole + held + rows * z.s);
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
        // M, and Y·Mᵀ; M·Mᵀ.
        work.product += 4.0 * z.t * z.n * z.k;
        work.square += z.t * z.k * z.k;
        // What the errors follow from: sums over values, of every block of Y·Mᵀ and at last of predictions, which are one
        // product for all penalties.
        work.wide += 2.0 * z.n * z.k * z.k;
        work.penalties += (4.0 + 2.0 * z.blocks()) * z.alphas * z.n * z.k;
        let scaled = if settings.score == Score::R2 { z.t * (z.n + z.k) } else { 0.0 };
        work.pass += scaled + z.n * z.t + 2.0 * z.n * z.k + 3.0 * z.k * z.k;
        let (square, some) = (z.k * z.k, ROWS.min(z.n) * z.k * z.s);
        work.fresh += z.blocks() * fresh(z.k * z.b * z.s) + fresh(some);
        work.fresh += fresh(square * z.s) + fresh(square * 4.0);
        let sums = square * z.s + some + (z.alphas + 1.0) * z.n * 8.0;
        let total = square * 4.0 + (z.alphas + 1.0) * z.n * 8.0;
        let block = (z.n * z.b + z.k * z.b) * z.s;
        let (rows, columns) = (ROWS.min(z.n), COLUMNS.min(z.k));
        let last = total + 8.0 * (columns * z.k + rows * (z.k + 3.0 * columns));
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
            work.product += 2.0 * z.t * (z.p * k + out * k);
            // Predictions' squares: one product for all penalties. Then sums over values.
            work.gram += held * k * k;
            work = work + squares_of(z.t, k, self.precision);
            work.penalties += 8.0 * z.alphas * z.t * k;
            work.pass += z.t * (2.0 * out + 4.0 * k) + widened(2.0 * z.t * k);
            work.pass += held * k + 3.0 * k * k;
            work.score += z.t * held;
            let values = fresh(k * z.b * z.s);
            work.fresh += z.blocks() * (fresh(out * z.b * z.s) + 2.0 * values + 4.0 * fresh(k * z.b * 8.0));
            work.fresh += fresh(k * k * z.s) + fresh(k * k * 8.0);
            squares += k * k * z.s + widened(BETWEEN * k * k * 8.0);
            let wide = k * z.b * (z.s + 8.0) + widened(2.0 * k * z.b * 8.0);
            most = most.max((out + 2.0 * k) * z.b * z.s + wide).max(2.0 * k * k * 8.0);
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
