//! `voxelflow sql "SELECT …"`.

use crate::{
    Error, Result, Session,
    flags::{RowFormat, SqlFlags},
    model_store::is_remote,
    output::{Output, is_closed},
    pipeline::{is_parquet_folder, ledger},
    rows::print_rows,
};
use arrow::{array::RecordBatch, csv, error::ArrowError, json};
use datafusion::{error::DataFusionError, logical_expr::LogicalPlan, sql::parser::Statement};
use futures::StreamExt;
use std::io::{BufWriter, Write};
use voxelflow_dataset::{Dataset, WriteOptions, WriteSummary};
use voxelflow_storage::Purpose;

/// Rows of a table on the terminal: they are held, to find how wide its columns are.
const ROWS_SHOWN: usize = 1000;

pub(super) async fn sql(flags: SqlFlags) -> Result<()> {
    if let (RowFormat::Csv | RowFormat::Json, Some(path)) = (flags.format, &flags.output)
        && is_remote(&path.to_string_lossy())
    {
        let reason = "csv and json go to a local file; give --format parquet for a store";
        return Err(Error::input(path.display(), reason));
    }
    let session = Session::builder().memory_limit(flags.memory.bytes()).place(&flags.cluster).start().await?;
    check_stores(&session, &flags).await?;
    if let Some(out) = &flags.out {
        if !out.is_dir() {
            let reason = "there is no such folder; give the --out of a run, which has the ledger";
            return Err(Error::input(out.display(), reason));
        }
        ledger::register(session.context(), &ledger::files(out))?;
    }
    let rows = session.sql(&flags.statement).await?;
    // Whole or not at all, as in a pipeline file.
    if let LogicalPlan::Copy(copy) = rows.logical_plan()? {
        if !is_parquet_folder(copy) {
            return Ok(session.copy(copy).await?);
        }
        let source = session.dataset(copy.input.as_ref().clone());
        let options = WriteOptions::default().overwrite();
        return told(&source.write_parquet_with(&copy.output_url, &options).await?);
    }
    match (flags.format, &flags.output) {
        (RowFormat::Table, None) => print_rows(&rows, ROWS_SHOWN).await.map(drop),
        (RowFormat::Parquet, Some(path)) => {
            let location = path.to_string_lossy();
            told(&rows.write_parquet_with(&location, &WriteOptions::default()).await?)
        }
        (RowFormat::Parquet, None) => {
            Err(Error::input("--format parquet", "give --output FOLDER to write to"))
        }
        (RowFormat::Table, Some(_)) => {
            Err(Error::input("--output", "a table goes to the terminal; give --format csv, json or parquet"))
        }
        (RowFormat::Csv, None) => stream(&rows, csv::Writer::new(out()), |w, b| w.write(b), |_| Ok(())).await,
        (RowFormat::Json, None) => {
            stream(&rows, json::LineDelimitedWriter::new(out()), |w, b| w.write(b), |mut w| w.finish()).await
        }
        (RowFormat::Csv, Some(path)) => {
            let file = voxelflow_storage::AtomicFile::create(path)?;
            let partial = create(file.partial_path())?;
            stream(&rows, csv::Writer::new(partial), |w, b| w.write(b), |_| Ok(())).await?;
            file.commit()?;
            Ok(())
        }
        (RowFormat::Json, Some(path)) => {
            let file = voxelflow_storage::AtomicFile::create(path)?;
            let partial = create(file.partial_path())?;
            let writer = json::LineDelimitedWriter::new(partial);
            stream(&rows, writer, |w, b| w.write(b), |mut w| w.finish()).await?;
            file.commit()?;
            Ok(())
        }
    }
}

/// Says what was written.
fn told(written: &WriteSummary) -> Result<()> {
    let WriteSummary { rows, files, bytes, location, .. } = written;
    say!("{rows} rows in {files} files, {bytes} bytes: {location}");
    Ok(())
}

/// Looks at the stores that the statement names before it is planned, which opens files: what is wrong with their
/// description is named before anything waits for them.
async fn check_stores(session: &Session, flags: &SqlFlags) -> Result<()> {
    let state = session.context().state();
    let dialect = state.config_options().sql_parser.dialect;
    let statement = state.sql_to_statement(&flags.statement, &dialect)?;
    let read = state.resolve_table_references(&statement)?.into_iter().map(|table| table.to_string());
    let read = read.chain(match &statement {
        Statement::CreateExternalTable(create) => create.locations.clone(),
        _ => Vec::new(),
    });
    for location in read {
        session.check_location(&location, Purpose::Read).await?;
    }
    let written = match &statement {
        Statement::CopyTo(copy) => Some(copy.target.clone()),
        _ => flags.output.as_ref().map(|path| path.to_string_lossy().into_owned()),
    };
    match written {
        Some(location) => session.check_location(&location, Purpose::Write).await,
        None => Ok(()),
    }
}

fn out() -> impl Write {
    BufWriter::new(Output)
}

fn create(path: &std::path::Path) -> Result<impl Write> {
    Ok(BufWriter::new(std::fs::File::create(path).map_err(|e| Error::io(path, e))?))
}

async fn stream<W>(
    rows: &Dataset,
    mut writer: W,
    write: impl Fn(&mut W, &RecordBatch) -> Result<(), ArrowError>,
    finish: impl Fn(W) -> Result<(), ArrowError>,
) -> Result<()> {
    let mut batches = rows.stream().await?;
    while let Some(batch) = batches.next().await {
        write(&mut writer, &batch?).map_err(DataFusionError::from)?;
        if is_closed() {
            return Ok(());
        }
    }
    Ok(finish(writer).map_err(DataFusionError::from)?)
}
