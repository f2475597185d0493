//! Who works on the features: all ranks together, once, or, for comparison, everyone for targets of their own.

use crate::{
    message::{Number, add_up, shared},
    options::{Baseline, CvChoice, EncodingOptions, of_ridge},
    shares::Costs,
    solver::Stream,
    targets::Share,
};
use faer::Mat;
use std::ops::Range;
use voxelflow_ridge::{FoldSizes, Prepared, RidgeCv, RidgeFit, RidgeSettings, Score, StreamedRidge};
use voxelflow_stage::{Result, Samples};
use voxelflow_sync::{Communicator, CommunicatorExt, Rank, ReduceOp, equal_ranges};

/// The features as a rank's targets find them.
pub(crate) enum Features<T> {
    /// Decomposed, by all ranks together.
    Decomposed(RidgeCv<T>),
    /// As they are: each piece of the targets decomposes them.
    Each(Mat<T>, RidgeSettings),
    /// Where targets stream past.
    Streamed(Box<StreamedRidge<T>>),
}

/// A rank's part of a fit.
pub(crate) struct Work<T> {
    pub features: Features<T>,
    /// Its targets.
    pub share: Range<usize>,
    /// Each is fitted by itself.
    one_by_one: bool,
    /// What it decomposes.
    pub decompositions: usize,
    pub targets_per_rank: Vec<usize>,
}

impl<T: Number> Work<T> {
    /// Features are decomposed once, pieces of that by each rank; what says that numbers of 64 bits would have the digits that
    /// these lack, on all ranks alike.
    pub fn shared(
        options: &EncodingOptions,
        settings: RidgeSettings,
        x: Mat<T>,
        samples: &Samples,
        c: &mut dyn Communicator,
    ) -> Result<Result<Self, voxelflow_ridge::Error>> {
        let (rank, world) = (c.rank().0, c.world());
        let prepared = Prepared::new(x, settings).map_err(of_ridge)?;
        let without = !options.alpha_per_target
            && options.scoring != Score::Pearson
            && options.choice()? == CvChoice::LeaveOneOut;
        let costs = Costs::of(&prepared, options.alphas.len(), without);
        let shares = costs.shares(samples.targets(), world);
        let decompositions = (rank..prepared.decompositions()).step_by(world).len();
        let ridge = match decomposed(prepared, c)? {
            Ok(ridge) => ridge,
            Err(too_few) => return Ok(Err(too_few)),
        };
        Ok(Ok(Self {
            share: shares.get(rank).cloned().unwrap_or_default(),
            one_by_one: false,
            decompositions,
            targets_per_rank: shares.iter().map(Range::len).collect(),
            features: Features::Decomposed(ridge),
        }))
    }

    /// Each rank, or each target, decomposes the features.
    pub fn repeated(
        baseline: Baseline,
        settings: RidgeSettings,
        x: Mat<T>,
        samples: &Samples,
        c: &dyn Communicator,
    ) -> Result<Self> {
        let shares = equal_ranges(samples.targets(), c.world());
        let share = shares.get(c.rank().0).cloned().unwrap_or_default();
        let each = 1 + FoldSizes::of(&settings.cv).count;
        let one_by_one = baseline == Baseline::Mor;
        let models = if one_by_one { share.len() } else { usize::from(!share.is_empty()) };
        Ok(Self {
            share,
            one_by_one,
            decompositions: each * models,
            targets_per_rank: shares.iter().map(Range::len).collect(),
            features: Features::Each(x, settings),
        })
    }

    /// One rank does all, where targets stream past.
    pub fn streamed(
        stream: Stream<T>,
        settings: RidgeSettings,
        x: Mat<T>,
        samples: &Samples,
    ) -> Result<Self> {
        let decompositions = 1 + FoldSizes::of(&settings.cv).count;
        let ridge = (stream.open)(x.as_ref(), settings).map_err(of_ridge)?;
        Ok(Self {
            features: Features::Streamed(Box::new(ridge)),
            share: 0..samples.targets(),
            one_by_one: false,
            decompositions,
            targets_per_rank: vec![samples.targets()],
        })
    }

