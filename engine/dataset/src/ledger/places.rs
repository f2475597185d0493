//! Where something was found: numbers as compact ranges (`0-3,17`), or names.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt, ops::RangeInclusive, str::FromStr};

/// Places of an entry that are listed; the lowest are. The count is of all.
pub const LISTED: usize = 1000;
/// Ranges or names that the text of places shows.
const SHOWN: usize = 16;

/// Where something was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Places {
    /// Not said.
    #[default]
    Unknown,
    /// Numbers of volumes, or `voxel` of rows.
    Indices(Indices),
    /// Names, such as those of columns.
    Names(BTreeSet<String>),
}

impl Places {
    /// Number of places that are listed.
    pub fn listed(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Indices(indices) => indices.len(),
            Self::Names(names) => names.len(),
        }
    }

    /// The numbers that are listed; none of names.
    pub fn indices(&self) -> Option<&Indices> {
        match self {
            Self::Indices(indices) => Some(indices),
            Self::Unknown | Self::Names(_) => None,
        }
    }

    /// The first places as text, `0-3,17`; `…` where `count` says that there are more.
    pub fn text(&self, count: u64) -> Option<String> {
        let (mut shown, of, more): (Vec<String>, usize, bool) = match self {
            Self::Unknown => return None,
            Self::Indices(indices) => {
                let ranges = &indices.0;
                let shown = ranges.iter().take(SHOWN).map(range_text).collect();
                (shown, ranges.len(), count > indices.len() as u64)
            }
            Self::Names(names) => (names.iter().take(SHOWN).cloned().collect(), names.len(), false),
        };
        if more || of > SHOWN {
            shown.push("…".into());
        }
        Some(shown.join(if matches!(self, Self::Names(_)) { ", " } else { "," }))
    }

    /// Adds the places of an entry on the same matter; of numbers and names the numbers stay.
    pub(super) fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Indices(known), Self::Indices(more)) => known.merge(&more),
            (Self::Names(known), Self::Names(more)) => {
                known.extend(more);
                while known.len() > LISTED {
                    known.pop_last();
                }
            }
            (known @ (Self::Unknown | Self::Names(_)), more @ Self::Indices(_))
            | (known @ Self::Unknown, more) => *known = more,
            (Self::Indices(_) | Self::Names(_), _) => {}
        }
    }
}

/// The lowest [`LISTED`] of some numbers, as ranges. As text: `0-3,17`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Indices(
    /// Ascending, none touching the next.
    Vec<RangeInclusive<u64>>,
);

impl Indices {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(length).sum()
    }

    /// They, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().cloned().flatten()
    }

    /// Adds those of `other` and keeps the lowest.
    pub fn merge(&mut self, other: &Self) {
        let mut all: Vec<_> = self.0.iter().chain(&other.0).cloned().collect();
        all.sort_unstable_by_key(|range| *range.start());
        self.0.clear();
        let mut room = LISTED;
        for range in all {
            let (mut first, last) = range.into_inner();
            if let Some(known) = self.0.last() {
                first = first.max(known.end().saturating_add(1));
            }
            if room == 0 || first > last {
                continue;
            }
            let last = last.min(first.saturating_add(room as u64 - 1));
            room -= length(&(first..=last));
            match self.0.last_mut().filter(|known| known.end().checked_add(1) == Some(first)) {
                Some(known) => *known = *known.start()..=last,
                None => self.0.push(first..=last),
            }
        }
    }
}

/// Numbers in a range that is not empty, up to one more than are listed.
fn length(range: &RangeInclusive<u64>) -> usize {
    usize::try_from((range.end() - range.start()).min(LISTED as u64)).unwrap_or(LISTED) + 1
}

impl FromIterator<u64> for Indices {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut lowest = BTreeSet::new();
        for number in numbers {
            if lowest.len() < LISTED || lowest.last().is_some_and(|last| number < *last) {
                lowest.insert(number);
            }
            if lowest.len() > LISTED {
                lowest.pop_last();
            }
        }
        let mut indices = Self::default();
        indices.merge(&Self(lowest.into_iter().map(|number| number..=number).collect()));
        indices
    }
}

fn range_text(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

impl fmt::Display for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(range_text).collect::<Vec<_>>().join(","))
    }
}

impl From<Indices> for String {
    fn from(indices: Indices) -> Self {
        indices.to_string()
    }
}

impl TryFrom<String> for Indices {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Indices {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes; ranges may come in any order and overlap.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no list of numbers and ranges such as 0-3,17");
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let mut ranges = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            ranges.push(first..=last);
        }
        let mut indices = Self::default();
        indices.merge(&Self(ranges));
        Ok(indices)
    }
}
