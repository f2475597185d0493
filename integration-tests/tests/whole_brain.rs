//! The whole path on a whole-brain run of 80×80×35×156, with its peak memory.

use crate::program::{files_below, larger_data, program, with_peak_memory};
use std::fs;

/// Peak resident memory allowed to the whole job.
const PEAK_MIB: u64 = 1536;

#[test]
fn clean_train_and_map_a_whole_brain_within_bounded_memory() {
    let Some(data) = larger_data() else { return };
    let bold = data.join("fmri/studyforrest/sub-02_task-visloc_bold.nii.gz");
    let folder = tempfile::tempdir().unwrap();
    let (pipeline, out) = (folder.path().join("whole_brain.vf"), folder.path().join("out"));
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'auto');
         CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
         TRAIN MODEL dca USING dist_dca (hidden => 64)
           ON (SELECT * FROM series WHERE voxel % 8 = 1) VALIDATE ON (SELECT * FROM series WHERE voxel % 64 = 0)
           WITH (ranks => 2, minibatch => 16, epochs => 1, max_steps => 20, learning_rate => 0.005);
         CREATE TABLE quality AS
           SELECT voxel, i, j, k, pearson_r(series, reconstruct(dca, series)) AS r FROM series WHERE k % 8 = 4;
         EXPORT MAPS FROM quality TO 'maps/{{column}}.nii.gz';
         REPORT 'report.html';",
        bold.display()
    );
    fs::write(&pipeline, text).unwrap();
    let mut command = program("voxelflow");
    command.args(["run".as_ref(), pipeline.as_os_str(), "--out".as_ref(), out.as_os_str()]);
    let (ended, peak_mib) = with_peak_memory(command);
    let ended = ended.expect_code(0);
    println!("{}peak {peak_mib} MiB", ended.stdout);
    assert!(peak_mib < PEAK_MIB, "peak of {peak_mib} MiB");
    let files = files_below(&out);
    for file in ["maps/r.nii.gz", "report.html", "models/dca/model.safetensors"] {
        assert!(files.iter().any(|f| f == file), "{file} is missing in {files:?}");
    }
}
