//! The mean of an image's volumes: the background of reports and the input of the automatic mask.

use crate::number::Number;
use crate::{Error, Image, NiftiOptions, Result, Stores};
use std::path::Path;
use voxelflow_signal::MeanVolume;
use voxelflow_stage::Grid;

/// Reads an image and averages its volumes: its grid, and the mean with voxel index `i + ni·(j + nj·k)`,
/// in the image's unit. NaN where any volume was.
///
/// # Errors
/// A file that cannot be read as an image.
pub fn mean_image(path: impl AsRef<Path>) -> Result<(Grid, Vec<f32>)> {
    let path = path.as_ref();
    let location = path.to_str().ok_or_else(|| Error::Image {
        path: path.display().to_string(),
        reason: "its name is no Unicode text".into(),
    })?;
    let stores = Stores::default();
    let image = Image::probe(location, &NiftiOptions::default(), &stores)?;
    let mut mean = MeanVolume::new(image.voxels());
    image.for_each_volume::<f64>(&stores, |volume| add(&mut mean, volume, &image))?;
    Ok((image.grid, mean.finish().into_iter().map(|x| x as f32).collect()))
}

/// Adds a volume to a mean, with the image's name in the error.
pub(crate) fn add<T: Number>(mean: &mut MeanVolume, volume: &[T], image: &Image) -> Result<()> {
    mean.add(volume).map_err(|e| Error::Image { path: image.name(), reason: e.to_string() })
}
