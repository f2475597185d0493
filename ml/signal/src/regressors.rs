//! Nuisance regressors, and their removal from series by projection.

use crate::{
    Error, Result,
    lanes::{Lanes, project_out},
};

/// An orthonormal basis of the span of regressors: `y − Q Qᵀ y` is what least squares leaves of `y`.
///
/// Cosine drifts are regressors; confounds of a run join them as further columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Regressors {
    time_points: usize,
    basis: Vec<Vec<f64>>,
}

impl Regressors {
    /// Orthonormalises `columns`, each `[time_points]`, which should be of similar scale (z-scored).
    ///
    /// Gram–Schmidt with column pivoting, every projection done twice, which is as orthogonal as Householder
    /// reflections; a column is kept while `|R_ii| > 100 ε`, as nilearn does after LAPACK's pivoted QR.
    ///
    /// # Errors
    /// Columns of different lengths, or values that are not finite.
    pub fn try_new(mut columns: Vec<Vec<f64>>, time_points: usize) -> Result<Self> {
        for column in &columns {
            if column.len() != time_points {
                let expected = format!("{time_points} time points");
                return Err(Error::Shape { what: "regressor", found: column.len(), expected });
            }
            if column.iter().any(|x| !x.is_finite()) {
                let reason = "a regressor holds NaN or infinity; fill or drop those volumes first".to_owned();
                return Err(Error::Setting { setting: "confounds", reason });
            }
        }
        let mut basis: Vec<Vec<f64>> = Vec::new();
        while let Some((pivot, _)) =
            columns.iter().map(|c| norm(c)).enumerate().max_by(|a, b| a.1.total_cmp(&b.1))
        {
            let mut column = columns.swap_remove(pivot);
            basis.iter().for_each(|q| remove(&mut column, q));
            let length = norm(&column);
            if length <= 100.0 * f64::EPSILON {
                break;
            }
            column.iter_mut().for_each(|x| *x /= length);
            columns.iter_mut().for_each(|c| remove(c, &column));
            basis.push(column);
        }
        Ok(Self { time_points, basis })
    }

    /// Independent regressors.
    pub fn rank(&self) -> usize {
        self.basis.len()
    }

    /// Points of the series that they fit.
    pub fn time_points(&self) -> usize {
        self.time_points
    }

    /// Removes the regressors from a block of series, `[time_points][LANES]`.
    pub fn remove_from(&self, block: &mut [Lanes]) {
        self.basis.iter().for_each(|q| project_out(block, q));
    }
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn remove(x: &mut [f64], unit: &[f64]) {
    let dot: f64 = x.iter().zip(unit).map(|(a, b)| a * b).sum();
    x.iter_mut().zip(unit).for_each(|(a, b)| *a -= dot * b);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::lanes::LANES;

    fn columns() -> Vec<Vec<f64>> {
        let wave = |f: f64| (0..60).map(|t| (f * f64::from(t)).sin() + 0.3).collect::<Vec<f64>>();
        vec![wave(0.11), wave(0.7), wave(0.115)]
    }

    #[test]
    fn what_is_left_is_orthogonal_to_every_regressor() {
        let regressors = Regressors::try_new(columns(), 60).unwrap();
        assert_eq!(regressors.rank(), 3);
        let mut block: Vec<Lanes> = (0..60).map(|t| [f64::from(t * t % 17); LANES]).collect();
        regressors.remove_from(&mut block);
        for column in columns() {
            let dot: f64 = column.iter().zip(&block).map(|(c, x)| c * x[0]).sum();
            assert!(dot.abs() < 1e-10, "{dot}");
        }
    }

    #[test]
    fn dependent_regressors_count_once() {
        let mut dependent = columns();
        dependent.push(dependent[0].iter().zip(&dependent[1]).map(|(a, b)| a - 2.0 * b).collect());
        dependent.push(vec![0.0; 60]);
        assert_eq!(Regressors::try_new(dependent, 60).unwrap().rank(), 3);
    }

    #[test]
    fn unusable_regressors_are_refused() {
        assert!(Regressors::try_new(vec![vec![1.0; 5]], 6).is_err());
        let e = Regressors::try_new(vec![vec![f64::NAN; 6]], 6).unwrap_err();
        assert_eq!(e.setting(), Some("confounds"));
    }
}
