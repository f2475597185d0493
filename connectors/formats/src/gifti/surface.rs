//! The mesh of a surface.

use super::array::DataArray;
use super::intent::Intent;
use super::reader::GiftiReader;
use crate::{Error, Result};
use std::io::Read;
use std::path::Path;

/// Points and triangles of a surface, as in `.surf.gii`.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    /// Path or URL, as the caller gave it.
    pub path: String,
    /// The part of the brain, such as `CortexLeft`, where the file says it.
    pub structure: Option<String>,
    /// `[vertices]` of x, y, z in millimetres, as stored (the file's own transform is not applied).
    pub points: Vec<[f32; 3]>,
    /// `[triangles]` of three vertices, each below the count of points.
    pub triangles: Vec<[u32; 3]>,
}

impl Surface {
    /// Reads the surface at `path`.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::collect(GiftiReader::open(path)?)
    }

    /// Reads a surface from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// Those of [`GiftiReader`], and [`Error::Content`] without exactly one array of points and one of
    /// triangles, for points that are not finite, and for a triangle of vertices that are not there.
    pub fn from_reader(source: impl Read + Send + 'static, name: &str) -> Result<Self> {
        Self::collect(GiftiReader::from_reader(source, name)?)
    }

    fn collect(mut reader: GiftiReader) -> Result<Self> {
        let (mut points, mut triangles) = (None, None);
        let mut structure = reader.header().structure().map(str::to_owned);
        while let Some(array) = reader.next_array()? {
            let place = match array.intent() {
                Intent::PointSet => &mut points,
                Intent::Triangle => &mut triangles,
                _ => continue,
            };
            if structure.is_none() {
                structure = array.metadata().get("AnatomicalStructurePrimary").map(str::to_owned);
            }
            if !matches!(array.dims(), [_, 3]) {
                return Err(array.fault(format!("its dimensions are {:?}, not [n, 3]", array.dims())));
            }
            if let Some(first) = place.replace(array) {
                return Err(first.fault("there are two of its kind".into()));
            }
        }
        let path = reader.header().path.clone();
        let missing = |what: &str| Error::Content {
            path: path.clone(),
            reason: format!("a surface has an array of {what}, and this file has none"),
        };
        let points = points.ok_or_else(|| missing("points"))?;
        let triangles = triangles.ok_or_else(|| missing("triangles"))?;
        let found = self::points(&points)?;
        let triangles = self::triangles(&triangles, found.len())?;
        Ok(Self { path, structure, points: found, triangles })
    }
}

fn points(array: &DataArray) -> Result<Vec<[f32; 3]>> {
    let points = array.values().as_chunks::<3>().0.to_vec();
    match points.iter().position(|point| point.iter().any(|value| !value.is_finite())) {
        Some(vertex) => Err(array.fault(format!("vertex {vertex} is at {:?}", points[vertex]))),
        None => Ok(points),
    }
}

fn triangles(array: &DataArray, vertices: usize) -> Result<Vec<[u32; 3]>> {
    let mut triangles = Vec::new();
    for (index, corners) in array.integers()?.as_chunks::<3>().0.iter().enumerate() {
        let corner = |vertex: i32| u32::try_from(vertex).ok().filter(|&vertex| (vertex as usize) < vertices);
        match corners.map(corner) {
            [Some(a), Some(b), Some(c)] => triangles.push([a, b, c]),
            _ => {
                let reason =
                    format!("triangle {index} has the vertices {corners:?}, but there are {vertices}");
                return Err(array.fault(reason));
            }
        }
    }
    Ok(triangles)
}
