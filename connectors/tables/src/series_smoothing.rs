//! Smoothing along a surface, before its series become rows.
//!
//! A file is read twice: first to learn which vertices have no signal (constant over time, as the medial wall is),
//! which neither give nor take; then frame by frame, each smoothed on the mesh of its hemisphere.

use crate::number::Number;
use crate::series_file::SeriesFile;
use crate::{Error, Result, SeriesFormat, SeriesOptions, Stores, structure};
use voxelflow_formats::gifti::Surface;
use voxelflow_signal::{SurfaceScratch, SurfaceSmoother};

/// Smooths the frames of one file.
pub(crate) struct FrameSmoother {
    smoother: SurfaceSmoother,
    scratch: SurfaceScratch,
    values: Vec<f64>,
}

impl FrameSmoother {
    /// For the frames of `file`; nothing when the options ask for no smoothing.
    ///
    /// # Errors
    /// A mesh that cannot be read or is of other vertices; a width that the mesh cannot have.
    pub fn of(file: &SeriesFile, options: &SeriesOptions, stores: &Stores) -> Result<Option<Self>> {
        let Some(fwhm) = options.smoothing_fwhm else { return Ok(None) };
        let mesh = mesh_of(file, options, stores)?;
        let valid = varying(file, stores)?;
        let smoother = SurfaceSmoother::try_new(&mesh.points, &mesh.triangles, &valid, fwhm);
        let smoother = smoother.map_err(|e| Error::Image {
            path: file.location.clone(),
            reason: format!("smoothing_fwhm: {e}"),
        })?;
        Ok(Some(Self { smoother, scratch: SurfaceScratch::default(), values: Vec::new() }))
    }

    /// Smooths a frame in place.
    ///
    /// # Errors
    /// A frame of another length.
    pub fn smooth<T: Number>(&mut self, frame: &mut [T], file: &SeriesFile) -> Result<()> {
        self.values.clear();
        self.values.extend(frame.iter().map(|value| (*value).into()));
        let smoothed = self.smoother.smooth(&mut self.values, &mut self.scratch);
        smoothed.map_err(|e| Error::Image { path: file.location.clone(), reason: e.to_string() })?;
        for (to, from) in frame.iter_mut().zip(&self.values) {
            *to = T::nearest(*from);
        }
        Ok(())
    }
}

/// Looks whether `file` can be smoothed as the options ask.
///
/// # Errors
/// Those of [`FrameSmoother::of`] that can be known before the values are read.
pub(crate) fn check(file: &SeriesFile, options: &SeriesOptions, stores: &Stores) -> Result<()> {
    let refuse = |reason: &str| Err(Error::Image { path: file.location.clone(), reason: reason.into() });
    match (options.smoothing_fwhm, &options.mesh) {
        (None, None) => Ok(()),
        (None, Some(_)) => refuse("mesh is given, but not smoothing_fwhm, for which it is"),
        (Some(_), _) if !matches!(file.format, SeriesFormat::Gifti | SeriesFormat::Mgh) => {
            refuse("smoothing_fwhm is along surfaces: of GIFTI and MGH files")
        }
        (Some(_), _) => mesh_of(file, options, stores).map(drop),
    }
}

/// The mesh of the hemisphere that a file is of.
fn mesh_of(file: &SeriesFile, options: &SeriesOptions, stores: &Stores) -> Result<Surface> {
    let refuse = |reason: String| Err(Error::Image { path: file.location.clone(), reason });
    let Some(meshes) = &options.mesh else {
        return refuse(
            "smoothing_fwhm needs mesh: the .surf.gii of each hemisphere, separated by commas".into(),
        );
    };
    let side = file.structures.first().and_then(|structure| structure.name.as_deref());
    let mut found = None;
    for location in meshes.split(',').map(str::trim) {
        let surface = Surface::from_reader(stores.open(location)?, location)?;
        let of = surface.structure.as_deref().map(structure::of_gifti).or(structure::of_name(location));
        if (of.is_none() || side.is_none() || of.as_deref() == side) && found.replace(surface).is_some() {
            let side = side.unwrap_or("its hemisphere, which is not known");
            return refuse(format!(
                "mesh names two surfaces that may be of {side}: name those that say their side"
            ));
        }
    }
    let Some(surface) = found else {
        return refuse(format!("mesh '{meshes}' has no surface of {}", side.unwrap_or_default()));
    };
    match surface.points.len() {
        points if points == file.rows => Ok(surface),
        points => {
            refuse(format!("it has {} vertices, and its mesh {} has {points}", file.rows, surface.path))
        }
    }
}

/// Which vertices change over time.
fn varying(file: &SeriesFile, stores: &Stores) -> Result<Vec<bool>> {
    let mut open = file.open(stores)?;
    let (mut first, mut frame) = (Vec::<f64>::new(), Vec::<f64>::new());
    open.reader.next(&mut first)?;
    let mut varying = vec![file.points == 1; file.rows];
    while open.reader.next(&mut frame)? {
        for ((varies, now), before) in varying.iter_mut().zip(&frame).zip(&first) {
            *varies |= now != before;
        }
    }
    Ok(varying)
}
