//! What each phase of a banded fit computes and holds. Who changes `banded` changes this.

use super::allocator::{EIGEN_COPIES, GRAM_ROWS, fresh, of_process};
use super::work::{BETWEEN, squares_of};
use super::{FitSettings, Phase, Precision, Work, Workload};
use crate::BandedSettings;

impl FitSettings for BandedSettings {
    fn phases(of: &Workload<Self>) -> Vec<Phase> {
        let sizes = Sizes::of(of);
        let (features, centred) = sizes.features();
        let (decompositions, weighted) = sizes.decompositions();
        let (penalties, scored) = sizes.penalties();
        let (coefficients, fitted) = sizes.coefficients();
        let base = sizes.given() + features.held;
        let phase = |name, work, before: f64, own: &Bytes| Phase {
            name,
            work,
            bytes: of_process(before + own.held, own.on_the_way),
        };
        vec![
            phase("features", centred, sizes.given(), &features),
            phase("decompositions", weighted, base, &decompositions),
            phase("penalties", scored, base + decompositions.held, &penalties),
            phase("coefficients", fitted, base, &coefficients),
        ]
    }

    fn block(&self) -> usize {
        self.block
    }

    fn with_block(&self, block: usize) -> Self {
        Self { block, ..self.clone() }
    }

    /// Once for some weights at a time, and once to fit.
    fn passes(&self) -> u64 {
        self.gammas.len().div_ceil(self.gammas_at_once.max(1)) as u64 + 1
    }
}

/// Bytes of a phase: what it keeps, and the most that it has beside that.
struct Bytes {
    held: f64,
    on_the_way: f64,
}

/// Of a fold: samples of which scores are taken, all that are held out, and what its fit sees.
struct Fold {
    held: f64,
    out: f64,
    train: f64,
}

/// Sizes as numbers that do not overflow.
struct Sizes {
    n: f64,
    p: f64,
    t: f64,
    /// Targets of a block.
    b: f64,
    /// Bytes of a number, and whether these are 4: what differs little is widened.
    s: f64,
    narrow: bool,
    alphas: f64,
    alpha_per_target: bool,
    gammas: f64,
    /// Weights at once.
    at_once: f64,
    /// Shares of the features that bands have.
    bands: Vec<f64>,
    folds: Vec<Fold>,
    /// Every fold has at least as many samples as features.
    tall: bool,
}

impl Sizes {
    fn of(of: &Workload<BandedSettings>) -> Self {
        let settings = &of.settings;
        let [n, p, t] = [of.n_samples as f64, of.n_features as f64, of.n_targets as f64];
        let folds = settings.folds.each().map(|(held, besides)| {
            let (held, out) = (held.len() as f64, (held.len() + besides.len()) as f64);
            Fold { held, out, train: n - out }
        });
        let folds: Vec<Fold> = folds.collect();
        let columns = settings.bands.iter().sum::<usize>().max(1) as f64;
        Self {
            n,
            p,
            t,
            b: (settings.block.max(1) as f64).min(t),
            s: of.precision.bytes() as f64,
            narrow: of.precision == Precision::F32,
            alphas: settings.alphas.len() as f64,
            alpha_per_target: settings.alpha_per_target,
            gammas: settings.gammas.len() as f64,
            at_once: settings.gammas_at_once.clamp(1, settings.gammas.len().max(1)) as f64,
            bands: settings.bands.iter().map(|band| *band as f64 / columns).collect(),
            tall: folds.iter().all(|fold| fold.train >= p),
            folds,
        }
    }

    /// The features.
    fn given(&self) -> f64 {
        self.n * self.p * self.s
    }

    fn blocks(&self) -> f64 {
        (self.t / self.b.max(1.0)).ceil()
    }

    /// Values of a decomposition of so many samples.
    fn values(&self, samples: f64) -> f64 {
        if self.tall { self.p } else { samples }
    }

    /// Bytes of widened rows of a Gram matrix at once, and of those that the system gives anew.
    fn widened(&self, rows: f64) -> (f64, f64) {
        let at_once = rows.min(GRAM_ROWS) * self.p * 8.0;
        (at_once, if fresh(at_once) > 0.0 { rows * self.p * 8.0 } else { 0.0 })
    }

    /// What all weights share; beside [`Self::given`].
    fn features(&self) -> (Bytes, Work) {
        let Self { n, p, s, .. } = *self;
        let mut work = Work { pass: 2.0 * n * p, ..Work::default() };
        let (mut held, mut most) = (0.0, 0.0_f64);
        if !self.tall {
            for band in &self.bands {
                let widened = n * p * band * 8.0;
                most = most.max(held + n * n * 8.0 + widened);
                held += n * n * 8.0;
                work.kernel += n * n * p * band;
                work.pass += n * p * band + n * n;
                work.fresh += fresh(widened) + fresh(n * n * 8.0);
            }
            return (Bytes { held, on_the_way: (most - held).max(0.0) }, work);
        }
        let square = p * p * 8.0;
        let (widened, anew) = self.widened(n);
        // The Gram matrix of all, and its values, that say which penalties are sound.
        work.gram += n * p * p;
        work.eigen.push(p as usize);
        work.pass += n * p + 3.0 * p * p;
        work.fresh += anew + (EIGEN_COPIES + 2.0) * fresh(square) + fresh(p * p * s);
        most = most.max(square + widened.max(EIGEN_COPIES * square).max(square + p * p * s));
        held += square;
        for fold in &self.folds {
            let rows = fold.out * p * s;
            let (widened, anew) = self.widened(fold.out);
            most = most.max(held + rows + square + widened.max(square));
            held += rows + square;
            work.gram += fold.out * p * p;
            work.pass += 4.0 * fold.out * p + 2.0 * p * p;
            work.fresh += anew + 2.0 * fresh(square) + fresh(rows);
        }
        (Bytes { held, on_the_way: (most - held).max(0.0) }, work)
    }

