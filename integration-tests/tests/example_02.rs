//! Example 02 as a newcomer runs it: the data fetched from PyPI, surfaces cleaned to nilearn's numbers, a short training.

use crate::program::{Ended, root, voxelflow};
use std::path::Path;
use std::process::Command;
use voxelflow_formats::npy::NpyReader;

/// What cleaning may differ by from nilearn, of series with standard deviation 1: single against double precision.
const TOLERANCE: f32 = 2e-5;

/// Fetches the data as the example says; false, said aloud, where that cannot be. In CI it must be.
fn fetched() -> bool {
    let ended = Command::new(root().join("examples/data/lemon.sh")).output().map(Ended::from);
    let why = match ended {
        Ok(Ended { code: Some(0), .. }) => return true,
        Ok(ended) => ended.stderr,
        Err(e) => e.to_string(),
    };
    assert!(std::env::var_os("CI").is_none(), "examples/data/lemon.sh: {why}");
    println!("skipped: examples/data/lemon.sh: {why}");
    false
}

#[test]
fn the_pipeline_file_cleans_surfaces_to_the_numbers_of_nilearn() {
    if !fetched() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let ended =
        voxelflow(["run", "examples/02_surfaces.vf", "--out", out.path().to_str().unwrap()]).expect_code(0);
    for shown in
        ["CREATE TABLE series", "CORTEX_LEFT", "CORTEX_RIGHT", "TRAIN MODEL dca", "loss before → after"]
    {
        assert!(ended.stdout.contains(shown), "{shown} is missing in\n{}", ended.stdout);
    }
    let found = cleaned(out.path());
    // integration-tests/reference/example_02.py
    let mut reader = NpyReader::open(root().join("integration-tests/reference/example_02.npy")).unwrap();
    let (mut expected, mut row, mut largest) = (Vec::new(), 0, 0.0_f32);
    while reader.next_row(&mut expected).unwrap() {
        let found: &Vec<f32> = &found[row];
        assert_eq!(found.len(), expected.len());
        largest =
            found.iter().zip(&expected).map(|(a, b): (&f32, &f32)| (a - b).abs()).fold(largest, f32::max);
        row += 1;
    }
    assert_eq!(row, found.len());
    println!("{row} series of {} points, at most {largest:.1e} from nilearn", expected.len());
    assert!(largest < TOLERANCE, "{largest}");
}

/// Every 512th vertex of both hemispheres, left first, from the table that the example wrote.
fn cleaned(out: &Path) -> Vec<Vec<f32>> {
    // The table's folder holds one for the state that it was written in.
    let states = std::fs::read_dir(out.join("tables/series")).unwrap();
    let table = states.map(|state| state.unwrap().path()).next().unwrap();
    let sql =
        format!("SELECT series FROM '{}' WHERE vertex % 512 = 0 ORDER BY structure, vertex", table.display());
    let said = voxelflow(["sql", &sql, "--format", "json"]).expect_code(0).stdout;
    let series = |line: &str| -> Vec<f32> {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        serde_json::from_value(row["series"].clone()).unwrap()
    };
    said.lines().map(series).collect()
}

/// A pipeline over surfaces and their confounds in other processes gives the rows that one process gives.
#[test]
fn executors_read_surfaces_and_text_files_as_one_process_does() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = root().join("connectors/formats/tests/fixtures");
    let copy = |from: &str, to: &str| std::fs::copy(fixtures.join(from), folder.path().join(to)).unwrap();
    copy("mgh/surface_f4.mgz", "sub-01_task-rest.lh.mgz");
    copy("mgh/surface_f4.mgz", "sub-02_task-rest.rh.mgz");
    let people = "participant_id\tgroup\nsub-01\tcontrol\nsub-02\tpatient\n";
    std::fs::write(folder.path().join("participants.tsv"), people).unwrap();
    let at = folder.path().display();
    let text = format!(
        "CREATE EXTERNAL TABLE rest STORED AS MGH LOCATION '{at}/*.mgz' OPTIONS (t_r 2);\n\
         CREATE EXTERNAL TABLE people STORED AS PARTICIPANTS LOCATION '{at}/participants.tsv';\n\
         CREATE TABLE series AS SELECT * FROM clean(rest, detrend => true);\n\
         SELECT p.\"group\", s.structure, count(*) AS n, round(max(list_std(s.series)), 3) AS std,\n\
                round(sum(s.series[1] * s.vertex), 3) AS weighted\n\
           FROM series s JOIN people p USING (subject) GROUP BY p.\"group\", s.structure ORDER BY s.structure;\n"
    );
    let file = folder.path().join("study.vf");
    std::fs::write(&file, text).unwrap();
    let run = |more: &[&str], out: &str| {
        let out = folder.path().join(out);
        let mut arguments = vec!["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
        arguments.extend(more);
        let said = voxelflow(arguments).expect_code(0).stdout;
        let table: Vec<String> =
            said.lines().filter(|line| line.contains("CORTEX_")).map(str::to_owned).collect();
        assert_eq!(table.len(), 2, "{said}");
        table
    };
    assert_eq!(run(&[], "here"), run(&["--executors", "2"], "there"));
}
