//! Statements → plans: names are looked up, types checked, nothing runs.

use crate::{
    diagnose::{KnownNames, diagnose, locate, refused, tokens_of},
    error::{PipelineError, Result, did_you_mean, listed},
    explain::{ExplainRow, explain},
    model::{DeclaredFunction, ModelEntry, Rewriter, declared_name},
    model_relation::DeclaredOperators,
    relation::{OperatorRelations, RelationNames},
    source::Span,
    statement::{ExportMaps, NamedOptions, Relation, Statement, StatementKind, Train},
};
use datafusion::{
    common::TableReference,
    datasource::MemTable,
    error::DataFusionError,
    logical_expr::{DdlStatement, LogicalPlan, Statement as PlanStatement},
    prelude::SessionContext,
    sql::{
        parser::Statement as SqlStatement,
        sqlparser::ast::{Query, Statement as AstStatement},
    },
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};
use voxelflow_dataset::{
    StagePlanner, TrainRequest,
    dialect::{self, Refusal},
};

/// What a statement comes to. Running it is the driver's.
#[derive(Clone, Debug)]
pub enum Planned {
    /// Rows to show.
    Query(LogicalPlan),
    /// A table to write.
    CreateTable(PlannedTable),
    /// A table over files: `LogicalPlan::Ddl(CreateExternalTable)`.
    CreateExternalTable(LogicalPlan),
    /// A model to train.
    Train(Box<PlannedTrain>),
    /// Maps to write.
    ExportMaps {
        /// Of what.
        source: MapsSource,
        /// A path, in which `{column}` stands for a key column's value.
        target: String,
        /// What voxels without a value get; NaN where none is given.
        fill: Option<f32>,
    },
    /// A report to write.
    Report {
        /// The file.
        path: String,
    },
    /// A setting of the session.
    Set {
        /// Its full name.
        name: String,
        /// Its value.
        value: String,
        /// The plan that sets it.
        plan: LogicalPlan,
    },
    /// What `EXPLAIN` answers.
    Explain(Vec<ExplainRow>),
    /// Any other statement of DataFusion: views, `DROP`, `INSERT`, `COPY`.
    Other(LogicalPlan),
}

/// `CREATE TABLE name AS …`.
#[derive(Clone, Debug)]
pub struct PlannedTable {
    /// The table's name.
    pub name: TableReference,
    /// Its rows.
    pub plan: LogicalPlan,
    /// Written as `OR REPLACE`.
    pub or_replace: bool,
    /// Written as `IF NOT EXISTS`, and it exists: nothing is to be done.
    pub exists: bool,
}

/// `TRAIN MODEL …`.
#[derive(Clone, Debug)]
pub struct PlannedTrain {
    /// What is to be trained, on which rows, into which folder.
    pub request: TrainRequest,
    /// Trains, writes the folder and yields the history.
    pub plan: LogicalPlan,
    /// Where the model is published afterwards, a URL: the setting `publish`.
    pub publish: Option<String>,
}

/// What maps are drawn of.
#[derive(Clone, Debug)]
pub enum MapsSource {
    /// Rows of a table or query.
    Rows(LogicalPlan),
    /// A model's own maps.
    Model {
        /// Its name.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
}

/// The table of what statements leave out, fill or find odd. Nobody else may have its name.
pub const LEDGER: &str = "ledger";

/// Turns statements into plans.
#[derive(Debug)]
pub struct Planner {
    pub(crate) context: PlannerContext,
    model_root: PathBuf,
}

/// What statements are planned against.
pub(crate) struct PlannerContext {
    pub(crate) session: SessionContext,
    pub(crate) stages: Arc<dyn StagePlanner>,
    pub(crate) models: BTreeMap<String, ModelEntry>,
    declared: DeclaredOperators,
}

impl std::fmt::Debug for PlannerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlannerContext").field("stages", &self.stages).field("models", &self.models).finish()
    }
}

