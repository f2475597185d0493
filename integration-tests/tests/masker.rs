//! Images to clean series in one pipeline, to the numbers of nilearn's maskers: smoothing, resampling and parcels before
//! `clean`, whatever stands between table and `clean`, here and on executors.

use crate::program::{files_below, root, run_text, voxelflow};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use voxelflow_formats::npy::NpyReader;

const BOLD: &str = "examples/data/ds003_sub-01_mc.nii.gz";
const VOLUMES: usize = 20;

fn fixture(name: &str) -> PathBuf {
    root().join("connectors/tables/tests/fixtures/volumes").join(name)
}

/// `CREATE EXTERNAL TABLE name` with the options of a case, whose files lie beside it.
fn table(name: &str, options: &Value) -> String {
    let mut text = String::new();
    for (option, value) in options.as_object().unwrap() {
        let value = match value.as_str() {
            Some(file) if option != "strategy" => fixture(&format!("{file}.nii.gz")).display().to_string(),
            Some(word) => word.to_owned(),
            None => value.to_string(),
        };
        write!(text, "{}{option} '{value}'", if text.is_empty() { "" } else { ", " }).unwrap();
    }
    format!("CREATE EXTERNAL TABLE {name} STORED AS NIFTI LOCATION '{BOLD}' OPTIONS ({text});\n")
}

/// Series by voxel or parcel of a table that a pipeline wrote.
fn series(out: &Path, table: &str, key: &str) -> BTreeMap<i64, Vec<f64>> {
    let under = format!("tables/{table}/");
    let part = files_below(out).into_iter().find(|file| file.starts_with(&under)).unwrap();
    let folder = out.join(part).parent().unwrap().to_owned();
    let query = format!("SELECT {key} AS row, series FROM '{}/'", folder.display());
    let text = voxelflow(["sql", &query, "--format", "json"]).expect_code(0).stdout;
    let rows = text.lines().filter(|line| line.contains("row")).map(|line| {
        let row: Value = serde_json::from_str(line.trim_matches(['[', ']', ','])).unwrap();
        let values = row["series"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        (row["row"].as_i64().unwrap(), values)
    });
    rows.collect()
}

#[test]
fn clean_series_are_those_of_nilearns_maskers() {
    let index: Value = serde_json::from_str(&fs::read_to_string(fixture("index.json")).unwrap()).unwrap();
    let clean = "detrend => true, high_pass => 0.02, standardize => 'zscore_sample'";
    let cases: Vec<&Value> = index["cases"].as_array().unwrap().iter().collect();
    let mut text = String::new();
    // One image has holes, which the tests of tables write.
    for (n, case) in cases.iter().enumerate().filter(|(_, case)| case["holes"] == false) {
        text += &table(&format!("bold{n}"), &case["options"]);
        // A filter and a projection stand between.
        let key = if case["parcels"] == true { "parcel" } else { "voxel" };
        writeln!(text, "CREATE TABLE some{n} AS SELECT * FROM clean((SELECT {key}, series FROM bold{n} WHERE {key} % 2 < 2), {clean});")
            .unwrap();
    }
    let out = tempfile::tempdir().unwrap();
    run_text(&text, out.path()).expect_code(0);
    let all: Vec<f64> = NpyReader::open(fixture("cleaned.npy")).unwrap().read_all().unwrap();
    let mut all = all.as_slice();
    let mut worst = 0.0_f64;
    for (n, case) in cases.iter().enumerate() {
        let rows = case["rows"].as_array().unwrap();
        let (theirs, rest) = all.split_at(rows.len() * VOLUMES);
        all = rest;
        if case["holes"] == true {
            continue;
        }
        let key = if case["parcels"] == true { "parcel" } else { "voxel" };
        let ours = series(out.path(), &format!("some{n}"), key);
        for (row, theirs) in rows.iter().zip(theirs.chunks_exact(VOLUMES)) {
            for (t, (a, b)) in ours[&row.as_i64().unwrap()].iter().zip(theirs).enumerate() {
                let error = (a - b).abs() / b.abs().max(1.0);
                assert!(error <= 1e-5, "{}, row {row}, volume {t}: {a} instead of {b}", case["name"]);
                worst = worst.max(error);
            }
        }
    }
    println!("largest error {worst:.1e}");
}

/// Mean 1e6, standard deviation 1: read in single precision, z-scores would be off by 0.04.
#[test]
fn numbers_that_single_precision_cannot_hold_are_cleaned_as_nilearn_cleans_them() {
    let folder = root().join("connectors/tables/tests/fixtures/precision");
    let expected: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("cleaned.json")).unwrap()).unwrap();
    let kind = |file: &str| match file.rsplit('.').next() {
        Some("nii") => ("NIFTI", "voxel", "mask 'none'"),
        Some("mgh") => ("MGH", "vertex", "t_r 2"),
        Some("gii") => ("GIFTI", "vertex", "t_r 2"),
        _ => ("NPY", "row", "t_r 2"),
    };
    let files: Vec<&String> = expected.as_object().unwrap().keys().collect();
    let mut text = String::new();
    for (n, file) in files.iter().enumerate() {
        let (stored_as, _, options) = kind(file);
        let location = folder.join(file.as_str()).display().to_string();
        write!(
            text,
            "CREATE EXTERNAL TABLE raw{n} STORED AS {stored_as} LOCATION '{location}' OPTIONS ({options});
             CREATE TABLE clean{n} AS SELECT * FROM clean(raw{n}, detrend => true, standardize => 'zscore_sample');
             CREATE TABLE stored{n} AS SELECT * FROM raw{n};
             CREATE TABLE later{n} AS SELECT * FROM clean(stored{n}, detrend => true, standardize => 'zscore_sample');"
        )
        .unwrap();
    }
    let out = tempfile::tempdir().unwrap();
    run_text(&text, out.path()).expect_code(0);
    for (n, file) in files.iter().enumerate() {
        for table in ["clean", "later"] {
            let ours = series(out.path(), &format!("{table}{n}"), kind(file).1);
            let theirs = expected[file.as_str()].as_array().unwrap();
            assert_eq!(ours.len(), theirs.len());
            for (row, theirs) in theirs.iter().enumerate() {
                for (t, (a, b)) in ours[&(row as i64)].iter().zip(theirs.as_array().unwrap()).enumerate() {
                    let b = b.as_f64().unwrap();
                    assert!(
                        (a - b).abs() < 1e-5,
                        "{file}, {table}, row {row}, volume {t}: {a} instead of {b}"
                    );
                }
            }
        }
    }
}

