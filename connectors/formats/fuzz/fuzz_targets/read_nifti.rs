//! Any bytes, taken for an image: the reader gives volumes or a typed error. It never panics, and never
//! takes memory for data that are not there (`.ci/fuzz` bounds single allocations).
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use voxelflow_formats::{Error, NiftiReader, ReadOptions, XformPolicy};

/// Values that are read at most: a small gzip file can unfold to very many.
const MOST_VALUES: usize = 1 << 22;

fn open(data: &[u8], xform: XformPolicy) -> Result<NiftiReader, Error> {
    NiftiReader::from_reader(Cursor::new(data.to_vec()), "fuzz.nii", &ReadOptions { xform })
}

fuzz_target!(|data: &[u8]| {
    let opened = open(data, XformPolicy::Agree).or_else(|error| {
        assert!(error.to_string().contains("fuzz.nii"));
        open(data, XformPolicy::Qform)
    });
    let Ok(mut reader) = opened else { return };
    assert!(!reader.header().to_string().is_empty());
    let (voxels, mut volume, mut values) = (reader.header().voxels(), Vec::<f32>::new(), 0);
    while values < MOST_VALUES {
        match reader.next_volume(&mut volume) {
            Ok(true) => assert_eq!(volume.len(), voxels),
            Ok(false) => break,
            Err(error) => {
                assert!(error.to_string().contains("fuzz.nii"));
                break;
            }
        }
        values += voxels;
    }
});
