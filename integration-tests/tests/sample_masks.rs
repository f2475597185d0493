//! Volumes that confounds drop, through designs, correlations and encoding models: nilearn's and scikit-learn's numbers by
//! `integration-tests/reference/sample_masks.py`, in this process and on executors.

use crate::design::{numbers, query};
use crate::program::{Ended, root, run_text, voxelflow};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use voxelflow_formats::{NiftiSpec, NiftiWriter};

/// What becomes of `bold`: series, two designs, correlations, and a model whose features have a row a volume of the image.
const STATEMENTS: &str = "
CREATE TABLE series AS SELECT * FROM clean(bold, motion => 'basic', {confounds});
CREATE TABLE d0 AS SELECT * FROM design(series, hrf_model => 'glover + derivative', drift_model => 'cosine',
                                        high_pass => 0.02);
CREATE TABLE d1 AS SELECT * FROM design(series, hrf_model => 'fir', fir_delays => [0, 2, 3],
                                        drift_model => 'polynomial', drift_order => 2);
CREATE TABLE r AS SELECT run, voxel, regressor, pearson_r(s.series, d.series) AS r
                    FROM series s JOIN d0 d USING (subject, session, task, run);
TRAIN MODEL enc USING ridge_cv (alphas => [10], delays => [0, 1, 3], precision => 'f64')
  ON (SELECT * FROM series WHERE run <> '3') FEATURES (SELECT run, tr, a, b, c FROM '{features}')
  VALIDATE ON (SELECT * FROM series WHERE run = '3');
CREATE TABLE e AS SELECT voxel, intercept, r FROM enc;
";

