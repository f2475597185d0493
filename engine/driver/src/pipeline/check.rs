//! Checking a whole file before anything runs: an error in the last statement must not cost the training
//! before it.

use super::PipelineFile;
use crate::{Error, Result, Session};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use std::path::Path;
use voxelflow_pipeline::{MapsSource, Planned, Planner};
use voxelflow_storage::Purpose;
use voxelflow_tables::check_export;

/// Plans every statement against what the ones before it would make. Headers of images are read, no data.
///
/// Gives the number of statements checked: a file that writes files and reads them again (`COPY`, `INSERT`) can
/// only be checked up to there.
///
/// # Errors
/// The first statement that is wrong.
pub async fn check(file: &PipelineFile, session: &Session, out: &Path) -> Result<usize> {
    let context = session.context().clone();
    let mut planner = Planner::try_new(context, session.planner().clone(), out.join("models"))?;
    for (number, statement) in file.statements.iter().enumerate() {
        // Files that are named in FROM are opened when the statement is planned.
        for location in planner.inputs(statement)?.tables.iter().filter(|l| !l.contains(['*', '?', '['])) {
            let checked = session.check_location(location, Purpose::Read).await;
            checked.map_err(|e| in_statement(file, statement, e))?;
        }
        let planned = planner.plan(statement).await?;
        if let Planned::ExportMaps { source: MapsSource::Rows(rows), target } = &planned {
            let target = out.join(target);
            let checked = check_export(rows.schema().as_arrow(), &target.to_string_lossy());
            checked.map_err(|e| in_statement(file, statement, e.into()))?;
        }
        check_locations(session, &planned).await.map_err(|e| in_statement(file, statement, e))?;
        if matches!(planned, Planned::Other(LogicalPlan::Copy(_) | LogicalPlan::Dml(_))) {
            return Ok(number + 1);
        }
        planner.declare(statement, &planned).await?;
    }
    Ok(file.statements.len())
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
            for location in command.locations.iter().filter(|l| !l.contains(['*', '?', '['])) {
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

/// The same error with the statement's place.
pub(super) fn in_statement(
    file: &PipelineFile,
    statement: &voxelflow_pipeline::Statement,
    source: Error,
) -> Error {
    Error::Statement {
        file: file.name.clone(),
        line: statement.line(),
        statement: statement.title(),
        source: Box::new(source),
    }
}
