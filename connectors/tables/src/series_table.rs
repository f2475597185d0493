//! Tables of series that lie on no grid of voxels: `CREATE EXTERNAL TABLE … STORED AS GIFTI | CIFTI | MGH | NPY`, and
//! what BIDS and HCP tables of surfaces and grayordinates come to.

use crate::beside_runs::BesideRuns;
use crate::image_files::{Wanted, find_files};
use crate::run_keys::lengths;
use crate::series_columns::schema;
use crate::series_exec::{SeriesExec, SeriesRows};
use crate::series_file::{SeriesFile, origin};
use crate::volume_options::whole_path;
use crate::{Error, Result, SeriesFormat, SeriesOptions, Stores, series_smoothing};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::{collections::HashMap, fmt::Write, sync::Arc};
use voxelflow_dataset::Ledger;
use voxelflow_stage::{Options, RunFiles};

/// Files as rows, one for each vertex, grayordinate or row of an array: the keys of the run, where the row lies, and
/// `series`; one partition a file, in the file's order. The schema's metadata carry a
/// [`SeriesOrigin`](voxelflow_stage::SeriesOrigin) and, where runs are of several lengths, so that series are lists of several
/// lengths, the [`RunLengths`](voxelflow_stage::RunLengths).
///
/// | format | columns between `space` and `series` |
/// |---|---|
/// | GIFTI, MGH | `structure` (`CORTEX_LEFT`), `vertex` |
/// | CIFTI | `structure`, `grayordinate`, `vertex` (on surfaces), `i`, `j`, `k` (in the volume) |
/// | NPY | `row` |
#[derive(Debug)]
pub struct SeriesTable {
    source: Arc<SeriesSource>,
    runs: Vec<RunFiles>,
    ledger: Ledger,
}

/// What a table and its plans share.
#[derive(Debug)]
pub(crate) struct SeriesSource {
    /// Of one format; there is one at least.
    pub files: Vec<SeriesFile>,
    pub options: SeriesOptions,
    pub schema: SchemaRef,
    /// Whether series are of 64 bits.
    pub double: bool,
    pub stores: Stores,
}

impl SeriesSource {
    /// Nothing without files; `metadata` are the schema's.
    pub fn new(
        files: Vec<SeriesFile>,
        options: SeriesOptions,
        metadata: HashMap<String, String>,
        stores: Stores,
    ) -> Option<Self> {
        let first = files.first()?;
        let one_length = files.iter().all(|file| file.points == first.points);
        let double = files.iter().any(|file| file.double);
        let schema = schema(first.format, one_length.then_some(first.points), double, metadata);
        Some(Self { files, options, schema, double, stores })
    }

    pub fn format(&self) -> SeriesFormat {
        self.files.first().map_or(SeriesFormat::Npy, |file| file.format)
    }
}

impl SeriesTable {
    /// What the data-quality ledger has of the table before its rows are read: runs that were left out.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The same table with a ledger.
    pub(crate) fn with_ledger(self, ledger: Ledger) -> Self {
        Self { ledger, ..self }
    }

    /// Opens the files at `locations`: files, folders or globs.
    ///
    /// # Errors
    /// A location without files; an unknown option; a file that cannot be read; series of different repetition times or
    /// structures; two lengths of one run. Each names the files.
    pub fn try_new<S: AsRef<str>>(
        format: SeriesFormat,
        locations: &[S],
        options: &Options,
        stores: &Stores,
    ) -> Result<Self> {
        let mut files = Vec::new();
        for location in locations {
            files.extend(find_series(format, location.as_ref(), stores)?);
        }
        let location = locations.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        Self::of_named(format, &location, &files, options, stores)
    }

