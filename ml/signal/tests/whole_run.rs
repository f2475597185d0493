//! A whole-brain run cleaned as a lab does it (6 mm, 24 confounds, high-pass, z-score) against nilearn's NiftiMasker.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
mod fixture;

use std::{io::Read, path::Path};
use voxelflow_signal::{CleanSettings, Cleaner, Grid, SampleMask, Volume, VolumePlan, VolumeScratch};

const FILE: &str = "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz";

/// Hands out the volumes of a little-endian int16 NIfTI-1 file one by one.
fn volumes(path: &Path, voxels: usize, mut take: impl FnMut(usize, &[f32])) {
    let mut bytes = flate2::read::MultiGzDecoder::new(std::fs::File::open(path).unwrap());
    let mut header = [0u8; 352];
    bytes.read_exact(&mut header).unwrap();
    assert_eq!((header[0..4].to_vec(), header[70]), (348i32.to_le_bytes().to_vec(), 4));
    let slope = f32::from_le_bytes([header[112], header[113], header[114], header[115]]);
    let count = usize::from(u16::from_le_bytes([header[48], header[49]]));
    let mut raw = vec![0u8; 2 * voxels];
    for t in 0..count {
        bytes.read_exact(&mut raw).unwrap();
        let scaled = raw.as_chunks().0.iter().map(|b| slope * f32::from(i16::from_le_bytes(*b)));
        take(t, &scaled.collect::<Vec<f32>>());
    }
}

#[test]
fn a_whole_run_gives_nilearns_numbers() {
    let Some(path) = fixture::data().map(|folder| folder.join(FILE)).filter(|path| path.exists()) else {
        println!("skipped: {FILE} is not there; set VOXELFLOW_DATA to the folder that holds it");
        return;
    };
    let index = &fixture::json("volumes/index.json")["whole_run"];
    let from = |name: &str| index[name].clone();
    let grid = Grid {
        shape: serde_json::from_value(from("shape")).unwrap(),
        affine: serde_json::from_value(from("affine")).unwrap(),
    };
    let voxels: Vec<usize> = serde_json::from_value(from("voxels")).unwrap();
    let settings: CleanSettings = serde_json::from_value(from("settings")).unwrap();
    let (shape, theirs) = fixture::array::<f32>("volumes/whole_run");
    let (_, confounds) = fixture::array::<f64>("volumes/whole_run_confounds");
    let (n, t) = (shape[0], shape[1]);

    let mask =
        Volume::try_new(grid.shape, (0..grid.voxels()).map(|v| voxels.contains(&v)).collect()).unwrap();
    let plan =
        VolumePlan::new(grid).smooth([index["fwhm"].as_f64().unwrap(); 3]).unwrap().mask(&mask).unwrap();
    let (mut values, mut series) = (vec![0.0; n], vec![0.0f64; n * t]);
    let mut scratch = VolumeScratch::default();
    volumes(&path, grid.voxels(), |time, volume| {
        plan.apply(volume, &mut values, &mut scratch).unwrap();
        (0..n).for_each(|v| series[v * t + time] = values[v]);
    });

    let confounds: Vec<Vec<f64>> = confounds.chunks_exact(t).map(<[f64]>::to_vec).collect();
    let cleaner =
        Cleaner::try_with_regressors(&settings, None, &confounds, &SampleMask::all(t).unwrap()).unwrap();
    let mut ours = vec![0.0; n * t];
    cleaner.clean_into(&series, &mut ours).unwrap();
    let mut worst = 0.0f64;
    for (place, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        let error = f64::from((a - b).abs()) / f64::from(b.abs()).max(1.0);
        assert!(error <= 1e-5, "voxel {}, volume {}: {a} instead of {b}", voxels[place / t], place % t);
        worst = worst.max(error);
    }
    println!("{n} voxels of {FILE}, {}: largest error {worst:.1e}", cleaner.describe());
}