impl Planner {
    /// Plans against the tables of `session`; models that `TRAIN` makes go into `model_root/name`.
    ///
    /// Registers the stages' operators and functions with the session and has it keep places in the text.
    ///
    /// # Errors
    /// A session that refuses them.
    pub fn try_new(
        session: SessionContext,
        stages: Arc<dyn StagePlanner>,
        model_root: impl Into<PathBuf>,
    ) -> Result<Self, DataFusionError> {
        let declared = DeclaredOperators::default();
        let relations = OperatorRelations::new(Arc::clone(&stages), declared.clone());
        session.register_relation_planner(Arc::new(relations))?;
        for function in stages.model_functions().into_iter().chain(stages.series_functions()) {
            session.register_udf(function.as_ref().clone());
        }
        session.state_ref().write().config_mut().options_mut().sql_parser.collect_spans = true;
        let context = PlannerContext { session, stages, models: BTreeMap::new(), declared };
        Ok(Self { context, model_root: model_root.into() })
    }

    /// Makes a trained model known: `encode(name, …)` reads `folder`.
    pub fn add_model(&mut self, name: impl Into<String>, folder: impl Into<PathBuf>) {
        self.context.models.insert(name.into(), ModelEntry::Trained(folder.into()));
    }

    /// The folder that a model of that name is trained into.
    pub fn model_folder(&self, name: &str) -> PathBuf {
        self.model_root.join(name)
    }

    /// The folder of a trained model.
    pub fn trained_model(&self, name: &str) -> Option<&Path> {
        match self.context.models.get(name) {
            Some(ModelEntry::Trained(folder)) => Some(folder),
            _ => None,
        }
    }

    /// The plan of a statement, its names and types checked.
    ///
    /// # Errors
    /// Unknown tables, columns, functions, models, stages, operators and options, and types that do not fit.
    pub async fn plan(&self, statement: &Statement) -> Result<Planned> {
        let StatementKind::Explain(explained) = &statement.kind else {
            return self.plan_kind(statement, &statement.kind).await;
        };
        let plan = match self.plan_kind(statement, &explained.statement).await? {
            Planned::Train(train) => train.plan,
            Planned::CreateTable(table) => table.plan,
            Planned::ExportMaps { source: MapsSource::Rows(plan), .. } => plan,
            Planned::ExportMaps { source: MapsSource::Model { folder, .. }, target, .. } => {
                let text = format!("ExportMaps: model={}, target={target}", folder.display());
                return Ok(Planned::Explain(vec![ExplainRow::new("logical_plan", text)]));
            }
            Planned::Report { path } => {
                let row = ExplainRow::new("logical_plan", format!("Report: path={path}"));
                return Ok(Planned::Explain(vec![row]));
            }
            other => return Ok(other),
        };
        let rows = explain(&self.context.session, &plan, explained.verbose).await;
        rows.map(Planned::Explain).map_err(|e| self.diagnose(statement, e))
    }

    async fn plan_kind(&self, statement: &Statement, kind: &StatementKind) -> Result<Planned> {
        match kind {
            StatementKind::Train(train) => self.plan_train(statement, train).await,
            StatementKind::ExportMaps(export) => self.plan_export(statement, export).await,
            StatementKind::Report(report) => Ok(Planned::Report { path: report.path.text.clone() }),
            StatementKind::Sql(sql) => self.plan_sql(statement, sql).await,
            StatementKind::Explain(explained) => {
                let message = "EXPLAIN of EXPLAIN";
                let title = explained.statement.as_ref();
                Err(PipelineError::new(&statement.source, statement.span, message)
                    .help(format!("explain the statement itself: {title:?}")))
            }
        }
    }

