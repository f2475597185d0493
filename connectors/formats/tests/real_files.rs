//! Real files give the values that nibabel gives: `integration-tests/reference/nifti.py` wrote those.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use flate2::Crc;
use serde_json::Value;
use std::path::PathBuf;
use voxelflow_formats::{NiftiReader, NiftiSpec, NiftiWriter};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of real data outside the repository.
fn data() -> PathBuf {
    std::env::var_os("VOXELFLOW_DATA").map_or_else(|| repository().join("../shared/data"), PathBuf::from)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Streams `path` and compares it with `expected`.
fn compare(path: &std::path::Path, expected: &Value) {
    let name = path.display();
    let mut reader = NiftiReader::open(path).unwrap();
    let header = reader.header().clone();
    assert_eq!(serde_json::json!(header.shape), expected["shape"], "{name}");
    assert_eq!(serde_json::json!(header.volumes), expected["volumes"], "{name}");
    assert_eq!(serde_json::json!(header.data_type.to_string()), expected["datatype"], "{name}");
    for (row, values) in header.affine.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            let theirs = number(&expected["affine"][row][column]);
            assert!(
                (value - theirs).abs() <= 1e-6 * theirs.abs().max(1.0),
                "{name}: {row},{column}: {value} {theirs}"
            );
        }
    }
    let t_r = number(&expected["pixdim4_seconds"]);
    if let Ok(ours) = header.t_r() {
        assert_eq!(ours, Some(t_r).filter(|&t_r| t_r != 0.0), "{name}");
    } else {
        assert!(!(0.01..=100.0).contains(&t_r), "{name}: {t_r} refused");
    }

    let picks = expected["values"].as_array().unwrap();
    let (mut volume, mut seen, mut sum, mut squares) = (Vec::<f32>::new(), 0, 0.0, 0.0);
    let (mut digest, mut checked) = (Crc::new(), 0);
    while reader.next_volume(&mut volume).unwrap() {
        assert_eq!(volume.len(), header.voxels());
        for pick in picks {
            let index = pick[0].as_u64().unwrap() as usize;
            if (seen..seen + volume.len()).contains(&index) {
                assert_eq!(f64::from(volume[index - seen]), number(&pick[1]), "{name}: value {index}");
                checked += 1;
            }
        }
        let mut bytes = Vec::with_capacity(4 * volume.len());
        for &value in &volume {
            bytes.extend_from_slice(&value.to_le_bytes());
            sum += f64::from(value);
            squares += f64::from(value).powi(2);
        }
        digest.update(&bytes);
        seen += volume.len();
    }
    assert_eq!(checked, picks.len(), "{name}");
    let mean = sum / seen as f64;
    let std = (squares / seen as f64 - mean * mean).sqrt();
    assert!((mean - number(&expected["mean"])).abs() < 1e-9 * (1.0 + mean.abs()), "{name}: mean {mean}");
    assert!((std - number(&expected["std"])).abs() < 1e-6 * (1.0 + std), "{name}: std {std}");
    assert_eq!(serde_json::json!(digest.sum()), expected["crc32_float32_le"], "{name}: some value differs");
}

fn expectations() -> Value {
    serde_json::from_str(include_str!("fixtures/nifti.json")).unwrap()
}

#[test]
fn the_committed_bold_run_equals_nibabel() {
    let name = "examples/data/ds003_sub-01_mc.nii.gz";
    compare(&repository().join(name), &expectations()["files"][name]);
}

#[test]
fn real_files_outside_the_repository_equal_nibabel() {
    let expectations = expectations();
    let files = expectations["files"].as_object().unwrap();
    let outside: Vec<_> = files.iter().filter(|(name, _)| !name.starts_with("examples/")).collect();
    assert!(outside.len() >= 5);
    if !data().is_dir() {
        assert!(std::env::var_os("CI").is_none(), "no real data at {}", data().display());
        println!("SKIPPED: no real data at {} (set VOXELFLOW_DATA)", data().display());
        return;
    }
    for (name, expected) in outside {
        compare(&data().join(name), expected);
    }
}

#[test]
fn a_real_run_is_written_back_bit_for_bit() {
    let source = repository().join("examples/data/ds003_sub-01_mc.nii.gz");
    let folder = tempfile::tempdir().unwrap();
    for name in ["copy.nii.gz", "copy.nii"] {
        let target = folder.path().join(name);
        let mut reader = NiftiReader::open(&source).unwrap();
        let header = reader.header().clone();
        let mut writer = NiftiWriter::create(&target, &NiftiSpec::like(&header, header.volumes)).unwrap();
        let mut volume = Vec::<f32>::new();
        while reader.next_volume(&mut volume).unwrap() {
            writer.write_volume(&volume).unwrap();
        }
        writer.finish().unwrap();
        let (ours, values) = NiftiReader::open(&target).unwrap().read_all().unwrap();
        let (_, original) = NiftiReader::open(&source).unwrap().read_all().unwrap();
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&values), bits(&original));
        assert_eq!(
            (ours.affine, ours.xform_code, ours.t_r().unwrap()),
            (header.affine, header.xform_code, header.t_r().unwrap())
        );
        ours.require_same_grid(&header).unwrap();
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "temporary files are left");
}
