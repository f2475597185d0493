//! `FROM clean(table, detrend => true, …)`: cleaning as a node of a logical plan.
//!
//! The node keeps rows and columns; it changes `series` and adds to the history of the table what was done.
//! Everything that can be wrong (options, repetition time, length of the series) is found when it is built.

use crate::clean_confounds::{RunCleaners, RunConfounds};
use crate::confound_options::ConfoundOptions;
use crate::{CleanExec, Error, Result, SessionStores, clean_batch::Cleaning};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::{
    common::{DFSchema, DFSchemaRef, DataFusionError, plan_err},
    logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_plan::ExecutionPlan,
};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};
use voxelflow_dataset::{OptionMap, StageError};
use voxelflow_signal::CleanSettings;
use voxelflow_stage::{
    KEY_COLUMNS, LENGTHS_METADATA_KEY, PARCEL_COLUMNS, PLACE_COLUMNS, Provenance, RunFiles, RunLengths,
    RunVolumes, SERIES_COLUMN, Segments, VOLUMES_METADATA_KEY, parse_options,
};

/// Name of the operator in the pipeline language.
pub const CLEAN: &str = "clean";

/// What becomes of series with NaN or infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotFinite {
    /// The job fails and names the first one.
    #[default]
    Error,
    /// The rows are left out.
    Drop,
    /// The series are set to zero.
    Zero,
}

/// Options of `clean`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CleanOptions {
    /// How series are cleaned.
    #[serde(flatten)]
    pub settings: CleanSettings,
    /// What becomes of series with NaN or infinity.
    pub not_finite: NotFinite,
    /// Which confounds of each run are removed.
    #[serde(flatten)]
    pub confounds: ConfoundOptions,
}

/// Cleaning as a node of a logical plan.
#[derive(Clone)]
pub struct CleanNode {
    input: LogicalPlan,
    options: CleanOptions,
    /// The options as JSON: what distinguishes two nodes over the same input.
    identity: String,
    cleaning: Cleaning,
    stores: SessionStores,
    schema: DFSchemaRef,
}

impl CleanNode {
    /// # Errors
    /// An input without series, or options that do not fit it.
    pub fn try_new(input: LogicalPlan, options: CleanOptions, stores: SessionStores) -> Result<Self> {
        Self::with_known(input, options, stores, None)
    }

    /// `known` are runs whose confounds were looked at before: they are not read again for the same runs.
    fn with_known(
        input: LogicalPlan,
        options: CleanOptions,
        stores: SessionStores,
        known: Option<&RunConfounds>,
    ) -> Result<Self> {
        let columns = input.schema().as_arrow();
        let (time_points, lengths) = time_points(columns)?;
        if let Some(segments) = Segments::of(columns)? {
            let runs = segments.runs.join(", ");
            return Err(Error::Concatenate {
                reason: format!(
                    "the series are of several runs ({runs}), and a filter over the seams would mix them: clean the \
                     runs first, concatenate(clean(…), …)"
                ),
            });
        }
        let provenance = Provenance::of(columns)?;
        let t_r = provenance.as_ref().and_then(Provenance::t_r);
        let cleaning = match options.confounds.settings()? {
            None => {
                must_be_without_gaps(columns, &options.settings)?;
                let all = lengths.as_ref().map_or_else(|| vec![time_points], RunLengths::distinct);
                Cleaning::alike(&options.settings, &all, t_r)?
            }
            Some(confounds) => {
                let runs = RunFiles::of(columns)?;
                must_have_confounds(&runs)?;
                let same = |known: &&RunConfounds| {
                    known.runs == runs && known.time_points == time_points && known.lengths == lengths
                };
                let plan = match known.filter(same) {
                    Some(known) => known.clone(),
                    None => {
                        let (clean, lengths) = (options.settings.clone(), lengths.clone());
                        RunConfounds::try_new(runs, confounds, clean, (time_points, lengths), t_r, &stores)?
                    }
                };
                Cleaning::ByRun(Arc::new(RunCleaners::new(plan)))
            }
        };
        let mut metadata = columns.metadata().clone();
        if let Some(mut provenance) = provenance {
            provenance.push_history(cleaning.describe());
            metadata.extend(provenance.to_metadata()?);
        }
        if let Cleaning::ByRun(cleaners) = &cleaning {
            let runs: Vec<RunFiles> =
                cleaners.plan.runs.iter().cloned().map(RunFiles::after_cleaning).collect();
            metadata.extend(RunFiles::to_metadata(&runs)?);
            metadata.remove(VOLUMES_METADATA_KEY);
            if let Some(volumes) = RunVolumes::of_runs(cleaners.plan.kept_of_runs()) {
                metadata.extend(volumes.to_metadata()?);
            }
        }
        metadata.remove(LENGTHS_METADATA_KEY);
        if let Some(lengths) = cleaning.lengths(lengths.as_ref()) {
            metadata.extend(lengths.to_metadata()?);
        }
        let schema = cleaned_schema(input.schema(), &cleaning, metadata)?;
        let identity = serde_json::to_string(&options)
            .map_err(|e| voxelflow_stage::Error::Data { what: CLEAN.into(), reason: e.to_string() })?;
        Ok(Self { input, options, identity, cleaning, stores, schema: Arc::new(schema) })
    }

