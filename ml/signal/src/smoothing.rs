//! Smoothing of volumes by a Gaussian of given width, as `nilearn.image.smooth_img`.
//!
//! Voxels that are not finite count as 0, as in nilearn, and are counted: they do not spread, but darken what lies
//! around them.
//!
//! Volumes are f64: a smoothed series may vary by a thousandth of its mean, of which float32 would leave five digits.

use crate::{Error, Grid, Result, gaussian::Gaussian};

/// A Gaussian for volumes of one grid.
#[derive(Clone, Debug)]
pub struct Smoother {
    gaussian: Gaussian,
    voxels: usize,
}

/// Room for [`Smoother::smooth`], one for each thread.
#[derive(Clone, Debug, Default)]
pub struct SmoothScratch {
    lines: Vec<f64>,
}

impl Smoother {
    /// Full width at half maximum `fwhm` along i, j, k in millimetres; an axis of 0 is left alone.
    ///
    /// `σ = FWHM / (√(8 ln 2) · voxel size)` voxels, cut at 4 σ, borders mirrored (scipy's `reflect`).
    ///
    /// # Errors
    /// Widths that are negative or not finite, and voxels without a length.
    pub fn try_new(grid: &Grid, fwhm: [f64; 3]) -> Result<Self> {
        let sizes = grid.voxel_sizes();
        let mut sigma = [0.0; 3];
        for axis in 0..3 {
            if !(fwhm[axis].is_finite() && fwhm[axis] >= 0.0) {
                let reason = format!("{} mm is no width; give millimetres of at least 0", fwhm[axis]);
                return Err(Error::Setting { setting: "smoothing_fwhm", reason });
            }
            sigma[axis] = fwhm[axis] / ((8.0 * 2f64.ln()).sqrt() * sizes[axis]);
            if !(sizes[axis] > 0.0 && sigma[axis] < 1e6) {
                let reason = format!("voxels of {sizes:?} mm cannot be smoothed by {fwhm:?} mm");
                return Err(Error::Setting { setting: "smoothing_fwhm", reason });
            }
        }
        Ok(Self { gaussian: Gaussian::new(grid.shape, sigma), voxels: grid.voxels() })
    }

    /// Smooths a volume in place and returns how many of its voxels were not finite, which counted as 0.
    ///
    /// # Errors
    /// A volume of another number of voxels.
    pub fn smooth(&self, volume: &mut [f64], scratch: &mut SmoothScratch) -> Result<usize> {
        if volume.len() != self.voxels {
            let expected = self.voxels.to_string();
            return Err(Error::Shape { what: "volume", found: volume.len(), expected });
        }
        let mut not_finite = 0;
        for x in volume.iter_mut().filter(|x| !x.is_finite()) {
            *x = 0.0;
            not_finite += 1;
        }
        self.gaussian.smooth(volume, &mut scratch.lines)?;
        Ok(not_finite)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn grid(shape: [usize; 3]) -> Grid {
        let affine = [[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        Grid { shape, affine }
    }

    /// Case 4: one NaN in 2×2×2×4.
    #[test]
    fn a_nan_is_counted_and_does_not_spread() {
        let smoother = Smoother::try_new(&grid([2; 3]), [6.0; 3]).unwrap();
        let mut scratch = SmoothScratch::default();
        for t in 0..4 {
            let mut volume: Vec<f64> = (0..8).map(|v| f64::from(v + t)).collect();
            if t == 2 {
                volume[5] = f64::NAN;
            }
            assert_eq!(smoother.smooth(&mut volume, &mut scratch).unwrap(), usize::from(t == 2));
            assert!(volume.iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn what_is_not_finite_counts_as_zero() {
        let shape = [9, 8, 7];
        let smoother = Smoother::try_new(&grid(shape), [7.0, 5.0, 9.0]).unwrap();
        let mut scratch = SmoothScratch::default();
        let smoothed = |hole: f64, scratch: &mut SmoothScratch| {
            let mut volume: Vec<f64> = (0..504).map(|v| f64::from(v * 31 % 19)).collect();
            [40, 41, 300].into_iter().for_each(|v| volume[v] = hole);
            (smoother.smooth(&mut volume, scratch).unwrap(), volume)
        };
        let (none, zeros) = smoothed(0.0, &mut scratch);
        for hole in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(smoothed(hole, &mut scratch), (none + 3, zeros.clone()));
        }
    }

    #[test]
    fn widths_that_are_none_are_refused() {
        for fwhm in [[-1.0, 0.0, 0.0], [f64::NAN; 3], [f64::INFINITY; 3]] {
            let e = Smoother::try_new(&grid([3; 3]), fwhm).unwrap_err();
            assert_eq!(e.setting(), Some("smoothing_fwhm"));
        }
        let flat = Grid { shape: [3; 3], affine: [[0.0; 4]; 4] };
        assert!(Smoother::try_new(&flat, [6.0; 3]).is_err());
        let smoother = Smoother::try_new(&grid([3; 3]), [6.0; 3]).unwrap();
        assert!(smoother.smooth(&mut [0.0; 26], &mut SmoothScratch::default()).is_err());
    }
}
