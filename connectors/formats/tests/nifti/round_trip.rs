//! Any type, byte order, version, compression and shape: what was stored is what is read.

use crate::image_bytes::{Image, gzip, open, store};
use proptest::prelude::*;
use voxelflow_formats::{DataType, Endian, NiftiReader, NiftiSpec, NiftiVersion, NiftiWriter};

/// Extremes of a type, as far as double precision holds them.
fn extremes(data_type: DataType) -> (f64, f64) {
    match data_type {
        DataType::U8 => (0.0, 255.0),
        DataType::I8 => (-128.0, 127.0),
        DataType::U16 => (0.0, 65_535.0),
        DataType::I16 => (-32_768.0, 32_767.0),
        DataType::U32 => (0.0, 4_294_967_295.0),
        DataType::I32 => (-2_147_483_648.0, 2_147_483_647.0),
        DataType::U64 => (0.0, 2_f64.powi(63)),
        DataType::I64 => (-(2_f64.powi(63)), 2_f64.powi(62)),
        _ => (-1e30, 1e30),
    }
}

fn image() -> impl Strategy<Value = (Image, Vec<f64>, usize)> {
    let shape = prop::collection::vec(1_i64..6, 1..=4);
    let scaling = prop_oneof![Just((1.0, 0.0)), Just((0.0, 7.0)), Just((0.25, -3.0)), Just((-75.5, 1e4))];
    (shape, 0..DataType::ALL.len(), any::<(bool, bool)>(), scaling, 0..40_usize, any::<u64>()).prop_map(
        |(shape, data_type, (two, big), (slope, intercept), extension, mut seed)| {
            let data_type = DataType::ALL[data_type];
            let mut image = Image::new(&shape, data_type);
            image.endian = if big { Endian::Big } else { Endian::Little };
            (image.scl_slope, image.scl_inter) = (slope, intercept);
            image.extensions.extend(vec![0xa5; 16 * extension]);
            image.vox_offset += 16.0 * extension as f64;
            let (least, most) = extremes(data_type);
            let count = shape.iter().product::<i64>() as usize;
            let mut values: Vec<f64> = (0..count)
                .map(|_| {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let part = (seed >> 11) as f64 / (1_u64 << 53) as f64;
                    let value = least + (most - least) * part;
                    match data_type {
                        DataType::F64 => value,
                        DataType::F32 => f64::from(value as f32),
                        _ => value.trunc(),
                    }
                })
                .collect();
            values[0] = least;
            values[count - 1] = most;
            if data_type == DataType::F32 {
                values.iter_mut().for_each(|value| *value = f64::from(*value as f32));
            }
            image.voxels = store(&values, data_type, image.endian);
            let image = if two { image.into_version_two() } else { image };
            let volumes = shape.get(3).map_or(1, |&t| t as usize);
            (image, values, volumes)
        },
    )
}

proptest! {
    #[test]
    fn stored_values_are_read((image, values, volumes) in image(), compress: bool) {
        let bytes = image.bytes();
        let mut reader = if compress {
            open(gzip(&bytes), "x.nii.gz").unwrap()
        } else {
            open(bytes, "x.nii").unwrap()
        };
        let header = reader.header().clone();
        prop_assert_eq!((header.version, header.endian, header.volumes), (image.version, image.endian, volumes));
        prop_assert_eq!(header.data_type.code(), image.datatype);
        let (slope, intercept) =
            if image.scl_slope == 0.0 { (1.0, 0.0) } else { (image.scl_slope, image.scl_inter) };
        let expected: Vec<f32> = values.iter().map(|value| (value * slope + intercept) as f32).collect();
        let (mut volume, mut count) = (Vec::<f32>::new(), 0);
        while reader.next_volume(&mut volume).unwrap() {
            let here = &expected[count * header.voxels()..][..header.voxels()];
            prop_assert_eq!(&volume[..], here);
            count += 1;
        }
        prop_assert_eq!(count, volumes);
        prop_assert!(volume.is_empty());
    }

    #[test]
    fn skipping_leads_to_the_same_volume((image, _, volumes) in image(), skipped in 0..6_usize) {
        let all = image.read().unwrap();
        let mut reader = image.open().unwrap();
        let skipped = skipped.min(volumes);
        for _ in 0..skipped {
            prop_assert!(reader.skip_volume().unwrap());
        }
        let voxels = reader.header().voxels();
        let (_, rest) = reader.read_all().unwrap();
        prop_assert_eq!(&rest[..], &all[skipped * voxels..]);
    }

    #[test]
    fn written_float32_is_read_bit_for_bit(
        shape in prop::array::uniform3(1_usize..5),
        bits in prop::collection::vec(any::<u32>(), 3 * 64),
        volumes in 1..4_usize,
        linear in prop::array::uniform9(-4_f32..4.0),
        compress: bool,
    ) {
        let m = |n: usize| f64::from(linear[n]);
        let affine =
            [[m(0) + 9.0, m(1), m(2), m(3)], [m(4), m(5) + 9.0, m(6), 0.5], [m(7), m(8), 9.0, 1.5], [0.0, 0.0, 0.0, 1.0]];
        let affine = affine.map(|row| row.map(|value| f64::from(value as f32)));
        let voxels: usize = shape.iter().product();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if compress { "x.nii.gz" } else { "x.nii" });
        let spec = NiftiSpec::new(shape, volumes).with_affine(affine, 3).with_t_r(1.5);
        let mut writer = NiftiWriter::create(&path, &spec).unwrap();
        let volume = |t: usize| -> Vec<f32> { bits[64 * t..][..voxels].iter().map(|&b| f32::from_bits(b)).collect() };
        for t in 0..volumes {
            writer.write_volume(&volume(t)).unwrap();
        }
        writer.finish().unwrap();
        let mut reader = NiftiReader::open(&path).unwrap();
        let header = reader.header().clone();
        prop_assert_eq!((header.shape, header.volumes, header.affine), (shape, volumes, affine));
        prop_assert_eq!((header.version, header.xform_code, header.gzip), (NiftiVersion::One, 3, compress));
        prop_assert_eq!(header.t_r().unwrap(), Some(1.5));
        let mut back = Vec::<f32>::new();
        for t in 0..volumes {
            prop_assert!(reader.next_volume(&mut back).unwrap());
            for (ours, theirs) in back.iter().zip(volume(t)) {
                prop_assert_eq!(ours.to_bits(), theirs.to_bits());
            }
        }
    }
}
