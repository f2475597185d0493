//! Any bytes, taken for JSON sidecars of images and confounds: keys or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use voxelflow_formats::sidecar::{ConfoundsSidecar, Sidecar};

fuzz_target!(|data: &[u8]| {
    match Sidecar::from_reader(data, "fuzz.json") {
        Ok(sidecar) => {
            assert!(sidecar.repetition_time.is_none_or(|seconds| (0.01..=100.0).contains(&seconds)))
        }
        Err(error) => assert!(error.to_string().starts_with("fuzz.json: ")),
    }
    if let Err(error) = ConfoundsSidecar::from_reader(data, "fuzz.json") {
        assert!(error.to_string().starts_with("fuzz.json: "));
    }
});
