//! Damaged files: a bounded, deterministic companion of the fuzz target in `connectors/formats/fuzz`.
//! Whatever the bytes are, the reader neither panics nor takes memory for data that are not there.

use crate::image_bytes::{Image, gzip, open};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use voxelflow_formats::DataType;

/// Notes the largest allocation of each thread.
struct Largest;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

/// Small and reproducible.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

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

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len().max(1));
        match random.below(6) {
            _ if bytes.is_empty() => return,
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4)],
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                let value = [0, 0x7f, 0xff][random.below(3)];
                bytes[at..end].fill(value);
            }
            4 => bytes.insert(at, random.next() as u8),
            // The dimensions: the fields that can lie about size.
            _ => {
                let at = 40 + random.below(16);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
        }
    }
}

/// Reads everything; true when the file was taken.
fn taken(bytes: Vec<u8>) -> bool {
    let Ok(mut reader) = open(bytes, "x.nii") else { return false };
    let header = reader.header();
    assert!(!header.to_string().is_empty());
    let (voxels, mut volume) = (header.voxels(), Vec::new());
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
        mutate(&mut bytes, &mut random);
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