    async fn plan_train(&self, statement: &Statement, train: &Train) -> Result<Planned> {
        let known = self.context.stages.stages();
        let stage = &train.stage;
        if !known.contains(&stage.text) {
            let message = format!("unknown stage `{}`{}", stage.text, did_you_mean(&stage.text, &known));
            return Err(PipelineError::new(&statement.source, stage.span, message).help(listed(
                "the stages",
                "there are no stages",
                &known,
            )));
        }
        let rows = self.plan_relation(statement, &train.train).await?;
        let validation = match &train.validation {
            Some(relation) => Some(self.plan_relation(statement, relation).await?),
            None => None,
        };
        let features = match &train.features {
            Some(relation) => Some(self.plan_relation(statement, relation).await?),
            None => None,
        };
        let mut settings = train.settings.to_map();
        if let Some(per) = &train.per {
            if rows.schema().field_with_unqualified_name(&per.text).is_err() {
                let columns: Vec<String> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
                let message = format!("unknown column `{}`{}", per.text, did_you_mean(&per.text, &columns));
                return Err(PipelineError::new(&statement.source, per.span, message).help(listed(
                    "the columns",
                    "there are no columns",
                    &columns,
                )));
            }
            settings.insert("per".into(), Value::String(per.text.clone()));
        }
        let publish = match settings.remove("publish") {
            None => None,
            Some(Value::String(location)) if location.contains("://") => Some(location),
            Some(other) => {
                let message = format!("`publish` is the location of a model in a store, not {other}");
                let place = option_place(train, "publish").unwrap_or(stage.span);
                return Err(PipelineError::new(&statement.source, place, message)
                    .help("as in publish => 's3://lab/models/dca'; the model also lies under --out"));
            }
        };
        let request = TrainRequest {
            model: train.model.text.clone(),
            folder: self.model_folder(&train.model.text),
            stage: stage.text.clone(),
            options: train.options.to_map(),
            settings,
            train: rows,
            validation,
            features,
        };
        let plan = self.context.stages.plan_train(request.clone()).map_err(|e| {
            let place = e.option.as_deref().and_then(|o| option_place(train, o)).unwrap_or(stage.span);
            refused(statement, Some(place), &e).caused_by(DataFusionError::External(Box::new(e)))
        })?;
        self.check_types(statement, &plan)?;
        self.check_model_table(statement, train, &request)?;
        Ok(Planned::Train(Box::new(PlannedTrain { request, plan, publish })))
    }

    /// A model that is a table too takes no table's name.
    fn check_model_table(&self, statement: &Statement, train: &Train, request: &TrainRequest) -> Result<()> {
        let name = &train.model;
        let trained_before = self.context.models.contains_key(&name.text);
        if trained_before || self.context.stages.model_table(request).is_none() {
            return Ok(());
        }
        let exists = self.context.session.table_exist(name.text.as_str());
        if !exists.map_err(|e| self.diagnose(statement, e))? {
            return Ok(());
        }
        let message = format!("there is a table `{}` already", name.text);
        Err(PipelineError::new(&statement.source, name.span, message).help(
            "what the model knows of its targets becomes a table of the model's name; choose another name",
        ))
    }

    async fn plan_export(&self, statement: &Statement, export: &ExportMaps) -> Result<Planned> {
        let target = export.target.text.clone();
        let fill = fill(statement, &export.options)?;
        if let Some(name) = self.context.model_source(export)? {
            let folder =
                self.trained_model(&name).map_or_else(|| self.model_folder(&name), Path::to_path_buf);
            return Ok(Planned::ExportMaps { source: MapsSource::Model { name, folder }, target, fill });
        }
        let plan = self.plan_relation(statement, &export.source).await?;
        self.check_types(statement, &plan)?;
        Ok(Planned::ExportMaps { source: MapsSource::Rows(plan), target, fill })
    }

    async fn plan_relation(&self, statement: &Statement, relation: &Relation) -> Result<LogicalPlan> {
        let query: Query = relation.query.as_ref().clone();
        let sql = SqlStatement::Statement(Box::new(AstStatement::Query(Box::new(query))));
        self.logical_plan(statement, sql).await
    }

