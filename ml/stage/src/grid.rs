//! The grid that a voxel table came from, carried as Arrow schema metadata.
//!
//! A table of series has the columns [`KEY_COLUMNS`] and [`SERIES_COLUMN`]. As long as a plan keeps
//! `voxel`, `i`, `j`, `k` and the schema's metadata, any column of it can be written back as a map.

use crate::metadata::{carried, carrying};
use crate::{Error, Result};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Key of the schema metadata whose value is a [`Grid`] in JSON.
pub const GRID_METADATA_KEY: &str = "voxelflow.grid";
/// Columns that say where a row comes from: five nullable strings, `voxel` (UInt32, linear index
/// `i + ni·(j + nj·k)`) and `i`, `j`, `k` (UInt16).
pub const KEY_COLUMNS: [&str; 9] = ["subject", "session", "task", "run", "space", "voxel", "i", "j", "k"];
/// Columns of a table of parcels in the place of `voxel`, `i`, `j`, `k`: the parcel's number in its atlas (Int32), and
/// its name, where one is known.
pub const PARCEL_COLUMNS: [&str; 2] = ["parcel", "parcel_name"];
/// The column of time courses, `FixedSizeList<Float32, T>`; `Float64` where volumes were computed and not cleaned yet.
pub const SERIES_COLUMN: &str = "series";

/// A volume grid and what is known of the series on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// Voxels along i, j, k.
    pub shape: [usize; 3],
    /// Voxel index to millimetres, row-major 4×4.
    pub affine: [[f64; 4]; 4],
    /// `sform_code` or `qform_code` that the affine came from.
    pub xform_code: i16,
    /// Repetition time in seconds.
    pub t_r: Option<f64>,
    /// blake3 of the mask's voxel indices (little-endian u32).
    pub mask_hash: String,
    /// Voxels in the mask.
    pub mask_voxels: usize,
    /// Path of the image, as written by the user.
    pub source: String,
    /// What was done to the series since they were read, in order.
    pub history: Vec<String>,
}

impl Grid {
    /// Same shape and affine: maps of one can be laid over the other. Numbers of affines differ by 1e-5 of their size, as
    /// `numpy.allclose` lets them, of which nilearn asks; and by 1e-4 mm, for what is 0 in one program is rounding in
    /// another.
    pub fn same_space(&self, other: &Self) -> bool {
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 + 1e-5 * a.abs().max(b.abs());
        self.shape == other.shape
            && self.affine.iter().flatten().zip(other.affine.iter().flatten()).all(close)
    }

    /// Reads the grid of a schema.
    ///
    /// # Errors
    /// [`Error::Data`] when the schema has none, or one that cannot be read.
    pub fn of(schema: &Schema) -> Result<Self> {
        carried(schema, GRID_METADATA_KEY)?.ok_or_else(|| Error::Data {
            what: "table".into(),
            reason:
                "it carries no grid (or mixes several): take it from a NIFTI table and keep its key columns"
                    .into(),
        })
    }

    /// The schema metadata that carries this grid.
    ///
    /// # Errors
    /// Never for finite affines.
    pub fn to_metadata(&self) -> Result<HashMap<String, String>> {
        carrying(GRID_METADATA_KEY, self)
    }
}
