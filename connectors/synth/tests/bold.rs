//! Images: the planted responses are where the anatomy says, the rest is what it should be, and a seed says it all.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use voxelflow_formats::NiftiReader;
use voxelflow_synth::{Anatomy, BoldSynth, Design, Error, REGRESSORS, Region, write_bold};

const VOLUMES: usize = 130;

fn settings(seed: u64) -> BoldSynth {
    BoldSynth { shape: [16, 19, 16], volumes: VOLUMES, seed, snr: 2.0, ..BoldSynth::default() }
}

fn write(settings: &BoldSynth, path: &Path) -> Vec<Vec<f32>> {
    write_bold(settings, path, &mut |_, _| {}).unwrap();
    let mut reader = NiftiReader::open(path).unwrap();
    assert_eq!((reader.header().shape, reader.header().volumes), (settings.shape, settings.volumes));
    assert_eq!(reader.header().t_r().unwrap(), Some(f64::from(0.72_f32)));
    let (mut volumes, mut volume) = (Vec::new(), Vec::new());
    while reader.next_volume(&mut volume).unwrap() {
        volumes.push(volume.clone());
    }
    volumes
}

fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(x, y)| f(x - ma, y - mb)).sum::<f64>();
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

#[test]
fn responses_are_planted_in_their_regions_and_nothing_lies_outside_of_the_head() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sub-01_bold.nii.gz");
    let volumes = write(&settings(3), &path);
    let (anatomy, design) =
        (Anatomy::on_grid([16, 19, 16]).unwrap(), Design::try_new(VOLUMES, 0.72).unwrap());
    let series = |v: u32| volumes.iter().map(|volume| f64::from(volume[v as usize])).collect::<Vec<_>>();
    for (which, response) in design.regressors.iter().enumerate() {
        let mut own = Vec::new();
        for (voxel, region) in anatomy.voxels.iter().zip(&anatomy.regions) {
            let r = pearson(&series(*voxel), response);
            match region {
                Some(Region(n)) if usize::from(*n) == which => own.push(r),
                Some(_) => {}
                None => assert!(r.abs() < 0.6, "voxel {voxel} follows {} by chance: {r}", REGRESSORS[which]),
            }
        }
        // At SNR 2 the response has 4/5 of the variance: r is about 0.89.
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        assert!((0.85..0.93).contains(&mean), "{}: {mean}", REGRESSORS[which]);
    }
    let outside = (0..16 * 19 * 16_u32).filter(|v| anatomy.voxels.binary_search(v).is_err());
    assert!(outside.flat_map(series).all(|x| x == 0.0));
    let sidecar = std::fs::read_to_string(folder.path().join("sub-01_bold.json")).unwrap();
    let sidecar: serde_json::Value = serde_json::from_str(&sidecar).unwrap();
    assert_eq!((&sidecar["RepetitionTime"], &sidecar["voxelflow"]["seed"]), (&0.72.into(), &3.into()));
}

#[test]
fn a_seed_says_it_all() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |seed, name: &str| {
        let path = folder.path().join(name);
        write(&settings(seed), &path);
        std::fs::read(path).unwrap()
    };
    let one = bytes(1, "a_bold.nii");
    assert!(one == bytes(1, "b_bold.nii") && one != bytes(2, "c_bold.nii"));
}

#[test]
fn wrong_settings_and_names_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |settings: &BoldSynth, name: &str| {
        let e = write_bold(settings, &folder.path().join(name), &mut |_, _| {}).unwrap_err();
        assert!(e.is_input(), "{e}");
        e
    };
    let wrong = [
        (BoldSynth { volumes: 10, ..settings(0) }, "volumes"),
        (BoldSynth { volumes: 200_000, ..settings(0) }, "volumes"),
        (BoldSynth { t_r: f64::NAN, ..settings(0) }, "t_r"),
        (BoldSynth { snr: -1.0, ..settings(0) }, "snr"),
        (BoldSynth { shape: [3, 3, 3], ..settings(0) }, "shape"),
    ];
    for (settings, name) in wrong {
        assert!(matches!(refused(&settings, "x.nii"), Error::Setting { setting, .. } if setting == name));
    }
    assert!(refused(&settings(0), "x.txt").to_string().contains(".nii.gz"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