    async fn plan_sql(&self, statement: &Statement, sql: &SqlStatement) -> Result<Planned> {
        self.context.check_file_format(statement, sql)?;
        let plan = self.logical_plan(statement, sql.clone()).await?;
        self.keep_ledger(statement, &plan)?;
        let planned = match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table)) => {
                let exists = self.context.session.table_exist(table.name.clone());
                let exists = exists.map_err(|e| self.diagnose(statement, e))?;
                if exists && !table.if_not_exists && !table.or_replace {
                    let place = locate(statement, table.name.table()).unwrap_or(statement.span);
                    let message = format!("table `{}` exists already", table.name);
                    return Err(PipelineError::new(&statement.source, place, message)
                        .help("choose another name, or write CREATE OR REPLACE TABLE"));
                }
                let plan = Arc::unwrap_or_clone(table.input);
                let exists = exists && table.if_not_exists;
                Planned::CreateTable(PlannedTable {
                    name: table.name,
                    plan,
                    or_replace: table.or_replace,
                    exists,
                })
            }
            plan @ LogicalPlan::Ddl(DdlStatement::CreateExternalTable(_)) => {
                Planned::CreateExternalTable(plan)
            }
            LogicalPlan::Statement(PlanStatement::SetVariable(ref set)) => {
                let (name, value) = (set.variable.clone(), set.value.clone());
                self.context.check_setting(statement, &name)?;
                Planned::Set { name, value, plan }
            }
            plan @ (LogicalPlan::Ddl(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)) => Planned::Other(plan),
            plan => Planned::Query(plan),
        };
        if let Planned::Query(plan) | Planned::CreateTable(PlannedTable { plan, .. }) = &planned {
            // What tells of a plan is none itself.
            let told = match plan {
                LogicalPlan::Explain(explain) => explain.plan.as_ref(),
                LogicalPlan::Analyze(analyze) => analyze.input.as_ref(),
                plan => plan,
            };
            self.check_types(statement, told)?;
        }
        Ok(planned)
    }

    /// The ledger is written by the statements themselves.
    fn keep_ledger(&self, statement: &Statement, plan: &LogicalPlan) -> Result<()> {
        let name = match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table)) => &table.name,
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(table)) => &table.name,
            LogicalPlan::Ddl(DdlStatement::CreateView(view)) => &view.name,
            LogicalPlan::Ddl(DdlStatement::DropTable(table)) => &table.name,
            LogicalPlan::Dml(change) => &change.table_name,
            _ => return Ok(()),
        };
        if name.table() != LEDGER || name.schema().is_some_and(|schema| schema != "public") {
            return Ok(());
        }
        let place = locate(statement, LEDGER).unwrap_or(statement.span);
        let message = format!("`{LEDGER}` is the table of what statements leave out, fill or find odd");
        Err(PipelineError::new(&statement.source, place, message)
            .help("it can only be read; choose another name for your own table"))
    }

    async fn logical_plan(&self, statement: &Statement, mut sql: SqlStatement) -> Result<LogicalPlan> {
        self.context.admit(statement, &mut sql)?;
        let mut rewriter = self.context.rewriter(statement);
        rewriter.rewrite_sql(&mut sql)?;
        for (function, model) in &rewriter.declared {
            if let Some(ModelEntry::Declared(request)) = self.context.models.get(model) {
                let stages = Arc::clone(&self.context.stages);
                self.context.session.register_udf(DeclaredFunction::udf(
                    function,
                    Arc::clone(request),
                    stages,
                ));
            }
        }
        for (operator, model) in &rewriter.declared_operators {
            if let Some(ModelEntry::Declared(request)) = self.context.models.get(model) {
                self.context.declared.insert(declared_name(operator, model), operator, Arc::clone(request));
            }
        }
        let planned = self.context.session.state().statement_to_plan(sql).await;
        planned.map_err(|e| self.diagnose(statement, e))
    }

    /// Runs the analyzer, which finds operands whose types do not fit; its plan is not kept.
    fn check_types(&self, statement: &Statement, plan: &LogicalPlan) -> Result<()> {
        let state = self.context.session.state();
        let checked = state.analyzer().execute_and_check(plan.clone(), state.config_options(), |_, _| {});
        checked.map(drop).map_err(|e| self.diagnose(statement, e))
    }

    fn diagnose(&self, statement: &Statement, error: DataFusionError) -> PipelineError {
        diagnose(statement, &self.context.known_names(), error)
    }

    /// Plans what a statement would run to its last step, as every run does first: types that do not fit, casts that do
    /// not exist, constants that cannot be computed and tables that take no rows are found without reading a row.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub async fn check_plan(&self, statement: &Statement, planned: &Planned) -> Result<()> {
        let plan = match planned {
            Planned::CreateTable(table) => &table.plan,
            Planned::Train(train) => &train.plan,
            Planned::ExportMaps { source: MapsSource::Rows(rows), .. } => rows,
            Planned::Query(plan) | Planned::Other(plan @ LogicalPlan::Dml(_)) => plan,
            Planned::Other(LogicalPlan::Copy(copy)) => copy.input.as_ref(),
            Planned::Other(LogicalPlan::Ddl(DdlStatement::CreateView(view))) => &view.input,
            _ => return Ok(()),
        };
        let planned = self.context.session.state().create_physical_plan(plan).await;
        planned.map(drop).map_err(|e| self.diagnose(statement, e))
    }

    /// Makes later statements see what this one would make, without running it: a table without rows but
    /// with its columns, a model without weights. Settings, views and external tables (of which only
    /// headers are read) are made in earnest. For checking a file and for plans of what did not run.
    ///
    /// # Errors
    /// An external table that cannot be opened; a name that is taken.
    pub async fn declare(&mut self, statement: &Statement, planned: &Planned) -> Result<()> {
        let session = self.context.session.clone();
        let made = match planned {
            Planned::CreateTable(table) if !table.exists => declare_table(&session, table),
            Planned::Train(train) => {
                let entry = ModelEntry::Declared(Arc::new(train.request.clone()));
                self.context.models.insert(train.request.model.clone(), entry);
                declare_model_table(&session, self.context.stages.as_ref(), &train.request)
            }
            Planned::Set { plan, .. }
            | Planned::CreateExternalTable(plan)
            | Planned::Other(plan @ (LogicalPlan::Ddl(_) | LogicalPlan::Statement(_))) => {
                session.execute_logical_plan(plan.clone()).await.map(drop)
            }
            _ => Ok(()),
        };
        made.map_err(|e| self.diagnose(statement, e))
    }
}

