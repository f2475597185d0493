//! Which runs are joined, and their order in time.

use super::refused;
use crate::Result;
use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashSet},
};
use voxelflow_stage::{KEY_COLUMNS, RunFiles};

/// What stands between the values of a run's name, and for a value that is absent.
pub(super) const BETWEEN: &str = "/";
pub(super) const NONE: &str = "-";

/// Runs in their order in time, by the columns that tell them apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunOrder {
    columns: Vec<String>,
    labels: Vec<String>,
}

/// The name of a run: its values of the columns that tell it apart.
pub(super) fn label<'a>(values: impl Iterator<Item = Option<&'a str>>) -> String {
    values.map(|value| value.unwrap_or(NONE)).collect::<Vec<_>>().join(BETWEEN)
}

impl RunOrder {
    /// As the user has named them.
    ///
    /// # Errors
    /// A name that is there twice, or that has not a value for each column.
    pub fn given(labels: Vec<String>, columns: Vec<String>) -> Result<Self> {
        let mut seen = HashSet::new();
        if let Some(twice) = labels.iter().find(|label| !seen.insert(*label)) {
            return Err(refused("runs", format!("names '{twice}' twice")));
        }
        let values = columns.len();
        if let Some(odd) = labels.iter().find(|label| label.split(BETWEEN).count() != values) {
            let form = columns.join(BETWEEN);
            return Err(refused("runs", format!("are named by {form}, which '{odd}' is not")));
        }
        Ok(Self { columns, labels })
    }

    /// As a table knows them, in the order of their names: `2` comes before `10`.
    ///
    /// # Errors
    /// A table that does not know, or whose groups have different runs.
    pub fn of_files(files: &[RunFiles], by: &[String], columns: Vec<String>) -> Result<Self> {
        let value = |run: &RunFiles, name: &String| {
            let at = KEY_COLUMNS.iter().position(|key| key == name)?;
            run.keys.get(at)?.clone()
        };
        let mut groups: BTreeMap<Vec<Option<String>>, BTreeSet<String>> = BTreeMap::new();
        for run in files {
            let group = by.iter().map(|name| value(run, name)).collect();
            let values: Vec<Option<String>> = columns.iter().map(|name| value(run, name)).collect();
            groups.entry(group).or_default().insert(label(values.iter().map(Option::as_deref)));
        }
        let mut each = groups.iter();
        let Some((first, labels)) = each.next() else {
            let reason = "are not known of this table: name them in their order, as runs => ['1', '2']";
            return Err(refused("runs", reason));
        };
        if let Some((other, found)) = each.find(|(_, found)| *found != labels) {
            let told = |group: &Vec<Option<String>>, runs: &BTreeSet<String>| {
                let group: Vec<&str> = group.iter().flatten().map(String::as_str).collect();
                format!("{} has {}", group.join(" "), in_order(runs).join(", "))
            };
            let reason = format!(
                "are not the same everywhere: {}, but {}; name those to join, as runs => ['1', '2'], and say what \
                 becomes of voxels without them, as missing => 'drop'",
                told(first, labels),
                told(other, found)
            );
            return Err(refused("runs", reason));
        }
        Ok(Self { labels: in_order(labels), columns })
    }

    /// The columns that tell runs apart.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The runs' names.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }
}

fn in_order(labels: &BTreeSet<String>) -> Vec<String> {
    let mut labels: Vec<String> = labels.iter().cloned().collect();
    labels.sort_by(|a, b| natural(a, b));
    labels
}

/// Compares texts, numbers within them by their value.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while let (Some(l), Some(r)) = (left.chars().next(), right.chars().next()) {
        let (digits_l, digits_r) = (leading_digits(left), leading_digits(right));
        let (ordering, skip_l, skip_r) = if digits_l > 0 && digits_r > 0 {
            let (n, m) = (number(left, digits_l), number(right, digits_r));
            ((n.len(), n).cmp(&(m.len(), m)), digits_l, digits_r)
        } else {
            (l.cmp(&r), l.len_utf8(), r.len_utf8())
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
        (left, right) = (&left[skip_l..], &right[skip_r..]);
    }
    // Names that differ by leading zeros only still have an order.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn number(text: &str, digits: usize) -> &str {
    text[..digits].trim_start_matches('0')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn file(subject: &str, session: Option<&str>, run: &str) -> RunFiles {
        let keys = [Some(subject.into()), session.map(str::to_owned), Some("rest".into()), Some(run.into())];
        RunFiles { keys, ..RunFiles::default() }
    }

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn runs_come_in_the_order_of_their_numbers() {
        let files: Vec<_> = ["10", "2", "1"].map(|run| file("01", None, run)).into();
        let order = RunOrder::of_files(&files, &texts(&["subject", "task"]), texts(&["run"])).unwrap();
        assert_eq!(order.labels(), ["1", "2", "10"]);
        let files = [file("01", Some("b"), "1"), file("01", Some("a"), "2"), file("01", Some("a"), "1")];
        let order = RunOrder::of_files(&files, &texts(&["subject"]), texts(&["session", "run"])).unwrap();
        assert_eq!(order.labels(), ["a/1", "a/2", "b/1"]);
    }

    #[test]
    fn runs_that_differ_or_are_not_known_are_refused() {
        let by = texts(&["subject"]);
        let words =
            |files: &[RunFiles]| RunOrder::of_files(files, &by, texts(&["run"])).unwrap_err().to_string();
        assert!(words(&[]).contains("runs => ['1', '2']"));
        let message = words(&[file("01", None, "1"), file("01", None, "2"), file("02", None, "1")]);
        assert!(message.contains("01 has 1, 2, but 02 has 1"), "{message}");
        let given = |labels| RunOrder::given(texts(labels), texts(&["session", "run"])).map(drop);
        assert!(given(&["a/1", "a/1"]).unwrap_err().to_string().contains("'a/1' twice"));
        assert!(given(&["1"]).unwrap_err().to_string().contains("session/run"));
        assert!(given(&["a/1", "a/2"]).is_ok());
    }

    proptest! {
        #[test]
        fn names_have_one_order(names in proptest::collection::vec("[0-9a-c/é]{0,5}", 3)) {
            let [a, b, c] = [&names[0], &names[1], &names[2]];
            prop_assert_eq!(natural(a, b), natural(b, a).reverse());
            prop_assert_eq!(natural(a, b) == Ordering::Equal, a == b);
            if natural(a, b).is_le() && natural(b, c).is_le() {
                prop_assert!(natural(a, c).is_le());
            }
        }
    }
}
