//! The memory of an import does not grow with the number of images in the table.

use crate::program::{program, voxelflow, with_peak_memory};
use std::{fs, path::Path};

/// Peak MiB of an import of `count` links to the image, with 300 MB of memory.
fn peak(folder: &Path, image: &Path, count: usize) -> u64 {
    let images = folder.join(format!("{count}"));
    fs::create_dir(&images).unwrap();
    for run in 1..=count {
        fs::hard_link(image, images.join(format!("sub-01_task-rest_run-{run}_bold.nii.gz"))).unwrap();
    }
    let pipeline = folder.join(format!("{count}.vf"));
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'none', t_r 0.72);
         CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');",
        images.display()
    );
    fs::write(&pipeline, text).unwrap();
    let mut command = program("voxelflow");
    command
        .arg("run")
        .arg(&pipeline)
        .args(["--memory", "300MB", "--out"])
        .arg(folder.join(format!("out-{count}")));
    let (ended, peak) = with_peak_memory(command);
    ended.expect_code(0);
    peak
}

#[test]
fn many_images_need_the_memory_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image_bold.nii.gz");
    let out = image.to_str().unwrap();
    voxelflow(["synth", "bold", "--shape", "40,48,40", "--volumes", "150", "--out", out]).expect_code(0);
    // An image has 46 MB of values; what the allocator keeps for the next one is worth two.
    let (one, eight) = (peak(folder.path(), &image, 1), peak(folder.path(), &image, 8));
    println!("peak memory: {one} MiB with one image, {eight} MiB with eight");
    assert!(eight < one + 2 * 46, "{one} MiB with one image, {eight} MiB with eight");
}
