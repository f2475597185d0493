//! What becomes of the volumes of one image of a table: the plan that computes its series, and the rows that they are.

use crate::mask::{Mask, MaskChoice};
use crate::nifti_table::Source;
use crate::series_rows::Rows;
use crate::space::volume_grid;
use crate::volume_options::{Target, VolumeOptions};
use crate::{Error, Image, Result};
use std::sync::Arc;
use voxelflow_dataset::LedgerEntry;
use voxelflow_signal::{Clip, Interpolation, Resampler, VolumePlan};
use voxelflow_stage::Grid;

/// The plan for the volumes of an image, and the rows of its values.
pub(crate) struct Steps {
    pub plan: VolumePlan,
    pub rows: Rows,
    /// What the ledger has of parcels that the image's own mask removes.
    pub note: Option<LedgerEntry>,
}

impl Source {
    /// For `image` inside `mask` (none: every voxel), whose values lie in `range`, which bounds those of a spline.
    ///
    /// # Errors
    /// Options that do not suit the image.
    pub fn steps(&self, image: &Image, mask: Option<&Mask>, range: Option<(f64, f64)>) -> Result<Steps> {
        let failed = |source| Error::Volumes { path: image.name(), source };
        let options = &self.options.volumes;
        let mut plan = VolumePlan::new(volume_grid(&image.grid));
        if self.space.resampled {
            let clip = range.map_or(Clip::OwnRange, |(low, high)| Clip::Range(low, high));
            let interpolation = options.interpolation.unwrap_or_default();
            let (from, to) = (volume_grid(&image.grid), self.space.volume_grid());
            let resampler = Resampler::try_new(from, to, interpolation, clip).map_err(failed)?;
            plan = plan.resample(resampler).map_err(failed)?;
        }
        if let Some(fwhm) = options.smoothing_fwhm {
            plan = plan.smooth(fwhm.0).map_err(failed)?;
        }
        if let Some(atlas) = self.atlas()? {
            let own = mask.filter(|_| matches!(self.mask, MaskChoice::Auto | MaskChoice::Brain));
            let parcels = atlas.parcels(own)?;
            let plan = plan.parcels(Arc::clone(&parcels.of_volume)).map_err(failed)?;
            let note = own.and_then(|_| parcels.told(image.keys.run()));
            return Ok(Steps { plan, rows: Rows::Parcels(parcels.rows), note });
        }
        match mask {
            Some(mask) => {
                let volume = mask.volume(self.space.grid.shape).map_err(failed)?;
                let plan = plan.mask(&volume).map_err(failed)?;
                Ok(Steps { plan, rows: Rows::Voxels(mask.voxels.clone()), note: None })
            }
            None => Ok(Steps { plan, rows: Rows::Voxels(Mask::everything(&self.space).voxels), note: None }),
        }
    }

    /// Whether the values of a whole run must be known before its first volume is resampled: a spline overshoots, and
    /// nilearn cuts it at the extremes of the run.
    pub fn needs_range(&self) -> bool {
        self.space.resampled
            && self.options.volumes.interpolation.unwrap_or_default() == Interpolation::Continuous
    }
}

/// What is done to volumes before parcels are taken, for the history of a table on `grid`.
pub(crate) fn describe(options: &VolumeOptions, grid: &Grid) -> Vec<String> {
    let mut history = Vec::new();
    if let Some(target) = &options.target {
        let [ni, nj, nk] = grid.shape;
        let interpolation =
            serde_json::to_value(options.interpolation.unwrap_or_default()).unwrap_or_default();
        let interpolation = interpolation.as_str().unwrap_or("continuous");
        let of = match target {
            Target::Image(location) => format!("the grid of {location}"),
            Target::VoxelSize(sizes) => format!("voxels of {} mm", sizes.text()),
        };
        history.push(format!("resample: {interpolation}, to {ni}×{nj}×{nk} voxels, {of}"));
    }
    if let Some(fwhm) = options.smoothing_fwhm {
        history.push(format!("smooth: FWHM {} mm; what is not finite counts as 0", fwhm.text()));
    }
    history
}
