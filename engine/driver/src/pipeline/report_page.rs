//! Gathers what a run left behind into a [`Report`]: statements, tables, models with examples, maps.

use super::{report_ledger, run::Runner};
use crate::{Error, Result, clock};
use arrow::{
    array::{Array, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Float32Type},
    util::display::array_value_to_string,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use voxelflow_dataset::OptionMap;
use voxelflow_formats::{NiftiReader, ReadOptions};
use voxelflow_pipeline::PlannedTrain;
use voxelflow_report::{
    FileRow, MapSection, ModelSection, ReconstructionExample, Report, StatementRow, TableRow, Volume,
};
use voxelflow_signal::pearson_r;
use voxelflow_stage::{Grid, History, KEY_COLUMNS, Model, SERIES_COLUMN};
use voxelflow_tables::mean_image;

/// Series shown beside their reconstruction.
const EXAMPLES: usize = 6;
/// Rows among which the examples are chosen.
const EXAMPLE_POOL: usize = 4096;
/// Maps shown of one image; a hidden state has dozens.
const MAPS_SHOWN: usize = 4;

/// The report of everything that has run so far.
pub(super) async fn build(run: &Runner<'_>) -> Result<Report> {
    let mut report = Report::new(&run.file.name, clock::now_utc(), env!("CARGO_PKG_VERSION"));
    report.pipeline_text = Some(run.file.text.clone());
    for outcome in &run.outcomes {
        let (title, record) = (&outcome.title, &outcome.record);
        report.statements.push(match outcome.note.ran() {
            true => StatementRow::ran(title, record.seconds, record.rows),
            false => StatementRow::unchanged(title, record.rows),
        });
        let files = record.files.iter();
        report.files.extend(files.map(|f| FileRow {
            path: f.path.display().to_string(),
            bytes: f.bytes,
            what: title.clone(),
        }));
    }
    report.ledger = report_ledger::rows(&run.session).await?;
    for (target, record) in &run.record.statements {
        if let (Some(name), Some(file)) = (target.strip_prefix("table "), record.files.first()) {
            report.tables.push(table_row(run, name, record.rows.unwrap_or(0), file.bytes, &file.path).await?);
        }
    }
    for train in &run.trained {
        report.models.push(model_section(run, train).await?);
    }
    report.maps = map_sections(run)?;
    Ok(report)
}

async fn table_row(run: &Runner<'_>, name: &str, rows: u64, bytes: u64, path: &Path) -> Result<TableRow> {
    let columns = match run.session.read_table(name).await {
        Ok(table) => table.schema()?.fields().iter().map(|f| f.name().clone()).collect(),
        // A table of an earlier version of the file is on disk, but not in this session.
        Err(_) => Vec::new(),
    };
    Ok(TableRow {
        name: name.into(),
        rows,
        columns,
        path: Some(path.display().to_string()),
        bytes: Some(bytes),
    })
}

async fn model_section(run: &Runner<'_>, train: &PlannedTrain) -> Result<ModelSection> {
    let request = &train.request;
    let model = load_model(&request.stage, &request.folder)?;
    let history: History = read_json(&request.folder.join("history.json"))?;
    let mut settings = texts(&model.config());
    settings.extend(texts(&request.settings));
    let mut statistics: OptionMap = read_json(&request.folder.join("statistics.json"))?;
    let grid = statistics.remove("grid").and_then(|g| serde_json::from_value::<Grid>(g).ok());
    let mut lineage = texts(&statistics);
    lineage.extend(grid.iter().flat_map(grid_lineage));
    Ok(ModelSection {
        name: request.model.clone(),
        stage: request.stage.clone(),
        parameters: model.parameters(),
        settings,
        lineage,
        history,
        choice: model.choice()?,
        filters: model.filters(),
        reconstructions: examples(run, train, model.as_ref()).await?,
        ..Default::default()
    })
}

/// Names and values, as people write them.
fn texts(map: &OptionMap) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        // A setting of single precision, such as 0.006, is shown as it was written.
        Value::Number(n) => match n.as_f64() {
            Some(x) if f64::from(x as f32) == x => (x as f32).to_string(),
            _ => n.to_string(),
        },
        other => other.to_string(),
    };
    map.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

fn grid_lineage(grid: &Grid) -> Vec<(String, String)> {
    let [i, j, k] = grid.shape;
    let row = |name: &str, value: String| (name.to_owned(), value);
    let mut rows = vec![row("image", grid.source.clone()), row("grid", format!("{i}x{j}x{k}"))];
    rows.extend(grid.t_r.map(|t_r| row("repetition time", format!("{t_r} s"))));
    rows.extend(grid.history.iter().map(|step| row("cleaned by", step.clone())));
    rows
}

fn load_model(stage: &str, folder: &Path) -> Result<Box<dyn Model>> {
    let kinds = crate::stages::stages();
    let kind = kinds.iter().find(|k| k.name() == stage);
    let kind =
        kind.ok_or_else(|| Error::input(folder.display(), format!("no stage `{stage}` in this build")))?;
    Ok(kind.load(folder)?)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    serde_json::from_slice(&text).map_err(|e| Error::input(path.display(), format!("it cannot be read: {e}")))
}

