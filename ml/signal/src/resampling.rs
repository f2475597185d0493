//! Resampling of volumes to another grid, to the numbers of `nilearn.image.resample_img` 0.14 (which calls
//! `scipy.ndimage.affine_transform` with `mode='constant'`).
//!
//! A voxel of the target that lies outside the centres of the source's border voxels is 0. One on the border is inside,
//! also where rounding puts it 1e-15 outside and scipy cuts the slice off (from 1.1 mm to a third of it, say). Voxels that are not
//! finite are bridged as nilearn does, by the mean of their neighbours in two shells, so that they do not spread;
//! the target is NaN where its nearest source voxel is not finite.

use crate::{Error, Grid, Result, bspline};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// How values between voxels are found; nilearn's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// The nearest voxel: the one choice for labels.
    Nearest,
    /// Between the eight voxels around.
    Linear,
    /// Cubic B-spline through all voxels.
    #[default]
    Continuous,
}

/// What bounds the result, which a spline may overshoot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Clip {
    /// The range of the volume itself and 0, as nilearn does with one volume.
    #[default]
    OwnRange,
    /// This range, such as that of a whole run and 0, which nilearn takes for a run.
    Range(f64, f64),
    /// Nothing.
    Off,
}

/// What was found while resampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResampleReport {
    /// Voxels of the target outside the source, which are 0.
    pub outside: usize,
    /// Voxels of the target that are NaN because their nearest source voxel is not finite.
    pub not_finite: usize,
}

/// Resamples volumes of one grid to another.
#[derive(Clone, Debug)]
pub struct Resampler {
    source: Grid,
    target: Grid,
    /// From voxels of the target to voxels of the source; the offset is in target voxels where `diagonal`.
    matrix: [[f64; 3]; 3],
    offset: [f64; 3],
    /// Whether the axes of both grids run alike, so that each coordinate depends on one index.
    diagonal: bool,
    interpolation: Interpolation,
    clip: Clip,
}

/// Coordinates this near to the border, in voxels, count as on it: rounding must not cut a slice off.
const TOLERANCE: f64 = 1e-9;

impl Resampler {
    /// # Errors
    /// Grids without voxels or that do not overlap, an affine that cannot be inverted, and a range to clip to that is none.
    pub fn try_new(source: Grid, target: Grid, interpolation: Interpolation, clip: Clip) -> Result<Self> {
        if source.voxels() == 0 || target.voxels() == 0 {
            let reason = format!("grids of {:?} and {:?} voxels", source.shape, target.shape);
            return Err(Error::Setting { setting: "target_shape", reason });
        }
        if let Clip::Range(low, high) = clip
            && (low > high || low.is_nan() || high.is_nan())
        {
            let reason = format!("from {low} to {high} is no range");
            return Err(Error::Setting { setting: "clip", reason });
        }
        let (matrix, mut offset) = source.voxel_map(&target)?;
        let diagonal = (0..3).all(|r| (0..3).all(|c| r == c || matrix[r][c] == 0.0));
        if diagonal {
            (0..3).for_each(|axis| offset[axis] /= matrix[axis][axis]);
        }
        let resampler = Self { source, target, matrix, offset, diagonal, interpolation, clip };
        let [ni, nj, nk] = target.shape;
        let sees = |k| (0..nj).any(|j| (0..ni).any(|i| resampler.position([i, j, k]).is_some()));
        if (0..nk).into_par_iter().any(sees) {
            return Ok(resampler);
        }
        let reason = "the target grid holds no point of the image; are both in one space?".to_owned();
        Err(Error::NothingLeft { step: "resampling", reason })
    }

    /// The grid of the result.
    pub fn target(&self) -> &Grid {
        &self.target
    }

    /// Resamples `volume`, of the source's voxels, into `resampled`, of the target's.
    ///
    /// # Errors
    /// Volumes of other sizes.
    pub fn resample<T: Copy + Into<f64>>(
        &self,
        volume: &[T],
        resampled: &mut [f64],
    ) -> Result<ResampleReport> {
        for (what, found, grid) in
            [("volume", volume.len(), &self.source), ("resampled volume", resampled.len(), &self.target)]
        {
            if found != grid.voxels() {
                return Err(Error::Shape { what, found, expected: grid.voxels().to_string() });
            }
        }
        let mut data: Vec<f64> = volume.iter().map(|x| (*x).into()).collect();
        let finite: Option<Vec<bool>> =
            data.iter().any(|x| !x.is_finite()).then(|| data.iter().map(|x| x.is_finite()).collect());
        let (low, high) = self.range(&data);
        if let Some(finite) = &finite {
            bridge(&mut data, finite, self.source.shape);
        }
        if self.interpolation == Interpolation::Continuous {
            bspline::coefficients(&mut data, self.source.shape);
        }
        let [ni, nj, _] = self.target.shape;
        let slices = resampled.par_chunks_mut(ni * nj).enumerate();
        let reports = slices.map(|(k, slice)| {
            let mut report = ResampleReport::default();
            for (place, x) in slice.iter_mut().enumerate() {
                let Some(position) = self.position([place % ni, place / ni, k]) else {
                    report.outside += 1;
                    *x = 0.0;
                    continue;
                };
                let holds = finite.as_ref().is_none_or(|finite| finite[self.nearest(position)]);
                report.not_finite += usize::from(!holds);
                *x = if holds { self.value(&data, position).clamp(low, high) } else { f64::NAN };
            }
            report
        });
        Ok(reports.reduce(ResampleReport::default, |a, b| ResampleReport {
            outside: a.outside + b.outside,
            not_finite: a.not_finite + b.not_finite,
        }))
    }

