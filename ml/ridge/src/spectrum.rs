//! The decomposition that serves all penalties and targets.

use crate::columns::{less, made, of_columns};
use crate::{Error, Result, Scalar};
use faer::linalg::matmul::{matmul, triangular};
use faer::{Accum, ColRef, Mat, MatRef, Par, Side};

/// All threads of the pool.
pub(crate) fn threads() -> Par {
    Par::rayon(0)
}

/// `a · b`.
pub(crate) fn product<T: Scalar>(a: MatRef<'_, T>, b: MatRef<'_, T>) -> Mat<T> {
    let mut c = Mat::zeros(a.nrows(), b.ncols());
    matmul(c.as_mut(), Accum::Replace, a, b, T::of(1.0), threads());
    c
}

/// `into += a · aᵀ`, the lower triangle.
pub(crate) fn add_square<T: Scalar>(into: &mut Mat<T>, a: MatRef<'_, T>) {
    use triangular::BlockStructure::{Rectangular, TriangularLower};
    let (lower, full) = (TriangularLower, Rectangular);
    triangular::matmul(into.as_mut(), lower, Accum::Add, a, full, a.transpose(), full, T::of(1.0), threads());
}

/// Copies the lower triangle to the upper one.
pub(crate) fn mirror<T: Scalar>(a: &mut Mat<T>) {
    for j in 0..a.ncols() {
        for i in 0..j {
            a[(i, j)] = a[(j, i)];
        }
    }
}

/// Centred features, in the memory of `x`, and their means.
pub(crate) fn centred<T: Scalar>(mut x: Mat<T>) -> Result<(Mat<T>, Vec<f64>)> {
    let n_samples = x.nrows().max(1) as f64;
    let of = |feature: usize, column: ColRef<'_, T>| {
        let mut sum = 0.0;
        for (sample, value) in column.iter().enumerate() {
            if !value.wide().is_finite() {
                return Err(Error::NotFinite { feature, sample, value: value.wide() });
            }
            sum += value.wide();
        }
        Ok(sum / n_samples)
    };
    let means: Vec<f64> = of_columns(x.as_ref(), of).into_iter().collect::<Result<_>>()?;
    less(&mut x, &means);
    Ok((x, means))
}

/// `wide(a)`.
pub(crate) fn widened<T: Scalar>(a: MatRef<'_, T>) -> Mat<f64> {
    made(a.nrows(), a.ncols(), |i, j| a[(i, j)].wide())
}

/// `narrow(a)`.
pub(crate) fn narrowed<T: Scalar>(a: MatRef<'_, f64>) -> Mat<T> {
    made(a.nrows(), a.ncols(), |i, j| T::of(a[(i, j)]))
}

/// Eigenvalues of `XᵀX` (centred) and the basis in which a ridge fit is diagonal.
#[derive(Clone, Debug)]
pub(crate) struct Spectrum<T> {
    /// λ, ascending; none below zero. As many as features or samples, whichever are fewer.
    pub values: Vec<f64>,
    /// What maps features to Z: `[n_features, n_values]`. Columns of λ = 0 are zero where samples are fewer.
    pub basis: Mat<T>,
    /// Features outnumber the samples, so that some λ of `XᵀX` are zero and not listed.
    pub wide: bool,
}

impl<T: Scalar> Spectrum<T> {
    /// Of centred features `x`, `[n_samples, n_features]`, whose Gram matrix is computed in `f64`.
    pub fn of(x: MatRef<'_, T>) -> Result<Self> {
        if x.nrows() < x.ncols() { Self::of_samples(x) } else { Self::of_gram(&gram(x)) }
    }

    /// Of the Gram matrix of centred features.
    pub fn of_gram(gram: &Mat<f64>) -> Result<Self> {
        let (values, vectors) = eigen(gram)?;
        Ok(Self { values, basis: narrowed(vectors.as_ref()), wide: false })
    }

    /// `XXᵀ = UΛUᵀ`, `V = XᵀU Λ^(−½)`.
    fn of_samples(x: MatRef<'_, T>) -> Result<Self> {
        let mut kernel = Mat::zeros(x.nrows(), x.nrows());
        add_square(&mut kernel, widened(x).as_ref());
        mirror(&mut kernel);
        let (values, mut vectors) = eigen(&kernel)?;
        let floor = values.last().copied().unwrap_or(0.0) * x.nrows() as f64 * f64::EPSILON;
        for (j, value) in values.iter().enumerate() {
            let scale = if *value > floor { 1.0 / value.sqrt() } else { 0.0 };
            vectors.col_mut(j).iter_mut().for_each(|v| *v *= scale);
        }
        let basis = product(x.transpose(), narrowed::<T>(vectors.as_ref()).as_ref());
        Ok(Self { values, basis, wide: true })
    }

    /// Z, the features in this basis, `[n_samples, n_values]`.
    pub fn project(&self, x: MatRef<'_, T>) -> Mat<T> {
        product(x, self.basis.as_ref())
    }

    /// `1 / (λ + α)`.
    pub fn shrink(&self, alpha: f64) -> Vec<f64> {
        self.values.iter().map(|value| 1.0 / (value + alpha)).collect()
    }

    /// Refuses penalties with which less than three digits would be right.
    ///
    /// # Errors
    /// [`Error::Condition`].
    pub fn check(&self, alphas: &[f64]) -> Result<()> {
        check_condition(&self.values, self.wide, T::EPSILON, alphas)
    }
}

/// Refuses penalties with which less than three digits would be right, of products whose numbers are `epsilon` apart.
///
/// # Errors
/// [`Error::Condition`].
pub(crate) fn check_condition(values: &[f64], wide: bool, epsilon: f64, alphas: &[f64]) -> Result<()> {
    let largest = values.last().copied().unwrap_or(0.0);
    // Directions that are not listed have λ = 0, but targets have no part in them.
    let least = if wide { largest * epsilon } else { values.first().copied().unwrap_or(0.0) };
    let most = 1e-3 / epsilon;
    for alpha in alphas {
        let condition = (largest + alpha) / (least + alpha);
        if condition > most {
            let smallest = (largest - most * least) / (most - 1.0);
            let narrow = epsilon > f64::EPSILON && condition <= 1e-3 / f64::EPSILON;
            return Err(Error::Condition { alpha: *alpha, condition, smallest, narrow });
        }
    }
    Ok(())
}

/// Rows that a Gram matrix widens at once.
pub(crate) const GRAM_ROWS: usize = 1024;

/// `XᵀX` in `f64`.
pub(crate) fn gram<T: Scalar>(x: MatRef<'_, T>) -> Mat<f64> {
    let mut gram = Mat::zeros(x.ncols(), x.ncols());
    // Blocks of rows bound the widened copy.
    for rows in crate::targets::blocks(x.nrows(), GRAM_ROWS) {
        let block = widened(x.subrows(rows.start, rows.len()));
        add_square(&mut gram, block.transpose());
    }
    mirror(&mut gram);
    gram
}

fn eigen(a: &Mat<f64>) -> Result<(Vec<f64>, Mat<f64>)> {
    let found = a.self_adjoint_eigen(Side::Lower).map_err(|_| Error::Eigen { size: a.nrows() })?;
    let values = found.S().column_vector().iter().map(|value| value.max(0.0)).collect();
    Ok((values, found.U().to_owned()))
}
