//! The grid that the series of a table are of: that of its images, or the one that they are resampled to.

use crate::image::grid_difference;
use crate::image_reader::ImageHeader;
use crate::volume_options::{Millimetres, Target, VolumeOptions};
use crate::{Error, Image, Result, Stores};
use voxelflow_signal::Grid as VolumeGrid;
use voxelflow_stage::Grid;

/// A grid, and what it is called in messages.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub grid: Grid,
    name: String,
    /// Whether images are resampled to it.
    pub resampled: bool,
}

impl Space {
    /// As the options of a table say, the first image of which is `first`.
    ///
    /// # Errors
    /// A target that cannot be read, or of too many voxels.
    pub fn of(options: &VolumeOptions, first: &Image, stores: &Stores) -> Result<Self> {
        let mut space = Self::known(options, first, first.grid.clone());
        match &options.target {
            None => return Ok(space),
            Some(Target::Image(location)) => {
                let reader = stores.open_image(location, options.xform)?;
                let ImageHeader { shape, affine, xform_code, .. } = reader.header();
                (space.grid.shape, space.grid.affine, space.grid.xform_code) = (shape, affine, xform_code);
            }
            Some(Target::VoxelSize(Millimetres(sizes))) => {
                let target = volume_grid(&first.grid).with_voxel_sizes(*sizes);
                let target = target.map_err(|source| Error::Volumes { path: first.name(), source })?;
                (space.grid.shape, space.grid.affine) = (target.shape, target.affine);
            }
        }
        must_be_countable(&space.grid, &space.name)?;
        Ok(space)
    }

    /// The same for a table whose grid is known.
    pub fn known(options: &VolumeOptions, first: &Image, grid: Grid) -> Self {
        let name = match &options.target {
            None => first.name(),
            Some(Target::Image(location)) => location.clone(),
            Some(Target::VoxelSize(sizes)) => format!("the target of {} mm voxels", sizes.text()),
        };
        Self { grid, name, resampled: options.target.is_some() }
    }

    /// The grid as volumes are resampled to it.
    pub fn volume_grid(&self) -> VolumeGrid {
        volume_grid(&self.grid)
    }

    /// Fails unless the image at `path` lies on this grid.
    pub fn holds(
        &self,
        what: &'static str,
        path: &str,
        header: &ImageHeader<'_>,
        advice: &str,
    ) -> Result<()> {
        match grid_difference(&self.grid_of(header), &self.grid) {
            None => Ok(()),
            Some(difference) => Err(Error::Grid {
                what,
                path: path.into(),
                other: self.name.clone(),
                difference,
                advice: advice.into(),
            }),
        }
    }

    /// Whether a mask lies on the grid of `image` itself, and not on this one: it is resampled as the image is.
    pub fn resamples_mask(&self, header: &ImageHeader<'_>, image: &Image) -> bool {
        let mask = self.grid_of(header);
        self.resampled
            && grid_difference(&mask, &self.grid).is_some()
            && grid_difference(&mask, &image.grid).is_none()
    }

    fn grid_of(&self, header: &ImageHeader<'_>) -> Grid {
        let mut grid = self.grid.clone();
        (grid.shape, grid.affine) = (header.shape, header.affine);
        grid
    }
}

/// Shape and affine.
pub(crate) fn volume_grid(grid: &Grid) -> VolumeGrid {
    VolumeGrid { shape: grid.shape, affine: grid.affine }
}

/// Fails for grids whose voxels the key columns cannot count.
///
/// # Errors
/// Over 65,535 voxels a side or 2^32 in all.
pub(crate) fn must_be_countable(grid: &Grid, name: &str) -> Result<()> {
    let side = grid.shape.iter().all(|n| *n <= usize::from(u16::MAX));
    let all = grid.shape.iter().try_fold(1_u32, |all, n| all.checked_mul(u32::try_from(*n).ok()?));
    if side && all.is_some() {
        return Ok(());
    }
    let reason = format!("its grid of {:?} voxels is too large: 65,535 a side, 2^32 in all", grid.shape);
    Err(Error::Image { path: name.into(), reason })
}
