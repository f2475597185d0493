//! Runs that no fit has seen: what a model says of each target there.
//!
//! Each score is its own thing and its own column: Pearson's r, the coefficient of determination R² (`r2`), the largest r
//! that any prediction can have with the mean of the repeats (`ceiling`, where stimuli were repeated) and r as a share of
//! it (`r_normalized`, where these runs repeated them).

use crate::{
    message::Number,
    options::{EncodingOptions, of_ridge},
    repeats::{CeilingOf, Repeats},
    targets::read_columns,
    totals::Totals,
};
use faer::Mat;
use voxelflow_ridge::{
    Coefficients, NullResult, NullTest, SplitScores, false_discovery, predict_without_intercept,
    split_scores, target_scores,
};
use voxelflow_stage::{Explained, Result};
use voxelflow_sync::{Communicator, CommunicatorExt, Element, ReduceOp};

/// Numbers of each target.
const SCORES: [&str; 4] = ["r", "r2", CEILING, "r_normalized"];
/// The column that repeats among training runs give where held-out runs repeat nothing.
pub(crate) const CEILING: &str = "ceiling";
/// Of its r, where that is tested.
const TEST: [&str; 3] = ["p", "p_family", "q"];

/// A number of each target of a block, by the column's name.
pub(crate) type Columns = Vec<(String, Vec<f64>)>;

/// The parts of r and of R² that `bands` have.
fn of_bands(bands: &[String]) -> impl Iterator<Item = String> {
    ["r", "r2"].into_iter().flat_map(|score| bands.iter().map(move |band| format!("{score}_{band}")))
}

/// Names of all numbers of a target in held-out runs, of a model whose features are in `bands`.
pub(crate) fn columns(bands: &[String], tested: bool) -> Vec<String> {
    let test = if tested { &TEST[..] } else { &[] };
    let fixed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    [fixed(&SCORES), of_bands(bands).collect(), fixed(test)].concat()
}

/// The same without held-out runs: NaN for each of `count` targets.
pub(crate) fn none(bands: &[String], count: usize) -> Columns {
    columns(bands, false).into_iter().map(|name| (name, vec![f64::NAN; count])).collect()
}

/// Runs that no fit has seen, and the tests of what is predicted there.
pub(crate) struct HeldOut<'a, T> {
    explained: Explained<'a>,
    x: Mat<T>,
    repeats: Option<Repeats>,
    test: Option<NullTest>,
    /// Names and columns of the bands, in the order of the columns of x.
    bands: Vec<(String, usize)>,
}

impl<'a, T: Number> HeldOut<'a, T> {
    /// `x`: the features of `explained`, as the fit has them.
    ///
    /// # Errors
    /// Runs too short for a test; repeats that do not belong together.
    pub fn of(explained: Explained<'a>, x: Mat<T>, options: &EncodingOptions, seed: u64) -> Result<Self> {
        let test = options.null_test(explained.samples, seed)?;
        let repeats = Repeats::of(explained.samples, CeilingOf::HeldOutRuns)?;
        Ok(Self { explained, x, repeats, test, bands: Vec::new() })
    }

    /// Whether these runs repeat a stimulus.
    pub fn has_repeats(&self) -> bool {
        self.repeats.is_some()
    }

    /// Scores are split by these bands.
    pub fn with_bands(self, bands: Vec<(String, usize)>) -> Self {
        Self { bands, ..self }
    }

    /// What is known of each target of a block, over all samples of these runs; blocks come in the order of targets.
    /// `variances`: of each in the runs that it was fitted to. One that is constant beside that has no score.
    ///
    /// # Errors
    /// Series that cannot be read.
    pub fn scores(
        &mut self,
        first: usize,
        block: &Coefficients<T>,
        variances: &[f64],
        totals: &mut Totals,
    ) -> Result<Columns> {
        let Explained { series, samples, .. } = &mut self.explained;
        let (n, targets) = (samples.count(), block.intercepts.len());
        let mut y = Mat::zeros(n, targets);
        read_columns(*series, samples, first..first + targets, y.as_mut())?;
        // No intercept: r is of what varies, and tests and ceilings are of r.
        let predicted = predict_without_intercept(self.x.as_ref(), block);
        let scores = target_scores(y.as_ref(), predicted.as_ref(), &block.intercepts, variances);
        // What little one varies that has no score is none of the tests' and the ceiling's either.
        for (score, target) in scores.iter().zip(y.col_iter_mut()) {
            if score.r2.is_nan() {
                target.iter_mut().for_each(|value| *value = T::of(0.0));
            }
        }
        if let Some(test) = &mut self.test {
            test.add(y.as_ref(), predicted.as_ref()).map_err(of_ridge)?;
        }
        scores.iter().for_each(|score| totals.add(score));
        let (ceiling, normalized) = match &self.repeats {
            Some(repeats) => repeats.ceiling(&y, &predicted)?,
            None => (vec![f64::NAN; targets], vec![f64::NAN; targets]),
        };
        let own = [
            scores.iter().map(|s| s.r).collect(),
            scores.iter().map(|s| s.r2).collect(),
            ceiling,
            normalized,
        ];
        let mut columns: Columns = SCORES.iter().map(|name| (*name).to_owned()).zip(own).collect();
        if !self.bands.is_empty() {
            let sizes: Vec<usize> = self.bands.iter().map(|(_, size)| *size).collect();
            let names: Vec<String> = self.bands.iter().map(|(name, _)| name.clone()).collect();
            let split = split_scores(self.x.as_ref(), &sizes, block.weights.as_ref(), y.as_ref());
            let SplitScores { pearson, r2 } = split.map_err(of_ridge)?;
            columns.extend(of_bands(&names).zip(pearson.into_iter().chain(r2)));
        }
        Ok(columns)
    }

    /// After the last block: p of a rank's targets, p of the largest r of all targets, and q of all targets' p. Empty
    /// where nothing is tested.
    ///
    /// # Errors
    /// Ranks that are lost.
    pub fn tested(self, c: &mut dyn Communicator) -> Result<Columns> {
        let Some(mut test) = self.test else { return Ok(Vec::new()) };
        c.all_reduce(ReduceOp::Max, test.largest_mut())?;
        let NullResult { p, p_family, .. } = test.finish();
        let (mut all, mut before) = (Vec::new(), 0);
        for (rank, bytes) in c.all_gather(f64::write(&p))?.iter().enumerate() {
            if rank == c.rank().0 {
                before = all.len();
            }
            let mut own = vec![0.0; bytes.len() / f64::BYTES];
            f64::read(bytes, &mut own);
            all.extend(own);
        }
        let q = false_discovery(&all)[before..before + p.len()].to_vec();
        Ok(TEST.iter().map(|name| (*name).to_owned()).zip([p, p_family, q]).collect())
    }
}
