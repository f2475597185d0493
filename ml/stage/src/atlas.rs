//! The atlas whose parcels are the rows of a table, carried as Arrow schema metadata beside the grid: with it a value
//! of every parcel can be laid back on the grid.

use crate::Result;
use crate::metadata::{carried, carrying};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Key of the schema metadata whose value is an [`Atlas`] in JSON.
pub const ATLAS_METADATA_KEY: &str = "voxelflow.atlas";

/// An atlas, which lies on the grid of the same schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Atlas {
    /// Its image: an absolute path or a URL.
    pub source: String,
    /// What its image holds.
    pub kind: AtlasKind,
    /// blake3 of its values.
    pub hash: String,
    /// Parcels, inside any mask.
    pub parcels: usize,
}

/// What the image of an atlas holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtlasKind {
    /// The number of a parcel in every voxel; `parcel` is that number.
    Labels,
    /// A volume of weights for each parcel; `parcel` is the volume's number, from 0.
    Maps,
}

impl Atlas {
    /// The atlas of a schema; none where rows are no parcels.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) for metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Option<Self>> {
        carried(schema, ATLAS_METADATA_KEY)
    }

    /// The schema metadata that carry this atlas.
    ///
    /// # Errors
    /// Never.
    pub fn to_metadata(&self) -> Result<HashMap<String, String>> {
        carrying(ATLAS_METADATA_KEY, self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_atlas_comes_back_from_the_schema() {
        let atlas = Atlas { source: "/a.nii".into(), kind: AtlasKind::Maps, hash: "0".into(), parcels: 64 };
        let schema = Schema::empty().with_metadata(atlas.to_metadata().unwrap());
        assert_eq!(Atlas::of(&schema).unwrap(), Some(atlas));
        assert_eq!(Atlas::of(&Schema::empty()).unwrap(), None);
        let broken = HashMap::from([(ATLAS_METADATA_KEY.to_owned(), "[]".to_owned())]);
        assert!(Atlas::of(&Schema::empty().with_metadata(broken)).is_err());
    }
}
