//! `voxelflow inspect PATH`: what a file is, and what is wrong with it.

use crate::{Error, Result, Session, flags::InspectFlags};
use std::path::Path;
use voxelflow_formats::{NiftiReader, ReadOptions};
use voxelflow_stage::{Grid, Options};

pub(super) async fn inspect(flags: InspectFlags) -> Result<()> {
    let path = &flags.path;
    let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    match metadata.is_dir() {
        true if path.join("config.json").exists() => model(path),
        true => parquet(path).await,
        false if name.ends_with(".parquet") => parquet(path).await,
        false => image(path),
    }
}

fn image(path: &Path) -> Result<()> {
    let mut reader = NiftiReader::open_with(path, &ReadOptions::default())?;
    // Faults of the header are its last lines.
    println!("{}", reader.header());
    let t_r = reader.header().t_r();
    // Only reading to the end shows that nothing is cut off and that the checksum holds.
    let mut volume = Vec::new();
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
    println!("values      {low} to {high}, {not_finite} not finite; read to the end, nothing missing");
    if let Err(fault) = t_r {
        println!("fault       {fault}");
    }
    Ok(())
}

async fn parquet(path: &Path) -> Result<()> {
    let session = Session::builder().build()?;
    let table = session.read_parquet(&path.to_string_lossy()).await?;
    let schema = table.schema()?;
    println!("rows        {}", table.count().await?);
    for field in schema.fields() {
        println!(
            "column      {} {}{}",
            field.name(),
            field.data_type(),
            if field.is_nullable() { "" } else { " not null" }
        );
    }
    match Grid::of(&schema) {
        Ok(grid) => print_grid(&grid),
        Err(_) => println!("grid        none: no maps can be written from this table"),
    }
    Ok(())
}

fn print_grid(grid: &Grid) {
    let [i, j, k] = grid.shape;
    println!("grid        {i}x{j}x{k}, from {}", grid.source);
    println!("affine      {:?}", grid.affine);
    match grid.t_r {
        Some(t_r) => println!("t_r         {t_r} s"),
        None => println!("t_r         not known"),
    }
    grid.history.iter().for_each(|step| println!("done        {step}"));
}

fn model(path: &Path) -> Result<()> {
    let config = path.join("config.json");
    let text = std::fs::read(&config).map_err(|e| Error::io(&config, e))?;
    let config: Options = serde_json::from_slice(&text)
        .map_err(|e| Error::input(config.display(), format!("it is no JSON object: {e}")))?;
    let stage = config.get("stage").and_then(|s| s.as_str()).unwrap_or_default();
    let kinds = voxelflow_nn::stages();
    let Some(kind) = kinds.iter().find(|k| k.name() == stage) else {
        let known: Vec<&str> = kinds.iter().map(|k| k.name()).collect();
        let reason =
            format!("it is of stage `{stage}`, which this build does not have; it has: {}", known.join(", "));
        return Err(Error::input(path.display(), reason));
    };
    let model = kind.load(path)?;
    println!("stage       {stage}");
    println!("parameters  {}", model.parameters());
    for function in model.functions() {
        println!(
            "function    {}: {} to {} values",
            function.name, function.input_length, function.output_length
        );
    }
    for (name, value) in model.config() {
        println!("option      {name} = {value}");
    }
    Ok(())
}
