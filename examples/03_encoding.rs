//! The same job as `03_encoding.vf`, as a driver program.
//!
//!     cargo run --bin 03_encoding

use voxelflow::prelude::*;

#[voxelflow::main]
async fn main(session: Session) -> Result<()> {
    let options = [("raw", "examples/data/haxby/raw"), ("mask", "none")];
    let bold = session.read_bids("examples/data/haxby/derivatives", &options)?;
    let clean = StageSpec::new("clean")
        .option("detrend", true)
        .option("high_pass", 0.01)
        .option("standardize", "zscore_sample");
    let series = bold.apply(clean).persist().await?;
    let design = StageSpec::new("design").option("hrf_model", "glover").option("drift_model", "none");
    let features = bold.apply(design).filter(col("regressor").not_eq(lit("constant")));

    let held_out = || vec![lit("11"), lit("12")];
    let config = TrainConfig::new()
        .ranks(2)
        .model("categories")
        .features(&features)
        .validate_on(&series.filter(col("run").in_list(held_out(), false)));
    let ridge = StageSpec::new("ridge_cv")
        .option("alphas", vec![0.1, 1.0, 10.0, 100.0, 1000.0])
        .option("cv", "run")
        .option("alpha_per_target", true);
    let model = series.filter(col("run").in_list(held_out(), true)).train(ridge, config).await?;

    // What the model knows of its targets, a row for each.
    let targets = session.read_parquet(&model.targets().display().to_string()).await?;
    let maps = targets.select_columns(&["voxel", "i", "j", "k", "r", "score"]);
    let maps = session.export_maps(&maps, "maps/{column}.nii.gz").await?;
    println!("{} voxels, model {}, maps {maps:?}", targets.count().await?, model.folder.display());
    Ok(())
}
