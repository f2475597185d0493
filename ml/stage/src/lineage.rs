//! What the models have seen that rows went through, carried as Arrow schema metadata beside the grid.
//!
//! ```text
//!   subjects 1, 2 ─► TRAIN a ─► encode(a, …) ─► table ─► TRAIN b ─► encode(b, …) ─► table
//!                                               a: 1, 2             b: …, a: 1, 2
//! ```
//! A subject that any of them was trained on is no new one for whatever is trained on such rows.

use crate::Result;
use crate::metadata::{carried, carrying};
use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Key of the schema metadata whose value is a [`Lineage`] in JSON.
pub const LINEAGE_METADATA_KEY: &str = "voxelflow.lineage";

/// What a model was trained on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Subjects.
    pub subjects: BTreeSet<String>,
    /// Runs, by subject, session, task and run, as messages name them.
    pub runs: BTreeSet<String>,
}

/// Models by their names, and what each was trained on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage(BTreeMap<String, Seen>);

impl Lineage {
    /// That of a schema; empty where its rows went through no model.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) for metadata that cannot be read.
    pub fn of(schema: &Schema) -> Result<Self> {
        Ok(carried(schema, LINEAGE_METADATA_KEY)?.unwrap_or_default())
    }

    /// The schema metadata that carry it; none where it is empty.
    ///
    /// # Errors
    /// Never: names can be written.
    pub fn to_metadata(&self) -> Result<HashMap<String, String>> {
        if self.is_empty() { Ok(HashMap::new()) } else { carrying(LINEAGE_METADATA_KEY, self) }
    }

    /// Whether no model is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a model.
    pub fn add(&mut self, model: &str, seen: Seen) {
        let known = self.0.entry(model.to_owned()).or_default();
        known.subjects.extend(seen.subjects);
        known.runs.extend(seen.runs);
    }

    /// Adds all that `other` has.
    pub fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|(model, seen)| self.add(&model, seen));
    }

    /// The models, and what each was trained on.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Seen)> {
        self.0.iter().map(|(model, seen)| (model.as_str(), seen))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_lineage_comes_back_from_the_schema_and_grows() {
        let seen = |subjects: &[&str]| Seen {
            subjects: subjects.iter().map(|s| (*s).to_owned()).collect(),
            runs: BTreeSet::new(),
        };
        let mut lineage = Lineage::default();
        assert!(lineage.is_empty() && lineage.to_metadata().unwrap().is_empty());
        lineage.add("a", seen(&["1"]));
        let mut other = Lineage::default();
        other.add("a", seen(&["2"]));
        other.add("b", seen(&["3"]));
        lineage.extend(other);
        let schema = Schema::empty().with_metadata(lineage.to_metadata().unwrap());
        assert_eq!(Lineage::of(&schema).unwrap(), lineage);
        let models: Vec<_> = lineage.iter().collect();
        assert_eq!(models, [("a", &seen(&["1", "2"])), ("b", &seen(&["3"]))]);
        assert_eq!(Lineage::of(&Schema::empty()).unwrap(), Lineage::default());
    }
}
