//! A tab-separated table with a header line, as BIDS has it.

use crate::opening::open;
use crate::{Error, Result};
use csv::{ErrorKind, ReaderBuilder, StringRecord, Terminator};
use std::io::Read;
use std::path::Path;

/// Names that an error lists before it says how many more there are.
const NAMED: usize = 20;

/// A tab-separated table: text cells under named columns, each row with its line in the file.
///
/// Cells are trimmed; a cell in double quotes may hold tabs. `n/a`, the null of BIDS, is `None` as text and NaN
/// as a number.
///
/// ```
/// use voxelflow_formats::table::Table;
/// # fn main() -> voxelflow_formats::Result<()> {
/// let text = "participant_id\tage\tgroup\nsub-01\t34\tcontrol\nsub-02\tn/a\tpatient\n";
/// let table = Table::from_reader(text.as_bytes(), "participants.tsv")?;
/// assert_eq!(table.names(), ["participant_id", "age", "group"]);
/// assert!(table.numbers("age")?[1].is_nan());
/// assert_eq!(table.text("group")?[0], Some("control"));
/// assert!(table.is_numeric("age")? && !table.is_numeric("group")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    path: String,
    names: Vec<String>,
    rows: Vec<StringRecord>,
}

impl Table {
    /// Reads the table at `path`.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads a table from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// [`Error::Line`] for a file without header, a column without a name or named twice, a row of another
    /// length, an empty line between rows, a quote that is not closed, or bytes that are not UTF-8;
    /// [`Error::Read`] from the system.
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        // A line end of our own closes the last line; a quote that is still open then shows by holding it.
        // Only '\n' ends a line, so that lines can be counted; the '\r' of Windows is trimmed with the cell.
        let mut reader = ReaderBuilder::new()
            .delimiter(b'\t')
            .terminator(Terminator::Any(b'\n'))
            .has_headers(false)
            .flexible(true)
            .from_reader(source.chain(&b"\n"[..]));
        let mut table = Self { path: name.into(), names: Vec::new(), rows: Vec::new() };
        let (mut record, mut line) = (StringRecord::new(), 1);
        while reader.read_record(&mut record).map_err(|error| table.explain(error, line))? {
            if record.iter().any(|cell| cell.contains('\n')) {
                return Err(table.line(line, "a double quote is not closed on its line".into()));
            }
            record.trim();
            if record.len() == 1 && record[0].is_empty() {
                continue;
            }
            // Empty lines were passed over; at the file's end nothing follows them, and they do no harm.
            let next = reader.position().line();
            table.check_line(&record, line, next)?;
            if table.names.is_empty() {
                table.names = table.header(&record)?;
            } else {
                table.check_length(&record, line)?;
                table.rows.push(record.clone());
            }
            line = next;
        }
        if table.names.is_empty() {
            return Err(table.line(1, "the file is empty; its first line names the columns".into()));
        }
        Ok(table)
    }

    /// Path or URL as it was given.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Names of the columns, in the file's order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Count of rows, without the header.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether there is a column `name`.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Cells of the column `name`, `[rows]`; `None` where it says `n/a` or nothing.
    ///
    /// # Errors
    /// [`Error::Column`] when it is not there.
    pub fn text(&self, name: &str) -> Result<Vec<Option<&str>>> {
        let index = self.index(name)?;
        Ok(self
            .cells(index)
            .map(|cell| Some(cell).filter(|cell| !is_null(cell) && !cell.is_empty()))
            .collect())
    }

    /// Numbers of the column `name`, `[rows]`; NaN where the file says `n/a`.
    ///
    /// # Errors
    /// [`Error::Column`] when it is not there, [`Error::Cell`] for a cell that is no finite number.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        self.parsed(name, number)
    }

    /// The same, with NaN in empty cells too.
    pub(super) fn numbers_or_nothing(&self, name: &str) -> Result<Vec<f64>> {
        self.parsed(name, |cell| if cell.is_empty() { Ok(f64::NAN) } else { number(cell) })
    }

    /// Whether every cell of the column that holds something is a number, infinity too, and there is one. `007` is a
    /// label, not a number.
    ///
    /// # Errors
    /// [`Error::Column`] when it is not there.
    pub fn is_numeric(&self, name: &str) -> Result<bool> {
        let index = self.index(name)?;
        let mut numbers = 0;
        for cell in self.cells(index).filter(|cell| !is_null(cell) && !cell.is_empty()) {
            if is_label(cell) || cell.parse::<f64>().is_err() {
                return Ok(false);
            }
            numbers += 1;
        }
        Ok(numbers > 0)
    }

    /// The line of the file where a row stands.
    pub fn line_of(&self, row: usize) -> u64 {
        row as u64 + 2
    }

    fn parsed(&self, name: &str, parse: impl Fn(&str) -> Result<f64, String>) -> Result<Vec<f64>> {
        let cells = self.cells(self.index(name)?).enumerate();
        cells.map(|(row, cell)| parse(cell).map_err(|reason| self.cell(row, name, reason))).collect()
    }

    /// An error about a cell.
    pub(super) fn cell(&self, row: usize, column: &str, reason: String) -> Error {
        Error::Cell { path: self.path.clone(), line: self.line_of(row), column: column.into(), reason }
    }

    fn cells(&self, index: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row.get(index).unwrap_or_default())
    }

    pub(super) fn index(&self, name: &str) -> Result<usize> {
        self.names.iter().position(|known| known == name).ok_or_else(|| Error::Column {
            path: self.path.clone(),
            column: name.into(),
            present: self.present(),
        })
    }

    fn present(&self) -> String {
        let mut list = self.names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if self.names.len() > NAMED {
            list.push_str(&format!(" and {} more", self.names.len() - NAMED));
        }
        list
    }

    fn header(&self, record: &StringRecord) -> Result<Vec<String>> {
        let mut names: Vec<String> = Vec::with_capacity(record.len());
        for (index, name) in record.iter().enumerate() {
            if name.is_empty() {
                let reason = format!(
                    "column {} has no name; name it, or write the table without its row numbers",
                    index + 1
                );
                return Err(self.line(1, reason));
            }
            names.push(name.to_owned());
        }
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(self.line(1, format!("two columns are named '{}'", pair[0]))),
            None => Ok(names),
        }
    }

    /// The record is the line, and no line before it was passed over.
    fn check_line(&self, record: &StringRecord, line: u64, next: u64) -> Result<()> {
        if next > line + 1 {
            return Err(self.line(line, "the line is empty; remove it".into()));
        }
        if record.iter().any(|cell| cell.contains('\r')) {
            return Err(
                self.line(line, "a carriage return stands inside it; save with Unix line ends".into())
            );
        }
        Ok(())
    }

    fn check_length(&self, record: &StringRecord, line: u64) -> Result<()> {
        let (found, expected) = (record.len(), self.names.len());
        if found == expected {
            return Ok(());
        }
        let detail = match self.names.get(found) {
            Some(name) => format!("column '{name}' and those after it are missing"),
            None => format!("'{}' stands after the last column", record.get(expected).unwrap_or_default()),
        };
        Err(self.line(line, format!("it has {found} cell(s), the header has {expected}: {detail}")))
    }

    fn explain(&self, error: csv::Error, line: u64) -> Error {
        let offset = error.position().map_or(0, csv::Position::byte);
        match error.into_kind() {
            ErrorKind::Io(source) => Error::Read { path: self.path.clone(), offset, source },
            ErrorKind::Utf8 { err, .. } => {
                self.line(line, format!("cell {} is not UTF-8 text; save the file as UTF-8", err.field() + 1))
            }
            other => self.line(line, format!("{other:?}")),
        }
    }

    fn line(&self, line: u64, reason: String) -> Error {
        Error::Line { path: self.path.clone(), line, reason }
    }
}

/// `n/a`, and the NaN that programs write for it.
fn is_null(cell: &str) -> bool {
    cell.eq_ignore_ascii_case("n/a") || cell.eq_ignore_ascii_case("nan")
}

/// Digits that begin with 0 name something.
fn is_label(cell: &str) -> bool {
    let bytes = cell.as_bytes();
    bytes.len() > 1 && bytes[0] == b'0' && bytes[1].is_ascii_digit()
}

/// A finite number, NaN for a null, or what is wrong.
pub(super) fn number(cell: &str) -> Result<f64, String> {
    if is_null(cell) {
        return Ok(f64::NAN);
    }
    match cell.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err(format!("'{cell}' is not finite")),
        Err(_) if cell.is_empty() => Err("the cell is empty; write n/a where there is no value".into()),
        Err(_) => Err(format!("'{cell}' is not a number")),
    }
}
