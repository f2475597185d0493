//! The brain in a mean EPI image, as `nilearn.masking.compute_epi_mask`.
//!
//! T. Nichols' heuristic: voxels brighter than the widest gap between sorted intensities, looked for between two
//! fractions of the voxels; then an opening that keeps the largest component.

use crate::{
    Error, Result, Volume, binary_dilation, binary_erosion, gaussian_smooth, largest_connected_component,
};

/// Settings of [`compute_epi_mask`], with nilearn's names and defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct EpiMask {
    /// Fraction of the voxels, from the darkest, below which no threshold is looked for.
    pub lower_cutoff: f64,
    /// Fraction above which none is looked for.
    pub upper_cutoff: f64,
    /// Keep the largest connected component only.
    pub connected: bool,
    /// Iterations of the opening; 0: neither opening nor smoothing.
    pub opening: usize,
    /// Leave zeros out when the threshold is looked for.
    pub exclude_zeros: bool,
}

impl Default for EpiMask {
    fn default() -> Self {
        Self { lower_cutoff: 0.2, upper_cutoff: 0.85, connected: true, opening: 2, exclude_zeros: false }
    }
}

/// The mean of volumes that come one by one, in f64.
#[derive(Clone, Debug, Default)]
pub struct MeanVolume {
    sum: Vec<f64>,
    volumes: usize,
}

impl MeanVolume {
    /// For volumes of `voxels`.
    pub fn new(voxels: usize) -> Self {
        Self { sum: vec![0.0; voxels], volumes: 0 }
    }

    /// Adds a volume.
    ///
    /// # Errors
    /// A volume of another size.
    pub fn add<T: Copy + Into<f64>>(&mut self, volume: &[T]) -> Result<()> {
        if volume.len() != self.sum.len() {
            let expected = self.sum.len().to_string();
            return Err(Error::Shape { what: "volume", found: volume.len(), expected });
        }
        self.sum.iter_mut().zip(volume).for_each(|(sum, x)| *sum += (*x).into());
        self.volumes += 1;
        Ok(())
    }

    /// The mean; NaN where any volume was, zeros if there were no volumes.
    pub fn finish(self) -> Vec<f64> {
        let n = self.volumes.max(1) as f64;
        self.sum.into_iter().map(|s| s / n).collect()
    }
}

/// Finds the brain in `mean`, a mean image with voxel index `i + ni·(j + nj·k)`.
///
/// # Errors
/// A volume whose length is not that of `shape`, or an image without a brain.
pub fn compute_epi_mask(mean: &[f64], shape: [usize; 3], settings: &EpiMask) -> Result<Volume> {
    let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
    let mut image: Vec<f64> = mean.iter().map(|x| finite(*x)).collect();
    if settings.opening > 0 {
        // nilearn smooths with a FWHM of one voxel here, whatever the voxel's size.
        gaussian_smooth(&mut image, shape, [1.0 / (8.0 * 2f64.ln()).sqrt(); 3])?;
        image.iter_mut().zip(mean).filter(|(_, raw)| raw.is_nan()).for_each(|(x, _)| *x = 0.0);
    }
    let threshold = threshold(&image, shape, settings)?;
    let bright = Volume::try_new(shape, image.iter().map(|x| *x >= threshold).collect())?;
    let mask = open(bright, settings);
    if mask.count() == 0 {
        let reason = "nothing is left after the opening; is the image detrended, or very small?".to_owned();
        return Err(Error::EmptyMask { shape, reason });
    }
    Ok(mask)
}

/// The middle of the widest gap between sorted intensities.
fn threshold(image: &[f64], shape: [usize; 3], settings: &EpiMask) -> Result<f64> {
    let mut sorted: Vec<f64> =
        image.iter().copied().filter(|x| !settings.exclude_zeros || *x != 0.0).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let position = |fraction: f64| (fraction * sorted.len() as f64).floor() as usize;
    let lower = position(settings.lower_cutoff);
    let upper = position(settings.upper_cutoff).min(sorted.len().saturating_sub(1));
    let mut widest: Option<(f64, f64)> = None;
    for pair in sorted.get(lower..=upper).unwrap_or_default().windows(2) {
        let gap = pair[1] - pair[0];
        if widest.is_none_or(|(width, _)| gap > width) {
            widest = Some((gap, 0.5 * (pair[0] + pair[1])));
        }
    }
    widest.map(|(_, middle)| middle).ok_or_else(|| Error::EmptyMask {
        shape,
        reason: format!(
            "no intensities between the quantiles {} and {}",
            settings.lower_cutoff, settings.upper_cutoff
        ),
    })
}

/// Erodes, keeps the largest component, grows beyond and shrinks back to size.
fn open(mask: Volume, settings: &EpiMask) -> Volume {
    let mut mask = binary_erosion(&mask, settings.opening);
    if settings.connected {
        mask = largest_connected_component(&mask);
    }
    binary_erosion(&binary_dilation(&mask, 2 * settings.opening), settings.opening)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_bright_box_is_found_and_specks_are_not() {
        let shape = [14, 14, 14];
        let inside = |c: usize| (4..10).contains(&c);
        let mut mean: Vec<f64> = (0..14 * 14 * 14)
            .map(|v| if inside(v % 14) && inside(v / 14 % 14) && inside(v / 196) { 900.0 } else { 10.0 })
            .collect();
        mean[0] = 5000.0;
        mean[30] = f64::NAN;
        let mask =
            compute_epi_mask(&mean, shape, &EpiMask { upper_cutoff: 0.99, ..EpiMask::default() }).unwrap();
        assert!(mask.voxels[7 + 14 * (7 + 14 * 7)]);
        assert!(!mask.voxels[0] && !mask.voxels[30]);
    }

    #[test]
    fn an_image_without_a_brain_says_so() {
        for (mean, shape) in [(vec![], [0, 3, 3]), (vec![1.0; 27], [3, 3, 3])] {
            let e = compute_epi_mask(&mean, shape, &EpiMask::default()).unwrap_err();
            assert!(matches!(e, Error::EmptyMask { .. }), "{e}");
        }
        assert!(compute_epi_mask(&[1.0; 5], [2, 2, 2], &EpiMask::default()).is_err());
    }

    #[test]
    fn the_mean_needs_volumes_of_one_size() {
        let mut mean = MeanVolume::new(2);
        mean.add(&[1.0, 2.0]).unwrap();
        mean.add(&[3.0, f32::NAN]).unwrap();
        assert!(mean.add(&[1.0]).is_err());
        let mean = mean.finish();
        assert_eq!(mean[0], 2.0);
        assert!(mean[1].is_nan());
    }
}
