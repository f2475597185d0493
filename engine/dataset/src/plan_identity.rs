//! What a plan is, by content: equal identities give equal rows, in any process of this build.
//!
//! ```text
//!   build ──────────────────────────────────────┐
//!   nodes, expressions, schemas and metadata ───┼──► BLAKE3 ──► 32 hexadecimal digits
//!   what scans read: files, rows, their account ┤
//!   models that functions name: their files ────┘
//! ```
//!
//! Files count by path, size and time of change (entity tag in object stores), rows in memory by their content.
//! A plan that cannot be known by content (a stream, `random()`, a closure that was registered with the session)
//! is known within its session only: it is *bound* to it.

use crate::{Engine, build_id, error::Result};
use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef, error::ArrowError, ipc::writer::StreamWriter},
    catalog::TableProvider,
    common::{
        ScalarValue,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    datasource::{DefaultTableSource, MemTable, ViewTable, listing::ListingTable},
    error::{DataFusionError, Result as PlanResult},
    logical_expr::{
        Expr, LogicalPlan, SimpleAggregateUDF, SimpleScalarUDF, SimpleWindowUDF, TableScan, Volatility,
        WindowFunctionDefinition,
    },
};
use futures::TryStreamExt;
use object_store::ObjectMeta;
use std::{
    collections::{BTreeMap, HashSet},
    fmt::Debug,
    fs,
    hash::{Hash, Hasher},
    path::Path,
    sync::Arc,
    time::UNIX_EPOCH,
};

/// How tables of one kind tell what they read, for [`Dataset::persist`](crate::Dataset::persist): a text that is
/// equal in every process while the rows are. Crates with tables of their own submit one with `inventory`.
pub struct SourceIdentity {
    /// The table's text; none for a table of another kind, or one that cannot tell.
    pub of: fn(&dyn TableProvider) -> Option<String>,
}

inventory::collect!(SourceIdentity);

/// What a plan is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanIdentity {
    /// 32 hexadecimal digits.
    pub key: String,
    /// The key means something in this session only.
    pub bound: bool,
}

impl PlanIdentity {
    /// Looks at the plan and at what it reads; reads no rows of files.
    ///
    /// # Errors
    /// Files that cannot be listed.
    pub(crate) async fn of(engine: &Engine, plan: &LogicalPlan) -> Result<Self> {
        let models = engine.planner().model_functions().iter().map(|f| f.name().to_owned()).collect();
        let mut survey = Survey { hash: Blake::new(build_id()?), models, tables: Vec::new(), bound: false };
        if let Some(zone) = &engine.context().state().config_options().execution.time_zone {
            survey.hash.text(zone);
        }
        survey.plan(plan)?;
        let Survey { mut hash, tables, mut bound, .. } = survey;
        for table in tables {
            let (read, tied) = read_by(engine, &table).await?;
            hash.text(&read);
            bound |= tied;
        }
        if bound {
            hash.text(&engine.context().session_id());
        }
        Ok(Self { key: hash.key(), bound })
    }
}

/// What is found on a walk over a plan.
struct Survey {
    hash: Blake,
    /// Names of functions whose first argument is the folder of a model.
    models: HashSet<String>,
    tables: Vec<Arc<dyn TableProvider>>,
    bound: bool,
}

