//! Which voxels of an image become rows.

use crate::image_reader::ImageHeader;
use crate::space::{Space, volume_grid};
use crate::volume_options::whole_path;
use crate::{Error, Image, Result, Stores};
use voxelflow_signal::{Clip, EpiMask, Interpolation, Resampler, Volume, compute_epi_mask};

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
            location => Self::File(whole_path(location)?),
        })
    }
}

/// Voxels of a grid, by linear index `i + ni·(j + nj·k)`, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    pub voxels: Vec<u32>,
}

impl Mask {
    /// Every voxel of `space`.
    pub fn everything(space: &Space) -> Self {
        Self { voxels: (0..space.volume_grid().voxels() as u32).collect() }
    }

    /// The voxels of a mask image that are neither 0 nor NaN. Where images are resampled, it lies on the grid that they
    /// are resampled to, or on that of `image` itself; then it is resampled as well, to the nearest voxel.
    ///
    /// # Errors
    /// As [`Self::check`]; [`Error::Image`] when it is empty.
    pub fn from_file(location: &str, image: &Image, space: &Space, stores: &Stores) -> Result<Self> {
        let mut reader = stores.open_image(location, image.xform)?;
        fits(location, &reader.header(), image, space)?;
        let resampled = space.resamples_mask(&reader.header(), image);
        let mut volume = Vec::<f32>::new();
        reader.next_volume(&mut volume)?;
        let set = |x: f32| x != 0.0 && !x.is_nan();
        let voxels: Vec<u32> = (0_u32..).zip(&volume).filter(|(_, x)| set(**x)).map(|(v, _)| v).collect();
        if voxels.is_empty() {
            let reason = "the mask is empty: no voxel is above 0".into();
            return Err(Error::Image { path: location.into(), reason });
        }
        let mask = Self { voxels };
        if resampled { mask.resampled(location, image, space) } else { Ok(mask) }
    }

    /// Reads the header of a mask image alone.
    ///
    /// # Errors
    /// [`Error::Grid`] when it does not lie on the grid of the rows; [`Error::Image`] when it has several volumes.
    pub fn check(location: &str, image: &Image, space: &Space, stores: &Stores) -> Result<()> {
        fits(location, &stores.open_image(location, image.xform)?.header(), image, space)
    }

    /// The brain in `mean`, the mean of `image`'s volumes, which is resampled with them.
    ///
    /// # Errors
    /// [`Error::AutoMask`] when no brain is found.
    pub fn auto(mean: &[f64], image: &Image, space: &Space) -> Result<Self> {
        let volume = compute_epi_mask(mean, image.grid.shape, &EpiMask::default())
            .map_err(|source| Error::AutoMask { path: image.name(), source })?;
        let mask = Self { voxels: volume.indices().map(|v| v as u32).collect() };
        if space.resampled { mask.resampled(&image.name(), image, space) } else { Ok(mask) }
    }

    /// The mask on a volume of `shape`.
    pub fn volume(&self, shape: [usize; 3]) -> Result<Volume, voxelflow_signal::Error> {
        let mut set = vec![false; shape.iter().product()];
        for voxel in &self.voxels {
            if let Some(place) = set.get_mut(*voxel as usize) {
                *place = true;
            }
        }
        Volume::try_new(shape, set)
    }

    /// From the grid of `image` to the nearest voxels of `space`.
    fn resampled(&self, name: &str, image: &Image, space: &Space) -> Result<Self> {
        let (from, to) = (volume_grid(&image.grid), space.volume_grid());
        let failed = |source| Error::Volumes { path: name.into(), source };
        let resampler = Resampler::try_new(from, to, Interpolation::Nearest, Clip::Off).map_err(failed)?;
        let mut volume = vec![0.0; from.voxels()];
        self.voxels.iter().for_each(|v| volume[*v as usize] = 1.0);
        let mut resampled = vec![0.0; to.voxels()];
        resampler.resample(&volume, &mut resampled).map_err(failed)?;
        let set = (0_u32..).zip(&resampled).filter(|(_, x)| **x != 0.0);
        let voxels: Vec<u32> = set.map(|(v, _)| v).collect();
        if voxels.is_empty() {
            let reason =
                "nothing of the mask is left on the grid of the target: do both show the brain?".into();
            return Err(Error::Image { path: name.into(), reason });
        }
        Ok(Self { voxels })
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

fn fits(location: &str, header: &ImageHeader<'_>, image: &Image, space: &Space) -> Result<()> {
    if header.volumes != 1 {
        let reason = format!("a mask has one volume, this image has {}", header.volumes);
        return Err(Error::Image { path: location.into(), reason });
    }
    if space.resamples_mask(header, image) {
        return Ok(());
    }
    let advice = match space.resampled {
        true => "give a mask on that grid or on the image's own, or mask 'auto'",
        false => "give a mask on the image's own grid, or mask 'auto'",
    };
    space.holds("mask", location, header, advice)
}
