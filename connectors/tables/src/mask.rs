//! Which voxels of an image become rows.

use crate::{Error, Image, Result, Stores, image::grid_difference, image_reader::ImageHeader};
use voxelflow_signal::{EpiMask, compute_epi_mask};
use voxelflow_storage::Place;

/// The option `mask`, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MaskChoice {
    /// nilearn's `compute_epi_mask` of the mean image.
    Auto,
    /// Every voxel.
    Everything,
    /// Non-zero voxels of one image: a path or a URL.
    File(String),
    /// Non-zero voxels of the mask that each image has of its own.
    Brain,
}

impl MaskChoice {
    pub fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::Everything,
            "brain" => Self::Brain,
            location => Self::File(match Place::parse(location)? {
                Place::Local(path) => path.display().to_string(),
                Place::Remote(_) => location.to_owned(),
            }),
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
    /// As [`Self::check`]; [`Error::Image`] when it is empty.
    pub fn from_file(location: &str, image: &Image, stores: &Stores) -> Result<Self> {
        let mut reader = stores.open_image(location)?;
        fits(location, &reader.header(), image)?;
        let mut volume = Vec::new();
        reader.next_volume(&mut volume)?;
        let set = |x: f32| x != 0.0 && !x.is_nan();
        let voxels: Vec<u32> = (0_u32..).zip(&volume).filter(|(_, x)| set(**x)).map(|(v, _)| v).collect();
        if voxels.is_empty() {
            let reason = "the mask is empty: no voxel is above 0".into();
            return Err(Error::Image { path: location.into(), reason });
        }
        Ok(Self { voxels })
    }

    /// Reads the header of a mask image alone.
    ///
    /// # Errors
    /// [`Error::Grid`] when it does not lie on the grid of `image`; [`Error::Image`] when it has several volumes.
    pub fn check(location: &str, image: &Image, stores: &Stores) -> Result<()> {
        fits(location, &stores.open_image(location)?.header(), image)
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

fn fits(location: &str, header: &ImageHeader<'_>, image: &Image) -> Result<()> {
    if header.volumes != 1 {
        let reason = format!("a mask has one volume, this image has {}", header.volumes);
        return Err(Error::Image { path: location.into(), reason });
    }
    let mut grid = image.grid.clone();
    (grid.shape, grid.affine) = (header.shape, header.affine);
    match grid_difference(&grid, &image.grid) {
        None => Ok(()),
        Some(difference) => {
            let advice = "give a mask on the image's own grid, or mask 'auto'";
            Err(Error::Grid { what: "mask", path: location.into(), other: image.name(), difference, advice })
        }
    }
}