fn declare_table(session: &SessionContext, table: &PlannedTable) -> Result<(), DataFusionError> {
    let schema = Arc::clone(table.plan.schema().inner());
    let empty = MemTable::try_new(schema, vec![Vec::new()])?;
    if table.or_replace {
        session.deregister_table(table.name.clone())?;
    }
    session.register_table(table.name.clone(), Arc::new(empty)).map(drop)
}

/// The table of a model that has one, without rows.
fn declare_model_table(
    session: &SessionContext,
    stages: &dyn StagePlanner,
    request: &TrainRequest,
) -> Result<(), DataFusionError> {
    let Some(schema) = stages.model_table(request) else { return Ok(()) };
    let empty = MemTable::try_new(schema, vec![Vec::new()])?;
    session.deregister_table(request.model.as_str())?;
    session.register_table(request.model.as_str(), Arc::new(empty)).map(drop)
}

/// Where an option or setting of that name is written.
/// The options of `EXPORT MAPS`: `fill` is all that there is.
fn fill(statement: &Statement, options: &NamedOptions) -> Result<Option<f32>> {
    const FILL: &str = "fill";
    if let Some(unknown) = options.0.iter().find(|option| option.name != FILL) {
        let known = did_you_mean(&unknown.name, &[FILL.to_owned()]);
        let message = format!("unknown option `{}` of EXPORT MAPS{known}", unknown.name);
        return Err(PipelineError::new(&statement.source, unknown.span, message)
            .help("the options are: fill, the value of voxels without one (NaN if it is not given)"));
    }
    let Some(option) = options.get(FILL) else { return Ok(None) };
    let number = match &option.value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if text.eq_ignore_ascii_case("nan") => Some(f64::NAN),
        _ => None,
    };
    match number.map(|number| number as f32).filter(|number| !number.is_infinite()) {
        Some(number) => Ok(Some(number)),
        None => {
            let message = format!("`{FILL}` is a number that float32 can hold, not {}", option.value);
            let help = "as in fill => 0, or fill => 'NaN', which is the default";
            Err(PipelineError::new(&statement.source, option.value_span, message).help(help))
        }
    }
}