    /// Where in the source a voxel of the target lies; `None` outside.
    fn position(&self, voxel: [usize; 3]) -> Option<[f64; 3]> {
        let mut position = [0.0; 3];
        for (axis, x) in position.iter_mut().enumerate() {
            let row = &self.matrix[axis];
            *x = match self.diagonal {
                // As scipy does for grids that run alike, so that both round alike.
                true => row[axis] * (voxel[axis] as f64 + self.offset[axis]),
                false => (0..3).map(|c| row[c] * voxel[c] as f64).sum::<f64>() + self.offset[axis],
            };
            let last = (self.source.shape[axis] - 1) as f64;
            if !(*x >= -TOLERANCE && *x <= last + TOLERANCE) {
                return None;
            }
            *x = x.clamp(0.0, last);
        }
        Some(position)
    }

    /// Index of the source voxel that is nearest.
    fn nearest(&self, position: [f64; 3]) -> usize {
        let [i, j, k]: [usize; 3] = std::array::from_fn(|axis| {
            // Positions are not negative, so that truncation is the floor.
            ((position[axis] + 0.5) as usize).min(self.source.shape[axis] - 1)
        });
        i + self.source.shape[0] * (j + self.source.shape[1] * k)
    }

    /// The value at a position, of voxels or, for a spline, coefficients.
    fn value(&self, data: &[f64], position: [f64; 3]) -> f64 {
        match self.interpolation {
            Interpolation::Nearest => data[self.nearest(position)],
            Interpolation::Linear => self.weighted(data, position, linear_taps),
            Interpolation::Continuous => self.weighted(data, position, cubic_taps),
        }
    }

    /// The sum over `N` taps along each axis.
    #[inline]
    fn weighted<const N: usize>(
        &self,
        data: &[f64],
        position: [f64; 3],
        taps: impl Fn(f64, usize) -> ([usize; N], [f64; N]),
    ) -> f64 {
        let [x, y, z] = std::array::from_fn(|axis| taps(position[axis], self.source.shape[axis] - 1));
        let [ni, nj, _] = self.source.shape;
        let mut sum = 0.0;
        for c in 0..N {
            for b in 0..N {
                let row = &data[ni * (y.0[b] + nj * z.0[c])..][..ni];
                let along: f64 = (0..N).map(|a| x.1[a] * row[x.0[a]]).sum();
                sum += z.1[c] * y.1[b] * along;
            }
        }
        sum
    }

    /// Bounds of the result.
    fn range(&self, volume: &[f64]) -> (f64, f64) {
        match self.clip {
            Clip::Off => (f64::NEG_INFINITY, f64::INFINITY),
            Clip::Range(low, high) => (low, high),
            Clip::OwnRange => volume
                .iter()
                .filter(|x| x.is_finite())
                .fold((0.0, 0.0), |(low, high), x| (x.min(low), x.max(high))),
        }
    }
}

/// The two voxels around a position along an axis, whose last voxel is `last`, and their weights.
fn linear_taps(position: f64, last: usize) -> ([usize; 2], [f64; 2]) {
    let start = position as usize;
    let fraction = position - start as f64;
    ([start, mirrored(start + 1, last)], [1.0 - fraction, fraction])
}

/// The four coefficients of the spline around a position; beyond the borders they are mirrored.
fn cubic_taps(position: f64, last: usize) -> ([usize; 4], [f64; 4]) {
    let start = position as usize;
    let before = if start == 0 { last.min(1) } else { start - 1 };
    let places = [before, start, mirrored(start + 1, last), mirrored(start + 2, last)];
    (places, bspline::weights(position - start as f64))
}

fn mirrored(place: usize, last: usize) -> usize {
    if place > last { (2 * last).saturating_sub(place) } else { place }
}

