//! FreeSurfer, GIFTI, CIFTI-2 and numpy files: the values that nibabel and numpy read
//! (`integration-tests/reference/formats_reference.py` wrote files and values), and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cifti;
#[path = "../damage/mod.rs"]
mod damage;
mod gifti;
mod malformed;
mod mgh;
mod mutations;
mod npy;

use serde_json::Value;
use std::path::PathBuf;

/// A file that the reference script wrote.
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// What the reference tools read, by the name of the file.
fn expected(format: &str) -> serde_json::Map<String, Value> {
    let all: Value = serde_json::from_str(include_str!("../fixtures/formats.json")).unwrap();
    all[format].as_object().unwrap().clone()
}

/// Single precision numbers of a JSON list.
fn singles(list: &Value) -> Vec<f32> {
    list.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}
