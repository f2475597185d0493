//! Any bytes, taken for FreeSurfer's volumes: frames or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use voxelflow_formats::mgh::MghReader;

/// Values that are read at most: a small gzip file can unfold to very many.
const MOST_VALUES: usize = 1 << 22;

fuzz_target!(|data: &[u8]| {
    let mut reader = match MghReader::from_reader(Cursor::new(data.to_vec()), "fuzz.mgh") {
        Ok(reader) => reader,
        Err(error) => return assert!(error.to_string().contains("fuzz.mgh")),
    };
    let (count, mut frame, mut values) = (reader.header().values(), Vec::<f32>::new(), 0);
    while values < MOST_VALUES {
        match reader.next_frame(&mut frame) {
            Ok(true) => assert_eq!(frame.len(), count),
            Ok(false) => break,
            Err(error) => return assert!(error.to_string().contains("fuzz.mgh")),
        }
        values += count;
    }
    let _ = reader.t_r().map_err(|error| error.to_string());
});
