//! Cases from the field: what went wrong elsewhere, and what is right here.

use crate::image_bytes::{Image, gzip, open, store};
use std::io::Write;
use voxelflow_formats::{
    DataType, Endian, Error, NiftiReader, NiftiSpec, NiftiWriter, ReadOptions, XformPolicy, XformSource,
};

/// A file in a fresh folder.
fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
    (folder, path)
}

/// A compressible but not trivial image of several volumes, over 8,192 bytes compressed.
fn large() -> Image {
    let mut image = Image::new(&[16, 16, 8, 10], DataType::I16);
    let mut state = 7_u32;
    for byte in &mut image.voxels {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    image
}

fn read(path: &std::path::Path) -> Result<Vec<f32>, Error> {
    Ok(NiftiReader::open(path)?.read_all()?.1)
}

#[test]
fn repetition_time_implausible_absent_or_in_other_units() {
    let t_r = |pixdim4: f64, units: u8| {
        let mut image = Image::new(&[2, 2, 2, 4], DataType::I16);
        (image.pixdim[4], image.xyzt_units) = (pixdim4, units);
        image.open().unwrap().header().t_r()
    };
    assert_eq!(t_r(2.0, 10).unwrap(), Some(2.0));
    assert_eq!(t_r(2.0, 2).unwrap(), Some(2.0));
    assert_eq!(t_r(1500.0, 2 | 16).unwrap(), Some(1.5));
    assert_eq!(t_r(1_500_000.0, 2 | 24).unwrap(), Some(1.5));
    assert_eq!(t_r(0.0, 10).unwrap(), None);
    let refused = t_r(1500.0, 10).unwrap_err();
    assert!(refused.is_input());
    let message = refused.to_string();
    assert!(message.contains("x.nii") && message.contains("1500 s"), "{message}");
    assert!(message.contains("milliseconds?") && message.contains("RepetitionTime"), "{message}");
    for (value, units) in [(-2.0, 10), (f64::NAN, 10), (f64::INFINITY, 8), (2.0, 2 | 16), (2.0, 2 | 32)] {
        let message = t_r(value, units).unwrap_err().to_string();
        assert!(message.contains("pixdim[4]"), "{message}");
    }
}

#[test]
fn sform_and_qform_that_disagree_left_right_are_refused_unless_told() {
    let mut image = Image::new(&[2, 2, 2], DataType::U8);
    image.qform_code = 1;
    image.srow[0] = [-2.0, 0.0, 0.0, 3.0];
    let message = image.refusal();
    assert!(message.contains("disagree about left and right"), "{message}");
    assert!(message.contains("axis i runs to the left in the sform, to the right in the qform"), "{message}");
    assert!(message.contains("(xform 'sform') or (xform 'qform')"), "{message}");
    for (policy, source, x) in
        [(XformPolicy::Sform, XformSource::Sform, -2.0), (XformPolicy::Qform, XformSource::Qform, 2.0)]
    {
        let source_bytes = std::io::Cursor::new(image.bytes());
        let reader = NiftiReader::from_reader(source_bytes, "x.nii", &ReadOptions { xform: policy }).unwrap();
        assert_eq!((reader.header().xform_source, reader.header().affine[0][0]), (source, x));
    }

    // Two flips keep the determinant's sign, and left and right differ all the same.
    image.srow[1] = [0.0, -2.0, 0.0, 4.0];
    assert!(image.refusal().contains("axis i runs to the left"));
    // A mirrored z axis: left-handed against right-handed.
    image.srow = [[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, -2.0, 0.0]];
    assert!(image.refusal().contains("the sform is left-handed, the qform right-handed"));
    // The same with qfac -1 in the qform agrees again, and so does a qform that is not set.
    image.pixdim[0] = -1.0;
    image.read().unwrap();
    (image.pixdim[0], image.qform_code) = (1.0, 0);
    image.read().unwrap();
}

#[test]
fn a_gzip_file_cut_at_8192_bytes_names_path_and_offset() {
    let whole = gzip(&large().bytes());
    assert!(whole.len() > 9000);
    for cut in [8192, 4096, whole.len() - 1, whole.len() - 8, 9, 3] {
        let (_folder, path) = file("cut_bold.nii.gz", &whole[..cut]);
        let error = read(&path).unwrap_err();
        assert!(
            matches!(&error, Error::Truncated { offset, .. } if *offset == cut as u64),
            "{cut}: {error:?}"
        );
        let message = error.to_string();
        assert!(message.contains("cut_bold.nii.gz") && message.contains(&format!("byte {cut}")), "{message}");
        assert!(error.is_input());
    }
    let (_folder, path) = file("bold.nii.gz", &whole[..8192]);
    let message = read(&path).unwrap_err().to_string();
    assert!(message.contains("inside volume 2 of 10"), "{message}");
}

#[test]
fn the_last_volume_is_not_given_out_before_the_trailer_was_right() {
    let whole = gzip(&large().bytes());
    let mut reader = open(whole[..whole.len() - 4].to_vec(), "x.nii.gz").unwrap();
    let mut volume = Vec::<f32>::new();
    for _ in 0..9 {
        assert!(reader.next_volume(&mut volume).unwrap());
    }
    let message = reader.next_volume(&mut volume).unwrap_err().to_string();
    assert!(message.contains("inside the gzip trailer"), "{message}");
    assert!(volume.is_empty());
    assert!(!reader.next_volume(&mut volume).unwrap(), "an error ends the image");
}

#[test]
fn a_name_that_says_gzip_over_other_content_is_refused_at_byte_0() {
    let (_folder, path) = file("page.nii.gz", b"<html>404 not found</html>");
    let error = read(&path).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::NotGzip { .. }));
    assert!(
        message.contains("page.nii.gz") && message.contains("byte 0 begins with 3c 68 74 6d"),
        "{message}"
    );
    let (_folder, path) = file("plain.nii.gz", &large().bytes());
    assert!(read(&path).unwrap_err().to_string().contains("rename it to .nii"));
    let (_folder, path) = file("empty.nii.gz", b"");
    assert!(read(&path).unwrap_err().to_string().contains("the file is empty"));
}