fn option_place(train: &Train, option: &str) -> Option<Span> {
    let given = train.options.get(option).or_else(|| train.settings.get(option)).map(|o| o.span);
    given.or_else(|| train.per.as_ref().filter(|_| option == "per").map(|p| p.span))
}

impl PlannerContext {
    pub(crate) fn rewriter<'a>(&'a self, statement: &'a Statement) -> Rewriter<'a> {
        let functions = self.stages.model_functions().iter().map(|f| f.name().to_string()).collect();
        Rewriter {
            source: &statement.source,
            relations: self.relation_names(),
            functions,
            models: &self.models,
            read: Default::default(),
            read_folders: Default::default(),
            declared: Default::default(),
            declared_operators: Default::default(),
        }
    }

    /// Refuses what of SQL is not understood.
    fn admit(&self, statement: &Statement, sql: &mut SqlStatement) -> Result<()> {
        let tokens = tokens_of(statement)?;
        let state = self.session.state();
        let is_scalar = |name: &str| state.scalar_functions().contains_key(name);
        dialect::admit(sql, &tokens, &is_scalar).map_err(|Refusal { message, help, span }| {
            let place = statement.source.span(span).unwrap_or(statement.span);
            PipelineError::new(&statement.source, place, message).help(help)
        })
    }

    fn relation_names(&self) -> RelationNames {
        let mut functions: Vec<String> = self.session.state().table_functions().keys().cloned().collect();
        functions.sort();
        let (operators, of_models) = (self.stages.table_operators(), self.stages.model_operators());
        RelationNames { operators, of_models, functions }
    }

    /// The model that maps are exported of, if the name is not a table's.
    pub(crate) fn model_source(&self, export: &ExportMaps) -> Result<Option<String>> {
        let Some(name) = &export.source.name else { return Ok(None) };
        let table = self.session.table_exist(name.text.as_str()).unwrap_or(false);
        Ok((!table && self.models.contains_key(&name.text)).then(|| name.text.clone()))
    }

    fn check_file_format(&self, statement: &Statement, sql: &SqlStatement) -> Result<()> {
        let SqlStatement::CreateExternalTable(table) = sql else { return Ok(()) };
        let state = self.session.state();
        let mut known: Vec<String> = state.table_factories().keys().cloned().collect();
        known.sort();
        if known.iter().any(|k| k.eq_ignore_ascii_case(&table.file_type)) {
            return Ok(());
        }
        let place = locate(statement, &table.file_type).unwrap_or(statement.span);
        let near = did_you_mean(&table.file_type, &known);
        Err(PipelineError::new(
            &statement.source,
            place,
            format!("unknown file format `{}`{near}", table.file_type),
        )
        .help(listed("the formats", "there are no formats", &known)))
    }

    fn check_setting(&self, statement: &Statement, name: &str) -> Result<()> {
        let mut known: Vec<String> =
            self.session.state().config_options().entries().into_iter().map(|e| e.key).collect();
        known.sort();
        if known.iter().any(|k| k == name) {
            return Ok(());
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        let place = locate(statement, last).unwrap_or(statement.span);
        let message = format!("unknown setting `{name}`{}", did_you_mean(name, &known));
        Err(PipelineError::new(&statement.source, place, message)
            .help("SHOW ALL lists the settings; those of TRAIN are given by its WITH (…)"))
    }

    fn known_names(&self) -> KnownNames {
        let state = self.session.state();
        let catalog = &state.config_options().catalog;
        let schema =
            self.session.catalog(&catalog.default_catalog).and_then(|c| c.schema(&catalog.default_schema));
        let mut tables = schema.map(|s| s.table_names()).unwrap_or_default();
        tables.sort();
        let mut functions: Vec<String> = state
            .scalar_functions()
            .keys()
            .chain(state.aggregate_functions().keys())
            .chain(state.window_functions().keys())
            .cloned()
            .collect();
        functions.sort();
        KnownNames {
            tables,
            functions,
            operators: self.stages.table_operators(),
            models: self.models.keys().cloned().collect(),
        }
    }
}