    /// What is cleaned.
    pub(crate) fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// The options it was made with.
    pub fn options(&self) -> &CleanOptions {
        &self.options
    }

    /// What it does, as it is written into the grid's history.
    pub fn describe(&self) -> String {
        self.cleaning.describe()
    }
}

/// Confounds are removed once, all of them together: one after the other, the second would bring back of the first.
fn must_have_confounds(runs: &[RunFiles]) -> Result<()> {
    let reason = match runs.first() {
        None => {
            "the table does not know them: clean a table STORED AS BIDS or HCP, or one with OPTIONS (confounds 'file'), or series that were written from one \
             uncleaned"
        }
        Some(_) if runs.iter().any(|run| run.cleaned) => {
            "some were removed from these series before: name all of them in one clean"
        }
        Some(_) => return Ok(()),
    };
    Err(Error::Confounds { run: "this table".into(), keys: Box::default(), reason: reason.into() })
}

/// A filter takes volumes that follow each other for neighbours in time.
fn must_be_without_gaps(schema: &Schema, settings: &CleanSettings) -> Result<()> {
    let setting = match (settings.high_pass, settings.low_pass) {
        (Some(_), _) => "high_pass",
        (None, Some(_)) => "low_pass",
        (None, None) => return Ok(()),
    };
    let volumes = RunVolumes::of(schema)?;
    let Some((keys, _)) = volumes.iter().flat_map(RunVolumes::iter).find(|(_, kept)| kept.has_gaps()) else {
        return Ok(());
    };
    let run = RunFiles { keys: keys.clone(), ..RunFiles::default() }.label();
    let reason = format!(
        "volumes between others were dropped from the series of {run}, which a filter would take for neighbours: give it \
         to the clean that drops them"
    );
    Err(voxelflow_signal::Error::Setting { setting, reason }.into())
}

/// Points of the series, or of the longest, and how long each run is, where they are of several lengths.
fn time_points(schema: &Schema) -> Result<(usize, Option<RunLengths>)> {
    let wrong = |found: String| Error::Column {
        operator: CLEAN,
        column: SERIES_COLUMN,
        needed: "FixedSizeList<Float32 or Float64, T>",
        found,
        columns: schema.fields().iter().map(|f| f.name().clone()).collect(),
    };
    let Ok(field) = schema.field_with_name(SERIES_COLUMN) else {
        return Err(wrong("which the table lacks".to_owned()));
    };
    match field.data_type() {
        DataType::FixedSizeList(item, points) if is_cleanable(item.data_type()) && *points > 0 => {
            Ok((usize::try_from(*points).map_err(|e| wrong(e.to_string()))?, None))
        }
        DataType::List(item) if is_cleanable(item.data_type()) => {
            let lengths = RunLengths::of(schema)?.ok_or_else(|| {
                wrong(
                    "which holds series of several lengths, and the table does not say how long each run is"
                        .into(),
                )
            })?;
            Ok((lengths.longest(), Some(lengths)))
        }
        other => Err(wrong(format!("which is {other}"))),
    }
}

