//! The data-quality ledger: what was dropped, filled, constant or not finite is a row of a table, wherever the
//! statement ran, and stays until the statement runs again.

use crate::program::{Ended, files_below, run_text, voxelflow};
use std::{
    fs,
    path::{Path, PathBuf},
};
use voxelflow_formats::{NiftiReader, NiftiSpec, NiftiWriter};

/// Derivatives as fMRIPrep writes them, in a space of 4×4×4 voxels, without brain masks.
struct Tree {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("fmriprep");
        fs::create_dir_all(root.join("sub-01/func")).unwrap();
        let description = r#"{"Name": "test", "BIDSVersion": "1.9.0", "DatasetType": "derivative"}"#;
        fs::write(root.join("dataset_description.json"), description).unwrap();
        fs::write(root.join("task-rest_bold.json"), r#"{"RepetitionTime": 2.0}"#).unwrap();
        Self { _folder: folder, root }
    }

    fn file(&self, run: u8, end: &str) -> PathBuf {
        self.root.join(format!("sub-01/func/sub-01_task-rest_run-{run}_{end}"))
    }

    /// A run of `volumes` volumes whose voxels all differ; `change` may spoil one.
    fn run(
        &self,
        run: u8,
        shape: [usize; 3],
        volumes: usize,
        confounds: &str,
        change: impl Fn(usize, &mut [f32]),
    ) {
        let affine =
            [[2.0, 0.0, 0.0, -3.0], [0.0, 2.0, 0.0, -3.0], [0.0, 0.0, 2.0, -3.0], [0.0, 0.0, 0.0, 1.0]];
        let spec = NiftiSpec::new(shape, volumes).with_affine(affine, 1).with_t_r(2.0);
        let path = self.file(run, "space-T1w_desc-preproc_bold.nii.gz");
        let mut writer = NiftiWriter::create(path, &spec).unwrap();
        for t in 0..volumes {
            let signal = |v: usize| 100.0 + v as f32 + ((t * (v + 3)) as f32 * 0.7 + f32::from(run)).sin();
            let mut values: Vec<f32> = (0..shape.iter().product()).map(signal).collect();
            change(t, &mut values);
            writer.write_volume(&values).unwrap();
        }
        writer.finish().unwrap();
        fs::write(self.file(run, "desc-confounds_timeseries.tsv"), confounds).unwrap();
    }

    fn table(&self, more: &str) -> String {
        let root = self.root.display();
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{root}' OPTIONS (space 'T1w', mask 'none'{more});\n"
        )
    }
}

/// Motion with its derivative, which has no first value, and displacements of 2 mm at `moved`.
fn confounds(volumes: usize, moved: &[usize]) -> String {
    let mut text = "trans_x\ttrans_x_derivative1\tframewise_displacement\tstd_dvars\n".to_owned();
    let x = |t: usize| (t as f64 * 0.9).sin();
    for t in 0..volumes {
        let change = |value: String| if t == 0 { "n/a".to_owned() } else { value };
        let displacement = if moved.contains(&t) { 2.0 } else { 0.1 };
        let derivative = change((x(t) - x(t.saturating_sub(1))).to_string());
        let displacement = change(displacement.to_string());
        text += &format!("{}\t{derivative}\t{displacement}\t{}\n", x(t), change("1.0".into()));
    }
    text
}

/// Two runs of 24 volumes: the first with a constant voxel and one that is not a number once, the second with three
/// volumes of high motion, which leave a segment that is too short.
fn spoilt() -> Tree {
    let tree = Tree::new();
    tree.run(1, [4; 3], 24, &confounds(24, &[]), |t, values| {
        values[5] = 42.0;
        if t == 7 {
            values[21] = f32::NAN;
        }
    });
    tree.run(2, [4; 3], 24, &confounds(24, &[9, 10, 13]), |_, _| {});
    tree
}

const CLEAN: &str = "confounds => 'trans_x, trans_x_derivative1, scrub', standardize => 'zscore_sample'";

