//! Joins by the keys of runs: what both sides met, and what that says of the join.
//!
//! ```text
//!   left side of a join ──► keys that it met ─┐  entries of the ledger, of every partition and process
//!   right side ───────────► keys that it met ─┴─► [`Ledger::concluded`]: notes, where a join pairs what it should not,
//!                                                 or nothing
//! ```
//!
//! A join is silent about keys that are not equal, and only both sides together show why.

use super::{Finding, LISTED, Ledger, LedgerEntry, Level, Places, RunKey};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What stands between the values of a row's keys: no name has it.
const BETWEEN: char = '\u{1f}';
/// Prefixes of BIDS that some write before a key, and others do not.
const PREFIXES: [&str; 4] = ["sub-", "ses-", "task-", "run-"];

/// A join, by what it compares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyJoin {
    /// What the two sides are called.
    pub sides: [String; 2],
    /// Columns that must be equal, of each side, one of which is a key of runs.
    pub on: Vec<[String; 2]>,
    /// Keys of runs that both sides have, and that the join does not compare.
    pub left_out: Vec<String>,
}

impl KeyJoin {
    /// Columns of a side that [`LedgerEntry::of_join`] needs, in its order.
    pub fn columns(&self, right: bool) -> impl Iterator<Item = &str> {
        let on = self.on.iter().map(move |pair| pair[usize::from(right)].as_str());
        on.chain(self.left_out.iter().map(String::as_str))
    }

    /// `a join of b and d by subject, run`.
    fn text(&self) -> String {
        let names = |[left, right]: &[String; 2]| match left == right {
            true => left.clone(),
            false => format!("{left} = {right}"),
        };
        let on: Vec<String> = self.on.iter().map(names).collect();
        format!("a join of {} and {} by {}", self.sides[0], self.sides[1], on.join(", "))
    }
}

/// A side of a join, as it stands in an entry.
#[derive(Serialize, Deserialize)]
struct Side {
    join: KeyJoin,
    right: bool,
}

impl LedgerEntry {
    /// The keys that a side of a join has met, each the values of [`KeyJoin::columns`]. It is no row of a ledger, but what
    /// [`Ledger::concluded`] goes by.
    pub fn of_join(join: &KeyJoin, right: bool, keys: impl IntoIterator<Item = Vec<String>>) -> Self {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for key in keys {
            names.insert(key.join(&BETWEEN.to_string()));
            if names.len() > LISTED {
                names.pop_last();
            }
        }
        // Names and a flag: JSON has them.
        let side = serde_json::to_string(&Side { join: join.clone(), right }).unwrap_or_default();
        let count = names.len() as u64;
        Self::of_run(RunKey::default(), Level::Value, Finding::JoinKeys, side, count).named(names)
    }
}

/// The keys of one side.
struct Met<'a> {
    keys: BTreeSet<Vec<&'a str>>,
    /// Whether there were more than are listed.
    more: bool,
}

impl<'a> Met<'a> {
    fn of(entry: &'a LedgerEntry) -> Self {
        let Places::Names(names) = entry.places() else { return Self { keys: BTreeSet::new(), more: false } };
        let keys = names.iter().map(|name| name.split(BETWEEN).collect()).collect();
        Self { keys, more: names.len() >= LISTED }
    }

    /// The distinct values of column `at`.
    fn values(&self, at: usize) -> BTreeSet<&'a str> {
        self.keys.iter().filter_map(|key| key.get(at).copied()).collect()
    }
}

impl Ledger {
    /// The same, with what joins have met put into words: those that pair no rows, keys that would be equal if they were
    /// written alike, rows of different runs that were paired.
    #[must_use]
    pub fn concluded(self) -> Self {
        let (sides, mut ledger): (Vec<LedgerEntry>, Vec<LedgerEntry>) =
            Vec::from(self).into_iter().partition(|entry| entry.what() == Finding::JoinKeys);
        let mut joins: BTreeMap<KeyJoin, [Option<LedgerEntry>; 2]> = BTreeMap::new();
        for entry in sides {
            if let Ok(Side { join, right }) = serde_json::from_str(entry.reason()) {
                joins.entry(join).or_default()[usize::from(right)] = Some(entry);
            }
        }
        for (join, sides) in &joins {
            if let [Some(left), Some(right)] = sides {
                ledger.extend(notes(join, &Met::of(left), &Met::of(right)));
            }
        }
        ledger.into()
    }
}

fn note(reason: String, names: BTreeSet<String>) -> Option<LedgerEntry> {
    let count = names.len() as u64;
    (count > 0).then(|| {
        LedgerEntry::of_run(RunKey::default(), Level::Run, Finding::Noted, reason, count).named(names)
    })
}

fn notes(join: &KeyJoin, left: &Met<'_>, right: &Met<'_>) -> Vec<LedgerEntry> {
    let text = join.text();
    let mut notes: Vec<LedgerEntry> = Vec::new();
    notes.extend(note(
        format!("{text} does not pair keys that are written differently: leading zeros, a prefix, upper and lower case"),
        written_differently(join, left, right),
    ));
    let compared = join.on.len();
    let of_join = |met: &Met<'_>| -> BTreeSet<Vec<String>> {
        let own = met.keys.iter().filter_map(|key| key.get(..compared));
        own.map(|key| key.iter().map(|value| (*value).to_owned()).collect()).collect()
    };
    let (a, b) = (of_join(left), of_join(right));
    if a.is_disjoint(&b) && !left.more && !right.more {
        let example = |side: &str, keys: &BTreeSet<Vec<String>>| {
            let first = keys.first().map(|key| key.join(", ")).unwrap_or_default();
            format!("{side}: {first}")
        };
        let names = [example(&join.sides[0], &a), example(&join.sides[1], &b)];
        notes.extend(note(format!("{text} pairs no rows: no keys are equal"), names.into()));
    }
    for (at, name) in join.left_out.iter().enumerate() {
        notes.extend(note(
            format!("{text} pairs rows of different {name}s: compare {name} too"),
            crosswise(compared, compared + at, left, right),
        ));
    }
    notes
}

