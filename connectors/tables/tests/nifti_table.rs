//! NIFTI tables through a session: values, keys, metadata, faults, and maps written back.
#![allow(clippy::unwrap_used)]

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, UInt16Type, UInt32Type};
use datafusion::physical_plan::collect;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use voxelflow_dataset::{Ledger, LedgerEntry};
use voxelflow_formats::{NiftiReader, NiftiSpec, NiftiWriter};
use voxelflow_stage::{EventFiles, GRID_METADATA_KEY, Grid, RunFiles, RunLengths};
use voxelflow_tables::{
    Error, ExportOptions, ImageTables, NiftiTable, Stores, check_export, export_maps, mean_image,
};

const SHAPE: [usize; 3] = [5, 4, 3];
const VOLUMES: usize = 7;

fn session() -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(2);
    config.options_mut().execution.parquet.skip_metadata = false;
    let ctx = SessionContext::new_with_config(config);
    ctx.state_ref()
        .write()
        .table_factories_mut()
        .insert(ImageTables::Nifti.name().into(), Arc::new(ImageTables::Nifti));
    ctx
}

fn affine(shift: f64) -> [[f64; 4]; 4] {
    [[-2.0, 0.0, 0.0, 90.0 + shift], [0.0, 2.0, 0.0, -126.0], [0.0, 0.0, 2.5, -72.0], [0.0, 0.0, 0.0, 1.0]]
}

fn value(voxel: usize, t: usize) -> f32 {
    (voxel * 100 + t) as f32 + 0.25
}

fn write(path: &Path, volumes: usize, shift: f64, value: impl Fn(usize, usize) -> f32) {
    let spec = NiftiSpec::new(SHAPE, volumes).with_affine(affine(shift), 2).with_t_r(0.72);
    let mut writer = NiftiWriter::create(path, &spec).unwrap();
    for t in 0..volumes {
        let volume: Vec<f32> = (0..60).map(|v| value(v, t)).collect();
        writer.write_volume(&volume).unwrap();
    }
    writer.finish().unwrap();
}

/// A folder with `sub-01_task-x_run-1_space-Y_bold.nii.gz` and a mask of every third voxel.
fn folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let bold = folder.path().join("sub-01_task-x_run-1_space-Y_bold.nii.gz");
    let mask = folder.path().join("brain_mask.nii");
    write(&bold, VOLUMES, 0.0, value);
    write(&mask, 1, 0.0, |v, _| f32::from(v % 3 == 0));
    (folder, bold, mask)
}

async fn create(ctx: &SessionContext, location: &Path, options: &str) -> Result<(), Error> {
    let sql = format!(
        "CREATE OR REPLACE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS ({options})",
        location.display()
    );
    ctx.sql(&sql).await.map(|_| ()).map_err(Error::Plan)
}

async fn query(ctx: &SessionContext, sql: &str) -> RecordBatch {
    let frame = ctx.sql(sql).await.unwrap();
    let schema = Arc::clone(frame.schema().inner());
    let batches = frame.collect().await.unwrap();
    batches.first().map_or_else(
        || RecordBatch::new_empty(schema),
        |first| concat_batches(&first.schema(), &batches).unwrap(),
    )
}

