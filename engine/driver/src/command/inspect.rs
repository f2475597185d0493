//! `voxelflow inspect PATH`: what a file is, and what is wrong with it.

use crate::{Error, Result, Session, flags::InspectFlags};
use std::path::Path;
use voxelflow_formats::{NiftiReader, ReadOptions};
use voxelflow_stage::{Grid, Options, Provenance, SeriesOrigin};
use voxelflow_storage::{Place, Purpose, StoreOptions, check};
use voxelflow_tables::{FolderReport, InspectedRun, inspect_file, inspect_folder};

pub(super) async fn inspect(flags: InspectFlags) -> Result<()> {
    let InspectFlags { path, raw } = &flags;
    let not_runs =
        || Error::input(path.display(), "neither BIDS derivatives nor a folder of the HCP pipelines");
    if raw.is_some() || is_remote(path) {
        for location in [Some(path), raw.as_ref()].into_iter().flatten() {
            check(&location.to_string_lossy(), &StoreOptions::default(), Purpose::Read).await?;
        }
        let is_file = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"));
        let runs = if is_file { None } else { of_runs(path, raw.as_deref()).await? };
        return match runs {
            Some(report) => print_runs(path, &report),
            None if raw.is_none() => parquet(path).await,
            None => Err(not_runs()),
        };
    }
    let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    match metadata.is_dir() {
        true if path.join("config.json").exists() => model(path),
        true => match of_runs(path, None).await? {
            Some(report) => print_runs(path, &report),
            None => parquet(path).await,
        },
        false if name.ends_with(".parquet") => parquet(path).await,
        false => match inspect_file(&path.to_string_lossy())? {
            Some(lines) => {
                lines.iter().for_each(|(word, said)| say!("{word:<12}{said}"));
                Ok(())
            }
            None => image(path),
        },
    }
}

fn is_remote(path: &Path) -> bool {
    matches!(Place::parse(&path.to_string_lossy()), Ok(Place::Remote(_)))
}

fn image(path: &Path) -> Result<()> {
    let mut reader = NiftiReader::open_with(path, &ReadOptions::default())?;
    // Faults of the header are its last lines.
    say!("{}", reader.header());
    let t_r = reader.header().t_r();
    // Only reading to the end shows that nothing is cut off and that the checksum holds.
    let mut volume = Vec::<f32>::new();
    let (mut low, mut high, mut not_finite) = (f32::INFINITY, f32::NEG_INFINITY, 0_u64);
    while reader.next_volume(&mut volume)? {
        for value in &volume {
            if value.is_finite() {
                low = low.min(*value);
                high = high.max(*value);
            } else {
                not_finite += 1;
            }
        }
    }
    say!("values      {low} to {high}, {not_finite} not finite; read to the end, nothing missing");
    if let Err(fault) = t_r {
        say!("fault       {fault}");
    }
    Ok(())
}

async fn parquet(path: &Path) -> Result<()> {
    let session = Session::builder().build()?;
    let table = session.read_parquet(&path.to_string_lossy()).await?;
    let schema = table.schema()?;
    say!("rows        {}", table.count().await?);
    for field in schema.fields() {
        say!(
            "column      {} {}{}",
            field.name(),
            field.data_type(),
            if field.is_nullable() { "" } else { " not null" }
        );
    }
    match Provenance::of(&schema) {
        Ok(Some(Provenance::Grid(grid))) => print_grid(&grid),
        Ok(Some(Provenance::Origin(origin))) => print_origin(&origin),
        _ => say!("grid        none: no maps can be written from this table"),
    }
    Ok(())
}

fn print_origin(origin: &SeriesOrigin) {
    say!("series      from {}", origin.source);
    for structure in &origin.structures {
        say!("structure   {}: {}", structure.name.as_deref().unwrap_or("not said"), structure.rows);
    }
    match origin.t_r {
        Some(t_r) => say!("t_r         {t_r} s"),
        None => say!("t_r         not known"),
    }
    origin.history.iter().for_each(|step| say!("done        {step}"));
}

