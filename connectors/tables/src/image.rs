//! One image file: what its header says, and its volumes one by one. The only module that reads images.

use crate::image_reader::{ImageHeader, ImageReader};
use crate::number::Number;
use crate::series_file::stem;
use crate::space::must_be_countable;
use crate::stores::without_extension;
use crate::volume_set::{VolumeSet, by_number};
use crate::{Error, NiftiOptions, Result, RunKeys, Stores};
use serde::{Deserialize, Serialize};
use std::path::Path;
use voxelflow_dataset::{Finding, LedgerEntry, Level};
use voxelflow_formats::sidecar::Sidecar;
use voxelflow_formats::{Scaling, XformPolicy};
use voxelflow_stage::{Grid, look_at_runs};
use voxelflow_storage::Stamp;

/// What is known of an image from its header, its name, its sidecar and the options.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Image {
    /// Where it lies: an absolute path or a URL.
    pub location: String,
    /// Of a run whose volumes are files of their own, those after the first.
    #[serde(default)]
    pub further: Vec<String>,
    /// Shape, affine and repetition time; nothing of a mask yet.
    pub grid: Grid,
    /// Points of every series.
    pub volumes: usize,
    /// Whether its values are kept in double precision until they are cleaned.
    pub double: bool,
    /// Which transform of its header is believed.
    #[serde(with = "crate::volume_options::xform")]
    pub xform: XformPolicy,
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
        Self::of_run(location, keys, t_r, None, options.volumes.xform, stores)
    }

    /// The run whose volumes are the images at `locations`, of one volume each, by the numbers in their names.
    ///
    /// # Errors
    /// An image of several volumes, or on another grid than the first.
    pub fn of_volumes(locations: &[String], options: &NiftiOptions, stores: &Stores) -> Result<Self> {
        let mut locations = locations.to_vec();
        locations.sort_by(|a, b| by_number(a, b));
        let looked = look_at_runs(locations.len(), |n| Self::probe(&locations[n], options, stores));
        let mut images = looked.into_iter().collect::<Result<Vec<Self>>>()?.into_iter();
        let nothing = || Error::Location { location: String::new(), reason: "there is no image".into() };
        let mut run = images.next().ok_or_else(nothing)?;
        let several = |image: &Self| Error::Image {
            path: image.name(),
            reason: format!(
                "it has {} volumes: with one_run each image is one volume of the run",
                image.volumes
            ),
        };
        if run.volumes != 1 {
            return Err(several(&run));
        }
        for image in images {
            if image.volumes != 1 {
                return Err(several(&image));
            }
            image.must_fit(&run, false)?;
            run.double |= image.double;
            run.further.push(image.location);
        }
        run.volumes += run.further.len();
        Ok(run)
    }

    /// Reads the header of an image of which keys, mask and, where it outranks the header, repetition time in seconds
    /// are known.
    pub fn of_run(
        location: &str,
        keys: RunKeys,
        t_r: Option<f64>,
        mask: Option<String>,
        xform: XformPolicy,
        stores: &Stores,
    ) -> Result<Self> {
        let reader = stores.open_image(location, xform)?;
        let header = reader.header();
        if header.surface {
            let reason =
                "it holds vertices of a surface, not voxels: make a table STORED AS MGH of it".into();
            return Err(Error::Image { path: location.into(), reason });
        }
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
        let (location, volumes, double) = (location.into(), header.volumes, header.double);
        Ok(Self { location, further: Vec::new(), grid, volumes, double, xform, keys, mask, notes })
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
        let reader = match self.further.is_empty() {
            true => stores.open_image(&self.location, self.xform)?,
            false => {
                let files = [&self.location].into_iter().chain(&self.further).cloned().collect();
                ImageReader::Set(Box::new(VolumeSet::open(files, self.xform, stores)?))
            }
        };
        let header = reader.header();
        if header.shape != self.grid.shape || header.volumes != self.volumes {
            let reason = "it has changed since the table was made: create the table again".into();
            return Err(Error::Image { path: self.name(), reason });
        }
        Ok(reader)
    }

    /// Gives every volume, `[i + ni·(j + nj·k)]`, to `each`, in order of time.
    pub fn for_each_volume<T: Number>(
        &self,
        stores: &Stores,
        mut each: impl FnMut(&[T]) -> Result<()>,
    ) -> Result<()> {
        let mut reader = self.open(stores)?;
        let mut volume = Vec::new();
        while reader.next_volume(&mut volume)? {
            each(&volume)?;
        }
        Ok(())
    }

    /// The file's length and time of change, of several files those of all: a mask that was found is kept as long as
    /// they stay.
    pub fn stamp(&self, stores: &Stores) -> Option<Stamp> {
        let first = stores.stamp(&self.location)?;
        if self.further.is_empty() {
            return Some(first);
        }
        let mut hasher = blake3::Hasher::new();
        for file in &self.further {
            hasher.update(format!("{file}\n{:?}\n", stores.stamp(file)?).as_bytes());
        }
        let further = hasher.finalize().to_hex();
        Some(Stamp { version: Some(format!("{} {further}", first.version.unwrap_or_default())), ..first })
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
        "shifted by ({x:.4}, {y:.4}, {z:.4}) mm at the first voxel, at most {largest:.4} mm at a corner"
    ))
}

/// `RepetitionTime` of the JSON file beside an image, which outranks the header; `stem` is its location without
/// extension.
pub(crate) fn sidecar_t_r(stem: &str, stores: &Stores) -> Result<Option<f64>> {
    Ok(sidecar_at(stem, stores)?.repetition_time)
}

/// What the JSON file beside a file of series says.
pub(crate) fn sidecar_beside(location: &str, stores: &Stores) -> Result<Sidecar> {
    sidecar_at(stem(location), stores)
}

fn sidecar_at(stem: &str, stores: &Stores) -> Result<Sidecar> {
    let sidecar = format!("{stem}.json");
    match stores.read_if_there(&sidecar)? {
        Some(bytes) => Ok(Sidecar::from_reader(bytes.as_slice(), &sidecar)?),
        None => Ok(Sidecar::default()),
    }
}
