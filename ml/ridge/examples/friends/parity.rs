//! What a device finds beside what the cores find, in double precision.

use crate::{Options, Outcome, planted, planted::Planted};
use faer::{Mat, MatMut, MatRef};
use std::ops::Range;
use voxelflow_ridge::{Result, RidgeCv, RidgeFit, RidgeSettings, Score, StreamedRidge, Targets};

/// Planted targets in double precision.
struct Widened<'a>(Planted<'a>);

impl Targets<f64> for Widened<'_> {
    fn samples(&self) -> usize {
        self.0.samples()
    }

    fn count(&self) -> usize {
        self.0.count()
    }

    fn read(&mut self, range: Range<usize>, mut into: MatMut<'_, f64>) -> Result<()> {
        let mut values = Mat::<f32>::zeros(self.samples(), range.len());
        self.0.read(range, values.as_mut())?;
        for (into, from) in into.as_mut().col_iter_mut().zip(values.col_iter()) {
            into.iter_mut().zip(from.iter()).for_each(|(into, from)| *into = f64::from(*from));
        }
        Ok(())
    }
}

/// Coefficients and intercepts of all targets, as a fit gives them.
struct Gathered {
    fit: RidgeFit<f64>,
    weights: Mat<f64>,
    intercepts: Vec<f64>,
}

/// Fits the same data by [`RidgeCv`] on the cores and by a stream on the device.
///
/// # Errors
/// More than a millionth between them.
pub fn compare(options: &Options) -> Outcome<()> {
    let x = planted::features(options.seed, options.samples, options.features);
    let wide = Mat::from_fn(x.nrows(), x.ncols(), |i, j| f64::from(x[(i, j)]) + 0.25);
    let planted = || Planted::new(x.as_ref(), options.seed, options.targets, false);
    let mut failed = false;
    for score in [Score::NegMeanSquaredError, Score::R2] {
        let settings = RidgeSettings { score, ..options.settings() };
        let empty = || (Mat::<f64>::zeros(options.features, options.targets), Vec::new());
        let direct = RidgeCv::new(wide.clone(), settings.clone())?;
        let (fit, mut all) = (direct.choose(&mut Widened(planted()))?, empty());
        direct.fit(&fit, &mut Widened(planted()), |block| {
            all.0.subcols_mut(block.range.start, block.range.len()).copy_from(&block.weights);
            all.1.extend(block.intercepts);
            Ok(())
        })?;
        let reference = Gathered { fit, weights: all.0, intercepts: all.1 };
        let mut stream = match options.card()? {
            Some(card) => StreamedRidge::on_card(card, wide.as_ref(), settings)?,
            None => StreamedRidge::on_cores(wide.as_ref(), settings)?,
        };
        stream.limit_memory(options.card_memory);
        let (fit, mut all) = (stream.choose(&mut Widened(planted()))?, empty());
        stream.fit(&fit, &mut Widened(planted()), None, |block| {
            all.0.subcols_mut(block.range.start, block.range.len()).copy_from(&block.weights);
            all.1.extend(block.intercepts);
            Ok(())
        })?;
        let found = Gathered { fit, weights: all.0, intercepts: all.1 };
        failed |= !compared(score, &found, &reference);
    }
    if failed { Err("the device differs from the cores by more than 1e-6".into()) } else { Ok(()) }
}

fn compared(score: Score, found: &Gathered, reference: &Gathered) -> bool {
    let vectors = |a: &[f64], b: &[f64]| {
        let (a, b) =
            (MatRef::from_column_major_slice(a, a.len(), 1), MatRef::from_column_major_slice(b, b.len(), 1));
        (a - b).norm_l2() / b.norm_l2()
    };
    let scores = vectors(&found.fit.mean_scores, &reference.fit.mean_scores);
    let intercepts = vectors(&found.intercepts, &reference.intercepts);
    let weights = (&found.weights - &reference.weights).norm_l2() / reference.weights.norm_l2();
    let same = found.fit.alphas == reference.fit.alphas;
    println!(
        "{score:?}: penalty {} {}, relative differences: scores {scores:.1e}, coefficients {weights:.1e}, intercepts \
         {intercepts:.1e}",
        found.fit.alphas[0],
        if same { "of both" } else { "DIFFERS" }
    );
    same && scores.max(weights).max(intercepts) < 1e-6
}
