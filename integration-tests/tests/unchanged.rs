//! A statement whose text and inputs have not changed is not run again.

use crate::program::{Ended, program, root, voxelflow};
use serde_json::Value;
use std::{collections::BTreeMap, fs, io::Write, path::Path, process::Command};

fn notes(pipeline: &Path, out: &Path, more: &[&str]) -> BTreeMap<String, String> {
    notes_of(program("voxelflow"), pipeline, out, more)
}

/// What `program` says of every statement of `pipeline`.
fn notes_of(mut program: Command, pipeline: &Path, out: &Path, more: &[&str]) -> BTreeMap<String, String> {
    program.args(["--json", "run", pipeline.to_str().unwrap(), "--out", out.to_str().unwrap()]).args(more);
    let ended = Ended::from(program.output().unwrap()).expect_code(0);
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

/// A folder with a pipeline file in it.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new(text: &str) -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        bench.write(text);
        bench
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, text: &str) {
        fs::write(self.path("p.vf"), text).unwrap();
    }

    /// What is said of statement `title`.
    fn note(&self, title: &str, more: &[&str]) -> String {
        notes(&self.path("p.vf"), &self.path("out"), more)[title].clone()
    }
}

#[test]
fn another_build_runs_again_unless_its_results_are_kept() {
    let bench = Bench::new("CREATE TABLE t AS SELECT 1 AS one;");
    let (pipeline, out) = (bench.path("p.vf"), bench.path("out"));
    assert_eq!(bench.note("CREATE TABLE t", &[]), "ran");
    // The same program with another byte at its end is another build.
    let other = bench.path("other-build");
    fs::copy(program("voxelflow").get_program(), &other).unwrap();
    fs::OpenOptions::new().append(true).open(&other).unwrap().write_all(b"\n").unwrap();
    let by_other =
        |more: &[&str]| notes_of(Command::new(&other), &pipeline, &out, more)["CREATE TABLE t"].clone();

    assert!(by_other(&["--keep-results"]).starts_with("unchanged: made by build "));
    assert!(by_other(&[]).starts_with("ran again: made by build "));
    assert_eq!(by_other(&[]), "unchanged");
    // The closing table names both builds.
    let arguments = ["run", pipeline.to_str().unwrap(), "--out", out.to_str().unwrap(), "--keep-results"];
    let said = voxelflow(arguments).expect_code(0).stdout;
    let words = ["made by build ", "this is build "]
        .map(|before| said.split(before).nth(1).unwrap()[..12].to_owned());
    assert!(
        words.iter().all(|build| build.chars().all(|c| c.is_ascii_hexdigit())) && words[0] != words[1],
        "{said}"
    );
}

#[test]
fn a_setting_that_changes_runs_what_follows_it_again() {
    let table = "CREATE TABLE t AS SELECT to_timestamp('2026-01-01T00:00:00') AS t;";
    let bench = Bench::new(table);
    let note = || bench.note("CREATE TABLE t", &[]);
    assert_eq!((note().as_str(), note().as_str()), ("ran", "unchanged"));
    let set = |zone: &str| bench.write(&format!("SET datafusion.execution.time_zone = '{zone}'; {table}"));
    set("+02:00");
    assert_eq!((note().as_str(), note().as_str()), ("ran", "unchanged"));
    set("+03:00");
    assert_eq!((note().as_str(), note().as_str()), ("ran", "unchanged"));
    bench.write(&format!(
        "SET datafusion.execution.time_zone = '+03:00'; RESET datafusion.execution.time_zone; {table}"
    ));
    assert_eq!(note(), "ran");
}

#[test]
fn a_view_that_changes_or_reads_what_changed_runs_its_readers_again() {
    let bench = Bench::new("");
    let source = bench.path("source.parquet");
    let file = |value: u32| {
        let query = format!("SELECT {value} AS x");
        voxelflow(["sql", &query, "--format", "parquet", "--output", source.to_str().unwrap()])
            .expect_code(0);
    };
    let text = |plus: u32| {
        format!(
            "CREATE VIEW first AS SELECT x + {plus} AS x FROM '{}';
             CREATE VIEW second AS SELECT x * 2 AS x FROM first;
             CREATE TABLE t AS SELECT * FROM second;",
            source.display()
        )
    };
    let run = |expected: &str, rows: &str| {
        assert_eq!(bench.note("CREATE TABLE t", &[]), expected);
        let table = fs::read_dir(bench.path("out/tables/t")).unwrap().next().unwrap().unwrap().path();
        let query = format!("SELECT x FROM '{}/part-00000.parquet'", table.display());
        let said = voxelflow(["sql", query.as_str(), "--format", "csv"]).expect_code(0).stdout;
        assert_eq!(said, format!("x\n{rows}\n"));
    };
    file(1);
    bench.write(&text(10));
    run("ran", "22");
    run("unchanged", "22");
    bench.write(&text(20));
    run("ran", "42");
    fs::remove_dir_all(&source).or_else(|_| fs::remove_file(&source)).unwrap();
    file(2);
    run("ran", "44");
    run("unchanged", "44");
}