/// Gives voxels that are not finite the mean of their finite face neighbours, in two shells; further ones 0.
fn bridge(data: &mut [f64], finite: &[bool], shape: [usize; 3]) {
    data.iter_mut().zip(finite).filter(|(_, finite)| !**finite).for_each(|(x, _)| *x = 0.0);
    let mut known = finite.to_vec();
    for _ in 0..2 {
        let mut shell = Vec::new();
        for voxel in (0..data.len()).filter(|v| !known[*v]) {
            let neighbours = crate::morphology::face_neighbours(shape, voxel);
            let values = neighbours.into_iter().flatten().filter(|n| known[*n]).map(|n| data[n]);
            let (sum, count) = values.fold((0.0, 0), |(sum, count), x| (sum + x, count + 1));
            if count > 0 {
                shell.push((voxel, sum / f64::from(count)));
            }
        }
        for (voxel, mean) in shell {
            data[voxel] = mean;
            known[voxel] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn grid(shape: [usize; 3], size: f64, origin: f64) -> Grid {
        let row = |r: usize| {
            std::array::from_fn(|c| if c == 3 { origin } else { size * f64::from(u8::from(c == r)) })
        };
        Grid { shape, affine: [row(0), row(1), row(2), [0.0, 0.0, 0.0, 1.0]] }
    }

    const ALL: [Interpolation; 3] =
        [Interpolation::Nearest, Interpolation::Linear, Interpolation::Continuous];

    #[test]
    fn the_same_grid_gives_the_same_volume() {
        let here = grid([4, 3, 5], 2.0, -7.0);
        let volume: Vec<f32> = (0..60).map(|v| ((v * 37) % 23) as f32).collect();
        for interpolation in ALL {
            let mut out = vec![f64::NAN; 60];
            let resampler = Resampler::try_new(here, here, interpolation, Clip::OwnRange).unwrap();
            assert_eq!(resampler.resample(&volume, &mut out).unwrap(), ResampleReport::default());
            assert!(out.iter().zip(&volume).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-12));
        }
    }

    #[test]
    fn a_nan_does_not_spread() {
        let source = grid([6; 3], 2.0, 0.0);
        let target = grid([11; 3], 1.0, 0.0);
        let middle = 3 + 6 * (3 + 6 * 3);
        let mut volume = vec![5.0f32; 216];
        volume[middle] = f32::NAN;
        for interpolation in ALL {
            let mut out = vec![0.0; 11 * 11 * 11];
            let report = Resampler::try_new(source, target, interpolation, Clip::OwnRange)
                .unwrap()
                .resample(&volume, &mut out)
                .unwrap();
            // The target voxels of which it is the nearest: two along each axis.
            assert_eq!(report, ResampleReport { outside: 0, not_finite: 8 });
            assert_eq!(out.iter().filter(|x| x.is_nan()).count(), 8);
            assert!(out.iter().filter(|x| !x.is_nan()).all(|x| (x - 5.0).abs() < 1e-12));
        }
    }

    #[test]
    fn rounding_cuts_no_slice_off() {
        for (size, parts) in [(1.1, 3), (3.3, 3), (2.4, 5), (1.8, 3)] {
            for n in 5..20 {
                let m = (n - 1) * parts + 1;
                let source = Grid { shape: [n, 2, 2], ..grid([1; 3], size, -91.3) };
                let target = Grid { shape: [m, 2, 2], ..grid([1; 3], size / parts as f64, -91.3) };
                let mut out = vec![0.0; target.voxels()];
                let resampler = Resampler::try_new(source, target, ALL[1], Clip::OwnRange).unwrap();
                let report = resampler.resample(&vec![1.0; source.voxels()], &mut out).unwrap();
                assert_eq!(report.outside, 0, "{n} voxels of {size} mm to {m}");
                assert!(out.iter().all(|x| (x - 1.0).abs() < 1e-12));
            }
        }
    }

    #[test]
    fn grids_that_do_not_meet_are_refused() {
        let e = Resampler::try_new(grid([4; 3], 2.0, 0.0), grid([4; 3], 2.0, 100.0), ALL[1], Clip::Off)
            .unwrap_err();
        assert!(matches!(e, Error::NothingLeft { .. }), "{e}");
        let here = grid([4; 3], 2.0, 0.0);
        for (low, high) in [(1.0, 0.0), (f64::NAN, 1.0)] {
            let e = Resampler::try_new(here, here, ALL[1], Clip::Range(low, high)).unwrap_err();
            assert_eq!(e.setting(), Some("clip"));
        }
        assert!(Resampler::try_new(grid([0, 4, 4], 2.0, 0.0), here, ALL[0], Clip::Off).is_err());
        let resampler = Resampler::try_new(here, here, ALL[0], Clip::Off).unwrap();
        assert!(resampler.resample(&[0.0; 63], &mut [0.0; 64]).is_err());
        assert!(resampler.resample(&[0.0; 64], &mut [0.0; 63]).is_err());
    }

    #[test]
    fn a_spline_may_overshoot_where_nothing_bounds_it() {
        let mut volume = vec![0.0f32; 512];
        volume.iter_mut().skip(256).for_each(|x| *x = 100.0);
        let (source, target) = (grid([8; 3], 2.0, 0.0), grid([15; 3], 1.0, 0.0));
        let highest = |clip| {
            let mut out = vec![0.0; 15 * 15 * 15];
            Resampler::try_new(source, target, Interpolation::Continuous, clip)
                .unwrap()
                .resample(&volume, &mut out)
                .unwrap();
            out.into_iter().fold(0.0, f64::max)
        };
        assert!(highest(Clip::Off) > 105.0);
        assert_eq!(highest(Clip::OwnRange), 100.0);
        assert_eq!(highest(Clip::Range(0.0, 90.0)), 90.0);
    }
}
