//! How long each run of a table is, where runs differ: carried as Arrow schema metadata beside the grid.
//!
//! Series are lists of several lengths then, `List<Float32>`; where all runs are of one length T, they are
//! `FixedSizeList<Float32, T>`, and nothing is carried.

use crate::Result;
use crate::metadata::{carried, carrying};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Key of the schema metadata whose value is a [`RunLengths`] in JSON.
pub const LENGTHS_METADATA_KEY: &str = "voxelflow.lengths";

/// Subject, session, task and run, as in the key columns.
type Run = [Option<String>; 4];

/// Time points of each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLengths(Vec<(Run, usize)>);

impl RunLengths {
    /// Of these runs, each once or more; none where all are of one length.
    ///
    /// # Errors
    /// A run that has two lengths.
    pub fn of_runs(
        runs: impl IntoIterator<Item = (Run, usize)>,
    ) -> std::result::Result<Option<Self>, Box<Run>> {
        let mut found: Vec<(Run, usize)> = Vec::new();
        let mut known: HashMap<Run, usize> = HashMap::new();
        for (run, time_points) in runs {
            match known.insert(run.clone(), time_points) {
                None => found.push((run, time_points)),
                Some(before) if before == time_points => {}
                Some(_) => return Err(Box::new(run)),
            }
        }
        let one = found.windows(2).all(|pair| pair[0].1 == pair[1].1);
        Ok((!one).then_some(Self(found)))
    }

    /// The lengths of a schema; none where all runs are of one length.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) for metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Option<Self>> {
        carried(schema, LENGTHS_METADATA_KEY)
    }

    /// The schema metadata that carry them.
    ///
    /// # Errors
    /// Never: names and numbers can be written.
    pub fn to_metadata(&self) -> Result<HashMap<String, String>> {
        carrying(LENGTHS_METADATA_KEY, self)
    }

    /// Time points of a run, if it is one of these.
    pub fn of_run(&self, run: &Run) -> Option<usize> {
        self.0.iter().find(|(known, _)| known == run).map(|(_, time_points)| *time_points)
    }

    /// Every length, ascending, once.
    pub fn distinct(&self) -> Vec<usize> {
        let mut lengths: Vec<usize> = self.0.iter().map(|(_, time_points)| *time_points).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// Of the longest run.
    pub fn longest(&self) -> usize {
        self.0.iter().map(|(_, time_points)| *time_points).max().unwrap_or(0)
    }

    /// The same runs, after each was made as long as `length` says.
    pub fn map(&self, length: impl Fn(&Run, usize) -> usize) -> Self {
        Self(self.0.iter().map(|(run, points)| (run.clone(), length(run, *points))).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(name: &str) -> Run {
        [Some("01".into()), None, None, Some(name.into())]
    }

    #[test]
    fn lengths_come_back_from_the_schema() {
        let lengths =
            RunLengths::of_runs([(run("1"), 300), (run("2"), 280), (run("1"), 300)]).unwrap().unwrap();
        let schema = Schema::empty().with_metadata(lengths.to_metadata().unwrap());
        assert_eq!(RunLengths::of(&schema).unwrap(), Some(lengths.clone()));
        assert_eq!(RunLengths::of(&Schema::empty()).unwrap(), None);
        assert_eq!(
            [run("1"), run("2"), run("3")].map(|run| lengths.of_run(&run)),
            [Some(300), Some(280), None]
        );
        assert_eq!((lengths.longest(), lengths.distinct()), (300, vec![280, 300]));
        assert_eq!(lengths.map(|_, n| n - 5).of_run(&run("2")), Some(275));
        let broken = HashMap::from([(LENGTHS_METADATA_KEY.to_owned(), "{}".to_owned())]);
        assert!(RunLengths::of(&Schema::empty().with_metadata(broken)).is_err());
    }

    #[test]
    fn runs_of_one_length_need_no_words() {
        assert_eq!(RunLengths::of_runs([(run("1"), 300), (run("2"), 300)]), Ok(None));
        assert_eq!(RunLengths::of_runs([]), Ok(None));
        assert_eq!(RunLengths::of_runs([(run("1"), 300), (run("1"), 280)]), Err(Box::new(run("1"))));
    }
}