fn reference() -> Value {
    let path = root().join("integration-tests/reference/sample_masks.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// NaN where the reference has none.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn all(value: &Value) -> Vec<f64> {
    list(value).iter().map(number).collect()
}

fn near(found: &[f64], expected: &[f64], tolerance: f64) -> bool {
    let same = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance || a.is_nan() && b.is_nan();
    found.len() == expected.len() && found.iter().zip(expected).all(same)
}

/// The study of the reference as fMRIPrep writes it, with its raw dataset and its features.
struct Study(tempfile::TempDir);

impl Study {
    fn new(reference: &Value) -> Self {
        let study = Self(tempfile::tempdir().unwrap());
        let [derivatives, raw] = study.folders();
        fs::create_dir_all(derivatives.join("sub-1/func")).unwrap();
        fs::create_dir_all(raw.join("sub-1/func")).unwrap();
        let mut features = String::from("run,tr,a,b,c\n");
        for (number, run) in list(&reference["runs"]).iter().enumerate() {
            let stem = format!("sub-1/func/sub-1_task-x_run-{}", number + 1);
            let file = |folder: &Path, end: &str| folder.join(format!("{stem}_{end}"));
            let voxels: Vec<Vec<f64>> = list(&run["values"]).iter().map(all).collect();
            image(&file(&derivatives, "space-T1w_desc-preproc_bold.nii.gz"), &voxels);
            fs::write(file(&derivatives, "space-T1w_desc-preproc_bold.json"), r#"{"RepetitionTime": 2.0}"#)
                .unwrap();
            let text = |name: &str| run[name].as_str().unwrap();
            fs::write(file(&derivatives, "desc-confounds_timeseries.tsv"), text("confounds")).unwrap();
            fs::write(file(&raw, "events.tsv"), text("events")).unwrap();
            for (tr, row) in list(&run["features"]).iter().enumerate() {
                let [a, b, c] = [0, 1, 2].map(|at| &row[at]);
                features += &format!("{},{tr},{a},{b},{c}\n", number + 1);
            }
        }
        fs::write(study.features(), features).unwrap();
        study
    }

    fn folders(&self) -> [PathBuf; 2] {
        ["fmriprep", "raw"].map(|name| self.0.path().join(name))
    }

    fn features(&self) -> PathBuf {
        self.0.path().join("features.csv")
    }

    fn create(&self, options: &str) -> String {
        let [derivatives, raw] = self.folders().map(|folder| folder.display().to_string());
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{derivatives}' OPTIONS (raw '{raw}', mask 'none'{options});"
        )
    }

    fn statements(&self, confounds: &str) -> String {
        let features = self.features().display().to_string();
        self.create("") + &STATEMENTS.replace("{confounds}", confounds).replace("{features}", &features)
    }

    fn run(&self, text: &str) -> (tempfile::TempDir, Ended) {
        let out = tempfile::tempdir().unwrap();
        let ended = run_text(text, out.path());
        (out, ended)
    }
}

/// An image of `[voxels][volumes]`.
pub fn image(path: &Path, voxels: &[Vec<f64>]) {
    let affine = [[3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
    let volumes = voxels[0].len();
    let spec = NiftiSpec::new([2, 2, 1], volumes).with_affine(affine, 1).with_t_r(2.0);
    let mut writer = NiftiWriter::create(path, &spec).unwrap();
    for t in 0..volumes {
        let volume: Vec<f32> = voxels.iter().map(|own| own[t] as f32).collect();
        writer.write_volume(&volume).unwrap();
    }
    writer.finish().unwrap();
}

/// Compares everything that the statements made of a case.
fn compare(out: &Path, case: &Value) {
    let name = case["name"].as_str().unwrap();
    for (at, run) in list(&case["runs"]).iter().enumerate() {
        let of_run = format!("FROM d WHERE run = '{}'", at + 1);
        let found = query(out, "series", &format!("SELECT series {of_run} ORDER BY voxel"));
        let expected: Vec<Vec<f64>> = list(&run["series"]).iter().map(all).collect();
        assert_eq!(found.len(), expected.len(), "{name}, run {at}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(expected.len(), list(&run["kept"]).len());
            assert!(near(&numbers(found), expected, 2e-5), "{name}, run {at}: {found} beside {expected:?}");
        }
        for (model, design) in list(&run["designs"]).iter().enumerate() {
            let table = format!("d{model}");
            let found = query(out, &table, &format!("SELECT regressor, series {of_run}"));
            let names: Vec<&str> = found.iter().map(|row| row["regressor"].as_str().unwrap()).collect();
            let expected: Vec<&str> =
                list(&design["names"]).iter().map(|name| name.as_str().unwrap()).collect();
            assert_eq!(names, expected, "{name}, run {at}");
            for (row, expected) in found.iter().zip(list(&design["values"])) {
                assert!(
                    near(&numbers(row), &all(expected), 1e-5),
                    "{name}, run {at}: {row} beside {expected}"
                );
            }
            if model == 0 {
                let columns = format!("SELECT regressor, voxel, r {of_run}");
                for row in query(out, "r", &columns) {
                    let column = names.iter().position(|name| row["regressor"] == **name).unwrap();
                    let voxel = row["voxel"].as_u64().unwrap() as usize;
                    let expected = number(&run["r"][voxel][column]);
                    assert!(
                        near(&[number(&row["r"])], &[expected], 2e-5),
                        "{name}, run {at}: {row}, {expected}"
                    );
                }
            }
        }
    }
    let found = query(out, "e", "SELECT intercept, r FROM d ORDER BY voxel");
    for column in ["intercept", "r"] {
        let found: Vec<f64> = found.iter().map(|row| number(&row[column])).collect();
        let expected = all(&case["ridge"][column]);
        assert!(near(&found, &expected, 1e-4), "{name}, {column}: {found:?} beside {expected:?}");
    }
}

fn confounds_of(case: &Value) -> String {
    let strategy: Vec<&str> = list(&case["strategy"]).iter().map(|name| name.as_str().unwrap()).collect();
    let keep = if case["keep"] == true { ", non_steady_state => 'keep'" } else { "" };
    format!("confounds => '{}'{keep}", strategy.join(", "))
}

#[test]
fn designs_and_models_take_the_volumes_that_confounds_leave() {
    let reference = reference();
    let study = Study::new(&reference);
    for case in list(&reference["cases"]) {
        let text = study.statements(&confounds_of(case));
        let (out, ended) = study.run(&text);
        ended.expect_code(0);
        compare(out.path(), case);
    }
}

#[test]
fn executors_take_the_same_volumes() {
    let reference = reference();
    let study = Study::new(&reference);
    let case = &reference["cases"][0];
    let there = tempfile::tempdir().unwrap();
    let (file, out) = (there.path().join("masks.vf"), there.path().join("out"));
    fs::write(&file, study.statements(&confounds_of(case))).unwrap();
    let arguments =
        ["run".as_ref(), file.as_os_str(), "--executors".as_ref(), "2".as_ref(), "--out".as_ref()];
    voxelflow(arguments.into_iter().chain([out.as_os_str()])).expect_code(0);
    compare(&out, case);
}

/// Runs that lose as many volumes keep series of one length; what is predicted from their design is as long.
#[test]
fn runs_that_lose_as_many_volumes_stay_of_one_length() {
    let reference = reference();
    let study = Study::new(&reference);
    let text = study.create(", run '1,2'")
        + "CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'motion', motion => 'basic');
           CREATE TABLE joined AS SELECT * FROM concatenate(series);
           CREATE TABLE d AS SELECT * FROM design(series, drift_model => 'none');
           TRAIN MODEL enc USING ridge_cv (alphas => [1]) ON series FEATURES (SELECT * FROM d);
           TRAIN MODEL whole USING ridge_cv (alphas => [1]) ON joined
             FEATURES (SELECT * FROM design(bold, drift_model => 'none'));
           CREATE TABLE p AS SELECT * FROM predict(enc, d);
           CREATE TABLE both AS SELECT pearson_r(p.series, s.series) AS r, e.intercept, w.intercept AS other
             FROM p JOIN series s ON p.run = s.run AND p.voxel = s.voxel
               JOIN enc e ON p.voxel = e.voxel JOIN whole w ON p.voxel = w.voxel;";
    let (out, ended) = study.run(&text);
    ended.expect_code(0);
    let rows = query(out.path(), "both", "SELECT r, intercept, other FROM d");
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert!(number(&row["r"]).abs() <= 1.0, "{row}");
        // The design of the table before it was cleaned has all volumes; the same are taken of it.
        assert!((number(&row["intercept"]) - number(&row["other"])).abs() < 1e-6, "{row}");
    }
    let kept = query(out.path(), "series", "SELECT DISTINCT arrow_typeof(series) AS t FROM d");
    assert!(kept.len() == 1 && kept[0]["t"].as_str().unwrap().contains("45"), "{kept:?}");
}

#[test]
fn what_would_misplace_volumes_is_refused_when_it_is_checked_or_met() {
    let reference = reference();
    let study = Study::new(&reference);
    let scrubbed =
        "CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'motion, scrub', motion => 'basic');";
    let train = |features: &str, delays: &str| {
        format!(
            "TRAIN MODEL enc USING ridge_cv (alphas => [1], delays => {delays}) ON series FEATURES ({features});"
        )
    };
    let features = study.features().display().to_string();
    for (text, said) in [
        ("SELECT * FROM clean(series, high_pass => 0.01);".to_owned(), "volumes between others were dropped"),
        ("SELECT * FROM clean(series, confounds => 'motion');".to_owned(), "name all of them in one clean"),
        (
            "SELECT * FROM clean(bold, confounds => 'non_steady_state', non_steady_state => 'keep');"
                .to_owned(),
            "leave out one of them",
        ),
        (
            train("SELECT * FROM design(series, drift_model => 'none')", "[1]"),
            "take the design of the table before",
        ),
        (
            train(&format!("SELECT run, tr, a FROM '{features}' WHERE tr < 39"), "[0]"),
            "39 samples of features, and its image 48 volumes, of which the series have 43",
        ),
        (
            "CREATE TABLE d AS SELECT * FROM design(bold);
             CREATE TABLE r AS SELECT pearson_r(s.series, d.series) AS r FROM series s JOIN d USING (run);"
                .to_owned(),
            "take the design of the cleaned table",
        ),
    ] {
        let (_out, ended) = study.run(&(study.create("") + scrubbed + &text));
        assert_ne!(ended.code, Some(0), "{text}");
        assert!(ended.stderr.contains(said), "{text}: {}", ended.stderr);
    }
}
