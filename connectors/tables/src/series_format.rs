//! The formats of series that lie on no grid of voxels, and the one seam through which they are read.
//!
//! A file gives its values either frame by frame (GIFTI and MGH: all vertices at one time point) or row by row (CIFTI:
//! all time points of one grayordinate); npy does as its order says.

use crate::image_reader::ImageReader;
use crate::number::Number;
use crate::{Error, Result, Stores, structure};
use serde::{Deserialize, Serialize};
use std::fmt;
use voxelflow_formats::XformPolicy;
use voxelflow_formats::cifti::{Along, BrainModel, CiftiReader, Places};
use voxelflow_formats::gifti::{DataArray, GiftiReader, Intent};
use voxelflow_formats::npy::NpyReader;
use voxelflow_stage::{OriginVolume, Structure};

/// What files of series are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeriesFormat {
    /// `.gii`: an array per time point or map, over the vertices of one hemisphere.
    Gifti,
    /// CIFTI-2: `.dtseries.nii` and `.dscalar.nii`.
    Cifti,
    /// `.mgh` and `.mgz` over the vertices of one hemisphere.
    Mgh,
    /// `.npy`: rows by time points.
    Npy,
}

impl SeriesFormat {
    /// Endings of their names.
    pub(crate) fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Gifti => &[".gii", ".gii.gz"],
            Self::Cifti => &[".dtseries.nii", ".dscalar.nii"],
            Self::Mgh => &[".mgh", ".mgz", ".mgh.gz"],
            Self::Npy => &[".npy", ".npy.gz"],
        }
    }
}

impl fmt::Display for SeriesFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gifti => "GIFTI",
            Self::Cifti => "CIFTI",
            Self::Mgh => "MGH",
            Self::Npy => "NPY",
        })
    }
}

/// Whether values come time point by time point, or row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Frames,
    Rows,
}

/// Gives frames or rows.
pub(crate) enum SeriesReader {
    Gifti(Box<GiftiFrames>),
    Cifti(Box<CiftiReader>),
    Image(ImageReader),
    Npy(Box<NpyReader>),
}

impl SeriesReader {
    /// Replaces the content of `into` by the next frame or row; false after the last.
    pub fn next<T: Number>(&mut self, into: &mut Vec<T>) -> Result<bool> {
        match self {
            Self::Gifti(frames) => frames.next(into),
            Self::Cifti(reader) => Ok(reader.next_series(into)?),
            Self::Image(reader) => reader.next_volume(into),
            Self::Npy(reader) => Ok(reader.next_row(into)?),
        }
    }
}

/// A file whose header was read.
pub(crate) struct OpenSeries {
    pub rows: usize,
    pub points: usize,
    /// Structures in the order of the rows.
    pub structures: Vec<Structure>,
    /// Of grayordinates, where each lies.
    pub models: Vec<BrainModel>,
    pub volume: Option<OriginVolume>,
    /// Repetition time in seconds that the file itself gives.
    pub t_r: Option<f64>,
    pub order: Order,
    /// Whether its values are kept in double precision until they are cleaned.
    pub double: bool,
    pub reader: SeriesReader,
}

impl OpenSeries {
    /// Opens the file at `location` and reads what stands before its values.
    ///
    /// # Errors
    /// A file of another format, a damaged one, one that holds no series.
    pub fn open(format: SeriesFormat, location: &str, stores: &Stores) -> Result<Self> {
        match format {
            SeriesFormat::Gifti => gifti(location, stores),
            SeriesFormat::Cifti => cifti(location, stores),
            SeriesFormat::Mgh => mgh(location, stores),
            SeriesFormat::Npy => npy(location, stores),
        }
    }
}

fn refuse<T>(location: &str, reason: String) -> Result<T> {
    Err(Error::Image { path: location.into(), reason })
}

/// One surface, whose vertices are the rows. What the file says and what its name says must not differ.
fn surface(location: &str, vertices: usize, said: Option<String>) -> Result<Vec<Structure>> {
    let named = structure::of_name(location);
    if let (Some(said), Some(named)) = (&said, &named)
        && said != named
    {
        return refuse(location, format!("it says that it is of {said}, and its name that it is of {named}"));
    }
    let name = said.or(named);
    Ok(vec![Structure { name, rows: vertices, surface_vertices: Some(vertices) }])
}

fn gifti(location: &str, stores: &Stores) -> Result<OpenSeries> {
    let mut reader = GiftiReader::from_reader(stores.open(location)?, location)?;
    let arrays = reader.header().arrays;
    let Some(first) = reader.next_array()? else {
        return refuse(location, "it holds no array".into());
    };
    if matches!(first.intent(), Intent::PointSet | Intent::Triangle) {
        let reason = "it is a mesh, not data on one: a table takes .func.gii, .shape.gii or .label.gii";
        return refuse(location, reason.into());
    }
    // One array may hold all time points, as nilearn writes them: [vertices, time points].
    let columns = match (arrays, first.dims()) {
        (1, [rows, columns]) if *rows > 0 && *columns > 1 => Some(*columns),
        _ => None,
    };
    let rows = match columns {
        Some(_) => first.dims()[0],
        None => vertices(&first, 1, None, location)?,
    };
    let points = columns.unwrap_or(arrays);
    let said = reader.header().structure().or(first.metadata().get("AnatomicalStructurePrimary"));
    let structures = surface(location, rows, said.map(structure::of_gifti))?;
    let (t_r, double) = (first.t_r()?, first.data_type().exceeds_single(None));
    let location = location.to_owned();
    let frames = GiftiFrames { location, reader, first: Some(first), number: 0, rows, columns };
    let (models, volume, order) = (Vec::new(), None, Order::Frames);
    let reader = SeriesReader::Gifti(Box::new(frames));
    Ok(OpenSeries { rows, points, structures, models, volume, t_r, order, double, reader })
}

