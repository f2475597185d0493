//! Checking a whole file before anything runs: an error in the last statement must not cost the training
//! before it.

use super::{PipelineFile, ledger, unwritten::Unwritten};
use crate::{Error, Result, Session};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use std::path::{Path, PathBuf};
use voxelflow_nn::check_device;
use voxelflow_pipeline::{MapsSource, Planned, Planner, Span, Statement, StatementKind, refusal};
use voxelflow_storage::{Place as StoragePlace, Purpose};
use voxelflow_tables::check_export;

/// A statement that is wrong.
#[derive(Debug)]
pub struct Refusal {
    /// What the ledger calls it: `table series`.
    pub(super) statement: String,
    /// What is wrong.
    pub error: Error,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

/// Where a file will run, as far as it is known when it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this process: what the file needs must be on this machine.
    Here,
    /// On a cluster.
    Elsewhere,
}

/// Plans every statement against what the ones before it would make. Headers of images are read, no data.
///
/// Gives the number of statements checked. A table over a folder that `COPY` fills is checked as its rows; a file that
/// reads in another way what it writes (`INSERT`, a model in a store) can only be checked up to there.
///
/// # Errors
/// The first statement that is wrong.
pub async fn check(
    file: &PipelineFile,
    session: &Session,
    out: &Path,
    place: Place,
) -> Result<usize, Refusal> {
    let wrong = |statement: String| move |error| Refusal { statement, error };
    let context = session.context().clone();
    let planner = Planner::try_new(context, session.planner().clone(), out.join("models"));
    let mut planner = planner.map_err(|e| wrong(file.name.clone())(e.into()))?;
    ledger::register(session.context(), &[]).map_err(wrong(file.name.clone()))?;
    let mut unwritten = Unwritten::default();
    for (number, statement) in file.statements.iter().enumerate() {
        if unwritten.is_read_by(statement) {
            return Ok(number);
        }
        let goes_on =
            check_statement(file, session, (out, place), (&mut planner, &mut unwritten), statement).await;
        if !goes_on.map_err(wrong(ledger::name_of(statement)))? {
            return Ok(number + 1);
        }
    }
    Ok(file.statements.len())
}

/// Plans one statement; answers whether those after it can be checked.
async fn check_statement(
    file: &PipelineFile,
    session: &Session,
    (out, place): (&Path, Place),
    (planner, unwritten): (&mut Planner, &mut Unwritten),
    statement: &Statement,
) -> Result<bool> {
    // Files that are named in FROM are opened when the statement is planned.
    for location in &planner.inputs(statement)?.tables {
        let checked = session.check_location(location, Purpose::Read).await;
        checked.map_err(|e| in_statement(file, statement, e))?;
    }
    let planned = unwritten.table_over(planner.plan(statement).await?);
    if let Planned::ExportMaps { source, target, .. } = &planned {
        let rows =
            rows_of_maps(source, target).map_err(|e| at(file, statement, source_place(statement), e))?;
        let path = out.join(target);
        let maps = check_export(rows.schema().as_arrow(), &path.to_string_lossy()).map_err(|e| {
            let of_target = e.to_string().contains("target ");
            let place = if of_target { target_place(statement) } else { source_place(statement) };
            at(file, statement, place, e.into())
        })?;
        check_folder(&maps.folder()).map_err(|e| at(file, statement, target_place(statement), e))?;
    }
    planner.check_plan(statement, &planned).await?;
    if let (Place::Here, Planned::Train(train)) = (place, &planned)
        && let Some(device) = train.request.settings.get("device").and_then(|device| device.as_str())
    {
        check_device(device)
            .map_err(|e| at(file, statement, setting_place(statement, "device"), e.into()))?;
    }
    if let Some((folder, place)) = folder_written(out, statement, &planned) {
        check_folder(&folder).map_err(|e| at(file, statement, place, e))?;
    }
    check_locations(session, &planned).await.map_err(|e| in_statement(file, statement, e))?;
    if !unwritten.note(&planned) {
        return Ok(false);
    }
    planner.declare(statement, &planned).await?;
    Ok(true)
}

