//! Tables whose volumes are resampled, smoothed or divided into parcels: the series of nilearn's maskers, and what is
//! refused.
#![allow(clippy::unwrap_used)]

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Float64Type, Int32Type, UInt16Type, UInt32Type};
use datafusion::prelude::{SessionConfig, SessionContext};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use voxelflow_formats::npy::NpyReader;
use voxelflow_formats::{DataType, NiftiReader, NiftiSpec, NiftiWriter};
use voxelflow_stage::{Atlas, AtlasKind, Grid};
use voxelflow_storage::{StoreRegistry, publish_object};
use voxelflow_tables::{Error, ImageTables, check_export};

fn session() -> SessionContext {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    for tables in ImageTables::ALL {
        ctx.state_ref().write().table_factories_mut().insert(tables.name().into(), Arc::new(tables));
    }
    ctx
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/volumes").join(name)
}

fn bold() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/ds003_sub-01_mc.nii.gz")
}

fn array(name: &str) -> Vec<f64> {
    NpyReader::open(fixture(name)).unwrap().read_all().unwrap()
}

/// A copy of an image in which `change` was done to the values, `[volumes, voxels]`.
fn altered(from: &Path, to: &Path, change: impl FnOnce(&mut Vec<f32>, [usize; 3])) {
    let (header, mut values) = NiftiReader::open(from).unwrap().read_all().unwrap();
    change(&mut values, header.shape);
    let spec = NiftiSpec::new(header.shape, header.volumes)
        .with_affine(header.affine, header.xform_code)
        .with_t_r(2.0);
    let mut writer = NiftiWriter::create(to, &spec).unwrap();
    values.chunks(header.voxels()).for_each(|volume| writer.write_volume(volume).unwrap());
    writer.finish().unwrap();
}

async fn create(ctx: &SessionContext, location: &Path, options: &str) -> Result<(), Error> {
    let sql = format!(
        "CREATE OR REPLACE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS ({options})",
        location.display()
    );
    ctx.sql(&sql).await.map(|_| ()).map_err(Error::Plan)
}

