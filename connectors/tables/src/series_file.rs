//! One file of series: what is known of it before its values are read.

use crate::image::sidecar_t_r;
use crate::series_format::OpenSeries;
use crate::{Error, Result, RunKeys, SeriesFormat, SeriesOptions, Stores};
use serde::{Deserialize, Serialize};
use std::path::Path;
use voxelflow_formats::cifti::{BrainModel, Places};
use voxelflow_stage::{OriginVolume, SeriesOrigin, Structure};

/// What is known of a file from what stands before its values, its name, its sidecar and the options.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SeriesFile {
    /// Where it lies: an absolute path or a URL.
    pub location: String,
    pub format: SeriesFormat,
    /// Subject, session, task, run, space.
    pub keys: RunKeys,
    pub rows: usize,
    /// Points of every series.
    pub points: usize,
    pub structures: Vec<Structure>,
    pub volume: Option<OriginVolume>,
    /// Of the vertices and voxels of grayordinates.
    pub places: String,
    /// Repetition time in seconds.
    pub t_r: Option<f64>,
    /// Whether its values are kept in double precision until they are cleaned.
    pub double: bool,
}

impl SeriesFile {
    /// Looks at the file at `location`. Its keys and its repetition time come from the options, else from its name and
    /// the JSON file beside it, else from the file.
    pub fn probe(
        location: &str,
        format: SeriesFormat,
        options: &SeriesOptions,
        stores: &Stores,
    ) -> Result<Self> {
        let t_r = match options.t_r {
            Some(t_r) => Some(t_r),
            None => sidecar_t_r(stem(location), stores)?,
        };
        let keys = options.keys().or(RunKeys::of(Path::new(location)));
        Self::of_run(location, format, keys, t_r, stores)
    }

    /// Looks at a file of which keys and, where it outranks the file's, repetition time in seconds are known.
    pub fn of_run(
        location: &str,
        format: SeriesFormat,
        keys: RunKeys,
        t_r: Option<f64>,
        stores: &Stores,
    ) -> Result<Self> {
        let open = OpenSeries::open(format, location, stores)?;
        if i32::try_from(open.points).is_err() || u32::try_from(open.rows).is_err() {
            let reason = format!("its {} rows of {} points are too many", open.rows, open.points);
            return Err(Error::Image { path: location.into(), reason });
        }
        Ok(Self {
            location: location.into(),
            format,
            keys,
            rows: open.rows,
            points: open.points,
            places: hash(&open.models),
            structures: open.structures,
            volume: open.volume,
            t_r: t_r.or(open.t_r),
            double: open.double,
        })
    }

    /// Whether its sizes are such that [`SeriesFile::probe`] gives: they come from other processes too.
    pub fn is_sound(&self) -> bool {
        i32::try_from(self.points).is_ok() && u32::try_from(self.rows).is_ok()
    }

    /// Opens it again.
    ///
    /// # Errors
    /// A file that has changed since.
    pub fn open(&self, stores: &Stores) -> Result<OpenSeries> {
        let open = OpenSeries::open(self.format, &self.location, stores)?;
        if (open.rows, open.points) != (self.rows, self.points) || hash(&open.models) != self.places {
            let reason = "it has changed since the table was made: create the table again".into();
            return Err(Error::Image { path: self.location.clone(), reason });
        }
        Ok(open)
    }

    /// Fails unless the series of `self` can be rows of the same table as those of `first`: as many points, as far
    /// apart in time, and, of grayordinates, of the same structures.
    pub fn must_fit(&self, first: &Self) -> Result<()> {
        let fault = |reason: String| Err(Error::Image { path: self.location.clone(), reason });
        let same_t_r = match (self.t_r, first.t_r) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-6,
            (a, b) => a == b,
        };
        if !same_t_r {
            let text = |t_r: Option<f64>| t_r.map_or("unknown".into(), |t| format!("{t} s"));
            let (a, b) = (text(self.t_r), text(first.t_r));
            let first = &first.location;
            return fault(format!("its repetition time is {a}, that of {first} {b}: give OPTIONS (t_r …)"));
        }
        if self.format == SeriesFormat::Cifti && (self.places != first.places || self.volume != first.volume)
        {
            return fault(format!(
                "its grayordinates are not those of {}: make one table for each",
                first.location
            ));
        }
        Ok(())
    }
}

/// A location up to the first dot of its name, where BIDS lets extensions begin.
pub(crate) fn stem(location: &str) -> &str {
    let name = location.rfind('/').map_or(0, |slash| slash + 1);
    location[name..].find('.').map_or(location, |dot| &location[..name + dot])
}

/// Where the series of `files` come from.
///
/// # Errors
/// Two files that know a structure with different numbers of vertices.
pub(crate) fn origin(files: &[SeriesFile], source: &str) -> Result<SeriesOrigin> {
    let mut origin = SeriesOrigin { source: source.into(), ..SeriesOrigin::default() };
    let Some(first) = files.first() else { return Ok(origin) };
    (origin.t_r, origin.volume) = (first.t_r, first.volume.clone());
    if first.format == SeriesFormat::Cifti {
        origin.structures.clone_from(&first.structures);
        return Ok(origin);
    }
    for file in files {
        for structure in &file.structures {
            match origin.structures.iter().find(|known| known.name == structure.name) {
                None => origin.structures.push(structure.clone()),
                Some(known) if known == structure => {}
                Some(known) => {
                    let name = structure.name.as_deref().unwrap_or("the surface");
                    let reason = format!(
                        "{name} has {} vertices here and {} in files before it: make one table for each mesh",
                        structure.rows, known.rows
                    );
                    return Err(Error::Image { path: file.location.clone(), reason });
                }
            }
        }
    }
    origin.structures.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(origin)
}

fn hash(models: &[BrainModel]) -> String {
    let mut hasher = blake3::Hasher::new();
    for model in models {
        hasher.update(format!("{}\n{}\n", model.structure, model.count).as_bytes());
        match &model.places {
            Places::Surface { vertices_of_surface, vertices } => {
                hasher.update(&(*vertices_of_surface as u64).to_le_bytes());
                for vertex in vertices {
                    hasher.update(&vertex.to_le_bytes());
                }
            }
            Places::Volume { voxels } => {
                for index in voxels.iter().flatten() {
                    hasher.update(&index.to_le_bytes());
                }
            }
            _ => {}
        }
    }
    if models.is_empty() { String::new() } else { hasher.finalize().to_hex().to_string() }
}
