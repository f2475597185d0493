//! One image file: what its header says, and its volumes one by one. The only module that reads images.

use crate::image_reader::{ImageHeader, ImageReader};
use crate::space::must_be_countable;
use crate::stores::without_extension;
use crate::{Error, NiftiOptions, Result, RunKeys, Stores};
use serde::{Deserialize, Serialize};
use std::path::Path;
use voxelflow_dataset::{Finding, LedgerEntry, Level};
use voxelflow_formats::Scaling;
use voxelflow_formats::sidecar::Sidecar;
use voxelflow_stage::Grid;
use voxelflow_storage::Stamp;

/// What is known of an image from its header, its name, its sidecar and the options.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Image {
    /// Where it lies: an absolute path or a URL.
    pub location: String,
    /// Shape, affine and repetition time; nothing of a mask yet.
    pub grid: Grid,
    /// Points of every series.
    pub volumes: usize,
    /// Subject, session, task, run, space.
    pub keys: RunKeys,
    /// The image's own brain mask.
    pub mask: Option<String>,
    /// What the header has for the ledger; known where the table was made.
    #[serde(skip)]
    pub notes: Vec<LedgerEntry>,
}

impl Image {
    /// Reads the header of the image at `location`. Its keys and its repetition time come from the options, else from
    /// its name and the JSON file beside it, else from the header.
    pub fn probe(location: &str, options: &NiftiOptions, stores: &Stores) -> Result<Self> {
        let t_r = match options.t_r {
            Some(t_r) => Some(t_r),
            None => sidecar_t_r(without_extension(location), stores)?,
        };
        let keys = options.keys().or(RunKeys::of(Path::new(location)));
        Self::of_run(location, keys, t_r, None, stores)
    }

    /// Reads the header of an image of which keys, mask and, where it outranks the header, repetition time in seconds
    /// are known.
    pub fn of_run(
        location: &str,
        keys: RunKeys,
        t_r: Option<f64>,
        mask: Option<String>,
        stores: &Stores,
    ) -> Result<Self> {
        let reader = stores.open_image(location)?;
        let header = reader.header();
        let grid = Grid {
            shape: header.shape,
            affine: header.affine,
            xform_code: header.xform_code,
            t_r: if t_r.is_some() { t_r } else { header.t_r()? },
            mask_hash: String::new(),
            mask_voxels: 0,
            source: location.into(),
            history: Vec::new(),
        };
        must_be_countable(&grid, location)?;
        let notes = header_notes(&header, &keys);
        Ok(Self { location: location.into(), grid, volumes: header.volumes, keys, mask, notes })
    }

    /// Whether its sizes are such that [`Image::probe`] gives: they come from other processes too.
    pub fn is_sound(&self) -> bool {
        let voxels =
            self.grid.shape.iter().try_fold(1_u32, |voxels, n| voxels.checked_mul(u32::try_from(*n).ok()?));
        voxels.is_some() && i32::try_from(self.volumes).is_ok()
    }

    /// The location, for messages.
    pub fn name(&self) -> String {
        self.location.clone()
    }

    /// Voxels of the whole grid.
    pub fn voxels(&self) -> usize {
        self.grid.shape.iter().product()
    }

    /// Opens the file to read its volumes.
    ///
    /// # Errors
    /// A file that is not as it was when the table was made.
    pub fn open(&self, stores: &Stores) -> Result<ImageReader> {
        let reader = stores.open_image(&self.location)?;
        let header = reader.header();
        if header.shape != self.grid.shape || header.volumes != self.volumes {
            let reason = "it has changed since the table was made: create the table again".into();
            return Err(Error::Image { path: self.name(), reason });
        }
        Ok(reader)
    }

    /// Gives every volume, `[i + ni·(j + nj·k)]`, to `each`, in order of time.
    pub fn for_each_volume(&self, stores: &Stores, mut each: impl FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let mut reader = self.open(stores)?;
        let mut volume = Vec::new();
        while reader.next_volume(&mut volume)? {
            each(&volume)?;
        }
        Ok(())
    }

