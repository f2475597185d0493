//! Tables of GIFTI, CIFTI, MGH and npy files through a session: values as nibabel and numpy read them, keys, metadata,
//! stores, plans that travel, faults.
#![allow(clippy::unwrap_used)]

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, UInt16Type, UInt32Type};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, collect_partitioned};
use datafusion::prelude::{SessionConfig, SessionContext};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use voxelflow_formats::gifti::{GiftiWriter, Intent, Surface};
use voxelflow_signal::{SurfaceScratch, SurfaceSmoother};
use voxelflow_stage::{EventFiles, Grid, RunFiles, SeriesOrigin, Structure};
use voxelflow_storage::{StoreRegistry, publish_object};
use voxelflow_tables::{Error, ImageTables, SeriesExec, Stores};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/fixtures")
}

/// What nibabel and numpy read (integration-tests/reference/formats_reference.py).
fn reference() -> Value {
    serde_json::from_slice(&std::fs::read(fixtures().join("formats.json")).unwrap()).unwrap()
}

fn session() -> SessionContext {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    for tables in ImageTables::ALL {
        ctx.state_ref().write().table_factories_mut().insert(tables.name().into(), Arc::new(tables));
    }
    ctx
}

async fn create(ctx: &SessionContext, kind: &str, location: &str, options: &str) -> Result<(), Error> {
    let sql = format!("CREATE OR REPLACE EXTERNAL TABLE t STORED AS {kind} LOCATION '{location}' {options}");
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

async fn rows(kind: &str, location: &Path, options: &str) -> RecordBatch {
    let ctx = session();
    create(&ctx, kind, location.to_str().unwrap(), options).await.unwrap();
    query(&ctx, "SELECT * FROM t").await
}

async fn refusal(kind: &str, location: &Path, options: &str) -> String {
    let e = create(&session(), kind, location.to_str().unwrap(), options).await.unwrap_err();
    assert!(e.is_input(), "{e}");
    e.to_string()
}

fn text(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(column).unwrap().as_string::<i32>();
    column.iter().map(|value| value.map(str::to_owned)).collect()
}

fn numbers(batch: &RecordBatch, column: &str) -> Vec<Option<u32>> {
    batch.column_by_name(column).unwrap().as_primitive::<UInt32Type>().iter().collect()
}

/// `[rows][points]`
fn series(batch: &RecordBatch) -> Vec<Vec<f32>> {
    let list = batch.column_by_name("series").unwrap().as_fixed_size_list();
    let row = |row| cast(&row, &DataType::Float32).unwrap().as_primitive::<Float32Type>().values().to_vec();
    list.iter().map(|values| row(values.unwrap())).collect()
}

/// `[points][rows]` of the reference, as `[rows][points]`.
fn turned(frames: &Value) -> Vec<Vec<f32>> {
    let frames: Vec<Vec<f32>> = frames
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| serde_json::from_value(frame.clone()).unwrap())
        .collect();
    (0..frames[0].len()).map(|row| frames.iter().map(|frame| frame[row]).collect()).collect()
}

fn gifti_frames(name: &str) -> Value {
    let arrays = reference()["gifti"][name]["arrays"].clone();
    arrays.as_array().unwrap().iter().map(|array| array["values"].clone()).collect()
}

/// A folder with fixtures under other names.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (fixture, name) in files {
        std::fs::copy(fixtures().join(fixture), folder.path().join(name)).unwrap();
    }
    folder
}

const LEFT: &str = "sub-01_task-rest_hemi-L_space-fsaverage5_bold.func.gii";
const OTHER: &str = "sub-02_task-rest_hemi-L_space-fsaverage5_bold.func.gii";