async fn query(ctx: &SessionContext, sql: &str) -> RecordBatch {
    let batches = ctx.sql(sql).await.unwrap().collect().await.unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

async fn rows(location: &Path, options: &str) -> RecordBatch {
    let ctx = session();
    create(&ctx, location, options).await.unwrap();
    query(&ctx, "SELECT * FROM bold").await
}

async fn refusal(location: &Path, options: &str) -> String {
    let e = create(&session(), location, options).await.unwrap_err();
    assert!(e.is_input(), "{e}");
    e.to_string()
}

fn series(batch: &RecordBatch) -> Vec<f64> {
    let list = batch.column_by_name("series").unwrap().as_fixed_size_list();
    list.values().as_primitive::<Float64Type>().values().to_vec()
}

fn parcels(batch: &RecordBatch) -> Vec<i32> {
    batch.column_by_name("parcel").unwrap().as_primitive::<Int32Type>().values().to_vec()
}

/// The options of a case, whose files lie beside it.
fn options_of(case: &Value) -> String {
    let mut text = String::new();
    for (name, value) in case["options"].as_object().unwrap() {
        let value = match value.as_str() {
            Some(file) if name != "strategy" => fixture(&format!("{file}.nii.gz")).display().to_string(),
            Some(word) => word.to_owned(),
            None => value.to_string(),
        };
        write!(text, "{}{name} '{value}'", if text.is_empty() { "" } else { ", " }).unwrap();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn series_are_those_of_nilearns_maskers() {
    let index: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("index.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let with_holes = folder.path().join("bold.nii.gz");
    altered(&bold(), &with_holes, |values, [ni, nj, nk]| {
        for hole in index["holes"].as_array().unwrap() {
            let at = |axis: usize| hole[axis].as_u64().unwrap() as usize;
            values[at(3) * ni * nj * nk + at(0) + ni * (at(1) + nj * at(2))] = f32::NAN;
        }
    });
    let raw = array("raw.npy");
    let (mut theirs, cases) = (raw.as_slice(), index["cases"].as_array().unwrap());
    for case in cases {
        let image = if case["holes"] == true { with_holes.clone() } else { bold() };
        // In memory, and through a temporary file.
        for limit in ["", ", memory_limit 200"] {
            let found = rows(&image, &format!("{}{limit}", options_of(case))).await;
            let numbers: Vec<i64> = match case["parcels"] == true {
                true => parcels(&found).into_iter().map(i64::from).collect(),
                false => {
                    let voxels = found.column_by_name("voxel").unwrap().as_primitive::<UInt32Type>();
                    voxels.values().iter().map(|v| i64::from(*v)).collect()
                }
            };
            assert_eq!(numbers.len() as u64, case["of"].as_u64().unwrap(), "{case}");
            let ours = series(&found);
            let mut worst = 0.0_f64;
            for (number, theirs) in case["rows"].as_array().unwrap().iter().zip(theirs.chunks_exact(20)) {
                let row = numbers.iter().position(|n| Some(*n) == number.as_i64()).unwrap();
                for (t, (a, b)) in ours[row * 20..].iter().zip(theirs).enumerate() {
                    let error = (a - b).abs() / b.abs().max(1.0);
                    assert!(error <= 1e-5, "{}, row {number}, volume {t}: {a} instead of {b}", case["name"]);
                    worst = worst.max(error);
                }
            }
            println!("{}{limit}: {} rows, largest error {worst:.1e}", case["name"], numbers.len());
        }
        theirs = &theirs[case["rows"].as_array().unwrap().len() * 20..];
    }
    assert!(theirs.is_empty() && cases.len() == 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_options_changes_nothing_and_the_grid_is_the_one_after_resampling() {
    let options = |before: &str, after: &str| {
        format!(
            "{before}interpolation 'linear', mask '{}', target '11, 12, 13'{after}",
            fixture("mask.nii.gz").display()
        )
    };
    let (one, other) = (options("smoothing_fwhm 25, ", ""), options("", ", smoothing_fwhm 25"));
    let (one, other) = (rows(&bold(), &one).await, rows(&bold(), &other).await);
    assert_eq!(one, other);
    let grid = Grid::of(&one.schema()).unwrap();
    let sizes: Vec<f64> = (0..3).map(|axis| grid.affine[axis][axis]).collect();
    assert_eq!((sizes.as_slice(), grid.t_r), (&[11.0, 12.0, 13.0][..], Some(2.0)));
    assert_eq!(grid.mask_voxels, one.num_rows());
    assert_eq!(grid.history.len(), 2, "{:?}", grid.history);
    assert!(grid.history[0].starts_with("resample: linear, to 19×17×11 voxels"), "{:?}", grid.history);
    assert!(grid.history[1].starts_with("smooth: FWHM 25 mm"), "{:?}", grid.history);
    let index = |name: &str| one.column_by_name(name).unwrap().as_primitive::<UInt16Type>().clone();
    let (i, j, k) = (index("i"), index("j"), index("k"));
    let voxel = one.column_by_name("voxel").unwrap().as_primitive::<UInt32Type>();
    let [ni, nj, _] = grid.shape.map(|n| n as u32);
    for row in 0..one.num_rows() {
        let [i, j, k] = [&i, &j, &k].map(|index| u32::from(index.value(row)));
        assert_eq!(i + ni * (j + nj * k), voxel.value(row));
    }
    // Maps of it lie on that grid.
    assert_eq!(check_export(&one.schema(), "/m/{column}.nii").unwrap().grid.shape, grid.shape);
}

#[tokio::test(flavor = "multi_thread")]
async fn projections_counts_and_limits_of_computed_tables() {
    let ctx = session();
    create(&ctx, &bold(), &format!("smoothing_fwhm 25, mask '{}'", fixture("mask.nii.gz").display()))
        .await
        .unwrap();
    let all = query(&ctx, "SELECT * FROM bold").await;
    let few = query(&ctx, "SELECT series, voxel FROM bold LIMIT 3").await;
    assert_eq!(few.column(0).as_ref(), all.column_by_name("series").unwrap().slice(0, 3).as_ref());
    let count = query(&ctx, "SELECT count(*) AS n, max(voxel) AS m FROM bold").await;
    let n = count.column(0).as_primitive::<datafusion::arrow::datatypes::Int64Type>().value(0);
    assert_eq!(n as usize, all.num_rows());

    create(&ctx, &bold(), &format!("atlas '{}'", fixture("labels.nii.gz").display())).await.unwrap();
    let few = query(&ctx, "SELECT parcel FROM bold LIMIT 2").await;
    assert_eq!(parcels(&few), [3, 200]);
    let plan =
        ctx.sql("SELECT * FROM bold ORDER BY parcel").await.unwrap().create_physical_plan().await.unwrap();
    let text = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
    assert!(text.contains("mask=none") && !text.contains("SortExec"), "{text}");
}

/// Case 14: a label of 200 in eight bits, and in eight bits with a sign, where the header adds to it.
#[tokio::test(flavor = "multi_thread")]
async fn labels_over_127_do_not_wrap_and_have_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("names.tsv");
    std::fs::write(&names, "index\tname\n3\tThalamus\n200\tVisual cortex\n7\tnowhere\n").unwrap();
    let options = |atlas: &Path| format!("atlas '{}', atlas_labels '{}'", atlas.display(), names.display());
    let found = rows(&bold(), &options(&fixture("labels.nii.gz"))).await;
    assert_eq!(parcels(&found), [3, 200, 255]);
    let text = found.column_by_name("parcel_name").unwrap().as_string::<i32>().clone();
    assert_eq!((text.value(0), text.value(1), text.is_null(2)), ("Thalamus", "Visual cortex", true));
    assert!(found.column_by_name("voxel").is_none());
    let atlas = Atlas::of(&found.schema()).unwrap().unwrap();
    assert_eq!((atlas.kind, atlas.parcels), (AtlasKind::Labels, 3));
    let grid = Grid::of(&found.schema()).unwrap();
    assert!(grid.history[0].starts_with("parcels: mean of the labels of "), "{:?}", grid.history);
    assert_eq!((grid.shape, grid.t_r), ([16, 16, 9], Some(2.0)));

    let signed = folder.path().join("signed.nii");
    let (header, labels) = NiftiReader::open(fixture("labels.nii.gz")).unwrap().read_all().unwrap();
    let spec = NiftiSpec::like(&header, 1).with_data_type(DataType::U8);
    let mut writer = NiftiWriter::create(&signed, &spec).unwrap();
    writer.write_volume(&labels.iter().map(|x| (x + 156.0) % 256.0).collect::<Vec<f32>>()).unwrap();
    writer.finish().unwrap();
    let mut bytes = std::fs::read(&signed).unwrap();
    // int8, and 100 is added to every value.
    bytes[70..72].copy_from_slice(&256_i16.to_le_bytes());
    bytes[112..116].copy_from_slice(&1.0_f32.to_le_bytes());
    bytes[116..120].copy_from_slice(&100.0_f32.to_le_bytes());
    std::fs::write(&signed, bytes).unwrap();
    let signed = rows(&bold(), &options(&signed)).await;
    // 155 is over what eight bits with a sign hold: 255 comes back as −1.
    assert_eq!(parcels(&signed), [-1, 3, 200]);
    let visual = |batch: &RecordBatch| {
        let row = parcels(batch).iter().position(|p| *p == 200).unwrap();
        series(batch)[row * 20..(row + 1) * 20].to_vec()
    };
    assert_eq!(visual(&found), visual(&signed));
    let e = check_export(&found.schema(), "/m/{column}.nii").unwrap_err().to_string();
    assert!(e.contains("rows are parcels of ") && e.contains("labels.nii.gz"), "{e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_several_grids_make_one_table_of_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let (header, values) = NiftiReader::open(bold()).unwrap().read_all().unwrap();
    let mut affine = header.affine;
    affine[0][3] += 1.0;
    for (name, affine) in [("a_bold.nii", header.affine), ("b_bold.nii", affine)] {
        let spec = NiftiSpec::new(header.shape, 3).with_affine(affine, 1).with_t_r(2.0);
        let mut writer = NiftiWriter::create(folder.path().join(name), &spec).unwrap();
        values.chunks(header.voxels()).take(3).for_each(|volume| writer.write_volume(volume).unwrap());
        writer.finish().unwrap();
    }
    let text = refusal(folder.path(), "mask 'none', smoothing_fwhm 20").await;
    assert!(text.contains("b_bold.nii") && text.contains("a_bold.nii") && text.contains("target"), "{text}");
    let target = fixture("fine_labels.nii.gz");
    let found = rows(folder.path(), &format!("mask 'none', target '{}'", target.display())).await;
    assert_eq!(found.num_rows(), 2 * 17 * 16 * 11);
    assert_eq!(Grid::of(&found.schema()).unwrap().shape, [17, 16, 11]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_when_the_table_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    altered(&fixture("labels.nii.gz"), &file("halves.nii"), |values, _| values[5] = 0.5);
    altered(&fixture("labels.nii.gz"), &file("large.nii"), |values, _| values[5] = 3e8);
    altered(&fixture("labels.nii.gz"), &file("empty.nii"), |values, _| values.fill(0.0));
    std::fs::write(file("names.txt"), "1 Somewhere\n").unwrap();
    let far = NiftiSpec::new([4; 3], 1).with_affine(
        [[1.0, 0.0, 0.0, 9e3], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
        1,
    );
    let mut writer = NiftiWriter::create(file("far.nii"), &far).unwrap();
    writer.write_volume(&[1.0; 64]).unwrap();
    writer.finish().unwrap();
    let image = |name: &str| fixture(&format!("{name}.nii.gz")).display().to_string();
    let own = |name: &str| file(name).display().to_string();
    let bold_path = bold().display().to_string();
    for (options, says) in [
        (
            format!("atlas '{}'", image("fine_labels")),
            vec!["atlas ", "fine_labels.nii.gz", &bold_path, "give target"],
        ),
        (format!("mask '{}', smoothing_fwhm 5", image("fine_labels")), vec!["mask ", "the image's own grid"]),
        (
            format!("mask '{}', target 20", image("fine_labels")),
            vec!["the target of 20 mm voxels", "or on the image's own"],
        ),
        (format!("atlas '{}'", own("halves.nii")), vec!["halves.nii", "no label"]),
        (format!("atlas '{}'", own("large.nii")), vec!["16,777,216"]),
        (format!("atlas '{}'", own("empty.nii")), vec!["empty.nii", "background"]),
        (format!("atlas '{}'", own("missing.nii")), vec!["missing.nii"]),
        (format!("atlas '{}', strategy 'median'", image("maps")), vec!["strategy is for atlases of labels"]),
        (
            format!("atlas '{}', atlas_labels '{}'", image("labels"), own("names.txt")),
            vec!["names none of the parcels"],
        ),
        (
            format!("atlas '{}', atlas_labels '{}'", image("labels"), own("no.txt")),
            vec!["no.txt", "no such file"],
        ),
        (format!("target '{}', mask 'none'", own("far.nii")), vec!["holds no point of the image"]),
        ("smoothing_fwhm 1e30, mask 'none'".into(), vec!["cannot be smoothed"]),
        ("target 0.0001, mask 'none'".into(), vec!["65,535"]),
        ("interpolation 'nearest'".into(), vec!["beside `target`"]),
    ] {
        let text = refusal(&bold(), &options).await;
        says.iter().for_each(|part| assert!(text.contains(part), "{options}: {text}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_atlas_and_a_grid_may_lie_in_a_store() {
    let registry = StoreRegistry::global();
    for name in ["labels", "fine_labels"] {
        let to = registry.resolve(&format!("memory://image-volumes/{name}.nii.gz")).unwrap();
        let file = tokio::fs::File::open(fixture(&format!("{name}.nii.gz"))).await.unwrap();
        publish_object(&to.store, &to.path, file).await.unwrap();
    }
    let there = "atlas 'memory://image-volumes/fine_labels.nii.gz', target 'memory://image-volumes/fine_labels.nii.gz'";
    let here = format!("atlas '{0}', target '{0}'", fixture("fine_labels.nii.gz").display());
    let table = |options: &str| {
        let options: voxelflow_stage::Options = options
            .split(", ")
            .map(|option| {
                let (name, value) = option.split_once(' ').unwrap();
                (name.to_owned(), Value::from(value.trim_matches('\'')))
            })
            .collect();
        let locations = [bold().display().to_string()];
        ImageTables::Nifti.open(&locations, &options, &voxelflow_tables::Stores::default())
    };
    let read = |options: String| async move {
        let table = tokio::task::spawn_blocking(move || table(&options)).await.unwrap().unwrap();
        let ctx = session();
        ctx.register_table("bold", table).unwrap();
        query(&ctx, "SELECT * FROM bold").await
    };
    assert_eq!(read(there.to_owned()).await.columns(), read(here).await.columns());
}
