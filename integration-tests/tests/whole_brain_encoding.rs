//! Encoding on a whole-brain run: categories of things explain 48,751 voxels, fitted to the first half of the run and
//! tested on the second, against nilearn and scikit-learn.

use crate::program::{larger_data, run_text, voxelflow};
use serde_json::Value;
use std::{fs, path::Path};
use voxelflow_formats::NiftiReader;

/// Voxels in x, y of the grid.
const SHAPE: [usize; 2] = [80, 80];

fn reference() -> Value {
    serde_json::from_str(include_str!("../reference/whole_brain_encoding.json")).unwrap()
}

/// The run as BIDS folders; what a pipeline needs of them.
fn study(folder: &Path, data: &Path) {
    let from = data.join("fmri/studyforrest");
    for (kind, dataset) in [("derivatives", r#", "DatasetType": "derivative""#), ("raw", "")] {
        let own = folder.join(kind);
        fs::create_dir_all(own.join("sub-02/func")).unwrap();
        let text = format!(r#"{{"Name": "visloc", "BIDSVersion": "1.9.0"{dataset}}}"#);
        fs::write(own.join("dataset_description.json"), text).unwrap();
    }
    let image = folder.join("derivatives/sub-02/func/sub-02_task-visloc_space-native_desc-preproc_bold");
    fs::copy(from.join("sub-02_task-visloc_bold.nii.gz"), image.with_extension("nii.gz")).unwrap();
    fs::write(image.with_extension("json"), r#"{"RepetitionTime": 2.0}"#).unwrap();
    let events = folder.join("raw/sub-02/func/sub-02_task-visloc_events.tsv");
    fs::copy(from.join("sub-02_task-visloc_events.tsv"), events).unwrap();
}

/// One run is two, by its halves: every category was shown in both.
fn halves(keys: &str, table: &str) -> String {
    let half = |run: u8, from: u8, to: u8| {
        format!(
            "SELECT {keys}, '{run}' AS run,
                    arrow_cast(array_slice(series, {from}, {to}), 'FixedSizeList(78, Float32)') AS series FROM {table}"
        )
    };
    format!("{} UNION ALL {}", half(1, 1, 78), half(2, 79, 156))
}

fn map(out: &Path, name: &str) -> Vec<f32> {
    NiftiReader::open(out.join("maps").join(name)).unwrap().read_all().unwrap().1
}

#[test]
fn categories_explain_a_whole_brain_as_nilearn_and_scikit_learn_find() {
    let Some(data) = larger_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    study(folder.path(), &data);
    let (at, out) = (folder.path().display(), folder.path().join("out"));
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{at}/derivatives' OPTIONS (raw '{at}/raw', mask 'auto');
         CREATE TABLE whole AS
           SELECT * FROM clean(bold, detrend => true, high_pass => 0.01, standardize => 'zscore_sample');
         CREATE TABLE series AS {};
         CREATE TABLE responses AS
           SELECT * FROM design(bold, hrf_model => 'glover', drift_model => 'none') WHERE regressor <> 'constant';
         CREATE TABLE features AS {};
         TRAIN MODEL enc USING ridge_cv (alphas => [0.1, 1, 10, 100, 1000], cv => 5,
                                         permutations => 199, permutation => 'blocks', permutation_length => 10)
           ON (SELECT * FROM series WHERE run = '1') FEATURES (SELECT * FROM features)
           VALIDATE ON (SELECT * FROM series WHERE run = '2') WITH (ranks => 2);
         EXPORT MAPS FROM (SELECT voxel, i, j, k, r, p_family FROM enc) TO 'maps/{{column}}.nii.gz';
         REPORT 'report.html';",
        halves("subject, task, space, voxel, i, j, k", "whole"),
        halves("subject, task, regressor", "responses"),
    );
    run_text(&text, &out).expect_code(0);

    let expected = reference();
    let table = out.join("models/enc/targets.parquet");
    let sql = format!("SELECT count(*), count(r), min(alpha), max(alpha) FROM '{}'", table.display());
    let counted = voxelflow(["sql", &sql, "--format", "csv"]).expect_code(0).stdout;
    let counted: Vec<f64> =
        counted.lines().nth(1).unwrap().split(',').map(|cell| cell.parse().unwrap()).collect();
    let (voxels, alpha) = (expected["mask_voxels"].as_f64().unwrap(), expected["alpha"].as_f64().unwrap());
    assert_eq!(counted, [voxels, voxels, alpha, alpha], "voxels, fitted ones, the one penalty");

    let r = map(&out, "r.nii.gz");
    let places = expected["voxels"].as_array().unwrap().iter().map(|voxel| voxel.as_u64().unwrap() as usize);
    let theirs = expected["r"].as_array().unwrap().iter().map(|r| r.as_f64().unwrap());
    let far = places.zip(theirs).map(|(voxel, theirs)| (f64::from(r[voxel]) - theirs).abs());
    let farthest = far.fold(0.0, f64::max);
    assert!(farthest < 1e-5, "r differs by {farthest}");
    let strong = r.iter().filter(|r| **r > 0.5).count() as f64;
    let theirs = expected["over_0_5"].as_f64().unwrap();
    assert!((strong - theirs).abs() <= 2.0, "{strong} voxels with r over 0.5, theirs {theirs}");

    // What no rearrangement of blocks reaches anywhere in the brain lies at its back, where one sees.
    let p = map(&out, "p_family.nii.gz");
    let of_run = |voxel: &usize| voxel / SHAPE[0] % SHAPE[1];
    let mut brain: Vec<usize> =
        (0..r.len()).filter(|voxel| r[*voxel].is_finite()).map(|v| of_run(&v)).collect();
    brain.sort_unstable();
    let middle = brain[brain.len() / 2];
    let found: Vec<usize> = (0..p.len()).filter(|voxel| r[*voxel] > 0.0 && p[*voxel] <= 0.05).collect();
    let behind = found.iter().filter(|voxel| of_run(voxel) < middle).count();
    println!(
        "{strong} voxels with r over 0.5, {} with p of the family up to 0.05, {behind} behind",
        found.len()
    );
    assert!(found.len() > 100 && behind as f64 > 0.9 * found.len() as f64, "{behind} of {}", found.len());

    let page = fs::read_to_string(out.join("report.html")).unwrap();
    for shown in ["enc", "ridge_cv", "maps/r.nii.gz", "maps/p_family.nii.gz"] {
        assert!(page.contains(shown), "{shown} is missing in the report");
    }
}