#[tokio::test(flavor = "multi_thread")]
async fn every_encoding_of_gifti_gives_the_values_of_nibabel() {
    for name in [
        "series_ascii_big.func.gii",
        "series_base64_little.func.gii",
        "series_base64_big.func.gii",
        "series_gzip_little.func.gii",
        "series_compressed.func.gii.gz",
    ] {
        let found = rows("GIFTI", &fixtures().join("gifti").join(name), "").await;
        assert_eq!(series(&found), turned(&gifti_frames(name)), "{name}");
        let vertices: Vec<Option<u32>> = (0..found.num_rows() as u32).map(Some).collect();
        assert_eq!(numbers(&found, "vertex"), vertices);
        assert!(text(&found, "structure").iter().all(|s| s.as_deref() == Some("CORTEX_LEFT")));
    }
}

fn layouts(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_array_of_vertices_and_time_points_is_read_as_nilearn_writes_it() {
    let expected: Value = serde_json::from_slice(&std::fs::read(layouts("expected.json")).unwrap()).unwrap();
    for (side, vertices) in [("L", 5), ("R", 4)] {
        let name = format!("nilearn_hemi-{side}.gii");
        let found = rows("GIFTI", &layouts(&name), "OPTIONS (t_r 2)").await;
        let theirs: Vec<Vec<f32>> = serde_json::from_value(expected[&name].clone()).unwrap();
        assert_eq!((series(&found), found.num_rows()), (theirs, vertices), "{name}");
    }
}

/// More vertices than `dim` of NIfTI-1 can count: -1 with the number in `glmin`, or factors of that of fsaverage7.
#[tokio::test(flavor = "multi_thread")]
async fn surfaces_that_freesurfer_keeps_in_nifti_are_vertices() {
    let expected: Value = serde_json::from_slice(&std::fs::read(layouts("expected.json")).unwrap()).unwrap();
    for (name, side, stored) in [
        ("lh.many.nii.gz", "CORTEX_LEFT", [4, -1, 1, 1]),
        ("rh.fsaverage7.nii.gz", "CORTEX_RIGHT", [4, 27307, 1, 6]),
    ] {
        assert_eq!(expected[name]["stored"], serde_json::json!(stored), "the fixture is what it is for");
        for kind in ["MGH", "NIFTI"] {
            let found = rows(kind, &layouts(name), "").await;
            assert_eq!(
                Some(found.num_rows() as u64),
                expected[name]["shape"][0].as_u64(),
                "{name} as {kind}"
            );
            let last: Vec<f32> = serde_json::from_value(expected[name]["last"].clone()).unwrap();
            assert_eq!(series(&found).last(), Some(&last));
            assert_eq!(text(&found, "structure")[0].as_deref(), Some(side));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hemispheres_are_one_table_with_keys_from_their_names_and_the_sidecar_t_r() {
    // Neither array says its structure there: the names do.
    let folder = folder(&[
        ("mgh/surface_f4.mgz", "sub-01_task-rest_run-2.lh.mgz"),
        ("mgh/surface_f4.mgz", "sub-01_task-rest_run-2.rh.mgz"),
    ]);
    std::fs::write(folder.path().join("sub-01_task-rest_run-2.json"), r#"{"RepetitionTime": 1.4}"#).unwrap();
    let (ctx, location) = (session(), folder.path().join("*.mgz"));
    create(&ctx, "MGH", location.to_str().unwrap(), "OPTIONS (space 'fsaverage5')").await.unwrap();
    let found = query(&ctx, "SELECT * FROM t ORDER BY structure, vertex").await;
    let expected = turned(&reference()["mgh"]["surface_f4.mgz"]["frames"]);
    assert_eq!(series(&found), [expected.clone(), expected].concat());
    for (column, value) in [("subject", "01"), ("task", "rest"), ("run", "2"), ("space", "fsaverage5")] {
        assert!(text(&found, column).iter().all(|v| v.as_deref() == Some(value)), "{column}");
    }
    let sides = text(&found, "structure");
    assert_eq!((sides[0].as_deref(), sides[83].as_deref()), (Some("CORTEX_LEFT"), Some("CORTEX_RIGHT")));
    let origin = SeriesOrigin::of(&found.schema()).unwrap();
    // Of the file 2.5 s is known too, but it stands behind the values and is often a placeholder.
    assert_eq!(origin.t_r, Some(1.4));
    let side = |name: &str| Structure { name: Some(name.into()), rows: 42, surface_vertices: Some(42) };
    assert_eq!(origin.structures, [side("CORTEX_LEFT"), side("CORTEX_RIGHT")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_mgh_are_voxels_on_a_grid() {
    let file = fixtures().join("mgh/volume_u1.mgz");
    let found = rows("MGH", &file, "OPTIONS (mask 'none', t_r 2)").await;
    let known = &reference()["mgh"]["volume_u1.mgz"];
    assert_eq!(series(&found), turned(&known["frames"]));
    let grid = Grid::of(&found.schema()).unwrap();
    let affine: [[f64; 4]; 4] = serde_json::from_value(known["affine"].clone()).unwrap();
    for (a, b) in grid.affine.iter().flatten().zip(affine.iter().flatten()) {
        assert!((a - b).abs() < 1e-5, "{grid:?}");
    }
    assert_eq!((grid.shape, grid.t_r, grid.xform_code), ([3, 4, 5], Some(2.0), 1));
    let k = found.column_by_name("k").unwrap().as_primitive::<UInt16Type>().value(59);
    assert_eq!((numbers(&found, "voxel")[59], k), (Some(59), 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn grayordinates_know_their_structures_vertices_and_voxels() {
    for name in ["series.dtseries.nii", "maps.dscalar.nii", "surfaces.dtseries.nii"] {
        let known = &reference()["cifti"][name];
        let found = rows("CIFTI", &fixtures().join("cifti").join(name), "").await;
        assert_eq!(series(&found), turned(&known["values"]), "{name}");
        let vertices: Vec<i64> = serde_json::from_value(known["vertices"].clone()).unwrap();
        let vertices: Vec<Option<u32>> = vertices.into_iter().map(|v| u32::try_from(v).ok()).collect();
        assert_eq!(numbers(&found, "vertex"), vertices, "{name}");
        let voxels: Vec<[i64; 3]> = serde_json::from_value(known["voxels"].clone()).unwrap();
        for (axis, column) in ["i", "j", "k"].iter().enumerate() {
            let column = found.column_by_name(column).unwrap().as_primitive::<UInt16Type>();
            let expected: Vec<Option<u16>> = voxels.iter().map(|v| u16::try_from(v[axis]).ok()).collect();
            assert_eq!(column.iter().collect::<Vec<_>>(), expected, "{name}");
        }
        let structures = text(&found, "structure");
        for structure in known["structures"].as_array().unwrap() {
            let [first, end] = [1, 2].map(|at| structure[at].as_u64().unwrap() as usize);
            let expected = structure[0].as_str().unwrap().strip_prefix("CIFTI_STRUCTURE_");
            assert!(
                structures[first..end].iter().all(|s| s.as_deref() == expected),
                "{name}: {structures:?}"
            );
        }
        let origin = SeriesOrigin::of(&found.schema()).unwrap();
        assert_eq!(origin.t_r, known["series"]["step"].as_f64(), "{name}");
        let shape: Option<[usize; 3]> = serde_json::from_value(known["volume_shape"].clone()).unwrap();
        assert_eq!(origin.volume.map(|volume| volume.shape), shape, "{name}");
        assert_eq!(origin.structures.len(), known["structures"].as_array().unwrap().len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_of_numpy_are_rows_in_either_order() {
    for (name, columns) in [("f4_le.npy", 4), ("f8_be.npy", 4), ("i2_le.npy", 4), ("line.npy", 1)] {
        let bits: Vec<u64> = serde_json::from_value(reference()["npy"][name]["bits"].clone()).unwrap();
        let exact: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
        let values: Vec<f32> = exact.iter().map(|x| *x as f32).collect();
        let found = rows("NPY", &fixtures().join("npy").join(name), "OPTIONS (t_r 2, subject 7)").await;
        let list = found.column_by_name("series").unwrap().as_fixed_size_list().values();
        if let Some(doubles) = list.as_primitive_opt::<Float64Type>() {
            assert_eq!(doubles.values()[..], exact, "{name}");
        }
        assert_eq!(
            list.data_type() == &DataType::Float64,
            matches!(name, "f8_be.npy" | "line.npy"),
            "{name}"
        );
        assert_eq!(series(&found).concat(), values, "{name}");
        assert_eq!(found.num_rows() * columns, values.len(), "{name}");
        assert_eq!(numbers(&found, "row").last().unwrap(), &Some(found.num_rows() as u32 - 1));
        assert_eq!(text(&found, "subject")[0].as_deref(), Some("7"));
        assert_eq!(SeriesOrigin::of(&found.schema()).unwrap().t_r, Some(2.0));
    }
    // Columns first in the file: [[0, 1], [10, 11], [20, 21]].
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turned.npy");
    let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }");
    let mut bytes =
        [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    bytes.extend([0.0_f32, 10.0, 20.0, 1.0, 11.0, 21.0].iter().flat_map(|x| x.to_le_bytes()));
    std::fs::write(&path, bytes).unwrap();
    let found = rows("NPY", &path, "").await;
    assert_eq!(series(&found), [[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]]);
    let text = refusal("NPY", &fixtures().join("npy/fortran.npy"), "").await;
    assert!(text.contains("fortran.npy: its shape is [2, 3, 4]"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_limits_and_little_memory_give_the_same_rows() {
    let file = fixtures().join("gifti/series_gzip_big.func.gii");
    let ctx = session();
    create(&ctx, "GIFTI", file.to_str().unwrap(), "OPTIONS (memory_limit 8)").await.unwrap();
    let all = query(&ctx, "SELECT * FROM t").await;
    assert_eq!(series(&all), turned(&gifti_frames("series_gzip_big.func.gii")));
    let some = query(&ctx, "SELECT series, vertex FROM t LIMIT 5").await;
    assert_eq!(series(&some), series(&all)[..5]);
    let keys = query(&ctx, "SELECT vertex FROM t WHERE vertex >= 4").await;
    assert_eq!(numbers(&keys, "vertex"), numbers(&all, "vertex")[4..]);
    let counted = query(&ctx, "SELECT count(*) AS n FROM t").await;
    assert_eq!(counted.column(0).as_primitive::<Int64Type>().value(0), all.num_rows() as i64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_gives_the_rows_of_the_disk_by_file_folder_and_pattern() {
    let there = StoreRegistry::global().resolve("memory://surfaces/lab").unwrap();
    for (fixture, name) in [
        ("series_gzip_little.func.gii", LEFT),
        ("series_ascii_little.func.gii", OTHER),
        ("mesh.surf.gii", "sub-01_hemi-L_mesh.surf.gii"),
    ] {
        let bytes = std::fs::read(fixtures().join("gifti").join(fixture)).unwrap();
        publish_object(&there.store, &there.path.clone().join("func").join(name), bytes.as_slice())
            .await
            .unwrap();
    }
    let ctx = session();
    ctx.register_object_store(&there.store_url, Arc::clone(&there.store));
    let left = turned(&gifti_frames("series_gzip_little.func.gii"));
    let both = [left.clone(), turned(&gifti_frames("series_ascii_little.func.gii"))].concat();
    for (location, expected) in [
        (format!("func/{LEFT}"), &left),
        ("func/sub-01_*.func.gii".to_owned(), &left),
        ("".to_owned(), &both),
    ] {
        create(&ctx, "GIFTI", &format!("memory://surfaces/lab/{location}"), "").await.unwrap();
        assert_eq!(
            &series(&query(&ctx, "SELECT * FROM t ORDER BY subject, vertex").await),
            expected,
            "{location}"
        );
    }
    let e = create(&ctx, "GIFTI", "memory://surfaces/lab/func/sub-03_*.gii", "").await.unwrap_err();
    assert!(e.is_input() && e.to_string().contains("matches the pattern"), "{e}");
}

/// The node that reads, under whatever the planner put over it.
fn reading(plan: &Arc<dyn ExecutionPlan>) -> Option<&SeriesExec> {
    plan.downcast_ref().or_else(|| plan.children().into_iter().find_map(reading))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_travels_as_bytes_and_by_parts() {
    let folder =
        folder(&[("gifti/series_gzip_big.func.gii", LEFT), ("gifti/series_ascii_big.func.gii", OTHER)]);
    let ctx = session();
    create(&ctx, "GIFTI", folder.path().to_str().unwrap(), "").await.unwrap();
    let plan = ctx.sql("SELECT vertex, series FROM t").await.unwrap().create_physical_plan().await.unwrap();
    let exec = reading(&plan).unwrap();
    let there = SeriesExec::from_bytes(&exec.to_bytes().unwrap(), &[], Stores::default()).unwrap();
    assert_eq!(there.schema(), plan.schema());
    let parts = there.downcast_ref::<SeriesExec>().unwrap().distributed().unwrap().unwrap();
    assert!(parts.downcast_ref::<SeriesExec>().unwrap().distributed().is_none());
    let here = collect_partitioned(Arc::clone(&plan), Arc::new(TaskContext::default())).await.unwrap();
    assert_eq!(here.len(), 2);
    for received in [there, parts] {
        assert_eq!(collect_partitioned(received, Arc::new(TaskContext::default())).await.unwrap(), here);
    }
    for damaged in [b"{}".as_slice(), b"[1]"] {
        assert!(SeriesExec::from_bytes(damaged, &[], Stores::default()).is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn confounds_are_those_of_the_one_run() {
    let folder = folder(&[("gifti/series_gzip_big.func.gii", LEFT)]);
    let confounds = folder.path().join("confounds.txt");
    let options = format!("OPTIONS (confounds '{}')", confounds.display());
    let found = rows("GIFTI", folder.path(), &options).await;
    let runs = RunFiles::of(&found.schema()).unwrap();
    assert_eq!((runs.len(), runs[0].label().as_str()), (1, "sub-01 task-rest"));
    assert_eq!(runs[0].confounds.as_deref(), confounds.to_str());
    std::fs::copy(folder.path().join(LEFT), folder.path().join(OTHER)).unwrap();
    let text = refusal("GIFTI", folder.path(), &options).await;
    assert!(text.contains("confounds names 1 files") && text.contains("there are 2 runs"), "{text}");
    // One for each, in the order of the files, and events beside them.
    let others = folder.path().join("others.tsv");
    std::fs::write(others.with_extension("json"), "{}").unwrap();
    let evs = folder.path().join("EVs");
    std::fs::create_dir(&evs).unwrap();
    std::fs::write(evs.join("lh.txt"), "1 2 1\n").unwrap();
    std::fs::write(evs.join("rh.txt"), "").unwrap();
    let options = format!(
        "OPTIONS (confounds '{}, {}', events '{}, {}')",
        confounds.display(),
        others.display(),
        evs.display(),
        folder.path().join("events.tsv").display()
    );
    let found = rows("GIFTI", folder.path(), &options).await;
    let runs = RunFiles::of(&found.schema()).unwrap();
    assert_eq!(runs[1].confounds.as_deref(), others.to_str());
    assert_eq!(runs[1].confounds_sidecars, [others.with_extension("json").display().to_string()]);
    let Some(EventFiles::ThreeColumns(files)) = &runs[0].events else { panic!("{runs:?}") };
    assert_eq!(files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["lh", "rh"]);
    assert!(matches!(&runs[1].events, Some(EventFiles::Table(path)) if path.ends_with("events.tsv")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_table_is_named() {
    let gifti = |name: &str| fixtures().join("gifti").join(name);
    let empty = tempfile::tempdir().unwrap();
    for (kind, location, options, says) in [
        ("GIFTI", gifti("mesh.surf.gii"), "", "mesh.surf.gii: it is a mesh"),
        ("GIFTI", gifti("series_gzip_big.func.gii"), "OPTIONS (t_rr 2)", "did you mean `t_r`?"),
        ("GIFTI", gifti("series_gzip_big.func.gii"), "OPTIONS (t_r '-1')", "0.72"),
        ("GIFTI", fixtures().join("mgh/surface_f4.mgz"), "", "surface_f4.mgz"),
        ("GIFTI", empty.path().to_owned(), "", "nothing is there"),
        ("CIFTI", fixtures().join("formats.json"), "", "formats.json"),
        ("NPY", fixtures().join("npy/empty.npy"), "", "empty.npy: its shape [0, 3] has no value"),
        ("MGH", fixtures().join("nowhere/x.mgz"), "", "does not exist"),
        ("MGH", fixtures().join("mgh/volume_u1.mgz"), "OPTIONS (maks 'none')", "did you mean `mask`?"),
    ] {
        let text = refusal(kind, &location, options).await;
        assert!(text.contains(says), "{kind}: {text}");
    }
    let right = folder(&[("gifti/series_gzip_big.func.gii", "sub-01_hemi-R_bold.func.gii")]);
    let text = refusal("GIFTI", right.path(), "").await;
    assert!(
        text.contains("it says that it is of CORTEX_LEFT, and its name that it is of CORTEX_RIGHT"),
        "{text}"
    );
    let folder = folder(&[("mgh/surface_f4.mgz", "a.lh.mgz"), ("mgh/volume_u1.mgz", "b.mgz")]);
    let text = refusal("MGH", folder.path(), "").await;
    assert!(text.contains("b.mgz: it is a volume of [3, 4, 5] voxels among data on surfaces"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_cut_or_that_changes_is_named() {
    let folder =
        folder(&[("mgh/surface_f4.mgz", "a.lh.mgz"), ("cifti/series.dtseries.nii", "a.dtseries.nii")]);
    for (kind, name) in [("MGH", "a.lh.mgz"), ("CIFTI", "a.dtseries.nii")] {
        let path = folder.path().join(name);
        let ctx = session();
        create(&ctx, kind, path.to_str().unwrap(), "").await.unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let e = Error::Plan(ctx.sql("SELECT * FROM t").await.unwrap().collect().await.unwrap_err());
        assert!(e.is_input() && e.to_string().contains(name), "{e}");
    }
    let path = folder.path().join("a.dtseries.nii");
    std::fs::copy(fixtures().join("cifti/series.dtseries.nii"), &path).unwrap();
    let ctx = session();
    create(&ctx, "CIFTI", path.to_str().unwrap(), "").await.unwrap();
    std::fs::copy(fixtures().join("cifti/surfaces.dtseries.nii"), &path).unwrap();
    let e = Error::Plan(ctx.sql("SELECT * FROM t").await.unwrap().collect().await.unwrap_err());
    assert!(e.to_string().contains("a.dtseries.nii: it has changed"), "{e}");
}

/// An octahedron of 30 mm whose first vertex has no signal: a GIFTI series of `POINTS` points, and its mesh.
fn octahedron(folder: &Path) -> (PathBuf, PathBuf) {
    let points = "30 0 0 -30 0 0 0 30 0 0 -30 0 0 0 30 0 0 -30";
    let triangles = "0 2 4 2 1 4 1 3 4 3 0 4 2 0 5 1 2 5 3 1 5 0 3 5";
    let array = |intent: &str, kind: &str, rows: usize, text: &str| {
        format!(
            "<DataArray Intent=\"NIFTI_INTENT_{intent}\" DataType=\"NIFTI_TYPE_{kind}\" Dimensionality=\"2\" Dim0=\"{rows}\" \
             Dim1=\"3\" Encoding=\"ASCII\" ArrayIndexingOrder=\"RowMajorOrder\"><Data>{text}</Data></DataArray>"
        )
    };
    let text = format!(
        "<GIFTI Version=\"1.0\" NumberOfDataArrays=\"2\">{}{}</GIFTI>",
        array("POINTSET", "FLOAT32", 6, points),
        array("TRIANGLE", "INT32", 8, triangles)
    );
    let (mesh, data) = (folder.join("lh.pial.surf.gii"), folder.join("sub-1_hemi-L_bold.func.gii"));
    std::fs::write(&mesh, text).unwrap();
    let mut writer = GiftiWriter::create(&data, 6, 2, Intent::TimeSeries, &[]).unwrap();
    for t in 0..2 {
        let frame: Vec<f32> = (0..6).map(|v| if v == 0 { 0.0 } else { (v * v + 7 * t) as f32 }).collect();
        writer.write_array(&frame, &[]).unwrap();
    }
    writer.finish().unwrap();
    (data, mesh)
}

#[tokio::test(flavor = "multi_thread")]
async fn surfaces_are_smoothed_along_their_mesh_around_vertices_without_signal() {
    let folder = tempfile::tempdir().unwrap();
    let (data, path) = octahedron(folder.path());
    let mesh = Surface::read(&path).unwrap();
    let options = format!("OPTIONS (smoothing_fwhm 40, mesh '{}')", path.display());
    let found = rows("GIFTI", &data, &options).await;
    let valid: Vec<bool> = (0..6).map(|v| v > 0).collect();
    let smoother = SurfaceSmoother::try_new(&mesh.points, &mesh.triangles, &valid, 40.0).unwrap();
    assert!(smoother.steps() > 0);
    let raw = series(&rows("GIFTI", &data, "").await);
    for t in 0..2 {
        let mut frame: Vec<f64> = raw.iter().map(|row| f64::from(row[t])).collect();
        smoother.smooth(&mut frame, &mut SurfaceScratch::default()).unwrap();
        for (row, expected) in series(&found).iter().zip(&frame) {
            assert!((f64::from(row[t]) - expected).abs() < 1e-5, "{row:?} at {t}, not {expected}");
        }
    }
    assert_eq!(series(&found)[0], [0.0, 0.0]);
    let origin = SeriesOrigin::of(&found.schema()).unwrap();
    assert!(origin.history[0].starts_with("smoothed along the surface, FWHM 40 mm"), "{:?}", origin.history);

    for (kind, location, options, says) in [
        ("GIFTI", &data, "smoothing_fwhm 6".to_owned(), "needs mesh"),
        ("GIFTI", &data, format!("mesh '{}'", path.display()), "not smoothing_fwhm"),
        ("GIFTI", &data, "smoothing_fwhm '-1'".to_owned(), "millimetres of at least 0"),
        ("GIFTI", &data, format!("smoothing_fwhm 6, mesh '{0}, {0}'", path.display()), "two surfaces"),
        (
            "GIFTI",
            &fixtures().join("gifti/series_gzip_big.func.gii"),
            format!("smoothing_fwhm 6, mesh '{}'", path.display()),
            "it has 7 vertices, and its mesh",
        ),
        (
            "GIFTI",
            &data,
            format!("smoothing_fwhm 6, mesh '{}'", fixtures().join("gifti/mesh.surf.gii").display()),
            "no surface of CORTEX_LEFT",
        ),
        (
            "NPY",
            &fixtures().join("npy/f4_le.npy"),
            format!("smoothing_fwhm 6, mesh '{}'", path.display()),
            "along surfaces",
        ),
    ] {
        let text = refusal(kind, location, &format!("OPTIONS ({options})")).await;
        assert!(text.contains(says), "{text}");
    }
}
