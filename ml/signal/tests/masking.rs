//! The brain mask against nilearn 0.14, voxel for voxel, on two real images.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
mod fixture;

use std::{io::Read, path::Path};
use voxelflow_signal::{EpiMask, MeanVolume, Volume, compute_epi_mask};

/// nilearn's mask of an image.
fn expected(name: &str) -> Volume {
    let index = fixture::index();
    let found = index["masks"].as_array().unwrap().iter().find(|m| m["name"] == name).unwrap();
    let shape: [usize; 3] = serde_json::from_value(found["shape"].clone()).unwrap();
    let (_, packed) = fixture::array::<u8>(&format!("{name}_mask"));
    let voxels = (0..shape.iter().product()).map(|v: usize| packed[v / 8] >> (7 - v % 8) & 1 == 1).collect();
    let mask = Volume::try_new(shape, voxels).unwrap();
    assert_eq!(mask.count() as u64, found["voxels"].as_u64().unwrap());
    mask
}

fn assert_same(ours: &Volume, theirs: &Volume) {
    let different = ours.voxels.iter().zip(&theirs.voxels).filter(|(a, b)| a != b).count();
    assert_eq!(different, 0, "{} of {} voxels differ", different, ours.voxels.len());
    assert_eq!(ours.shape, theirs.shape);
}

#[test]
fn a_small_real_image_gives_nilearns_mask() {
    let theirs = expected("ds003");
    let (_, mean) = fixture::array::<f32>("ds003_mean");
    let mean: Vec<f64> = mean.into_iter().map(f64::from).collect();
    assert_same(&compute_epi_mask(&mean, theirs.shape, &EpiMask::default()).unwrap(), &theirs);
}

/// Adds up the volumes of a little-endian int16 NIfTI-1 file.
fn mean_of(path: &Path, shape: [usize; 3]) -> Vec<f64> {
    let mut bytes = flate2::read::MultiGzDecoder::new(std::fs::File::open(path).unwrap());
    let mut header = [0u8; 352];
    bytes.read_exact(&mut header).unwrap();
    assert_eq!(
        (header[0..4].to_vec(), header[70]),
        (348i32.to_le_bytes().to_vec(), 4),
        "int16, little-endian"
    );
    let slope = f32::from_le_bytes([header[112], header[113], header[114], header[115]]);
    let volumes = u16::from_le_bytes([header[48], header[49]]);
    let voxels: usize = shape.iter().product();
    let (mut raw, mut mean) = (vec![0u8; 2 * voxels], MeanVolume::new(voxels));
    for _ in 0..volumes {
        bytes.read_exact(&mut raw).unwrap();
        let volume: Vec<f32> =
            raw.chunks_exact(2).map(|b| slope * f32::from(i16::from_le_bytes([b[0], b[1]]))).collect();
        mean.add(&volume).unwrap();
    }
    mean.finish()
}

#[test]
fn a_whole_run_gives_nilearns_mask() {
    let file = "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz";
    let Some(path) = fixture::data().map(|folder| folder.join(file)).filter(|path| path.exists()) else {
        println!("skipped: {file} is not there; set VOXELFLOW_DATA to the folder that holds it");
        return;
    };
    let theirs = expected("studyforrest");
    let mean = mean_of(&path, theirs.shape);
    assert_same(&compute_epi_mask(&mean, theirs.shape, &EpiMask::default()).unwrap(), &theirs);
    println!("{file}: {} voxels, as nilearn", theirs.count());
}
