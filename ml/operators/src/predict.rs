//! `FROM predict(enc, features)`: the series that a model of encoding predicts from the features of runs.
//!
//! ```text
//!   features ─► one partition ─► PredictExec: all runs, read whole
//!                                   targets.parquet ─┐
//!                                   coefficients ────┴─► a block of targets ─► rows of each run ─► the next block
//! ```
//! A row a run and target, with the keys of both; features count by their names. Memory holds the features of all runs and
//! one block, however many targets there are.

mod blocks;
mod exec;
mod models;

use crate::{
    Error, Result,
    design::RUN_COLUMNS,
    features::{FEATURES, FeatureTable},
    series_column::series_type,
};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::{
    common::{DFSchema, DFSchemaRef, TableReference, plan_err},
    error::Result as PlanResult,
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_plan::ExecutionPlan,
};
use exec::Predict;
use models::{Known, same_features};
pub(crate) use models::{plan_declared_predict, plan_predict};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    collections::HashSet,
    fmt,
    hash::{Hash, Hasher},
    path::Path,
    sync::Arc,
};
use voxelflow_dataset::{node_codec::WireSchema, nodes::UnaryExec};
use voxelflow_stage::{KEY_COLUMNS, LENGTHS_METADATA_KEY, Provenance, SERIES_COLUMN};

/// Name of the operator in the pipeline language.
pub const PREDICT: &str = "predict";

/// Options of `predict`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PredictOptions {
    /// The model's folder; in the language its first argument.
    pub model: String,
    /// Samples of every run. Not needed for a design, which says of each how long it is, and for runs as long as those of
    /// the training.
    pub time_points: Option<usize>,
}

/// Prediction as a node of a logical plan.
#[derive(Clone, Debug)]
pub struct PredictNode {
    input: LogicalPlan,
    model: String,
    /// Of the model's files: what is made of other ones is another plan.
    version: String,
    /// Of every run; none where they are as long as the runs of the design, of which each has its own length.
    time_points: Option<usize>,
    /// Columns of the model's table that say which target a row is of, and their metadata.
    targets: SchemaRef,
    schema: DFSchemaRef,
}

pub(crate) fn refused(reason: impl Into<String>) -> Error {
    voxelflow_stage::Error::Data { what: PREDICT.into(), reason: reason.into() }.into()
}

/// What tables of features cannot be used for, under the operator's name.
fn named(error: Error) -> Error {
    match error {
        Error::Stage(voxelflow_stage::Error::Data { what, reason }) if what == FEATURES => refused(reason),
        Error::Column { operator: FEATURES, column, needed, found, columns } => {
            Error::Column { operator: PREDICT, column, needed, found, columns }
        }
        other => other,
    }
}

/// A model of a stage that explains no series.
pub(crate) fn no_predictions(stage: &str) -> Error {
    refused(format!("a model of {stage} predicts no series: take one that was trained with FEATURES"))
}

impl PredictNode {
    /// # Errors
    /// A table that is none of features, or of other features than the model's; a length that is not known.
    fn try_new(input: LogicalPlan, known: Known<'_>, time_points: Option<usize>) -> Result<Self> {
        let columns = input.schema().as_arrow();
        let table = FeatureTable::find(columns).map_err(named)?;
        if let (Some(wanted), Some(found)) = (known.features, table.names(columns)) {
            same_features(wanted, &found)?;
        }
        let option = |reason: String| -> Error {
            let (what, option) = (PREDICT.into(), "time_points".into());
            voxelflow_stage::Error::OptionValue { what, option, reason }.into()
        };
        let ragged = table.is_ragged();
        let length = match (table.time_points(), time_points) {
            (Some(own), Some(given)) if own != given => {
                return Err(option(format!("is {own}, as the design has it, not {given}: leave it out")));
            }
            (own, given) => own.or(given).or(known.run_samples.filter(|_| !ragged)),
        };
        if length.is_none() && !ragged {
            return Err(option(
                "is not known of this model: give it, the samples of every run, as in time_points => 121"
                    .into(),
            ));
        }
        if let Some(length) = length.filter(|length| *length == 0 || i32::try_from(*length).is_err()) {
            return Err(option(format!("is the samples of every run, not {length}")));
        }
        let is_key = |field: &&FieldRef| KEY_COLUMNS.contains(&field.name().as_str());
        let fields: Vec<FieldRef> = known.targets.fields().iter().filter(is_key).cloned().collect();
        let targets = Schema::new_with_metadata(fields, known.targets.metadata().clone());
        Self::over(input, known.model.to_owned(), known.version, length, Arc::new(targets))
    }