    /// Opens files, as [`SeriesTable::try_new`]; `location` is what was written.
    pub(crate) fn of_named(
        format: SeriesFormat,
        location: &str,
        named: &[String],
        options: &Options,
        stores: &Stores,
    ) -> Result<Self> {
        let mut options = SeriesOptions::parse(format, options)?;
        if let Some(meshes) = &options.mesh {
            let meshes: Vec<String> =
                meshes.split(',').map(|mesh| whole_path(mesh.trim())).collect::<Result<_>>()?;
            options.mesh = Some(meshes.join(","));
        }
        let probed = named.iter().map(|file| SeriesFile::probe(file, format, &options, stores));
        let files: Vec<SeriesFile> = probed.collect::<Result<_>>()?;
        let beside =
            BesideRuns { confounds: options.confounds.as_deref(), events: options.events.as_deref() };
        let runs = beside.of(location, files.iter().map(|f| (&f.keys, f.location.as_str())), stores)?;
        Self::of_files(location, files, options, runs, Vec::new(), stores)
    }

    /// A table of files that were looked at; `history` is what was left out.
    ///
    /// # Errors
    /// No files, or files that do not fit each other.
    pub(crate) fn of_files(
        location: &str,
        files: Vec<SeriesFile>,
        options: SeriesOptions,
        runs: Vec<RunFiles>,
        history: Vec<String>,
        stores: &Stores,
    ) -> Result<Self> {
        if let Some((first, others)) = files.split_first() {
            others.iter().try_for_each(|file| file.must_fit(first))?;
        }
        files.iter().try_for_each(|file| series_smoothing::check(file, &options, stores))?;
        let mut origin = origin(&files, location)?;
        origin.history = history;
        if let (Some(fwhm), Some(mesh)) = (options.smoothing_fwhm, &options.mesh) {
            origin.history.push(format!("smoothed along the surface, FWHM {fwhm} mm, mesh {mesh}"));
        }
        let mut metadata = origin.to_metadata()?;
        metadata.extend(lengths(files.iter().map(|file| (&file.keys, file.points, file.location.clone())))?);
        if !runs.is_empty() {
            metadata.extend(RunFiles::to_metadata(&runs)?);
        }
        let source = SeriesSource::new(files, options, metadata, stores.clone()).ok_or_else(|| {
            let reason = "no location was given: write LOCATION 'a file, a folder or a glob'".into();
            Error::Location { location: location.into(), reason }
        })?;
        Ok(Self { source: Arc::new(source), runs, ledger: Ledger::default() })
    }

    /// A text that is equal, in every process, while the rows and what operators read beside them are: files,
    /// confounds and events by path, length and time of change, and the options. None when a file cannot be looked at.
    pub fn identity(&self) -> Option<String> {
        let SeriesSource { files, options, stores, .. } = self.source.as_ref();
        let options = serde_json::to_string(options).ok()?;
        let runs = serde_json::to_string(&self.runs).ok()?;
        let mut text = format!("series\n{options}\n{runs}");
        for file in files {
            let SeriesFile { location, keys, t_r, .. } = file;
            write!(text, "\n{location} {keys:?} {t_r:?} {:?}", stores.stamp(location)?).ok()?;
        }
        let meshes = self.source.options.mesh.iter().flat_map(|meshes| meshes.split(','));
        for file in self.runs.iter().flat_map(RunFiles::beside).chain(meshes) {
            write!(text, "\n{file} {:?}", stores.stamp(file)).ok()?;
        }
        Some(text)
    }
}

/// The files of `format` at `location`. Of a folder, those of GIFTI that are data on meshes.
pub(crate) fn find_series(format: SeriesFormat, location: &str, stores: &Stores) -> Result<Vec<String>> {
    let what = match format {
        SeriesFormat::Gifti => ".func.gii, .shape.gii or .label.gii file",
        SeriesFormat::Cifti => ".dtseries.nii or .dscalar.nii file",
        SeriesFormat::Mgh => ".mgh or .mgz file",
        SeriesFormat::Npy => ".npy file",
    };
    find_files(location, &Wanted { what, endings: format.endings(), choose: no_meshes }, stores)
}

fn no_meshes(mut files: Vec<&str>) -> Vec<&str> {
    files.retain(|file| !file.contains(".surf.gii"));
    files
}

#[async_trait]
impl TableProvider for SeriesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.source.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let rows = SeriesRows::try_new(Arc::clone(&self.source), projection, limit)?;
        Ok(Arc::new(SeriesExec::new(rows, None)))
    }
}
