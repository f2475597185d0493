//! Running a pipeline file, statement by statement, into a folder.

use super::{
    FileRecord, Outcome, OutcomeNote, PipelineFile, RunRecord, StatementRecord,
    check::{Place, Refusal, check, in_statement, rows_of_maps},
    file_identity::file_identity,
    ledger, report_page,
    unwritten::is_parquet_folder,
};
use crate::{
    Error, Result, Session,
    flags::ClusterFlags,
    progress::{ProgressStyleKind, TrainingProgress},
    rows::print_rows,
};
use datafusion::{
    common::TableReference,
    logical_expr::{DdlStatement, LogicalPlan, Statement as PlanStatement, dml::CopyTo},
    prelude::ParquetReadOptions,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use voxelflow_dataset::{Ledger, MODEL_TABLE, TrainingHistory, WriteOptions, build_id, remove_left_behind};
use voxelflow_operators::TrainObserver;
use voxelflow_pipeline::{
    LEDGER, MapsSource, Planned, PlannedTable, PlannedTrain, Planner, Statement, explain_batch, statement_key,
};
use voxelflow_tables::{ExportOptions, NiftiTable, SeriesTable, check_export, export_maps};

/// Rows of a query that are shown.
const ROWS_SHOWN: usize = 40;

/// How to run a file.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Folder of everything that is written.
    pub out: PathBuf,
    /// Run unchanged statements too.
    pub fresh: bool,
    /// Keep the results of unchanged statements that another build of the program made.
    pub keep_results: bool,
    /// Where progress goes.
    pub progress: ProgressStyleKind,
    /// Memory of the session in bytes.
    pub memory_limit: usize,
    /// Where it runs.
    pub cluster: ClusterFlags,
}

/// Checks the whole file, then runs it. Gives what became of each statement.
///
/// # Errors
/// The first statement that is wrong (before anything has run) or that fails.
pub async fn run(file: &PipelineFile, options: &RunOptions) -> Result<Vec<Outcome>> {
    let session = || Session::builder().out(&options.out).memory_limit(options.memory_limit);
    let place = if options.cluster.cluster.is_some() { Place::Elsewhere } else { Place::Here };
    if let Err(refusal) = check(file, &session().build()?, &options.out, place).await {
        // The refusal is what to tell; a folder that cannot be written hides behind it.
        if let Err(e) = note_refusal(&options.out, &refusal) {
            log::warn!("{e}: the ledger does not have what was refused");
        }
        return Err(refusal.error);
    }
    prepare_folder(&options.out)?;
    let session = session().place(&options.cluster).start().await?;
    let mut runner = Runner::try_new(file, session, options)?;
    for statement in &file.statements {
        let outcome = runner.statement(statement).await;
        runner.done(outcome.map_err(|e| placed(file, statement, e))?)?;
    }
    Ok(runner.outcomes)
}

/// A run that is refused is in the ledger too: whoever looks at many folders finds it there.
fn note_refusal(out: &Path, refusal: &Refusal) -> Result<()> {
    let Some(entry) = refusal.error.refused_run() else { return Ok(()) };
    prepare_folder(out)?;
    ledger::write_refusal(out, &refusal.statement, entry)
}

/// A pipeline error shows its place by itself.
fn placed(file: &PipelineFile, statement: &Statement, error: Error) -> Error {
    match error {
        Error::Pipeline(_) | Error::Statement { .. } => error,
        other => in_statement(file, statement, other),
    }
}

/// Makes the folder and tries to write in it: better now than after the training.
fn prepare_folder(out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).map_err(|e| Error::io(out, e))?;
    let probe = out.join(".voxelflow-probe");
    std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe)).map_err(|e| Error::io(out, e))
}

/// State of a run between two statements.
pub(super) struct Runner<'a> {
    pub(super) file: &'a PipelineFile,
    pub(super) session: Session,
    planner: Planner,
    pub(super) options: &'a RunOptions,
    pub(super) record: RunRecord,
    /// The build of this program.
    build: &'static str,
    /// Identity of each table, view and model made so far.
    keys: BTreeMap<String, String>,
    /// The settings that the file has changed so far.
    settings: BTreeMap<String, String>,
    /// Models trained in this file, in order: name and plan.
    pub(super) trained: Vec<PlannedTrain>,
    pub(super) outcomes: Vec<Outcome>,
}