/// The arrays of a GIFTI file, of which the first was read to know their vertices.
pub(crate) struct GiftiFrames {
    location: String,
    reader: GiftiReader,
    first: Option<DataArray>,
    number: usize,
    rows: usize,
    /// Time points of the first array, where it holds them all.
    columns: Option<usize>,
}

impl GiftiFrames {
    fn next<T: Number>(&mut self, into: &mut Vec<T>) -> Result<bool> {
        into.clear();
        if let (Some(columns), Some(array)) = (self.columns, &self.first) {
            let more = self.number < columns;
            if more {
                *into = array.column_as(self.number);
                self.number += 1;
            }
            return Ok(more);
        }
        let array = match self.first.take() {
            Some(array) => Some(array),
            None => self.reader.next_array()?,
        };
        let Some(array) = array else { return Ok(false) };
        self.number += 1;
        vertices(&array, self.number, Some(self.rows), &self.location)?;
        *into = array.values_as();
        Ok(true)
    }
}

/// Vertices of an array, which are `expected`.
fn vertices(array: &DataArray, number: usize, expected: Option<usize>, location: &str) -> Result<usize> {
    match (array.dims(), expected) {
        ([vertices] | [vertices, 1], None) if *vertices > 0 => Ok(*vertices),
        ([vertices] | [vertices, 1], Some(expected)) if *vertices == expected => Ok(expected),
        (dims, None) => {
            let reason =
                format!("array {number} has the dimensions {dims:?}; data on a surface are [vertices]");
            refuse(location, reason)
        }
        (dims, Some(expected)) => {
            let reason =
                format!("array {number} has the dimensions {dims:?}, but the first has {expected} vertices");
            refuse(location, reason)
        }
    }
}

fn cifti(location: &str, stores: &Stores) -> Result<OpenSeries> {
    let reader = CiftiReader::from_reader(stores.open(location)?, location)?;
    let header = reader.header();
    let (rows, points) = (header.grayordinates(), header.along.len());
    let t_r = match &header.along {
        Along::Series(axis) => axis.t_r(),
        _ => None,
    };
    let models = header.models.clone();
    let structures = models.iter().map(structure_of).collect();
    let volume = header.volume.as_ref().map(|v| OriginVolume { shape: v.shape, affine: v.affine });
    if volume.as_ref().is_some_and(|v| v.shape.iter().any(|n| *n > usize::from(u16::MAX))) {
        return refuse(location, "its volume has more than 65,535 voxels a side".into());
    }
    let (order, double) = (Order::Rows, header.exceeds_single());
    let reader = SeriesReader::Cifti(Box::new(reader));
    Ok(OpenSeries { rows, points, structures, models, volume, t_r, order, double, reader })
}

fn structure_of(model: &BrainModel) -> Structure {
    let surface_vertices = match &model.places {
        Places::Surface { vertices_of_surface, .. } => Some(*vertices_of_surface),
        _ => None,
    };
    Structure { name: Some(structure::of_cifti(&model.structure)), rows: model.count, surface_vertices }
}

/// MGH, or NIfTI of FreeSurfer. The repetition time of MGH stands behind the values and is often a placeholder: it is not
/// looked for.
fn mgh(location: &str, stores: &Stores) -> Result<OpenSeries> {
    let reader = stores.open_image(location, XformPolicy::Agree)?;
    let (shape, points, double) = (reader.header().shape, reader.header().volumes, reader.header().double);
    // One that cannot be is none: whoever needs it is asked for t_r.
    let t_r = reader.header().t_r().ok().flatten();
    let [rows, 1, 1] = shape else {
        let reason =
            format!("it is a volume of {shape:?} voxels among data on surfaces: make a table of each");
        return refuse(location, reason);
    };
    let structures = surface(location, rows, None)?;
    let (models, volume, order) = (Vec::new(), None, Order::Frames);
    let reader = SeriesReader::Image(reader);
    Ok(OpenSeries { rows, points, structures, models, volume, t_r, order, double, reader })
}

fn npy(location: &str, stores: &Stores) -> Result<OpenSeries> {
    let reader = NpyReader::from_reader(stores.open(location)?, location)?;
    let header = reader.header();
    let (rows, points) = match header.shape[..] {
        [rows] => (rows, 1),
        [rows, points] => (rows, points),
        ref shape => {
            let reason = format!("its shape is {shape:?}; a table takes [rows] or [rows, time points]");
            return refuse(location, reason);
        }
    };
    if rows == 0 || points == 0 {
        return refuse(location, format!("its shape {:?} has no value", header.shape));
    }
    let order = if header.fortran_order && points > 1 { Order::Frames } else { Order::Rows };
    let double = header.data_type.exceeds_single(None);
    let (structures, models, volume) = (Vec::new(), Vec::new(), None);
    let reader = SeriesReader::Npy(Box::new(reader));
    Ok(OpenSeries { rows, points, structures, models, volume, t_r: None, order, double, reader })
}
