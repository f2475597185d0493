//! A statement whose text and inputs have not changed is not run again.

use crate::program::{root, voxelflow};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

fn notes(pipeline: &Path, out: &Path, more: &[&str]) -> BTreeMap<String, String> {
    let mut arguments = vec!["--json", "run", pipeline.to_str().unwrap(), "--out", out.to_str().unwrap()];
    arguments.extend(more);
    let ended = voxelflow(arguments).expect_code(0);
    let lines = ended.stdout.lines().filter(|l| l.starts_with('{'));
    lines
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            (value["statement"].as_str().unwrap().to_owned(), value["note"].as_str().unwrap().to_owned())
        })
        .collect()
}

#[test]
fn only_what_changed_and_what_follows_from_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (pipeline, out) = (folder.path().join("p.vf"), folder.path().join("out"));
    let bold = root().join("examples/data/ds003_sub-01_mc.nii.gz");
    let text = |epochs: u32, standardize: &str| {
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'auto');
             CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => '{standardize}');
             TRAIN MODEL dca USING dist_dca (hidden => 4, filters => [4], kernels => [5], pools => 1) ON series
               WITH (epochs => {epochs}, minibatch => 256);
             CREATE TABLE hidden AS SELECT voxel, i, j, k, encode(dca, series) AS hidden FROM series;
             EXPORT MAPS FROM hidden TO 'maps/{{column}}.nii.gz';
             REPORT 'report.html';",
            bold.display()
        )
    };
    let written = ["CREATE TABLE series", "TRAIN MODEL dca", "CREATE TABLE hidden", "REPORT 'report.html'"];
    let ran = |notes: &BTreeMap<String, String>| -> Vec<&str> {
        written.into_iter().filter(|w| notes[*w] == "ran").collect()
    };

    std::fs::write(&pipeline, text(1, "zscore_sample")).unwrap();
    assert_eq!(ran(&notes(&pipeline, &out, &[])), written);
    assert_eq!(ran(&notes(&pipeline, &out, &[])), [""; 0]);

    // Another layout and a comment change nothing; another setting changes what follows from it.
    std::fs::write(&pipeline, format!("-- again\n{}", text(1, "zscore_sample").replace('\n', " "))).unwrap();
    assert_eq!(ran(&notes(&pipeline, &out, &[])), [""; 0]);
    std::fs::write(&pipeline, text(2, "zscore_sample")).unwrap();
    assert_eq!(
        ran(&notes(&pipeline, &out, &[])),
        ["TRAIN MODEL dca", "CREATE TABLE hidden", "REPORT 'report.html'"]
    );

    // What was removed is made again; --fresh makes everything again.
    std::fs::remove_dir_all(out.join("models/dca")).unwrap();
    assert!(ran(&notes(&pipeline, &out, &[])).contains(&"TRAIN MODEL dca"));
    assert_eq!(ran(&notes(&pipeline, &out, &["--fresh"])), written);
}