/// Series as they were read, or as they were computed of volumes.
pub(crate) fn is_cleanable(number: &DataType) -> bool {
    matches!(number, DataType::Float32 | DataType::Float64)
}

/// The columns of the input, with the series as cleaning leaves them.
fn cleaned_schema(
    schema: &DFSchema,
    cleaning: &Cleaning,
    metadata: HashMap<String, String>,
) -> Result<DFSchema> {
    let cleaned = |field: &Arc<Field>| match field.name() == SERIES_COLUMN {
        true => Arc::new(field.as_ref().clone().with_data_type(cleaning.series_type(field.data_type()))),
        false => Arc::clone(field),
    };
    let fields = schema.iter().map(|(qualifier, field)| (qualifier.cloned(), cleaned(field))).collect();
    DFSchema::new_with_metadata(fields, metadata)
        .and_then(|new| new.with_functional_dependencies(schema.functional_dependencies().clone()))
        .map_err(|e| voxelflow_stage::Error::Data { what: CLEAN.into(), reason: e.to_string() }.into())
}

/// Plans `clean(input, options…)`; confounds are looked for in `stores`.
///
/// # Errors
/// An unknown option or a value that does not fit the data, with the option's name.
pub fn plan_clean(
    input: LogicalPlan,
    options: &OptionMap,
    stores: &SessionStores,
) -> Result<LogicalPlan, StageError> {
    let options = parse_options::<CleanOptions>(CLEAN, options).map_err(Error::from)?;
    let node = Arc::new(CleanNode::try_new(input, options, stores.clone())?);
    Ok(LogicalPlan::Extension(Extension { node }))
}

/// The physical plan of `node` over its planned input.
///
/// # Errors
/// Not exactly one input, or one that is not what the node was made for.
pub fn plan_clean_exec(
    node: &CleanNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let [input] = inputs else {
        return plan_err!("{CLEAN} has one input, not {}", inputs.len());
    };
    let metadata = node.schema.metadata().clone();
    let cleaning = node.cleaning.clone();
    Ok(Arc::new(CleanExec::try_new(Arc::clone(input), cleaning, node.options.not_finite, metadata)?))
}

impl UserDefinedLogicalNodeCore for CleanNode {
    fn name(&self) -> &str {
        "Clean"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    /// A row is cleaned by itself, so rows may be filtered before, unless by their series.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::from([SERIES_COLUMN.to_owned()])
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clean: {}", self.cleaning.describe().trim_start_matches("clean: "))
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self, DataFusionError> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => {
                let known = match &self.cleaning {
                    Cleaning::ByRun(cleaners) => Some(&cleaners.plan),
                    Cleaning::Alike(_) => None,
                };
                Ok(Self::with_known(input, self.options.clone(), self.stores.clone(), known)?)
            }
            _ => plan_err!("{CLEAN} has one input"),
        }
    }

    /// Beside the columns asked for: the series, and the keys that an error names.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let mut columns: BTreeSet<usize> = output_columns.iter().copied().collect();
        for (index, field) in self.schema.fields().iter().enumerate() {
            let name = field.name().as_str();
            let keys = [&KEY_COLUMNS[..], &PLACE_COLUMNS, &PARCEL_COLUMNS];
            if name == SERIES_COLUMN || keys.iter().any(|keys| keys.contains(&name)) {
                columns.insert(index);
            }
        }
        Some(vec![columns.into_iter().collect()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.options.not_finite != NotFinite::Drop
    }
}

impl fmt::Debug for CleanNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CleanNode").field("input", &self.input).field("options", &self.options).finish()
    }
}

impl PartialEq for CleanNode {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity && self.input == other.input
    }
}

impl Eq for CleanNode {}

impl Hash for CleanNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for CleanNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.identity, &self.input).partial_cmp(&(&other.identity, &other.input))
    }
}