    /// A decomposition of a fold, or of all samples where there is none: what is kept of it, the most that is held in
    /// it, and its work.
    fn decomposition(&self, fold: Option<&Fold>) -> (f64, f64, Work) {
        let Self { n, s, .. } = *self;
        let projected = |fold: &Fold| if self.tall { fold.out } else { fold.held };
        let (held, train) = fold.map_or((0.0, n), |fold| (projected(fold), fold.train));
        let k = self.values(train);
        let (square, basis, z) = (k * k * 8.0, k * k * s, held * k * s);
        // The scaled matrix, its eigenvectors as they are found, and as they are kept.
        let mut work = Work {
            eigen: vec![k as usize],
            product: 2.0 * held * k * k,
            pass: 4.0 * k * k,
            fresh: (EIGEN_COPIES + 1.0) * fresh(square) + fresh(basis) + fresh(z),
            ..Work::default()
        };
        let mut most = square + (EIGEN_COPIES * square).max(square + basis + z);
        if !self.tall {
            // The kernel of all samples under the weights, and its part beside the fold's.
            let (kernel, outer) = (n * n * 8.0, held * train * 8.0);
            most += kernel + if fold.is_some() { outer } else { 0.0 };
            work.pass += n * n * self.bands.len() as f64 + 2.0 * (train + held) * train;
            work.fresh += fresh(kernel) + fresh(outer) + fresh(square);
        }
        (basis + z, most, work)
    }

    /// Of all folds under all weights, of which some are held at once.
    fn decompositions(&self) -> (Bytes, Work) {
        let (mut held, mut most, mut work) = (0.0, 0.0_f64, Work::default());
        for fold in &self.folds {
            let (kept, on_the_way, own) = self.decomposition(Some(fold));
            held += self.at_once * kept;
            most = most.max(on_the_way - kept);
            work = work + own.times(self.gammas as usize);
        }
        (Bytes { held, on_the_way: most }, work)
    }

    /// Scores of all weights and penalties.
    fn penalties(&self) -> (Bytes, Work) {
        let Self { n, p, t, b, s, alphas, gammas, .. } = *self;
        let passes = (gammas / self.at_once).ceil();
        let block = |rows: f64| self.blocks() * fresh(rows * b * s);
        // A block and its parts by fold, once for some weights.
        let mut read = Work { centre: n * t, fresh: block(n), ..Work::default() };
        let (mut parts, mut on_the_way) = (n * b * s, 0.0_f64);
        if self.tall {
            read.product += 2.0 * n * p * t;
            read.fresh += block(p);
            parts += p * b * s;
        }
        let (mut weighted, mut squares) = (Work::default(), 0.0);
        for Fold { held, out, train } in &self.folds {
            let k = self.values(*train);
            read.pass += (2.0 * out + held) * t;
            read.fresh += block(*out);
            parts += out * b * s;
            if !self.tall {
                read.pass += train * t;
                read.fresh += block(*train);
                parts += train * b * s;
            }
            // What is predicted, in the basis; where M follows from XᵀY, all that is held out.
            let projected = if self.tall { out } else { held };
            // Predictions' squares: one product for all penalties. Then sums over values.
            weighted.gram += held * k * k;
            weighted.product += 2.0 * t * (k * k + projected * k);
            let precision = if self.narrow { Precision::F32 } else { Precision::F64 };
            weighted = weighted + squares_of(t, k, precision);
            weighted.penalties += 8.0 * alphas * t * k;
            let widened = |numbers: f64| if self.narrow { numbers } else { 0.0 };
            weighted.pass += 5.0 * k * t
                + if self.tall { k * t } else { 0.0 }
                + widened(2.0 * t * k)
                + held * k
                + 3.0 * k * k;
            weighted.fresh += 2.0 * block(k) + 4.0 * self.blocks() * fresh(k * b * 8.0);
            weighted.fresh += fresh(k * k * s) + fresh(k * k * 8.0);
            squares += self.at_once * (k * k * s + widened(BETWEEN * k * k * 8.0));
            let wide = k * b * (s + 8.0) + widened(2.0 * k * b * 8.0);
            on_the_way = on_the_way.max(2.0 * k * b * s + wide);
        }
        let scores = 3.0 * alphas * b + if self.alpha_per_target { 0.0 } else { alphas * self.at_once * t };
        let held = squares + parts + 8.0 * scores + 32.0 * t;
        (Bytes { held, on_the_way }, read.times(passes as usize) + weighted.times(gammas as usize))
    }

    /// Coefficients under the weights that were chosen: all of them, where targets are many.
    fn coefficients(&self) -> (Bytes, Work) {
        let Self { n, p, t, b, s, .. } = *self;
        let chosen = self.gammas.min(t);
        let (kept, on_the_way, whole) = self.decomposition(None);
        let k = self.values(n);
        let work = Work {
            // XᵀY; the same in the basis, and back.
            product: 2.0 * t * (n * p + 2.0 * k * k),
            pass: k * t + if self.tall { 0.0 } else { p * t },
            centre: n * t,
            score: p * t,
            ..Work::default()
        };
        let block = (n + 3.0 * k + p) * b * s;
        let held = self.at_once.min(chosen) * kept + 32.0 * t;
        let bytes = Bytes { held, on_the_way: (on_the_way - kept).max(block) };
        (bytes, work + whole.times(chosen as usize))
    }
}