/// Why a statement need not say more.
type Done = (OutcomeNote, StatementRecord);

impl<'a> Runner<'a> {
    fn try_new(file: &'a PipelineFile, session: Session, options: &'a RunOptions) -> Result<Self> {
        let planner = Planner::try_new(
            session.context().clone(),
            session.planner().clone(),
            options.out.join("models"),
        )?;
        let record = if options.fresh { RunRecord::default() } else { RunRecord::read(&options.out) };
        ledger::forget_others(&options.out, &record)?;
        ledger::register(session.context(), &[])?;
        Ok(Self {
            file,
            session,
            planner,
            options,
            record,
            build: build_id()?,
            keys: BTreeMap::new(),
            settings: BTreeMap::new(),
            trained: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    /// What a statement has made of itself is seen by those after it.
    fn done(&mut self, outcome: Outcome) -> Result<()> {
        self.outcomes.push(outcome);
        let files = self.outcomes.iter().filter_map(|o| o.record.ledger_file.as_ref());
        let files: Vec<PathBuf> = files.map(|file| self.options.out.join(&file.path)).collect();
        ledger::register(self.session.context(), &files)
    }

    async fn statement(&mut self, statement: &Statement) -> Result<Outcome> {
        let started = Instant::now();
        // Nothing that ran before, such as the queries of a report, is this statement's.
        drop(self.session.take_ledger());
        let planned = self.planner.plan(statement).await?;
        let key = self.key(statement, &planned).await?;
        let (note, mut record) = match planned {
            Planned::CreateTable(table) => self.create_table(&table, &key).await?,
            Planned::Train(train) => self.train(*train, &key).await?,
            Planned::ExportMaps { source, target, fill } => {
                let fill = fill.unwrap_or(f32::NAN);
                let options = ExportOptions { fill, ..ExportOptions::default() };
                self.export(source, &target, &options, &key).await?
            }
            Planned::Report { path } => self.report(&path, &key).await?,
            Planned::CreateExternalTable(plan) => {
                let name = match &plan {
                    LogicalPlan::Ddl(DdlStatement::CreateExternalTable(command)) => {
                        Some(command.name.clone())
                    }
                    _ => None,
                };
                let (note, record) = self.execute(plan).await?;
                let mut found = self.session.take_ledger();
                if let Some(name) = name {
                    self.keys.insert(name.to_string(), key.clone());
                    found.extend(self.told_by(&name).await?);
                    (note, self.tell(&table_target(name.table()), record, &found)?)
                } else {
                    (note, record)
                }
            }
            Planned::Query(plan) => {
                let rows = print_rows(&self.session.dataset(plan), ROWS_SHOWN).await?;
                let record = StatementRecord { rows: Some(rows), ..Default::default() };
                (
                    OutcomeNote::Ran,
                    self.tell(&ledger::name_of(statement), record, &self.session.take_ledger())?,
                )
            }
            Planned::Explain(rows) => {
                let batch = explain_batch(&rows).map_err(datafusion::error::DataFusionError::from)?;
                print_rows(&self.session.from_batches(&[batch], 1)?, usize::MAX).await?;
                (OutcomeNote::Ran, StatementRecord::default())
            }
            Planned::Other(LogicalPlan::Copy(copy)) if is_parquet_folder(&copy) => {
                self.copy(&copy, &key).await?
            }
            Planned::Other(LogicalPlan::Copy(copy)) => {
                self.session.copy(&copy).await?;
                let record = StatementRecord::default();
                (
                    OutcomeNote::Ran,
                    self.tell(&ledger::name_of(statement), record, &self.session.take_ledger())?,
                )
            }
            Planned::Set { plan, .. } | Planned::Other(plan) => {
                self.take_note(&plan, &key);
                let (note, record) = self.execute(plan).await?;
                (note, self.tell(&ledger::name_of(statement), record, &self.session.take_ledger())?)
            }
        };
        if note.ran() {
            record.seconds = started.elapsed().as_secs_f64();
        }
        Ok(Outcome { title: statement.title(), note, record })
    }

    /// Identity of a statement: its text, and the identities of what it reads.
    async fn key(&self, statement: &Statement, planned: &Planned) -> Result<String> {
        let inputs = self.planner.inputs(statement)?;
        let stores = self.session.store_options();
        let mut identities = BTreeMap::new();
        for name in &inputs.tables {
            // What no statement made is a file or a table of the session: it counts by what lies there.
            let known = match self.keys.get(name) {
                Some(key) => key.clone(),
                None if name == LEDGER => self.ledger_identity(),
                None => file_identity(name, &stores).await,
            };
            identities.insert(name.clone(), known);
        }
        identities.extend(inputs.models.iter().map(|m| {
            let target = model_target(m);
            (target.clone(), self.keys.get(&target).cloned().unwrap_or_default())
        }));
        for folder in &inputs.model_folders {
            identities.insert(format!("file {folder}"), file_identity(folder, &stores).await);
        }
        if let Planned::CreateExternalTable(LogicalPlan::Ddl(DdlStatement::CreateExternalTable(command))) =
            planned
        {
            for text in command.locations.iter().chain(command.options.values()) {
                identities.insert(format!("file {text}"), file_identity(text, &stores).await);
            }
        }
        let settings = self.settings.iter().map(|(name, value)| (format!("setting {name}"), value.clone()));
        identities.extend(settings);
        Ok(statement_key(statement, &identities))
    }

    /// Later statements read what `plan`, of the statement with this key, makes known to the session: a view is what its
    /// text says of what lies behind it.
    fn take_note(&mut self, plan: &LogicalPlan, key: &str) {
        match plan {
            LogicalPlan::Ddl(DdlStatement::CreateView(view)) => {
                self.keys.insert(view.name.to_string(), key.to_owned());
            }
            LogicalPlan::Ddl(DdlStatement::DropView(dropped)) => {
                drop(self.keys.remove(&dropped.name.to_string()))
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(dropped)) => {
                drop(self.keys.remove(&dropped.name.to_string()))
            }
            LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
                self.settings.insert(set.variable.clone(), set.value.clone());
            }
            LogicalPlan::Statement(PlanStatement::ResetVariable(reset)) => {
                self.settings.remove(&reset.variable);
            }
            _ => {}
        }
    }

    /// The ledger changes when a statement before does.
    fn ledger_identity(&self) -> String {
        let before = self.keys.iter().map(|(target, key)| format!("{target} {key}\n"));
        before.collect()
    }

    /// What a table has for the ledger before any of its rows are read.
    async fn told_by(&self, name: &TableReference) -> Result<Ledger> {
        let table = self.session.context().table_provider(name.clone()).await?;
        let images = table.downcast_ref::<NiftiTable>().map(NiftiTable::ledger);
        let series = table.downcast_ref::<SeriesTable>().map(SeriesTable::ledger);
        Ok(images.or(series).cloned().unwrap_or_default())
    }

    /// Writes the ledger of a statement in the place of the one that it had.
    fn tell(&self, target: &str, record: StatementRecord, found: &Ledger) -> Result<StatementRecord> {
        let ledger_file = ledger::write(&self.options.out, target, found)?;
        Ok(StatementRecord { ledger: found.totals().into_iter().collect(), ledger_file, ..record })
    }

    async fn execute(&self, plan: LogicalPlan) -> Result<Done> {
        let frame = self.session.context().execute_logical_plan(plan).await?;
        self.session.dataset(frame.into_unoptimized_plan()).collect().await?;
        Ok((OutcomeNote::Ran, StatementRecord::default()))
    }

    /// Remembers a statement that ran, with what it had for the ledger.
    fn remember(&mut self, target: String, record: StatementRecord, found: &Ledger) -> Result<Done> {
        let replaced = self
            .record
            .statements
            .get(&target)
            .filter(|old| old.key == record.key && old.build != self.build);
        let note = match replaced {
            Some(old) => OutcomeNote::RanAgain { build: build_name(&old.build) },
            None => OutcomeNote::Ran,
        };
        let record = StatementRecord { build: self.build.to_owned(), ..self.tell(&target, record, found)? };
        self.record.statements.insert(target, record.clone());
        self.record.write(&self.options.out)?;
        Ok((note, record))
    }

    /// The last run of `target`, if it was of these inputs. What another build has made is made again, for that build may
    /// have been wrong, unless the user keeps it.
    fn unchanged(&self, target: &str, key: &str) -> Option<Done> {
        let record = self.record.unchanged(target, key, &self.options.out)?;
        let note = match (record.build == self.build, self.options.keep_results) {
            (true, _) => OutcomeNote::Unchanged,
            (false, true) => OutcomeNote::Kept { build: build_name(&record.build) },
            (false, false) => return None,
        };
        Some((note, record.clone()))
    }

    async fn create_table(&mut self, table: &PlannedTable, key: &str) -> Result<Done> {
        if table.exists {
            return Ok((OutcomeNote::Unchanged, StatementRecord::default()));
        }
        let name = table.name.table();
        let (target, folder) = (table_target(name), self.options.out.join("tables").join(name));
        let rows_folder = folder.join(&key[..16]);
        let done = match self.unchanged(&target, key) {
            Some(done) => done,
            None => {
                let location = rows_folder.to_string_lossy();
                let dataset = self.session.dataset(table.plan.clone());
                let options = WriteOptions { take_over: !self.options.fresh, ..WriteOptions::default() };
                let written = dataset.write_parquet_with(&location, &options.overwrite()).await?;
                remove_others(&folder, &rows_folder)?;
                let record = StatementRecord {
                    key: key.to_owned(),
                    rows: Some(written.rows as u64),
                    taken_over: written.taken_over as u64,
                    files: vec![FileRecord::of(&rows_folder, &self.options.out)?],
                    ..Default::default()
                };
                self.remember(target, record, &written.ledger)?
            }
        };
        self.register_table(&table.name, &rows_folder).await?;
        self.keys.insert(table.name.to_string(), key.to_owned());
        Ok(done)
    }

    /// Writes a folder of Parquet files, whole, instead of what is there; not again while it holds what was written.
    async fn copy(&mut self, copy: &CopyTo, key: &str) -> Result<Done> {
        let (location, stores) = (&copy.output_url, self.session.store_options());
        let target = format!("copy {location}");
        let there = file_identity(location, &stores).await;
        if let Some(done) = self.unchanged(&target, key).filter(|(_, record)| record.written == there) {
            return Ok(done);
        }
        let rows = self.session.dataset(copy.input.as_ref().clone());
        let written = rows.write_parquet_with(location, &WriteOptions::default().overwrite()).await?;
        let record = StatementRecord {
            key: key.to_owned(),
            rows: Some(written.rows as u64),
            written: file_identity(location, &stores).await,
            ..Default::default()
        };
        self.remember(target, record, &written.ledger)
    }

    async fn register_table(&self, name: &TableReference, folder: &Path) -> Result<()> {
        let context = self.session.context();
        context.deregister_table(name.clone())?;
        let options = ParquetReadOptions::default().skip_metadata(false);
        let location = folder.to_string_lossy();
        Ok(context.register_parquet(name.clone(), location.as_ref(), options).await?)
    }

    async fn train(&mut self, train: PlannedTrain, key: &str) -> Result<Done> {
        let (name, folder) = (train.request.model.clone(), train.request.folder.clone());
        let target = model_target(&name);
        let done = match self.unchanged(&target, key) {
            Some(done) => done,
            None => {
                if self.options.fresh {
                    remove_checkpoints(&folder)?;
                }
                self.observe(&name);
                let batches = self.session.dataset(train.plan.clone()).collect().await?;
                let history = TrainingHistory::from(batches);
                let of = |name| history.column(name).first().copied();
                let ranks = of("ranks_at_end").zip(of("ranks")).filter(|(end, asked)| end < asked);
                let record = StatementRecord {
                    key: key.to_owned(),
                    rows: of("rows").map(|rows| rows as u64),
                    loss: of("initial_loss").map(|before| [before, history.last_loss()]),
                    ranks: ranks.map(|(end, asked)| [end as u64, asked as u64]),
                    files: vec![FileRecord::of(&folder, &self.options.out)?],
                    ..Default::default()
                };
                let found = self.session.take_ledger();
                self.remember(target.clone(), record, &found)?
            }
        };
        if let Some(location) = &train.publish
            && (done.0.ran() || !self.session.is_published(&folder, location).await?)
        {
            self.session.publish_folder(&folder, location).await?;
        }
        let table = folder.join(MODEL_TABLE);
        if table.is_file() {
            let reference = TableReference::bare(name.clone());
            self.register_table(&reference, &table).await?;
            self.keys.insert(reference.to_string(), key.to_owned());
        }
        self.planner.add_model(name.clone(), folder.clone());
        self.session.register_model(&name, folder);
        self.keys.insert(target, key.to_owned());
        self.trained.push(train);
        Ok(done)
    }

    /// Has the next training report to the user.
    fn observe(&self, model: &str) {
        let progress = Arc::new(TrainingProgress::new(self.options.progress, model));
        let state = self.session.context().state_ref();
        state.write().config_mut().set_extension(Arc::new(TrainObserver::new(progress)));
    }

    async fn export(
        &mut self,
        source: MapsSource,
        target: &str,
        options: &ExportOptions,
        key: &str,
    ) -> Result<Done> {
        let rows = self.session.dataset(rows_of_maps(&source, target)?.clone());
        let path = self.options.out.join(target);
        let plan = check_export(rows.schema()?.as_ref(), &path.to_string_lossy())?;
        // Several statements may share a pattern such as maps/{column}.nii.gz; their columns tell them apart.
        let columns: Vec<&str> = plan.columns.iter().map(|c| c.name.as_str()).collect();
        let record_target = format!("maps {target} of {}", columns.join(", "));
        if let Some(done) = self.unchanged(&record_target, key) {
            return Ok(done);
        }
        let files = export_maps(&plan, rows.stream().await?, options).await?;
        let files: Result<Vec<FileRecord>> =
            files.iter().map(|f| FileRecord::of(f, &self.options.out)).collect();
        let record = StatementRecord { key: key.to_owned(), files: files?, ..Default::default() };
        let found = self.session.take_ledger();
        self.remember(record_target, record, &found)
    }

    async fn report(&mut self, path: &str, key: &str) -> Result<Done> {
        let file = self.options.out.join(path);
        let target = format!("report {path}");
        // The page shows what ran before it: it is as new as the newest of that.
        let all_unchanged = self.outcomes.iter().all(|o| !o.note.ran() || o.record.key.is_empty());
        if let Some(done) = self.unchanged(&target, key).filter(|_| all_unchanged) {
            return Ok(done);
        }
        report_page::build(self).await?.write(&file)?;
        let files = vec![FileRecord::of(&file, &self.options.out)?];
        let record = StatementRecord { key: key.to_owned(), files, ..Default::default() };
        // What it has read to show it is not left out by it.
        self.remember(target, record, &Ledger::default())
    }
}

/// A build as people see it: the first digits of its hash.
fn build_name(build: &str) -> String {
    build.get(..12).unwrap_or(build).to_owned()
}

fn model_target(name: &str) -> String {
    format!("model {name}")
}

fn table_target(name: &str) -> String {
    format!("table {name}")
}

/// A training that was stopped goes on from its checkpoints, which lie beside the model's folder; a fresh one must not.
fn remove_checkpoints(folder: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return Ok(()) };
    let prefix = format!(".{}.checkpoints-", name.to_string_lossy());
    let Ok(entries) = std::fs::read_dir(parent) else { return Ok(()) };
    for entry in entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(&prefix)) {
        std::fs::remove_dir_all(entry.path()).map_err(|e| Error::io(&entry.path(), e))?;
    }
    Ok(())
}

/// Rows of the same table under an older key are of no use any more, nor is what was begun of them.
fn remove_others(folder: &Path, kept: &Path) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))?;
    let old = |path: &PathBuf| path != kept && path.is_dir() && !is_hidden(path);
    for entry in entries.flatten().map(|e| e.path()).filter(old) {
        std::fs::remove_dir_all(&entry).map_err(|e| Error::io(&entry, e))?;
    }
    remove_left_behind(folder).map_err(|e| Error::io(folder, e))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}