fn print_grid(grid: &Grid) {
    let [i, j, k] = grid.shape;
    say!("grid        {i}x{j}x{k}, from {}", grid.source);
    say!("affine      {:?}", grid.affine);
    match grid.t_r {
        Some(t_r) => say!("t_r         {t_r} s"),
        None => say!("t_r         not known"),
    }
    grid.history.iter().for_each(|step| say!("done        {step}"));
}

/// What a folder of runs holds; nothing when it is none.
async fn of_runs(path: &Path, raw: Option<&Path>) -> Result<Option<FolderReport>> {
    let location = path.to_string_lossy().into_owned();
    let raw = raw.map(|raw| raw.to_string_lossy().into_owned());
    let looked = tokio::task::spawn_blocking(move || inspect_folder(&location, raw.as_deref())).await;
    Ok(looked.map_err(|e| Error::io(path, e.into()))??)
}

/// A line for each run, then what is wrong.
///
/// # Errors
/// A folder of which nothing can be used.
fn print_runs(path: &Path, report: &FolderReport) -> Result<()> {
    say!("kind        {}", report.kind);
    let mut lines: Vec<[String; 8]> =
        vec![["run", "variant", "size", "volumes", "t_r", "mask", "confounds", "events"].map(str::to_owned)];
    lines.extend(report.runs.iter().map(line));
    let mut widths = [0; 8];
    for line in &lines {
        widths.iter_mut().zip(line).for_each(|(width, cell)| *width = (*width).max(cell.chars().count()));
    }
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        say!("{}", cells.join("  ").trim_end());
    }
    report.problems.iter().for_each(|problem| say!("fault       {problem}"));
    let usable = report.runs.iter().filter(|run| run.usable).count();
    say!("runs        {usable} can be read STORED AS {}, {} faults", report.kind, report.problems.len());
    if usable == 0 {
        return Err(Error::input(
            path.display(),
            "no run of it can be read as voxel series: the faults say why",
        ));
    }
    Ok(())
}

fn line(run: &InspectedRun) -> [String; 8] {
    let word = |there: bool| if there { "yes" } else { "no" }.to_owned();
    let unknown = || "-".to_owned();
    [
        run.run.clone(),
        if run.variant.is_empty() { unknown() } else { run.variant.clone() },
        run.size.clone().unwrap_or_else(unknown),
        run.volumes.map_or_else(unknown, |volumes| volumes.to_string()),
        run.t_r.map_or_else(unknown, |t_r| format!("{t_r} s")),
        word(run.mask),
        word(run.confounds),
        run.events.clone().unwrap_or_else(|| "no".to_owned()),
    ]
}

fn model(path: &Path) -> Result<()> {
    let config = path.join("config.json");
    let text = std::fs::read(&config).map_err(|e| Error::io(&config, e))?;
    let config: Options = serde_json::from_slice(&text)
        .map_err(|e| Error::input(config.display(), format!("it is no JSON object: {e}")))?;
    let stage = config.get("stage").and_then(|s| s.as_str()).unwrap_or_default();
    let kinds = crate::stages::stages();
    let Some(kind) = kinds.iter().find(|k| k.name() == stage) else {
        let known: Vec<&str> = kinds.iter().map(|k| k.name()).collect();
        let reason =
            format!("it is of stage `{stage}`, which this build does not have; it has: {}", known.join(", "));
        return Err(Error::input(path.display(), reason));
    };
    let model = kind.load(path)?;
    say!("stage       {stage}");
    say!("parameters  {}", model.parameters());
    for function in model.functions() {
        say!("function    {}: {} to {} values", function.name, function.input_length, function.output_length);
    }
    for (name, value) in model.config() {
        say!("option      {name} = {value}");
    }
    Ok(())
}
