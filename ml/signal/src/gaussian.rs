//! Gaussian smoothing of a volume, as `scipy.ndimage.gaussian_filter` with `reflect` borders, cut at 4 σ.

use crate::{Error, Result};

/// Values along the other axes that are smoothed side by side: a tile of a line's length stays in the first cache.
const TILE: usize = 128;

/// Smooths `volume` (index `i + ni·(j + nj·k)`) along i, j and k with standard deviations `sigma`, in voxels;
/// axes whose sigma is not over 0 are left alone. `σ = FWHM / (√(8 ln 2) · voxel size)`.
///
/// # Errors
/// A volume whose length is not that of `shape`.
pub fn gaussian_smooth(volume: &mut [f64], shape: [usize; 3], sigma: [f64; 3]) -> Result<()> {
    Gaussian::new(shape, sigma).smooth(volume, &mut Vec::new())
}

/// A Gaussian for volumes of one shape: kernels and mirrored borders are computed once.
///
/// The axes are smoothed one after the other, vectorised along i: a line of i as it lies, lines of j and k in tiles
/// of [`TILE`] neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Gaussian {
    shape: [usize; 3],
    axes: [Option<Axis>; 3],
}

#[derive(Clone, Debug)]
struct Axis {
    /// Centre and one side of the kernel.
    kernel: Vec<f64>,
    /// The position in a line that each position in its padded copy shows.
    shown: Vec<usize>,
}

impl Gaussian {
    /// For volumes of `shape`; axes whose sigma, in voxels, is not over 0 are left alone.
    pub fn new(shape: [usize; 3], sigma: [f64; 3]) -> Self {
        let axes = std::array::from_fn(|axis| {
            (sigma[axis] > 0.0 && shape[axis] > 0).then(|| {
                let kernel = kernel(sigma[axis]);
                let (radius, length) = (kernel.len() - 1, shape[axis]);
                let shown = (0..length + 2 * radius).map(|p| mirrored(p, radius, length)).collect();
                Axis { kernel, shown }
            })
        });
        Self { shape, axes }
    }

    /// Smooths a volume in place; `scratch` is room that may be used again.
    ///
    /// # Errors
    /// A volume whose length is not that of the shape.
    pub fn smooth(&self, volume: &mut [f64], scratch: &mut Vec<f64>) -> Result<()> {
        let voxels: usize = self.shape.iter().product();
        if volume.len() != voxels {
            return Err(Error::Shape { what: "volume", found: volume.len(), expected: voxels.to_string() });
        }
        if voxels == 0 {
            return Ok(());
        }
        let mut stride = 1;
        for (axis, length) in self.axes.iter().zip(self.shape) {
            if let Some(axis) = axis {
                match stride {
                    1 => axis.smooth_lines(volume, length, scratch),
                    _ => axis.smooth_tiles(volume, length, stride, scratch),
                }
            }
            stride *= length;
        }
        Ok(())
    }
}

impl Axis {
    /// Lines whose values lie side by side.
    fn smooth_lines(&self, volume: &mut [f64], length: usize, scratch: &mut Vec<f64>) {
        let radius = self.kernel.len() - 1;
        for line in volume.chunks_exact_mut(length) {
            scratch.clear();
            scratch.extend(self.shown.iter().map(|place| line[*place]));
            self.sum(line, |distance| {
                (&scratch[radius - distance..][..length], &scratch[radius + distance..][..length])
            });
        }
    }

    /// Lines whose values lie `stride` apart, in tiles of neighbours.
    fn smooth_tiles(&self, volume: &mut [f64], length: usize, stride: usize, scratch: &mut Vec<f64>) {
        let radius = self.kernel.len() - 1;
        for slab in volume.chunks_exact_mut(length * stride) {
            for start in (0..stride).step_by(TILE) {
                let width = TILE.min(stride - start);
                scratch.clear();
                for row in slab.chunks_exact(stride) {
                    scratch.extend_from_slice(&row[start..start + width]);
                }
                let row = |padded: usize| &scratch[self.shown[padded] * width..][..width];
                for (t, out) in slab.chunks_exact_mut(stride).enumerate() {
                    let centre = t + radius;
                    self.sum(&mut out[start..start + width], |distance| {
                        (row(centre - distance), row(centre + distance))
                    });
                }
            }
        }
    }

    /// `out = k₀·x₀ + Σ k_d·(x₋d + x₊d)`, where `at` gives the values at a distance on both sides; two distances
    /// in one pass over `out`.
    #[inline]
    fn sum<'a>(&self, out: &mut [f64], at: impl Fn(usize) -> (&'a [f64], &'a [f64])) {
        let Some((centre, sides)) = self.kernel.split_first() else { return };
        let (pairs, last) = sides.as_chunks::<2>();
        let middle = at(0).0;
        match last {
            [] => out.iter_mut().zip(middle).for_each(|(x, m)| *x = *centre * *m),
            [w, ..] => {
                let (a, b) = at(sides.len());
                let values = middle.iter().zip(a).zip(b);
                out.iter_mut().zip(values).for_each(|(x, ((m, a), b))| *x = *centre * *m + *w * (*a + *b));
            }
        }
        for (distance, [v, w]) in (1..).step_by(2).zip(pairs) {
            let ((a, b), (c, d)) = (at(distance), at(distance + 1));
            let values = a.iter().zip(b).zip(c.iter().zip(d));
            out.iter_mut()
                .zip(values)
                .for_each(|(x, ((a, b), (c, d)))| *x += *v * (*a + *b) + *w * (*c + *d));
        }
    }
}

/// Centre and one side of the normalised kernel.
fn kernel(sigma: f64) -> Vec<f64> {
    let radius = (4.0 * sigma + 0.5) as usize;
    let mut side: Vec<f64> = (0..=radius).map(|x| (-0.5 / (sigma * sigma) * (x * x) as f64).exp()).collect();
    let total = side[0] + 2.0 * side[1..].iter().sum::<f64>();
    side.iter_mut().for_each(|w| *w /= total);
    side
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
