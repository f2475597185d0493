//! What is done to every volume of a run before its series are cleaned, in the one order that is right.
//!
//! ```text
//!   volume ─► resample ─► smooth ─► voxels of a mask, or parcels ─► series ─► Cleaner
//! ```
//!
//! Smoothing sees the whole volume, so that the mask's border is smoothed by what lies around it; masks and atlases
//! are of the grid after resampling. A [`VolumePlan`] is built in any order and runs in this one.

use crate::{
    Error, Grid, ResampleReport, Resampler, Result, SmoothScratch, Smoother, Volume, parcels::Parcellation,
};
use rayon::prelude::*;
use std::sync::Arc;

/// The steps for the volumes of one grid.
#[derive(Clone)]
pub struct VolumePlan {
    source: Grid,
    resampler: Option<Resampler>,
    fwhm: Option<[f64; 3]>,
    smoother: Option<Smoother>,
    taken: Taken,
}

/// What of a volume becomes series.
#[derive(Clone)]
enum Taken {
    Whole,
    Voxels { shape: [usize; 3], voxels: Vec<usize> },
    Parcels(Arc<dyn Parcellation + Send + Sync>),
}

/// Room for [`VolumePlan::apply`], one for each thread.
#[derive(Clone, Debug, Default)]
pub struct VolumeScratch {
    volume: Vec<f64>,
    smoothing: SmoothScratch,
}

/// What was found in a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeReport {
    /// What resampling found.
    pub resampled: ResampleReport,
    /// Voxels that were not finite when the volume was smoothed, and counted as 0; none without smoothing.
    pub not_finite_when_smoothed: usize,
    /// Voxels of parcels that were not finite, or values of voxels that are not.
    pub not_finite: usize,
}

impl std::iter::Sum for VolumeReport {
    fn sum<I: Iterator<Item = Self>>(reports: I) -> Self {
        reports.fold(Self::default(), |a, b| Self {
            resampled: ResampleReport {
                outside: a.resampled.outside + b.resampled.outside,
                not_finite: a.resampled.not_finite + b.resampled.not_finite,
            },
            not_finite_when_smoothed: a.not_finite_when_smoothed + b.not_finite_when_smoothed,
            not_finite: a.not_finite + b.not_finite,
        })
    }
}

impl VolumePlan {
    /// Takes volumes of this grid as they are.
    pub fn new(source: Grid) -> Self {
        Self { source, resampler: None, fwhm: None, smoother: None, taken: Taken::Whole }
    }

    /// Resamples first; masks and atlases are then of the resampler's target.
    ///
    /// # Errors
    /// Smoothing that does not suit the new grid, and a mask or atlas given before that is not of it.
    pub fn resample(mut self, resampler: Resampler) -> Result<Self> {
        self.resampler = Some(resampler);
        self.check()
    }

    /// Smooths whole volumes by this full width at half maximum, in millimetres along i, j, k.
    ///
    /// # Errors
    /// As [`Smoother::try_new`].
    pub fn smooth(mut self, fwhm: [f64; 3]) -> Result<Self> {
        self.fwhm = Some(fwhm);
        self.check()
    }

    /// Takes the voxels of a mask, by ascending index.
    ///
    /// # Errors
    /// A mask of another shape, or one that is empty.
    pub fn mask(mut self, mask: &Volume) -> Result<Self> {
        let (shape, voxels): (_, Vec<usize>) = (mask.shape, mask.indices().collect());
        if voxels.is_empty() {
            return Err(Error::EmptyMask { shape, reason: "no voxel is set".to_owned() });
        }
        self.taken = Taken::Voxels { shape, voxels };
        self.check()
    }

    /// Takes the parcels of an atlas.
    ///
    /// # Errors
    /// An atlas of another number of voxels.
    pub fn parcels(mut self, atlas: Arc<dyn Parcellation + Send + Sync>) -> Result<Self> {
        self.taken = Taken::Parcels(atlas);
        self.check()
    }

    /// The grid of volumes as they come.
    pub fn source(&self) -> &Grid {
        &self.source
    }

    /// The grid of volumes after resampling.
    pub fn grid(&self) -> &Grid {
        self.resampler.as_ref().map_or(&self.source, Resampler::target)
    }

    /// Values that a volume becomes.
    pub fn values(&self) -> usize {
        match &self.taken {
            Taken::Whole => self.grid().voxels(),
            Taken::Voxels { voxels, .. } => voxels.len(),
            Taken::Parcels(atlas) => atlas.parcels(),
        }
    }