#[test]
fn executors_compute_the_same_series() {
    let atlas = fixture("fine_labels.nii.gz");
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}'
           OPTIONS (atlas '{0}', target '{0}', smoothing_fwhm '25');
         CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
         CREATE EXTERNAL TABLE voxels STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (target 11, smoothing_fwhm 25);
         CREATE TABLE smooth AS SELECT * FROM clean(voxels, detrend => true, standardize => 'zscore_sample');",
        atlas.display()
    );
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run_text(&text, here.path()).expect_code(0);
    let file = here.path().join("masker.vf");
    fs::write(&file, text).unwrap();
    let arguments =
        ["run".as_ref(), file.as_os_str(), "--executors".as_ref(), "2".as_ref(), "--out".as_ref()];
    voxelflow(arguments.into_iter().chain([there.path().as_os_str()])).expect_code(0);
    for (table, key, rows) in [("series", "parcel", 6), ("smooth", "voxel", 100)] {
        let found = series(here.path(), table, key);
        assert!(found.len() >= rows && found == series(there.path(), table, key), "{table}");
    }
}

#[test]
fn what_cannot_be_computed_is_refused_before_anything_runs() {
    let atlas = fixture("fine_labels.nii.gz");
    for (options, says) in [
        ("smoothing_fwhm 'wide'".to_owned(), "'6, 6, 4'"),
        (format!("atlas '{}'", atlas.display()), "give target"),
        ("smoothing_fhwm 6".to_owned(), "did you mean `smoothing_fwhm`?"),
    ] {
        let text = format!(
            "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS ({options});
             CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true);"
        );
        let out = tempfile::tempdir().unwrap();
        let ended = run_text(&text, out.path()).expect_code(2);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}
