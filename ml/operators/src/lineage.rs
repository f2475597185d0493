//! Through which models the rows of a plan go: those that its tables know of, and those that the plan itself applies.

use crate::{Result, StageCatalog, predict::PredictNode, train::Statistics};
use arrow::datatypes::Schema;
use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{Expr, LogicalPlan},
};
use std::{collections::BTreeSet, fs, path::Path};
use voxelflow_dataset::StagePlanner;
use voxelflow_stage::{Lineage, Seen};

/// What a model has seen, and those before it: by its name and its statistics.
pub(crate) fn of_model(name: &str, statistics: &Statistics) -> Lineage {
    let mut lineage = statistics.upstream.clone();
    let seen = Seen {
        subjects: statistics.subjects.iter().cloned().collect(),
        runs: statistics.runs.iter().cloned().collect(),
    };
    lineage.add(name, seen);
    lineage
}

/// The lineage of the rows of `plan`. A model that an earlier statement of a file is yet to train is left out: it is known
/// when its rows are there.
///
/// # Errors
/// Metadata of a table that cannot be read.
pub(crate) fn of_plan(plan: &LogicalPlan, catalog: &StageCatalog) -> Result<Lineage> {
    let functions = catalog.model_functions();
    let functions: BTreeSet<&str> = functions.iter().map(|function| function.name()).collect();
    let mut models: BTreeSet<String> = BTreeSet::new();
    let mut lineage = Lineage::default();
    let mut failed = None;
    let seen = plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                let own = match scan.source.get_logical_plan() {
                    Some(view) => of_plan(&view, catalog),
                    None => of_schema(&scan.source.schema()),
                };
                match own {
                    Ok(own) => lineage.extend(own),
                    Err(e) => failed = Some(e),
                }
            }
            LogicalPlan::Extension(extension) => {
                let predict = extension.node.as_any().downcast_ref::<PredictNode>();
                models.extend(predict.map(|node| node.model().to_owned()));
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::ScalarFunction(call) = part
                    && functions.contains(call.func.name())
                    && let Some(Expr::Literal(model, _)) = call.args.first()
                {
                    models.extend(model.try_as_str().flatten().map(str::to_owned));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    seen.map_err(|e| voxelflow_stage::Error::Data { what: "plan".into(), reason: e.to_string() })?;
    if let Some(e) = failed {
        return Err(e);
    }
    for model in models {
        if let Ok(found) = catalog.model(&model)
            && let Some(statistics) = read_statistics(&found.folder)
        {
            lineage.extend(of_model(name_of(&model), &statistics));
        }
    }
    Ok(lineage)
}

fn of_schema(schema: &Schema) -> Result<Lineage> {
    Ok(Lineage::of(schema)?)
}

/// The last part of a model's folder.
pub(crate) fn name_of(folder: &str) -> &str {
    folder.trim_end_matches('/').rsplit('/').next().unwrap_or(folder)
}

fn read_statistics(folder: &Path) -> Option<Statistics> {
    serde_json::from_slice(&fs::read(folder.join(Statistics::FILE)).ok()?).ok()
}
