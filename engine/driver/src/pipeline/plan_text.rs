//! `voxelflow plan`: what a file would do, statement by statement, without doing it.

use super::{PipelineFile, ledger, unwritten::Unwritten};
use crate::{Result, Session};
use datafusion::{
    common::stats::Precision,
    logical_expr::LogicalPlan,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, displayable,
        statistics::{StatisticsArgs, StatisticsContext},
    },
};
use indicatif::HumanBytes;
use std::{fmt::Write, path::Path, sync::Arc};
use voxelflow_pipeline::{MapsSource, Planned, Planner};

/// The plan of every statement as text.
///
/// # Errors
/// The first statement that is wrong.
pub async fn plan_text(file: &PipelineFile, session: &Session, out: &Path) -> Result<String> {
    let context = session.context().clone();
    let mut planner = Planner::try_new(context, session.planner().clone(), out.join("models"))?;
    ledger::register(session.context(), &[])?;
    let mut text = String::new();
    let mut unwritten = Unwritten::default();
    for statement in &file.statements {
        if unwritten.is_read_by(statement) {
            let _ =
                writeln!(text, "{}:{}: planned once what it reads is written", file.name, statement.line());
            break;
        }
        let planned = unwritten.table_over(planner.plan(statement).await?);
        let _ = writeln!(text, "{}:{}: {}", file.name, statement.line(), statement.title());
        match &planned {
            Planned::Query(plan) | Planned::ExportMaps { source: MapsSource::Rows(plan), .. } => {
                describe(&mut text, session, plan).await?;
            }
            Planned::CreateTable(table) => describe(&mut text, session, &table.plan).await?,
            Planned::Other(LogicalPlan::Copy(copy)) => describe(&mut text, session, &copy.input).await?,
            Planned::Train(train) => describe(&mut text, session, &train.plan).await?,
            Planned::Explain(rows) => rows.iter().for_each(|row| indent(&mut text, &row.plan)),
            _ => {}
        }
        if !unwritten.note(&planned) {
            break;
        }
        planner.declare(statement, &planned).await?;
    }
    Ok(text)
}

async fn describe(text: &mut String, session: &Session, plan: &LogicalPlan) -> Result<()> {
    let physical = session.context().state().create_physical_plan(plan).await?;
    let _ = writeln!(text, "    {}", size(&physical)?);
    indent(text, &displayable(physical.as_ref()).indent(false).to_string());
    Ok(())
}

/// Partitions, and rows and bytes as far as they are known before anything runs.
fn size(plan: &Arc<dyn ExecutionPlan>) -> Result<String> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    let known = |p: &Precision<usize>| match p {
        Precision::Exact(n) => Some((*n, "")),
        Precision::Inexact(n) => Some((*n, "about ")),
        Precision::Absent => None,
    };
    let rows = known(&statistics.num_rows).map(|(n, about)| format!(", {about}{n} rows"));
    let bytes =
        known(&statistics.total_byte_size).map(|(n, about)| format!(", {about}{}", HumanBytes(n as u64)));
    let partitions = plan.output_partitioning().partition_count();
    Ok(format!(
        "{partitions} partition{}{}{}",
        if partitions == 1 { "" } else { "s" },
        rows.unwrap_or_else(|| ", rows known when it runs".into()),
        bytes.unwrap_or_default()
    ))
}

fn indent(text: &mut String, plan: &str) {
    for line in plan.lines() {
        let _ = writeln!(text, "    {line}");
    }
}
