//! The data-quality ledger of a folder: a Parquet file for each statement that has something to tell, and the table
//! `ledger` over them.
//!
//! ```text
//!   out/ledger/table-series-3f1c….parquet   rows of `CREATE TABLE series AS …`
//!   out/ledger/model-dca-09ab….parquet      rows of `TRAIN MODEL dca …`
//! ```
//!
//! A statement that is run again replaces its file; one that need not run keeps it.

use super::{FileRecord, RunRecord};
use crate::{Error, Result};
use datafusion::{
    catalog::TableProvider,
    datasource::{
        empty::EmptyTable,
        file_format::parquet::ParquetFormat,
        listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl},
    },
    prelude::SessionContext,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};
use url::Url;
use voxelflow_dataset::{Ledger, LedgerEntry, ledger_schema};
use voxelflow_pipeline::{LEDGER, Statement};

/// Characters of a statement's name in that of its file.
const NAME_SHOWN: usize = 60;

/// Where the ledger of `out` lies.
fn folder(out: &Path) -> PathBuf {
    out.join(LEDGER)
}

/// The file of a statement, relative to `out`. The hash tells names apart that only differ in what file names lack.
fn file(statement: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = statement.chars().map(plain).take(NAME_SHOWN).collect();
    let hash = blake3::hash(statement.as_bytes()).to_hex();
    Path::new(LEDGER).join(format!("{name}-{}.parquet", &hash[..12]))
}

/// What the ledger calls a statement: what it makes (`table series`), else its line and first words.
pub(super) fn name_of(statement: &Statement) -> String {
    let title = statement.title();
    let made = [("CREATE EXTERNAL TABLE ", "table"), ("CREATE TABLE ", "table"), ("TRAIN MODEL ", "model")];
    let made = made.iter().find_map(|(words, what)| Some((what, title.strip_prefix(words)?)));
    match made {
        Some((what, name)) if name.contains('"') => format!("{what} {}", name.replace('"', "")),
        Some((what, name)) => format!("{what} {}", name.to_lowercase()),
        None => format!("line {}: {title}", statement.line()),
    }
}

/// Writes that `statement` was refused for what `entry` says. Its rows stay, as what it made before does; the refusal
/// is forgotten with the next run of the file.
///
/// # Errors
/// A folder that cannot be written.
pub(super) fn write_refusal(out: &Path, statement: &str, entry: LedgerEntry) -> Result<()> {
    forget_others(out, &RunRecord::read(out))?;
    let ledger = [entry].into_iter().collect();
    write_file(out, &file(&format!("refused {statement}")), statement, &ledger).map(drop)
}

/// Replaces the rows of `statement`; gives its file, if there is anything to tell.
///
/// # Errors
/// A folder that cannot be written.
pub(super) fn write(out: &Path, statement: &str, ledger: &Ledger) -> Result<Option<FileRecord>> {
    write_file(out, &file(statement), statement, ledger)
}

fn write_file(out: &Path, file: &Path, statement: &str, ledger: &Ledger) -> Result<Option<FileRecord>> {
    let path = out.join(file);
    if ledger.is_empty() {
        return match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&path, e)),
            _ => Ok(None),
        };
    }
    let parquet = ledger.to_parquet(statement)?;
    std::fs::create_dir_all(folder(out)).map_err(|e| Error::io(&folder(out), e))?;
    voxelflow_storage::publish(&path, &parquet)?;
    FileRecord::of(&path, out).map(Some)
}

/// Removes the rows of statements that `record` does not remember: those of queries and of refused runs are of the last
/// run of the file only.
///
/// # Errors
/// A file that cannot be removed.
pub(super) fn forget_others(out: &Path, record: &RunRecord) -> Result<()> {
    let known: BTreeSet<PathBuf> = record.statements.keys().map(|target| out.join(file(target))).collect();
    let Ok(entries) = std::fs::read_dir(folder(out)) else { return Ok(()) };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| !known.contains(path)) {
        std::fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
    }
    Ok(())
}

/// The files of all statements of `out`.
pub(crate) fn files(out: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(out)).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_parquet(path)).collect();
    files.sort();
    files
}

fn is_parquet(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    !hidden && path.extension().is_some_and(|extension| extension == "parquet")
}

/// Has `ledger` in SQL be the rows of `files`.
///
/// # Errors
/// A file whose path is no URL.
pub(crate) fn register(context: &SessionContext, files: &[PathBuf]) -> Result<()> {
    context.deregister_table(LEDGER)?;
    context.register_table(LEDGER, table(files)?)?;
    Ok(())
}

fn table(files: &[PathBuf]) -> Result<Arc<dyn TableProvider>> {
    if files.is_empty() {
        return Ok(Arc::new(EmptyTable::new(ledger_schema())));
    }
    let url = |path: &PathBuf| {
        let path = std::path::absolute(path).map_err(|e| Error::io(path, e))?;
        let url = Url::from_file_path(&path);
        let url = url.map_err(|()| Error::input(path.display(), "it is not the path of a file"))?;
        Ok(ListingTableUrl::try_new(url, None)?)
    };
    let urls = files.iter().map(url).collect::<Result<Vec<_>>>()?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
    let config = ListingTableConfig::new_with_multi_paths(urls);
    let config = config.with_listing_options(options).with_schema(ledger_schema());
    Ok(Arc::new(ListingTable::try_new(config)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::pipeline::StatementRecord;
    use voxelflow_dataset::{Finding, Level, RunKey};

    fn ledger(reason: &str) -> Ledger {
        let entry = LedgerEntry::of_run(RunKey::default(), Level::Run, Finding::Dropped, reason, 1);
        [entry].into_iter().collect()
    }

    async fn reasons(out: &Path) -> Vec<String> {
        let context = SessionContext::new();
        register(&context, &files(out)).unwrap();
        let rows =
            context.sql("SELECT statement || ' ' || reason AS r FROM ledger ORDER BY r").await.unwrap();
        let batches = rows.collect().await.unwrap();
        let texts = batches.iter().flat_map(|batch| {
            (0..batch.num_rows())
                .map(|row| arrow::util::display::array_value_to_string(batch.column(0), row).unwrap())
        });
        texts.collect()
    }

    #[tokio::test]
    async fn a_statement_replaces_its_rows_and_leaves_those_of_others() {
        let out = tempfile::tempdir().unwrap();
        // What a pattern or an escape would be elsewhere is a folder's name here.
        let out = out.path().join("a [b] %20 ü");
        assert!(reasons(&out).await.is_empty());
        write(&out, "table a", &ledger("1")).unwrap().unwrap();
        write(&out, "table-a", &ledger("2")).unwrap().unwrap();
        assert_eq!(reasons(&out).await, ["table a 1", "table-a 2"]);
        write(&out, "table a", &ledger("3")).unwrap().unwrap();
        write(&out, "table b", &Ledger::default()).unwrap();
        assert_eq!(reasons(&out).await, ["table a 3", "table-a 2"]);
        let mut record = RunRecord::default();
        record.statements.insert("table a".into(), StatementRecord::default());
        forget_others(&out, &record).unwrap();
        assert_eq!(reasons(&out).await, ["table a 3"]);
        assert!(write(&out, "table a", &Ledger::default()).unwrap().is_none());
        assert!(reasons(&out).await.is_empty());
    }
}
