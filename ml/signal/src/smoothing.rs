//! Smoothing of volumes by a Gaussian of given width, as `nilearn.image.smooth_img`.
//!
//! Voxels that are not finite do not take part: each other voxel becomes the mean of the finite ones around it with
//! the Gaussian's weights, `G∗(x·m) / G∗m` with `m` 1 where finite (normalised convolution, Knutsson & Westin 1993).
//! They keep what they hold and are counted. nilearn sets them to zero first, which darkens what lies around them;
//! where everything is finite both are the same.
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
    /// The voxels that were not finite last time, and the weight that they left to the others.
    holes: Vec<usize>,
    weights: Vec<f64>,
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

    /// Smooths a volume in place and returns how many of its voxels are not finite; these stay as they are.
    ///
    /// # Errors
    /// A volume of another number of voxels.
    pub fn smooth(&self, volume: &mut [f64], scratch: &mut SmoothScratch) -> Result<usize> {
        if volume.len() != self.voxels {
            let expected = self.voxels.to_string();
            return Err(Error::Shape { what: "volume", found: volume.len(), expected });
        }
        if volume.iter().all(|x| x.is_finite()) {
            self.gaussian.smooth(volume, &mut scratch.lines)?;
            return Ok(0);
        }
        let places = volume.iter().enumerate().filter(|(_, x)| !x.is_finite());
        let (holes, held): (Vec<usize>, Vec<f64>) = places.map(|(v, x)| (v, *x)).unzip();
        if scratch.holes != holes || scratch.weights.len() != volume.len() {
            scratch.weights.clear();
            scratch.weights.resize(volume.len(), 1.0);
            holes.iter().for_each(|v| scratch.weights[*v] = 0.0);
            self.gaussian.smooth(&mut scratch.weights, &mut scratch.lines)?;
            // A hole's own quotient is never read; it must only not be a division by zero.
            holes.iter().for_each(|v| scratch.weights[*v] = 1.0);
            scratch.holes = holes;
        }
        scratch.holes.iter().for_each(|v| volume[*v] = 0.0);
        self.gaussian.smooth(volume, &mut scratch.lines)?;
        volume.iter_mut().zip(&scratch.weights).for_each(|(x, weight)| *x /= weight);
        scratch.holes.iter().zip(held).for_each(|(v, x)| volume[*v] = x);
        Ok(scratch.holes.len())
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
            assert_eq!(volume.iter().filter(|x| x.is_nan()).count(), usize::from(t == 2));
        }
    }

    #[test]
    fn holes_take_nothing_from_their_neighbours() {
        let shape = [9, 8, 7];
        let smoother = Smoother::try_new(&grid(shape), [7.0, 5.0, 9.0]).unwrap();
        let mut scratch = SmoothScratch::default();
        // A constant stays one, whatever the holes; two patterns in turn, so that weights are not mistaken.
        for holes in [vec![40, 41, 300], vec![7], vec![7], vec![40, 41, 300]] {
            let mut volume = vec![12.5f64; shape.iter().product()];
            holes.iter().for_each(|v| volume[*v] = f64::NAN);
            volume[holes[0]] = f64::INFINITY;
            assert_eq!(smoother.smooth(&mut volume, &mut scratch).unwrap(), holes.len());
            for (v, x) in volume.iter().enumerate() {
                match holes.contains(&v) {
                    true => assert!(!x.is_finite()),
                    false => assert!((x - 12.5).abs() < 1e-12, "{v}: {x}"),
                }
            }
            assert_eq!(volume[holes[0]], f64::INFINITY);
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