impl Survey {
    fn plan(&mut self, plan: &LogicalPlan) -> PlanResult<()> {
        plan.hash(&mut self.hash);
        // A node's hash leaves out what only its text says, and the other way round.
        self.hash.text(&plan.display_indent_schema().to_string());
        plan.apply_with_subqueries(|node| {
            self.hash.debug(&node.schema().metadata().iter().collect::<BTreeMap<_, _>>());
            node.apply_expressions(|e| e.apply(|e| self.expression(e)))?;
            if let LogicalPlan::TableScan(scan) = node {
                self.scan(scan)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    fn scan(&mut self, scan: &TableScan) -> PlanResult<()> {
        let metadata = scan.source.schema();
        self.hash.debug(&metadata.metadata().iter().collect::<BTreeMap<_, _>>());
        let Some(source) = scan.source.downcast_ref::<DefaultTableSource>() else {
            self.hash.debug(&Arc::as_ptr(&scan.source).cast::<()>());
            self.bound = true;
            return Ok(());
        };
        match source.table_provider.downcast_ref::<ViewTable>() {
            Some(view) => self.plan(view.logical_plan()),
            None => {
                self.tables.push(Arc::clone(&source.table_provider));
                Ok(())
            }
        }
    }

    fn expression(&mut self, expression: &Expr) -> PlanResult<TreeNodeRecursion> {
        match expression {
            Expr::ScalarFunction(call) if self.models.contains(call.func.name()) => {
                for folder in call.args.iter().filter_map(text_of) {
                    self.hash.text(&files_of(Path::new(folder)));
                }
            }
            Expr::ScalarFunction(call) => {
                self.bound |= call.func.signature().volatility != Volatility::Immutable
                    || call.func.inner().is::<SimpleScalarUDF>();
            }
            Expr::AggregateFunction(call) => {
                self.bound |= call.func.signature().volatility == Volatility::Volatile
                    || call.func.inner().is::<SimpleAggregateUDF>();
            }
            Expr::WindowFunction(call) => {
                self.bound |= match &call.fun {
                    WindowFunctionDefinition::AggregateUDF(f) => f.inner().is::<SimpleAggregateUDF>(),
                    WindowFunctionDefinition::WindowUDF(f) => f.inner().is::<SimpleWindowUDF>(),
                };
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

fn text_of(argument: &Expr) -> Option<&str> {
    match argument {
        Expr::Literal(ScalarValue::Utf8(text) | ScalarValue::Utf8View(text), _) => text.as_deref(),
        Expr::Literal(ScalarValue::LargeUtf8(text), _) => text.as_deref(),
        Expr::Alias(alias) => text_of(&alias.expr),
        _ => None,
    }
}

/// What a table reads, and whether that is bound to this session.
async fn read_by(engine: &Engine, table: &Arc<dyn TableProvider>) -> Result<(String, bool)> {
    if let Some(files) = table.downcast_ref::<ListingTable>() {
        return listed(engine, files).await;
    }
    if let Some(rows) = table.downcast_ref::<MemTable>() {
        return Ok((in_memory(rows).await?, false));
    }
    Ok(match inventory::iter::<SourceIdentity>().find_map(|kind| (kind.of)(table.as_ref())) {
        Some(text) => (text, false),
        None => (format!("{:p}", Arc::as_ptr(table).cast::<()>()), true),
    })
}

/// The files of a table; one of persisted rows counts by the key of their plan, wherever they lie.
async fn listed(engine: &Engine, table: &ListingTable) -> Result<(String, bool)> {
    let state = engine.context().state();
    let (mut texts, mut bound) = (vec![format!("{:?}", table.options().format)], false);
    for url in table.table_paths() {
        if let Some(identity) = engine.persisted().identity_at(url.as_str()) {
            bound |= identity.bound;
            texts.push(identity.key);
            continue;
        }
        let store = engine.context().runtime_env().object_store(url)?;
        let files = url.list_all_files(&state, store.as_ref(), &table.options().file_extension).await?;
        let mut files: Vec<String> = files
            .map_ok(|file| format!("{} {}", file.location, version(&file, url.scheme() == "file")))
            .try_collect()
            .await?;
        files.sort();
        texts.push(url.to_string());
        texts.append(&mut files);
    }
    Ok((texts.join("\n"), bound))
}

/// A text that changes when the file does. (The entity tag of a local file has its inode's number, which not
/// every machine that shares a file system sees alike.)
pub(crate) fn version(file: &ObjectMeta, local: bool) -> String {
    match &file.e_tag {
        Some(tag) if !local => format!("{} {tag}", file.size),
        _ => format!("{} {}", file.size, file.last_modified.to_rfc3339()),
    }
}

async fn in_memory(table: &MemTable) -> Result<String> {
    let mut partitions = Vec::with_capacity(table.batches.len());
    for partition in &table.batches {
        partitions.push(partition.read().await.clone());
    }
    let schema = table.schema();
    let hashed = tokio::task::spawn_blocking(move || content_of(&schema, &partitions)).await;
    let hash = hashed.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?;
    Ok(hash.map_err(DataFusionError::from)?)
}

/// The hash of rows, and of the partitions and batches that they lie in.
fn content_of(schema: &SchemaRef, partitions: &[Vec<RecordBatch>]) -> Result<String, ArrowError> {
    let mut hasher = blake3::Hasher::new();
    for partition in partitions {
        let mut writer = StreamWriter::try_new(&mut hasher, schema)?;
        for batch in partition {
            writer.write(batch)?;
        }
        writer.finish()?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Names, sizes and times of the files of a model.
fn files_of(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(format!("{} {} {}", entry.file_name().display(), metadata.len(), changed.as_nanos()))
    });
    let mut files: Vec<String> = files.collect();
    files.sort();
    files.insert(0, folder.display().to_string());
    files.join("\n")
}

/// Takes in what `Hash` gives, so that a plan's hash is as long as it must be to tell all plans apart.
struct Blake(blake3::Hasher);

impl Blake {
    fn new(build: &str) -> Self {
        let mut hash = Self(blake3::Hasher::new_derive_key("voxelflow plan identity v1"));
        hash.text(build);
        hash
    }

    /// Lengths keep two texts from running into one another.
    fn text(&mut self, text: &str) {
        self.write_usize(text.len());
        self.write(text.as_bytes());
    }

    fn debug(&mut self, value: &impl Debug) {
        self.text(&format!("{value:?}"));
    }

    fn key(&self) -> String {
        self.0.finalize().to_hex()[..32].to_owned()
    }
}

impl Hasher for Blake {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}
