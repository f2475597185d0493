//! Any bytes, taken for CIFTI-2: series or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use voxelflow_formats::cifti::CiftiReader;

/// Values that are read at most: a small gzip file can unfold to very many.
const MOST_VALUES: usize = 1 << 22;

fuzz_target!(|data: &[u8]| {
    let mut reader = match CiftiReader::from_reader(Cursor::new(data.to_vec()), "fuzz.nii") {
        Ok(reader) => reader,
        Err(error) => return assert!(error.to_string().contains("fuzz.nii")),
    };
    let header = reader.header();
    let length = header.along.len();
    let mut next = 0;
    for model in &header.models {
        assert_eq!(model.offset, next);
        next += model.count;
    }
    assert_eq!(next, header.grayordinates());
    let (mut series, mut values) = (Vec::<f32>::new(), 0);
    while values < MOST_VALUES {
        match reader.next_series(&mut series) {
            Ok(true) => assert_eq!(series.len(), length),
            Ok(false) => break,
            Err(error) => return assert!(error.to_string().contains("fuzz.nii")),
        }
        values += length;
    }
});
