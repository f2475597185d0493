//! Which volumes of each run its series have, where some were dropped: carried as Arrow schema metadata beside the grid.
//!
//! Designs and features are of the moments of a run. They take the volumes that the series have, which only what dropped
//! the others knows. Where every run has all its volumes, nothing is carried.

use crate::Result;
use crate::metadata::{carried, carrying};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, ops::Range};

/// Key of the schema metadata whose value is a [`RunVolumes`] in JSON.
pub const VOLUMES_METADATA_KEY: &str = "voxelflow.volumes";

/// Subject, session, task and run, as in the key columns.
type Run = [Option<String>; 4];

/// The volumes of a run that were kept; at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct KeptVolumes {
    /// Volumes of the image.
    stored: u32,
    /// Stretches of kept volumes, ascending: the first of each, and the one after its last.
    kept: Vec<[u32; 2]>,
}

/// As it stands in metadata, which anyone may have written.
#[derive(Deserialize)]
struct Written {
    stored: u32,
    kept: Vec<[u32; 2]>,
}

impl TryFrom<Written> for KeptVolumes {
    type Error = &'static str;

    fn try_from(Written { stored, kept }: Written) -> std::result::Result<Self, Self::Error> {
        let ordered = kept.iter().all(|[first, end]| first < end && *end <= stored)
            && kept.windows(2).all(|pair| pair[0][1] < pair[1][0]);
        match ordered && !kept.is_empty() {
            true => Ok(Self { stored, kept }),
            false => Err("the volumes that are kept are no ascending stretches of the run's"),
        }
    }
}

impl KeptVolumes {
    /// Of a run of `stored` volumes those with the numbers `kept`, ascending; none where there are none, or others than
    /// the run's.
    pub fn of(stored: usize, kept: &[usize]) -> Option<Self> {
        let mut stretches: Vec<[u32; 2]> = Vec::new();
        for volume in kept {
            let volume = u32::try_from(*volume).ok()?;
            let next = volume.checked_add(1)?;
            match stretches.last_mut() {
                Some([_, end]) if *end == volume => *end = next,
                _ => stretches.push([volume, next]),
            }
        }
        Written { stored: u32::try_from(stored).ok()?, kept: stretches }.try_into().ok()
    }

    /// Volumes of the image.
    pub fn stored(&self) -> usize {
        self.stored as usize
    }

    /// How many are kept.
    pub fn count(&self) -> usize {
        self.stretches().map(|stretch| stretch.len()).sum()
    }

    /// Their numbers, ascending.
    pub fn indices(&self) -> impl Iterator<Item = usize> {
        self.stretches().flatten()
    }

    /// Whether some between them were dropped.
    pub fn has_gaps(&self) -> bool {
        self.kept.len() > 1
    }

    /// Whether none was dropped.
    pub fn keeps_all(&self) -> bool {
        self.count() == self.stored()
    }

    fn stretches(&self) -> impl Iterator<Item = Range<usize>> {
        self.kept.iter().map(|[first, end]| *first as usize..*end as usize)
    }
}

/// The kept volumes of each run that has lost some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunVolumes(Vec<(Run, KeptVolumes)>);

impl RunVolumes {
    /// Of these runs; none where none has lost a volume.
    pub fn of_runs(runs: impl IntoIterator<Item = (Run, KeptVolumes)>) -> Option<Self> {
        let lost: Vec<_> = runs.into_iter().filter(|(_, volumes)| !volumes.keeps_all()).collect();
        (!lost.is_empty()).then_some(Self(lost))
    }

    /// Those of a schema; none where all runs have all their volumes.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) for metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Option<Self>> {
        carried(schema, VOLUMES_METADATA_KEY)
    }

    /// The schema metadata that carry them.
    ///
    /// # Errors
    /// Never: names and numbers can be written.
    pub fn to_metadata(&self) -> Result<HashMap<String, String>> {
        carrying(VOLUMES_METADATA_KEY, self)
    }

    /// Those of a run; none where it has all.
    pub fn of_run(&self, run: &Run) -> Option<&KeptVolumes> {
        self.find(|known| known == run)
    }

    /// Those of the first run that is `wanted`.
    pub fn find(&self, wanted: impl Fn(&Run) -> bool) -> Option<&KeptVolumes> {
        self.0.iter().find(|(run, _)| wanted(run)).map(|(_, volumes)| volumes)
    }

    /// The runs that have lost volumes, and what they have.
    pub fn iter(&self) -> impl Iterator<Item = &(Run, KeptVolumes)> {
        self.0.iter()
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
    fn volumes_come_back_from_the_schema() {
        let some = KeptVolumes::of(10, &[2, 3, 4, 7, 9]).unwrap();
        assert_eq!((some.stored(), some.count(), some.has_gaps(), some.keeps_all()), (10, 5, true, false));
        assert_eq!(some.indices().collect::<Vec<_>>(), [2, 3, 4, 7, 9]);
        let all = KeptVolumes::of(3, &[0, 1, 2]).unwrap();
        assert!(all.keeps_all() && !all.has_gaps());
        assert_eq!(RunVolumes::of_runs([(run("1"), all.clone())]), None);
        let volumes = RunVolumes::of_runs([(run("1"), all), (run("2"), some.clone())]).unwrap();
        let schema = Schema::empty().with_metadata(volumes.to_metadata().unwrap());
        assert_eq!(RunVolumes::of(&schema).unwrap(), Some(volumes.clone()));
        assert_eq!(RunVolumes::of(&Schema::empty()).unwrap(), None);
        assert_eq!((volumes.of_run(&run("1")), volumes.of_run(&run("2"))), (None, Some(&some)));
    }

    #[test]
    fn what_is_no_part_of_a_run_is_refused() {
        for kept in [&[][..], &[3, 2], &[1, 1], &[9, 10]] {
            assert_eq!(KeptVolumes::of(10, kept), None, "{kept:?}");
        }
        for kept in ["[]", "[[2,2]]", "[[0,11]]", "[[3,5],[1,2]]", "[[0,2],[2,3]]", "[[0,4294967295]]"] {
            let text = format!(r#"[[["01",null,null,null],{{"stored":10,"kept":{kept}}}]]"#);
            let schema = Schema::empty().with_metadata([(VOLUMES_METADATA_KEY.to_owned(), text)].into());
            assert!(RunVolumes::of(&schema).is_err(), "{kept}");
        }
    }
}
