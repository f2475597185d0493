//! Example 03: categories of things explain the voxels of ventral temporal cortex, in runs that no fit has seen.

use crate::program::{Ended, larger_data, program, root, voxelflow};
use std::{path::Path, process::Command};
use voxelflow_formats::NiftiReader;

/// The example's folder, of the pieces that lie in the larger data.
pub(crate) fn made() -> bool {
    let Some(data) = larger_data() else { return false };
    let mut command = Command::new(root().join("examples/data/haxby.sh"));
    Ended::from(command.arg(data.join("fmri/haxby2001")).output().unwrap()).expect_code(0);
    true
}

/// Pearson's r of a map's voxels.
fn map(out: &Path, name: &str) -> Vec<f32> {
    let path = out.join("maps").join(name);
    NiftiReader::open(path).unwrap().read_all().unwrap().1
}

#[test]
fn what_was_seen_predicts_voxels_in_runs_that_were_held_out() {
    if !made() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let ended =
        voxelflow(["run", "examples/03_encoding.vf", "--out", out.path().to_str().unwrap()]).expect_code(0);
    assert!(ended.stdout.contains("TRAIN MODEL categories"), "{}", ended.stdout);
    let r = map(out.path(), "r.nii.gz");
    assert_eq!(r.len(), 40 * 20);
    let strong = r.iter().filter(|r| **r > 0.3).count();
    println!(
        "{strong} voxels with r over 0.3, the largest {:.3}",
        r.iter().copied().fold(f32::MIN, f32::max)
    );
    assert!(strong >= 20, "{strong}");

    let driver = out.path().join("driver");
    let ended = program("03_encoding").env("VOXELFLOW_OUT", &driver).output().unwrap();
    Ended::from(ended).expect_code(0);
    let by_program = map(&driver, "r.nii.gz");
    assert!(r.iter().zip(&by_program).all(|(a, b)| (a - b).abs() < 1e-5 || a.is_nan() && b.is_nan()));

    let page = std::fs::read_to_string(out.path().join("report.html")).unwrap();
    for shown in ["categories", "ridge_cv", "maps/r.nii.gz"] {
        assert!(page.contains(shown), "{shown} is missing in the report");
    }
}