    /// Targets that are fitted together.
    pub fn pieces(&self) -> Vec<Range<usize>> {
        match (&self.features, self.one_by_one) {
            (_, true) => self.share.clone().map(|target| target..target + 1).collect(),
            // Ranks that fit together all take part, also without targets.
            (Features::Decomposed(_) | Features::Streamed(_), _) => vec![self.share.clone()],
            (Features::Each(..), _) if self.share.is_empty() => Vec::new(),
            (Features::Each(..), _) => vec![self.share.clone()],
        }
    }
}

/// What says that numbers of 64 bits would have the digits that these lack is no failure.
pub(crate) fn too_narrow<R>(found: voxelflow_ridge::Result<R>) -> Result<Result<R, voxelflow_ridge::Error>> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(too_few @ voxelflow_ridge::Error::Condition { narrow: true, .. }) => Ok(Err(too_few)),
        Err(other) => Err(of_ridge(other)),
    }
}

/// Scores of penalties, over pieces that are fitted one after the other.
pub(crate) struct MeanScores {
    /// Of the last piece: where there is one, over the targets of all ranks.
    pub of_all: Vec<f64>,
    /// Of each penalty, and how many targets these are sums over.
    sums: Vec<f64>,
}

impl MeanScores {
    pub fn new(alphas: usize) -> Self {
        Self { of_all: vec![f64::NAN; alphas], sums: vec![0.0; alphas + 1] }
    }

    pub fn add<T>(&mut self, fit: &RidgeFit<T>) {
        self.of_all.clone_from(&fit.mean_scores);
        let fitted = (fit.alphas.len() - fit.unfit.len()) as f64;
        if fitted > 0.0 && fit.mean_scores.iter().all(|score| score.is_finite()) {
            let weighted = fit.mean_scores.iter().map(|score| score * fitted).chain([fitted]);
            self.sums.iter_mut().zip(weighted).for_each(|(sum, value)| *sum += value);
        }
    }

    /// The mean over the targets of all ranks.
    pub fn over_ranks(mut self, c: &mut dyn Communicator) -> Result<Vec<f64>> {
        c.all_reduce(ReduceOp::Sum, &mut self.sums)?;
        let fitted = self.sums.pop().unwrap_or_default();
        Ok(self.sums.into_iter().map(|sum| sum / fitted).collect())
    }
}

/// The Gram matrix of shares of the samples, then the decompositions, one after the other on the next rank.
fn decomposed<T: Number>(
    mut prepared: Prepared<T>,
    c: &mut dyn Communicator,
) -> Result<Result<RidgeCv<T>, voxelflow_ridge::Error>> {
    let (rank, world) = (c.rank().0, c.world());
    let [n, p] = prepared.shape();
    let gram = if prepared.needs_gram() {
        let rows = equal_ranges(n, world).get(rank).cloned().unwrap_or(n..n);
        let mut gram = prepared.gram(rows);
        // One decomposition needs it on one rank.
        add_up(&mut gram, (prepared.decompositions() == 1).then_some(Rank(0)), c)?;
        Some(gram)
    } else {
        None
    };
    let count = prepared.decompositions();
    let mut own = Vec::new();
    for number in (rank..count).step_by(world) {
        own.push(prepared.decompose(number, gram.as_ref()).map_err(of_ridge)?);
    }
    drop(gram);
    let spare = if own.is_empty() { prepared.spare_features() } else { None };
    let all = shared(own, count, [n, p], spare, c)?;
    too_narrow(prepared.with(all))
}

/// The penalties: what shares of the targets say, summed, and the errors of shares of the samples, summed.
pub(crate) fn chosen<T: Number>(
    ridge: &RidgeCv<T>,
    own: &mut Share<'_>,
    c: &mut dyn Communicator,
) -> Result<RidgeFit<T>> {
    let mut evidence = ridge.evidence(own).map_err(|e| own.cause(e))?;
    c.all_reduce(ReduceOp::Sum, evidence.sums_mut())?;
    let rows = equal_ranges(own.samples.count(), c.world()).get(c.rank().0).cloned().unwrap_or(0..0);
    let mean_scores =
        ridge.mean_scores(evidence.sums(), rows, |errors| c.all_reduce(ReduceOp::Sum, errors))?;
    Ok(ridge.decide(evidence, mean_scores))
}
