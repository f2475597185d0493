//! Golden files: each `golden/*.vf` is checked as `voxelflow check` would, and what comes out (statements,
//! inputs, plans, or the error as a person sees it) is compared with the `.expected` file beside it.
//! `VOXELFLOW_REFRESH=1 cargo test -p voxelflow-pipeline` writes the expected files anew.
//!
//! A file's first comments may say `-- set: name=value` and `-- model: name=folder`.

use crate::stages::{SmallStages, session};
use datafusion::logical_expr::LogicalPlan;
use std::{fmt::Write, fs, path::Path, sync::Arc};
use voxelflow_pipeline::{
    MapsSource, PipelineError, Planned, Planner, Source, Statement, StatementKind, Variables, parse,
};

#[tokio::test]
async fn golden_files() {
    let refresh = std::env::var_os("VOXELFLOW_REFRESH").is_some_and(|v| v == "1");
    let mut files: Vec<_> = fs::read_dir("tests/golden")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "vf"))
        .collect();
    files.sort();
    assert!(files.len() >= 25, "the golden files are gone: {} found", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        let outcome = outcome(path).await;
        let expected = path.with_extension("expected");
        if refresh {
            fs::write(&expected, &outcome).unwrap();
        } else {
            let known = fs::read_to_string(&expected).unwrap_or_default();
            if known != outcome {
                wrong.push(format!("{}\n{}", expected.display(), difference(&known, &outcome)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\nVOXELFLOW_REFRESH=1 accepts what is new", wrong.join("\n"));
}

async fn outcome(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let directive = |name: &str| -> Variables {
        let lines =
            text.lines().filter_map(|l| l.strip_prefix("-- ")?.strip_prefix(name)?.strip_prefix(": "));
        lines.map(|l| l.split_once('=').map(|(k, v)| (k.to_string(), v.to_string())).unwrap()).collect()
    };
    let mut planner = Planner::try_new(session(), Arc::new(SmallStages), "models").unwrap();
    for (name, folder) in directive("model") {
        planner.add_model(name, folder);
    }
    let source = Arc::new(Source::new(path.file_name().unwrap().to_str().unwrap(), text.as_str()));
    let mut out = String::new();
    let statements = match parse(&source, &directive("set")) {
        Ok(statements) => statements,
        Err(e) => return shown(&e),
    };
    for statement in &statements {
        writeln!(out, "## line {}: {}", statement.line(), statement.title()).unwrap();
        if let Err(e) = step(&mut planner, statement, &mut out).await {
            out.push_str(&shown(&e));
            break;
        }
    }
    out
}

/// An error must stand at the place that it shows.
fn shown(e: &PipelineError) -> String {
    assert!(e.column() <= e.source_line().chars().count() + 1, "{e}");
    assert!(e.is_input(), "{e}");
    format!("{e}\n")
}

async fn step(planner: &mut Planner, statement: &Statement, out: &mut String) -> Result<(), PipelineError> {
    let inputs = planner.inputs(statement)?;
    if !inputs.tables.is_empty() || !inputs.models.is_empty() {
        writeln!(out, "reads: tables {:?}, models {:?}", inputs.tables, inputs.models).unwrap();
    }
    if let StatementKind::Train(train) = &statement.kind {
        let options = serde_json::to_string(&train.options.to_map()).unwrap();
        let settings = serde_json::to_string(&train.settings.to_map()).unwrap();
        writeln!(out, "options: {options}, settings: {settings}").unwrap();
    }
    let planned = planner.plan(statement).await?;
    describe(&planned, out);
    planner.declare(statement, &planned).await
}

fn describe(planned: &Planned, out: &mut String) {
    match planned {
        Planned::Query(plan) => rows(out, "query", plan),
        Planned::CreateTable(table) if table.exists => writeln!(out, "{} exists", table.name).unwrap(),
        Planned::CreateTable(table) => {
            rows(out, &format!("create {} (replace: {})", table.name, table.or_replace), &table.plan);
            let metadata = table.plan.schema().metadata();
            writeln!(out, "metadata: {metadata:?}").unwrap();
        }
        Planned::CreateExternalTable(plan) => tree(out, "external table", plan),
        Planned::Train(train) => {
            let request = &train.request;
            writeln!(out, "train {} into {}", request.stage, request.folder.display()).unwrap();
            if let Some(per) = request.settings.get("per") {
                writeln!(out, "per {per}").unwrap();
            }
            tree(out, "plan", &train.plan);
        }
        Planned::ExportMaps { source: MapsSource::Rows(plan), target, fill } => {
            let filled = fill.map(|fill| format!(" filled with {fill}")).unwrap_or_default();
            tree(out, &format!("maps to {target}{filled} of"), plan)
        }
        Planned::ExportMaps { source: MapsSource::Model { name, folder }, target, .. } => {
            writeln!(out, "maps to {target} of model {name} in {}", folder.display()).unwrap();
        }
        Planned::Report { path } => writeln!(out, "report {path}").unwrap(),
        Planned::Set { name, value, .. } => writeln!(out, "set {name} to {value}").unwrap(),
        Planned::Explain(lines) => {
            for row in lines {
                writeln!(out, "{}:\n{}", row.plan_type, indented(&row.plan)).unwrap();
            }
        }
        Planned::Other(plan) => tree(out, "other", plan),
    }
}

fn rows(out: &mut String, what: &str, plan: &LogicalPlan) {
    tree(out, what, plan);
    let columns: Vec<_> =
        plan.schema().fields().iter().map(|f| format!("{}: {}", f.name(), f.data_type())).collect();
    writeln!(out, "columns: {}", columns.join(", ")).unwrap();
}

fn tree(out: &mut String, what: &str, plan: &LogicalPlan) {
    writeln!(out, "{what}:\n{}", indented(&plan.display_indent().to_string())).unwrap();
}

fn indented(text: &str) -> String {
    text.trim_end().lines().map(|l| format!("    {}", l.trim_end())).collect::<Vec<_>>().join("\n")
}

/// Lines that are only in one of the two, with what they have in common at both ends left out.
fn difference(known: &str, new: &str) -> String {
    let (known, new): (Vec<_>, Vec<_>) = (known.lines().collect(), new.lines().collect());
    let head = known.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = known[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let removed = known[head..known.len() - tail].iter().map(|l| format!("  -{l}"));
    let added = new[head..new.len() - tail].iter().map(|l| format!("  +{l}"));
    removed.chain(added).collect::<Vec<_>>().join("\n")
}