#[test]
fn gzip_content_under_another_name_is_read_and_told() {
    let image = large();
    let reader = open(gzip(&image.bytes()), "x.nii").unwrap();
    assert!(reader.header().faults()[0].contains("gzip although the name"), "{:?}", reader.header().faults());
    assert_eq!(reader.read_all().unwrap().1, image.read().unwrap());
}

#[test]
fn a_bad_checksum_or_length_is_refused_with_the_offset() {
    let whole = gzip(&large().bytes());
    for back in [8, 4] {
        let mut bad = whole.clone();
        let at = bad.len() - back;
        bad[at] ^= 0x10;
        let (_folder, path) = file("crc.nii.gz", &bad);
        let error = read(&path).unwrap_err();
        assert!(matches!(&error, Error::Gzip { offset, .. } if *offset == bad.len() as u64), "{error:?}");
        let message = error.to_string();
        assert!(message.contains("crc.nii.gz") && message.contains("checksum"), "{message}");
    }
    let mut bad = whole;
    let middle = bad.len() / 2;
    bad[middle] ^= 0x55;
    let error = open(bad, "x.nii.gz").and_then(NiftiReader::read_all).unwrap_err();
    assert!(matches!(error, Error::Gzip { .. }), "{error:?}");
}

#[test]
fn several_gzip_members_are_one_file() {
    let image = large();
    let bytes = image.bytes();
    let mut members = gzip(&bytes[..300]);
    members.extend(gzip(b""));
    members.extend(gzip(&bytes[300..7000]));
    members.extend(gzip(&bytes[7000..]));
    members.extend([0; 700]);
    assert_eq!(open(members.clone(), "x.nii.gz").unwrap().read_all().unwrap().1, image.read().unwrap());

    let end = members.len() as u64;
    members.extend(b"rubbish");
    let error = open(members, "x.nii.gz").and_then(NiftiReader::read_all).unwrap_err();
    assert!(matches!(&error, Error::Gzip { offset, .. } if *offset == end), "{error:?}");
    assert!(error.to_string().contains("rubbish after the end"));
}

#[test]
fn a_plain_file_cut_short_is_refused_when_it_is_opened() {
    let whole = large().bytes();
    let (_folder, path) = file("cut.nii", &whole[..whole.len() - 1]);
    let message = NiftiReader::open(&path).unwrap_err().to_string();
    assert!(message.contains(&format!("ends at byte {}", whole.len() - 1)), "{message}");
    assert!(message.contains("inside volume 10 of 10"), "{message}");
    // A stream cannot know before it gets there.
    let error = open(whole[..5000].to_vec(), "x.nii").unwrap().read_all().unwrap_err();
    assert!(error.to_string().contains("ends at byte 5000, inside volume 2 of 10"), "{error}");
}

