//! One line of the ledger.

use super::places::{Indices, Places};
use serde::{Deserialize, Serialize};

/// Key columns that tell runs apart, in their order.
pub const RUN_KEYS: [&str; 4] = ["subject", "session", "task", "run"];

/// A run by the values of [`RUN_KEYS`]; none where one is not known, all none for what is about no single run.
pub type RunKey = [Option<String>; 4];

/// What kind of thing an entry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Whole runs.
    Run,
    /// Volumes, by their numbers in the run from 0.
    Volume,
    /// Voxels, vertices or channels: rows of a table, by their column `voxel`.
    Voxel,
    /// Single values, such as those of a confound or an event.
    Value,
}

impl Level {
    /// As the ledger has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Volume => "volume",
            Self::Voxel => "voxel",
            Self::Value => "value",
        }
    }
}

/// What became of it, or what it was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The statement was refused because of it.
    Refused,
    /// Left out.
    Dropped,
    /// Kept out of training, to validate on.
    HeldOut,
    /// A missing value that got one.
    Filled,
    /// Without any variance.
    Constant,
    /// NaN or infinity, left as it is.
    NotFinite,
    /// Set to zero.
    Zeroed,
    /// Brought from one unit or range to another.
    Rescaled,
    /// Brought to another grid or rate.
    Resampled,
    /// An event that was changed or is of no use.
    Event,
    /// Worth knowing, and nothing was changed.
    Noted,
    /// What was met is not known.
    Unknown,
    /// Keys that a side of a join has met: no row of a ledger, but what its conclusions are drawn from.
    JoinKeys,
}

impl Finding {
    /// As the ledger has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Dropped => "dropped",
            Self::HeldOut => "held_out",
            Self::Filled => "filled",
            Self::Constant => "constant",
            Self::NotFinite => "not_finite",
            Self::Zeroed => "zeroed",
            Self::Rescaled => "rescaled",
            Self::Resampled => "resampled",
            Self::Event => "event",
            Self::Noted => "noted",
            Self::Unknown => "unknown",
            Self::JoinKeys => "join_keys",
        }
    }
}

/// What an entry is about: entries on the same matter are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Matter {
    run: RunKey,
    level: Level,
    what: Finding,
    reason: String,
}

/// One line of the ledger: what was found on which run, why, how often and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    #[serde(flatten)]
    pub(super) matter: Matter,
    pub(super) count: u64,
    /// Whether it says the same from wherever it comes, instead of what one partition has of it.
    whole: bool,
    places: Places,
}

impl LedgerEntry {
    /// What has been found on `count` of the rows that are at hand. Entries of other partitions on the same matter add
    /// to it, so `reason` must not name the rows.
    pub fn of_rows(run: RunKey, level: Level, what: Finding, reason: impl Into<String>, count: u64) -> Self {
        let matter = Matter { run, level, what, reason: reason.into() };
        Self { matter, count, whole: false, places: Places::Unknown }
    }

    /// What is known of a whole run, however many partitions say so.
    pub fn of_run(run: RunKey, level: Level, what: Finding, reason: impl Into<String>, count: u64) -> Self {
        Self { whole: true, ..Self::of_rows(run, level, what, reason, count) }
    }

    /// The same, with where it was found: numbers of volumes, or `voxel` of rows.
    #[must_use]
    pub fn at(self, indices: impl IntoIterator<Item = u64>) -> Self {
        let indices: Indices = indices.into_iter().collect();
        let places = if indices.is_empty() { Places::Unknown } else { Places::Indices(indices) };
        Self { places, ..self }
    }

    /// The same, with the names of what it was found on, such as columns.
    #[must_use]
    pub fn named<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        Self { places: Places::Names(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// The run.
    pub fn run(&self) -> &RunKey {
        &self.matter.run
    }

    /// What is counted.
    pub fn level(&self) -> Level {
        self.matter.level
    }

    /// What became of it.
    pub fn what(&self) -> Finding {
        self.matter.what
    }

    /// Why.
    pub fn reason(&self) -> &str {
        &self.matter.reason
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Takes up another entry on the same matter.
    pub(super) fn merge(&mut self, other: Self) {
        self.places.merge(other.places);
        self.count = match self.whole && other.whole {
            true => self.count.max(other.count).max(self.places.listed() as u64),
            false => self.count.saturating_add(other.count),
        };
        self.whole &= other.whole;
    }
}
