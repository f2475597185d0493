//! What header fields mean: scaling, transforms, offsets, kinds of files that are refused by name.

use crate::image_bytes::{Image, gzip, open, store};
use voxelflow_formats::{DataType, Endian, NiftiReader, Scaling, XformSource};

/// One voxel of int16 with the value 10.
fn ten(slope: f64, intercept: f64) -> Image {
    let mut image = Image::new(&[1, 1, 1], DataType::I16);
    image.voxels = vec![10, 0];
    (image.scl_slope, image.scl_inter) = (slope, intercept);
    image
}

#[test]
fn slope_and_intercept() {
    assert_eq!(ten(75.5, -2.0).read().unwrap(), [753.0]);
    assert_eq!(ten(-0.5, 0.0).read().unwrap(), [-5.0]);
    for slope in [0.0, f64::NAN, f64::INFINITY] {
        for intercept in [0.0, 5.0, f64::NAN] {
            assert_eq!(ten(slope, intercept).read().unwrap(), [10.0], "slope {slope}");
        }
    }
    for intercept in [f64::NAN, f64::INFINITY] {
        let message = ten(2.0, intercept).refusal();
        assert!(
            message.contains("field scl_inter at byte 116") && message.contains("slope 2 is finite"),
            "{message}"
        );
    }
    let scaling = ten(2.0, 1.0).open().unwrap().header().scaling;
    assert_eq!(scaling, Some(Scaling { slope: 2.0, intercept: 1.0 }));
    assert_eq!(ten(1.0, 0.0).open().unwrap().header().scaling, None);
}

#[test]
fn scaling_is_computed_in_double_precision() {
    let mut image = Image::new(&[1, 1, 1], DataType::I32);
    image.voxels = store(&[16_777_217.0], DataType::I32, Endian::Little);
    (image.scl_slope, image.scl_inter) = (1.0, -16_777_216.0);
    assert_eq!(image.read().unwrap(), [1.0]);
}

#[test]
fn the_qform_of_a_quarter_turn_and_its_qfac() {
    let mut image = Image::new(&[2, 2, 2], DataType::U8);
    (image.sform_code, image.qform_code) = (0, 1);
    // A quarter turn around z: i runs along y, j along -x.
    image.quatern = [0.0, 0.0, 0.5_f64.sqrt()];
    image.qoffset = [10.0, 20.0, 30.0];
    image.pixdim[1..4].copy_from_slice(&[2.0, 3.0, 4.0]);
    for (qfac, z) in [(1.0, 4.0), (-1.0, -4.0), (0.0, 4.0), (0.7, 4.0)] {
        image.pixdim[0] = qfac;
        let header = image.open().unwrap().header().clone();
        let expected =
            [[0.0, -3.0, 0.0, 10.0], [2.0, 0.0, 0.0, 20.0], [0.0, 0.0, z, 30.0], [0.0, 0.0, 0.0, 1.0]];
        for (ours, theirs) in header.affine.iter().flatten().zip(expected.iter().flatten()) {
            assert!((ours - theirs).abs() < 1e-6, "{:?}", header.affine);
        }
        assert_eq!((header.xform_source, header.xform_code), (XformSource::Qform, 1));
        assert_eq!(header.faults().is_empty(), qfac.abs() == 1.0, "{:?}", header.faults());
    }
    image.quatern = [1.0, 1.0, 0.0];
    assert!(image.refusal().contains("not of unit length"));
    image.quatern = [f64::NAN, 0.0, 0.0];
    assert!(image.refusal().contains("field quatern_b at byte 256"));
}