    /// Turns a volume of the source's grid into `values`, `[values()]`.
    ///
    /// Values are f64, and [`crate::Cleaner::clean_into`] takes them so.
    ///
    /// # Errors
    /// Slices of other sizes.
    pub fn apply<T: Copy + Into<f64>>(
        &self,
        volume: &[T],
        values: &mut [f64],
        scratch: &mut VolumeScratch,
    ) -> Result<VolumeReport> {
        for (what, found, expected) in
            [("volume", volume.len(), self.source.voxels()), ("values", values.len(), self.values())]
        {
            if found != expected {
                return Err(Error::Shape { what, found, expected: expected.to_string() });
            }
        }
        let mut report = VolumeReport::default();
        if let (None, None, Taken::Voxels { voxels, .. }) = (&self.resampler, &self.smoother, &self.taken) {
            values.iter_mut().zip(voxels).for_each(|(x, v)| *x = volume[*v].into());
            report.not_finite = values.iter().filter(|x| !x.is_finite()).count();
            return Ok(report);
        }
        let work = &mut scratch.volume;
        work.clear();
        match &self.resampler {
            Some(resampler) => {
                work.resize(resampler.target().voxels(), 0.0);
                report.resampled = resampler.resample(volume, work)?;
            }
            None => work.extend(volume.iter().map(|x| (*x).into())),
        }
        if let Some(smoother) = &self.smoother {
            report.not_finite_when_smoothed = smoother.smooth(work, &mut scratch.smoothing)?;
        }
        match &self.taken {
            Taken::Whole => values.copy_from_slice(work),
            Taken::Voxels { voxels, .. } => values.iter_mut().zip(voxels).for_each(|(x, v)| *x = work[*v]),
            Taken::Parcels(atlas) => {
                report.not_finite = atlas.extract(work, values)?;
                return Ok(report);
            }
        }
        report.not_finite = values.iter().filter(|x| !x.is_finite()).count();
        Ok(report)
    }

    /// Turns `volumes`, `[n, voxels of the source]` row-major, into `values`, `[n, values()]`, in parallel: each
    /// scratch is one thread's, which works on as many volumes as the others.
    ///
    /// # Errors
    /// Slices of other sizes, or no scratch.
    pub fn apply_all<T: Copy + Into<f64> + Sync>(
        &self,
        volumes: &[T],
        values: &mut [f64],
        scratches: &mut [VolumeScratch],
    ) -> Result<VolumeReport> {
        let (size, taken) = (self.source.voxels().max(1), self.values().max(1));
        let count = volumes.len() / size;
        if !volumes.len().is_multiple_of(size) || scratches.is_empty() {
            let expected = format!("whole volumes of {size} voxels, and a thread for them");
            return Err(Error::Shape { what: "volumes", found: volumes.len(), expected });
        }
        if values.len() != count * taken {
            let expected = (count * taken).to_string();
            return Err(Error::Shape { what: "values", found: values.len(), expected });
        }
        let share = count.div_ceil(scratches.len()).max(1);
        let shares = volumes.par_chunks(share * size).zip(values.par_chunks_mut(share * taken));
        let one_share = |((volumes, values), scratch): ((&[T], &mut [f64]), &mut VolumeScratch)| {
            let each = volumes.chunks_exact(size).zip(values.chunks_exact_mut(taken));
            each.map(|(volume, values)| self.apply(volume, values, scratch)).sum::<Result<VolumeReport>>()
        };
        shares.zip(scratches.par_iter_mut()).map(one_share).sum()
    }

    /// Bytes of a scratch: what a thread needs beside the volume and its values.
    pub fn scratch_bytes(&self) -> usize {
        let resampled = self.resampler.as_ref().map_or(0, |_| 8 * self.source.voxels());
        8 * self.grid().voxels() + resampled
    }

