//! Names of the parcels of an atlas: a table with `index` and `name`, as BIDS and nilearn have it, or the lines of a
//! lookup table, as FreeSurfer and AFNI have it.

use super::Table;
use crate::opening::open;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Words of a colour at the end of a line: red, green, blue, and transparency.
const COLOUR: usize = 4;

/// Names by the number of their parcel.
///
/// ```
/// use voxelflow_formats::table::ParcelNames;
/// # fn main() -> voxelflow_formats::Result<()> {
/// let names = ParcelNames::from_reader("index\tname\n200\tThalamus\n".as_bytes(), "atlas.tsv")?;
/// assert_eq!(names.of(200), Some("Thalamus"));
/// let names = ParcelNames::from_reader("# colours\n10 Left Thalamus 0 118 14 0\n".as_bytes(), "lut.txt")?;
/// assert_eq!(names.of(10), Some("Left Thalamus"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParcelNames {
    names: BTreeMap<i32, String>,
}

impl ParcelNames {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads names from `source`; `name` is its path or URL. One that ends in `.tsv` is a table; in any other each line
    /// is a number and a name, which a colour of four numbers may follow, and lines that begin with `#` are passed over.
    ///
    /// # Errors
    /// Those of [`Table::from_reader`]; a column that is not there; an index that is no whole number, or that has two
    /// names; a line without a name; a file without names.
    pub fn from_reader(mut source: impl Read, name: &str) -> Result<Self> {
        if name.ends_with(".tsv") {
            return Self::of_table(&Table::from_reader(source, name)?);
        }
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).map_err(|source| Error::Read {
            path: name.into(),
            offset: 0,
            source,
        })?;
        let mut names = Self::default();
        for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let fault = |reason: String| Error::Line { path: name.into(), line, reason };
            let text = std::str::from_utf8(text)
                .map_err(|_| fault("it is not text; this is another kind of file".into()))?
                .trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (number, label) = of_line(text).map_err(fault)?;
            names.add(number, label).map_err(fault)?;
        }
        names.not_empty(name)
    }

    /// The name of a parcel.
    pub fn of(&self, number: i32) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }

    fn of_table(table: &Table) -> Result<Self> {
        let mut names = Self::default();
        let (numbers, labels) = (table.text("index")?, table.text("name")?);
        for (row, (number, label)) in numbers.into_iter().zip(labels).enumerate() {
            let fault =
                |reason: String| Error::Line { path: table.path().into(), line: table.line_of(row), reason };
            let number = whole(number.unwrap_or("n/a")).map_err(fault)?;
            if let Some(label) = label {
                names.add(number, label).map_err(fault)?;
            }
        }
        names.not_empty(table.path())
    }

    fn add(&mut self, number: i32, name: &str) -> Result<(), String> {
        match self.names.insert(number, name.to_owned()) {
            Some(other) if other != name => {
                Err(format!("parcel {number} is named '{name}' here, '{other}' before"))
            }
            _ => Ok(()),
        }
    }

    fn not_empty(self, path: &str) -> Result<Self> {
        match self.names.is_empty() {
            true => {
                Err(Error::Line { path: path.into(), line: 1, reason: "the file names no parcel".into() })
            }
            false => Ok(self),
        }
    }
}

fn whole(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| format!("'{text}' is no number of a parcel"))
}

/// Number and name of a line; tabs divide it, else white space does.
fn of_line(text: &str) -> Result<(i32, &str), String> {
    if let Some((number, rest)) = text.split_once('\t') {
        let name = rest.split('\t').next().unwrap_or_default().trim();
        return named(whole(number.trim())?, name);
    }
    let (number, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let number = whole(number)?;
    let mut name = rest.trim();
    let colour = name.split_whitespace().rev().take_while(|word| word.parse::<u8>().is_ok()).count();
    if colour >= COLOUR {
        for _ in 0..COLOUR {
            name = name.rsplit_once(char::is_whitespace).map_or("", |(before, _)| before.trim_end());
        }
    }
    named(number, name)
}

fn named(number: i32, name: &str) -> Result<(i32, &str), String> {
    match name {
        "" => Err(format!("parcel {number} has no name; a line is a number and a name")),
        name => Ok((number, name)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, name: &str) -> Result<ParcelNames> {
        ParcelNames::from_reader(text.as_bytes(), name)
    }

    #[test]
    fn tables_and_lines_name_parcels() {
        let table =
            read("index\tname\tcolor\n-3\tDeep nucleus\t#fff\n7\tn/a\t#000\n200\tV1\t#111\n", "a.tsv")
                .unwrap();
        assert_eq!([-3, 7, 200].map(|n| table.of(n)), [Some("Deep nucleus"), None, Some("V1")]);
        let lines = "#No. Label Name: R G B A\n\n0   Unknown  0 0 0 0\r\n1\t7Networks_LH_Vis_1\t120\t18\t131\t0\n\
                     2 Area 44 1\n3 4 1 2 3 4\n";
        let lines = read(lines, "lut.txt").unwrap();
        let found = [0, 1, 2, 3].map(|n| lines.of(n));
        assert_eq!(found, [Some("Unknown"), Some("7Networks_LH_Vis_1"), Some("Area 44 1"), Some("4")]);
    }

    #[test]
    fn what_names_nothing_is_refused_with_its_line() {
        for (text, name, says) in [
            ("number\tname\n1\tA\n", "a.tsv", "index"),
            ("index\tname\n1.5\tA\n", "a.tsv", "line 2: '1.5' is no number"),
            ("index\tname\n1\tA\n1\tB\n", "a.tsv", "line 3: parcel 1 is named 'B' here, 'A' before"),
            ("index\tname\n", "a.tsv", "names no parcel"),
            ("# nothing\n", "a.txt", "names no parcel"),
            ("1\n", "a.txt", "parcel 1 has no name"),
            ("A 1\n", "a.txt", "line 1: 'A' is no number"),
        ] {
            let e = read(text, name).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
        assert!(ParcelNames::from_reader(&b"1 \xff\n"[..], "a.txt").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_names_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), table in any::<bool>()) {
            let _ = ParcelNames::from_reader(bytes.as_slice(), if table { "a.tsv" } else { "a.txt" });
        }

        #[test]
        fn names_come_back(names in prop::collection::btree_map(any::<i32>(), "[A-Za-z_][A-Za-z_ ]{0,8}[a-z]", 1..9)) {
            let lines: String = names.iter().map(|(n, name)| format!("{n} {name} 1 2 3 0\n")).collect();
            let found = read(&lines, "a.lut").unwrap();
            for (n, name) in &names {
                prop_assert_eq!(found.of(*n), Some(name.as_str()));
            }
        }
    }
}
