//! Which voxels of an image become rows.

use crate::{Error, Image, Result, image::grid_difference};
use std::path::{Path, PathBuf};
use voxelflow_formats::NiftiReader;
use voxelflow_signal::{EpiMask, compute_epi_mask};
use voxelflow_storage::Place;

/// The option `mask`, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MaskChoice {
    /// nilearn's `compute_epi_mask` of the mean image.
    Auto,
    /// Every voxel.
    Everything,
    /// Non-zero voxels of an image.
    File(PathBuf),
}

impl MaskChoice {
    pub fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::Everything,
            path => Self::File(Place::local(path, "a mask")?),
        })
    }
}

/// Voxels of a grid, by linear index `i + ni·(j + nj·k)`, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    pub voxels: Vec<u32>,
}

impl Mask {
    /// Every voxel of `image`.
    pub fn everything(image: &Image) -> Self {
        Self { voxels: (0..image.voxels() as u32).collect() }
    }

    /// The voxels of a mask image that are neither 0 nor NaN.
    ///
    /// # Errors
    /// [`Error::Grid`] when it does not lie on the grid of `image`; [`Error::Image`] when it is empty or
    /// has several volumes.
    pub fn from_file(path: &Path, image: &Image) -> Result<Self> {
        let name = path.display().to_string();
        let mut reader = NiftiReader::open(path)?;
        let header = reader.header();
        if header.volumes != 1 {
            let reason = format!("a mask has one volume, this image has {}", header.volumes);
            return Err(Error::Image { path: name, reason });
        }
        let mut grid = image.grid.clone();
        (grid.shape, grid.affine) = (header.shape, header.affine);
        if let Some(difference) = grid_difference(&grid, &image.grid) {
            let advice = "give a mask on the image's own grid, or mask 'auto'";
            return Err(Error::Grid { what: "mask", path: name, other: image.name(), difference, advice });
        }
        let mut volume = Vec::new();
        reader.next_volume(&mut volume)?;
        let set = |x: f32| x != 0.0 && !x.is_nan();
        let voxels: Vec<u32> = (0_u32..).zip(&volume).filter(|(_, x)| set(**x)).map(|(v, _)| v).collect();
        if voxels.is_empty() {
            return Err(Error::Image { path: name, reason: "the mask is empty: no voxel is above 0".into() });
        }
        Ok(Self { voxels })
    }

    /// The brain in `mean`, the mean of `image`'s volumes.
    ///
    /// # Errors
    /// [`Error::AutoMask`] when no brain is found.
    pub fn auto(mean: &[f64], image: &Image) -> Result<Self> {
        let volume = compute_epi_mask(mean, image.grid.shape, &EpiMask::default())
            .map_err(|source| Error::AutoMask { path: image.name(), source })?;
        Ok(Self { voxels: volume.indices().map(|v| v as u32).collect() })
    }

    /// blake3 of the indices as little-endian u32.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for chunk in self.voxels.chunks(4096) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|v| v.to_le_bytes()).collect();
            hasher.update(&bytes);
        }
        hasher.finalize().to_hex().to_string()
    }
}
