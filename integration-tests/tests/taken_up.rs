//! A driver that is killed in a training: started again, it goes on from the newest checkpoint.

use crate::program::{files_below, program, root};
use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

const EPOCHS: u64 = 60;

fn pipeline() -> String {
    format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'auto', subject '01');
         CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
         TRAIN MODEL dca USING dist_dca (hidden => 8, filters => [16, 32], kernels => [9, 5], pools => 1)
           ON series WITH (ranks => 2, minibatch => 32, epochs => {EPOCHS}, learning_rate => 0.01, seed => 1,
                           deterministic => true);",
        root().join("examples/data/ds003_sub-01_mc.nii.gz").display()
    )
}

/// Epochs whose end was told, by number.
fn epochs_told(stderr: &str) -> Vec<u64> {
    let lines = stderr.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter_map(|line| line["epoch"]["epoch"].as_u64()).collect()
}

fn hidden_files(models: &Path) -> Vec<String> {
    let names = std::fs::read_dir(models).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name.starts_with('.')).collect()
}

#[test]
fn a_training_whose_driver_was_killed_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.vf");
    std::fs::write(&file, pipeline()).unwrap();
    let run = |out: &Path| {
        let mut command = program("voxelflow");
        command.args(["--json", "run"]).arg(&file).arg("--out").arg(out);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let (undisturbed, out) = (folder.path().join("undisturbed"), folder.path().join("out"));
    let models = out.join("models");
    assert!(run(&undisturbed).output().unwrap().status.success());

    let mut killed = run(&out).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    let checkpointed =
        || files_below(&models).iter().filter(|f| f.ends_with(".json") && f.contains("round-")).count() > 1;
    while !checkpointed() {
        assert!(Instant::now() < end, "no checkpoint within two minutes: {:?}", files_below(&models));
        assert!(killed.try_wait().unwrap().is_none(), "it ended before it could be killed");
        std::thread::sleep(Duration::from_millis(10));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = hidden_files(&models);
    assert!(left.iter().any(|name| name == ".dca.run.json"), "{left:?}");

    let started = Instant::now();
    let again = run(&out).output().unwrap();
    let stderr = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.success(), "{stderr}");
    let told = epochs_told(&stderr);
    assert!(told[0] > 0 && told.last() == Some(&(EPOCHS - 1)), "it began at epoch {told:?}");
    println!("taken up at epoch {}, ended after {:?}", told[0], started.elapsed());
    assert_eq!(hidden_files(&models), [""; 0], "what was left behind is cleared away");

    // As if nothing had happened.
    let weights = |out: &Path| std::fs::read(out.join("models/dca/model.safetensors")).unwrap();
    assert_eq!(weights(&out), weights(&undisturbed));
}