#[test]
fn qforms_equal_nibabel() {
    let fixture: serde_json::Value = serde_json::from_str(include_str!("../fixtures/nifti.json")).unwrap();
    let cases = fixture["qforms"].as_array().unwrap();
    assert_eq!(cases.len(), 30);
    let numbers = |value: &serde_json::Value| -> Vec<f64> { serde_json::from_value(value.clone()).unwrap() };
    for case in cases {
        let mut image = Image::new(&[5, 6, 7], DataType::U8);
        (image.sform_code, image.qform_code) = (0, 1);
        image.quatern.copy_from_slice(&numbers(&case["quatern"]));
        image.qoffset.copy_from_slice(&numbers(&case["qoffset"]));
        image.pixdim[..4].copy_from_slice(&numbers(&case["pixdim"]));
        let affine = image.open().unwrap().header().affine;
        for (row, ours) in affine.iter().enumerate() {
            for (ours, theirs) in ours.iter().zip(numbers(&case["affine"][row])) {
                assert!((ours - theirs).abs() < 2e-6, "{case}: {affine:?}");
            }
        }
    }
}

#[test]
fn voxel_sizes_alone_give_a_centred_affine_that_is_told() {
    let mut image = Image::new(&[3, 5, 7], DataType::U8);
    (image.sform_code, image.qform_code) = (0, 0);
    image.pixdim[1..4].copy_from_slice(&[2.0, 3.0, 0.0]);
    let header = image.open().unwrap().header().clone();
    assert_eq!(
        header.affine,
        [[-2.0, 0.0, 0.0, 2.0], [0.0, 3.0, 0.0, -6.0], [0.0, 0.0, 1.0, -3.0], [0.0, 0.0, 0.0, 1.0]]
    );
    assert_eq!((header.xform_code, header.xform_source), (0, XformSource::Pixdim));
    assert!(header.faults()[0].contains("left and right are a guess"), "{:?}", header.faults());
    assert!(header.to_string().contains("! neither sform nor qform"), "{header}");
}

#[test]
fn a_singular_sform_is_refused() {
    let mut image = Image::new(&[2, 2, 2], DataType::U8);
    image.srow[2] = image.srow[1];
    assert!(image.refusal().contains("field srow_x at byte 280"));
    image.srow[2][2] = f64::NAN;
    assert!(image.into_version_two().refusal().contains("field srow_x at byte 400"));
}

#[test]
fn lengths_in_micrometres_become_millimetres() {
    let mut image = Image::new(&[2, 2, 2], DataType::U8);
    image.xyzt_units = 3 | 8;
    let header = image.open().unwrap().header().clone();
    assert_eq!(header.voxel_size_mm, [0.002; 3]);
    assert!(header.faults()[0].contains("not stored in millimetres"));
}

#[test]
fn extensions_are_passed_over_and_bad_offsets_refused() {
    let mut image = ten(1.0, 0.0);
    image.extensions = vec![0xee; 4 + 5000];
    image.vox_offset = 352.0 + 5000.0;
    assert_eq!(image.read().unwrap(), [10.0]);
    assert_eq!(image.clone().into_version_two().read().unwrap(), [10.0]);
    for offset in [0.0, 348.0, 352.5, -1.0, f64::NAN, f64::INFINITY, 1e30] {
        image.vox_offset = offset;
        assert!(image.refusal().contains("field vox_offset at byte 108"), "{offset}");
    }
    image.vox_offset = 1e9;
    assert!(image.refusal().contains("inside the header's extensions"));
}

#[test]
fn other_number_types_are_refused_by_name() {
    for (code, name) in [
        (1, "BINARY"),
        (32, "COMPLEX64"),
        (128, "RGB24"),
        (1536, "FLOAT128"),
        (1792, "COMPLEX128"),
        (2304, "RGBA32"),
        (77, "unknown type"),
    ] {
        let mut image = Image::new(&[2, 2, 2], DataType::U8);
        image.datatype = code;
        let message = image.refusal();
        assert!(message.contains(name) && message.contains(&format!("datatype {code}")), "{message}");
    }
}

