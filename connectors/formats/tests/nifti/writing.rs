//! The writer: all of an image or nothing, and what cannot be stored is refused.

use crate::image_bytes::Image;
use voxelflow_formats::{DataType, NiftiReader, NiftiSpec, NiftiVersion, NiftiWriter, XformSource};

fn listing(folder: &tempfile::TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn an_image_that_is_not_finished_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map.nii.gz");
    std::fs::write(&path, "the old one").unwrap();
    let spec = NiftiSpec::new([2, 2, 2], 2);
    let mut writer = NiftiWriter::create(&path, &spec).unwrap();
    writer.write_volume(&[1.0; 8]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"the old one");
    let message = writer.finish().unwrap_err().to_string();
    assert!(message.contains("map.nii.gz") && message.contains("1 of 2 volumes"), "{message}");
    drop(NiftiWriter::create(&path, &spec).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), b"the old one");
    assert_eq!(listing(&folder), ["map.nii.gz"]);

    let mut writer = NiftiWriter::create(&path, &spec).unwrap();
    writer.write_volume(&[1.0; 8]).unwrap();
    writer.write_volume(&[2.0; 8]).unwrap();
    writer.finish().unwrap();
    assert_eq!(NiftiReader::open(&path).unwrap().read_all().unwrap().1, [[1.0; 8], [2.0; 8]].concat());
    assert_eq!(listing(&folder), ["map.nii.gz"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map.nii");
    let refusal = |spec: &NiftiSpec, values: &[&[f32]]| {
        let outcome = NiftiWriter::create(&path, spec).and_then(|mut writer| {
            values.iter().try_for_each(|volume| writer.write_volume(volume))?;
            writer.finish()
        });
        let error = outcome.unwrap_err();
        assert!(error.is_input());
        error.to_string()
    };
    let spec = NiftiSpec::new([2, 1, 1], 1);
    assert!(refusal(&spec, &[&[1.0]]).contains("has 1 values, the grid has 2"));
    assert!(refusal(&spec, &[&[1.0; 2], &[1.0; 2]]).contains("this is one more"));
    for (data_type, value) in [
        (DataType::U8, 256.0),
        (DataType::U8, -1.0),
        (DataType::I16, 0.5),
        (DataType::I32, f32::NAN),
        (DataType::I64, 9.3e18),
        (DataType::U64, f32::INFINITY),
    ] {
        let message = refusal(&spec.clone().with_data_type(data_type), &[&[0.0, value]]);
        assert!(message.contains("voxel [1, 0, 0]") && message.contains(&data_type.to_string()), "{message}");
    }
    assert!(refusal(&NiftiSpec::new([2, 0, 1], 1), &[]).contains("empty or too large"));
    assert!(refusal(&NiftiSpec::new([usize::MAX, 2, 2], 1), &[]).contains("empty or too large"));
    assert!(refusal(&spec.clone().with_affine([[0.0; 4]; 4], 1), &[]).contains("singular"));
    assert!(refusal(&spec.clone().with_t_r(f64::NAN), &[]).contains("repetition time"));
    let mut bent = spec.affine;
    bent[3][0] = 1.0;
    assert!(refusal(&spec.clone().with_affine(bent, 1), &[]).contains("last row"));
    assert!(listing(&folder).is_empty());

    let error = NiftiWriter::create(folder.path().join("map.txt"), &spec).err().unwrap();
    assert!(error.to_string().contains("ends in .nii or .nii.gz"), "{error}");
    let error = NiftiWriter::create(folder.path().join("no/such/map.nii"), &spec).err().unwrap();
    assert!(error.is_input() && error.to_string().contains("no/such/map.nii"), "{error}");
}

#[test]
fn a_long_dimension_makes_nifti_2() {
    let folder = tempfile::tempdir().unwrap();
    for (volumes, version) in [(32_767, NiftiVersion::One), (32_768, NiftiVersion::Two)] {
        let path = folder.path().join(format!("{volumes}.nii.gz"));
        let affine =
            [[0.0, -2.1, 0.0, 9.7], [1.9, 0.0, 0.0, 3.3], [0.0, 0.0, 4.0, -1.0], [0.0, 0.0, 0.0, 1.0]];
        let spec = NiftiSpec::new([1, 2, 1], volumes).with_affine(affine, 4).with_t_r(0.8);
        let spec = spec.with_description("é".repeat(60));
        let mut writer = NiftiWriter::create(&path, &spec).unwrap();
        for t in 0..volumes {
            writer.write_volume(&[t as f32, -0.5]).unwrap();
        }
        writer.finish().unwrap();
        let (header, values) = NiftiReader::open(&path).unwrap().read_all().unwrap();
        assert_eq!((header.version, header.volumes, header.xform_code), (version, volumes, 4));
        assert_eq!(header.description, "é".repeat(39), "79 bytes, and no half letter");
        assert_eq!(values[2 * (volumes - 1)..], [(volumes - 1) as f32, -0.5]);
        let exact = version == NiftiVersion::Two;
        for (ours, theirs) in header.affine.iter().flatten().zip(affine.iter().flatten()) {
            assert!(if exact { ours == theirs } else { *ours == f64::from(*theirs as f32) });
        }
    }
}

#[test]
fn an_image_without_a_place_stays_without_one() {
    let mut source = Image::new(&[3, 2, 2], DataType::U8);
    source.sform_code = 0;
    let source = source.open().unwrap().header().clone();
    let folder = tempfile::tempdir().unwrap();
    let write = |spec: &NiftiSpec| {
        let path = folder.path().join("map.nii");
        let mut writer = NiftiWriter::create(&path, spec).unwrap();
        writer.write_volume(&[0.0; 12]).unwrap();
        writer.finish().unwrap();
        NiftiReader::open(&path).unwrap().header().clone()
    };
    let header = write(&NiftiSpec::like(&source, 1));
    assert_eq!((header.xform_source, header.affine), (XformSource::Pixdim, source.affine));
    // A place of unknown code is kept rather than lost.
    let mut moved = source.affine;
    moved[0][3] = 100.0;
    let header = write(&NiftiSpec::like(&source, 1).with_affine(moved, 0));
    assert_eq!((header.xform_source, header.affine), (XformSource::Sform, moved));
}
