//! Gaussian smoothing of a volume, as `scipy.ndimage.gaussian_filter` with `reflect` borders, cut at 4 σ.

use crate::{Error, Result};

/// Smooths `volume` (index `i + ni·(j + nj·k)`) along i, j and k with standard deviations `sigma`, in voxels;
/// axes whose sigma is not over 0 are left alone. `σ = FWHM / (√(8 ln 2) · voxel size)`.
///
/// # Errors
/// A volume whose length is not that of `shape`.
pub fn gaussian_smooth(volume: &mut [f64], shape: [usize; 3], sigma: [f64; 3]) -> Result<()> {
    let voxels: usize = shape.iter().product();
    if volume.len() != voxels {
        return Err(Error::Shape { what: "volume", found: volume.len(), expected: voxels.to_string() });
    }
    if voxels == 0 {
        return Ok(());
    }
    let strides = [1, shape[0], shape[0] * shape[1]];
    for axis in 0..3 {
        if sigma[axis] > 0.0 {
            smooth_axis(volume, shape[axis], strides[axis], &kernel(sigma[axis]));
        }
    }
    Ok(())
}

/// Centre and one side of the normalised kernel.
fn kernel(sigma: f64) -> Vec<f64> {
    let radius = (4.0 * sigma + 0.5) as usize;
    let mut side: Vec<f64> = (0..=radius).map(|x| (-0.5 / (sigma * sigma) * (x * x) as f64).exp()).collect();
    let total = side[0] + 2.0 * side[1..].iter().sum::<f64>();
    side.iter_mut().for_each(|w| *w /= total);
    side
}

fn smooth_axis(volume: &mut [f64], length: usize, stride: usize, kernel: &[f64]) {
    let radius = kernel.len() - 1;
    let mut line = vec![0.0; length + 2 * radius];
    for slab in volume.chunks_exact_mut(length * stride) {
        for start in 0..stride {
            for (padded, x) in line.iter_mut().enumerate() {
                *x = slab[start + stride * mirrored(padded, radius, length)];
            }
            for t in 0..length {
                let centre = t + radius;
                let sides = (1..=radius).map(|d| kernel[d] * (line[centre - d] + line[centre + d]));
                slab[start + stride * t] = kernel[0] * line[centre] + sides.sum::<f64>();
            }
        }
    }
}

/// The position in a line that a position in its padded copy shows; borders repeat mirrored: `b a | a b c | c b`.
fn mirrored(padded: usize, radius: usize, length: usize) -> usize {
    let period = 2 * length;
    let position = (padded + period * radius.div_ceil(period) - radius) % period;
    if position < length { position } else { period - 1 - position }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn borders_are_mirrored_however_short_the_line() {
        let shown = |radius, length| {
            (0..length + 2 * radius).map(|p| mirrored(p, radius, length)).collect::<Vec<_>>()
        };
        assert_eq!(shown(2, 3), [1, 0, 0, 1, 2, 2, 1]);
        assert_eq!(shown(3, 2), [1, 1, 0, 0, 1, 1, 0, 0]);
        assert_eq!(shown(2, 1), [0; 5]);
    }

    #[test]
    fn the_sum_and_constants_are_kept() {
        let mut point = vec![0.0; 5 * 4 * 3];
        point[2 + 5 * (1 + 4)] = 1.0;
        gaussian_smooth(&mut point, [5, 4, 3], [1.0, 0.5, 0.0]).unwrap();
        assert!((point.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(point[..20].iter().all(|x| *x == 0.0), "the third axis is not smoothed");
        let mut flat = vec![3.0; 60];
        gaussian_smooth(&mut flat, [5, 4, 3], [2.0; 3]).unwrap();
        assert!(flat.iter().all(|x| (x - 3.0).abs() < 1e-12));
    }
}
