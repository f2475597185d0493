//! Keys of runs, in every table and through joins: names with and without `ses-` and `run-`, runs with and without leading
//! zeros, and what the ledger has of joins that do not do what was meant. In this process and on executors.

use crate::design::query;
use crate::program::{Ended, run_text, voxelflow};
use crate::sample_masks::image;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const VOLUMES: usize = 30;
const VOXELS: usize = 4;

/// Derivatives and a raw dataset of two subjects. The stems of images and of events are given, and may be written
/// differently.
struct Study(tempfile::TempDir);

impl Study {
    fn new(runs: &[(&str, &str)]) -> Self {
        let study = Self(tempfile::tempdir().unwrap());
        for (number, (bold, events)) in runs.iter().enumerate() {
            let file = |folder: &str, stem: &str, end: &str| {
                let parts: Vec<&str> = stem
                    .split('_')
                    .filter(|part| part.starts_with("sub-") || part.starts_with("ses-"))
                    .collect();
                let folder = study.path(folder).join(parts.join("/")).join("func");
                fs::create_dir_all(&folder).unwrap();
                folder.join(format!("{stem}_{end}"))
            };
            let value =
                |voxel: usize, t: usize| (t as f64 * (0.3 + 0.2 * voxel as f64) + number as f64).sin();
            let voxels: Vec<Vec<f64>> =
                (0..VOXELS).map(|voxel| (0..VOLUMES).map(|t| value(voxel, t)).collect()).collect();
            image(&file("fmriprep", bold, "space-T1w_desc-preproc_bold.nii.gz"), &voxels);
            let sidecar = r#"{"RepetitionTime": 2.0}"#;
            fs::write(file("fmriprep", bold, "space-T1w_desc-preproc_bold.json"), sidecar).unwrap();
            let onset = 4 + 6 * number;
            let text = format!("onset\tduration\ttrial_type\n{onset}\t4\tgo\n");
            fs::write(file("raw", events, "events.tsv"), text).unwrap();
        }
        fs::write(study.path("participants.tsv"), "participant_id\tage\nsub-1\t31\nsub-02\t42\n").unwrap();
        study
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tables(&self) -> String {
        let [derivatives, raw, people] =
            ["fmriprep", "raw", "participants.tsv"].map(|name| self.path(name).display().to_string());
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{derivatives}' OPTIONS (raw '{raw}', mask 'none');
             CREATE EXTERNAL TABLE events STORED AS EVENTS LOCATION '{raw}';
             CREATE EXTERNAL TABLE participants STORED AS PARTICIPANTS LOCATION '{people}';
             CREATE TABLE d AS SELECT * FROM design(bold, drift_model => 'none');\n"
        )
    }

    fn run(&self, text: &str) -> (tempfile::TempDir, Ended) {
        let out = tempfile::tempdir().unwrap();
        let ended = run_text(&(self.tables() + text), out.path());
        (out, ended)
    }
}

/// The notes on joins that a run has left, by the table that was made: reason and places.
fn notes(out: &Path) -> Vec<String> {
    let query = "SELECT statement || ': ' || reason || ' [' || coalesce(places, '') || ']' AS note FROM ledger \
                 WHERE what = 'noted' AND reason LIKE 'a join of%' ORDER BY 1";
    let shown =
        voxelflow(["sql", query, "--format", "json", "--out", out.to_str().unwrap()]).expect_code(0).stdout;
    shown
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["note"].as_str().unwrap().to_owned())
        .collect()
}

fn count(out: &Path, table: &str) -> u64 {
    query(out, table, "SELECT count(*) AS n FROM d")[0]["n"].as_u64().unwrap()
}

/// README's join: a row a voxel, run and regressor, whatever names lack.
const JOINED: &str = "CREATE TABLE joined AS SELECT subject, session, run, voxel, regressor,
                        pearson_r(b.series, d.series) AS r
                        FROM bold b JOIN d USING (subject, session, task, run);";

