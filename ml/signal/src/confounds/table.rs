//! A table of confounds: named columns with a value, or none, per volume.

use crate::{Error, Result};

/// The confounds of a run, as in `…_desc-confounds_timeseries.tsv`; `None` stands for `n/a`. What is wrong with a column
/// is told when it is used.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfoundTable {
    volumes: usize,
    columns: Vec<(String, ConfoundValues)>,
    sidecar_fault: Option<String>,
}

/// Values of a column, `[volumes]`, or why it has none that are numbers.
pub type ConfoundValues = Result<Vec<Option<f64>>, String>;

/// A component of CompCor as the sidecar of the confounds lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompcorComponent {
    /// Name of the column, as `a_comp_cor_00`.
    pub name: String,
    /// `Mask` in the sidecar: `combined`, `WM` or `CSF`; absent for the temporal ones.
    pub mask: Option<String>,
}

impl ConfoundTable {
    /// From columns, `[K]` of `[volumes]`.
    ///
    /// # Errors
    /// No columns, columns of different lengths, and names that occur twice.
    pub fn try_new(columns: Vec<(String, Vec<Option<f64>>)>) -> Result<Self> {
        Self::of_columns(columns.into_iter().map(|(name, values)| (name, Ok(values))).collect())
    }

    /// The same of columns of which some hold no numbers, and why: they are refused where they are used.
    ///
    /// # Errors
    /// As [`Self::try_new`].
    pub fn of_columns(columns: Vec<(String, ConfoundValues)>) -> Result<Self> {
        let mut numbers = columns.iter().filter_map(|(_, values)| values.as_ref().ok());
        let Some(first) = numbers.next() else {
            return Err(Error::Shape {
                what: "confounds",
                found: 0,
                expected: "at least a column of numbers".to_owned(),
            });
        };
        let volumes = first.len();
        if let Some(odd) = numbers.find(|values| values.len() != volumes) {
            return Err(Error::Shape {
                what: "confounds",
                found: odd.len(),
                expected: format!("{volumes} volumes"),
            });
        }
        let mut names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let reason = format!("the column `{}` occurs twice in the table", twice[0]);
            return Err(Error::Setting { setting: "confounds", reason });
        }
        Ok(Self { volumes, columns, sidecar_fault: None })
    }

    /// The same table, whose sidecar cannot be used: who asks for anatomical CompCor, which needs it, is told why.
    #[must_use]
    pub fn with_sidecar_fault(self, reason: String) -> Self {
        Self { sidecar_fault: Some(reason), ..self }
    }

    /// Why the sidecar cannot be used, if so.
    pub(crate) fn sidecar_fault(&self) -> Option<&str> {
        self.sidecar_fault.as_deref()
    }

    /// Volumes of the run.
    pub fn volumes(&self) -> usize {
        self.volumes
    }

    /// Names of the columns in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// Whether there is a column of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names().any(|n| n == name)
    }

    /// A column, with NaN read as missing.
    ///
    /// # Errors
    /// There is none of this name, or it holds something else than numbers.
    pub(crate) fn column(&self, name: &str) -> Result<Vec<Option<f64>>> {
        let found = self.columns.iter().find(|(n, _)| n == name);
        let (_, values) = found.ok_or_else(|| self.missing(&[name.to_owned()]))?;
        match values {
            Ok(values) => Ok(values.iter().map(|v| v.filter(|x| !x.is_nan())).collect()),
            Err(reason) => Err(Error::UnusableConfound { column: name.to_owned(), reason: reason.clone() }),
        }
    }

    /// The error that names absent columns and those that begin like them.
    pub(crate) fn missing(&self, absent: &[String]) -> Error {
        let alike = |name: &str| {
            let shared = |a: &str| absent.iter().map(|b| shared_beginning(a, b)).max().unwrap_or_default();
            shared(name)
        };
        let mut near: Vec<(usize, &str)> = self.names().map(|n| (alike(n), n)).collect();
        near.retain(|(shared, _)| *shared >= 3);
        near.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        near.truncate(8);
        let near = match near.is_empty() {
            true => format!("the table has {}", list(self.names().take(12))),
            false => format!("columns that begin alike: {}", list(near.into_iter().map(|(_, n)| n))),
        };
        Error::MissingConfounds { columns: absent.to_vec(), near }
    }
}

fn shared_beginning(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(x, y)| x.eq_ignore_ascii_case(y)).count()
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

/// Whether `name` fits `pattern`, in which `*` stands for any characters and `?` for one.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star stood and what it has taken so far, to go back to when the rest does not fit.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, fit) in [
            ("trans_*", "trans_x", true),
            ("trans_*", "rot_x", false),
            ("trans_?", "trans_x_power2", false),
            ("*_power2", "trans_x_derivative1_power2", true),
            ("*power*2", "a_power2_power", false),
            ("a*b*c", "aXbYbZc", true),
            ("csf", "csf", true),
            ("csf", "csf_wm", false),
            ("*", "", true),
            ("?", "", false),
        ] {
            assert_eq!(fits(pattern, name), fit, "{pattern} {name}");
        }
    }

    #[test]
    fn tables_that_are_none_are_refused() {
        let column = |name: &str, n: usize| (name.to_owned(), vec![Some(1.0); n]);
        assert!(ConfoundTable::try_new(vec![]).is_err());
        let e = ConfoundTable::try_new(vec![column("a", 3), column("b", 2)]).unwrap_err();
        assert!(matches!(e, Error::Shape { found: 2, .. }), "{e}");
        let e = ConfoundTable::try_new(vec![column("a", 3), column("a", 3)]).unwrap_err();
        assert!(e.to_string().contains("`a`"), "{e}");
    }
}