fn series(batch: &RecordBatch) -> Vec<f32> {
    let list = batch.column_by_name("series").unwrap().as_fixed_size_list();
    list.values().as_primitive::<Float32Type>().values().to_vec()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

async fn failure(location: &Path, options: &str) -> String {
    let e = create(&session(), location, options).await.unwrap_err();
    assert!(e.is_input(), "{e}");
    e.to_string()
}

async fn export(ctx: &SessionContext, sql: &str, target: &Path) -> Result<Vec<PathBuf>, Error> {
    let frame = ctx.sql(sql).await?;
    let plan = check_export(frame.schema().as_arrow(), target.to_str().unwrap())?;
    export_maps(&plan, frame.execute_stream().await?, &ExportOptions::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_the_voxels_of_the_mask() {
    let (_folder, bold, mask) = folder();
    let ctx = session();
    create(&ctx, &bold, &format!("mask '{}'", mask.display())).await.unwrap();
    let rows = query(&ctx, "SELECT * FROM bold").await;
    let voxels = rows.column_by_name("voxel").unwrap().as_primitive::<UInt32Type>().values().to_vec();
    assert_eq!(voxels, (0..60).step_by(3).collect::<Vec<u32>>());
    let index = |n: &str| rows.column_by_name(n).unwrap().as_primitive::<UInt16Type>().clone();
    let (i, j, k) = (index("i"), index("j"), index("k"));
    let found = series(&rows);
    for (row, voxel) in voxels.iter().enumerate() {
        let [i, j, k] = [&i, &j, &k].map(|a| u32::from(a.value(row)));
        assert_eq!(i + 5 * (j + 4 * k), *voxel);
        for t in 0..VOLUMES {
            assert_eq!(found[row * VOLUMES + t], value(*voxel as usize, t));
        }
    }
    let text = |n: &str| rows.column_by_name(n).unwrap().as_string::<i32>().clone();
    assert_eq!(
        ["subject", "task", "run", "space"].map(|n| text(n).value(3).to_owned()),
        ["01", "x", "1", "Y"]
    );
    assert!(text("session").iter().all(|session| session == Some("")));
    let grid = Grid::of(&rows.schema()).unwrap();
    assert_eq!((grid.shape, grid.mask_voxels, grid.xform_code), (SHAPE, 20, 2));
    assert!((grid.t_r.unwrap() - 0.72).abs() < 1e-6);
    let indices: Vec<u8> = voxels.iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(grid.mask_hash, blake3::hash(&indices).to_hex().to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_limits_and_projections_read_no_series() {
    let (_folder, bold, _) = folder();
    let ctx = session();
    create(&ctx, &bold, "mask 'none', subject '7', t_r '2'").await.unwrap();
    let count = query(&ctx, "SELECT count(*) FROM bold").await;
    assert_eq!(count.column(0).as_primitive::<datafusion::arrow::datatypes::Int64Type>().value(0), 60);
    let few = query(&ctx, "SELECT voxel FROM bold LIMIT 4").await;
    assert_eq!(few.column(0).as_primitive::<UInt32Type>().values(), &[0, 1, 2, 3]);
    let plan = ctx.sql("SELECT voxel FROM bold LIMIT 4").await.unwrap().create_physical_plan().await.unwrap();
    let text = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
    assert!(text.contains("columns=[voxel], limit=4"), "{text}");
    let grid = Grid::of(&few.schema()).unwrap();
    assert_eq!(grid.t_r, Some(2.0));
    let subject = query(&ctx, "SELECT DISTINCT subject FROM bold").await;
    assert_eq!(subject.column(0).as_string::<i32>().value(0), "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tiny_memory_limit_gives_the_same_bits() {
    let (_folder, bold, mask) = folder();
    for mask in ["none".to_owned(), mask.display().to_string()] {
        let ctx = session();
        create(&ctx, &bold, &format!("mask '{mask}'")).await.unwrap();
        let whole = query(&ctx, "SELECT * FROM bold").await;
        create(&ctx, &bold, &format!("mask '{mask}', memory_limit 64")).await.unwrap();
        let spilled = query(&ctx, "SELECT * FROM bold").await;
        assert_eq!(bits(&series(&whole)), bits(&series(&spilled)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn non_finite_and_constant_series_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nii");
    let value = |v: usize, t: usize| match (v, t) {
        (3, 2) => f32::NAN,
        (4, _) => 0.0,
        _ => value(v, t),
    };
    write(&path, VOLUMES, 0.0, value);
    let ctx = session();
    create(&ctx, &path, "mask 'none'").await.unwrap();
    let found = series(&query(&ctx, "SELECT * FROM bold").await);
    assert!(found[3 * VOLUMES + 2].is_nan());
    assert!(found[4 * VOLUMES..5 * VOLUMES].iter().all(|x| *x == 0.0));
}

/// Reason, count and places of what a ledger has.
fn told(ledger: &Ledger) -> Vec<String> {
    let text = |entry: &LedgerEntry| {
        let (what, run, count) = (entry.what().name(), entry.run()[3].as_deref(), entry.count());
        let places = entry.places().text(count).unwrap_or_default();
        format!("{what} {} {count} at {places}: {}", run.unwrap_or("-"), entry.reason())
    };
    ledger.iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_are_not_finite_or_rescaled_are_told_to_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    for run in [1, 2] {
        let path = folder.path().join(format!("sub-01_task-x_run-{run}_bold.nii"));
        let value = |v: usize, t: usize| match (run, v, t) {
            (2, 3, 2) => f32::NAN,
            (2, 4, _) | (2, 58, 0) => f32::NEG_INFINITY,
            _ => value(v, t),
        };
        write(&path, VOLUMES, 0.0, value);
        if run == 1 {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[112..116].copy_from_slice(&2_f32.to_le_bytes());
            bytes[116..120].copy_from_slice(&(-1_f32).to_le_bytes());
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let ctx = session();
    create(&ctx, folder.path(), "mask 'none'").await.unwrap();
    let table = ctx.table_provider("bold").await.unwrap();
    let table = table.downcast_ref::<NiftiTable>().unwrap().ledger();
    assert_eq!(
        told(table),
        ["rescaled 1 1 at : stored numbers times 2 plus -1, as the header of the image says"]
    );
    let plan = ctx.sql("SELECT * FROM bold").await.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), ctx.task_ctx()).await.unwrap();
    assert_eq!(
        told(&Ledger::of_plan(plan.as_ref())),
        ["not_finite 2 3 at 3-4,58: NaN or infinity in the file: read as it is"]
    );
    // Smoothing takes them as 0, so that no neighbour becomes NaN.
    create(&ctx, folder.path(), "mask 'none', smoothing_fwhm 3").await.unwrap();
    let plan = ctx.sql("SELECT * FROM bold").await.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), ctx.task_ctx()).await.unwrap();
    let zeroed = format!("zeroed 2 {} at : NaN or infinity in the file: 0 before smoothing", VOLUMES + 2);
    assert_eq!(told(&Ledger::of_plan(plan.as_ref())), [zeroed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_name_the_files() {
    let (folder, bold, mask) = folder();
    let shifted = folder.path().join("shifted_mask.nii");
    write(&shifted, 1, 1.0, |_, _| 1.0);
    let text = failure(&bold, &format!("mask '{}'", shifted.display())).await;
    assert!(
        text.contains("shifted_mask.nii")
            && text.contains("sub-01")
            && text.contains("(1.0000, 0.0000, 0.0000) mm"),
        "{text}"
    );

    // As far off as numpy.allclose lets it be, and further.
    for (shift, fits) in [(3e-4, true), (2e-3, false)] {
        let near = folder.path().join("near_mask.nii");
        write(&near, 1, shift, |_, _| 1.0);
        let made = create(&session(), &bold, &format!("mask '{}'", near.display())).await;
        assert_eq!(made.is_ok(), fits, "{shift} mm: {made:?}");
        let says = made.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(fits || says.contains("0.0020, 0.0000, 0.0000"), "{says}");
    }

    let empty = folder.path().join("empty_mask.nii");
    write(&empty, 1, 0.0, |_, _| 0.0);
    assert!(
        failure(&bold, &format!("mask '{}'", empty.display()))
            .await
            .contains("empty_mask.nii: the mask is empty")
    );
    assert!(failure(&bold, &format!("mask '{}'", bold.display())).await.contains("a mask has one volume"));
    assert!(failure(&bold, "maks 'none'").await.contains("did you mean `mask`?"));
    assert!(
        failure(&folder.path().join("nothing.nii"), "mask 'none'")
            .await
            .contains("nothing.nii: no such file")
    );
    assert!(failure(&bold, "mask 'no_such_mask.nii'").await.contains("no_such_mask.nii"));

    let again = folder.path().join("sub-01_task-x_run-1_space-Z_bold.nii");
    write(&again, VOLUMES + 1, 0.0, value);
    let text = failure(folder.path(), "mask 'none'").await;
    assert!(
        text.contains("space-Z_bold.nii: it has 8 volumes")
            && text.contains("space-Y_bold.nii.gz has 7")
            && text.contains("one table for each length"),
        "{text}"
    );
    std::fs::remove_file(again).unwrap();
    write(&folder.path().join("sub-02_bold.nii"), VOLUMES, 2.0, value);
    let text = failure(folder.path(), &format!("mask '{}'", mask.display())).await;
    assert!(text.contains("sub-02_bold.nii does not lie on the grid of") && text.contains("2.000"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_file_is_an_error_of_the_query_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut_bold.nii.gz");
    write(&path, VOLUMES, 0.0, value);
    let bytes = std::fs::read(&path).unwrap();
    let ctx = session();
    create(&ctx, &path, "mask 'none'").await.unwrap();
    std::fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let e = ctx.sql("SELECT * FROM bold").await.unwrap().collect().await.unwrap_err();
    let ours = Error::in_plan(&e).unwrap();
    assert!(ours.is_input() && ours.to_string().contains("cut_bold.nii.gz"), "{ours}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_runs_are_partitions_of_one_table() {
    let (folder, _, mask) = folder();
    write(&folder.path().join("sub-02_task-x_bold.nii"), VOLUMES, 0.0, |v, t| -value(v, t));
    let ctx = session();
    create(&ctx, folder.path(), &format!("mask '{}'", mask.display())).await.unwrap();
    let rows = query(&ctx, "SELECT subject, voxel, series FROM bold ORDER BY subject, voxel").await;
    assert_eq!(rows.num_rows(), 40);
    assert_eq!(series(&rows)[20 * VOLUMES + 1], -value(0, 1));
    let maps = folder.path().join("maps/sub-{subject}_{column}.nii.gz");
    let sql = "SELECT voxel, subject, series[2] AS second FROM bold";
    let files = export(&ctx, sql, &maps).await.unwrap();
    assert_eq!(files.len(), 2);
    let (_, values) = NiftiReader::open(&files[1]).unwrap().read_all().unwrap();
    assert_eq!(values[3], -value(3, 1));
    assert!(values[4].is_nan(), "a voxel without a row has no value");
    let e = export(&ctx, sql, &folder.path().join("one.nii")).await.unwrap_err();
    assert!(e.is_input() && e.to_string().contains("two rows of voxel 0"), "{e}");
    assert!(!folder.path().join("one.nii").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_several_lengths_are_lists_of_several_lengths() {
    let (folder, _, mask) = folder();
    write(&folder.path().join("sub-02_task-x_bold.nii"), VOLUMES + 3, 0.0, |v, t| match (v, t) {
        (3, 9) => f32::NAN,
        _ => -value(v, t),
    });
    let ctx = session();
    create(&ctx, folder.path(), &format!("mask '{}'", mask.display())).await.unwrap();
    let parquet = folder.path().join("rows.parquet");
    let frame = ctx.sql("SELECT * FROM bold").await.unwrap();
    frame.write_parquet(parquet.to_str().unwrap(), Default::default(), None).await.unwrap();
    ctx.register_parquet("stored", parquet.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
    for table in ["bold", "stored"] {
        let rows = query(&ctx, &format!("SELECT * FROM {table} ORDER BY subject, voxel")).await;
        let lengths = RunLengths::of(&rows.schema()).unwrap().unwrap();
        assert_eq!((lengths.longest(), lengths.distinct()), (VOLUMES + 3, vec![VOLUMES, VOLUMES + 3]));
        let lists = rows.column_by_name("series").unwrap().as_list::<i32>();
        let found = |row: usize| lists.value(row).as_primitive::<Float32Type>().values().to_vec();
        assert_eq!(found(1), (0..VOLUMES).map(|t| value(3, t)).collect::<Vec<_>>());
        assert_eq!(found(22), (0..VOLUMES + 3).map(|t| -value(6, t)).collect::<Vec<_>>());
        // No series was asked for.
        let count =
            query(&ctx, &format!("SELECT subject, count(*) AS n FROM {table} GROUP BY subject")).await;
        assert_eq!(count.num_rows(), 2);
    }
    let plan = ctx.sql("SELECT * FROM bold").await.unwrap().create_physical_plan().await.unwrap();
    collect(Arc::clone(&plan), ctx.task_ctx()).await.unwrap();
    let ledger = Ledger::of_plan(plan.as_ref());
    assert!(told(&ledger).iter().any(|entry| entry.contains("NaN or infinity")), "{:?}", told(&ledger));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grid_travels_through_plans_and_parquet() {
    let (folder, bold, mask) = folder();
    let ctx = session();
    create(&ctx, &bold, &format!("mask '{}'", mask.display())).await.unwrap();
    let grid = Grid::of(&query(&ctx, "SELECT * FROM bold").await.schema()).unwrap();
    let parquet = folder.path().join("rows.parquet");
    let frame = ctx.sql("SELECT * FROM bold").await.unwrap();
    frame.write_parquet(parquet.to_str().unwrap(), Default::default(), None).await.unwrap();
    ctx.register_parquet("stored", parquet.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
    for sql in [
        "SELECT voxel, series FROM bold WHERE voxel > 10",
        "SELECT voxel, series[1] * 2 AS x FROM bold",
        "SELECT voxel, series FROM bold ORDER BY voxel DESC LIMIT 3",
        "SELECT voxel, series FROM bold WHERE voxel < 9 UNION ALL SELECT voxel, series FROM bold WHERE voxel > 9",
        "SELECT voxel, avg(series[1]) AS x FROM bold GROUP BY voxel",
        "SELECT a.voxel, b.series FROM bold a JOIN bold b ON a.voxel = b.voxel",
        "WITH c AS (SELECT * FROM bold) SELECT voxel, i FROM c",
        "SELECT voxel, row_number() OVER (ORDER BY voxel) AS n FROM bold",
        "SELECT * FROM stored",
        "SELECT voxel, series[3] AS x FROM stored WHERE j = 1",
    ] {
        let frame = ctx.sql(sql).await.unwrap();
        let planned = frame.schema().as_arrow().metadata().get(GRID_METADATA_KEY).cloned();
        assert_eq!(planned, grid.to_metadata().unwrap().remove(GRID_METADATA_KEY), "{sql}");
    }
    let stored = query(&ctx, "SELECT * FROM stored").await;
    assert_eq!(series(&stored), series(&query(&ctx, "SELECT * FROM bold").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_read_back_is_the_source() {
    let (folder, bold, _) = folder();
    let ctx = session();
    create(&ctx, &bold, "mask 'none'").await.unwrap();
    let target = folder.path().join("maps/{column}.nii.gz");
    let sql = "SELECT *, series[1] AS first, CASE WHEN voxel = 5 THEN NULL ELSE voxel END AS number FROM bold ORDER BY voxel DESC";
    let files = export(&ctx, sql, &target).await.unwrap();
    let names: Vec<_> = files.iter().map(|f| f.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["series.nii.gz", "first.nii.gz", "number.nii.gz"]);
    let (header, values) = NiftiReader::open(&files[0]).unwrap().read_all().unwrap();
    let (source, expected) = NiftiReader::open(&bold).unwrap().read_all().unwrap();
    assert_eq!(bits(&values), bits(&expected));
    assert_eq!(
        (header.affine, header.xform_code, header.volumes),
        (source.affine, source.xform_code, VOLUMES)
    );
    assert_eq!(header.t_r().unwrap(), source.t_r().unwrap());
    let (header, values) = NiftiReader::open(&files[2]).unwrap().read_all().unwrap();
    assert_eq!((header.volumes, values[4], values[59]), (1, 4.0, 59.0));
    assert!(values[5].is_nan(), "a null cell is no value: {}", values[5]);
    let text = std::fs::read_to_string(folder.path().join("maps/dataset_description.json")).unwrap();
    assert!(text.contains("derivative") && text.contains("voxelflow"));

    let frame = ctx.sql("SELECT voxel, series FROM bold").await.unwrap();
    let again = folder.path().join("again.nii");
    let plan = check_export(frame.schema().as_arrow(), again.to_str().unwrap()).unwrap();
    let tight = ExportOptions { memory_limit: 100, ..ExportOptions::default() };
    let file = export_maps(&plan, frame.execute_stream().await.unwrap(), &tight).await.unwrap().remove(0);
    assert_eq!(bits(&NiftiReader::open(file).unwrap().read_all().unwrap().1), bits(&expected));
}

/// As SPM writes runs: a file for each volume.
#[tokio::test(flavor = "multi_thread")]
async fn images_of_one_volume_are_the_volumes_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    for t in 0..12 {
        write(&folder.path().join(format!("f_{}.nii", t + 1)), 1, 0.0, move |v, _| value(v, t));
    }
    let (events, confounds) = (folder.path().join("e.tsv"), folder.path().join("rp_f.txt"));
    std::fs::write(&events, "onset\tduration\n1\t1\n").unwrap();
    std::fs::write(&confounds, "1 2 3 4 5 6\n".repeat(12)).unwrap();
    let ctx = session();
    let options = format!(
        "mask 'none', one_run 'true', t_r 2, subject '07', confounds '{}', events '{}'",
        confounds.display(),
        events.display()
    );
    create(&ctx, folder.path(), &options).await.unwrap();
    let rows = query(&ctx, "SELECT * FROM bold").await;
    assert_eq!(rows.num_rows(), 60);
    let expected: Vec<f32> = (0..60).flat_map(|v| (0..12).map(move |t| value(v, t))).collect();
    assert_eq!(bits(&series(&rows)), bits(&expected), "f_2 comes before f_10");
    let schema = rows.schema();
    assert_eq!(Grid::of(&schema).unwrap().t_r, Some(2.0));
    let runs = RunFiles::of(&schema).unwrap();
    assert_eq!((runs.len(), runs[0].label().as_str()), (1, "sub-07"));
    assert_eq!(runs[0].confounds.as_deref(), confounds.to_str());
    assert_eq!(runs[0].events, Some(EventFiles::Table(events.display().to_string())));
    // The same by a mask that is found, a node that is sent, and a changed volume.
    let table = ctx.table_provider("bold").await.unwrap();
    let before = table.downcast_ref::<NiftiTable>().unwrap().identity();
    write(&folder.path().join("f_9.nii"), 1, 0.0, |_, _| 1.0);
    let e = failure(folder.path(), "mask 'none', one_run 'perhaps'").await;
    assert!(e.contains("true or false"), "{e}");
    create(&ctx, folder.path(), &options).await.unwrap();
    let table = ctx.table_provider("bold").await.unwrap();
    assert_ne!(table.downcast_ref::<NiftiTable>().unwrap().identity(), before);
    write(&folder.path().join("f_5.nii"), 2, 0.0, value);
    let e = failure(folder.path(), "mask 'none', one_run 'true'").await;
    assert!(e.contains("f_5.nii: it has 2 volumes"), "{e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_whose_transforms_disagree_are_read_by_the_one_that_is_chosen() {
    let (folder, bold, _) = folder();
    let mirrored = folder.path().join("mirrored.nii");
    write(&mirrored, VOLUMES, 0.0, value);
    let mut bytes = std::fs::read(&mirrored).unwrap();
    // A qform whose first axis runs to the right, where the sform's runs to the left; pixdim is there.
    bytes[252..254].copy_from_slice(&1_i16.to_le_bytes());
    std::fs::write(&mirrored, bytes).unwrap();
    let e = failure(&mirrored, "mask 'none'").await;
    assert!(e.contains("OPTIONS (xform 'sform') or (xform 'qform')"), "{e}");
    for (xform, step) in [("sform", -2.0), ("qform", 2.0)] {
        let ctx = session();
        create(&ctx, &mirrored, &format!("mask 'none', xform '{xform}'")).await.unwrap();
        let rows = query(&ctx, "SELECT * FROM bold").await;
        assert_eq!(Grid::of(&rows.schema()).unwrap().affine[0][0], step);
        assert_eq!(rows.num_rows(), 60);
        // Masks are believed in the same way.
        let mask = folder.path().join("mirrored_mask.nii");
        write(&mask, 1, 0.0, |v, _| f32::from(v % 3 == 0));
        let mut bytes = std::fs::read(&mask).unwrap();
        bytes[252..254].copy_from_slice(&1_i16.to_le_bytes());
        std::fs::write(&mask, bytes).unwrap();
        create(&ctx, &mirrored, &format!("mask '{}', xform '{xform}'", mask.display())).await.unwrap();
        assert_eq!(query(&ctx, "SELECT series FROM bold").await.num_rows(), 20);
    }
    assert!(failure(&bold, "xform 'both'").await.contains("use agree, sform or qform"));
}

#[tokio::test(flavor = "multi_thread")]
async fn parcels_that_the_mask_removes_whole_are_in_the_ledger() {
    let (folder, bold, mask) = folder();
    let (atlas, names) = (folder.path().join("atlas.nii"), folder.path().join("names.tsv"));
    write(&atlas, 1, 0.0, |v, _| (v % 4) as f32 * 3.0);
    let beside = folder.path().join("few.nii");
    // Of every third voxel those that hold the label 3.
    write(&beside, 1, 0.0, |v, _| f32::from(v % 3 == 0 && v % 4 == 1));
    std::fs::write(&names, "index\tname\n3\tleft\n6\tmiddle\n9\tright\n").unwrap();
    let ctx = session();
    let options = |mask: &Path| {
        format!("atlas '{}', atlas_labels '{}', mask '{}'", atlas.display(), names.display(), mask.display())
    };
    create(&ctx, &bold, &options(&beside)).await.unwrap();
    let table = ctx.table_provider("bold").await.unwrap();
    let ledger = table.downcast_ref::<NiftiTable>().unwrap().ledger();
    let dropped: Vec<String> = told(ledger).into_iter().filter(|entry| entry.contains("dropped")).collect();
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    assert!(dropped[0].contains("no voxel of the parcel lies in the mask"), "{dropped:?}");
    assert!(dropped[0].contains("6 (middle)") && dropped[0].contains("9 (right)"), "{dropped:?}");
    assert_eq!(query(&ctx, "SELECT parcel FROM bold").await.num_rows(), 1);
    // A mask that leaves something of each.
    create(&ctx, &bold, &options(&mask)).await.unwrap();
    let table = ctx.table_provider("bold").await.unwrap();
    let ledger = table.downcast_ref::<NiftiTable>().unwrap().ledger();
    assert!(!told(ledger).iter().any(|entry| entry.contains("dropped")));
}

/// An image costs no more room than before unless its numbers need it.
#[tokio::test(flavor = "multi_thread")]
async fn series_are_of_64_bits_only_where_single_precision_loses_numbers() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/precision");
    for (file, double) in [
        ("ordinary.nii", false),
        ("float64.nii", true),
        ("int16.nii", true),
        ("int32.nii", true),
        ("float32.nii", true),
    ] {
        let ctx = session();
        // On disk as in memory.
        for limit in ["512MB", "1"] {
            create(&ctx, &fixtures.join(file), &format!("mask 'none', memory_limit '{limit}'"))
                .await
                .unwrap();
            let rows = query(&ctx, "SELECT series FROM bold").await;
            let list = rows.column(0).as_fixed_size_list();
            assert_eq!(list.value_type() == DataType::Float64, double, "{file}");
            if file == "float64.nii" {
                let first = list.value(0).as_primitive::<Float64Type>().value(0);
                let bytes = std::fs::read(fixtures.join(file)).unwrap();
                assert_eq!(first.to_le_bytes(), bytes[352..360], "as it is stored");
            }
        }
    }
}

/// As nilearn's `NiftiMasker.inverse_transform` of p and a fill of NaN: 0 outside would be the most significant value.
#[tokio::test(flavor = "multi_thread")]
async fn voxels_without_a_value_are_nan_or_what_fill_says() {
    let (folder, bold, _) = folder();
    let ctx = session();
    create(&ctx, &bold, "mask 'none'").await.unwrap();
    let sql = "SELECT voxel, CASE voxel WHEN 5 THEN NULL WHEN 6 THEN 'NaN'::FLOAT ELSE voxel / 60.0 END AS p, \
               CASE WHEN voxel = 5 THEN NULL ELSE arrow_cast(voxel, 'Int16') END AS label, \
               CASE WHEN voxel = 5 THEN NULL ELSE series END AS series FROM bold WHERE voxel < 50";
    for fill in [f32::NAN, 0.0, -1.0] {
        let frame = ctx.sql(sql).await.unwrap();
        let target = folder.path().join("filled/{column}.nii");
        let plan = check_export(frame.schema().as_arrow(), target.to_str().unwrap()).unwrap();
        let options = ExportOptions { fill, ..ExportOptions::default() };
        let files = export_maps(&plan, frame.execute_stream().await.unwrap(), &options).await.unwrap();
        for (file, valueless) in files.iter().zip([&[5, 6, 50, 59][..], &[5, 50, 59], &[5, 50, 59]]) {
            let (header, values) = NiftiReader::open(file).unwrap().read_all().unwrap();
            for volume in values.chunks(60) {
                for voxel in valueless {
                    assert_eq!(volume[*voxel].to_bits(), fill.to_bits(), "{file:?}, voxel {voxel}");
                }
                assert!(volume[7].is_finite(), "{file:?}");
            }
            assert_eq!(header.data_type, voxelflow_formats::DataType::F32, "an integer has no NaN");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_of_nothing_but_nulls_is_refused_before_a_file_is_begun() {
    let (folder, bold, _) = folder();
    let ctx = session();
    create(&ctx, &bold, "mask 'none'").await.unwrap();
    let nulls = "CASE WHEN voxel < 0 THEN 0.5 END";
    for (sql, target, says) in [
        (
            format!("SELECT voxel, series[1] AS a, {nulls} AS score FROM bold"),
            "{column}.nii",
            "`score` has no value: all 60 rows",
        ),
        (
            format!("SELECT voxel, {nulls} AS q, 'NaN'::FLOAT AS p FROM bold"),
            "{column}.nii",
            "`q`, `p` have no value",
        ),
        (
            format!("SELECT voxel, subject, {nulls} AS q FROM bold"),
            "{subject}.nii",
            "`q` of subject 01 has no value",
        ),
    ] {
        let e = export(&ctx, &sql, &folder.path().join("none").join(target)).await.unwrap_err();
        assert!(e.is_input() && e.to_string().contains(says), "{e}");
        assert!(!folder.path().join("none").exists(), "{sql} left something");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_null_key_cannot_name_a_file() {
    let (folder, bold, _) = folder();
    let ctx = session();
    create(&ctx, &bold, "mask 'none'").await.unwrap();
    let sql = "SELECT voxel, session, series[1] AS x FROM bold";
    let e = export(&ctx, sql, &folder.path().join("{session}.nii")).await.unwrap_err();
    assert!(e.is_input() && e.to_string().contains("`session` is empty"), "{e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sidecar_outranks_the_header() {
    let (folder, bold, _) = folder();
    let sidecar = folder.path().join("sub-01_task-x_run-1_space-Y_bold.json");
    std::fs::write(&sidecar, r#"{"RepetitionTime": 2.5}"#).unwrap();
    let ctx = session();
    create(&ctx, &bold, "mask 'none'").await.unwrap();
    assert_eq!(
        Grid::of(&query(&ctx, "SELECT voxel FROM bold LIMIT 1").await.schema()).unwrap().t_r,
        Some(2.5)
    );
    std::fs::write(&sidecar, r#"{"RepetitionTime": 2500}"#).unwrap();
    assert!(failure(&bold, "mask 'none'").await.contains("milliseconds?"));
}

fn data(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VOXELFLOW_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let path = root.join(path);
    if !path.exists() {
        println!("SKIPPED: {} is not there; set VOXELFLOW_DATA", path.display());
    }
    path.exists().then_some(path)
}

/// Values of `nibabel.load(…).get_fdata()` and of `nilearn.masking.compute_epi_mask`.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_run_equals_nibabel_and_nilearn() {
    let text = include_str!("fixtures/real_runs.json");
    let fixture: serde_json::Value = serde_json::from_str(text).unwrap();
    for (name, expected) in fixture["runs"].as_object().unwrap() {
        let Some(path) = data(name) else { continue };
        let ctx = session();
        create(&ctx, &path, "mask 'auto'").await.unwrap();
        let rows = query(&ctx, "SELECT voxel, series FROM bold ORDER BY voxel").await;
        let voxels = rows.column_by_name("voxel").unwrap().as_primitive::<UInt32Type>().values().to_vec();
        assert_eq!(voxels.len() as u64, expected["mask_voxels"].as_u64().unwrap(), "{name}");
        let indices: Vec<u8> = voxels.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(
            blake3::hash(&indices).to_hex().as_str(),
            expected["mask_blake3"].as_str().unwrap(),
            "{name}"
        );
        let found = series(&rows);
        let time_points = found.len() / voxels.len();
        for sample in expected["samples"].as_array().unwrap() {
            let [row, t] = ["row", "t"].map(|n| sample[n].as_u64().unwrap() as usize);
            let (a, b) = (f64::from(found[row * time_points + t]), sample["value"].as_f64().unwrap());
            assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0), "{name} {sample}: {a}");
        }
        // The mask is known now: counting needs no file, and a tight limit spills to the same bits.
        create(&ctx, &path, "mask 'auto', memory_limit '1MB'").await.unwrap();
        let spilled = query(&ctx, "SELECT voxel, series FROM bold ORDER BY voxel").await;
        assert_eq!(bits(&series(&spilled)), bits(&found), "{name}");
        let (grid, mean) = mean_image(&path).unwrap();
        let middle = expected["mean_sample"]["voxel"].as_u64().unwrap() as usize;
        let value = expected["mean_sample"]["value"].as_f64().unwrap();
        assert_eq!(mean.len(), grid.shape.iter().product::<usize>());
        assert!((f64::from(mean[middle]) - value).abs() <= 1e-5 * value.abs().max(1.0), "{name}");
    }
}

#[test]
fn a_table_is_known_by_what_it_reads() {
    let (folder, bold, mask) = folder();
    let identity = |options: &[(&str, &str)]| {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        NiftiTable::try_new(&[bold.to_str().unwrap()], &options, &Stores::default())
            .unwrap()
            .identity()
            .unwrap()
    };
    let masked = [("mask", mask.to_str().unwrap())];
    let all = [identity(&[]), identity(&[("mask", "none")]), identity(&masked)];
    assert_eq!(all, [identity(&[]), identity(&[("mask", "none")]), identity(&masked)]);
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    write(&mask, 1, 0.0, |v, _| f32::from(v % 2 == 0));
    assert_ne!(identity(&masked), all[2], "the mask's voxels count");
    write(&bold, VOLUMES + 1, 0.0, value);
    assert_ne!(identity(&[]), all[0], "the image counts");
    drop(folder);
}