#[test]
fn tables_join_by_all_keys_whatever_their_names_lack() {
    for stems in [
        ["sub-01_task-x", "sub-02_task-x"],
        ["sub-01_ses-a_task-x", "sub-01_ses-b_task-x"],
        ["sub-01_task-x_run-1", "sub-01_task-x_run-2"],
        ["sub-01_ses-a_task-x_run-01", "sub-01_ses-b_task-x_run-01"],
    ] {
        let study = Study::new(&stems.map(|stem| (stem, stem)));
        let text = JOINED.to_owned()
            + "CREATE TABLE onsets AS SELECT DISTINCT subject, session, run, onset
                 FROM bold JOIN events USING (subject, session, task, run);";
        let (out, ended) = study.run(&text);
        ended.expect_code(0);
        // Two runs, `go` and the constant.
        assert_eq!(count(out.path(), "joined"), 2 * 2 * VOXELS as u64, "{stems:?}");
        let onsets = query(out.path(), "onsets", "SELECT * FROM d ORDER BY onset");
        assert_eq!(onsets.len(), 2, "{stems:?}: {onsets:?}");
        assert_eq!([4.0, 10.0].map(Value::from), [0, 1].map(|at| onsets[at]["onset"].clone()));
        assert!(onsets.iter().all(|row| row["run"] != "01" && !row["session"].is_null()), "{onsets:?}");
        assert_eq!(notes(out.path()), [""; 0], "{stems:?}");
    }
}

#[test]
fn a_run_is_the_same_run_with_leading_zeros_and_without() {
    let study = Study::new(&[
        ("sub-01_task-x_run-1", "sub-01_task-x_run-01"),
        ("sub-01_task-x_run-2", "sub-01_task-x_run-02"),
    ]);
    let text = JOINED.to_owned()
        + "CREATE TABLE onsets AS SELECT DISTINCT run, onset FROM bold JOIN events USING (subject, session, task, run);";
    let (out, ended) = study.run(&text);
    ended.expect_code(0);
    assert_eq!((count(out.path(), "joined"), count(out.path(), "onsets")), (2 * 2 * VOXELS as u64, 2));
    assert_eq!(notes(out.path()), [""; 0]);
}

/// Joins that leave out the session, that find nobody, and labels that differ by a zero.
const MEANT_OTHERWISE: &str = "
CREATE TABLE crossed AS SELECT b.voxel, d.regressor, pearson_r(b.series, d.series) AS r
  FROM bold b JOIN d ON b.subject = d.subject AND b.run = d.run WHERE d.regressor = 'go';
CREATE TABLE nobody AS SELECT b.voxel, p.age FROM bold b JOIN participants p ON b.subject = p.participant_id;
CREATE TABLE differently AS SELECT b.voxel, p.age FROM bold b JOIN participants p USING (subject);
";

#[test]
fn joins_that_do_not_do_what_was_meant_are_noted_here_and_on_executors() {
    let stems = ["sub-01_ses-a_task-x", "sub-01_ses-b_task-x", "sub-02_ses-a_task-x"];
    let study = Study::new(&stems.map(|stem| (stem, stem)));
    let (out, ended) = study.run(MEANT_OTHERWISE);
    ended.expect_code(0);
    // Both sessions of the first subject with both designs.
    assert_eq!(count(out.path(), "crossed"), (4 + 1) * VOXELS as u64);
    assert_eq!((count(out.path(), "nobody"), count(out.path(), "differently")), (0, VOXELS as u64));
    let expected = [
        "table crossed: a join of b and d by subject, run pairs rows of different sessions: compare session too [a with b]",
        "table differently: a join of bold and participants by subject does not pair keys that are written differently",
        "table nobody: a join of b and p by subject = participant_id does not pair keys that are written differently",
        "table nobody: a join of b and p by subject = participant_id pairs no rows: no keys are equal [b: 01, p: sub-02]",
    ];
    let found = notes(out.path());
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found
                .replace("join of b and p by subject does", "join of bold and participants by subject does")
                .starts_with(expected),
            "{found}"
        );
    }
    assert!(found[1].ends_with("[subject 01 and 1]"), "{found:?}");
    let there = tempfile::tempdir().unwrap();
    let (file, out) = (there.path().join("keys.vf"), there.path().join("out"));
    fs::write(&file, study.tables() + MEANT_OTHERWISE).unwrap();
    let arguments =
        ["run".as_ref(), file.as_os_str(), "--executors".as_ref(), "2".as_ref(), "--out".as_ref()];
    voxelflow(arguments.into_iter().chain([out.as_os_str()])).expect_code(0);
    assert_eq!(notes(&out), found);
}
