//! How near reading comes to the limit that decompression sets: inflating alone, and inflating to scaled volumes.
//!
//! `cargo run --release -p voxelflow-formats --example inflate_bench -- [FILE.nii.gz]…`; without a file, the
//! whole-brain run under `VOXELFLOW_DATA` (default `../shared/data`). Each figure is the best of five.
//!
//! libdeflate (crate libdeflater 1.26, a whole file at once) was measured beside flate2 with zlib-rs in processor time:
//! 0.94 times its speed on the whole-brain int16 run, 1.22 on its T1, 1.14 on float noise. It holds the whole run in
//! memory, so zlib-rs stays.

use flate2::bufread::MultiGzDecoder;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;
use voxelflow_formats::{NiftiReader, Result};

const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let mut files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        let data =
            std::env::var_os("VOXELFLOW_DATA").map_or_else(|| PathBuf::from("../shared/data"), PathBuf::from);
        files.push(data.join("fmri/studyforrest/sub-02_task-visloc_bold.nii.gz"));
    }
    for file in files {
        let (mut inflating, mut reading) = (f64::INFINITY, f64::INFINITY);
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            bytes = inflate(&file).map_err(|source| voxelflow_formats::Error::Open {
                path: file.display().to_string(),
                source,
            })?;
            inflating = inflating.min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            read(&file)?;
            reading = reading.min(start.elapsed().as_secs_f64());
        }
        let megabytes = bytes as f64 / 1e6;
        println!(
            "{}: {megabytes:.1} MB; inflating alone {:.0} MB/s, to volumes {:.0} MB/s, ratio {:.2}",
            file.display(),
            megabytes / inflating,
            megabytes / reading,
            inflating / reading
        );
    }
    Ok(())
}

/// Decompresses a file, chunk by chunk, and counts its bytes.
fn inflate(file: &Path) -> std::io::Result<u64> {
    let mut decoder = MultiGzDecoder::new(BufReader::with_capacity(256 * 1024, std::fs::File::open(file)?));
    let (mut chunk, mut bytes) = (vec![0; 128 * 1024], 0);
    loop {
        match decoder.read(&mut chunk)? {
            0 => return Ok(bytes),
            n => bytes += n as u64,
        }
    }
}

/// Reads every volume of a file.
fn read(file: &Path) -> Result<()> {
    let mut reader = NiftiReader::open(file)?;
    let mut volume = Vec::<f32>::new();
    while reader.next_volume(&mut volume)? {}
    Ok(())
}