    fn over(
        input: LogicalPlan,
        model: String,
        version: String,
        time_points: Option<usize>,
        targets: SchemaRef,
    ) -> Result<Self> {
        let name = Path::new(&model).file_name().map_or(model.as_str().into(), |name| name.to_string_lossy());
        let mut metadata = targets.metadata().clone();
        metadata.extend(FeatureTable::find(input.schema().as_arrow()).map_err(named)?.metadata()?);
        if time_points.is_some() {
            metadata.remove(LENGTHS_METADATA_KEY);
        }
        if let Some(mut provenance) = Provenance::of(&targets)? {
            provenance.push_history(format!("predict: model {name}"));
            metadata.extend(provenance.to_metadata()?);
        }
        let mut fields: Vec<(Option<TableReference>, FieldRef)> = Vec::new();
        for (at, name) in KEY_COLUMNS.iter().enumerate() {
            let of_run = input.schema().iter().find(|(_, field)| at < RUN_COLUMNS && field.name() == name);
            match (targets.field_with_name(name), of_run) {
                (Ok(field), _) => fields.push((None, Arc::new(field.clone()))),
                (Err(_), Some((qualifier, field))) => {
                    fields.push((qualifier.cloned(), Arc::new(Field::new(*name, text_type(field), true))));
                }
                (Err(_), None) => {}
            }
        }
        let series = time_points.map_or_else(|| DataType::new_list(DataType::Float32, true), series_type);
        fields.push((None, Arc::new(Field::new(SERIES_COLUMN, series, true))));
        let schema = DFSchema::new_with_metadata(fields, metadata).map_err(|e| refused(e.message()))?;
        Ok(Self { input, model, version, time_points, targets, schema: Arc::new(schema) })
    }
}

fn points_text(time_points: Option<usize>) -> String {
    time_points.map_or_else(|| "the design's".into(), |points| points.to_string())
}

/// Keys are texts, whatever the features have them in.
fn text_type(field: &Field) -> DataType {
    if field.data_type().is_string() { field.data_type().clone() } else { DataType::Utf8 }
}

/// The physical plan of `node` over its planned input.
///
/// # Errors
/// An input that is not its own.
pub(crate) fn plan_predict_exec(
    node: &PredictNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let [input] = inputs else { return plan_err!("{PREDICT} has one input, not {}", inputs.len()) };
    let schema = WireSchema(Arc::new(node.schema.as_arrow().clone()));
    let operator = Predict { model: node.model.clone(), time_points: node.time_points, schema };
    Ok(Arc::new(UnaryExec::try_new(operator, Arc::clone(input))?))
}

impl UserDefinedLogicalNodeCore for PredictNode {
    fn name(&self) -> &str {
        "Predict"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    /// A run is predicted by itself, so runs may be left out before, where their keys are the same texts there.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let same = |field: &FieldRef| {
            let own = |name: &str| name == field.name() && self.targets.field_with_name(name).is_err();
            let there = self.input.schema().field_with_unqualified_name(field.name());
            KEY_COLUMNS[..RUN_COLUMNS].iter().any(|name| own(name))
                && there.is_ok_and(|input| input.data_type() == field.data_type())
        };
        self.schema.fields().iter().filter(|field| !same(field)).map(|field| field.name().clone()).collect()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Predict: model={}, time_points={}", self.model, points_text(self.time_points))
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> PlanResult<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => {
                let (model, version) = (self.model.clone(), self.version.clone());
                Ok(Self::over(input, model, version, self.time_points, Arc::clone(&self.targets))?)
            }
            _ => plan_err!("{PREDICT} has one input"),
        }
    }
    /// Every feature counts, whatever is asked for.
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![(0..self.input.schema().fields().len()).collect()])
    }
}

impl PredictNode {
    /// The model's folder.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    fn identity(&self) -> (&str, &str, Option<usize>) {
        (&self.model, &self.version, self.time_points)
    }
}

impl PartialEq for PredictNode {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity() && self.input == other.input
    }
}

impl Eq for PredictNode {}

impl Hash for PredictNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for PredictNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.identity(), &self.input).partial_cmp(&(other.identity(), &other.input))
    }
}
