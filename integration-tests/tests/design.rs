//! Designs of the runs of a BIDS folder, as processes make them: nilearn's numbers from real events, the moments that
//! sidecars tell, the same on executors, and what is refused.

use crate::program::{Ended, larger_data, root, run_text, voxelflow};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use voxelflow_formats::npy::NpyReader;
use voxelflow_formats::{NiftiSpec, NiftiWriter};

const VOLUMES: usize = 156;
const SHAPE: [usize; 3] = [2, 2, 2];

/// Derivatives of two runs of one subject, `t_r` 2 s, and the raw dataset with their events. The second run's sidecar
/// says that its volumes stand for their middle.
struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn new(events: &str) -> Self {
        Self::of_lengths(events, [VOLUMES; 2])
    }

    fn of_lengths(events: &str, volumes: [usize; 2]) -> Self {
        let tree = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(tree.derivatives().join("sub-02/func")).unwrap();
        fs::create_dir_all(tree.raw().join("sub-02/func")).unwrap();
        let description = r#"{"Name": "test", "BIDSVersion": "1.9.0", "DatasetType": "derivative"}"#;
        fs::write(tree.derivatives().join("dataset_description.json"), description).unwrap();
        for (run, volumes) in [1, 2].into_iter().zip(volumes) {
            let file = |end: &str| tree.derivatives().join(format!("{}_space-T1w_desc-{end}", stem(run)));
            write(&file("preproc_bold.nii.gz"), volumes, |v, t| ((v + 1) as f32 * 0.07 * t as f32).sin());
            write(&file("brain_mask.nii.gz"), 1, |_, _| 1.0);
            let start = if run == 2 { r#", "StartTime": 1.0"# } else { "" };
            fs::write(file("preproc_bold.json"), format!(r#"{{"RepetitionTime": 2.0{start}}}"#)).unwrap();
            fs::write(tree.events(run), events).unwrap();
        }
        tree
    }

    fn derivatives(&self) -> PathBuf {
        self.folder.path().join("fmriprep")
    }

    fn raw(&self) -> PathBuf {
        self.folder.path().join("raw")
    }

    fn events(&self, run: u8) -> PathBuf {
        self.raw().join(format!("{}_events.tsv", stem(run)))
    }

    fn create(&self) -> String {
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{}' OPTIONS (raw '{}');\n",
            self.derivatives().display(),
            self.raw().display()
        )
    }

    fn run(&self, text: &str) -> (tempfile::TempDir, Ended) {
        let out = tempfile::tempdir().unwrap();
        let ended = run_text(&(self.create() + text), out.path());
        (out, ended)
    }
}

fn stem(run: u8) -> String {
    format!("sub-02/func/sub-02_task-visloc_run-{run}")
}

fn write(path: &Path, volumes: usize, value: impl Fn(usize, usize) -> f32) {
    let affine = [[3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
    let mut writer =
        NiftiWriter::create(path, &NiftiSpec::new(SHAPE, volumes).with_affine(affine, 1).with_t_r(2.0))
            .unwrap();
    for t in 0..volumes {
        let volume: Vec<f32> = (0..SHAPE.iter().product()).map(|v| value(v, t)).collect();
        writer.write_volume(&volume).unwrap();
    }
    writer.finish().unwrap();
}

/// Rows of the table `name` that a pipeline wrote, by a query over them.
pub fn query(out: &Path, name: &str, query: &str) -> Vec<Value> {
    let under = format!("tables/{name}/");
    let files = crate::program::files_below(out);
    let part = files.iter().find(|file| file.starts_with(&under)).unwrap();
    let folder = out.join(part).parent().unwrap().to_owned();
    let query = query.replace("FROM d", &format!("FROM '{}/'", folder.display()));
    let shown = voxelflow(["sql", &query, "--format", "json"]).expect_code(0).stdout;
    match serde_json::from_str(&shown) {
        Ok(rows) => rows,
        Err(_) => shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
    }
}

pub fn numbers(row: &Value) -> Vec<f64> {
    row["series"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn peak(values: &[f64]) -> usize {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap()
}

const RUN: &str = "SELECT regressor, series FROM d WHERE run = ";

#[test]
fn regressors_of_real_events_equal_nilearn_here_and_on_executors() {
    let Some(data) = larger_data() else { return };
    let events = fs::read_to_string(data.join("fmri/studyforrest/sub-02_task-visloc_events.tsv")).unwrap();
    let tree = Tree::new(&events);
    let text = "CREATE TABLE d AS SELECT * FROM design(bold, hrf_model => 'glover', drift_model => 'cosine', \
                high_pass => 0.008);";
    let (here, ended) = tree.run(text);
    ended.expect_code(0);
    let there = tempfile::tempdir().unwrap();
    let file = there.path().join("design.vf");
    fs::write(&file, tree.create() + text).unwrap();
    let out = there.path().join("out");
    let arguments =
        ["run".as_ref(), file.as_os_str(), "--executors".as_ref(), "2".as_ref(), "--out".as_ref()];
    voxelflow(arguments.into_iter().chain([out.as_os_str()])).expect_code(0);
    for (run, case) in [("'1'", "studyforrest"), ("'2'", "studyforrest_half")] {
        let found = query(here.path(), "d", &format!("{RUN}{run}"));
        assert_eq!(found, query(&out, "d", &format!("{RUN}{run}")), "run {run} on executors");
        let fixture = root().join(format!("ml/signal/tests/fixtures/design/{case}.npy"));
        let mut reader = NpyReader::open(fixture).unwrap();
        let names: Vec<&str> = found.iter().map(|row| row["regressor"].as_str().unwrap()).collect();
        assert_eq!(names[..7], ["body", "face", "house", "object", "scene", "scramble", "drift_1"]);
        assert_eq!(names.last(), Some(&"constant"));
        let mut expected: Vec<f64> = Vec::new();
        for row in &found {
            assert!(reader.next_row::<f64>(&mut expected).unwrap());
            let found = numbers(row);
            let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-6, "run {run} {}: {worst}", row["regressor"]);
        }
    }
}

/// An impulse at 20 s has its peak at 25 s: between volumes 12 and 13 where they stand for 24 s and 26 s, on volume 12
/// where it stands for 25 s.
#[test]
fn a_start_time_in_the_sidecar_moves_the_peak() {
    let tree = Tree::new("onset\tduration\n20\t0\n");
    let (out, ended) =
        tree.run("CREATE TABLE d AS SELECT * FROM design(bold, hrf_model => 'spm', drift_model => 'none');");
    ended.expect_code(0);
    let of = |run: &str| {
        let rows = query(out.path(), "d", &format!("{RUN}{run}"));
        assert_eq!(rows[0]["regressor"], "dummy");
        numbers(&rows[0])
    };
    let (plain, shifted) = (of("'1'"), of("'2'"));
    assert_eq!(peak(&shifted), 12);
    assert!(shifted[11] < shifted[12] && shifted[13] < shifted[12] && shifted[12] > plain[12].max(plain[13]));
    assert!((plain[12] - plain[13]).abs() < 0.2 * plain[12], "{} {}", plain[12], plain[13]);
    // The setting does the same where no sidecar speaks, and is refused where one says something else.
    let chosen = "FROM design((SELECT * FROM bold WHERE run = ";
    let options = "), hrf_model => 'spm', drift_model => 'none', slice_time_ref => ";
    let (out, ended) = tree.run(&format!("CREATE TABLE d AS SELECT * {chosen}'1'{options}0.5);"));
    ended.expect_code(0);
    let rows = query(out.path(), "d", "SELECT regressor, series FROM d");
    assert_eq!(numbers(&rows[0]), shifted);
    let (_out, ended) = tree.run(&format!("SELECT * {chosen}'2'{options}0);"));
    let said = ended.expect_code(2).stderr;
    assert!(
        said.contains("run-2") && said.contains("StartTime 1 s, but slice_time_ref => 0 means 0 s"),
        "{said}"
    );
}

#[test]
fn runs_of_several_lengths_have_series_designs_and_one_model() {
    let events = "onset\tduration\ttrial_type\n20\t6\tface\n60\t6\thouse\n90\t6\tface\n130\t6\thouse\n";
    let text =
        "CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
         CREATE TABLE stimuli AS SELECT * FROM design(bold, hrf_model => 'glover', drift_model => 'none')
           WHERE regressor <> 'constant';
         TRAIN MODEL enc USING ridge_cv (alphas => [1, 10], cv => 'run', precision => 'f64')
           ON (SELECT * FROM series) FEATURES (SELECT * FROM stimuli);
         CREATE TABLE found AS SELECT voxel, alpha, score, intercept FROM enc;";
    let tree = Tree::of_lengths(events, [VOLUMES, 100]);
    let (out, ended) = tree.run(text);
    ended.expect_code(0);
    let of_run = |out: &Path, run: u8| {
        let series = format!("SELECT voxel, series FROM d WHERE run = '{run}' ORDER BY voxel");
        let stimuli = format!("SELECT regressor, series FROM d WHERE run = '{run}' ORDER BY regressor");
        [query(out, "series", &series), query(out, "stimuli", &stimuli)]
    };
    for (run, volumes) in [(1, VOLUMES), (2, 100)] {
        let (alone, ended) = Tree::of_lengths(events, [volumes; 2]).run(text);
        ended.expect_code(0);
        let found = of_run(out.path(), run);
        assert_eq!(found, of_run(alone.path(), run), "run {run}");
        assert_eq!([found[0].len(), found[1].len()], [8, 2]);
        assert!(found.iter().flatten().all(|row| numbers(row).len() == volumes));
    }
    let models = crate::program::files_below(out.path());
    let report = models.iter().find(|file| file.ends_with("enc/ridge.json")).unwrap();
    let report: Value = serde_json::from_str(&fs::read_to_string(out.path().join(report)).unwrap()).unwrap();
    assert_eq!(report["n_samples"], VOLUMES + 100, "{report}");
    // The same on executors.
    let there = tempfile::tempdir().unwrap();
    let (file, out_there) = (there.path().join("uneven.vf"), there.path().join("out"));
    fs::write(&file, tree.create() + text).unwrap();
    let arguments =
        ["run".as_ref(), file.as_os_str(), "--executors".as_ref(), "2".as_ref(), "--out".as_ref()];
    voxelflow(arguments.into_iter().chain([out_there.as_os_str()])).expect_code(0);
    let all = "SELECT * FROM d ORDER BY voxel";
    assert_eq!(query(&out_there, "found", all), query(out.path(), "found", all));
    assert_eq!(of_run(&out_there, 2), of_run(out.path(), 2));
    // Who learns from series alone says what to do.
    let (_out, ended) = tree.run("TRAIN MODEL m USING histogram ON (SELECT * FROM bold);");
    let said = ended.expect_code(2).stderr;
    assert!(said.contains("several lengths") && said.contains("arrow_cast(series"), "{said}");
}

#[test]
fn series_are_correlated_with_regressors_by_a_join() {
    let tree = Tree::new("onset\tduration\ttrial_type\n20\t6\tface\n90\t6\tface\n150\t6\thouse\n");
    let text = "CREATE TABLE d AS SELECT b.run, b.voxel, d.regressor, b.series, d.series AS response, \
                pearson_r(b.series, d.series) AS r FROM bold b JOIN design(bold) d \
                ON b.subject = d.subject AND b.task = d.task AND b.run = d.run WHERE d.regressor <> 'constant';";
    let (out, ended) = tree.run(text);
    ended.expect_code(0);
    let rows = query(out.path(), "d", "SELECT * FROM d");
    let regressors = 2 + 6; // two conditions, six drifts
    assert_eq!(rows.len(), 2 * 8 * regressors);
    for row in rows {
        let list = |name: &str| -> Vec<f64> {
            row[name].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        let (a, b) = (list("series"), list("response"));
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let (mean_a, mean_b) = (mean(&a), mean(&b));
        let dot = |x: &[f64], mx: f64, y: &[f64], my: f64| {
            x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum::<f64>()
        };
        let (aa, bb) = (dot(&a, mean_a, &a, mean_a), dot(&b, mean_b, &b, mean_b));
        let r = dot(&a, mean_a, &b, mean_b) / (aa * bb).sqrt();
        assert!((row["r"].as_f64().unwrap() - r).abs() < 1e-6, "{row}");
    }
}

#[test]
fn odd_events_are_in_the_ledger_and_wrong_ones_are_refused() {
    let tree =
        Tree::new("onset\tduration\ttrial_type\n-5\t1\tface\n12\t1\tface\n12\t1\tface\n9999\t1\tface\n");
    let (out, ended) = tree.run("CREATE TABLE d AS SELECT * FROM design(bold) WHERE run = '1';");
    ended.expect_code(0);
    let record = fs::read_to_string(out.path().join("voxelflow.json")).unwrap();
    for says in ["same condition, onset and duration", "after the last volume"] {
        assert!(record.contains(says), "{says} is missing in\n{record}");
    }
    let refused = |text: &str, says: &[&str]| {
        let (_out, ended) = tree.run(text);
        let said = ended.expect_code(2).stderr;
        says.iter().for_each(|says| assert!(said.contains(says), "{says} is missing in\n{said}"));
    };
    refused("SELECT * FROM design(bold, hrf_model => 'gamma');", &["hrf_model", "glover + derivative", "^"]);
    refused("SELECT * FROM design(bold, drift_modle => 'none');", &["did you mean `drift_model`?", "^"]);
    fs::write(tree.events(2), "onset\tduration\n1\tn/a\n").unwrap();
    refused(
        "SELECT * FROM design(bold);",
        &["run-2_events.tsv, line 2: its duration is n/a", "missing_duration"],
    );
    fs::write(tree.events(2), "onset\tduration\nsoon\t1\n").unwrap();
    refused(
        "SELECT * FROM design(bold);",
        &["sub-02 task-visloc run-2", "run-2_events.tsv", "line 2", "onset"],
    );
    fs::remove_file(tree.events(2)).unwrap();
    refused("SELECT * FROM design(bold);", &["run-2: ", "no events were found", "inspect"]);
}
