//! Any bytes, taken for GIFTI: arrays and a surface, or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use voxelflow_formats::gifti::{GiftiReader, Surface};

fuzz_target!(|data: &[u8]| {
    let opened = GiftiReader::from_reader(Cursor::new(data.to_vec()), "fuzz.gii");
    let read = opened.and_then(|mut reader| {
        while let Some(array) = reader.next_array()? {
            assert_eq!(array.values().len(), array.dims().iter().product::<usize>());
            let _ = array.t_r().map_err(|error| error.to_string());
            let _ = array.integers().map_err(|error| error.to_string());
        }
        Ok(())
    });
    if let Err(error) = read {
        assert!(error.to_string().contains("fuzz.gii"));
    }
    if let Ok(surface) = Surface::from_reader(Cursor::new(data.to_vec()), "fuzz.gii") {
        assert!(surface.triangles.iter().flatten().all(|&vertex| (vertex as usize) < surface.points.len()));
    }
});
