//! Example 04: waves that have nothing to do with the brain predict volumes that are left out alone, and no run.

use crate::{example_03, program::voxelflow};
use std::path::Path;

/// Mean of a column of the model's table.
fn mean(out: &Path, model: &str, column: &str) -> f64 {
    let table = out.join("models").join(model).join("targets.parquet");
    let sql = format!("SELECT avg({column}) AS mean FROM '{}'", table.display());
    let text = voxelflow(["sql", &sql, "--format", "csv"]).expect_code(0).stdout;
    text.lines().nth(1).unwrap().parse().unwrap()
}

#[test]
fn volumes_left_out_alone_find_what_is_not_there_and_runs_left_out_whole_do_not() {
    if !example_03::made() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let ended =
        voxelflow(["run", "examples/04_leakage.vf", "--out", out.path().to_str().unwrap()]).expect_code(0);
    assert!(ended.stdout.contains("| volumes ") && ended.stdout.contains("| runs "), "{}", ended.stdout);
    let of = |model: &str| (mean(out.path(), model, "score"), mean(out.path(), model, "r"));
    let ((leaky, truth), (honest, _)) = (of("by_volume"), of("by_run"));
    println!(
        "mean r by cross-validation: volumes {leaky:.3}, runs {honest:.3}; in a run that was held out {truth:.3}"
    );
    assert!(leaky > 0.25 && truth.abs() < 0.08 && honest < 0.1, "{leaky} {truth} {honest}");
}
