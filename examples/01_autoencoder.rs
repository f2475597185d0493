//! The same job as `01_autoencoder.vf`, as a driver program with a function of its own.
//!
//!     cargo run --bin 01_autoencoder

use voxelflow::prelude::arrow::{array::AsArray, compute::filter_record_batch, datatypes::UInt32Type};
use voxelflow::prelude::*;

/// Every fifth voxel is held out; `train` says which share is asked for.
fn share(batch: RecordBatch, train: bool) -> Result<RecordBatch, arrow::error::ArrowError> {
    let voxels = batch.column(batch.schema().index_of("voxel")?).as_primitive::<UInt32Type>();
    let kept = voxels.iter().map(|v| v.map(|v| (v % 5 != 0) == train)).collect();
    filter_record_batch(&batch, &kept)
}

#[voxelflow::main]
async fn main(session: Session) -> Result<()> {
    let bold = session.read_nifti("examples/data/ds003_sub-01_mc.nii.gz", &[("subject", "01")])?;
    let options = [("detrend", true.into()), ("standardize", "zscore_sample".into())];
    let clean =
        session.apply("clean", &bold, options.map(|(k, v)| (k.to_owned(), v)).into_iter().collect())?;
    let series = clean.persist().await?;

    let split = function!(|batch, train: bool| share(batch, *train));
    let training = series.map_partitions(split, true);
    let held_out = series.map_partitions(split, false);

    let stage = StageSpec::new("dist_dca")
        .option("hidden", 8)
        .option("filters", vec![16, 32])
        .option("kernels", vec![9, 5])
        .option("pools", 1);
    let config = TrainConfig::synchronous()
        .ranks(2)
        .setting("parameter_servers", 2)
        .minibatch(32)
        .epochs(20)
        .learning_rate(0.01)
        .seed(1)
        // Equal sums, here and on a cluster.
        .setting("deterministic", true)
        .model("dca")
        .validate_on(&held_out);
    let model = training.train(stage, config).await?;

    let hidden = series.transform(model.encoder()).drop_columns(&["series"]);
    let maps = session.export_maps(&hidden, "maps/{column}.nii.gz").await?;
    println!("{} series, {} held out", series.count().await?, held_out.count().await?);
    println!("loss {:.4} after {} epochs", model.history.last_loss(), model.history.column("loss").len());
    println!("model {}, maps {maps:?}", model.folder.display());
    Ok(())
}
