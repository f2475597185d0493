//! BIDS and HCP tables of surfaces and grayordinates: the rows of GIFTI and CIFTI tables of each file, with the confounds
//! and the timing of their runs.
#![allow(clippy::unwrap_used)]

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Float32Type, UInt32Type};
use datafusion::prelude::SessionContext;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use voxelflow_formats::gifti::{GiftiWriter, Intent};
use voxelflow_stage::{RunFiles, SeriesOrigin};
use voxelflow_tables::{Error, ImageTables, inspect_folder};

const VERTICES: usize = 6;
const POINTS: usize = 4;

fn session() -> SessionContext {
    let ctx = SessionContext::new();
    for tables in ImageTables::ALL {
        ctx.state_ref().write().table_factories_mut().insert(tables.name().into(), Arc::new(tables));
    }
    ctx
}

async fn create(ctx: &SessionContext, kind: &str, location: &Path, options: &str) -> Result<(), Error> {
    let location = location.display();
    let sql = format!(
        "CREATE OR REPLACE EXTERNAL TABLE t STORED AS {kind} LOCATION '{location}' OPTIONS ({options})"
    );
    ctx.sql(&sql).await.map(|_| ()).map_err(Error::Plan)
}

async fn refusal(kind: &str, location: &Path, options: &str) -> String {
    let e = create(&session(), kind, location, options).await.unwrap_err();
    assert!(e.is_input(), "{e}");
    e.to_string()
}

async fn rows(ctx: &SessionContext, order: &str) -> RecordBatch {
    let sql = format!("SELECT * FROM t ORDER BY {order}");
    let batches = ctx.sql(&sql).await.unwrap().collect().await.unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn value(file: usize, vertex: usize, t: usize) -> f32 {
    (1000 * file + 10 * vertex + t) as f32 + 0.5
}

fn surface(path: &Path, file: usize) {
    let mut writer = GiftiWriter::create(path, VERTICES, POINTS, Intent::TimeSeries, &[]).unwrap();
    for t in 0..POINTS {
        let values: Vec<f32> = (0..VERTICES).map(|vertex| value(file, vertex, t)).collect();
        writer.write_array(&values, &[("TimeStep", "800")]).unwrap();
    }
    writer.finish().unwrap();
}

fn stem(subject: usize) -> String {
    format!("sub-{subject}/func/sub-{subject}_task-rest")
}

fn cifti() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/fixtures/cifti/series.dtseries.nii")
}

