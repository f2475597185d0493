//! Example 02 as a newcomer runs it: the data fetched from PyPI, surfaces cleaned to nilearn's numbers, a short training.

use crate::program::{Ended, root, voxelflow};
use std::path::Path;
use std::process::Command;
use voxelflow_formats::npy::NpyReader;

/// What cleaning may differ by from nilearn, of series with standard deviation 1: single against double precision.
const TOLERANCE: f32 = 2e-4;

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
    let table = out.join("tables/series");
    let sql =
        format!("SELECT series FROM '{}' WHERE vertex % 512 = 0 ORDER BY structure, vertex", table.display());
    let said = voxelflow(["sql", &sql, "--format", "json"]).expect_code(0).stdout;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    rows.into_iter().map(|row| serde_json::from_value(row["series"].clone()).unwrap()).collect()
}
