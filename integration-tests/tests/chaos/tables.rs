//! The Parquet tables that queries read, and rows of Parquet as text.

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    csv,
};
use parquet::arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder};
use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};
use tempfile::TempDir;

/// Rows of the large table.
const FACTS: i64 = 4_000_000;
/// Rows of the small one.
const KEYS: i64 = 60_000;
/// Files of each.
const FILES: i64 = 4;

/// `facts` (n, k, g, v, t: the key k of `keys`, groups, values, texts) and `keys` (k, w, label).
pub struct Tables {
    folder: TempDir,
}

impl Tables {
    pub fn write() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("facts"), FACTS, |n| {
            let text = |n: i64| format!("text-{:06}-{}", n * 31 % 100_003, n % 2);
            vec![
                ("n", numbers(n.clone(), |n| n)),
                ("k", numbers(n.clone(), |n| n * 7_919 % KEYS)),
                ("g", numbers(n.clone(), |n| n % 97)),
                ("v", numbers(n.clone(), |n| n % 10_007 * (n % 13))),
                ("t", Arc::new(StringArray::from_iter_values(n.map(text)))),
            ]
        });
        write(&folder.path().join("keys"), KEYS, |k| {
            vec![
                ("k", numbers(k.clone(), |k| k)),
                ("w", numbers(k.clone(), |k| k % 113)),
                ("label", Arc::new(StringArray::from_iter_values(k.map(|k| format!("label-{k}"))))),
            ]
        });
        Self { folder }
    }

    /// `sql` with the places of the tables for their names in capitals.
    pub fn named(&self, sql: &str) -> String {
        let place = |name: &str| format!("'{}/'", self.folder.path().join(name).display());
        sql.replace("FACTS", &place("facts")).replace("KEYS", &place("keys"))
    }
}

fn numbers(of: std::ops::Range<i64>, value: impl Fn(i64) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(of.map(value)))
}

fn write(folder: &Path, rows: i64, columns: impl Fn(std::ops::Range<i64>) -> Vec<(&'static str, ArrayRef)>) {
    fs::create_dir(folder).unwrap();
    for file in 0..FILES {
        let range = rows * file / FILES..rows * (file + 1) / FILES;
        let batch = RecordBatch::try_from_iter(columns(range)).unwrap();
        let out = File::create(folder.join(format!("{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(out, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

/// The rows of a Parquet file, a line each.
///
/// # Errors
/// Why it cannot be read.
pub fn rows_of(file: &Path) -> Result<Vec<String>, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let opened = File::open(file).map_err(|e| wrong(&e))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(opened).map_err(|e| wrong(&e))?;
    let mut text = Vec::new();
    let mut writer = csv::WriterBuilder::new().with_header(false).build(&mut text);
    for batch in reader.build().map_err(|e| wrong(&e))? {
        writer.write(&batch.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
    }
    drop(writer);
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}