    /// Brings the smoother to the grid and refuses what is not of it.
    fn check(mut self) -> Result<Self> {
        let grid = *self.grid();
        self.smoother = self.fwhm.map(|fwhm| Smoother::try_new(&grid, fwhm)).transpose()?;
        match &self.taken {
            Taken::Voxels { shape, .. } if *shape != grid.shape => {
                let reason =
                    format!("of {shape:?} voxels, the volumes have {:?}; resample one of them", grid.shape);
                Err(Error::Setting { setting: "mask", reason })
            }
            Taken::Parcels(atlas) if atlas.voxels() != grid.voxels() => {
                let expected = format!("{} of the volumes", grid.voxels());
                Err(Error::Shape { what: "atlas", found: atlas.voxels(), expected })
            }
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::{
        Clip, Interpolation,
        parcels::{LabelAtlas, ParcelStrategy},
    };

    fn grid(shape: [usize; 3], size: f64) -> Grid {
        let row = |r: usize| std::array::from_fn(|c| if c == r { size } else { 0.0 });
        Grid { shape, affine: [row(0), row(1), row(2), [0.0, 0.0, 0.0, 1.0]] }
    }

    #[test]
    fn the_order_is_the_same_however_the_plan_is_built() {
        let (source, target) = (grid([6; 3], 2.0), grid([5; 3], 2.5));
        let volume: Vec<f32> = (0..216).map(|v| ((v * 31) % 19) as f32).collect();
        let resampler = || Resampler::try_new(source, target, Interpolation::Linear, Clip::OwnRange).unwrap();
        let mask = Volume::try_new([5; 3], (0..125).map(|v| v % 3 == 0).collect()).unwrap();
        let one = VolumePlan::new(source).resample(resampler()).unwrap().smooth([4.0; 3]).unwrap();
        let other = VolumePlan::new(source).smooth([4.0; 3]).unwrap().resample(resampler()).unwrap();

        let mut by_hand = vec![0.0; 125];
        resampler().resample(&volume, &mut by_hand).unwrap();
        Smoother::try_new(&target, [4.0; 3]).unwrap().smooth(&mut by_hand, &mut Default::default()).unwrap();
        let by_hand: Vec<f64> = mask.indices().map(|v| by_hand[v]).collect();
        for plan in [one, other] {
            let plan = plan.mask(&mask).unwrap();
            let mut values = vec![0.0; plan.values()];
            plan.apply(&volume, &mut values, &mut VolumeScratch::default()).unwrap();
            assert_eq!(values, by_hand);
            assert!(plan.apply(&volume[1..], &mut values, &mut VolumeScratch::default()).is_err());
            // Five volumes on two or on seven threads, the last of which have none.
            let run: Vec<f32> = (0..5).flat_map(|t| volume.iter().map(move |x| x + t as f32)).collect();
            let mut one_by_one = vec![0.0; 5 * plan.values()];
            for (volume, values) in run.chunks(216).zip(one_by_one.chunks_mut(plan.values())) {
                plan.apply(volume, values, &mut VolumeScratch::default()).unwrap();
            }
            for threads in [2, 7] {
                let (mut scratches, mut all) =
                    (vec![VolumeScratch::default(); threads], vec![0.0; one_by_one.len()]);
                plan.apply_all(&run, &mut all, &mut scratches).unwrap();
                assert_eq!(all, one_by_one);
                assert!(plan.apply_all(&run[1..], &mut all, &mut scratches).is_err());
                assert!(plan.apply_all(&run, &mut all[1..], &mut scratches).is_err());
                assert!(plan.apply_all(&run, &mut all, &mut []).is_err());
            }
        }
    }

    #[test]
    fn masks_and_atlases_are_of_the_grid_after_resampling() {
        let (source, target) = (grid([6; 3], 2.0), grid([5; 3], 2.5));
        let resampler = Resampler::try_new(source, target, Interpolation::Linear, Clip::OwnRange).unwrap();
        let mask = Volume::try_new([6; 3], vec![true; 216]).unwrap();
        let plan = || VolumePlan::new(source);
        let whole = plan().mask(&mask).unwrap();
        let mut values = vec![0.0; whole.values()];
        let volume: Vec<f32> = (0..216).map(|v| if v == 3 { f32::NAN } else { v as f32 }).collect();
        let report = whole.apply(&volume, &mut values, &mut VolumeScratch::default()).unwrap();
        assert_eq!((report.not_finite, values[215]), (1, 215.0));
        let both = plan().mask(&mask).unwrap().resample(resampler.clone());
        assert_eq!(both.err().unwrap().setting(), Some("mask"));
        let atlas = || LabelAtlas::try_new(&[0, 4, 4], 0, None, ParcelStrategy::Mean).unwrap();
        assert!(matches!(plan().parcels(Arc::new(atlas())), Err(Error::Shape { found: 3, .. })));
        let labels: Vec<i32> = (0..125).map(|v| v % 4).collect();
        let atlas = LabelAtlas::try_new(&labels, 0, None, ParcelStrategy::Mean).unwrap();
        let plan = plan().resample(resampler).unwrap().parcels(Arc::new(atlas)).unwrap();
        let mut values = [0.0; 3];
        let mut volume = vec![7.0; 216];
        volume[0] = f32::NAN;
        let report = plan.apply(&volume, &mut values, &mut VolumeScratch::default()).unwrap();
        assert_eq!(values, [7.0; 3]);
        // The first voxel is of the background.
        assert_eq!((report.resampled.not_finite, report.not_finite), (1, 0));
    }
}
