//! Example 01 as a newcomer runs it, as a pipeline file and as a driver program.

use crate::program::{files_below, program, root, voxelflow};
use std::path::Path;
use voxelflow_formats::{NiftiReader, ReadOptions};

const MAP_TOLERANCE: f32 = 1e-6;

fn volume(path: &Path) -> (Vec<f32>, [[f64; 4]; 4], usize) {
    let (header, values) = NiftiReader::open_with(path, &ReadOptions::default()).unwrap().read_all().unwrap();
    (values, header.affine, header.volumes)
}

#[test]
fn the_pipeline_file_ends_with_a_table_maps_and_a_report() {
    let out = tempfile::tempdir().unwrap();
    let ended = voxelflow(["run", "examples/01_autoencoder.vf", "--out", out.path().to_str().unwrap()])
        .expect_code(0);
    for shown in ["CREATE TABLE series", "TRAIN MODEL dca", "loss before → after", "report.html", "mean_r"]
    {
        assert!(ended.stdout.contains(shown), "{shown} is missing in\n{}", ended.stdout);
    }
    let files = files_below(out.path());
    for file in ["maps/r.nii.gz", "maps/hidden.nii.gz", "report.html", "models/dca/model.safetensors"] {
        assert!(files.iter().any(|f| f == file), "{file} is missing in {files:?}");
    }
    for file in ["config.json", "statistics.json", "history.json"] {
        assert!(files.contains(&format!("models/dca/{file}")), "{file} is missing in {files:?}");
    }

    // The maps lie on the grid of the source, and correlations are correlations.
    let (_, source, _) = volume(&root().join("examples/data/ds003_sub-01_mc.nii.gz"));
    let (r, affine, _) = volume(&out.path().join("maps/r.nii.gz"));
    for (a, b) in affine.iter().flatten().zip(source.iter().flatten()) {
        assert!((a - b).abs() < 1e-4, "{affine:?} is not {source:?}");
    }
    let inside: Vec<f32> = r.iter().copied().filter(|r| !r.is_nan()).collect();
    assert!(inside.len() < r.len(), "voxels outside the mask have no value");
    assert!(inside.iter().all(|r| r.abs() <= 1.0 + MAP_TOLERANCE));
    let mean = inside.iter().sum::<f32>() / inside.len() as f32;
    assert!(mean > 0.3, "the autoencoder has learned nothing: mean r {mean} over {} voxels", inside.len());
    assert_eq!(volume(&out.path().join("maps/hidden.nii.gz")).2, 8, "one volume a hidden unit");

    let history: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.path().join("models/dca/history.json")).unwrap()).unwrap();
    let before = history["initial_loss"].as_f64().unwrap();
    let after = history["epochs"].as_array().unwrap().last().unwrap()["loss"].as_f64().unwrap();
    assert!(after < before, "loss {before} before, {after} after");
}

#[test]
fn the_driver_program_trains_the_same_model() {
    let out = tempfile::tempdir().unwrap();
    let pipeline = out.path().join("pipeline");
    let driver = out.path().join("driver");
    voxelflow(["run", "examples/01_autoencoder.vf", "--out", pipeline.to_str().unwrap()]).expect_code(0);
    let ended = program("01_autoencoder").env("VOXELFLOW_OUT", &driver).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));

    let history = |folder: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(folder.join("models/dca/history.json")).unwrap()).unwrap()
    };
    let losses = |folder: &Path| -> Vec<f64> {
        let epochs = history(folder)["epochs"].as_array().unwrap().clone();
        epochs.iter().map(|e| e["loss"].as_f64().unwrap()).collect()
    };
    let (a, b) = (losses(&pipeline), losses(&driver));
    assert_eq!(a.len(), b.len());
    for (epoch, (a, b)) in a.iter().zip(&b).enumerate() {
        assert!(
            (a - b).abs() <= 1e-4 * a.abs(),
            "epoch {epoch}: {a} by the file, {b} by the program\n{said}"
        );
    }
}