/// Rows of the ledger that a folder has, as JSON lines in an order of their own.
fn ledger(out: &Path, condition: &str) -> Vec<serde_json::Value> {
    let query = format!(
        "SELECT * FROM ledger WHERE {condition} ORDER BY statement, subject, session, task, run, what, level, reason"
    );
    let ended = voxelflow(["sql", &query, "--format", "json", "--out", out.to_str().unwrap()]);
    let lines = ended.expect_code(0).stdout;
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `statement run: what level count at places`, without reasons.
fn short(rows: &[serde_json::Value]) -> Vec<String> {
    let text = |row: &serde_json::Value, name: &str| match &row[name] {
        serde_json::Value::Null => "-".to_owned(),
        serde_json::Value::String(text) if text.is_empty() => "-".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let line = |row| {
        let [statement, run, what, level, count, places] =
            ["statement", "run", "what", "level", "count", "places"].map(|name| text(row, name));
        format!("{statement} {run}: {what} {level} {count} at {places}")
    };
    rows.iter().map(line).collect()
}

fn run_with(text: &str, out: &Path, more: &[&str]) -> Ended {
    let file = tempfile::Builder::new().suffix(".vf").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    let run = ["run", file.path().to_str().unwrap(), "--out", out.to_str().unwrap()];
    voxelflow(run.iter().chain(more))
}

#[test]
fn the_ledger_is_the_same_here_and_on_executors() {
    let tree = spoilt();
    let text = tree.table("")
        + &format!(
            "CREATE TABLE series AS SELECT * FROM clean(bold, {CLEAN}, not_finite => 'drop') ORDER BY voxel, run;
             CREATE TABLE lost AS SELECT run, what, places, count FROM ledger WHERE what = 'dropped';
             SELECT run, places, count FROM lost WHERE run = '2' ORDER BY count;
             REPORT 'report.html';"
        );
    let here = tempfile::tempdir().unwrap();
    let shown = run_text(&text, here.path()).expect_code(0).stdout;
    assert!(shown.contains("| 2   | 11-12   | 2     |"), "{shown}");
    assert!(shown.contains("| 2   | 9-10,13 | 3     |"), "{shown}");
    let found = ledger(here.path(), "true");
    assert_eq!(
        short(&found),
        [
            "table series 1: constant voxel 1 at 5",
            "table series 1: dropped voxel 1 at 21",
            "table series 1: filled value 1 at trans_x_derivative1",
            "table series 1: not_finite voxel 1 at 21",
            "table series 2: dropped volume 3 at 9-10,13",
            "table series 2: dropped volume 2 at 11-12",
            "table series 2: filled value 1 at trans_x_derivative1",
        ]
    );
    let of = |row: usize, name: &str| found[row][name].clone();
    assert_eq!((of(4, "subject"), of(4, "task"), of(4, "session")), ("01".into(), "rest".into(), "".into()));
    assert_eq!(of(4, "reason"), "framewise displacement over 0.5 mm");
    assert_eq!(of(4, "indices"), serde_json::json!([9, 10, 13]));
    assert_eq!(of(5, "reason"), "in a segment of fewer than 5 volumes between those of high motion");
    assert_eq!(of(2, "reason"), "n/a in the first volume: that of the second taken");
    let report = fs::read_to_string(here.path().join("report.html")).unwrap();
    for shown in
        ["framewise displacement over 0.5 mm", "sub-01 task-rest run-2", "9-10,13", "trans_x_derivative1"]
    {
        assert!(report.contains(shown), "no {shown} in the report");
    }
    for more in [&["--executors", "2"][..], &["--executors", "1", "--slots", "3"]] {
        let there = tempfile::tempdir().unwrap();
        run_with(&text, there.path(), more).expect_code(0);
        assert_eq!(ledger(there.path(), "true"), found, "{more:?}");
    }
}

#[test]
fn a_statement_keeps_its_rows_until_it_runs_again() {
    let tree = spoilt();
    let text = |not_finite: &str| {
        tree.table("")
            + &format!(
                "CREATE TABLE series AS SELECT * FROM clean(bold, {CLEAN}, not_finite => '{not_finite}');
                 CREATE TABLE plain AS SELECT run, voxel FROM bold;
                 CREATE TABLE lost AS SELECT count(*) AS n FROM ledger;"
            )
    };
    let out = tempfile::tempdir().unwrap();
    run_text(&text("drop"), out.path()).expect_code(0);
    let first = ledger(out.path(), "true");
    assert_eq!(first.len(), 7, "{:?}", short(&first));
    let again = run_text(&text("drop"), out.path()).expect_code(0).stdout;
    assert_eq!(again.matches("unchanged").count(), 3, "{again}");
    assert_eq!(ledger(out.path(), "true"), first);
    let zeroed = run_text(&text("zero"), out.path()).expect_code(0).stdout;
    assert_eq!(zeroed.matches("unchanged").count(), 1, "the ledger has changed too:\n{zeroed}");
    assert_eq!(
        short(&ledger(out.path(), "level = 'voxel'")),
        [
            "table series 1: constant voxel 1 at 5",
            "table series 1: not_finite voxel 1 at 21",
            "table series 1: zeroed voxel 1 at 21",
        ]
    );
    // One whose rows of the ledger are gone runs again.
    fs::remove_dir_all(out.path().join("ledger")).unwrap();
    run_text(&text("zero"), out.path()).expect_code(0);
    assert_eq!(ledger(out.path(), "true").len(), 7);
}

#[test]
fn a_run_of_which_nothing_is_left_is_refused_by_name_and_in_the_ledger() {
    let tree = Tree::new();
    let moved = "trans_x\tframewise_displacement\tstd_dvars\n".to_owned() + &"0.1\t9\t1\n".repeat(6);
    tree.run(1, [2, 1, 1], 6, &moved, |_, _| {});
    let text =
        tree.table("") + "CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'trans_x, scrub');";
    let out = tempfile::tempdir().unwrap();
    for more in [&[][..], &["--executors", "1"]] {
        let told = run_with(&text, out.path(), more).expect_code(2).stderr;
        assert!(
            told.contains("sub-01 task-rest run-1") && told.contains("all 6 volumes are dropped"),
            "{told}"
        );
        let rows = ledger(out.path(), "true");
        assert_eq!(short(&rows), ["table series 1: refused run 1 at -"]);
        assert!(rows[0]["reason"].as_str().unwrap().contains("framewise displacement of 9 mm"), "{rows:?}");
    }
    let tables = files_below(out.path()).into_iter().filter(|file| file.starts_with("tables")).count();
    assert_eq!(tables, 0);
    // What is mended is not refused any more.
    run_text(&text.replace(", scrub", ""), out.path()).expect_code(0);
    assert!(ledger(out.path(), "true").is_empty());
}

#[test]
fn values_that_are_filled_are_in_the_ledger_and_others_that_are_missing_are_errors() {
    let tree = Tree::new();
    let confounds =
        |second: &str| format!("trans_x\tspeed\n0.1\tn/a\n0.4\t{second}\n-0.2\t0.3\n0.5\t0.1\n0.2\t-0.3\n");
    let text = |policy: &str| {
        tree.table("")
            + &format!(
                "CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'trans_x, speed'{policy});"
            )
    };
    tree.run(1, [2, 1, 1], 5, &confounds("0.3"), |_, _| {});
    for (policy, said) in [("", "that of the second taken"), (", first_volume => 'zero'", "set to 0")] {
        let out = tempfile::tempdir().unwrap();
        run_text(&text(policy), out.path()).expect_code(0);
        let rows = ledger(out.path(), "true");
        assert_eq!(short(&rows), ["table series 1: filled value 1 at speed"]);
        assert!(rows[0]["reason"].as_str().unwrap().ends_with(said), "{rows:?}");
    }
    tree.run(1, [2, 1, 1], 5, &confounds("n/a"), |_, _| {});
    let out = tempfile::tempdir().unwrap();
    let told = run_text(&text(", first_volume => 'zero'"), out.path()).expect_code(2).stderr;
    assert!(told.contains("speed") && told.contains("row 1"), "{told}");
    assert_eq!(short(&ledger(out.path(), "true")), ["table series 1: refused run 1 at -"]);
}

#[test]
fn a_voxel_of_zeros_gains_no_signal_and_is_counted() {
    let tree = Tree::new();
    tree.run(1, [2, 1, 1], 24, &confounds(24, &[]), |_, values| values[0] = 0.0);
    let text = tree.table("")
        + "CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'trans_x', detrend => false);
           EXPORT MAPS FROM (SELECT subject, voxel, i, j, k, list_std(series) AS spread FROM series)
             TO 'spread.nii';";
    let out = tempfile::tempdir().unwrap();
    run_text(&text, out.path()).expect_code(0);
    let (_, spread) = NiftiReader::open(out.path().join("spread.nii")).unwrap().read_all().unwrap();
    assert!(spread[0] == 0.0 && spread[1] > 0.0, "{spread:?}");
    assert_eq!(short(&ledger(out.path(), "true")), ["table series 1: constant voxel 1 at 0"]);
}

#[test]
fn runs_that_are_left_out_are_rows_of_their_table() {
    let tree = spoilt();
    let mask = tree.file(1, "space-T1w_desc-brain_mask.nii.gz");
    let (header, values) =
        NiftiReader::open(tree.file(1, "space-T1w_desc-preproc_bold.nii.gz")).unwrap().read_all().unwrap();
    let mut writer =
        NiftiWriter::create(&mask, &NiftiSpec::new([4; 3], 1).with_affine(header.affine, 1)).unwrap();
    writer.write_volume(&values[..64].iter().map(|_| 1.0).collect::<Vec<_>>()).unwrap();
    writer.finish().unwrap();
    let text = tree.table(", incomplete 'skip'").replace("'none'", "'brain'")
        + "SELECT run, level, what FROM ledger; SELECT count(*) FROM bold;";
    let out = tempfile::tempdir().unwrap();
    let shown = run_text(&text, out.path()).expect_code(0).stdout;
    assert!(shown.contains("| 2   | run   | dropped |"), "{shown}");
    let rows = ledger(out.path(), "what = 'dropped'");
    assert_eq!(short(&rows), ["table bold 2: dropped run 1 at -"]);
    assert!(rows[0]["reason"].as_str().unwrap().contains("no brain mask"), "{rows:?}");
}

#[test]
fn the_name_is_the_ledgers_own() {
    let out = tempfile::tempdir().unwrap();
    for statement in [
        "CREATE TABLE ledger AS SELECT 1 AS n;",
        "CREATE OR REPLACE TABLE ledger AS SELECT 1 AS n;",
        "CREATE VIEW ledger AS SELECT 1 AS n;",
        "CREATE EXTERNAL TABLE ledger STORED AS PARQUET LOCATION 'x.parquet';",
        "DROP TABLE ledger;",
    ] {
        let told = run_text(statement, out.path()).expect_code(2).stderr;
        assert!(told.contains("`ledger` is the table") && told.contains("^^^^^^"), "{statement}: {told}");
    }
    let shown =
        run_text("SELECT count(*) AS n FROM ledger; REPORT 'r.html';", out.path()).expect_code(0).stdout;
    assert!(shown.contains("| 0 |"), "{shown}");
    let report = fs::read_to_string(out.path().join("r.html")).unwrap();
    assert!(report.contains("Nothing to report"), "an empty ledger is said to be empty");
    let nowhere = voxelflow(["sql", "SELECT * FROM ledger", "--out", "no/such/folder"]).expect_code(2).stderr;
    assert!(nowhere.contains("no/such/folder"), "{nowhere}");
}
