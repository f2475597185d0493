//! BIDS derivatives in real stores: in S3 and in HDFS a run gives the rows that it gives from disk.
#![allow(clippy::unwrap_used)]

#[path = "../../storage/tests/servers/mod.rs"]
#[allow(dead_code, reason = "what other tests of the servers need")]
mod servers;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Float32Type, UInt32Type};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use voxelflow_stage::Grid;
use voxelflow_storage::{Listing, Location, S3Keys, S3Options, StoreOptions, StoreRegistry, publish_object};
use voxelflow_tables::ImageTables;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A small real image, and a whole brain where the larger data are.
fn images() -> Vec<PathBuf> {
    let data =
        std::env::var_os("VOXELFLOW_DATA").map_or_else(|| repository().join("../shared/data"), PathBuf::from);
    let whole = data.join("fmri/studyforrest/sub-02_task-visloc_bold.nii.gz");
    if !whole.exists() {
        println!("SKIPPED: {} is not there; set VOXELFLOW_DATA", whole.display());
    }
    let images = [repository().join("examples/data/ds003_sub-01_mc.nii.gz"), whole];
    images.into_iter().filter(|image| image.exists()).collect()
}

/// Derivatives of one run, as fMRIPrep names them.
fn derivatives(image: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let func = folder.path().join("sub-02/func");
    std::fs::create_dir_all(&func).unwrap();
    let stem = "sub-02_task-visloc";
    std::fs::copy(image, func.join(format!("{stem}_space-T1w_desc-preproc_bold.nii.gz"))).unwrap();
    std::fs::write(func.join(format!("{stem}_desc-confounds_timeseries.tsv")), "trans_x\n0\n").unwrap();
    std::fs::write(folder.path().join("task-visloc_bold.json"), r#"{"RepetitionTime": 2.0}"#).unwrap();
    folder
}

async fn upload(folder: &Path, to: &Location) {
    let listing = Listing::of(folder.to_str().unwrap()).unwrap();
    for path in listing.paths() {
        let object = path.split('/').fold(to.path.clone(), |object, part| object.join(part));
        let file = tokio::fs::File::open(folder.join(path)).await.unwrap();
        publish_object(&to.store, &object, file).await.unwrap();
    }
}

/// Rows of the run, hashed in their order, and their repetition time.
async fn read(ctx: &SessionContext, location: &str) -> (usize, String, Option<f64>) {
    ctx.state_ref().write().table_factories_mut().insert("BIDS".into(), Arc::new(ImageTables::Bids));
    let create = format!(
        "CREATE OR REPLACE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{location}' \
         OPTIONS (task 'visloc', space 'T1w', mask 'auto')"
    );
    ctx.sql(&create).await.unwrap();
    let frame = ctx.sql("SELECT voxel, series FROM bold").await.unwrap();
    let t_r = Grid::of(frame.schema().as_arrow()).unwrap().t_r;
    let mut stream = frame.execute_stream().await.unwrap();
    let (mut rows, mut hasher) = (0, blake3::Hasher::new());
    while let Some(batch) = stream.next().await {
        let batch = batch.unwrap();
        rows += batch.num_rows();
        for voxel in batch.column(0).as_primitive::<UInt32Type>().values() {
            hasher.update(&voxel.to_le_bytes());
        }
        for value in batch.column(1).as_fixed_size_list().values().as_primitive::<Float32Type>().values() {
            hasher.update(&value.to_le_bytes());
        }
    }
    (rows, hasher.finalize().to_hex().to_string(), t_r)
}

async fn same_rows(of_store: &str, root: &str, options: &StoreOptions) {
    for (number, image) in images().iter().enumerate() {
        let folder = derivatives(image);
        let began = Instant::now();
        let from_disk = read(&SessionContext::new(), folder.path().to_str().unwrap()).await;
        let disk = began.elapsed();
        assert!(from_disk.0 > 300 && from_disk.2 == Some(2.0), "{from_disk:?}");
        let location = format!("{root}/bids/{number}/fmriprep");
        let there = StoreRegistry::global().resolve_with(&location, options).unwrap();
        upload(folder.path(), &there).await;
        let ctx = SessionContext::new();
        ctx.register_object_store(&there.store_url, Arc::clone(&there.store));
        let began = Instant::now();
        assert_eq!(read(&ctx, &location).await, from_disk);
        println!("{of_store}: {} rows, {:?}, from disk {disk:?}", from_disk.0, began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_from_s3_are_those_from_disk() {
    let Some(server) = servers::s3() else { return };
    let keys = S3Keys {
        access_key_id: servers::ACCESS_KEY.into(),
        secret_access_key: servers::SECRET_KEY.to_owned().into(),
        session_token: None,
    };
    let s3 = S3Options { endpoint: Some(server.endpoint.clone()), keys: Some(keys), ..S3Options::default() };
    same_rows("S3", "s3://tests/tables", &StoreOptions { s3 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_from_hdfs_are_those_from_disk() {
    let Some(server) = servers::hdfs() else { return };
    same_rows("HDFS", &format!("{}/tables", server.url), &StoreOptions::default()).await;
}