/// Series of the validation rows (else of the training rows), evenly spread, beside what the model makes of
/// them. Models without `reconstruct` have none.
async fn examples(
    run: &Runner<'_>,
    train: &PlannedTrain,
    model: &dyn Model,
) -> Result<Vec<ReconstructionExample>> {
    if !model.functions().iter().any(|f| f.name == "reconstruct") {
        return Ok(Vec::new());
    }
    let plan = train.request.validation.as_ref().unwrap_or(&train.request.train);
    let batches = run.session.dataset(plan.clone()).take(EXAMPLE_POOL).await?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut found = Vec::new();
    let mut before = 0;
    for batch in &batches {
        let t_r = Grid::of(batch.schema_ref()).ok().and_then(|g| g.t_r);
        for row in 0..batch.num_rows() {
            let place = before + row;
            // Place n of N is an example where n·E/N reaches a new whole number.
            if place * EXAMPLES / rows != (place + 1) * EXAMPLES / rows {
                found.extend(example(batch, row, t_r, model)?);
            }
        }
        before += batch.num_rows();
    }
    Ok(found)
}

fn example(
    batch: &RecordBatch,
    row: usize,
    t_r: Option<f64>,
    model: &dyn Model,
) -> Result<Option<ReconstructionExample>> {
    let Some(list) = batch.column_by_name(SERIES_COLUMN).and_then(|c| c.as_fixed_size_list_opt()) else {
        return Ok(None);
    };
    if list.is_null(row) {
        return Ok(None);
    }
    // Series that were computed of volumes and not cleaned are of 64 bits.
    let Ok(series) = cast(&list.value(row), &DataType::Float32) else { return Ok(None) };
    let series = series.as_primitive::<Float32Type>().values().to_vec();
    let reconstruction = model.apply("reconstruct", &series)?;
    let r = pearson_r(&series, &reconstruction, series.len());
    let r = r.ok().and_then(|r| r.first().copied()).map_or(f64::NAN, f64::from);
    let keys = KEY_COLUMNS.iter().filter(|k| !matches!(**k, "space" | "voxel"));
    let label = keys.filter_map(|key| {
        let column = batch.column_by_name(key).filter(|c| c.is_valid(row))?;
        Some(format!("{key} {}", array_value_to_string(column, row).ok()?))
    });
    let label = label.collect::<Vec<_>>().join(", ");
    Ok(Some(ReconstructionExample { label, t_r, series, reconstruction, r }))
}

/// The maps that this file's statements wrote, each over the mean image of the run that it came from.
fn map_sections(run: &Runner<'_>) -> Result<Vec<MapSection>> {
    let sources = grids_of_models(run);
    let mut backgrounds: BTreeMap<String, Option<Volume>> = BTreeMap::new();
    let mut sections = Vec::new();
    for outcome in &run.outcomes {
        for file in &outcome.record.files {
            let path = run.options.out.join(&file.path);
            if !is_nifti(&path) {
                continue;
            }
            let volumes = read_volumes(&path)?;
            let background = volumes.first().and_then(|first| {
                let grid = sources.iter().find(|g| g.same_space(&first.grid))?;
                backgrounds.entry(grid.source.clone()).or_insert_with(|| background(grid)).clone()
            });
            let several = volumes.len() > 1;
            for (number, volume) in volumes.into_iter().enumerate() {
                let stem = file.path.display().to_string();
                let name = if several { format!("{stem}, volume {number}") } else { stem };
                sections.push(MapSection::statistic(name, "", volume, background.clone()));
            }
        }
    }
    Ok(sections)
}

/// Grids that training data came from; their images lie under the maps.
fn grids_of_models(run: &Runner<'_>) -> Vec<Grid> {
    run.trained.iter().filter_map(|t| Grid::of(t.request.train.schema().as_arrow()).ok()).collect()
}

/// The mean of the source image; none where it is gone: a report of old results is still a report.
fn background(grid: &Grid) -> Option<Volume> {
    let (grid, values) = mean_image(&grid.source).ok()?;
    Some(Volume { grid, values })
}

fn is_nifti(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    name.ends_with(".nii") || name.ends_with(".nii.gz")
}

/// The first volumes of an image, as many as are shown.
fn read_volumes(path: &Path) -> Result<Vec<Volume>> {
    let mut reader = NiftiReader::open_with(path, &ReadOptions::default())?;
    let header = reader.header();
    let grid = Grid {
        shape: header.shape,
        affine: header.affine,
        xform_code: header.xform_code,
        t_r: None,
        mask_hash: String::new(),
        mask_voxels: 0,
        source: PathBuf::from(path).display().to_string(),
        history: Vec::new(),
    };
    let mut volumes = Vec::new();
    let mut values = Vec::new();
    while volumes.len() < MAPS_SHOWN && reader.next_volume(&mut values)? {
        volumes.push(Volume { grid: grid.clone(), values: values.clone() });
    }
    Ok(volumes)
}