#[test]
fn other_kinds_of_files_are_refused_by_name() {
    let refused = |bytes: Vec<u8>| {
        let error = open(bytes, "x.nii").unwrap_err();
        assert!(error.is_input());
        error.to_string()
    };
    assert!(refused(b"PK\x03\x04 something".to_vec()).contains("sizeof_hdr at byte 0"));
    assert!(refused(vec![0x5c]).contains("only 1 bytes"));
    assert!(refused(vec![]).contains("only 0 bytes"));
    let mut image = Image::new(&[2, 2, 2], DataType::U8);
    assert!(refused(image.bytes()[..200].to_vec()).contains("ends at byte 200, inside the header"));
    for (magic, reason) in [
        (&b"ni1\0"[..], ".hdr/.img pair"),
        (b"\0\0\0\0", "Analyze 7.5"),
        (b"n+9\0", "its magic is \"n+9\\x00\""),
    ] {
        image.magic = magic.to_vec();
        let message = image.refusal();
        assert!(message.contains(reason), "{message}");
    }
    let mut image = Image::new(&[2, 2, 2], DataType::U8).into_version_two();
    image.magic = b"n+2\0\n\x1a\n\0".to_vec();
    assert!(image.refusal().contains("text mode"));
    let mut image = Image::new(&[1, 1, 1, 1, 4, 6], DataType::F32).into_version_two();
    image.intent_code = 3002;
    assert!(image.refusal().contains("CIFTI"));
}

#[test]
fn a_file_that_is_not_there_is_the_users_fault() {
    let error = NiftiReader::open("/nowhere/bold.nii.gz").unwrap_err();
    assert!(error.is_input());
    assert!(error.to_string().starts_with("/nowhere/bold.nii.gz: cannot be opened"), "{error}");
}

#[test]
fn a_failing_disk_is_not_called_a_damaged_file() {
    struct Failing(std::io::Cursor<Vec<u8>>);
    impl std::io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(std::io::Error::other("connection reset")),
                n => Ok(n),
            }
        }
    }
    let whole = gzip(&Image::new(&[8, 8, 8, 4], DataType::I16).bytes());
    for bytes in [whole[..whole.len() / 2].to_vec(), whole[..3].to_vec()] {
        let source = Failing(std::io::Cursor::new(bytes));
        let error = NiftiReader::from_reader(source, "x.nii.gz", &Default::default())
            .and_then(NiftiReader::read_all)
            .unwrap_err();
        assert!(!error.is_input());
        assert!(error.to_string().contains("connection reset"), "{error}");
    }
}

#[test]
fn faults_name_what_is_unusual() {
    let mut image = Image::new(&[2, 2, 2, 3], DataType::I16);
    assert!(image.open().unwrap().header().faults().is_empty());
    (image.scl_slope, image.scl_inter, image.bitpix, image.pixdim[4]) = (0.0, 4.0, 8, 3000.0);
    let faults = image.open().unwrap().header().faults().join("; ");
    for part in [
        "intercept 4 is not used",
        "bitpix is 8, but int16 has 16 bits",
        "repetition time 3000 s cannot be right",
    ] {
        assert!(faults.contains(part), "{faults}");
    }
    image.pixdim[4] = 0.0;
    assert!(image.open().unwrap().header().faults().iter().any(|fault| fault.contains("no repetition time")));
}

#[test]
fn the_summary_says_what_an_inspector_asks() {
    let mut image = Image::new(&[4, 3, 2, 6], DataType::I16);
    (image.scl_slope, image.scl_inter) = (0.5, 1.0);
    let text = image.open().unwrap().header().to_string();
    let expected = "\
x.nii: NIfTI-1, little-endian
  shape      4×3×2 voxels, 6 volume(s)
  voxel size 2.0000 × 2.0000 × 2.0000 mm
  t_r        2.000000 s
  values     int16 × 0.5 + 1
  affine     [2.0000 0.0000 0.0000 -3.0000] [0.0000 2.0000 0.0000 -4.0000] [0.0000 0.0000 2.0000 -5.0000] (sform, code 1)
";
    assert_eq!(text, expected);
}
