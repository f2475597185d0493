//! The data-quality ledger: what was dropped, filled, changed or found odd while a plan ran, where, and why.
//!
//! ```text
//!   a node's partition ─► LedgerNotes ──end of its rows──► metrics of the node, one an entry
//!                                                                 │ here, or by way of the scheduler
//!   statement ◄── Ledger: entries of one subject merged ◄─────────┘
//! ```
//!
//! Metrics carry the entries because they come back from every process that has run a part of a plan, from every one of
//! its stages, and from the attempt of a task that counted only. An entry is the name of a counter, as JSON.
//!
//! A ledger does not depend on how rows were spread: entries on rows add up, entries on a run are the same from
//! whichever partition they come, and of the places the lowest are kept (see [`LISTED`]).

mod entry;
mod joins;
mod notes;
mod places;
mod rows;

pub use entry::{Finding, LedgerEntry, Level, RUN_KEYS, RunKey};
pub use joins::KeyJoin;
pub use notes::{LedgerNode, LedgerNotes};
pub use places::{Indices, LISTED, Places};
pub use rows::ledger_schema;

pub(crate) use notes::{entry_in, is_expected};

use crate::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use entry::Matter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Entries, those on the same matter merged, in the order of their matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<LedgerEntry>", into = "Vec<LedgerEntry>")]
pub struct Ledger(BTreeMap<Matter, LedgerEntry>);

impl Ledger {
    /// All that the nodes of `plan`, which ran in this process, have told so far.
    pub fn of_plan(plan: &dyn ExecutionPlan) -> Self {
        let mut ledger = Self::default();
        notes::gather(plan, None, &mut ledger);
        ledger
    }

    /// As [`Ledger::of_plan`], of one partition of a plan whose partitions stand by themselves.
    pub(crate) fn of_partition(plan: &dyn ExecutionPlan, partition: usize) -> Self {
        let mut ledger = Self::default();
        notes::gather(plan, Some(partition), &mut ledger);
        ledger
    }

    /// Adds an entry to those on the same matter.
    pub fn add(&mut self, entry: LedgerEntry) {
        if entry.count == 0 {
            return;
        }
        match self.0.get_mut(&entry.matter) {
            Some(known) => known.merge(entry),
            None => drop(self.0.insert(entry.matter.clone(), entry)),
        }
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.0.values()
    }

    /// How often each thing was found over all runs: `what level: reason`, and the count.
    pub fn totals(&self) -> BTreeMap<String, u64> {
        let mut totals = BTreeMap::new();
        for entry in self.iter() {
            let (what, level, reason) = (entry.what().name(), entry.level().name(), entry.reason());
            *totals.entry(format!("{what} {level}: {reason}")).or_default() += entry.count();
        }
        totals
    }

    /// The entries as a Parquet file, rows of `statement` (see [`ledger_schema`]).
    ///
    /// # Errors
    /// None that is known: the columns fit.
    pub fn to_parquet(&self, statement: &str) -> Result<Vec<u8>> {
        rows::to_parquet(self, statement)
    }
}

impl Extend<LedgerEntry> for Ledger {
    fn extend<I: IntoIterator<Item = LedgerEntry>>(&mut self, entries: I) {
        entries.into_iter().for_each(|entry| self.add(entry));
    }
}

impl FromIterator<LedgerEntry> for Ledger {
    fn from_iter<I: IntoIterator<Item = LedgerEntry>>(entries: I) -> Self {
        let mut ledger = Self::default();
        ledger.extend(entries);
        ledger
    }
}

impl IntoIterator for Ledger {
    type Item = LedgerEntry;
    type IntoIter = std::collections::btree_map::IntoValues<Matter, LedgerEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_values()
    }
}

impl From<Vec<LedgerEntry>> for Ledger {
    fn from(entries: Vec<LedgerEntry>) -> Self {
        entries.into_iter().collect()
    }
}

impl From<Ledger> for Vec<LedgerEntry> {
    fn from(ledger: Ledger) -> Self {
        ledger.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
