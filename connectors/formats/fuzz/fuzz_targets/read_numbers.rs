//! Any bytes, taken for lines of numbers: EV files, movement regressors, and, cut at the first zero byte, b-values
//! with directions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use voxelflow_formats::table::{EvFile, Gradients, MovementRegressors, UnnamedColumns};

fuzz_target!(|data: &[u8]| {
    match EvFile::from_reader(data, "fuzz.txt") {
        Ok(ev) => assert!(ev.events.iter().all(|event| event.onset.is_finite() && event.duration >= 0.0)),
        Err(error) => assert!(error.to_string().contains("fuzz.txt: line ")),
    }
    if let Err(error) = MovementRegressors::from_reader(data, "fuzz.txt") {
        assert!(error.to_string().contains("fuzz.txt: line "));
    }
    match UnnamedColumns::from_reader(data, "fuzz.txt") {
        Ok(read) => assert!(read.columns.iter().all(|column| column.len() == read.rows())),
        Err(error) => assert!(error.to_string().contains("fuzz.txt: line ")),
    }
    let cut = data.iter().position(|&byte| byte == 0).unwrap_or(data.len() / 2);
    let (bval, bvec) = (&data[..cut], &data[(cut + 1).min(data.len())..]);
    match Gradients::from_readers((bval, "fuzz.bval"), (bvec, "fuzz.bvec")) {
        Ok(gradients) => assert_eq!(gradients.b_values.len(), gradients.directions.len()),
        Err(error) => assert!(error.to_string().contains("fuzz.b")),
    }
});