    /// The file's length and time of change: a mask that was found is kept as long as they stay.
    pub fn stamp(&self, stores: &Stores) -> Option<Stamp> {
        stores.stamp(&self.location)
    }

    /// Fails unless `self` can be rows of the same table as `first`: same repetition time and, where images are
    /// not resampled, the same grid.
    pub fn must_fit(&self, first: &Self, resampled: bool) -> Result<()> {
        if let Some(difference) = grid_difference(&self.grid, &first.grid).filter(|_| !resampled) {
            return Err(Error::Grid {
                what: "image",
                path: self.name(),
                other: first.name(),
                difference,
                advice: "resample it with OPTIONS (target 'an image of the grid'), or make one table for each grid"
                    .into(),
            });
        }
        let fault = |reason: String| Err(Error::Image { path: self.name(), reason });
        match (self.grid.t_r, first.grid.t_r) {
            (Some(a), Some(b)) if (a - b).abs() < 1e-6 => Ok(()),
            (None, None) => Ok(()),
            (a, b) => {
                let text = |t_r: Option<f64>| t_r.map_or("unknown".into(), |t| format!("{t} s"));
                let (a, b) = (text(a), text(b));
                fault(format!(
                    "its repetition time is {a}, that of {} {b}: give OPTIONS (t_r …)",
                    first.name()
                ))
            }
        }
    }
}

/// What the ledger has of an image as it is opened: that its numbers are rescaled, and what is odd about its header.
fn header_notes(header: &ImageHeader<'_>, keys: &RunKeys) -> Vec<LedgerEntry> {
    let entry = |what, reason: String| LedgerEntry::of_run(keys.run(), Level::Run, what, reason, 1);
    let rescaled = header.scaling().map(|Scaling { slope, intercept }| {
        let reason =
            format!("stored numbers times {slope} plus {intercept}, as the header of the image says");
        entry(Finding::Rescaled, reason)
    });
    let faults =
        header.faults().iter().map(|fault| entry(Finding::Noted, format!("header of the image: {fault}")));
    rescaled.into_iter().chain(faults).collect()
}

/// What is different between two grids, in words; nothing when one can be laid over the other.
pub(crate) fn grid_difference(a: &Grid, b: &Grid) -> Option<String> {
    if a.same_space(b) {
        return None;
    }
    if a.shape != b.shape {
        let text = |s: [usize; 3]| format!("{}×{}×{}", s[0], s[1], s[2]);
        return Some(format!("shapes {} and {}", text(a.shape), text(b.shape)));
    }
    let at = |grid: &Grid, voxel: [usize; 3]| {
        let [i, j, k] = voxel.map(|n| n as f64);
        [0, 1, 2].map(|r| {
            let row = grid.affine[r];
            row[0] * i + row[1] * j + row[2] * k + row[3]
        })
    };
    let shift = |voxel| {
        let (a, b) = (at(a, voxel), at(b, voxel));
        [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
    };
    let [x, y, z] = shift([0; 3]);
    let corners = (0..8_usize).map(|c| [0, 1, 2].map(|axis| (c >> axis & 1) * (a.shape[axis] - 1)));
    let largest = corners.map(|c| shift(c).iter().map(|d| d * d).sum::<f64>().sqrt()).fold(0.0, f64::max);
    Some(format!(
        "shifted by ({x:.3}, {y:.3}, {z:.3}) mm at the first voxel, at most {largest:.3} mm at a corner"
    ))
}

/// `RepetitionTime` of the JSON file beside an image, which outranks the header; `stem` is its location without
/// extension.
pub(crate) fn sidecar_t_r(stem: &str, stores: &Stores) -> Result<Option<f64>> {
    let sidecar = format!("{stem}.json");
    let Some(bytes) = stores.read_if_there(&sidecar)? else { return Ok(None) };
    Ok(Sidecar::from_reader(bytes.as_slice(), &sidecar)?.repetition_time)
}
