//! Where the runs lie within series that were joined, carried as Arrow schema metadata beside the grid.

use crate::Result;
use crate::metadata::{carried, carrying};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, ops::Range};

/// Key of the schema metadata whose value is a [`Segments`] in JSON.
pub const SEGMENTS_METADATA_KEY: &str = "voxelflow.segments";

/// The runs of which every series of a table is made, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segments {
    /// Their names, as in the key columns.
    pub runs: Vec<String>,
    /// Time points of each.
    pub time_points: usize,
}

impl Segments {
    /// The segments of a schema; none where its series are of one run each.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) for metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Option<Self>> {
        carried(schema, SEGMENTS_METADATA_KEY)
    }

    /// The schema metadata that carry them.
    ///
    /// # Errors
    /// Never: names and numbers can be written.
    pub fn to_metadata(&self) -> Result<HashMap<String, String>> {
        carrying(SEGMENTS_METADATA_KEY, self)
    }

    /// Each run and its time points within the series.
    pub fn ranges(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let range = |n: usize| n * self.time_points..(n + 1) * self.time_points;
        self.runs.iter().enumerate().map(move |(n, run)| (run.as_str(), range(n)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn segments_come_back_from_the_schema() {
        let segments = Segments { runs: vec!["LR".into(), "RL".into()], time_points: 284 };
        let schema = Schema::empty().with_metadata(segments.to_metadata().unwrap());
        assert_eq!(Segments::of(&schema).unwrap(), Some(segments.clone()));
        assert_eq!(Segments::of(&Schema::empty()).unwrap(), None);
        let ranges: Vec<_> = segments.ranges().collect();
        assert_eq!(ranges, [("LR", 0..284), ("RL", 284..568)]);
        let broken = HashMap::from([(SEGMENTS_METADATA_KEY.to_owned(), "[]".to_owned())]);
        assert!(Segments::of(&Schema::empty().with_metadata(broken)).is_err());
    }
}
