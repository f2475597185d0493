//! Damaged files: a bounded, deterministic companion of the fuzz target in `connectors/formats/fuzz`.
//! Whatever the bytes are, the reader neither panics nor takes memory for data that are not there.

use crate::damage::{LARGEST, Random, mutate};
use crate::image_bytes::{Image, gzip, open};
use voxelflow_formats::DataType;

fn seeds() -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    for data_type in [DataType::U8, DataType::I16, DataType::F32, DataType::F64] {
        let mut image = Image::new(&[3, 2, 2, 3], data_type);
        (image.qform_code, image.quatern) = (1, [0.0; 3]);
        images.push(image.bytes());
        images.push(image.into_version_two().bytes());
    }
    let zipped: Vec<_> = images.iter().map(|bytes| gzip(bytes)).collect();
    images.extend(zipped);
    images
}

/// Reads everything; true when the file was taken.
fn taken(bytes: Vec<u8>) -> bool {
    let Ok(mut reader) = open(bytes, "x.nii") else { return false };
    let header = reader.header();
    assert!(!header.to_string().is_empty());
    let (voxels, mut volume) = (header.voxels(), Vec::<f32>::new());
    loop {
        match reader.next_volume(&mut volume) {
            Ok(true) => assert_eq!(volume.len(), voxels),
            Ok(false) => return true,
            Err(error) => {
                assert!(error.to_string().contains("x.nii"));
                return false;
            }
        }
    }
}

#[test]
fn damaged_files_neither_panic_nor_take_memory() {
    let seeds = seeds();
    assert!(seeds.iter().cloned().all(taken));
    let mut random = Random(0x5eed_cafe);
    let (mut accepted, mut refused) = (0, 0);
    LARGEST.set(0);
    for round in 0..40_000 {
        let mut bytes = seeds[round % seeds.len()].clone();
        mutate(&mut bytes, &mut random, 40..56);
        // Damage inside the gzip stream mostly ends at its checksum: also damage what is inside.
        if bytes.first() != Some(&0x1f) && random.below(3) == 0 {
            bytes = gzip(&bytes);
        }
        *(if taken(bytes) { &mut accepted } else { &mut refused }) += 1;
    }
    assert!(
        accepted > 1000 && refused > 1000,
        "{accepted} taken, {refused} refused: the damage is one-sided"
    );
    let largest = LARGEST.get();
    assert!(largest < 4 << 20, "one allocation of {largest} bytes for files under 2 kB");
}

#[test]
fn a_header_that_lies_about_its_size_takes_no_memory() {
    let mut image = Image::new(&[2, 2, 2, 2], DataType::F64).into_version_two();
    image.dim[1..5].copy_from_slice(&[100_000, 100_000, 1000, 1000]);
    // Enough for several steps of growth: with less the first step already ends the file.
    image.voxels = vec![0; 1 << 20];
    LARGEST.set(0);
    assert!(image.refusal().contains("inside volume 1 of 1000"));
    image.dim[4] = i64::MAX;
    assert!(image.refusal().contains("too large"));
    assert!(LARGEST.get() < 4 << 20, "{}", LARGEST.get());
}