#[test]
fn big_endian_int16_equals_little_endian() {
    let values: Vec<f64> = (0..64).map(|n| f64::from(n * 613 - 20_000)).collect();
    let mut image = Image::new(&[4, 4, 4], DataType::I16);
    (image.scl_slope, image.scl_inter) = (0.5, 3.0);
    image.voxels = store(&values, DataType::I16, Endian::Little);
    let little = image.open().unwrap().read_all().unwrap();
    image.endian = Endian::Big;
    image.voxels = store(&values, DataType::I16, Endian::Big);
    let big = image.open().unwrap().read_all().unwrap();
    assert_eq!(little.1, big.1);
    assert_eq!(little.1[1], (613.0 - 20_000.0) * 0.5 + 3.0);
    assert_eq!((little.0.affine, little.0.t_r().unwrap()), (big.0.affine, big.0.t_r().unwrap()));
    assert_eq!((little.0.endian, big.0.endian), (Endian::Little, Endian::Big));
}

#[test]
fn results_on_the_grid_of_an_int16_image_are_float32_and_exact() {
    let source = Image::new(&[2, 2, 2, 3], DataType::I16).open().unwrap().header().clone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.nii.gz");
    let values: Vec<f32> =
        vec![0.1, -0.0, f32::MIN_POSITIVE / 2.0, 1e30, f32::NAN, f32::INFINITY, 1.0 / 3.0, -7.25];
    let mut writer = NiftiWriter::create(&path, &NiftiSpec::like(&source, 1)).unwrap();
    writer.write_volume(&values).unwrap();
    writer.finish().unwrap();
    let (header, back) = NiftiReader::open(&path).unwrap().read_all().unwrap();
    assert_eq!((header.data_type, header.affine, header.xform_code), (DataType::F32, source.affine, 1));
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&values), bits(&back));
}

#[test]
fn only_trailing_singleton_dimensions_are_taken() {
    let message = Image::new(&[2, 2, 2, 1, 5], DataType::I16).refusal();
    assert!(message.contains("2×2×2×1×5") && message.contains("dimension 5"), "{message}");
    assert!(message.contains("field dim at byte 40"), "{message}");
    for shape in [&[2, 2, 2, 5, 1][..], &[2, 2, 2, 5, 1, 1, 1], &[2, 2, 2, 5]] {
        let reader = Image::new(shape, DataType::I16).open().unwrap();
        assert_eq!((reader.header().shape, reader.header().volumes), ([2, 2, 2], 5));
    }
    let reader = Image::new(&[7], DataType::I16).open().unwrap();
    assert_eq!((reader.header().shape, reader.header().volumes), ([7, 1, 1], 1));
    for (count, first) in [(0, 2), (8, 2), (-1, 2), (3, 0), (3, -4)] {
        let mut image = Image::new(&[2, 2, 2], DataType::I16);
        (image.dim[0], image.dim[1]) = (count, first);
        assert!(image.refusal().contains("field dim"), "{count} {first}");
    }
}

#[test]
fn a_mask_shifted_by_1_mm_is_on_another_grid() {
    let image = Image::new(&[2, 2, 2], DataType::U8).open().unwrap();
    let mut shifted = Image::new(&[2, 2, 2], DataType::U8);
    shifted.srow[1][3] += 1.0;
    let mask = open(shifted.bytes(), "mask.nii").unwrap();
    let error = mask.header().require_same_grid(image.header()).unwrap_err();
    let message = error.to_string();
    assert!(error.is_input());
    assert!(message.contains("mask.nii") && message.contains("x.nii"), "{message}");
    assert!(message.contains("y of origin is -3 mm and -4 mm"), "{message}");
    let wide = Image::new(&[3, 2, 2], DataType::U8).open().unwrap();
    let message = wide.header().require_same_grid(image.header()).unwrap_err().to_string();
    assert!(message.contains("3×2×2 and 2×2×2"), "{message}");
    image.header().require_same_grid(image.header()).unwrap();
}

#[test]
fn labels_over_127_are_widened_and_never_wrap() {
    let mut atlas = Image::new(&[2, 1, 1], DataType::U8);
    atlas.voxels = vec![200, 3];
    let labels = atlas.read().unwrap();
    assert_eq!(labels, [200.0, 3.0]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("atlas.nii");
    let spec = NiftiSpec::new([2, 1, 1], 1);
    let mut narrow = NiftiWriter::create(&path, &spec.clone().with_data_type(DataType::I8)).unwrap();
    let message = narrow.write_volume(&labels).unwrap_err().to_string();
    assert!(message.contains("voxel [0, 0, 0]: 200 is not a value of int8"), "{message}");

    let wide = DataType::for_labels(-1.0, 200.0);
    assert_eq!(wide, DataType::I16);
    let mut writer = NiftiWriter::create(&path, &spec.with_data_type(wide)).unwrap();
    writer.write_volume(&labels).unwrap();
    writer.finish().unwrap();
    let (header, back) = NiftiReader::open(&path).unwrap().read_all().unwrap();
    assert_eq!((header.data_type, back), (DataType::I16, labels));
}
