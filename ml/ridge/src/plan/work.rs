//! What each phase of a fit computes and holds.

use super::Workload;
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
    /// Sizes of the matrices whose eigenvectors are wanted.
    pub eigen: Vec<usize>,
    /// Numbers that are written or summed by passes over a matrix, one thread.
    pub pass: f64,
    /// Numbers of targets that are centred, one thread.
    pub centre: f64,
    /// Numbers that scores are summed over, one thread.
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

/// The program itself, its threads, and the buffers of products.
const PROCESS: f64 = 12e6;
/// glibc maps pieces over this size one by one and gives them back.
const MAPPED: f64 = 32.0 * 1048576.0;
/// What the allocator keeps of the freed memory of smaller ones, at the end of its heap.
const KEPT: f64 = 2.0 * MAPPED;
/// Copies of the matrix that an eigendecomposition makes beside it: vectors, a tridiagonal form, and room to work.
const EIGEN_COPIES: f64 = 3.0;
/// Rows that a Gram matrix widens at once.
const GRAM_ROWS: usize = 4096;

/// What the system has to give for a matrix of so many `bytes`: nothing where memory that was freed is used again.
fn fresh(bytes: f64) -> f64 {
    if bytes > MAPPED { bytes } else { 0.0 }
}

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
            phases.push(Phase { name, work, bytes: (PROCESS + bytes + KEPT.min(bytes)) as u64 });
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
            let rows = (self.n_samples.min(GRAM_ROWS) * self.n_features) as f64 * 8.0;
            peak = peak.max(features + p * p * 8.0 + rows);
        }
        add("decompositions", work, peak);
        held += features;
        let (work, more) = self.choose(&z);
        add("penalties", work, held + more);
        let blocks = z.n * z.b + 2.0 * z.p * z.b + 2.0 * z.k * z.b;
        let fit = Work {
            product: 2.0 * t * (n * p + 2.0 * p * z.k),
            pass: t * z.k,
            centre: t * n,
            score: t * p,
            fresh: z.blocks()
                * (fresh(n * z.b * z.s) + 2.0 * fresh(p * z.b * z.s) + 2.0 * fresh(z.k * z.b * z.s)),
            ..Work::default()
        };
        add("coefficients", fit, held + blocks * z.s + t * 24.0);
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

    /// What choosing penalties computes, and holds beside what decompositions are held.
    fn choose(&self, z: &Sizes) -> (Work, f64) {
        let settings = &self.settings;
        // Every block is centred when it is read.
        let (centre, block) = (z.n * z.t, fresh(z.n * z.b * z.s));
        if settings.cv != CrossValidation::LeaveOneOut {
            let fresh_blocks = z.blocks() * (block + fresh(z.p * z.b * z.s));
            let product = 2.0 * z.n * z.p * z.t;
            let mut work = Work { product, centre, fresh: fresh_blocks, ..Work::default() };
            let mut most = 0.0_f64;
            for (held, besides) in self.folds() {
                let (held, out) = (held as f64, (held + besides) as f64);
                let k = (z.n - out).min(z.p);
                work.product += 2.0 * z.t * (out * z.p + z.p * k + z.alphas * held * k);
                work.pass += z.t * (out + z.p + z.alphas * k);
                let once = fresh(out * z.b * z.s) + 2.0 * fresh(z.p * z.b * z.s);
                let each = fresh(k * z.b * z.s) + fresh(held * z.b * z.s);
                work.fresh += z.blocks() * (once + z.alphas * each);
                work.score += z.t * (out + z.alphas * held);
                most = most.max((2.0 * z.p + out + 2.0 * k + held) * z.b);
            }
            let bytes = (z.n * z.b + z.p * z.b + most) * z.s + self.scores(z);
            return (work, bytes);
        }
        let leverages = z.alphas * z.n * z.k;
        if settings.alpha_per_target || settings.score == Score::Pearson {
            let work = Work {
                product: 2.0 * z.t * z.n * z.k * (1.0 + z.alphas),
                pass: leverages + z.t * z.alphas * z.k,
                centre,
                score: z.t * z.alphas * z.n,
                fresh: z.blocks() * (block + z.alphas * (block + fresh(z.k * z.b * z.s))),
                ..Work::default()
            };
            let bytes = (2.0 * z.n * z.b + 2.0 * z.k * z.b) * z.s + self.scores(z);
            return (work, bytes);
        }
        let work = Work {
            // M; then a product a penalty.
            product: 2.0 * z.t * z.n * z.k + 2.0 * z.alphas * z.n * z.k * z.k,
            outer: 2.0 * z.t * z.n * z.k,
            square: z.t * z.k * z.k,
            // A block is copied, scaled and summed, and Y·Mᵀ added; of a penalty leverages, Y·Mᵀ and predictions.
            pass: 3.0 * z.n * z.t + z.blocks() * z.n * z.k + z.alphas * z.k * z.k + 3.0 * leverages,
            centre,
            fresh: z.blocks() * (2.0 * block + fresh(z.n * z.k * z.s)) + z.alphas * fresh(z.n * z.k * z.s),
            ..Work::default()
        };
        let sums = z.k * z.k * z.s + z.n * z.k * 8.0;
        let block = (2.0 * z.n * z.b + z.k * z.b + z.n * z.k) * z.s;
        let last = z.k * z.k * (8.0 + z.s) + z.n * z.k * z.s;
        (work, sums + block.max(last))
    }

    /// Bytes of widened rows of a Gram matrix, piece by piece.
    fn widened_rows(&self, rows: f64) -> f64 {
        let row = self.n_features as f64 * 8.0;
        if fresh(GRAM_ROWS as f64 * row) > 0.0 { fresh(rows * row) } else { 0.0 }
    }

    /// Scores that are kept of every target.
    fn scores(&self, z: &Sizes) -> f64 {
        z.t * (z.alphas * 8.0 + 24.0) + z.b * z.alphas * 8.0
    }
}