/// Values without a partner that have one if leading zeros, prefixes and case do not count. Of keys that are too many to be
/// listed, nobody knows whether one is on the other side.
fn written_differently(join: &KeyJoin, left: &Met<'_>, right: &Met<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if left.more || right.more {
        return found;
    }
    for (at, [name, _]) in join.on.iter().enumerate() {
        let (a, b) = (left.values(at), right.values(at));
        let alone: BTreeMap<String, &str> = b
            .difference(&a)
            .map(|value| (plain(value), *value))
            .filter(|(plain, _)| !plain.is_empty())
            .collect();
        for value in a.difference(&b) {
            if let Some(other) = alone.get(&plain(value)) {
                found.insert(format!("{name} {value} and {other}"));
            }
        }
    }
    found
}

/// A value without what may be written or not.
fn plain(value: &str) -> String {
    let lower = value.trim().to_lowercase();
    let bare = PREFIXES.iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
    match !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit()) {
        true => match bare.trim_start_matches('0') {
            "" => "0".to_owned(),
            number => number.to_owned(),
        },
        false => bare.to_owned(),
    }
}

/// Values of column `at` that are paired with other ones of it; an absent one is of any.
fn crosswise(compared: usize, at: usize, left: &Met<'_>, right: &Met<'_>) -> BTreeSet<String> {
    type ByKey<'k> = BTreeMap<&'k [&'k str], BTreeSet<&'k str>>;
    let by_key = |met: &'_ Met<'_>| -> BTreeMap<Vec<String>, BTreeSet<String>> {
        let mut values: ByKey<'_> = BTreeMap::new();
        for key in &met.keys {
            if let (Some(own), Some(value)) = (key.get(..compared), key.get(at)) {
                values.entry(own).or_default().insert(value);
            }
        }
        let owned = |key: &[&str]| key.iter().map(|value| (*value).to_owned()).collect();
        values
            .into_iter()
            .map(|(key, values)| (owned(key), values.into_iter().map(str::to_owned).collect()))
            .collect()
    };
    let (a, b) = (by_key(left), by_key(right));
    let mut found = BTreeSet::new();
    for (key, values) in &a {
        for (value, other) in
            values.iter().flat_map(|v| b.get(key).into_iter().flatten().map(move |o| (v, o)))
        {
            if value != other && !value.is_empty() && !other.is_empty() {
                found.insert(format!("{} with {}", value.min(other), value.max(other)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(on: &[&str], left_out: &[&str]) -> KeyJoin {
        KeyJoin {
            sides: ["series".into(), "d".into()],
            on: on.iter().map(|name| [(*name).to_owned(), (*name).to_owned()]).collect(),
            left_out: left_out.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn concluded(join: &KeyJoin, left: &[&str], right: &[&str]) -> Vec<String> {
        let keys = |all: &[&str]| -> Vec<Vec<String>> {
            all.iter().map(|key| key.split(' ').map(str::to_owned).collect()).collect()
        };
        // Several partitions have met keys of a side.
        let entries = keys(left).into_iter().map(|key| LedgerEntry::of_join(join, false, [key]));
        let ledger: Ledger = entries.chain([LedgerEntry::of_join(join, true, keys(right))]).collect();
        let text = |entry: &LedgerEntry| {
            format!("{} [{}]", entry.reason(), entry.places().text(entry.count()).unwrap_or_default())
        };
        ledger.concluded().iter().map(text).collect()
    }

    #[test]
    fn a_join_that_pairs_what_belongs_together_has_no_note() {
        let by_run = join(&["subject", "run"], &["session"]);
        assert_eq!(concluded(&by_run, &["01 1 a", "02 1 a", "03 1 a"], &["01 1 a", "02 1 a"]), [""; 0]);
        // A table that has no sessions goes with all.
        assert_eq!(concluded(&join(&["subject"], &["session"]), &["01 a", "01 b"], &["01 "]), [""; 0]);
    }

    #[test]
    fn what_a_join_does_in_silence_is_told() {
        let crossed = concluded(&join(&["subject"], &["session"]), &["01 a", "01 b"], &["01 a", "01 b"]);
        assert_eq!(
            crossed,
            [
                "a join of series and d by subject pairs rows of different sessions: compare session too [a with b]"
            ]
        );
        let differently = concluded(&join(&["subject"], &[]), &["01", "02"], &["1", "02"]);
        assert_eq!(differently.len(), 1);
        assert!(differently[0].ends_with("[subject 01 and 1]"), "{differently:?}");
        let none = concluded(&join(&["subject", "run"], &[]), &["01 1", "01 2"], &["sub-1 1"]);
        assert!(none[0].contains("written differently"), "{none:?}");
        assert!(
            none[1].contains("pairs no rows: no keys are equal [d: sub-1, 1, series: 01, 1]"),
            "{none:?}"
        );
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let by_subject = join(&["subject"], &[]);
        let many: Vec<String> = (10_000..10_000 + 2 * LISTED).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(concluded(&by_subject, &many, &["11999"]), [""; 0]);
        let alone: Ledger =
            [LedgerEntry::of_join(&by_subject, true, [vec!["1".to_owned()]])].into_iter().collect();
        assert!(alone.concluded().is_empty());
    }
}
