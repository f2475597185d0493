//! Where series come from that lie on no grid of voxels: surfaces, grayordinates, plain arrays; carried as Arrow schema
//! metadata, as the [`Grid`] of voxel series is.
//!
//! Beside it the rows say by `structure`, `vertex`, `grayordinate` and, for voxels of CIFTI, `i`, `j`, `k` which point
//! each is of, so that a map can be written as GIFTI or CIFTI from whatever still has these columns.

use crate::metadata::{carried, carrying};
use crate::{Error, GRID_METADATA_KEY, Grid, Result};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Key of the schema metadata whose value is a [`SeriesOrigin`] in JSON.
pub const ORIGIN_METADATA_KEY: &str = "voxelflow.origin";

/// Columns that say where a row lies that is no voxel: its structure, and its number there, among the grayordinates of
/// its file, or in its array.
pub const PLACE_COLUMNS: [&str; 4] = ["structure", "vertex", "grayordinate", "row"];

/// What is known of series that lie on no grid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesOrigin {
    /// The structures that rows lie in, in the order of the file (CIFTI) or of their names; none for plain arrays.
    pub structures: Vec<Structure>,
    /// The volume that voxels of CIFTI lie in.
    pub volume: Option<OriginVolume>,
    /// Repetition time in seconds.
    pub t_r: Option<f64>,
    /// Path of the files, as written by the user.
    pub source: String,
    /// What was done to the series since they were read, in order.
    pub history: Vec<String>,
}

/// A part of the brain that rows lie in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Structure {
    /// As in CIFTI, without `CIFTI_STRUCTURE_`: `CORTEX_LEFT`, `THALAMUS_RIGHT`; none where the file does not say.
    pub name: Option<String>,
    /// Rows of it in a file.
    pub rows: usize,
    /// Vertices of the whole surface, if it is one.
    pub surface_vertices: Option<usize>,
}

/// The volume that voxels of a CIFTI file lie in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OriginVolume {
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    /// Voxel index to millimetres, row-major 4×4.
    pub affine: [[f64; 4]; 4],
}

impl SeriesOrigin {
    /// Reads the origin of a schema.
    ///
    /// # Errors
    /// [`Error::Data`] when the schema has none, or one that cannot be read.
    pub fn of(schema: &Schema) -> Result<Self> {
        carried(schema, ORIGIN_METADATA_KEY)?.ok_or_else(|| Error::Data {
            what: "table".into(),
            reason: "it does not say of which surface or grayordinates its series are (or mixes several): take it \
                     from a GIFTI, CIFTI or MGH table and keep its key columns"
                .into(),
        })
    }

    /// The schema metadata that carry this origin.
    ///
    /// # Errors
    /// Never for finite affines.
    pub fn to_metadata(&self) -> Result<HashMap<String, String>> {
        carrying(ORIGIN_METADATA_KEY, self)
    }
}

/// Where the series of a table come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Provenance {
    /// Voxels on a grid.
    Grid(Grid),
    /// Anything else.
    Origin(SeriesOrigin),
}

impl Provenance {
    /// What a schema says; nothing where it says nothing.
    ///
    /// # Errors
    /// [`Error::Data`] for metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Option<Self>> {
        if schema.metadata().contains_key(GRID_METADATA_KEY) {
            return Ok(Some(Self::Grid(Grid::of(schema)?)));
        }
        let origin = schema.metadata().contains_key(ORIGIN_METADATA_KEY);
        origin.then(|| SeriesOrigin::of(schema).map(Self::Origin)).transpose()
    }

    /// Repetition time in seconds, where it is known.
    pub fn t_r(&self) -> Option<f64> {
        match self {
            Self::Grid(grid) => grid.t_r,
            Self::Origin(origin) => origin.t_r,
        }
    }

    /// Adds what was done to the series.
    pub fn push_history(&mut self, step: String) {
        match self {
            Self::Grid(grid) => grid.history.push(step),
            Self::Origin(origin) => origin.history.push(step),
        }
    }

    /// The schema metadata that carry it.
    ///
    /// # Errors
    /// Never for finite affines.
    pub fn to_metadata(&self) -> Result<HashMap<String, String>> {
        match self {
            Self::Grid(grid) => grid.to_metadata(),
            Self::Origin(origin) => origin.to_metadata(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_origin_comes_back_from_the_schema_with_its_history() {
        let structure = Structure { name: Some("CORTEX_LEFT".into()), rows: 3, surface_vertices: Some(5) };
        let volume = OriginVolume { shape: [2, 3, 4], affine: [[0.1; 4]; 4] };
        let origin = SeriesOrigin {
            structures: vec![structure],
            volume: Some(volume),
            t_r: Some(0.72),
            source: "a.dtseries.nii".into(),
            history: Vec::new(),
        };
        let mut found = Provenance::Origin(origin);
        found.push_history("cleaned".into());
        let schema = Schema::empty().with_metadata(found.to_metadata().unwrap());
        assert_eq!(Provenance::of(&schema).unwrap(), Some(found.clone()));
        assert_eq!((found.t_r(), SeriesOrigin::of(&schema).unwrap().history.len()), (Some(0.72), 1));
        assert_eq!(Provenance::of(&Schema::empty()).unwrap(), None);
        let text = SeriesOrigin::of(&Schema::empty()).unwrap_err().to_string();
        assert!(text.contains("GIFTI, CIFTI or MGH"), "{text}");
        let broken = HashMap::from([(ORIGIN_METADATA_KEY.to_owned(), "[]".to_owned())]);
        assert!(Provenance::of(&Schema::empty().with_metadata(broken)).is_err());
    }
}