/// Looks at the stores that a statement names, so that what is wrong with their description is named before anything
/// waits for them.
async fn check_locations(session: &Session, planned: &Planned) -> Result<()> {
    match planned {
        Planned::Train(train) => match &train.publish {
            Some(location) => session.check_location(location, Purpose::Write).await,
            None => Ok(()),
        },
        Planned::CreateExternalTable(LogicalPlan::Ddl(DdlStatement::CreateExternalTable(command))) => {
            for location in &command.locations {
                session.check_location(location, Purpose::Read).await?;
            }
            Ok(())
        }
        Planned::Other(LogicalPlan::Copy(copy)) => {
            session.check_location(&copy.output_url, Purpose::Write).await
        }
        _ => Ok(()),
    }
}

/// The folder of this machine that a statement other than `EXPORT MAPS` writes into, and where it says so.
fn folder_written(out: &Path, statement: &Statement, planned: &Planned) -> Option<(PathBuf, Option<Span>)> {
    let local = |location: &str| match StoragePlace::parse(location) {
        Ok(StoragePlace::Local(path)) => Some(path),
        _ => None,
    };
    match planned {
        Planned::Report { path } => Some((out.join(path).parent()?.to_owned(), target_place(statement))),
        Planned::Train(train) => {
            let spool = train.request.settings.get("spool").and_then(|spool| spool.as_str())?;
            Some((local(spool)?, setting_place(statement, "spool")))
        }
        Planned::Other(LogicalPlan::Copy(copy)) => {
            let path = local(&copy.output_url)?;
            let folder = if copy.output_url.ends_with('/') { path } else { path.parent()?.to_owned() };
            Some((folder, None))
        }
        _ => None,
    }
}

/// Refuses a folder to write into where a file lies in its place, or in that of a folder above it.
fn check_folder(folder: &Path) -> Result<()> {
    // Without a slash at its end, which no file has.
    let folder: PathBuf = folder.components().collect();
    match folder.ancestors().find(|path| path.exists()) {
        Some(file) if !file.is_dir() => {
            let reason =
                format!("{} is a file, and a folder is needed there; choose another place", file.display());
            Err(Error::input(folder.display(), reason))
        }
        _ => Ok(()),
    }
}

/// Where a statement says what it writes maps of.
fn source_place(statement: &Statement) -> Option<Span> {
    match &statement.kind {
        StatementKind::ExportMaps(export) => Some(export.source.span),
        _ => None,
    }
}

/// Where a statement says what it writes.
fn target_place(statement: &Statement) -> Option<Span> {
    match &statement.kind {
        StatementKind::ExportMaps(export) => Some(export.target.span),
        StatementKind::Report(report) => Some(report.path.span),
        _ => None,
    }
}

/// Where a training has this setting.
fn setting_place(statement: &Statement, name: &str) -> Option<Span> {
    match &statement.kind {
        StatementKind::Train(train) => train.settings.get(name).map(|setting| setting.span),
        _ => None,
    }
}

/// What is the user's to mend, with its line and a caret at `place` (or the statement's first word); what is not, with the
/// statement that it stopped.
fn at(file: &PipelineFile, statement: &Statement, place: Option<Span>, error: Error) -> Error {
    match error.is_input() {
        true => refusal(statement, place, &error.to_string()).into(),
        false => in_statement(file, statement, error),
    }
}

/// The rows that maps are drawn of.
pub(super) fn rows_of_maps<'a>(source: &'a MapsSource, target: &str) -> Result<&'a LogicalPlan> {
    match source {
        MapsSource::Rows(rows) => Ok(rows),
        MapsSource::Model { .. } => {
            let reason = "a model of this stage has no maps of its own; write EXPORT MAPS FROM (SELECT …), for example \
                          of its encode or of pearson_r(series, reconstruct(…))";
            Err(Error::input(target, reason))
        }
    }
}

/// The same error with the statement's place.
pub(super) fn in_statement(file: &PipelineFile, statement: &Statement, source: Error) -> Error {
    Error::Statement {
        file: file.name.clone(),
        line: statement.line(),
        statement: statement.title(),
        source: Box::new(source),
    }
}