/// Derivatives of two subjects: both hemispheres, grayordinates, confounds, a sidecar that outranks the files.
fn derivatives() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("fmriprep");
    for subject in [1, 2] {
        let file = |end: &str| root.join(format!("{}_{end}", stem(subject)));
        std::fs::create_dir_all(file("").parent().unwrap()).unwrap();
        surface(&file("hemi-L_space-fsaverage5_bold.func.gii"), 2 * subject);
        surface(&file("hemi-R_space-fsaverage5_bold.func.gii"), 2 * subject + 1);
        std::fs::copy(cifti(), file("space-fsLR_den-91k_bold.dtseries.nii")).unwrap();
        std::fs::write(file("desc-confounds_timeseries.tsv"), "trans_x\n0\n").unwrap();
    }
    std::fs::write(root.join("task-rest_bold.json"), r#"{"RepetitionTime": 1.4}"#).unwrap();
    (folder, root)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_hemispheres_of_every_run_are_rows() {
    let (_folder, root) = derivatives();
    let ctx = session();
    create(&ctx, "BIDS", &root, "kind 'surface', task 'rest'").await.unwrap();
    let found = rows(&ctx, "subject, structure, vertex").await;
    assert_eq!(found.num_rows(), 4 * VERTICES);
    let series = found.column_by_name("series").unwrap().as_fixed_size_list();
    let text = |column: &str, row: usize| {
        found.column_by_name(column).unwrap().as_string::<i32>().value(row).to_owned()
    };
    for row in 0..found.num_rows() {
        let (file, vertex) = (2 + row / VERTICES, row % VERTICES);
        let expected: Vec<f32> = (0..POINTS).map(|t| value(file, vertex, t)).collect();
        assert_eq!(series.value(row).as_primitive::<Float32Type>().values()[..], expected, "{row}");
        let side = if file % 2 == 0 { "CORTEX_LEFT" } else { "CORTEX_RIGHT" };
        assert_eq!(text("structure", row), side);
        assert_eq!((text("subject", row), text("space", row)), ((file / 2).to_string(), "fsaverage5".into()));
        assert_eq!(
            found.column_by_name("vertex").unwrap().as_primitive::<UInt32Type>().value(row) as usize,
            vertex
        );
    }
    let origin = SeriesOrigin::of(&found.schema()).unwrap();
    assert_eq!((origin.t_r, origin.source.as_str()), (Some(1.4), root.to_str().unwrap()));
    let runs = RunFiles::of(&found.schema()).unwrap();
    let confounds = root.join(format!("{}_desc-confounds_timeseries.tsv", stem(2)));
    assert_eq!((runs.len(), runs[1].confounds.as_deref()), (2, confounds.to_str()));

    create(&ctx, "BIDS", &root, "kind 'surface', hemi 'R', subject 2, t_r 2").await.unwrap();
    let right = rows(&ctx, "vertex").await;
    assert_eq!((right.num_rows(), SeriesOrigin::of(&right.schema()).unwrap().t_r), (VERTICES, Some(2.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn grayordinates_of_fmriprep_and_of_hcp_are_rows() {
    let (folder, root) = derivatives();
    let ctx = session();
    create(&ctx, "CIFTI", &cifti(), "memory_limit '1MB'").await.unwrap();
    let expected = rows(&ctx, "grayordinate").await;
    create(&ctx, "BIDS", &root, "kind 'grayordinates', den '91k'").await.unwrap();
    let found = rows(&ctx, "subject, grayordinate").await;
    let count = expected.num_rows();
    assert_eq!(found.num_rows(), 2 * count);
    assert_eq!(found.slice(count, count).columns()[5..], expected.columns()[5..]);
    assert_eq!(SeriesOrigin::of(&found.schema()).unwrap().t_r, Some(1.4));

    let run = folder.path().join("hcp/100307/MNINonLinear/Results/rfMRI_REST1_LR");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::copy(cifti(), run.join("rfMRI_REST1_LR_Atlas_MSMAll.dtseries.nii")).unwrap();
    std::fs::write(run.join("Movement_Regressors.txt"), "0 0 0 0 0 0 0 0 0 0 0 0\n").unwrap();
    create(&ctx, "HCP", &folder.path().join("hcp"), "kind 'grayordinates', desc 'MSMAll'").await.unwrap();
    let found = rows(&ctx, "grayordinate").await;
    assert_eq!(found.columns()[5..], expected.columns()[5..]);
    // Nothing but the file says it there.
    assert_eq!(SeriesOrigin::of(&found.schema()).unwrap().t_r, Some(0.72));
    let runs = RunFiles::of(&found.schema()).unwrap();
    assert!(runs[0].confounds.as_ref().unwrap().ends_with("rfMRI_REST1_LR/Movement_Regressors.txt"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_runs_is_said_or_skipped() {
    let (folder, root) = derivatives();
    for (kind, options, says) in [
        ("BIDS", "kind 'surfaces'", "kind"),
        ("BIDS", "kind 'surface', mask 'auto'", "mask 'auto' is for volumes"),
        ("BIDS", "kind 'volume'", "it holds no volumes; found: grayordinates, surfaces"),
        ("HCP", "kind 'surface'", "kind 'grayordinates'"),
    ] {
        let text = refusal(kind, &root, options).await;
        assert!(text.contains(says), "{text}");
    }
    std::fs::remove_file(root.join(format!("{}_hemi-R_space-fsaverage5_bold.func.gii", stem(2)))).unwrap();
    let text = refusal("BIDS", &root, "kind 'surface'").await;
    assert!(text.contains("the other hemisphere is missing") && text.contains("incomplete 'skip'"), "{text}");
    let ctx = session();
    create(&ctx, "BIDS", &root, "kind 'surface', incomplete 'skip'").await.unwrap();
    let found = rows(&ctx, "vertex").await;
    assert_eq!(found.num_rows(), 2 * VERTICES);
    assert!(SeriesOrigin::of(&found.schema()).unwrap().history[0].starts_with("left out: sub-2"));
    drop(folder);
}

#[test]
fn a_folder_of_surfaces_is_looked_at() {
    let (_folder, root) = derivatives();
    let report = inspect_folder(root.to_str().unwrap(), None).unwrap().unwrap();
    let found: Vec<(&str, Option<&str>, Option<usize>, bool)> = report
        .runs
        .iter()
        .map(|run| (run.run.as_str(), run.size.as_deref(), run.volumes, run.usable))
        .collect();
    let (grayordinates, surfaces) = (Some("9 grayordinates"), Some("6+6 vertices"));
    assert_eq!(
        found,
        [
            ("sub-1 task-rest", grayordinates, Some(5), true),
            ("sub-1 task-rest", surfaces, Some(POINTS), true),
            ("sub-2 task-rest", grayordinates, Some(5), true),
            ("sub-2 task-rest", surfaces, Some(POINTS), true),
        ]
    );
    assert!(report.runs.iter().all(|run| run.t_r == Some(1.4) && run.confounds));
}
